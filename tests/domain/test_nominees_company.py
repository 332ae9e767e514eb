"""Nobody relies on a pod that waits for victims to go: it keeps others away, and may never come (kube-scheduler filters with nominees and
without)."""

import pytest
from domain.build import GIB, NOW, configured, given, member, node, pod, pod_group, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm, Spread
from restow.domain import session
from restow.domain.session.verdict.explain import explain, opened
from restow.domain.session_config import read_conf
from restow.domain.snapshot import dump, load
from restow.domain.topology import Topology

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


def test_on_whom_a_pod_leans_is_asked_once_for_all_who_are_alike(monkeypatch):
    """800 nominees of eight gangs: a session asked each for every pod that it tried, for 10 s."""
    asked: list[object] = []
    leans_on = Topology.leans_on

    def noted(self, subject, other):
        asked.append(other)
        return leans_on(self, subject, other)

    monkeypatch.setattr(Topology, "leans_on", noted)
    state = given(CONF, node("a", labels={"host": "a"}), NEAR, EVEN, shape("apart", cpu=0, pod_anti_affinity=(PodTerm("host", N),)))
    for group in range(3):
        then(state, pod_group(f"g{group}", need=9), *(member(f"m{group}-{i}", f"g{group}", "near", labels={"app": "n" if i % 2 else "o"}) for i in range(8)))
    then(state, pod("near", "near"), pod("even", "even"), pod("apart", "apart", labels={"app": "n"}))
    with opened(state) as seen:
        others = seen.other_pods
        for pods in (state.groups["default", f"g{group}"] for group in range(3)):
            for uid in pods:
                seen.enter(state.pods[uid].fact, 0)
        seen.leave(state.pods["m1-3"].fact, 0)
        for uid in ("near", "even", "apart", "m0-1", "m1-3"):
            fact = state.pods[uid].fact
            subject, asked[:] = others.subject(fact), []
            leant = {who.pod for who, _ in others._leant_on(fact, subject)}
            assert len(asked) <= 6
            mates = others.mates(fact)
            assert set(mates) == {who for who in others.nominees if who != uid and uid[0] == "m" and who[:2] == uid[:2]}
            assert leant == {
                who for who, (other, _) in others.nominees.items() if who != uid and who not in mates and leans_on(others.topology, subject, others.subject(other))
            }
            assert bool(leant) is (uid != "apart")
