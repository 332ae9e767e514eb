"""Plugin proportion: queues share the cluster by weight, exactly, and lend what they do not want."""

from fractions import Fraction

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
    then,
)
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.plugins.proportion.plugin import Shares
from restow.domain.session.plugins.proportion.shares import Claim, fill
from restow.domain.session.registry import open_session

decider = session.decider


def schedule(state, after=0):
    return run(state, decider, c.Schedule(NOW + after, 1_000))


def placed(events):
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def settle(state):
    """Until nothing is placed any more."""
    got = []
    while new := placed(schedule(state)):
        got += new
    return got


def why(state, pod):
    said = state.waiting[state.parked[pod][0]]
    return said.reason, said.message


# -- water filling ---------------------------------------------------------------------------------------------------

claims = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.builds(Claim, st.integers(1, 9), st.integers(0, 20), st.integers(0, 60)),
    min_size=1,
    max_size=7,
)


def level_by_brute_force(total: int, several: list[Claim]) -> list[Fraction]:
    """Raise the water from one bound to the next until it is used up."""
    levels = sorted({Fraction(bound, c.weight) for c in several for bound in (c.least, c.most)})

    def at(level: Fraction) -> list[Fraction]:
        return [min(max(level * c.weight, Fraction(c.least)), Fraction(c.most)) for c in several]

    if sum(at(Fraction(0))) >= total:
        return at(Fraction(0))
    below = Fraction(0)
    for level in levels:
        if sum(at(level)) >= total:
            # Between two neighbouring bounds the sum grows evenly.
            low, high = sum(at(below)), sum(at(level))
            return at(below + (level - below) * (total - low) / (high - low))
        below = level
    return at(levels[-1])


@settings(max_examples=examples(400), deadline=None)
@drawn(st.integers(0, 200), claims)
def test_the_water_stands_where_brute_force_finds_it(total, several):
    got = fill(total, several)
    want = level_by_brute_force(total, list(several.values()))
    assert got == {name: int(amount) for name, amount in zip(several, want, strict=True)}


@settings(max_examples=examples(200), deadline=None)
@drawn(st.integers(0, 10**30), claims)
def test_nobody_gets_more_than_it_wants_nor_less_than_it_is_guaranteed_and_nothing_is_kept_back(total, several):
    got = fill(total, several)
    assert all(c.least <= got[name] <= c.most for name, c in several.items())
    if sum(c.least for c in several.values()) <= total:
        wanted = sum(c.most for c in several.values())
        assert min(total, wanted) - len(several) < sum(got.values()) <= min(total, wanted) or not several


@settings(max_examples=examples(200), deadline=None)
@drawn(st.integers(0, 200), claims, st.randoms())
def test_it_depends_neither_on_names_nor_on_their_order(total, several, random):
    items = list(several.items())
    random.shuffle(items)
    other = {f"q{i}": claim for i, (_, claim) in enumerate(items)}
    got = fill(total, several)
    renamed = fill(total, other)
    assert [renamed[f"q{i}"] for i in range(len(items))] == [got[name] for name, _ in items]


# -- in sessions -----------------------------------------------------------------------------------------------------


def test_two_queues_that_want_everything_get_it_by_their_weights():
    state = given(node("n", cpu=12_000), shape("s"), queue("a", 1), queue("b", 2))
    then(state, *[in_queue(f"a{i}", "a") for i in range(12)], *[in_queue(f"b{i}", "b") for i in range(12)])
    got = settle(state)
    assert sum(name.startswith("a") for name in got) == 4
    assert sum(name.startswith("b") for name in got) == 8
    assert why(state, "a11")[0] in ("QueueQuota", "QueueOverused")
    assert "queue a" in why(state, "a11")[1]


def test_a_queue_that_has_all_that_it_deserves_of_everything_is_passed_over_and_each_pod_told_once():
    """Nothing is left to it of cpu, memory and places for pods; who comes later is told, too, and who was told is not told again."""
    overused = ("QueueOverused", "queue a uses all that it deserves beside other queues")
    state = given(node("n", cpu=4_000, memory=4 * GIB, pods=4), shape("s"), queue("a"), queue("b"))
    then(state, *[in_queue(f"a{i}", "a") for i in range(4)], *[in_queue(f"b{i}", "b") for i in range(2)])
    assert sorted(settle(state)) == ["a0", "a1", "b0", "b1"]
    assert why(state, "a2") == why(state, "a3") == overused
    then(state, in_queue("a4", "a"))
    assert [event.pods for event in schedule(state) if isinstance(event, e.Withheld)] == [("a4",)]
    assert why(state, "a4") == overused
    then(state, node("n", cpu=4_000, memory=4 * GIB, pods=4, labels={"x": "y"}))
    assert schedule(state) == []


