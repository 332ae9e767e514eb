"""Reclaim between queues, from the first session to the last: what was lent comes back, and then it is quiet."""

from itertools import combinations, count

import pytest
from domain.build import GIB, NOW, configured, given, in_queue, node, queue, run, shape, then
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.resources import GPU_MILLI as GPU
from restow.domain.session.plugins.proportion import plugin as proportion
from restow.domain.session.preemption.victims import Hunt, Scope
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session

decider = session.decider


def conf(plugin):
    return configured(
        "session",
        SessionConfig(
            actions=tuple(map(ActionConfig, ("enqueue", "allocate", "backfill", "reclaim"))),
            tiers=(tuple(map(PluginConfig, ("priority", "gang", "conformance"))), tuple(map(PluginConfig, ("drf", "predicates", plugin, "nodeorder")))),
        ),
    )


def cluster(plugin, **reclaimable):
    """Queue a uses all eight cores and wants more; half of them b deserves, and wants."""
    more = {name: {"deserved": {"cpu": 4_000}} if plugin == "capacity" else {} for name in "ab"}
    state = given(conf(plugin), node("n", cpu=8_000), shape("s"), *[queue(name, **more[name], reclaimable=reclaimable.get(name, True)) for name in "ab"])
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(8)], *[in_queue(f"x{i}", "a") for i in range(8)])
    return then(state, *[in_queue(f"b{i}", "b") for i in range(8)])


def live_on(state, turns=40, again=lambda uid: ()):
    """Sessions, and what the cluster makes of them: victims go, and `again` comes in their place; placed pods run."""
    evicted, placed = [], []
    for turn in range(turns):
        events = run(state, decider, c.Schedule(NOW + turn, 1_000))
        victims = [event.pod for event in events if isinstance(event, e.Preempted)]
        for event in events:
            if isinstance(event, e.PodPlaced):
                placed.append(event.pod)
                then(state, e.PodChanged(event.pod, node=event.node, phase="Running", ready=True))
        for uid in victims:
            then(state, e.PodGone(uid), *again(uid))
        evicted += victims
        if not victims and not any(isinstance(event, e.PodPlaced | e.Nominated) for event in events):
            return evicted, placed, turn
    raise AssertionError("it never becomes quiet")


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_queue_gets_back_what_it_deserves_and_no_more_and_nobody_takes_it_back_again(plugin):
    state = cluster(plugin)
    evicted, placed, _ = live_on(state)
    assert len(evicted) == 4
    assert sorted(name[0] for name in placed) == ["b"] * 4
    assert state.accounts.of("a") == state.accounts.of("b")


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_from_a_queue_that_is_not_reclaimable_nothing_is_taken(plugin):
    evicted, placed, _ = live_on(cluster(plugin, a=False))
    assert (evicted, placed) == ([], [])


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@pytest.mark.parametrize("cpu", [6_000, 7_000])
def test_a_queue_that_is_above_in_one_resource_by_less_than_a_pod_gives_back_what_it_has_of_the_other(plugin, cpu):
    more = {name: {"deserved": {GPU: 8_000, "cpu": cores}} if plugin == "capacity" else {} for name, cores in (("a", 48_000), ("b", 52_000))}
    state = given(conf(plugin), [node(f"n{i}", cpu=50_000, memory=512 * GIB, gpus=8) for i in range(2)], [queue(name, **more[name]) for name in "ab"],
                  shape("of-b", cpu=cpu, gpu=(2, 1_000)), shape("of-a", cpu=12_000, gpu=(2, 1_000)))  # fmt: skip
    then(state, [in_queue(f"b{i}", "b", "of-b", node=f"n{i % 2}") for i in range(8)], [in_queue(f"a{i}", "a", "of-a") for i in range(4)])
    number = count()
    evicted, placed, _ = live_on(state, again=lambda uid: [in_queue(f"again{next(number)}", "b", "of-b")])
    assert len(evicted) == 4
    assert sorted(placed) == ["a0", "a1", "a2", "a3"]


AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any)
PODS = st.lists(st.tuples(st.sampled_from("abc"), AMOUNTS), min_size=1, max_size=9)


