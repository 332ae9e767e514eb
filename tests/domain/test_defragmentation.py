"""The Defragmentation plugin: given a cluster, then the plan (seed 000, 2.1 to 2.3; RULES 000-4)."""

import msgspec
import pytest
from domain.build import GIB, NOW, configured, given, node, owner, pod, replica_of, reservation, shape, then

from restow.contracts import events as e
from restow.contracts.values import DeviceShare, HostPort, Move, Taint, Toleration
from restow.domain import config, defragmentation
from restow.domain.config import DefragmentationArgs, Namespaces, Requirement, Selector
from restow.domain.defragmentation import ArgsError, check, explain
from restow.domain.node_table import MOST
from restow.domain.session_config import read_conf

OWNER = replica_of("rs")
CPU = DefragmentationArgs(
    resourceType="cpu",
    lowThresholds={"cpu": 40},
    defragmentThresholds={"cpu": 70},
    protectionThresholds={"cpu": 90},
)


def args(**more) -> DefragmentationArgs:
    return msgspec.structs.replace(CPU, **more)


def plan(state, with_args=CPU, **more) -> e.Planned:
    return defragmentation.plan(state, with_args, more.pop("time", NOW), "p", **more)


def moves(state, with_args=CPU, **more) -> list[tuple[str, str, str]]:
    return [(m.pod, m.source, m.target) for m in plan(state, with_args, **more).moves]


def used(name: str, cpu: int, of: int = 10_000, **more) -> list[e.Event]:
    """A node and one pod that no rule lets move, so that the node is used this much."""
    filler = shape(f"filler-{name}", cpu=cpu, memory=0)
    return [node(name, cpu=of, **more), filler, pod(f"filler-{name}", f"filler-{name}", name)]


def app(name: str, on: str, shape: str = "s", **more) -> e.PodObserved:
    more.setdefault("owner", OWNER)
    return pod(name, shape, on, **more)


S = shape("s", cpu=1_000)


def test_a_pod_on_a_little_used_node_moves_to_a_well_used_one():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500))
    got = plan(state)
    assert got.moves == (Move("p-1", "p", "default", "p", "a", "b", cost=1_000),)
    assert got.sources == ("a",)
    assert got.kept == {}
    assert (got.before.free_nodes, got.after.free_nodes) == (0, 1)


def test_a_node_that_is_reserved_for_a_starving_job_is_no_target():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_800), *used("c", 7_500), shape("big", cpu=9_000), pod("w", "big"))
    then(state, e.TaskReserved("w", "b"))
    assert moves(state) == [("p", "a", "c")]
    then(state, e.TaskUnreserved("w", "Discarded"))
    assert moves(state) == [("p", "a", "b")]


def test_a_node_that_a_window_of_time_closes_is_no_target_until_the_window_is_over():
    """RULES G-8. The plan is made at 22:13."""
    label = {"nodeSelector": {"shift": "night"}, "resources": {"cpu": 4}, "cron": "0 22-23 * * *"}
    plugins = [{"name": "predicates"}, {"name": "reserve", "arguments": {"reservelabels": [label]}}]
    conf = configured("session", read_conf({"actions": "reserve, allocate", "tiers": [{"plugins": plugins}]}))
    night = {"labels": {"shift": "night"}}
    state = given(conf, S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_800, **night), *used("c", 7_500))
    assert moves(state) == [("p", "a", "c")]
    assert moves(state, time=NOW + 3 * 3_600_000) == [("p", "a", "b")]


def test_bounds_are_strict():
    below = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_001))
    assert moves(below) == [("p", "a", "b")]
    assert moves(given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_000))) == []
    assert moves(given(S, node("a", cpu=2_500), app("p", "a"), *used("b", 7_500))) == []  # 40 % is not below 40
    assert moves(given(S, node("a", cpu=2_501), app("p", "a"), *used("b", 7_500))) == [("p", "a", "b")]
    assert moves(given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 8_000))) == []  # would reach 90 %
    assert moves(given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_999))) == [("p", "a", "b")]