def test_a_pod_that_waited_for_a_node_is_told_when_it_is_its_queue_that_it_waits_for():
    """There is capacity for one more, and what is left is b's, whose next pod is too large for it."""
    shapes = shape("s"), shape("four", cpu=4_000, memory=4 * GIB), shape("large", cpu=1_500, memory=GIB + GIB // 2)
    state = given(node("n", cpu=5_000, memory=5 * GIB, pods=5), *shapes, queue("a", 2), pod("x", "four", "n"), in_queue("a0", "a", node="n"))
    then(state, in_queue("a1", "a"))
    schedule(state)
    assert why(state, "a1") == ("", "")
    there = in_queue("a2", "a", node="n"), in_queue("b0", "b", node="n"), in_queue("b1", "b", node="n")
    then(state, e.PodGone("x"), queue("b", 3), *there, in_queue("b2", "b", "large"))
    schedule(state)
    assert why(state, "a1") == ("QueueOverused", "queue a uses all that it deserves beside other queues")
    then(state, node("n", cpu=5_000, memory=5 * GIB, pods=5, labels={"x": "y"}))
    assert schedule(state) == [], "it was told"


def test_a_queue_may_use_what_the_other_does_not_want():
    state = given(node("n", cpu=12_000), shape("s"), queue("a", 1), queue("b", 9))
    then(state, *[in_queue(f"a{i}", "a") for i in range(12)], in_queue("b0", "b"))
    assert len(settle(state)) == 12


def test_the_default_queue_is_there_without_an_object_with_weight_one():
    state = given(node("n", cpu=8_000), shape("s"), queue("b", 3))
    then(state, *[pod(f"d{i}") for i in range(8)], *[in_queue(f"b{i}", "b") for i in range(8)])
    got = settle(state)
    assert sum(name.startswith("d") for name in got) == 2


def test_what_is_guaranteed_to_a_queue_is_kept_for_it_although_it_wants_nothing():
    state = given(node("n", cpu=8_000), shape("s"), queue("a"), queue("b", guarantee={"cpu": 3_000}))
    then(state, *[in_queue(f"a{i}", "a") for i in range(8)])
    assert len(settle(state)) == 5
    assert why(state, "a7") == ("QueueQuota", "queue a has no cpu left beside other queues, which are guaranteed the rest")
    then(state, *[in_queue(f"b{i}", "b") for i in range(8)])
    assert len(settle(state)) == 3


def test_a_queue_stays_within_its_capability_and_leaves_the_rest_to_others():
    state = given(node("n", cpu=8_000), shape("s"), queue("a", 9, capability={"cpu": 2_000}), queue("b"))
    then(state, *[in_queue(f"a{i}", "a") for i in range(8)], *[in_queue(f"b{i}", "b") for i in range(8)])
    got = settle(state)
    assert sorted(name[0] for name in got) == ["a"] * 2 + ["b"] * 6


def test_a_guarantee_above_the_cluster_keeps_nothing_from_others():
    state = given(node("n", cpu=8_000), shape("s"), queue("mad", guarantee={"cpu": 10**15}), queue("b"))
    then(state, in_queue("m", "mad"), *[in_queue(f"b{i}", "b") for i in range(8)])
    assert len(settle(state)) == 8
    message = "queue mad: guarantee of cpu 1T is above what the cluster has, 8"
    assert why(state, "m") == ("InvalidQueue", message)


def test_a_pod_that_no_node_can_ever_take_keeps_nothing_from_another_queue_and_is_told_about_nodes():
    state = given(node("n", cpu=8_000), shape("s"), shape("huge", cpu=10**9), queue("a"), queue("b"))
    then(state, in_queue("a0", "a", "huge"), *[in_queue(f"b{i}", "b") for i in range(8)])
    assert len(settle(state)) == 8
    assert state.waiting[state.parked["a0"][0]].reasons == {"Insufficient cpu": 1}


@pytest.mark.parametrize(
    "group", [pod_group("g", "a", need=9), pod_group("g", "a", need=5), pod_group("g", "a", invalid="bad"), pod_group("other", "a")],
    ids=["more than the cluster has", "too few pods", "unreadable", "missing"],
)  # fmt: skip
def test_a_gang_that_cannot_be_complete_keeps_nothing_from_another_queue(group):
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=8_000), shape("s"), queue("a"), queue("b"), group)
    then(state, *[member(f"a{i}", "g") for i in range(9 if group.min_member == 9 else 4)], *[in_queue(f"b{i}", "b") for i in range(8)])
    assert len(settle(state)) == 8