@settings(max_examples=examples(60))
@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@drawn(running=PODS, waiting=PODS, deserved=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=3, max_size=3))
def test_at_rest_no_queue_waits_for_what_it_deserves_while_another_is_above_by_a_pod(plugin, running, waiting, deserved):
    """Of two resources, in units; a node that has 12 of each. A pod that is evicted comes back and waits."""
    said = {name: {"deserved": {"cpu": cpu * 1_000, "memory": mem * GIB}} if plugin == "capacity" else {} for name, (cpu, mem) in zip("abc", deserved, strict=True)}
    state = given(conf(plugin), node("n", cpu=12_000, memory=12 * GIB), [queue(name, **said[name]) for name in "abc"])
    number, free = count(), [12, 12]

    def one(name: str, kind: str, where: str | None = None) -> e.PodObserved:
        if kind not in state.shapes:
            then(state, shape(kind, cpu=int(kind[0]) * 1_000, memory=int(kind[1]) * GIB))
        return in_queue(f"{name}{next(number)}", name, kind, node=where)

    for name, units in running:
        if all(have >= amount for have, amount in zip(free, units, strict=True)):
            free = [have - amount for have, amount in zip(free, units, strict=True)]
            then(state, one(name, f"{units[0]}{units[1]}", "n"))
    then(state, *[one(name, f"{units[0]}{units[1]}") for name, units in waiting])
    live_on(state, 80, lambda uid: [one(uid[0], state.pods[uid].fact.shape)])
    pods = [(uid[0], tuple(map(int, p.fact.shape)), state.pods[uid].live.node) for uid, p in state.pods.items()]
    used = {name: [sum(units[r] for of, units, where in pods if of == name and where) for r in (0, 1)] for name in "abc"}
    share = {name: dict(zip((0, 1), units, strict=True)) for name, units in zip("abc", deserved, strict=True)}
    if plugin == "proportion":
        asked = Session(state, NOW, 1)
        asked.extensions.opening(0, PluginConfig(plugin))
        shares = proportion.Shares(asked).deserved
        columns, unit = state.table.columns, {"cpu": 1_000, "memory": GIB}
        share = {name: {r: shares.get(name, {}).get(columns[what], 0) / unit[what] for r, what in enumerate(unit)} for name in "abc"}
    idle = [12 - sum(used[name][r] for name in "abc") for r in (0, 1)]
    for mine, wants, where in pods:
        asks = [r for r in (0, 1) if wants[r]]
        if where or any(used[mine][r] + wants[r] > share[mine][r] for r in asks):
            continue
        for other, has, there in pods:
            if there and other != mine and all(idle[r] + has[r] >= wants[r] for r in asks):
                above = [r for r in asks if has[r] and used[other][r] - has[r] >= share[other][r]]
                assert not above, f"{mine} waits for {wants} of what it deserves, and {other} has {used[other]}, {share[other]} deserved"


def several(plugin, sizes: list[int], wanted: int):
    """Of eight cores a uses all in pods of these sizes, the least important last; b wants a pod of so many, and deserves four."""
    more = {name: {"deserved": {"cpu": 4_000}} if plugin == "capacity" else {} for name in "ab"}
    state = given(conf(plugin), node("n", cpu=8_000), [queue(name, **more[name]) for name in "ab"], [shape(f"s{k}", cpu=k * 1_000) for k in range(1, 8)])
    then(state, [in_queue(f"a{i}-{size}", "a", f"s{size}", node="n", created=NOW + i) for i, size in enumerate(sizes)])
    return then(state, in_queue("b", "b", f"s{wanted}"))


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@pytest.mark.parametrize("sizes", [[3, 2, 2, 1], [1, 2, 2, 3], [2, 3, 2, 1], [1, 1, 1, 2, 3]])
def test_a_queue_gets_what_it_deserves_although_only_some_of_the_others_pods_together_are_just_as_much(plugin, sizes):
    """The four cores that a has too many are no single pod, and not the least important ones one after the other."""
    evicted, placed, _ = live_on(several(plugin, sizes, 4))
    assert placed == ["b"]
    assert sum(int(uid.rpartition("-")[2]) for uid in evicted) == 4


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@settings(max_examples=examples(40))
@drawn(sizes=st.permutations([1, 1, 2, 4]) | st.permutations([1, 2, 2, 3]) | st.permutations([1, 1, 3, 3]) | st.permutations([3, 5]), wanted=st.integers(1, 4))
def test_whichever_pods_a_queue_has_too_many_of_go_together_where_that_is_enough_and_leaves_it_what_it_deserves(plugin, sizes, wanted):
    sums = {sum(some) for k in range(1, 5) for some in combinations(sizes, k)}
    _, placed, _ = live_on(several(plugin, sizes, wanted))
    above = wanted if plugin == "proportion" else 4  # by weights nobody deserves what he does not want
    assert placed == (["b"] if any(wanted <= amount <= above for amount in sums) else [])


def test_pods_that_nothing_tells_apart_are_asked_about_once():
    """A queue that is above by less than any two of its pods is not asked about every two of them."""
    state = several("proportion", [3, 3, 2], 4)
    asked = []
    session_ = open_session(state, NOW, 1_000)
    session_.extensions.reclaimable = lambda claimer, pods: asked.append(pods) or [pods[0]]
    session_.jobs = []
    hunt = Hunt(session_, [session_.job_for("b")])
    assert hunt.find(session_.job_for("b"), state.pods["b"].fact, Scope.OTHERS) is None
    session_.close()
    assert len(asked) <= 12