def test_only_the_resource_type_classifies_and_any_gpu_name_is_the_gpu():
    gpu = DefragmentationArgs(resourceType="alibabacloud.com/gpu-milli")
    state = given(
        shape("g", cpu=100, gpu=(1, 500)),
        shape("full", cpu=100, gpu=(3, 1000)),
        node("a", gpus=4),
        app("p", "a", "g", devices=(DeviceShare(0, 500),)),
        node("b", gpus=4),
        app("q", "b", "full", devices=tuple(DeviceShare(i, 1000) for i in range(3))),
    )
    assert plan(state, gpu).moves == (Move("p-1", "p", "default", "p", "a", "b", (DeviceShare(3, 500),), cost=1_000),)


PER_DEVICE = DefragmentationArgs(
    perDevice=True,
    lowThresholds={"nvidia.com/gpu": 40}, defragmentThresholds={"nvidia.com/gpu": 40}, protectionThresholds={"nvidia.com/gpu": 80},
)  # fmt: skip


def shared(name: str, on: str, milli: int, device: int = 0) -> e.PodObserved:
    return app(name, on, f"g{milli}", devices=(DeviceShare(device, milli),))


def gpu_shapes(*milli: int) -> list[e.Event]:
    return [shape(f"g{m}", cpu=100, gpu=(1, m)) for m in milli]


def test_per_device_only_devices_in_use_count():
    """Of a's one device in use 39.5 % is asked for, of b's two 50 %; of all eight devices 4.9 % and 12.5 %."""
    facts = *gpu_shapes(395, 500), node("a", gpus=8), node("b", gpus=8), shared("p", "a", 395), shared("q", "b", 500), shared("r", "b", 500, 1)
    got = plan(given(*facts), PER_DEVICE)
    assert [(m.pod, m.source, m.target, m.devices) for m in got.moves] == [("p", "a", "b", (DeviceShare(2, 395),))]
    assert moves(given(*facts), msgspec.structs.replace(PER_DEVICE, perDevice=False)) == []


def test_per_device_a_device_that_is_shared_stays_below_its_protection():
    facts = *gpu_shapes(300, 500, 290), node("a", gpus=1), node("b", gpus=1), shared("q", "b", 500)
    assert moves(given(*facts, shared("p", "a", 300)), PER_DEVICE) == [], "500 and 300 are 80 %, which is not below"
    assert moves(given(*facts, shared("p", "a", 290)), PER_DEVICE) == [("p", "a", "b")]


def test_per_device_whole_devices_are_exempt_and_full():
    """A node whose devices in use are full is no source, however few they are."""
    facts = shape("whole", cpu=100, gpu=(1, 1000)), *gpu_shapes(500), node("a", gpus=8), node("b", gpus=8), shared("q", "b", 500)
    state = given(*facts, app("p", "a", "whole", devices=(DeviceShare(0, 1000),)))
    assert moves(state, PER_DEVICE) == []


def test_a_pod_that_came_back_again_and_again_stays():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500), e.Bounced("uid-rs", "a", 2))
    assert plan(state).kept == {"Bounced": 1}


def test_it_acts_only_with_more_sources_than_number_of_nodes():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500))
    got = plan(state, args(numberOfNodes=1))
    assert got.moves == ()
    assert got.kept == {"TooFewSources": 1}


def test_a_critical_node_is_left_alone():
    state = given(S, node("a", cpu=10_000, labels={"critical": "true"}), app("p", "a"), *used("b", 7_500))
    assert moves(state) == []


def test_a_node_in_its_cooldown_is_no_source():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500))
    state.cooling["a"] = NOW
    cool = args(coolDownTime=60)
    assert moves(state, cool, time=NOW + 59_999) == []
    assert moves(state, cool, time=NOW + 60_000) == [("p", "a", "b")]
    assert moves(state, args(coolDownTime=0)) == [("p", "a", "b")]