def test_a_gang_that_can_be_complete_is_waited_for():
    state = given(node("n", cpu=8_000), shape("s"), queue("a"), queue("b"), pod_group("g", "a", need=4))
    then(state, *[member(f"a{i}", "g") for i in range(4)], *[in_queue(f"b{i}", "b") for i in range(8)])
    assert sorted(name[0] for name in settle(state)) == ["a"] * 4 + ["b"] * 4


def test_a_queue_alone_is_told_about_nodes_not_about_quotas():
    state = given(node("n", cpu=2_000), shape("s"), *[pod(f"p{i}") for i in range(4)])
    assert len(settle(state)) == 2
    assert state.waiting[state.parked["p3"][0]].reasons == {"Insufficient cpu": 1}


def test_whole_devices_are_not_left_idle_because_they_do_not_divide():
    state = given(node("n", cpu=80_000, gpus=8), shape("s", cpu=1, memory=1, gpu=(1, 1000)), *[queue(q) for q in "abc"])
    then(state, *[in_queue(f"{q}{i}", q) for q in "abc" for i in range(8)])
    assert len(settle(state)) == 8
    assert {q: sum(name[0] == q for name in state.placed) for q in "abc"} == {"a": 3, "b": 3, "c": 2}


def test_who_uses_least_of_what_it_deserves_comes_first():
    state = given(node("n", cpu=8_000), shape("s"), queue("a"), queue("b"), *[in_queue(f"old{i}", "a", node="n") for i in range(3)])
    then(state, *[in_queue(f"a{i}", "a") for i in range(4)], *[in_queue(f"b{i}", "b") for i in range(6)])
    assert settle(state) == ["b0", "b1", "b2", "a0", "b3"]


def shares(state):
    opened = open_session(state, NOW, 1_000)
    try:
        return opened, Shares(opened)
    finally:
        opened.close()


def busy(reclaimable=True):
    """Queue a uses all eight cores, four of which b deserves."""
    state = given(node("n", cpu=8_000, memory=64 * GIB), shape("s"), queue("a", reclaimable=reclaimable), queue("b"))
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(8)], *[in_queue(f"b{i}", "b") for i in range(8)])
    return state


def test_pods_are_reclaimed_from_a_queue_above_what_it_deserves_and_never_below_it():
    state = busy()
    assert shares(state)[1].reclaimable("b0", [f"a{i}" for i in range(8)]) == ["a0", "a1", "a2", "a3"]


def test_a_queue_that_is_not_reclaimable_loses_nothing_and_nobody_reclaims_from_its_own_queue():
    assert shares(busy(reclaimable=False))[1].reclaimable("b0", ["a0", "a1"]) == []
    state = busy()
    then(state, in_queue("a9", "a"))
    assert shares(state)[1].reclaimable("a9", ["a0", "a1"]) == []


def test_a_queue_reclaims_only_as_long_as_it_stays_within_what_it_deserves():
    state = busy()
    found = shares(state)[1]
    assert found.preemptive("b", state.pods["b0"].fact)
    assert not found.preemptive("a", state.pods["b0"].fact)


def test_a_pod_that_was_deleted_or_placed_is_no_longer_wanted():
    """The sums are kept from one session to the next."""
    state = given(node("n", cpu=12_000), shape("s"), queue("a", 1), queue("b", 2))
    then(state, *[in_queue(f"a{i}", "a") for i in range(20)], *[in_queue(f"b{i}", "b") for i in range(20)])
    settle(state)
    then(state, *[e.PodGone(f"b{i}") for i in range(20)])
    assert len(settle(state)) == 8
    assert shares(state)[1].wanted["a"][state.table.columns["cpu"]] == 8_000


queue_specs = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.integers(1, 5), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 6), st.integers(0, 12)),
    min_size=1,
)


