"""A whole policy in the service: every plugin's run is a plan, and nobody is evicted who has no place."""

import pytest
from domain.build import (
    GIB,
    NOW,
    changed,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.descheduling_words import HOUR, WEB, policy, profile
from domain.saga import BOLD, advance, begun, decider, failed, owed, session_answers, step, through
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.samples import Samples
from restow.contracts.values import (
    DeviceShare,
    Expression,
    HostPort,
    LabelSelector,
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Spread,
    Taint,
)
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.decider import Rejected, decide_all
from restow.domain.descheduling.policy import written
from restow.domain.effects import Evict
from restow.domain.migration import check, next_trigger, turns_of
from restow.domain.migration.deschedule import explain
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

AT = NOW + HOUR
DRAIN = (Taint("drain", "NoSchedule"),)
TAINTS, COPIES, LOW, HIGH = "RemovePodsViolatingNodeTaints", "RemoveDuplicates", "LowNodeUtilization", "HighNodeUtilization"
ASKED = {"descheduler.alpha.kubernetes.io/evict": "true"}


def config(*profiles, limits=None, **more):
    return configured("migration", MigrationConfig(policy=written(policy(*profiles, **(limits or {}))), **BOLD | more))


def taints(**more):
    return profile(TAINTS, name="taints", **more)


def old(**more):
    return profile(name="old", **more)


def web(name, where="n1", shape="s", **more):
    return pod(name, shape, where, owner=more.pop("owner", WEB), **more)


def cluster(*facts, conf=None, nodes=("n2",), cpu=8_000, tainted=DRAIN):
    """n1 is drained."""
    return given(conf or config(taints()), shape("s"), node("n1", cpu=64_000, taints=tainted), *(node(n, cpu=cpu) for n in nodes), *facts)


def plans(state, samples=None, at=AT):
    return when(state, decider, c.Deschedule(at, "api", "now", samples))


def moves(planned):
    return {move.pod: move.target for move in planned.moves}


# -- hold first ----------------------------------------------------------------------------------------------------------


def test_each_pod_has_a_landing_place_before_it_is_evicted():
    state = cluster(web("a"), web("b"))
    before = dump(state)
    (planned,) = plans(state)
    assert (planned.plan, planned.plugin, planned.profile, planned.planner, planned.trigger) == ("now-p1", TAINTS, "taints", "policy", "api")
    assert moves(planned) == {"a": "n2", "b": "n2"}
    assert [(m.migration, m.source, m.reason) for m in planned.moves] == [
        ("now-p1-1", "n1", "does not tolerate the node's taint drain:NoSchedule"), ("now-p1-2", "n1", "does not tolerate the node's taint drain:NoSchedule"),
    ]  # fmt: skip
    assert dump(state) == before
    run(state, decider, c.Deschedule(NOW, "api", "now"))
    assert begun(advance(state)) == ["now-p1-1", "now-p1-2"]
    assert not [effect for effect in owed(state) if isinstance(effect, Evict)]
    for id, successor in (("now-p1-1", "a2"), ("now-p1-2", "b2")):
        through(state, id, successor)
        assert step(state, id) is Step.LANDED


def test_a_pod_that_has_nowhere_to_go_is_not_evicted():
    """Upstream evicts it, unless nodeFit is on: then it waits."""
    (planned,) = plans(cluster(web("a", shape="big"), web("b"), shape("big", cpu=9_000)))
    assert moves(planned) == {"b": "n2"}
    assert planned.kept == {"NoTarget": 1}


def test_of_several_each_sees_what_was_promised_to_the_others():
    state = cluster(*(web(name) for name in "abcd"), nodes=("n2", "n3"), cpu=1_500)
    (planned,) = plans(state)
    assert sorted(moves(planned).values()) == ["n2", "n3"]
    assert planned.kept == {"NoTarget": 2}


def test_what_earlier_plans_have_promised_is_taken():
    state = cluster(web("a"), cpu=1_000)
    run(state, decider, c.Deschedule(NOW, "api", "first"))
    then(state, web("b"))
    (planned,) = when(state, decider, c.Deschedule(NOW, "api", "second"))
    assert (moves(planned), planned.kept) == ({}, {"Migrating": 1, "NoTarget": 1})


def test_rules_about_other_pods_count_those_that_are_promised_a_place():
    apart = shape("apart", pod_anti_affinity=(PodTerm("host", LabelSelector({"app": "x"})),))
    port = shape("port", host_ports=(HostPort(80, "TCP", "0.0.0.0"),))
    nodes = [node(n, labels={"host": n}) for n in ("n2", "n3")]
    state = cluster(*nodes, apart, port, *(web(f"x{i}", shape="apart", labels={"app": "x"}) for i in range(3)), *(web(f"y{i}", shape="port") for i in range(3)), nodes=())
    (planned,) = plans(state)
    for letter in "xy":
        assert sorted(target for uid, target in moves(planned).items() if uid[0] == letter) == ["n2", "n3"]
    assert planned.kept == {"NoTarget": 2}


def test_devices_are_promised_and_each_its_own():
    gpu = shape("g", gpu=(1, 1000))
    nodes = node("n1", gpus=2, taints=DRAIN), node("n2", gpus=2)
    state = given(config(taints()), *nodes, gpu, *(web(n, shape="g", devices=(DeviceShare(i, 1000),)) for i, n in enumerate("ab")))
    (planned,) = plans(state)
    assert sorted(share.index for m in planned.moves for share in m.devices) == [0, 1]


# -- who is not moved, whatever the policy says -----------------------------------------------------------------------------


def unmovable():
    yield "Static", web("x", static=True)
    yield "DaemonSet", web("x", owner=replica_of("d", "DaemonSet"), annotations=ASKED)
    yield "Pinned", web("x", pinned_node="n1")
    yield "Bounced", web("x"), e.Bounced(WEB.uid, "n1", 2)
    yield "Scheduler", web("x", shape="other"), shape("other", scheduler="default-scheduler")
    yield "Unsupported", web("x", shape="claims"), shape("claims", resource_claims=("c",))


@pytest.mark.parametrize(("why", "facts"), [(why, facts) for why, *facts in unmovable()], ids=lambda v: v if isinstance(v, str) else "")
def test_what_a_hold_cannot_promise_is_not_evicted(why, facts):
    (planned,) = plans(cluster(*facts))
    assert (planned.moves, planned.kept) == ((), {why: 1})


def test_a_pod_that_is_on_the_move_is_left_to_it():
    state = cluster(web("a"))
    run(state, decider, c.Deschedule(NOW, "api", "first"))
    (planned,) = plans(state)
    assert (planned.moves, planned.kept) == ((), {"Migrating": 1})


# -- pods that nothing is held for -------------------------------------------------------------------------------------------


FAILED_PODS = profile("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, name="failed")


def removal(state=None):
    state = state or cluster(web("a", phase="Failed", ready=False), conf=config(FAILED_PODS))
    run(state, decider, c.Deschedule(NOW, "api", "now"))
    return state


def test_a_failed_pod_is_evicted_without_a_hold():
    state = removal()
    (move,) = state.plans["now-p1"].planned.moves
    assert (move.pod, move.source, move.target) == ("a", "n1", "")
    assert advance(state) == [e.Evicting("now-p1-1", NOW + 60_000)]
    assert owed(state) == [Evict("now-p1-1")]
    then(state, changed("a", node="n1", phase="Failed", deleting=NOW))
    assert advance(state) == [e.Removed("now-p1-1")]
    assert (step(state, "now-p1-1"), owed(state), state.active, state.backlog, state.victims) == (Step.REMOVED, [], {}, {}, {})


def test_so_is_one_that_nobody_makes_again_where_the_policy_evicts_it_nevertheless():
    state = cluster(pod("bare", "s", "n1"), pod("asks", "s", "n1", annotations=ASKED))
    (planned,) = plans(state)
    assert (moves(planned), planned.kept) == ({"asks": ""}, {"Bare": 1})


def test_its_successor_takes_nobodys_hold():
    state = removal(cluster(web("a", phase="Failed", ready=False), web("b"), conf=config(FAILED_PODS)))
    advance(state)
    then(state, e.PodGone("a"), pod("a2", "s", owner=WEB))
    session_answers(state)
    advance(state)
    assert state.migrations["now-p1-1"].successor == ""
    assert state.armed == {}


def test_a_budget_that_refuses_it_is_asked_again_for_as_long_as_the_policy_says_and_then_it_stays():
    state = removal(cluster(web("a", phase="Failed", ready=False), conf=config(FAILED_PODS, budget_patience=90_000)))
    advance(state)
    report = c.ReportEviction(NOW + 60_000, "now-p1-1", "Budget", "no")
    assert run(state, decider, report) == []
    assert run(state, decider, c.ReportEviction(NOW + 90_000, "now-p1-1", "Budget", "no")) == [e.Aborting("now-p1-1", "Budget", "no")]
    assert run(state, decider, c.ReportEviction(NOW + 91_000, "now-p1-1", "Aborted")) == [e.MigrationFailed("now-p1-1", "Budget", "no")]
    assert step(state, "now-p1-1") is Step.FAILED


def test_a_pod_that_goes_while_it_is_given_up_was_removed():
    state = removal()
    advance(state)
    run(state, decider, c.ReportEviction(NOW, "now-p1-1", "Refused", "403"))
    assert step(state, "now-p1-1") is Step.ABORTING
    then(state, e.PodGone("a"))
    assert advance(state) == [e.Removed("now-p1-1")]


def test_a_cancelled_plan_evicts_nobody_any_more():
    state = removal()
    run(state, decider, c.CancelPlan(NOW, "now-p1", "enough"))
    assert failed(advance(state)) == {"now-p1-1": "Cancelled"}


def test_evictions_a_minute_bound_these_too():
    names = [f"p{i}" for i in range(4)]
    pods = [web(name, phase="Failed", ready=False) for name in names]
    state = removal(cluster(*pods, conf=config(FAILED_PODS, evictions_per_minute=2)))
    assert len([event for event in advance(state) if isinstance(event, e.Evicting)]) == 2
    then(state, *(e.PodGone(name) for name in names[:2]))
    assert [type(event) for event in advance(state)] == [e.Removed] * 2
    assert decider.deadline(state) == NOW + 60_000
    assert len([event for event in advance(state, 60_000) if isinstance(event, e.Evicting)]) == 2


def test_a_pod_that_is_gone_before_its_turn():
    state = removal()
    then(state, e.PodGone("a"))
    assert failed(advance(state)) == {"now-p1-1": "PodGone"}


def test_snapshots_know_it():
    state = removal()
    advance(state)
    again = load(dump(state))
    assert (again.active, again.victims, again.armed) == (state.active, state.victims, state.armed)
    assert owed(again) == owed(state)


# -- the whole policy --------------------------------------------------------------------------------------------------------


def test_all_profiles_deschedule_then_all_balance_and_each_run_is_one_plan():
    what = config(profile(COPIES, point="balance", name="first"), old(), taints())
    state = cluster(web("a"), web("b"), conf=what)
    told = plans(state)
    assert [(p.plan, p.plugin, p.profile, len(p.moves)) for p in told] == [
        ("now-p1", "PodLifeTime", "old", 2), ("now-p2", TAINTS, "taints", 0), ("now-p3", COPIES, "first", 0),
    ]  # fmt: skip
    assert [(t.plugin, t.profile) for t in turns_of(state)] == [(p.plugin, p.profile) for p in told]
    assert told[0].after == told[1].before == told[1].after


def test_later_plugins_see_the_places_that_earlier_ones_have_promised():
    what = config(taints(), old())
    state = cluster(web("a"), pod("y", "s", "n3", owner=replica_of("other")), node("n3", cpu=1_000), conf=what, cpu=1_000)
    first, second = plans(state)
    assert (moves(first), moves(second)) == ({"a": "n2"}, {})
    assert second.kept["NoTarget"] == 1


def test_limits_hold_for_all_plugins_together():
    state = cluster(*(web(name) for name in "abc"), conf=config(taints(), old(), limits={"maxNoOfPodsToEvictTotal": 2}))
    first, second = plans(state)
    assert (len(first.moves), first.kept, len(second.moves)) == (2, {"Limit": 1}, 0)


def test_who_has_no_place_does_not_use_a_limit_up():
    state = cluster(web("a", shape="big"), web("b"), shape("big", cpu=9_000), conf=config(taints(), limits={"maxNoOfPodsToEvictTotal": 1}))
    assert moves(plans(state)[0]) == {"b": "n2"}


def test_with_too_few_nodes_every_plan_says_why():
    state = given(config(taints(), old()), shape("s"), node("n1", taints=DRAIN), web("a"))
    assert {p.reason for p in plans(state)} == {"1 ready node is selected; at least 2 are needed for a pod to go anywhere"}


def test_it_decides_the_same_again_whatever_the_order_of_commands_in_a_commit():
    state = cluster(*(web(name) for name in "abcdef"), nodes=("n2", "n3", "n4"), conf=config(taints(), profile(COPIES, point="balance", name="d")))
    command = c.Deschedule(AT, "api", "now")
    assert plans(state) == plans(state)
    (decision,) = decide_all(state, decider, [command])
    assert list(decision.events) == plans(state)


def test_what_makes_no_sense_is_rejected():
    with pytest.raises(Rejected, match="no plugin is enabled"):
        plans(given(node("n1")))
    state = cluster(web("a"))
    run(state, decider, c.Deschedule(NOW, "api", "now"))
    with pytest.raises(Rejected, match="'now' exists already"):
        plans(state)


# -- where each plugin sends its pods ------------------------------------------------------------------------------------------


def test_spreading_lands_on_nodes_that_are_hardly_used():
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    facts = [*(web(f"a{i}", "n1") for i in range(8)), *(web(f"b{i}", "n2", owner=replica_of("b")) for i in range(4))]
    nodes = [node(n, cpu=10_000, memory=64 * GIB) for n in ("n1", "n2", "n3")]
    state = given(config(profile(LOW, args, point="balance", name="l")), shape("s"), *nodes, *facts)
    assert set(moves(plans(state)[0]).values()) == {"n3"}


def spreading(facts, low=30, high=60, cpus=(10_000, 10_000, 10_000)):
    args = {"thresholds": {"cpu": low}, "targetThresholds": {"cpu": high}}
    nodes = [node(f"n{i}", cpu=cpu, memory=64 * GIB) for i, cpu in enumerate(cpus, 1)]
    sizes = [shape(f"s{i}", cpu=i * 1_000, memory=0) for i in range(1, 9)]
    return given(config(profile(LOW, args, point="balance", name="l")), shape("s"), *sizes, *nodes, *facts)


def test_who_would_make_another_node_as_full_as_his_own_stays():
    """The next run would send it back, and so on: upstream, which does not choose where a pod lands, cannot tell."""
    state = spreading([web("a", "n1", "s4"), web("b", "n1", "s3"), web("c", "n2", "s3"), web("d", "n3", "s4")])
    (planned,) = plans(state)
    assert moves(planned) == {"b": "n2"}, "and not a, by which n2 would be where n1 is now"
    state = spreading([web("a", "n1", "s5"), web("b", "n1", "s5"), web("c", "n2", "s5"), web("d", "n3", "s4")], low=50, high=60)
    (planned,) = plans(state)
    assert moves(planned) in ({"a": "n3"}, {"b": "n3"}), "to 90 %, where 100 % were"
    state = spreading([web("a", "n1", "s6"), web("b", "n1", "s1"), web("c", "n2", "s1"), web("d", "n3", "s1")], low=10, high=60)
    planned = plans(state)[0]
    assert (moves(planned), planned.kept) == ({"b": "n2"}, {"Capacity": 1})
    state = spreading([web("a", "n1", "s7"), web("c", "n2", "s1"), web("d", "n3", "s1")], low=10, high=60)
    planned = plans(state)[0]
    assert (moves(planned), planned.kept) == ({}, {"Capacity": 1})


def test_of_nodes_that_differ_in_size_the_share_counts():
    facts = [web("a", "n1", "s4"), web("b", "n1", "s4"), web("c", "n2", "s1")]
    assert moves(plans(spreading(facts, cpus=(10_000, 5_000), high=70))[0]) == {}, "5 of 5 cores are more than 8 of 10"
    assert moves(plans(spreading(facts, cpus=(10_000, 20_000), high=70))[0]) == {"a": "n2"}


def test_what_earlier_plans_have_under_way_counts_where_it_goes():
    """A second run right after the first takes no more off the node, and sends nothing beyond the target."""
    facts = [web(f"a{i}", "n1", "s1") for i in range(8)]
    state = spreading(facts, cpus=(10_000, 10_000))
    assert len(moves(run(state, decider, c.Deschedule(AT, "api", "one"))[0])) == 2
    advance(state)
    assert moves(run(state, decider, c.Deschedule(AT, "api", "two"))[0]) == {}


def test_packing_lands_on_nodes_that_are_used_well():
    facts = [web("a0", "n1"), web("c0", "n3"), *(web(f"b{i}", "n2") for i in range(4))]
    nodes = [node(n, cpu=10_000, memory=64 * GIB) for n in ("n1", "n2", "n3")]
    state = given(config(profile(HIGH, {"thresholds": {"cpu": 20}}, point="balance", name="h")), shape("s"), *nodes, *facts)
    assert moves(plans(state)[0]) == {"a0": "n2", "c0": "n2"}


SPREAD = "RemovePodsViolatingTopologySpreadConstraint"


def test_one_constraint_is_not_kept_by_breaking_another_that_is_balanced_too():
    """Two of four pods go to the other zone, and both of them from one node: then the hosts are uneven, and what is moved for that makes the
    zones uneven again, without end, where nobody looks at both."""
    rules = tuple(Spread(1, key, "ScheduleAnyway", LabelSelector({"app": "w"})) for key in ("zone", "host"))
    nodes = [node(name, labels={"zone": zone, "host": name}) for name, zone in (("n1", "x"), ("n2", "x"), ("n3", "y"))]
    pods = [web(f"w{i}", where, labels={"app": "w"}) for i, where in enumerate(("n1", "n1", "n2", "n2"))]
    balanced = profile(SPREAD, {"constraints": ["ScheduleAnyway"]}, point="balance", name="s")
    state = given(config(balanced), shape("s", spread=rules), *nodes, *pods)
    moved = []
    for turn in range(6):
        (planned,) = when(state, decider, c.Deschedule(AT + turn, "api", f"t{turn}"))
        for one in planned.moves:
            moved.append((one.source, one.target))
            before = state.pods[one.pod].fact
            then(state, e.PodGone(one.pod), replace(before, pod=f"{one.pod}x", name=f"{one.pod}x", node=one.target, phase="Running", ready=True))
    assert sorted(moved) == [("n1", "n3"), ("n2", "n3")], "two in each zone, and one or two on each host"


def test_where_one_would_trade_the_next_of_its_domain_goes_that_fits_elsewhere():
    """After w3 another one of n2 would leave the hosts uneven, and w1 is too large for n3."""
    rules = tuple(Spread(1, key, "ScheduleAnyway", LabelSelector({"app": "w"})) for key in ("zone", "host"))
    nodes = [node(name, cpu=cpu, labels={"zone": zone, "host": name}) for name, zone, cpu in (("n1", "x", 8_000), ("n2", "x", 8_000), ("n3", "y", 3_000))]
    pods = [web(f"w{i}", where, of, labels={"app": "w"}) for i, (where, of) in enumerate((("n1", "s"), ("n1", "large"), ("n2", "s"), ("n2", "s")))]
    balanced = profile(SPREAD, {"constraints": ["ScheduleAnyway"]}, point="balance", name="s")
    state = given(config(balanced), shape("s", spread=rules), shape("large", cpu=4_000, spread=rules), *nodes, *pods)
    assert moves(plans(state)[0]) == {"w3": "n3", "w0": "n3"}


def test_node_fit_minds_no_spread_that_is_about_to_be_mended():
    """Zone z is the emptiest and has capacity for little: only when that has come may the large one go to y."""
    spread = (Spread(1, "zone", "DoNotSchedule", LabelSelector({"app": "w"})),)
    nodes = [node("n1", labels={"zone": "x"}), node("n2", labels={"zone": "y"}), node("n3", cpu=100, labels={"zone": "z"})]
    shapes = shape("little", cpu=100, spread=spread), shape("large", cpu=2_000, spread=spread, priority=9)
    there = [("little", "n1"), ("large", "n1"), ("large", "n1"), ("large", "n1"), ("little", "n2")]
    balanced = profile(SPREAD, {"topologyBalanceNodeFit": False}, {"nodeFit": True}, point="balance", name="s")
    state = given(config(balanced), *shapes, *nodes, *(web(f"w{i}", where, of, labels={"app": "w"}) for i, (of, where) in enumerate(there)))
    assert moves(plans(state)[0]) == {"w0": "n3", "w3": "n2"}


def test_copies_land_on_nodes_with_fewer_of_them_one_after_the_other():
    facts = [*(web(f"a{i}", "n1") for i in range(4)), web("b0", "n2"), web("c0", "n3", owner=replica_of("c"))]
    state = given(config(profile(COPIES, point="balance", name="d")), shape("s"), *(node(n) for n in ("n1", "n2", "n3")), *facts)
    assert sorted(moves(plans(state)[0]).values()) == ["n2", "n3"], "5 copies on 3 nodes: at most 2 on each"


def test_where_a_soft_taint_is_to_be_left_the_next_node_has_none():
    soft = (Taint("old", "PreferNoSchedule"),)
    what = config(profile(TAINTS, {"includePreferNoSchedule": True}, name="t"))
    state = cluster(web("a"), *(web(f"f{i}", "n3", owner=replica_of("f")) for i in range(6)), node("n2", taints=soft), node("n3"), conf=what, nodes=(), tainted=soft)
    assert moves(plans(state)[0]) == {"a": "n3"}


def test_a_preferred_node_is_landed_on():
    term = NodeTerm((Expression("disk", "In", ("ssd",)),))
    wish = shape("w", node_preferences=(PreferredNodeTerm(1, term),))
    what = config(profile("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]}, name="a"))
    facts = [wish, node("n2"), node("n3", labels={"disk": "ssd"}), web("a", shape="w"), *(web(f"f{i}", "n3", owner=replica_of("f")) for i in range(5))]
    assert moves(plans(cluster(*facts, conf=what, nodes=(), tainted=()))[0]) == {"a": "n3"}


# -- Defragmentation among them ----------------------------------------------------------------------------------------------


PACK = DefragmentationArgs(
    resourceType="cpu", protectionThresholds={"cpu": 95}, defragmentThresholds={"cpu": 40}, lowThresholds={"cpu": 30}
)


def packing(*profiles, at=0, home="old", args=PACK, **more):
    return config(*profiles, defragmentation=args, profile=home, defragment_at=at, **more)


def fragmented(conf, *more):
    nodes = [node(n, cpu=10_000) for n in ("n1", "n2", "n3")]
    return given(conf, shape("s"), *nodes, web("a", "n1"), *(web(f"b{i}", "n2") for i in range(5)), *more)


def test_it_takes_its_turn_among_the_balance_plugins_of_its_profile():
    copies = profile(COPIES, point="balance", name="old")
    copies["pluginConfig"].append({"name": LOW, "args": {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 99}}})
    copies["plugins"]["balance"]["enabled"] = [COPIES, LOW]
    later = profile(COPIES, point="balance", name="later")
    for at, order in enumerate(([LOW, COPIES], [COPIES, LOW], [COPIES, LOW])):
        wanted = [COPIES, LOW]
        wanted.insert(at, "Defragmentation")
        state = fragmented(packing(copies, later, at=at))
        assert [t.plugin for t in turns_of(state)] == [*wanted, COPIES], order
        assert [p.plugin for p in plans(state)] == [*wanted, COPIES]


def test_it_packs_with_its_own_planner_and_counts_for_the_limits():
    state = fragmented(packing(taints(), home="taints"))
    first, second = plans(state)
    assert (first.plugin, second.plugin, second.planner, moves(second)) == (TAINTS, "Defragmentation", "greedy", {"a": "n2"})
    limited = fragmented(packing(taints(), home="taints", limits={"maxNoOfPodsToEvictTotal": 0}))
    assert (plans(limited)[1].moves, plans(limited)[1].reason) == ((), "Limit: maxNoOfPodsToEvictTotal is reached")


def test_it_does_not_move_who_is_moved_already_nor_others_what_it_moves():
    state = fragmented(packing(old(), home="old"))
    lives, packs = plans(state)
    assert (len(lives.moves), packs.moves) == (6, ())
    young = fragmented(packing(profile(COPIES, point="balance", name="old"), home="old"))
    packs, copies = plans(young)
    assert (moves(packs), "a" in moves(copies)) == ({"a": "n2"}, False)


def test_alone_it_can_be_asked_for_as_a_whole_policy():
    state = fragmented(configured("migration", MigrationConfig(defragmentation=PACK, profile="p")))
    (planned,) = plans(state)
    assert (planned.plugin, planned.profile, moves(planned)) == ("Defragmentation", "p", {"a": "n2"})


def test_nodes_that_one_plugin_has_touched_cool_down_for_the_next():
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    spread = profile(LOW, args, point="balance", name="old")
    pods = [web(f"{n}-{i}", n, owner=replica_of(n)) for n, count in (("n1", 1), ("n2", 9), ("n3", 5)) for i in range(count)]

    def told(seconds):
        what = packing(spread, args=replace(PACK, coolDownTime=seconds))
        return plans(given(what, shape("s"), *(node(n, cpu=10_000) for n in ("n1", "n2", "n3")), *pods))

    packs, spreads = told(0)
    assert (moves(packs), set(moves(spreads).values())) == ({"n1-0": "n3"}, {"n1"}), "what packing has freed"
    packs, spreads = told(600)
    assert (len(packs.moves), spreads.moves) == (1, ())
    assert spreads.reason == "all nodes that pods could go to were touched by a plan within coolDownTime"


# -- triggers ----------------------------------------------------------------------------------------------------------------


def test_timed_triggers_run_the_whole_policy():
    state = cluster(web("a"), conf=config(taints(), interval=60_000))
    assert decider.deadline(state) == NOW + 60_000
    due = decider.due(state, NOW + 60_000)
    assert isinstance(due, c.Deschedule)
    assert (due.trigger, due.samples) == ("interval", None)
    run(state, decider, due)
    assert isinstance(decider.due(state, NOW + 60_000), c.Advance)


def test_also_where_nothing_moves_the_next_one_counts_from_it():
    state = cluster(conf=config(taints(), interval=60_000))
    run(state, decider, decider.due(state, NOW + 60_000))
    assert decider.due(state, NOW + 60_001) is None
    assert decider.deadline(state) == NOW + 120_000


def test_a_policy_that_goes_by_metrics_is_triggered_by_who_reads_them():
    load = profile("LoadAware", {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}, point="balance", name="l")
    state = cluster(web("a"), conf=config(load, taints(), interval=60_000))
    assert next_trigger(state) == (NOW + 60_000, "interval")
    assert (decider.due(state, NOW + 60_000), decider.deadline(state)) == (None, None)
    first, second = plans(state, Samples(AT, error="metrics.k8s.io: 503"))
    assert (first.plugin, len(first.moves)) == (TAINTS, 1), "the others go on"
    assert (second.plugin, second.reason) == ("LoadAware", "nothing is evicted: metrics.k8s.io: 503")


def test_metrics_of_the_command_decide():
    load = profile("LoadAware", {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}, point="balance", name="l")
    state = cluster(web("a"), web("b"), conf=config(load), tainted=())
    samples = Samples(AT, {"n1": {"cpu": 40_000, "memory": 0}, "n2": {"cpu": 0, "memory": 0}}, {"a": {"cpu": 4_000, "memory": 0}, "b": {"cpu": 1, "memory": 0}})
    assert moves(plans(state, samples)[0]) == {"a": "n2"}


def test_a_policy_that_makes_no_sense_is_never_logged():
    good = MigrationConfig(policy=written(policy(taints())))
    check(good)
    for bad in (
        MigrationConfig(policy=good.policy | {"kind": "Policy"}),
        MigrationConfig(policy=good.policy, grace=-1),
        MigrationConfig(policy=good.policy, defragment_at=-1),
        MigrationConfig(policy=good.policy, defragmentation=PACK, profile="nobody"),
    ):
        with pytest.raises(ValueError, match="; allowed"):
            check(bad)


def test_old_logs_have_no_policy_and_plan_as_they_did():
    state = fragmented(e.MigrationConfigured('{"defragmentation":null,"interval":0}', ""))
    assert state.migration_config.policy == {}
    state = fragmented(configured("migration", MigrationConfig(defragmentation=PACK, interval=60_000)))
    assert isinstance(decider.due(state, NOW + 60_000), c.Defragment)


def test_gangs_and_groups_are_not_told_of_pods_that_are_only_evicted():
    state = given(
        config(FAILED_PODS), shape("s"), node("n1"), node("n2"), pod_group("g", need=1), member("a", "g", "s", "n1", owner=WEB, phase="Failed", ready=False)
    )
    removal(state)
    advance(state)
    then(state, e.PodGone("a"))
    advance(state)
    assert (step(state, "now-p1-1"), state.group_moves) == (Step.REMOVED, {})


def test_holds_that_are_lost_roll_back_as_ever():
    state = cluster(web("a"))
    run(state, decider, c.Deschedule(NOW, "api", "now"))
    advance(state)
    then(state, node("n2", unschedulable=True))
    assert failed(advance(state)) == {"now-p1-1": "TargetLost"}


# -- why ---------------------------------------------------------------------------------------------------------------------


def test_why_a_pod_moves_and_why_another_stays_is_decided_again_in_full():
    state = cluster(web("a"), web("b", shape="big"), web("x", "n2", owner=replica_of("x")), shape("big", cpu=9_000), conf=config(taints(), profile(COPIES, point="balance", name="d")))
    before = dump(state)
    told = {uid: [(one.plan, one.plugin, one.verdict, one.text) for one in explain(state, c.Deschedule(AT, "api", "now"), uid)] for uid in "abx"}
    assert told["a"] == [("now-p1", TAINTS, "Planned", "does not tolerate the node's taint drain:NoSchedule: moves to n2")]
    (first, *_) = told["b"]
    assert first[:3] == ("now-p1", TAINTS, "NoTarget")
    assert first[3].startswith("none of the 1 nodes that it may go to takes it (of all nodes: ")
    assert told["x"] == []
    assert dump(state) == before


def test_what_defragmentation_thought_of_it_is_told_too():
    state = fragmented(packing(taints(), home="taints"), pod("bare", "s", "n1"))
    (one,) = explain(state, c.Deschedule(AT, "api", "now"), "a")
    assert (one.plan, one.plugin, one.verdict, one.text) == ("now-p2", "Defragmentation", "Planned", "moves to n2")
    (one,) = explain(state, c.Deschedule(AT, "api", "now"), "bare")
    assert (one.plugin, one.verdict) == ("Defragmentation", "Bare")