def test_nodes_that_are_not_ready_or_cordoned_take_no_part():
    for broken in ({"ready": False}, {"unschedulable": True}):
        assert moves(given(S, node("a", cpu=10_000, **broken), app("p", "a"), *used("b", 7_500))) == []
        assert moves(given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500, **broken))) == []


def test_a_node_without_that_resource_is_neither_source_nor_target():
    gpu = DefragmentationArgs()
    state = given(S, node("a"), app("p", "a"), node("b"), app("q", "b"))
    assert moves(state, gpu) == []
    assert plan(state, gpu).kept == {}


def test_the_least_used_source_goes_first_and_names_break_ties():
    state = given(
        S, node("c", cpu=10_000), node("b", cpu=10_000), node("a", cpu=10_000),
        app("c1", "c"), app("b1", "b"), app("a1", "a"), app("a2", "a"),
        *used("t", 7_500, of=10_000),
    )  # fmt: skip
    # Capacity for one below 90 %: the first of b and c, which are used less than a.
    assert moves(state) == [("b1", "b", "t")]


def test_larger_requests_move_first():
    state = given(
        S, shape("l", cpu=1_200), shape("m", cpu=1_000, memory=2 * GIB), node("a", cpu=10_000),
        app("small", "a"), app("big", "a", "l"), app("memory", "a", "m"), *used("t", 71_000, of=100_000),
    )  # fmt: skip
    assert [pod for pod, _, _ in moves(state)] == ["big", "memory", "small"]


def test_of_equal_requests_of_the_resource_that_classifies_the_one_of_more_cpu_moves_first():
    by_memory = args(resourceType="memory", lowThresholds={"memory": 40}, defragmentThresholds={"memory": 70}, protectionThresholds={"memory": 90})
    full = [node("t", memory=100 * GIB), shape("f", cpu=0, memory=75 * GIB), pod("f", "f", "t")]
    state = given(S, shape("more", cpu=1_500), shape("less", cpu=500), node("a"), app("p", "a"), app("q", "a", "more"), app("o", "a", "less"), *full)
    assert [pod for pod, _, _ in moves(state, by_memory)] == ["q", "p", "o"]


def test_the_fullest_target_that_fits_wins_and_planned_moves_count():
    state = given(
        S, node("a", cpu=10_000), *(app(f"p{i}", "a") for i in range(3)),
        *used("t1", 7_200), *used("t2", 7_500), *used("t3", 7_500),
    )  # fmt: skip
    # t2 and t3 tie; with p0 on it t2 would reach 95 % for the next one.
    assert moves(state) == [("p0", "a", "t2"), ("p1", "a", "t3"), ("p2", "a", "t1")]


def test_a_hold_counts_for_the_target_and_keeps_the_source():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500))
    then(
        state,
        shape("h", cpu=1_000),
        reservation("r", ("t", 1, "h"), owners=(owner(x="y"),)),
        e.ReservationAccepted("r", 1, 1),
        e.HoldPlaced("r", "t-0", "b"),
    )
    assert moves(state) == []  # 75 % + 10 % held + 10 % is over 90 %


def test_selectors_taints_and_capacity_of_the_target_are_respected():
    state = given(
        shape("s", cpu=1_000, memory=4 * GIB, node_selector={"zone": "x"}, tolerations=(Toleration("k", "Exists"),)),
        node("a", cpu=10_000), app("p", "a"),
        *used("b", 7_900, labels={"zone": "y"}),
        *used("c", 7_800, labels={"zone": "x"}, taints=(Taint("other", "NoSchedule"),)),
        *used("d", 7_700, labels={"zone": "x"}, memory=3 * GIB),
        *used("e", 7_600, labels={"zone": "x"}, taints=(Taint("k", "NoSchedule"),)),
    )  # fmt: skip
    assert moves(state) == [("p", "a", "e")]


