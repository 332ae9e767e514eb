"""Queues: what they use, who waits in them, and what is reserved; at an instant, and over the log's time."""

import random
import threading
from collections import Counter
from itertools import pairwise, product

import pytest
from console.browser import needs_chromium
from console.test_plan_maps import index_of
from msgspec.structs import replace
from replay.handmade import LOG_ID, SHAPE, START, Handmade, migration, node, pod, shape, time_at
from replay.test_why import gang
from replay.world import World

from restow.console import shares as shares_module
from restow.console.frames import seq_at
from restow.console.index import USED
from restow.console.shares import shares
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import ObjectRef, OwnerRule, ReservationSpec, ReservationTask
from restow.domain.config import PluginConfig, SessionConfig, digest_of, text_of
from restow.domain.decider import decide
from restow.domain.session import decider as session_decider
from restow.domain.session.statuses.queue_status import used
from restow.domain.state import ClusterState
from restow.replay import queues
from restow.replay.batch import queues as queues_of
from restow.replay.batch import works_out_shares
from restow.replay.state_at import fold_record, state_at

MARKUP = "<img src=x onerror=alert(1)>"
MINUTE = 60_000
WEB = OwnerRule(controller=ObjectRef("Deployment", name="web"))


def queued(queue, name, **more):
    return replace(pod(name), annotations={"scheduling.volcano.sh/queue-name": queue}, **more)


def reservation(name, ttl):
    spec = ReservationSpec((ReservationTask("t", 2, SHAPE, namespace="shop"),), (WEB,), allocate_once=False, match_policy="Owner", ttl=ttl)
    return e.ReservationObserved(f"uid-{name}", "volcano", "shop", name, START, spec=spec)


def busy():
    """Two queues below one; in the first two pods run and one waits, beside a gang that waits in the default queue. Two Reservations, of which one ends."""
    log = gang()
    both = (e.QueueObserved("team", "uid-t", time_at(1)), e.QueueObserved("batch", "uid-b", time_at(1), 4, {"cpu": 8_000}, {"cpu": 1_000}, parent="team"))
    log.facts(*both, e.QueueObserved(MARKUP, "uid-x", time_at(1), parent="team"), kind="queues")
    log.facts(node("c", 4_000), *(queued("batch", f"job-{i}", node="c", phase="Running", ready=True) for i in range(2)))
    log.facts(queued("batch", "job-2"), queued(MARKUP, "job-3"))
    log.facts(reservation("night", 60 * MINUTE), reservation("always", 0), kind="reservations.batch.volcano.sh")
    log.decide("reservation", c.Review(time_at(8)), e.ReservationAccepted("uid-night", 1, 2, START + 60 * MINUTE), e.ReservationAccepted("uid-always", 1, 2, 0))
    told = decide(state_at(log.source()), session_decider, c.Schedule(time_at(9), 1_000))
    log.decide("session", c.Schedule(time_at(9), 1_000), *told, cause="7/0")
    return log


# -- at an instant ---------------------------------------------------------------------------------------------------------


def by_path(log):
    return {one.path: one for one in queues.waiting(state_at(log.source())).waiting}


def test_who_waits_is_told_as_gangs_and_as_pods_of_none_with_what_would_help():
    said = by_path(busy())
    one = said["podgroup/shop/g"]
    assert (one.queue, one.pods, one.ready, one.need, one.since) == ("default", 3, 0, 3, START)
    assert "would start with 1 more empty node like a" in by_path(gang())["podgroup/shop/g"].helps
    assert one.requests["cpu"] == 2_000
    assert {path for path, one in said.items() if one.queue == "batch"} <= {"pod/shop/job-2"}
    assert not {path for path in said if "/m-" in path}, "members of a gang are told with it"


def test_first_in_turn_are_first_and_what_would_help_is_worked_out_of_so_many_only(monkeypatch):
    monkeypatch.setattr(queues, "MOST_RELIEVED", 1)
    log = gang()
    log.facts(e.ShapeDeclared("urgent", replace(shape(1_000).spec, priority=1_000)), replace(pod("now"), shape="urgent"), pod("later"))
    said = queues.waiting(state_at(log.source())).waiting
    assert said[0].path == "pod/shop/now"
    assert [one.helps is not None for one in said] == [True] + [False] * (len(said) - 1)
    assert all(first.priority >= second.priority for first, second in pairwise(said))


def test_of_very_many_only_so_many_are_told(monkeypatch):
    """And it is said how many there are: a queue whose pods have no turn soon is not one in which nobody waits."""
    state = state_at(busy().source())
    every, (reservations, _) = queues.waiting(state), queues.reserved(state)
    monkeypatch.setattr(queues, "MOST_WAITING", 2)
    monkeypatch.setattr(queues, "MOST_RESERVED", 1)
    said = queues.waiting(state)
    assert said.waiting == every.waiting[:2]
    assert (said.waiting_in_all, said.pods) == (len(every.waiting), every.pods)
    by_queue = Counter()
    for one in every.waiting:
        by_queue[one.queue] += one.pods
    assert said.pods == by_queue
    assert len(by_queue) == 2
    assert queues.reserved(state) == (reservations[:1], 2)


