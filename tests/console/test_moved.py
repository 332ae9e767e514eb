"""What moved within a while: the moves as the log's states have them, also those that it has forgotten since."""

import random

import pytest
from console.browser import needs_chromium
from console.test_plan_maps import index_of
from msgspec.structs import replace
from replay.handmade import START, Handmade, migration, node, shape, time_at

from restow.console.index import Index
from restow.console.moved import moved
from restow.console.view import MoveRow
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import rfc3339
from restow.domain.records import FINAL, Step
from restow.replay.state_at import state_at

HOUR = 3_600_000


def test_a_move_that_has_landed_moved_and_says_how_long_its_pod_was_away():
    said = moved(index_of(migration()), 15, HOUR)
    assert (said["steps"], said["underWay"], said["more"], said["before"]) == ({"landed": 1}, 0, 0, 0)
    (move,) = said["moves"]
    assert (move["pod"], move["successor"], move["source"], move["target"]) == ("shop/web-old", "shop/web-new", "a", "b")
    assert (move["seq"], move["since"], move["away"], move["plan"]) == (15, time_at(15), time_at(14) - time_at(9), "p1")


@pytest.mark.parametrize("late", [0, 60_000])
def test_how_long_a_pod_was_away_is_nothing_of_the_deschedulers(late):
    """It was away for a minute, and then said at once that the pod had left and that its successor had landed, or said the last later."""
    log = migration()
    log.records = [replace(record, seq=at) for at, record in enumerate((one for one in log.records[:14] if one.seq != 11), 1)]
    log.decide("migration", c.Advance(time_at(14)), e.Evicted("p1-1", time_at(99)), e.Landed("p1-1", "uid-web-new", "b"))
    last = log.records[-1]
    log.records[-1] = replace(last, envelope=replace(last.envelope, time=rfc3339(time_at(14) + late)), time=(time_at(14) + late) * 1_000_000)
    (move,) = moved(index_of(log), 14, HOUR)["moves"]
    assert (move["step"], move["away"]) == ("landed", 5_000)
    assert moved(index_of(migration()), 11, HOUR)["moves"][0]["away"] is None


@pytest.mark.parametrize(("at", "step"), [(3, None), (4, "holding"), (8, "evicting"), (11, "evicted"), (15, "landed")])
def test_one_that_is_only_planned_does_not_move(at, step):
    said = moved(index_of(migration()), at, HOUR)
    assert [move["step"] for move in said["moves"]] == ([step] if step else [])
    assert said["underWay"] == (step not in (None, "landed"))


def test_what_ended_before_is_named_and_not_counted():
    log = migration()
    log.facts(node("c"), kind="nodes")
    said = moved(index_of(log), 16, 1_000)
    assert (said["steps"], said["moves"], said["before"]) == ({}, [], time_at(15)), "the window is open at its beginning"
    assert moved(index_of(log), 16, 1_001)["steps"] == {"landed": 1}
    assert moved(index_of(log), 16, HOUR, limit=0) | {"moves": 0} == moved(index_of(log), 16, HOUR) | {"moves": 0, "more": 1}


def test_nothing_is_known_of_an_empty_log():
    assert moved(Index(), 0, HOUR)["moves"] == []


