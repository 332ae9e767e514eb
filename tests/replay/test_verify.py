"""`restow verify` tells the truth about every decision (DESIGN 2)."""

import msgspec
import pytest
from msgspec.structs import replace
from replay.handmade import DECIDERS, FirstFit, Handmade, migration, node, placements, pod, shape, time_at

from restow.contracts import codec
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.reader import READER
from restow.domain.too_old import TOO_OLD
from restow.replay.report import lines_of
from restow.replay.source import ListSource
from restow.replay.state_at import ReplayError
from restow.replay.verify import _texts, verify


def test_an_honest_log_is_re_decided_identically():
    report = verify(placements().source(), DECIDERS)
    assert report.ok
    assert report.sentence == "4 of 4 decisions re-decided identically"
    assert (report.commits, report.fact_commits, report.events, report.facts) == (7, 4, 16, 9)
    assert report.families["session"].identical == 4
    assert not report.differences


def test_a_tampered_event_is_found_and_shown():
    log = placements()
    log.tamper(4, b'"uid-web-2","node":"a"', b'"uid-web-2","node":"b"')
    report = verify(log.source(), DECIDERS)
    assert not report.ok
    difference = report.differences[0]
    assert (difference.seq, difference.decision, difference.family) == (4, 0, "session")
    assert lines_of(difference) == [
        '- {"type":"session.pod_placed","pod":"uid-web-2","node":"b"}',
        '+ {"type":"session.pod_placed","pod":"uid-web-2","node":"a"}',
    ]


def test_later_decisions_are_judged_on_what_the_log_says_not_on_what_it_should_say():
    log = placements()
    log.tamper(7, b'"uid-web-5","node":"b"', b'"uid-web-5","node":"a"')
    report = verify(log.source(), DECIDERS)
    assert (report.identical, report.different) == (3, 1)
    assert (report.differences[0].seq, report.differences[0].decision) == (7, 0)


def test_a_missing_decision_and_an_invented_one_are_found():
    log = Handmade()
    log.facts(node("a"), shape(), pod("web-1"))
    log.decide("session", c.Schedule(time_at(2)), e.PodPlaced("uid-web-1", "a"), e.PodReleased("uid-web-9", "x"))
    log.decide("session", c.Schedule(time_at(3)))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-web-1", "a"))
    report = verify(log.source(), DECIDERS)
    assert [(d.seq, len(d.logged), len(d.decided)) for d in report.differences] == [(2, 2, 1), (4, 1, 0)]


def test_a_cursor_never_sees_more_than_was_read():
    log = Handmade()
    log.facts(node("b"), shape(), pod("web-1"), pod("web-2"))
    log.facts(node("a"))
    log.facts(pod("web-3"))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-web-1", "b"), e.PodPlaced("uid-web-2", "b"), read=1)
    log.decide("session", c.Schedule(time_at(5)), e.PodPlaced("uid-web-3", "a"), read=4)
    assert verify(log.source(), DECIDERS).sentence == "2 of 2 decisions re-decided identically"


def test_a_commit_of_other_logic_is_skipped_and_never_identical():
    log = placements()
    log.decide("session", c.Schedule(time_at(8)), e.PodPlaced("uid-web-4", "b"), logic="session@0")
    report = verify(log.source(), DECIDERS)
    assert report.ok
    assert report.skipped == {"session@0, this Restow is session@1": 1}
    assert report.sentence == "4 of 5 decisions re-decided identically, 1 skipped"


def test_what_is_skipped_is_told_with_the_release_that_decided_it():
    """A wheel or an image to run, for each logic; where the log does not say, what to look for."""
    log = placements()
    image = "registry.example/restow@sha256:0123"
    for logic, release in (("session@0", "0.9.0+aaaabbbbcccc"), ("session@0", f"0.9.1+ddddeeeeffff {image}"), ("session@-1", "")):
        log.decide("session", c.Schedule(time_at(8)), logic=logic, release=release)
    report = verify(log.source(), DECIDERS)
    assert report.elsewhere == {"session@0": {"0.9.0+aaaabbbbcccc": 1, f"0.9.1+ddddeeeeffff {image}": 1}, "session@-1": {"": 1}}
    unnamed, wheel, boxed = report.advice
    assert "1 by session@-1: the commits name no release" in unnamed
    assert "pip install restow==0.9.0" in wheel
    assert "must say 0.9.0+aaaabbbbcccc" in wheel
    assert f"{image} restow verify /log/FILE" in boxed


def test_what_was_decided_behind_a_record_that_a_later_release_must_read_is_neither_identical_nor_different():
    log = placements()
    before = verify(log.source(), DECIDERS).identical
    log.facts(release="9.0.0", reader=READER + 1)
    log.decide("session", c.Schedule(time_at(9)), e.PodPlaced("uid-web-9", "nowhere"))
    report = verify(log.source(), DECIDERS)
    assert (report.identical, report.different, report.skipped) == (before, 0, {TOO_OLD: 1})
    assert not report.ok
    assert f"written by 9.0.0, needs reader {READER + 1}" in report.sentence


def test_a_family_without_a_decider_is_skipped():
    report = verify(migration().source(), DECIDERS)
    assert report.skipped == {"no decider of family migration here": 5}
    assert report.identical == 1
    assert report.families["migration"].skipped == 5