def test_reservations_say_from_when_until_when_and_those_of_moves_are_left_out():
    said = {one.path: one for one in queues.reserved(state_at(busy().source()))[0]}
    assert (said["reservation/shop/night"].since, said["reservation/shop/night"].ends) == (START, START + 60 * MINUTE)
    assert said["reservation/shop/always"].ends == 0
    assert {one.asked for one in said.values()} == {2}
    assert queues.reserved(state_at(migration().source())) == ([], 0)


# -- over time -------------------------------------------------------------------------------------------------------------


def recount(log, seq):
    """By queue, from the state alone: what the page says beside it that it uses, and how many wait."""
    state, found = state_at(log.source(), seq=seq), {}
    said = {row["name"]: row["allocated"].get("cpu", 0) for row in queues_of(state)}
    # A queue that others name as theirs and that nobody has made has no card.
    said |= {fact.parent: used(state, fact.parent).get(state.table.columns["cpu"], 0) for fact in state.queues.values() if fact.parent and fact.parent not in said}
    found |= {queue: [cpu, 0] for queue, cpu in said.items() if cpu}
    for uid, known in state.pods.items():
        if (queue := state.queue_of(known.fact)) and known.live.phase not in ("Succeeded", "Failed") and not state.node_of(uid) and not known.live.deleting:
            found.setdefault(queue, [0, 0])[1] += 1
    return found


def leaving():
    """A pod of a queue below another one terminates and is gone, and the queue goes below yet another one, and round in a ring."""
    log = busy()
    log.facts(e.PodChanged("uid-job-0", "c", "Running", True, time_at(11)))
    log.facts(e.QueueObserved("batch", "uid-b", time_at(1), parent="other"), kind="queues")
    log.facts(e.PodGone("uid-job-0"), e.QueueObserved("other", "uid-o", time_at(1), parent="team"))
    log.facts(e.QueueObserved("team", "uid-t", time_at(1), parent="batch"), kind="queues")
    log.facts(e.QueueGone("batch"), kind="queues")
    return log


@pytest.mark.parametrize("made", [busy, migration, gang, leaving])
def test_the_shares_over_time_are_what_the_states_then_say(made):
    log = made()
    index = index_of(log)
    for upto in range(1, index.last + 1):
        said = shares(index, upto, 1)
        assert {name: [one["cpu"][-1], one["waiting"][-1]] for name, one in said["queues"].items() if one["cpu"][-1] or one["waiting"][-1]} == recount(log, upto)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_queue_used_over_time_is_what_is_said_beside_it_that_it_uses(seed):
    """Of logs that the deciders have made: with pods that terminate, and what Reservations hold."""
    log = World(seed).play(20)
    index, state, told = index_of(log), ClusterState(), 0
    for record in log.records:
        fold_record(state, record, LOG_ID)
        series = shares(index, record.seq, 1)["queues"]
        for row in queues_of(state) if record.seq % 5 == 0 else ():
            said = [row["allocated"].get(name, 0) for name in USED.values()]
            assert [series[row["name"]][name][-1] if row["name"] in series else 0 for name in USED] == said, (record.seq, row["name"])
            told += any(said)
    assert told > 5


def test_each_step_is_as_of_its_own_time():
    log = busy()
    index = index_of(log)
    said = shares(index, index.last, 5)
    assert len(said["times"]) == 5
    assert said["times"][-1] == index.latest
    batch = said["queues"]["batch"]
    assert (batch["cpu"][0], batch["cpu"][-1]) == (0, recount(log, index.last)["batch"][0])
    assert said["queuesInAll"] == len(said["queues"])


@pytest.mark.parametrize("seed", range(4))
def test_over_many_steps_it_is_what_each_instant_alone_says_and_nobody_waits_while_it_is_worked_out(seed, monkeypatch):
    log, dice, alive = gang(), random.Random(seed), {}
    log.facts(e.QueueObserved("batch", "uid-b", time_at(1)), node("c", 64_000), kind="queues")
    for _ in range(60):
        name = f"p{dice.randrange(12)}"
        where = dice.choice(({}, {"node": "c", "phase": "Running", "ready": True}, {"node": "c", "phase": "Succeeded"}))
        fact = alive.pop(name, None) if dice.random() < 0.4 else None
        alive |= {name: True} if fact is None else {}
        log.facts(e.PodGone(f"uid-{name}") if fact else queued(dice.choice(("batch", "default")), name, **where))
    index, lock = index_of(log), threading.Lock()
    worked_out = shares_module._waiting
    monkeypatch.setattr(shares_module, "_waiting", lambda *given: (lock.locked() and pytest.fail("the lock is held"), worked_out(*given))[1])
    said = shares(index, index.last, 50, lock)
    names = ("devices", "cpu", "memory", "waiting")
    for i, time in enumerate(said["times"][:-1]):
        alone = shares(index, min(seq_at(index, time), index.last), 1)["queues"]
        told = {queue: [series[name][i] for name in names] for queue, series in said["queues"].items()}
        assert {queue: values for queue, values in told.items() if any(values)} == {queue: [one[name][0] for name in names] for queue, one in alone.items()}