@pytest.mark.parametrize(
    ("verdict", "more"),
    [
        ("Bare", {"owner": None}),
        ("DaemonSet", {"owner": replica_of("ds", "DaemonSet")}),
        ("Static", {"static": True}),
        ("Terminating", {"deleting": NOW}),
        ("NotReady", {"ready": False}),
        ("NotReady", {"phase": "Pending"}),
        ("Namespace", {"namespace": "kube-system"}),
        ("Labels", {"labels": {"tier": "batch"}}),
        ("Pinned", {"pinned_node": "a"}),
        ("Critical", {"shape": shape("x", priority=2_000_000_000)}),
        ("Scheduler", {"shape": shape("x", scheduler="default-scheduler")}),
        ("Unsupported", {"shape": shape("x", host_ports=(HostPort(80),))}),
    ],
)
def test_a_pod_that_must_not_move_stays_and_the_plan_says_why(verdict, more):
    rules = args(evictableNamespaces=Namespaces(exclude=("kube-system",)), labelSelector=Selector({"tier": "web"}, (Requirement("tier", "NotIn", ("db",)),)))
    of = more.pop("shape", S)
    more.setdefault("labels", {"tier": "web"})
    state = given(of, node("a", cpu=10_000), app("p", "a", of.shape, **more), *used("b", 7_500))
    got = plan(state, rules)
    assert got.moves == ()
    assert got.kept == {verdict: 1}
    (candidate,) = explain(state, rules, NOW)
    assert candidate.verdict == verdict
    assert candidate.message


def test_with_include_only_these_namespaces_move():
    state = given(
        S, node("a", cpu=10_000), app("p", "a", namespace="x"), app("q", "a", namespace="y"), *used("b", 71_000, of=100_000)
    )
    assert moves(state, args(evictableNamespaces=Namespaces(include=("x",)))) == [("p", "a", "b")]


def test_who_prefers_no_eviction_moves_last_whatever_the_value():
    prefer = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "false"}
    state = given(
        S, shape("l", cpu=2_000), node("a", cpu=10_000), app("big", "a", "l", annotations=prefer), app("p", "a"),
        *used("b", 71_000, of=100_000),
    )  # fmt: skip
    assert [pod for pod, _, _ in moves(state)] == ["p", "big"]


def test_only_pods_of_our_scheduler_names_move():
    state = given(
        configured("session", config.SessionConfig(scheduler_names=("volcano",))),
        S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500),
    )  # fmt: skip
    assert plan(state).kept == {"Scheduler": 1}


def test_a_victim_is_not_planned_twice_and_its_promised_place_counts():
    state = given(S, node("a", cpu=10_000), app("p", "a"), app("q", "a"), *used("b", 7_500), *used("c", 7_200))
    first = defragmentation.plan(state, CPU, NOW, "first", 1)
    assert [(m.pod, m.target) for m in first.moves] == [("p", "b")]
    then(state, first)
    second = defragmentation.plan(state, CPU, NOW, "second")
    assert [(m.pod, m.target) for m in second.moves] == [("q", "c")]
    assert second.kept == {"Migrating": 1}


def test_a_plan_stops_at_max_moves():
    state = given(S, node("a", cpu=10_000), app("p", "a"), app("q", "a"), *used("b", 71_000, of=100_000))
    got = plan(state, max_moves=1)
    assert len(got.moves) == 1
    assert got.kept == {"Limit": 1}


def test_an_empty_source_is_no_reason_to_do_anything():
    got = plan(given(S, node("a", cpu=10_000), *used("b", 7_500)))
    assert (got.moves, got.sources, got.kept) == ((), (), {})