def row(step, since, rng):
    return MoveRow("p", f"uid-{rng.randrange(9)}", "ns", "x", "a", rng.choice(("b", "")), step, since, rng.choice(("", "uid-s")), "", "")


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_walk_through_the_log_finds(seed):
    """By the log's times: what the clock of who has decided it said (`since` of a row) may be behind."""
    rng, log = random.Random(seed), Handmade()
    log.facts(shape())
    index = index_of(log)
    walk: list[tuple[int, str, MoveRow]] = []
    for seq in range(2, 60):
        log.facts(node("a"), kind="nodes")
        index = index_of(log) if seq == 2 else index
        index.last = seq
        if seq > 2:
            index._commits.add((time_at(seq), 0, 1))
        for _ in range(rng.randrange(3)):
            id, step = f"m{rng.randrange(12)}", rng.choice(list(Step))
            gone = rng.random() < 0.2
            one = None if gone else row(str(step), time_at(seq) - rng.choice((0, 0, 400, 7_200_000)), rng)
            index._put("moves", seq, id, one)
            if one is not None:
                walk.append((seq, id, one))
    for _ in range(40):
        at, within = rng.randrange(2, 60), rng.choice((0, 700, 5_000, 20_000, HOUR))
        last = {id: one for seq, id, one in walk if seq <= at}
        since: dict[str, tuple[str, int]] = {}
        for seq, id, one in walk:
            if seq <= at and since.get(id, ("", 0))[0] != one.step:
                since[id] = one.step, time_at(seq)
        ended = {id for id, one in last.items() if Step(one.step) in FINAL and time_at(at) - within < since[id][1]}
        going = {id for id, one in last.items() if Step(one.step) not in (*FINAL, Step.PLANNED)}
        said = moved(index, at, within)
        assert {move["migration"] for move in said["moves"]} == ended | going
        assert (sum(said["steps"].values()), said["underWay"]) == (len(ended), len(going))
        assert [move["since"] for move in said["moves"]][len(going) :] == sorted((since[id][1] for id in ended), reverse=True)
        assert said["before"] == max((since[id][1] for id, one in last.items() if Step(one.step) in FINAL and since[id][1] <= time_at(at) - within), default=0)
        for move in said["moves"]:
            known = last[move["migration"]]
            assert (move["step"], move["since"], move["target"]) == (known.step, since[move["migration"]][1], known.target)


def test_of_a_move_that_ended_before_the_log_begins_its_own_word_counts():
    """The log has let its beginning go: an hour later, what a snapshot has of it."""
    log = migration()
    for _ in range(5):
        log.facts(node("a"), kind="nodes")
    index = Index()
    index.begin(state_at(log.source(), seq=log.seq))
    assert [(one["since"], one["away"]) for one in moved(index, log.seq, HOUR)["moves"]] == [(time_at(15), None)]
    late = moved(index, log.seq, 5_000)
    assert (late["moves"], late["before"]) == ([], time_at(15))


def test_the_index_and_the_state_agree_on_who_has_landed():
    log = migration()
    state = state_at(log.source(), seq=log.seq)
    assert {move["migration"]: move["since"] for move in moved(index_of(log), log.seq, HOUR)["moves"]} == {id: one.since for id, one in state.migrations.items()}


async def test_the_api_takes_an_hour_unless_told(looking):
    log = migration()
    async with looking(log.source()) as client:
        said = await client.json("/api/v1/moved")
        assert (said["from"], len(said["moves"])) == (time_at(15) - HOUR, 1)
        assert (await client.json("/api/v1/moved", within=0))["moves"] == []
        for bad in ({"within": "-1"}, {"limit": "501"}, {"within": "x"}):
            assert (await client.get("/api/v1/moved", **bad))[0] == 400
        status, headers, _ = await client.get("/api/v1/moved")
        assert (await client.get("/api/v1/moved", headers={"If-None-Match": headers["ETag"]}))[0] == 304
        assert status == 200


@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_page_says_what_moved_in_the_last_hour_and_leads_on(opened, width):
    log = migration()
    log.facts(node("a"), kind="nodes")
    late = log.records[-1]
    log.records[-1] = replace(late, envelope=replace(late.envelope, time=rfc3339(START + 3 * HOUR)), time=(START + 3 * HOUR) * 1_000_000)
    async with opened(log, viewport={"width": width, "height": 800}) as it:
        await it.go("#at=15")
        await it.settled()
        assert "Moved in the last hour: 1 landed" in await it.text(".overview")
        await it.page.get_by_role("button", name="1 landed").click()
        await it.page.wait_for_selector(".moved table")
        said = await it.text(".moved")
        for word in ("shop/web-old", "now shop/web-new", "landed", "5.0 s"):
            assert word in said
        assert await it.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # Three hours later nothing has moved for an hour; it says when something did.
        await it.page.keyboard.press("e")
        await it.at(16)
        await it.page.wait_for_selector(".moved:has-text('No pod was moved then.')")
        await it.page.get_by_label("What moved in the last").select_option("6 hours")
        await it.page.wait_for_selector(".moved table")
        await it.until("location.hash.includes('within=21600000')")
        await it.page.get_by_role("button", name="Compare both ends on the map").click()
        await it.page.wait_for_selector(".differences")
        await it.until("document.querySelectorAll('canvas.boxes').length === 2")
        assert "00:00:01 → 03:00:00" in await it.text(".differences h2")
