"""Nobody relies on a pod that waits for victims to go: it keeps others away, and may never come (kube-scheduler filters with nominees and
without)."""

import random

import numpy as np
import pytest
from domain.build import GIB, NOW, configured, given, member, node, pod, pod_group, run, shape, then
from hypothesis import given as for_all
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm, Spread
from restow.domain import session
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.verdict.explain import explain, opened
from restow.domain.session_config import read_conf
from restow.domain.snapshot import dump, load
from restow.domain.topology import Failing
from restow.domain.topology.index import Index

CONF = configured("session", read_conf({
    "actions": "enqueue, allocate, preempt, backfill",
    "tiers": [{"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "conformance"}]}, {"plugins": [{"name": "predicates"}, {"name": "proportion"}, {"name": "nodeorder"}]}],
}))  # fmt: skip
N = LabelSelector({"app": "n"})
NEAR = shape("near", cpu=0, pod_affinity=(PodTerm("host", N),))
EVEN = shape("even", cpu=0, node_selector={"host": "b"}, spread=(Spread(1, "host", "DoNotSchedule", N, node_affinity_policy="Ignore"),))


def schedule(state) -> list[e.Event]:
    events: list[e.Event] = []
    for _ in range(4):
        again = load(dump(state))
        found = run(state, session.decider, c.Schedule(NOW))
        assert run(again, session.decider, c.Schedule(NOW)) == found
        events += found
    return events


def placed(events) -> dict[str, str]:
    return {event.pod: event.node for event in events if isinstance(event, e.PodPlaced)}


def nominated(*more: e.Event):
    """On a, `n` waits for `v` to go."""
    state = given(
        CONF, node("a", cpu=2_000, labels={"host": "a"}), shape("lo", cpu=1_500), shape("hi", priority=5), NEAR, EVEN,
        pod("v", "lo", node="a"), pod("n", "hi", labels={"app": "n"}), *more,
    )  # fmt: skip
    schedule(state)
    assert state.nominations["n"].node == "a"
    return state


def test_who_wants_to_be_near_a_nominee_waits_until_it_runs():
    state = nominated(pod("f", "near"))
    schedule(state)
    assert "f" not in state.placed
    verdict = explain(state, "f")
    assert not verdict.fits
    assert "node(s) didn't match pod affinity rules" in verdict.reasons
    then(state, e.PodGone("v"))
    assert placed(schedule(state)) == {"n": "a", "f": "a"}


def test_who_is_spread_relies_on_no_nominee_elsewhere():
    """With `n` there would be one on a, and one more on b would do; without, b has one more than a already."""
    state = nominated(node("b", cpu=2_000, labels={"host": "b"}), shape("full", cpu=2_000), pod("w", "full", node="b", labels={"app": "n"}))
    then(state, pod("s", "even", labels={"app": "n"}))
    schedule(state)
    assert "s" not in state.placed
    then(state, e.PodGone("v"))
    assert placed(schedule(state)) == {"n": "a", "s": "b"}


@pytest.mark.parametrize("gone", [False, True])
def test_a_gang_whose_members_are_near_each_other_is_nominated_and_comes_together(gone):
    mine = LabelSelector({"app": "g"})
    state = given(
        CONF, node("a", cpu=2_000, labels={"host": "a"}), shape("lo", cpu=1_500),
        shape("hi", priority=5, pod_affinity=(PodTerm("host", mine),)), pod("v", "lo", node="a"), pod_group("g", need=2),
        member("g1", "g", "hi", labels={"app": "g"}), member("g2", "g", "hi", labels={"app": "g"}),
    )  # fmt: skip
    schedule(state)
    assert {*state.nominations} == {"g1", "g2"}
    if gone:
        then(state, e.PodGone("v"))
        assert placed(schedule(state)) == {"g1": "a", "g2": "a"}


def test_a_gang_waits_while_a_pod_that_has_to_leave_is_in_the_way_of_one_of_it_and_another_relies_on_that_one():
    """`g2` may come to zone b because `g1` comes to zone a, which may not be beside `v`, which leaves for `g0`. Before, the gang was nominated
    and given up in turns, as fast as sessions follow each other."""
    mine, away = LabelSelector({"app": "g"}), LabelSelector({"app": "v"})
    state = given(
        CONF, node("a", cpu=4_000, labels={"host": "a", "zone": "a"}), node("b", cpu=4_000, labels={"host": "b", "zone": "b"}),
        shape("lo", cpu=2_000), pod("v", "lo", node="a", labels={"app": "v"}), pod("w", "hi", node="b", labels={"app": "g"}), pod_group("g", need=3),
        shape("hi", cpu=100, priority=5), shape("takes", cpu=3_000, priority=5, node_selector={"zone": "a"}),
        shape("lonely", cpu=0, memory=GIB, priority=4, node_selector={"zone": "a"}, pod_anti_affinity=(PodTerm("host", away),)),
        shape("even", cpu=100, priority=3, node_selector={"zone": "b"}, spread=(Spread(1, "zone", "DoNotSchedule", mine, node_affinity_policy="Ignore"),)),
        member("g0", "g", "takes"), member("g1", "g", "lonely", labels={"app": "g"}), member("g2", "g", "even", labels={"app": "g"}),
    )  # fmt: skip
    schedule(state)
    assert {*state.nominations} == {"g0", "g1", "g2"}
    assert run(state, session.decider, c.Schedule(NOW)) == []
    then(state, e.PodGone("v"))
    assert placed(schedule(state)) == {"g0": "a", "g1": "a", "g2": "b"}


def test_a_gang_is_judged_in_the_order_in_which_its_pods_were_chosen():
    """`g1` may come to zone a once `g0` is in b; `g2`, which no rule binds, was chosen for zone a after it."""
    mine = LabelSelector({"app": "g"})
    state = given(
        CONF, *(node(name, cpu=4_000, labels={"host": name, "zone": name[0]}) for name in ("a1", "a2", "b1")),
        shape("lo", cpu=4_000), pod("v", "lo", node="b1"), pod("w", "lo", node="a2"), shape("tiny", cpu=100), pod("x", "tiny", node="a1", labels={"app": "g"}),
        shape("first", cpu=4_000, priority=9, node_selector={"zone": "b"}), shape("last", cpu=4_000, priority=7, node_selector={"zone": "a"}),
        shape("even", cpu=100, priority=8, node_selector={"zone": "a"}, spread=(Spread(1, "zone", "DoNotSchedule", mine, node_affinity_policy="Ignore"),)),
        pod_group("g", need=3), *(member(f"g{i}", "g", kind, labels={"app": "g"}) for i, kind in enumerate(("first", "even", "last"))),
    )  # fmt: skip
    schedule(state)
    assert {*state.nominations} == {"g0", "g1", "g2"}
    assert run(state, session.decider, c.Schedule(NOW)) == []


def _plainly(others: OtherPods, pod: e.PodObserved) -> list[Failing]:
    """What rules remove, asked with all nominees and, after each other one was taken away by itself, without."""
    topology, subject, mates = others.topology, others.subject(pod), others.mates(pod)
    away = [(who, row) for uid, (who, row) in others.nominees.items() if uid != pod.pod and uid not in mates]
    found = [topology.spread(subject), topology.affinity(subject)]
    for who, _ in away:
        topology.remove(who.pod)
    found = [[*some, *ask(subject)] for some, ask in zip(found, (topology.spread, topology.affinity), strict=True)]
    for who, row in away:
        topology.add(who.pod, row, others.subject(who))
    return found


def _removed(some: Failing) -> dict[str, np.ndarray]:
    return {reason: np.logical_or.reduce([rows for said, rows in some if said == reason]).tolist() for reason, _ in some}


@for_all(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 3)), max_size=60), st.integers(0, 2**16))
def test_who_relies_on_nobody_is_asked_as_if_each_nominee_was_taken_away(steps, seed):
    chance = random.Random(seed)
    kinds = [NEAR, EVEN, shape("apart", cpu=0, pod_anti_affinity=(PodTerm("host", N),)), shape("plain", cpu=0)]
    kinds.append(shape("both", cpu=0, pod_affinity=(PodTerm("zone", N), PodTerm("host", N)), spread=(Spread(1, "zone", "DoNotSchedule", N),)))
    state = given(CONF, *(node(f"n{i}", labels={"host": "ab"[i % 2], "zone": f"z{i // 2}"}) for i in range(4)), *kinds, *(pod_group(f"g{i}", need=9) for i in range(2)))
    for i in range(40):
        labels, kind = {"app": chance.choice("no"), "i": str(i % 3)}, chance.choice(kinds).shape
        where = {"node": f"n{i % 4}"} if i % 5 == 0 else {}
        then(state, member(f"p{i}", f"g{i % 2}", kind, labels=labels, **where) if i % 3 == 0 else pod(f"p{i}", kind, labels=labels, **where))
    with opened(state) as seen:
        there: dict[str, int] = {}
        for i, row in steps:
            fact = state.pods[f"p{i}"].fact
            if i % 5 == 0:
                continue
            if fact.pod in there:
                seen.leave(fact, there.pop(fact.pod))
            else:
                there[fact.pod] = row
                seen.enter(fact, row, nominee=row > 0)
            others, asks = seen.other_pods, state.pods[f"p{chance.randrange(40)}"].fact
            for found, plain in zip((others.spread(asks), others.affinity(asks)), _plainly(others, asks), strict=True):
                assert _removed(found) == _removed(plain)


