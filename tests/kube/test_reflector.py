"""Every way in which a list or a watch can go wrong, and what the reflector does about it."""

import pytest
from kube.streams import bookmark, error, line, node, page

from restow.kube.decode import NODES, Undecodable
from restow.kube.reflector import Bookmark, Config, Delete, List, Reflector, Replace, Restart, Upsert, Watch

CONFIG = Config(page_size=2, watch_seconds=60, min_backoff=100, max_backoff=10_000)


def reflector(known: str = "") -> Reflector:
    return Reflector(NODES, known, CONFIG)


def watching(version: int = 10) -> Reflector:
    """A reflector that has listed node `a` and begun its watch at time 0."""
    made = reflector()
    made.request(0)
    made.on_page(page(version, node("a", 5)), 0)
    assert isinstance(made.request(0), Watch)
    return made


def check(version: int) -> tuple:
    """What is asked before a watch goes on from this version."""
    return ("limit", "1"), ("resourceVersion", str(version)), ("resourceVersionMatch", "NotOlderThan")


def resumed(made: Reflector, version: int, now: int = 0) -> List | Watch:
    """The request after a server of the same history has said that it is there."""
    asked = made.request(now)
    assert asked.query == check(version)
    assert made.on_page(page(version, node("a", 5)), now) == []
    return made.request(now)


def told(changes) -> list:
    """Changes, short: what happened to whom."""
    short = []
    for change in changes:
        match change:
            case Upsert(one):
                short.append(("upsert", one.name if isinstance(one, Undecodable) else one.metadata.name))
            case Delete(key):
                short.append(("delete", key))
            case Replace(keys, version):
                short.append(("replace", *sorted(keys), version))
            case Bookmark(version):
                short.append(("bookmark", version))
            case Restart(reason, wait):
                short.append(("restart", reason, wait))
    return short


# -- lists ---------------------------------------------------------------------------------------------------------------


def test_the_first_list_reads_the_latest_state():
    assert reflector().request(0) == List((("limit", "2"),), 0)


def test_a_restart_lists_not_older_than_what_the_fold_knows():
    query = (("limit", "2"), ("resourceVersion", "77"), ("resourceVersionMatch", "NotOlderThan"))
    assert reflector("77").request(5) == List(query, 5)


def test_a_list_in_one_page():
    made = reflector()
    made.request(0)
    assert told(made.on_page(page(10, node("a", 1), node("b", 2)), 0)) == [
        ("upsert", "a"), ("upsert", "b"), ("replace", "a", "b", "10"),
    ]  # fmt: skip
    assert made.synced
    assert made.version == "10"


def test_an_empty_list_replaces_everything():
    made = reflector()
    made.request(0)
    assert told(made.on_page(page(10), 0)) == [("replace", "10")]


def test_pages_follow_each_other_and_only_the_last_completes_the_list():
    made = reflector("3")
    made.request(0)
    assert told(made.on_page(page(10, node("a", 1), more="t1"), 0)) == [("upsert", "a")]
    assert not made.synced
    # The version belongs to the first request only: the token carries it on.
    assert made.request(0) == List((("limit", "2"), ("continue", "t1")), 0)
    assert told(made.on_page(page(10, node("b", 2)), 0)) == [("upsert", "b"), ("replace", "a", "b", "10")]