def test_each_rule_that_removes_targets_is_counted():
    state = given(
        shape("s", cpu=1_500, memory=4 * GIB, node_selector={"zone": "x"}), node("a", cpu=10_000), app("p", "a"),
        *used("b", 7_100, labels={"zone": "y"}),
        *used("c", 7_100, labels={"zone": "x"}, memory=3 * GIB),
        *used("d", 8_000, labels={"zone": "x"}),
        *used("e", 8_100, labels={"zone": "x"}),
    )  # fmt: skip
    assert plan(state).kept == {"NoTarget: protectionThresholds": 1}
    (candidate,) = explain(state, CPU, NOW)
    assert candidate.targets == 4
    assert candidate.removed == {
        "Insufficient memory": 1,
        "node(s) didn't match Pod's node affinity/selector": 1,
        "protectionThresholds": 2,
    }


def test_a_plan_changes_nothing():
    state = given(S, node("a", cpu=10_000), app("p", "a"), *used("b", 7_500))
    before = state.table.free.copy(), state.table.device_free.copy(), state.counts()
    first = plan(state)
    assert plan(state) == first
    assert (before[0] == state.table.free).all()
    assert (before[1] == state.table.device_free).all()
    assert before[2] == state.counts()


def test_amounts_near_the_end_of_int64_do_not_overflow():
    huge = MOST
    rules = DefragmentationArgs("memory", {"memory": 90}, {"memory": 70}, {"memory": 40})
    state = given(
        shape("s", memory=huge // 16), shape("f", memory=huge // 4 * 3), node("a", memory=huge), app("p", "a"),
        node("b", memory=huge), pod("f", "f", "b"),
    )  # fmt: skip
    assert moves(state, rules) == [("p", "a", "b")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"lowThresholds": {"cpu": 101}}, "lowThresholds['cpu']: 101; allowed: 0 to 100"),
        ({"lowThresholds": {"cpu": 40, "memory": -1}}, "lowThresholds['memory']: -1; allowed: 0 to 100"),
        ({"lowThresholds": {"cpu": 71}}, "lowThresholds['cpu']: 71; allowed: at most defragmentThresholds, 70"),
        ({"protectionThresholds": {"cpu": 69}}, "defragmentThresholds['cpu']: 70; allowed: at most protectionThresholds, 69"),
        ({"lowThresholds": {"memory": 20}}, "lowThresholds['cpu']: is missing; allowed: one percentage"),
        ({"numberOfNodes": -1}, "numberOfNodes: -1; allowed: 0 or more"),
        ({"coolDownTime": -1}, "coolDownTime: -1; allowed: 0 or more (seconds)"),
        ({"resourceType": ""}, "resourceType: ''; allowed: a resource"),
        ({"evictableNamespaces": Namespaces(("a",), ("b",))}, "evictableNamespaces: has include and exclude"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(more, said):
    with pytest.raises(ArgsError) as refused:
        check(args(**more))
    assert said in str(refused.value)


def test_gpu_names_may_be_mixed_but_not_doubled():
    mixed = DefragmentationArgs(resourceType="koordinator.sh/gpu")
    check(mixed)
    with pytest.raises(ArgsError, match=r"is given as koordinator\.sh/gpu, nvidia\.com/gpu"):
        check(msgspec.structs.replace(mixed, lowThresholds={"nvidia.com/gpu": 1, "koordinator.sh/gpu": 2}))


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "gpu"])
def test_gpus_may_be_called_as_in_seed_003(name):
    """Seed 003's table: `ResourceType` is `cpu`, `gpu` or `memory`."""
    bounds = {"lowThresholds": {name: 30}, "defragmentThresholds": {name: 60}, "protectionThresholds": {name: 95}}
    busy = [pod(f"f{i}", "big", "b", devices=(DeviceShare(i, 1000),)) for i in range(7)]
    state = given(
        shape("s", gpu=(1, 1000)), shape("big", gpu=(1, 1000)), node("a", gpus=10), node("b", gpus=10), *busy,
        app("p", "a", devices=(DeviceShare(0, 1000),)),
    )  # fmt: skip
    assert moves(state, DefragmentationArgs(resourceType=name, **bounds)) == [("p", "a", "b")]