def test_leadership_and_configuration_are_decided_again_too():
    log = Handmade()
    log.decide("session", c.Lead("one"), e.SessionLed(1, "one"))
    log.decide("session", c.Lead("two"), e.SessionLed(3, "two"))
    report = verify(log.source(), DECIDERS)
    assert (report.identical, report.different) == (1, 1)


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda log: log.decide("session", c.Lead("x"), e.SessionLed(1, "x")), "epochs never go back"),
        (lambda log: log.decide("session", c.Schedule(time_at(8)), read=8), "nobody can have folded"),
        (lambda log: log.decide("session", c.Schedule(time_at(8)), read=3), "before its family's previous commit 7"),
    ],
)
def test_a_broken_rule_of_the_log_is_found(spoil, rule):
    log = placements()
    spoil(log)
    report = verify(log.source(), DECIDERS)
    assert not report.ok
    assert report.problems == 1
    assert rule in report.found[0].what
    assert report.decisions == report.identical + report.different + sum(report.skipped.values())


def test_unknown_events_and_commands_are_counted_and_skipped():
    log = placements()
    log.commit("cluster", body=b'{"decisions":[{"command":{"type":"observe","kind":"x","how":"y"},"events":[{"type":"cluster.moon"}]}]}')
    log.commit("session", body=b'{"decisions":[{"command":{"type":"dream"},"events":[]}]}')
    report = verify(log.source(), DECIDERS)
    assert report.ok
    assert report.unknown == {"cluster.moon": 1}
    assert report.skipped == {"unknown command dream": 1}


def test_void_events_are_counted():
    log = placements()
    log.facts(e.PodGone("uid-nobody"))
    assert verify(log.source(), DECIDERS).void == {"cluster.pod_gone": 1}


def test_a_decider_that_fails_is_a_finding():
    class Broken(FirstFit):
        def decide(self, state, command):
            raise ZeroDivisionError("oops")

    report = verify(placements().source(), {"session": Broken()})
    assert report.different == 3
    assert report.differences[0].note == "the decider fails: ZeroDivisionError: oops"


def test_many_differences_are_counted_and_a_few_kept():
    log = Handmade()
    log.facts(shape())
    log.commit("session", *[Decision(c.Schedule(i), (e.PodPlaced("uid-x", "a"),)) for i in range(100)])
    report = verify(log.source(), DECIDERS)
    assert report.different == 100
    assert len(report.differences) == 20


def test_a_part_of_a_log_is_refused_with_what_to_do():
    with pytest.raises(ReplayError, match=r"begins at sequence 3.*--archive"):
        verify(ListSource(placements().records[2:]), DECIDERS)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda log: log.commit("session", body=b'{"decisions":7}'), "record.unreadable: it cannot be read: not a commit"),
        (lambda log: log.facts(e.PodPlaced("uid-web-4", "b")), "record.other_family: session.pod_placed in a commit of family cluster"),
    ],
)
def test_a_record_that_is_not_ours_is_told_and_everything_else_is_verified(write, what):
    log = placements()
    write(log)
    log.decide("session", c.Schedule(time_at(9)), e.PodPlaced("uid-web-4", "b"))
    report = verify(log.source(), DECIDERS)
    assert report.ok
    assert report.sentence == "5 of 5 decisions re-decided identically, 1 record is not ours, and void"
    assert [(problem.seq, problem.what[: len(what)]) for problem in report.strangers] == [(8, what)]
    assert sum(report.void.values()) == 1


def test_an_empty_log_has_nothing_to_decide():
    assert verify(ListSource([]), DECIDERS).sentence == "0 of 0 decisions re-decided identically"


def test_progress_goes_from_nothing_to_all():
    seen = []
    verify(placements().source(), DECIDERS, progress=lambda done, total: seen.append(done / total))
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_a_command_ahead_of_its_time_is_found_although_it_is_decided_alike():
    """Whoever has a service's password may ask its decider what is due in a year: what it answers then is identical, and not true."""
    for late, stamp in ((c.Schedule(time_at(365 * 24 * 3600)), ""), (c.Schedule(time_at(2)), "2027-01-01T00:00:00.000Z")):
        log = Handmade()
        log.facts(node("a"), shape(), pod("web-1"))
        log.decide("session", late, e.PodPlaced("uid-web-1", "a"))
        if stamp:
            log.records[1] = replace(log.records[1], envelope=replace(log.records[1].envelope, time=stamp))
        report = verify(log.source(), DECIDERS)
        assert not report.ok
        assert (report.identical, report.different) == (1, 0)
        assert [(problem.seq, problem.what) for problem in report.found] == [
            (2, "it says 2027-01-01T00:00:00.000Z, but was stored at 2026-01-01T00:00:02.000Z: nobody knows so early what is due then")
        ]


def test_what_was_stored_later_than_it_was_decided_is_no_finding():
    """An import stores what was decided long ago."""
    log = placements()
    log.records[:] = [replace(record, time=record.time + 10**18) for record in log.records]
    assert verify(log.source(), DECIDERS).ok


@pytest.mark.parametrize("logic", ["session", "session@", "session@x", "session@1\x1b[2J"])
def test_a_version_that_no_decider_has_is_found_and_not_merely_skipped(logic):
    log = Handmade()
    log.facts(node("a"), shape(), pod("web-1"))
    log.decide("session", c.Schedule(time_at(2)), e.PodPlaced("uid-web-1", "a"), logic=logic)
    report = verify(log.source(), DECIDERS)
    assert not report.ok
    assert "no version of a decider" in report.found[0].what


def test_an_old_form_that_keeps_its_events_name_is_compared_in_its_present_form():
    old = b'{"type":"migration.failed","migration":"p-1","reason":"NoRoom","message":"m"}'
    (decision,) = codec.decode(b'{"decisions":[{"command":{"type":"advance","time":1},"events":[' + old + b"]}]}")
    assert _texts([msgspec.Raw(old)], decision.events) == (codec.encode_event(e.MigrationFailed("p-1", "NoCapacity", "m")),)