def test_what_a_queue_is_guaranteed_deserves_and_may_have_is_told_as_it_was_at_each_step():
    log = busy()
    log.facts(e.QueueObserved("batch", "uid-b", time_at(1), 4, {"cpu": 4_000}, {}, {"cpu": 3_000, "memory": 7}), kind="queues")
    log.facts(node("y"), kind="nodes")
    config = text_of(SessionConfig(tiers=((PluginConfig("predicates"),),)))
    log.decide("session", c.Configure(config), e.SessionConfigured(config, digest_of(config)))
    log.facts(node("z"), kind="nodes")
    log.facts(e.QueueGone("batch"), kind="queues")
    index = index_of(log)
    said = shares(index, index.last, 40)
    levels = said["queues"]["batch"]["levels"]
    seen = set()
    for i, time in enumerate(said["times"]):
        state = state_at(log.source(), seq=seq_at(index, time))
        fact = state.queues.get("batch")
        for what, name in product(("guarantee", "deserved", "capability"), ("cpu", "memory")):
            wanted = None if what == "deserved" and works_out_shares(state) else getattr(fact, what, {}).get(name)
            assert levels.get(what, {}).get(name, [None] * 40)[i] == wanted, (what, name, i)
            seen.add((what, name, wanted))
    assert {("deserved", "cpu", 3_000), ("deserved", "cpu", None), ("deserved", "memory", 7), ("capability", "cpu", 8_000), ("capability", "cpu", 4_000), ("guarantee", "cpu", 1_000), ("guarantee", "cpu", None)} <= seen


def test_of_very_many_queues_those_are_told_that_use_or_wait_for_most(monkeypatch):
    from restow.console import shares as module

    monkeypatch.setattr(module, "MOST_QUEUES", 1)
    index = index_of(busy())
    said = shares(index, index.last, 3)
    assert (list(said["queues"]), said["queuesInAll"]) == (["batch"], 4)


# -- the API and the page --------------------------------------------------------------------------------------------------


async def test_the_api_tells_both_and_knows_what_a_client_has(looking):
    async with looking(busy().source()) as client:
        said = await client.json("/api/v1/queues")
        assert [one["name"] for one in said["queues"]] == sorted(["team", "batch", "default", MARKUP])
        assert next(one for one in said["queues"] if one["name"] == "batch")["guarantee"] == {"cpu": 1_000}
        assert (await client.json("/api/v1/queues", at=2))["reservations"] == []
        status, headers, _ = await client.get("/api/v1/shares", steps=4)
        assert status == 200
        assert (await client.get("/api/v1/shares", {"If-None-Match": headers["ETag"]}, steps=4))[0] == 304
        assert (await client.get("/api/v1/shares", steps=100_000))[0] == 400
        assert (await client.get("/api/v1/queues", at=99))[0] == 404


async def test_of_an_empty_log_there_is_nothing_to_say(looking):
    async with looking(Handmade().source()) as client:
        assert (await client.json("/api/v1/shares"))["queues"] == {}


@needs_chromium
async def test_the_page_shows_who_waits_why_and_what_would_help(opened):
    async with opened(busy()) as it:
        await it.go()
        await it.page.keyboard.press("q")
        await it.page.wait_for_selector(".card svg")
        await it.settled()
        text = await it.text(".queues")
        for words in ("batch", "below team", "weight 4", "guaranteed", "at most", "of 3 ready", "no single change would", "shop/night", "does not end"):
            assert words in text
        assert MARKUP in text, "a name is a word, whatever is in it"
        await it.page.get_by_role("button", name="batch", exact=True).click()
        await it.page.wait_for_selector(".panel .verdict, .panel .facts")


@needs_chromium
@pytest.mark.parametrize("width", [390, 800])
async def test_it_is_readable_on_a_phone(opened, width):
    async with opened(busy(), viewport={"width": width, "height": 800}) as it:
        await it.go("#view=queues")
        await it.page.wait_for_selector(".card svg")
        assert await it.page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.querySelector('.queues').scrollWidth <= document.querySelector('.queues').clientWidth + 1")