@settings(max_examples=examples(100), deadline=None)
@drawn(st.integers(1, 16), queue_specs)
def test_no_queue_is_above_its_capability_and_none_waits_for_capacity_that_is_nobodys(cores, specs):
    """Weight, capability, guarantee (cores) and pods of one core each."""
    state = given(node("n", cpu=cores * 1_000, memory=1 << 50), shape("s"))
    for name, (weight, capability, guarantee, _) in specs.items():
        kept = min(guarantee, capability if capability is not None else guarantee)
        amounts = {"capability": {"cpu": capability * 1_000}} if capability is not None else {}
        then(state, queue(name, weight, guarantee={"cpu": kept * 1_000}, **amounts))
    then(state, *[in_queue(f"{name}{i}", name) for name, spec in sorted(specs.items()) for i in range(spec[3])])
    settle(state)
    cpu = state.table.columns["cpu"]
    used = {name: state.accounts.of(name).get(cpu, 0) for name in specs}
    free = cores * 1_000 - sum(used.values())
    right = {n: f for n, f in state.queues.items() if f.guarantee.get("cpu", 0) <= cores * 1_000}
    kept = {name: max(fact.guarantee.get("cpu", 0) - used[name], 0) for name, fact in right.items()}
    for name, (_, capability, _, pods) in specs.items():
        assert capability is None or used[name] <= capability * 1_000
        waits = pods * 1_000 - used[name]
        full = capability is not None and used[name] + 1_000 > capability * 1_000
        if waits and not full and name in right:
            assert free - sum(amount for other, amount in kept.items() if other != name) < 1_000


def test_nobody_is_evicted_for_a_pod_whose_queue_has_no_capacity_left_once_victims_of_another_one_are_made_again():
    """What is left of what b deserves is too small for any pod that waits in it, until its victims' successors wait."""
    actions = tuple(ActionConfig(name) for name in ("allocate", "preempt"))
    tiers = (tuple(PluginConfig(name) for name in ("priority", "gang", "predicates", "proportion", "nodeorder")),)
    state = given(configured("session", SessionConfig(actions=actions, tiers=tiers)), node("m", cpu=2_000), node("n", cpu=4_000), queue("a", 2), queue("b", 3))
    then(state, shape("s1", 1_000, priority=1), shape("s05", 500), shape("s2", 2_000), shape("high1", 1_000, priority=5), shape("high2", 2_000, priority=5))
    for name, of, what, where in (("a0", "a", "s2", "m"), ("a1", "a", "s2", "n"), ("b0", "b", "s1", "n"), ("b1", "b", "s05", "n")):
        then(state, in_queue(name, of, what, where, owner=replica_of(name)))
    then(state, in_queue("b2", "b", "high2"), in_queue("a2", "a", "high1"))
    assert [(event.pod, event.by) for event in schedule(state) if isinstance(event, e.Preempted)] == [("b0", "b2"), ("b1", "b2")]


@pytest.mark.parametrize(("members", "placed_of_a"), [(2, ["a2"]), (3, [])])
def test_a_gang_that_cannot_be_complete_keeps_no_rest_that_its_small_pods_would_fit_in(members, placed_of_a):
    """Half a core is left of what b deserves: too little for its large pod, and enough for a gang's pod, if the gang may start one day."""
    state = given(node("n", cpu=5_000), shape("s", 1_000), shape("large", 3_000), shape("half", 500), queue("a"), queue("b"), pod_group("g", "b", need=3))
    then(state, *[in_queue(f"{q}{i}", q, node="n") for q in "ab" for i in range(2)], in_queue("b2", "b", "large"), in_queue("a2", "a"))
    then(state, *[member(f"g{i}", "g", "half") for i in range(members)])
    assert settle(state) == placed_of_a


def test_a_group_that_is_not_let_in_reads_of_gpus_as_users_call_them():
    plugins = tuple(map(PluginConfig, ("gang", "proportion", "predicates")))
    conf = configured("session", SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate")), tiers=(plugins,)))
    gang = pod_group("g", "q", phase="Pending", min_resources={"restow.dev/gpu-milli": 2_000})
    state = given(conf, node("n", gpus=4), shape("s"), queue("q", capability={"restow.dev/gpu-milli": 1_000}), gang, member("m", "g"))
    schedule(state)
    assert why(state, "m") == ("NotEnqueued", "queue q has no nvidia.com/gpu left of its capability for the group's minimum")