def test_what_is_counted_does_not_grow_with_the_nominees_that_a_pod_may_not_rely_on(monkeypatch):
    """1 700 lone nominees: for each of 1 500 pods that are spread a session took all of them away and added them again, for 16 s."""
    state = given(
        CONF, *(node(f"n{i}", cpu=2_000, labels={"zone": f"z{i % 3}"}) for i in range(60)), shape("lo", cpu=1_900), shape("hi", priority=5),
        shape("even", cpu=10, spread=(Spread(60, "zone", "DoNotSchedule", N),)),
        *(pod(f"v{i}", "lo", node=f"n{i}") for i in range(60)), *(pod(f"n{i}", "hi", labels={"app": "n", "i": str(i)}) for i in range(50)),
    )  # fmt: skip
    schedule(state)
    assert len(state.nominations) == 50
    put, counted = Index._put, list[int]()

    def noted(self, occupant, n):
        counted.append(n)
        put(self, occupant, n)

    monkeypatch.setattr(Index, "_put", noted)
    then(state, *(pod(f"s{i}", "even", labels={"app": "n"}) for i in range(40)))
    # Each is counted once as placed, and once as fact; so is each nominee.
    assert len(placed(run(state, session.decider, c.Schedule(NOW)))) == 40
    assert len(counted) <= 2 * (50 + 40) + 50