def test_a_watch_follows_the_list():
    query = (("watch", "true"), ("resourceVersion", "10"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", "60"))
    made = reflector()
    made.request(0)
    made.on_page(page(10), 0)
    assert made.request(3) == Watch(query, 3)


def test_an_expired_continue_token_lists_from_the_start_without_what_was_gathered():
    made = reflector("3")
    made.request(0)
    made.on_page(page(10, node("a", 1), more="t1"), 0)
    made.request(0)
    assert told(made.on_error(410, 0, "The provided continue parameter is too old")) == [("restart", "ContinueExpired", 0)]
    query = (("limit", "2"), ("resourceVersion", "10"), ("resourceVersionMatch", "NotOlderThan"))
    assert made.request(0) == List(query, 0)
    assert told(made.on_page(page(20, node("b", 2)), 0))[-1] == ("replace", "b", "20")


def test_after_a_list_that_broke_off_nothing_goes_back_behind_the_pages_that_came():
    """The next list may be answered by another server, whose cache lags: what was bound in the first page would not be bound any more."""
    made = reflector("3")
    made.request(0)
    made.on_page(page(10, node("a", 9), more="t1"), 0)
    made.request(0)
    made.on_error(410, 0)
    made.request(0)
    assert told(made.on_page(page(8, node("a", 7), more="t2"), 0)) == [("restart", "StaleList", 200)]


def test_a_refused_continue_token_lists_from_the_start():
    made = reflector()
    made.request(0)
    made.on_page(page(10, node("a", 1), more="t1"), 0)
    made.request(0)
    assert told(made.on_error(400, 0, "continue key is not valid")) == [("restart", "ContinueExpired", 100)]
    assert made.request(0) == List((("limit", "2"), ("resourceVersion", "10"), ("resourceVersionMatch", "NotOlderThan")), 100)


def test_a_failed_page_is_asked_for_again():
    made = reflector()
    made.request(0)
    made.on_page(page(10, node("a", 1), more="t1"), 0)
    made.request(0)
    assert told(made.on_error(500, 0)) == [("restart", "Status500", 100)]
    assert made.request(0) == List((("limit", "2"), ("continue", "t1")), 100)


def test_a_list_that_is_older_than_what_is_known_is_dropped():
    made = reflector("50")
    made.request(0)
    assert told(made.on_page(page(49, node("a", 1)), 0)) == [("restart", "StaleList", 100)]
    assert not made.synced
    assert made.version == "50"


@pytest.mark.parametrize("body", [b"", b"<html>", page(10, node("a", 1))[:-20], b'{"kind":"Status"}', page("", node("a", 1))])
def test_a_page_that_is_none_is_asked_for_again(body):
    made = reflector()
    made.request(0)
    assert told(made.on_page(body, 0)) == [("restart", "Garbled", 100)]
    assert isinstance(made.request(0), List)


CONSISTENT = (("limit", "2"),)
"""A list without a version: from the store itself, not from a cache that may lag."""


def test_a_version_that_the_server_has_not_reached_is_no_longer_asked_for():
    """Whether its cache lags, or the API was restored from a backup: the store itself knows. Waiting for the version might never end."""
    made = reflector("99")
    made.request(0)
    message = "Timeout: Too large resource version: 99, current: 10"
    assert told(made.on_error(504, 0, message, 1000)) == [("restart", "VersionTooLarge", 1000)]
    assert made.request(0) == List(CONSISTENT, 1000)
    assert told(made.on_page(page(99, node("a", 1)), 0)) == [("upsert", "a"), ("replace", "a", "99")]


def test_a_store_that_is_older_than_what_is_known_has_another_history_and_is_listed():
    """As after a restored backup: its versions will never reach those of the log, and what it lists is all there is."""
    made = reflector("99")
    made.request(0)
    made.on_error(504, 0, "Timeout: Too large resource version: 99, current: 10")
    made.request(0)
    assert told(made.on_page(page(10, node("a", 1), node("b", 2), more="next"), 0)) == [
        ("restart", "HistoryReset", 0), ("upsert", "a"), ("upsert", "b"),
    ]
    assert not made.synced
    made.request(0)
    assert told(made.on_page(page(10, node("c", 3)), 0)) == [("upsert", "c"), ("replace", "a", "b", "c", "10")]
    assert (made.synced, made.version) == (True, "10")
    assert told(made.on_line(line("ADDED", node("d", 11)), 0)) == [("upsert", "d")]


def test_a_server_that_gives_less_than_it_was_asked_for_is_believed_only_without_a_version():
    """A cache that ignores NotOlderThan cannot move the cluster back in time."""
    made = reflector("99")
    made.request(0)
    assert told(made.on_page(page(10, node("a", 1)), 0)) == [("restart", "StaleList", 100)]
    assert made.request(0) == List(CONSISTENT, 100)
    assert told(made.on_page(page(99, node("b", 1)), 0)) == [("upsert", "b"), ("replace", "b", "99")]
    made.on_line(error(410), 0)
    query = (("limit", "2"), ("resourceVersion", "99"), ("resourceVersionMatch", "NotOlderThan"))
    assert made.request(0).query == query, "the next list is asked for as always"


@pytest.mark.parametrize("first", [bookmark(7), line("MODIFIED", node("a", 7))])
def test_a_watch_whose_server_is_behind_what_is_known_is_followed_by_a_list_of_the_store(first):
    """A watch from a version of the future is silent for ever; only its bookmarks say that it is one."""
    made = watching()
    changes = made.on_line(first, 0) or made.on_end(60_000)
    assert told(changes) == [("restart", "Behind", 100)]
    assert made.request(60_000).query == CONSISTENT


def test_one_broken_object_does_not_hide_the_others():
    made = reflector()
    made.request(0)
    broken = node("b", 2, spec={"taints": "none"})
    changes = made.on_page(page(10, node("a", 1), broken), 0)
    assert told(changes) == [("upsert", "a"), ("upsert", "b"), ("replace", "a", "b", "10")]
    assert changes[1].object == Undecodable(
        "Node", "", "b", "uid-b", "Expected `array | null`, got `str` - at `$.spec.taints`", "2"
    )


# -- watches -------------------------------------------------------------------------------------------------------------


def test_lines_become_changes():
    made = watching()
    assert told(made.on_line(line("ADDED", node("b", 11)), 0)) == [("upsert", "b")]
    assert told(made.on_line(line("MODIFIED", node("b", 12)), 0)) == [("upsert", "b")]
    assert told(made.on_line(line("DELETED", node("b", 13)), 0)) == [("delete", "b")]
    assert told(made.on_line(bookmark(20), 0)) == [("bookmark", "20")]
    assert made.version == "20"


def test_a_duplicate_is_dropped():
    made = watching()
    twice = line("MODIFIED", node("a", 11))
    assert told(made.on_line(twice, 0) + made.on_line(twice, 0)) == [("upsert", "a")]


def test_what_is_older_than_the_last_line_is_dropped():
    made = watching()
    made.on_line(line("MODIFIED", node("a", 15)), 0)
    assert made.on_line(line("DELETED", node("a", 12)), 0) == []
    assert made.on_line(bookmark(14), 0) == []
    assert made.version == "15"


@pytest.mark.parametrize(("newer", "older"), [("10", "9"), ("1" * 5_000, "9" * 4_999), ("010", "9"), ("20", "0019")])
def test_versions_are_numbers_of_any_length(newer, older):
    made = reflector(older)
    assert made.on_page(page(newer, node("a", 5)), 0)
    assert made.version == newer
    made = reflector(newer)
    assert told(made.on_page(page(older, node("a", 5)), 0))[0][1] == "StaleList"


@pytest.mark.parametrize("version", ["b2", "1e3", "٣", "-5", "10 "])
def test_versions_that_are_no_numbers_are_in_no_order(version):
    made = reflector("10")
    assert told(made.on_page(page(version, node("a", 5)), 0)) == [("upsert", "a"), ("replace", "a", version)]
    assert made.on_line(bookmark(version), 0) == [], "the same one again"
    assert made.on_line(bookmark("c" + version), 0) == [Bookmark("c" + version)]


def test_a_broken_object_is_told_and_passed():
    made = watching()
    assert told(made.on_line(line("MODIFIED", node("a", 11, spec={"taints": 5})), 0)) == [("upsert", "a")]
    assert told(made.on_line(line("MODIFIED", node("a", 12)), 0)) == [("upsert", "a")]


def test_the_end_of_a_watch_is_followed_by_the_next_at_once():
    made = watching()
    made.on_line(line("MODIFIED", node("a", 11)), 0)
    assert made.on_end(0) == []
    request = resumed(made, 11)
    assert isinstance(request, Watch)
    assert (("resourceVersion", "11") in request.query, request.not_before) == (True, 0)


def test_before_a_watch_resumes_the_server_says_that_it_has_come_as_far():
    """A watch from a version of the future is silent, whatever happens: one object, not older than what is known, is asked for first."""
    made = watching()
    made.on_line(line("MODIFIED", node("a", 11)), 0)
    made.on_error(0, 0, "connection reset")
    assert made.request(0) == List(check(11), 100)
    assert made.synced, "what was listed is as good as it was"
    assert made.on_page(page(12, node("a", 12), more="next"), 150) == [], "what it shows is the watch's to tell"
    assert (made.version, isinstance(made.request(150), Watch)) == ("11", True)


def test_an_api_that_came_back_from_a_backup_is_noticed_before_the_watch_resumes():
    """Seed 307 of the simulator: what was written until a bookmark came was missed, because by then the versions had caught up."""
    made = watching()
    made.on_error(0, 0, "connection reset")
    made.request(0)
    message = "Timeout: Too large resource version: 10, current: 4"
    assert told(made.on_error(504, 150, message)) == [("restart", "VersionTooLarge", 200)]
    assert made.request(150).query == CONSISTENT
    assert told(made.on_page(page(4, node("b", 3)), 400)) == [("restart", "HistoryReset", 0), ("upsert", "b"), ("replace", "b", "4")]


def test_a_server_that_is_behind_and_answers_all_the_same_is_noticed_too():
    made = watching()
    made.on_error(0, 0)
    made.request(0)
    assert told(made.on_page(page(4, node("b", 3)), 150)) == [("restart", "StaleList", 200)]
    assert made.request(150).query == CONSISTENT


@pytest.mark.parametrize("later", [3_001, 600_000])
def test_what_was_not_heard_of_for_long_is_listed_anew(later):
    """In that time an API that came back from a backup may have come past the version known, with other objects."""
    made = watching()
    made.on_line(bookmark(20), 0)
    made.on_error(0, later - 500)
    made.request(later - 500)
    assert told(made.on_page(page(30, node("b", 25)), later)) == [("restart", "Silence", 0)]
    query = (("limit", "2"), ("resourceVersion", "20"), ("resourceVersionMatch", "NotOlderThan"))
    assert made.request(later) == List(query, later)
    assert told(made.on_page(page(30, node("b", 25)), later)) == [("upsert", "b"), ("replace", "b", "30")]


@pytest.mark.parametrize("said", [bookmark(10), bookmark(11), line("MODIFIED", node("a", 11))])
def test_whoever_was_heard_lately_goes_on_where_he_was(said):
    made = watching()
    made.on_line(said, 50_000)
    made.on_error(0, 52_000)
    made.request(52_000)
    assert made.on_page(page(30, node("b", 25)), 53_000) == []
    assert isinstance(made.request(53_000), Watch)


def test_an_orderly_end_is_a_sign_of_life():
    made = watching()
    made.on_end(60_000)
    made.request(60_000)
    assert made.on_page(page(10, node("a", 5)), 60_100) == []
    assert isinstance(made.request(60_100), Watch)


def test_a_question_that_fails_is_asked_again_and_waits_as_a_watch_would():
    made = watching()
    waits = [change.wait for change in made.on_error(0, 0)]
    for _ in range(4):
        assert made.request(0).query == check(10)
        waits += [change.wait for change in made.on_error(0, 2_000)]
    assert waits == [100, 200, 400, 800, 1600]


def test_a_quiet_watch_that_lasted_is_followed_by_the_next_at_once():
    made = watching()
    assert made.on_end(60_000) == []
    assert made.request(60_000).not_before == 60_000


def test_watches_that_end_at_once_are_slowed_down():
    made = watching()
    assert told(made.on_end(5)) == [("restart", "ShortWatch", 100)]
    resumed(made, 10, 200)
    assert told(made.on_end(205)) == [("restart", "ShortWatch", 200)]


def test_a_cut_connection_resumes_after_the_last_complete_line():
    made = watching()
    made.on_line(line("MODIFIED", node("a", 11)), 0)
    # The half line that followed was never complete, so it was never fed.
    assert told(made.on_error(0, 0, "connection reset")) == [("restart", "Disconnected", 100)]
    assert ("resourceVersion", "11") in made.request(0).query


def test_a_garbled_line_does_not_count_and_what_follows_it_is_ignored():
    made = watching()
    made.on_line(line("MODIFIED", node("a", 11)), 0)
    assert told(made.on_line(line("MODIFIED", node("b", 12))[:-3], 0)) == [("restart", "Garbled", 100)]
    assert made.broken
    assert made.on_line(line("MODIFIED", node("c", 13)), 0) == []
    assert made.on_end(0) == []
    request = resumed(made, 11)
    assert isinstance(request, Watch)
    assert ("resourceVersion", "11") in request.query


def test_a_line_that_stays_garbled_leads_to_a_list():
    made = watching()
    made.on_line(b"{", 0)
    resumed(made, 10)
    made.on_line(b"{", 0)
    query = (("limit", "2"), ("resourceVersion", "10"), ("resourceVersionMatch", "NotOlderThan"))
    assert made.request(0).query == query


@pytest.mark.parametrize("bad", [line("ADDED", {"metadata": {"name": "x"}}), line("SURPRISE", node("a", 11))])
def test_a_line_without_a_version_or_of_an_unknown_type_is_garbled(bad):
    assert told(watching().on_line(bad, 0)) == [("restart", "Garbled", 100)]


@pytest.mark.parametrize("how", ["status", "line"])
def test_a_410_lists_again_not_older_than_what_was_seen(how):
    made = watching()
    made.on_line(line("MODIFIED", node("a", 11)), 0)
    gone = made.on_error(410, 0) if how == "status" else made.on_line(error(410, "Expired"), 0)
    assert told(gone) == [("restart", "Expired", 0)]
    query = (("limit", "2"), ("resourceVersion", "11"), ("resourceVersionMatch", "NotOlderThan"))
    assert made.request(0) == List(query, 0)
    assert not made.synced


def test_what_vanished_during_a_gap_is_missing_from_the_next_replace():
    made = watching()
    made.on_line(error(410), 0)
    made.request(0)
    assert told(made.on_page(page(30, node("b", 25)), 0)) == [("upsert", "b"), ("replace", "b", "30")]


def test_a_410_after_every_list_is_slowed_down():
    made = watching()
    waits = []
    for _ in range(4):
        waits += [change.wait for change in made.on_error(410, 0)]
        made.request(0)
        made.on_page(page(10), 0)
        made.request(0)
    assert waits == [0, 200, 400, 800]


def test_too_many_requests_waits_as_long_as_it_is_told():
    made = watching()
    assert told(made.on_error(429, 1_000, "", 3_000)) == [("restart", "TooManyRequests", 3_000)]
    assert made.request(1_001).not_before == 4_000


def test_nobody_can_make_it_wait_longer_than_the_bound():
    assert told(watching().on_error(429, 0, "", 86_400_000)) == [("restart", "TooManyRequests", 10_000)]


def test_an_error_line_carries_its_own_retry_after():
    assert told(watching().on_line(error(429, retry=2), 0)) == [("restart", "TooManyRequests", 2_000)]


@pytest.mark.parametrize("status", [500, 502, 503, 401, 403, 404, 0])
def test_repeated_failures_wait_longer_up_to_a_bound(status):
    made = watching()
    waits = []
    for _ in range(10):
        waits += [change.wait for change in made.on_error(status, 0)]
        assert isinstance(resumed(made, 10), Watch)
    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]


def test_a_line_ends_the_run_of_failures():
    made = watching()
    for _ in range(5):
        made.on_error(500, 0)
        resumed(made, 10)
    made.on_line(bookmark(11), 0)
    assert told(made.on_error(500, 0)) == [("restart", "Status500", 100)]


def test_jitter_is_applied_to_the_wait():
    made = Reflector(NODES, "", CONFIG, jitter=lambda wait: wait // 2)
    made.request(0)
    assert told(made.on_error(500, 0)) == [("restart", "Status500", 50)]


def test_two_errors_of_one_response_count_once():
    made = watching()
    made.on_line(error(500), 0)
    assert made.on_error(0, 0) == []
    assert made.on_end(0) == []


def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects_and_in_the_end_with_one_of_any_size():
    made, limits = Reflector(NODES, "", Config(page_size=500, min_backoff=100)), []
    for now in range(0, 4_000, 1_000):
        request = made.request(now)
        limits.append((dict(request.query)["limit"], made.most > 0))
        changes = made.on_error(413, now, "a page of nodes has more than 128 MiB")
    assert limits == [("500", True), ("62", True), ("7", True), ("1", False)]
    assert [change.reason for change in changes] == ["Status413"]


def test_a_collection_that_has_become_too_large_for_a_server_that_ignores_limits_is_listed_anew():
    """The question after a watch asks for one object; such a server answers with all, and refusing that would be the end of the watch."""
    made = Reflector(NODES, "", Config(min_backoff=100))
    made.request(0)
    made.on_page(page("5"), 0)
    made.request(0)
    made.on_end(300_000)
    assert dict(made.request(300_000).query)["limit"] == "1"
    for now in range(300_000, 303_000, 1_000):
        made.on_error(413, now, "a page of nodes has more than 128 MiB")
        request = made.request(now + 1_000)
    assert (dict(request.query)["limit"], made.most) == ("1", 0)
    made.on_page(page("9"), 303_000)
    assert made.synced
