"""Preemption within a queue: who has to go, for whom, and who gets the capacity."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    in_queue,
    member,
    node,
    owner,
    pod,
    pod_group,
    queue,
    replica_of,
    reservation,
    run,
    shape,
    then,
    when,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, HostPort, LabelSelector, PodTerm
from restow.domain import config, session
from restow.domain import reservation as reservations
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.effects import EvictVictim, TellNominated
from restow.domain.session.preemption.claims import PATIENCE
from restow.domain.snapshot import dump, load
from restow.domain.state import Touched

decider = session.decider


def conf(*actions: str, tiers=None) -> e.Event:
    default = config.SessionConfig()
    names = actions or ("enqueue", "reserve", "allocate", "preempt", "backfill")
    return configured("session", SessionConfig(actions=tuple(ActionConfig(n) for n in names), tiers=tiers or default.tiers))


LOW, HIGH = shape("low", priority=1), shape("high", priority=10)


def full(*more, cpu: int = 2_000, **facts):
    """A node full of two pods of low priority."""
    return given(conf(), node("a", cpu=cpu), LOW, HIGH, pod("l0", "low", "a"), pod("l1", "low", "a"), *more, **facts)


def schedule(state, at: int = NOW):
    return run(state, decider, c.Schedule(at))


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def victims(events):
    return [event.pod for event in of(events, e.Preempted)]


def test_a_pod_of_higher_priority_takes_the_capacity_of_one_of_lower_priority():
    state = full(pod("h", "high"))
    assert schedule(state) == [
        e.Preempted("l1", "h", "preempt", "for pod default/h of queue default"),
        e.Nominated("h", "a", NOW + PATIENCE, (), ("l1",)),
    ]
    assert "h" not in state.parked


def test_without_the_action_nobody_has_to_go():
    state = given(conf("allocate"), node("a", cpu=2_000), LOW, HIGH, pod("l0", "low", "a"), pod("l1", "low", "a"), pod("h", "high"))
    assert victims(schedule(state)) == []
    assert "h" in state.parked


def test_equal_priority_takes_nothing():
    state = full(pod("p", "low"))
    assert victims(schedule(state)) == []


def test_a_pod_that_never_preempts_waits():
    state = full(shape("meek", priority=10, preemption="Never"), pod("m", "meek"))
    assert victims(schedule(state)) == []


def test_the_capacity_is_held_until_the_victim_is_gone_and_then_used():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, changed("l1", node="a", phase="Running", deleting=NOW))
    assert schedule(state) == []
    then(state, e.PodGone("l1"))
    assert schedule(state) == [e.PodPlaced("h", "a")]
    assert not state.nominations
    assert not state.victims_of


def test_what_is_held_for_it_already_goes_to_a_foreign_pod_and_comes_back_first_also_after_a_restart():
    def held(state) -> tuple[int, int]:
        row, column = state.table.rows["a"], state.table.columns["cpu"]
        return int(state.table.reserved[row, column]), int(state.table.free[row, column])

    state = full(shape("huge", cpu=2_000, priority=10), pod("h", "huge"))
    assert victims(schedule(state)) == ["l0", "l1"]
    for facts, expected in (
        ([e.PodGone("l1")], (1_000, 0)),
        ([pod("foreign", "low", "a")], (0, 0)),
        ([e.PodGone("l0")], (1_000, 0)),
        ([pod("little", "small", "a")], (700, 0)),
    ):
        then(state, shape("small", cpu=300), *facts)
        assert held(state) == expected
        state = load(dump(state))
        assert held(state) == expected
    then(state, e.PodGone("foreign"), e.PodGone("little"))
    assert held(state) == (2_000, 0)
    assert schedule(state) == [e.PodPlaced("h", "a")]


def test_nobody_of_the_same_priority_steals_the_freed_capacity():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, changed("l1", node="a", phase="Running", deleting=NOW), pod("thief", "high"))
    assert victims(schedule(state)) == ["l0"]  # it has to look for its own
    then(state, e.PodGone("l1"))
    assert schedule(state) == [e.PodPlaced("h", "a")]


def test_the_victims_replacement_does_not_take_the_capacity_back():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, changed("l1", node="a", phase="Running", deleting=NOW), pod("l1-again", "low"))
    schedule(state)
    then(state, e.PodGone("l1"))
    assert schedule(state) == [e.PodPlaced("h", "a")]
    assert "l1-again" in state.parked


def test_the_nomination_ends_at_its_deadline_and_its_victim_stays():
    state = full(pod("h", "high"))
    schedule(state)
    late = NOW + PATIENCE
    assert decider.deadline(state) == late
    assert isinstance(decider.due(state, late), c.Schedule)
    ended = schedule(state, late)
    assert ended[:2] == [e.PreemptionEnded("l1", "Deadline"), e.NominationEnded("h", "Deadline")]
    assert "l1" not in state.victims_of


def test_a_victim_that_a_budget_has_held_up_is_not_chosen_again_at_once():
    state = full(pod("h", "high"))
    schedule(state)
    late = NOW + PATIENCE
    schedule(state, late)
    then(state, node("a", cpu=2_000), time=late)
    schedule(state, late)
    assert list(state.victims_of) == ["l0"]


def capped(*claimers: e.Event):
    """Queue b may use 4 cores, and large does. It is to go for others of its queue; small would have what they leave."""
    acting, queues = conf("allocate", "preempt", "backfill"), queue("b", capability={"cpu": 4_000})
    shapes = shape("large", cpu=4_000), shape("high", cpu=2_000, priority=9), shape("small")
    state = given(acting, node("n1", cpu=4_000), node("n2", cpu=1_000), queues, *shapes, in_queue("large", "b", "large", "n1"))
    then(state, *(claimers or (in_queue("high", "b", "high"),)))
    assert victims(schedule(state)) == ["large"]
    return state


def test_what_a_victim_is_to_leave_its_queue_takes_nobody_past_its_capability_before_it_has_left():
    state = capped()
    then(state, in_queue("small", "b", "small"))
    assert [(event.reason, event.pods) for event in schedule(state)] == [("QueueQuota", ("small",))]
    run(state, decider, c.RefusePreemption(NOW, "large", "403 Forbidden"))
    while events := schedule(state):
        assert of(events, e.PodPlaced) == []


def test_when_it_has_left_both_are_placed():
    state = capped()
    then(state, in_queue("small", "b", "small"))
    schedule(state)
    then(state, changed("large", node="n1", phase="Running", deleting=NOW))
    assert [event.pod for event in of(schedule(state), e.PodPlaced)] == ["small"]
    then(state, e.PodGone("large"))
    assert [event.pod for event in of(schedule(state), e.PodPlaced)] == ["high"]


def test_several_of_a_gang_share_what_one_victim_is_to_leave_their_queue():
    state = capped(pod_group("g", "b", need=2), member("g1", "g", "high"), member("g2", "g", "high"))
    assert set(state.nominations) == {"g1", "g2"}


def test_when_the_node_is_lost_the_pod_looks_elsewhere_and_nobody_is_evicted_for_nothing():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, e.NodeGone("a"))
    assert not state.nominations
    assert not state.victims_of
    then(state, node("b"))
    assert e.PodPlaced("h", "b") in schedule(state)


def test_when_the_preemptor_is_deleted_its_victim_stays():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, e.PodGone("h"))
    assert not state.nominations
    assert not state.victims_of
    assert not decider.owed(state, EvictVictim("l1"))


def test_an_eviction_that_is_refused_for_good_ends_the_nomination_and_others_stay():
    big = shape("big", cpu=2_000, priority=10)
    state = full(big, pod("h", "big"))
    assert victims(schedule(state)) == ["l0", "l1"]
    events = run(state, decider, c.RefusePreemption(NOW, "l1", "403 Forbidden"))
    assert events == [
        e.PreemptionEnded("l1", "Refused: 403 Forbidden"),
        e.PreemptionEnded("l0", "VictimRefused"),
        e.NominationEnded("h", "VictimRefused"),
    ]
    assert not state.victims_of
    assert load(dump(state)).stuck == state.stuck
    then(state, node("a", cpu=2_000))
    assert victims(schedule(state)) == []  # without l1 there is no capacity
    assert "h" in state.parked


def test_the_effects_are_to_evict_and_to_tell():
    state = full(pod("h", "high"))
    state.touched = Touched()
    schedule(state)
    wanted = [EvictVictim("l1"), TellNominated("h", "a")]
    assert sorted(map(repr, decider.pending(state, state.touched))) == sorted(map(repr, wanted))
    assert set(wanted) <= set(decider.pending(state, None))
    assert all(decider.owed(state, effect) for effect in wanted)
    then(state, changed("l1", node="a", phase="Running", deleting=NOW))
    assert not decider.owed(state, EvictVictim("l1"))


def test_daemons_static_pods_protected_pods_and_other_schedulers_pods_are_no_victims():
    foreign = shape("foreign", priority=1, scheduler="default-scheduler")
    state = given(
        conf(), node("a", cpu=4_000), LOW, HIGH, foreign,
        pod("daemon", "low", "a", owner=replica_of("ds", "DaemonSet")), pod("static", "low", "a", static=True),
        pod("protected", "low", "a", annotations={"volcano.sh/preemptable": "false"}), pod("theirs", "foreign", "a"), pod("h", "high"),
    )  # fmt: skip
    assert victims(schedule(state)) == []


def test_capacity_that_is_being_freed_already_is_waited_for():
    state = full(changed("l0", node="a", phase="Running", deleting=NOW), pod("h", "high"))
    assert schedule(state) == [e.Nominated("h", "a", NOW + PATIENCE)]
    then(state, e.PodGone("l0"))
    assert schedule(state) == [e.PodPlaced("h", "a")]


def test_what_is_held_for_a_nominee_is_the_next_ones_when_it_ends_and_not_while_the_pod_is_placed_with_it():
    """The deadline of who still waits begins anew with what comes for it, and with nothing else."""
    first, second = e.Nominated("h0", "a", NOW + PATIENCE, victims=("l0",)), e.Nominated("h1", "a", NOW + 1, victims=("l1",))
    state = full(pod("h0", "high"), pod("h1", "high"), first, second, e.PodGone("l0"))
    assert [n.capacity.complete for n in state.nominations.values()] == [True, False]
    assert then(load(dump(state)), e.PodPlaced("h0", "a")).nominations["h1"] == state.nominations["h1"]
    assert then(state, e.NominationEnded("h0", "NoLongerFits")).nominations["h1"].capacity.complete


def test_two_preemptors_do_not_count_on_the_same_victim():
    state = full(pod("h0", "high"), pod("h1", "high"))
    assert sorted(victims(schedule(state))) == ["l0", "l1"]
    assert schedule(state) == []


def test_what_a_victim_leaves_beyond_the_request_is_not_given_away_before_it_is_gone():
    big = shape("big", cpu=2_000, priority=1)
    state = given(conf("preempt", "allocate"), node("a", cpu=2_000), big, HIGH, LOW, pod("b", "big", "a"), pod("h", "high"), pod("l", "low"))
    schedule(state)
    schedule(state)
    assert list(state.victims_of) == ["b"]
    assert not state.placed
    assert (state.table.used + state.table.reserved <= state.table.allocatable).all()


def test_the_node_with_the_least_important_victims_is_chosen():
    mid = shape("mid", priority=5)
    state = given(
        conf(), node("a", cpu=1_000), node("b", cpu=1_000), node("c", cpu=2_000), LOW, mid, HIGH,
        pod("m", "mid", "a"), pod("l", "low", "b"), pod("c0", "low", "c", started=NOW - 5), pod("c1", "low", "c", started=NOW - 9), pod("h", "high"),
    )  # fmt: skip
    events = schedule(state)
    # Of equal ones the youngest goes: c0 has started last before l, whose start nobody knows, was created.
    assert victims(events) == ["l"]
    state = given(
        conf(), node("a", cpu=1_000), node("b", cpu=1_000), LOW, HIGH,
        pod("old", "low", "a", started=NOW - 9), pod("young", "low", "b", started=NOW - 5), pod("h", "high"),
    )  # fmt: skip
    assert victims(schedule(state)) == ["young"]


def test_the_more_important_ones_are_spared():
    mid, half = shape("mid", priority=5, cpu=500), shape("half", priority=1, cpu=500)
    state = given(
        conf(), node("a", cpu=2_000), mid, half, HIGH,
        pod("m0", "mid", "a"), pod("m1", "mid", "a"), pod("x0", "half", "a"), pod("x1", "half", "a"), pod("h", "high"),
    )  # fmt: skip
    assert sorted(victims(schedule(state))) == ["x0", "x1"]


# -- gangs -------------------------------------------------------------------------------------------------------------


def gang(name: str, members: int, need: int, shape: str, where: str | None = None, **spec):
    group = e.PodGroupObserved("default", name, f"uid-{name}", NOW, "default", need, phase="Running", **spec)
    annotations = {"scheduling.k8s.io/group-name": name}
    return [group, *(pod(f"{name}-{i}", shape, where, annotations=annotations) for i in range(members))]


def lows(count: int, where: str = "a"):
    return [pod(f"l{i}", "low", where) for i in range(count)]


def test_a_gang_preempts_as_a_whole():
    state = given(conf(), node("a", cpu=4_000), LOW, HIGH, *lows(3), *gang("g", 3, 3, "high"))
    events = schedule(state)
    # One of them fits beside; capacity is held for it, too.
    assert sorted(victims(events)) == ["l1", "l2"]
    assert [event.pod for event in of(events, e.Nominated)] == ["g-0", "g-1", "g-2"]


def test_a_gang_of_pods_below_zero_takes_nothing_from_what_is_above_them_and_comes_after_it():
    below, above = shape("below", priority=-10), shape("above", priority=-5)
    assert schedule(given(conf(), node("a", cpu=1_000), below, above, pod("runs", "above", "a"), *gang("g", 1, 1, "below")))[0].reasons == {"Insufficient cpu": 1}
    state = given(conf(), node("a", cpu=1_000), below, above, *gang("g", 1, 1, "below"), pod("p", "above"))
    assert [event.pod for event in of(schedule(state), e.PodPlaced)] == ["p"]


def test_a_gang_that_cannot_be_complete_preempts_nobody():
    state = given(conf(), node("a", cpu=2_000), LOW, HIGH, *lows(2), *gang("g", 3, 3, "high"))
    assert victims(schedule(state)) == []


def test_a_victim_that_a_gang_gives_up_again_is_one_that_its_budget_still_lets_go():
    """The budget allows one. The gang needs two of them, and has none; whoever comes after it needs one."""
    budget = e.BudgetObserved("default", "b", "uid-b", LabelSelector({"app": "x"}), 1)
    there = [pod(f"l{i}", "low", "a", labels={"app": "x"}) for i in range(2)]
    state = given(conf(), node("a", cpu=2_000), LOW, HIGH, shape("later", priority=9), budget, *there, gang("g", 2, 2, "high"), pod("h", "later"))
    assert [(event.pod, event.victims) for event in of(schedule(state), e.Nominated)] == [("h", ("l1",))]


def test_a_gang_takes_only_what_makes_it_ready():
    state = given(conf(), node("a", cpu=4_000), LOW, HIGH, *lows(4), *gang("g", 4, 2, "high"))
    assert len(victims(schedule(state))) == 2


def test_what_is_held_for_a_gang_is_used_together():
    state = given(conf(), node("a", cpu=2_000), LOW, HIGH, *lows(2), *gang("g", 2, 2, "high"))
    schedule(state)
    then(state, changed("l0", node="a", phase="Running", deleting=NOW), e.PodGone("l0"))
    assert schedule(state) == []
    then(state, changed("l1", node="a", phase="Running", deleting=NOW), e.PodGone("l1"))
    assert schedule(state) == [e.PodPlaced("g-0", "a"), e.PodPlaced("g-1", "a")]


def test_when_one_victim_is_refused_the_whole_gang_looks_elsewhere():
    state = given(conf(), node("a", cpu=2_000), LOW, HIGH, *lows(2), *gang("g", 2, 2, "high"))
    schedule(state)
    run(state, decider, c.RefusePreemption(NOW, "l1", "403 Forbidden"))
    assert not state.nominations
    assert not state.victims_of


def test_a_victim_of_a_gang_leaves_it_complete_where_the_plugin_gang_votes():
    tiers = (tuple(PluginConfig(n) for n in ("priority", "gang", "conformance")), (PluginConfig("predicates"),))
    state = given(conf(tiers=tiers), node("a", cpu=3_000), LOW, HIGH, *gang("low", 3, 2, "low", "a"), pod("h0", "high"), pod("h1", "high"))
    assert victims(schedule(state)) == ["low-2"]


def test_within_a_job_a_pod_takes_from_one_of_lower_priority():
    tiers = ((PluginConfig("priority"), PluginConfig("gang", {"enableJobStarving": False, "enablePreemptable": False})),)
    group, *members = gang("g", 2, 1, "low", "a")
    late = pod("boss", "high", annotations={"scheduling.k8s.io/group-name": "g"})
    state = given(conf(tiers=tiers), node("a", cpu=2_000), LOW, HIGH, group, *members, late)
    assert victims(schedule(state)) == ["g-1"]


def test_within_a_job_who_finds_nobody_does_not_keep_others_from_it():
    tiers = ((PluginConfig("priority"), PluginConfig("gang", {"enableJobStarving": False, "enablePreemptable": False})),)
    group, *members = gang("g", 2, 1, "low", "a")
    late = [pod(name, name, annotations={"scheduling.k8s.io/group-name": "g"}) for name in ("huge", "high")]
    state = given(conf(tiers=tiers), node("a", cpu=2_000), LOW, HIGH, shape("huge", cpu=64_000, priority=11), group, *members, *late)
    assert victims(schedule(state)) == ["g-1"]


@pytest.mark.parametrize("first", ["meek", "high"])
def test_a_pod_that_never_preempts_has_free_capacity_while_the_others_of_its_gang_take_theirs(first):
    group, *members = gang("g", 2, 2, "high")
    members[0] = replace(members[0], shape=first)
    members[1] = replace(members[1], shape="meek" if first == "high" else "high")
    meek = shape("meek", priority=10, preemption="Never")
    state = given(conf(), node("a", cpu=1_000), node("b", cpu=1_000), LOW, HIGH, meek, pod("l", "low", "a"), group, *members)
    assert victims(schedule(state)) == ["l"]
    then(state, e.PodGone("l"))
    assert {event.pod for event in of(schedule(state), e.PodPlaced)} == {"g-0", "g-1"}


# -- rules, devices, holds ---------------------------------------------------------------------------------------------


def test_devices_of_victims_are_named_for_the_preemptor():
    half, whole = shape("half", gpu=(1, 500), priority=1), shape("whole", gpu=(1, 1000), priority=10)
    state = given(
        conf(), node("a", gpus=2), half, whole,
        pod("x", "half", "a", devices=(DeviceShare(0, 500),)), pod("y", "half", "a", devices=(DeviceShare(1, 500),), started=NOW - 1), pod("w", "whole"),
    )  # fmt: skip
    events = schedule(state)
    assert victims(events) == ["x"]
    assert of(events, e.Nominated)[0].devices == (DeviceShare(0, 1000),)
    then(state, changed("x", node="a", phase="Running", deleting=NOW, devices=(DeviceShare(0, 500),)), e.PodGone("x"))
    assert schedule(state) == [e.PodPlaced("w", "a", (DeviceShare(0, 1000),))]


def test_a_device_that_is_being_freed_already_is_waited_for():
    low, high = shape("one", gpu=(1, 1000), priority=1), shape("whole", gpu=(1, 1000), priority=10)
    there = [pod(f"x{i}", "one", "a", devices=(DeviceShare(i, 1000),)) for i in range(2)]
    ends = changed("x1", node="a", phase="Running", deleting=NOW, devices=(DeviceShare(1, 1000),))
    state = given(conf(), node("a", gpus=2), low, high, *there, ends, pod("w", "whole"))
    assert schedule(state) == [e.Nominated("w", "a", NOW + PATIENCE, (DeviceShare(1, 1000),))]


def test_a_port_is_freed_by_preemption_and_waited_for():
    port = (HostPort(80, "TCP", ""),)
    state = given(
        conf(), node("a"), shape("lo", priority=1, host_ports=port), shape("hi", priority=10, host_ports=port),
        pod("l", "lo", "a"), pod("other", "lo", "a", uid="other"), pod("h", "hi"),
    )  # fmt: skip
    assert sorted(victims(schedule(state))) == ["l", "other"]
    then(state, changed("l", node="a", phase="Running", deleting=NOW), e.PodGone("l"))
    assert schedule(state) == []
    then(state, changed("other", node="a", phase="Running", deleting=NOW), e.PodGone("other"))
    assert schedule(state) == [e.PodPlaced("h", "a")]


def test_a_hold_of_lower_priority_without_an_owner_is_given_up_and_waits_again():
    state = given(conf(), node("a", cpu=1_000), LOW, HIGH, reservation("r", ("t", 1, "low"), owners=(owner(app="x"),)))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert state.phases["r"].phase == "Available"
    then(state, pod("h", "high"))
    assert schedule(state) == [e.HoldReleased("r", "t-0", "Preempted"), e.Nominated("h", "a", NOW + PATIENCE)]
    assert state.phases["r"].phase == "Pending"
    assert e.PodPlaced("h", "a") in schedule(state)
    assert state.phases["r"].phase == "Pending"


def test_a_hold_that_a_gang_would_have_had_is_there_for_the_next_one_where_the_gang_cannot_be_complete():
    """Two more would go for the gang, and it needs four."""
    there = reservation("r", ("t", 1, "low"), owners=(owner(app="x"),)), pod("l", "low", "a"), pod("never", "high", "a")
    state = given(conf(), node("a", cpu=3_000), LOW, HIGH, shape("huge", cpu=2_000, priority=9), *there)
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert state.phases["r"].phase == "Available"
    then(state, gang("g", 4, 4, "high"), pod("h", "huge"))
    said = schedule(state)
    assert of(said, e.HoldReleased) == [e.HoldReleased("r", "t-0", "Preempted")]
    assert [(event.pod, event.victims) for event in of(said, e.Nominated)] == [("h", ("l",))]


def test_a_hold_of_equal_priority_stays():
    state = given(conf(), node("a", cpu=1_000), HIGH, reservation("r", ("t", 1, "high"), owners=(owner(app="x"),)))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    then(state, pod("h", "high"))
    assert of(schedule(state), e.HoldReleased) == []


def test_a_decision_leaves_no_trace_and_is_the_same_again():
    state = full(pod("h", "high"))
    before = state.table.free.copy()
    first = when(state, decider, c.Schedule(NOW))
    assert (state.table.free == before).all()
    assert when(state, decider, c.Schedule(NOW)) == first


def test_whoever_stands_in_the_way_of_a_rule_goes_although_there_is_capacity():
    apart = (PodTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    state = given(
        conf(), node("a", labels={"kubernetes.io/hostname": "a"}), LOW, shape("apart", priority=10, pod_anti_affinity=apart),
        pod("bystander", "low", "a"), pod("x", "low", "a", labels={"app": "x"}), pod("h", "apart", labels={"app": "x"}),
    )  # fmt: skip
    assert victims(schedule(state)) == ["x"]
    then(state, changed("x", node="a", phase="Running", deleting=NOW))
    assert schedule(state) == []  # it is still there
    then(state, e.PodGone("x"))
    assert schedule(state) == [e.PodPlaced("h", "a")]


def test_nobody_goes_where_a_rule_would_keep_the_pod_off_all_the_same():
    apart = (PodTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    state = given(
        conf(), node("a", cpu=2_000, labels={"kubernetes.io/hostname": "a"}), LOW, shape("apart", priority=10, pod_anti_affinity=apart),
        pod("low", "low", "a"), pod("x", "apart", "a", labels={"app": "x"}), pod("h", "apart", labels={"app": "x"}),
    )  # fmt: skip
    assert victims(schedule(state)) == []


def test_a_node_that_is_reserved_for_a_starving_job_is_refused():
    state = full(shape("starving", priority=20, cpu=2_000, preemption="Never"), pod("s", "starving"), pod("h", "high"))
    then(state, [e.TaskReserved("s", "a")])
    assert victims(schedule(state)) == []


def test_a_node_that_the_pod_may_not_run_on_is_not_freed():
    state = given(conf(), node("a", cpu=1_000, unschedulable=True), LOW, HIGH, pod("l", "low", "a"), pod("h", "high"))
    assert victims(schedule(state)) == []


def test_a_nomination_whose_node_is_cordoned_meanwhile_is_given_up():
    state = full(pod("h", "high"))
    schedule(state)
    then(state, changed("l1", node="a", phase="Running", deleting=NOW), node("a", cpu=2_000, unschedulable=True), e.PodGone("l1"))
    assert schedule(state)[0] == e.NominationEnded("h", "NoLongerFits")


def test_a_pod_that_is_being_migrated_is_no_victim():
    state = full(pod("h", "high"))
    state.victims["l1"] = "m"  # as a plan does
    assert victims(schedule(state)) == ["l0"]


def test_the_session_is_due_again_when_a_victim_may_be_tried_again():
    state = full(pod("h", "high"))
    schedule(state)
    late = NOW + PATIENCE
    schedule(state, late)
    assert victims(schedule(state, late)) == ["l0"]
    run(state, decider, c.RefusePreemption(late, "l0", "403"))
    assert victims(schedule(state, late)) == []
    again = late + 600_000
    assert decider.deadline(state) == again
    assert victims(schedule(state, again)) == ["l1"]


def test_a_decision_about_what_has_vanished_meanwhile_evicts_nobody():
    state = full(pod("h", "high"))
    decided = when(state, decider, c.Schedule(NOW))
    then(state, e.PodGone("h"))
    then(state, decided)
    assert not state.victims_of
    assert not state.nominations


def test_nobody_counts_on_a_place_beside_a_nominated_pod_that_the_two_could_not_share():
    apart = (PodTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    labels = {"app": "x"}
    state = given(
        conf(), node("a", labels={"kubernetes.io/hostname": "a"}), shape("x1", priority=1, pod_anti_affinity=apart),
        shape("x5", priority=5, pod_anti_affinity=apart), shape("x9", priority=9, pod_anti_affinity=apart),
        pod("old", "x1", "a", labels=labels), pod("new", "x9", labels=labels),
    )  # fmt: skip
    assert victims(schedule(state)) == ["old"]
    then(state, pod("late", "x5", labels=labels))
    assert [event for event in schedule(state) if not isinstance(event, e.Unfit)] == []
    then(state, changed("old", node="a", phase="Running", deleting=NOW), e.PodGone("old"))
    assert schedule(state) == [e.PodPlaced("new", "a")]


def test_within_a_queue_that_is_full_somebody_of_it_goes_although_nodes_have_capacity():
    """Volcano: preemption is for what `allocate` refuses, the queue's limit included."""
    queue = e.QueueObserved("default", "q", NOW, capability={"cpu": 2_000})
    tiers = (tuple(map(PluginConfig, ("priority", "conformance"))), (PluginConfig("predicates"), PluginConfig("capacity")))
    state = given(conf("allocate", "preempt", tiers=tiers), queue, node("a"), node("b"), LOW, HIGH, *lows(2), pod("h", "high"))
    assert victims(schedule(state)) == ["l1"]
    assert schedule(state) == []  # its limit is reached until the victim goes
    then(state, changed("l1", node="a", phase="Running", deleting=NOW))
    assert schedule(state) == [e.PodPlaced("h", "a")]


# -- grace periods that are longer than anybody's patience (RULES G-14) ------------------------------------------------


def play(state, until: int, events: dict, step: int = 5_000) -> tuple[dict, dict]:
    """When each pod was placed and evicted, in seconds, where victims go at once but `slow`, who takes his time. `events` are
    facts by second."""
    placed, evicted = {}, {}
    for at in range(0, until + 1, step):
        now = NOW + at
        if at // 1000 in events:
            then(state, *events[at // 1000], time=now)
        for _ in range(20):
            command = decider.due(state, now)
            if command is None or not (decided := run(state, decider, command)):
                break
            for event in decided:
                if isinstance(event, e.Preempted):
                    evicted[event.pod] = at // 1000
                    slow = event.pod.startswith("slow")
                    then(state, changed(event.pod, node="a", phase="Running", deleting=now) if slow else e.PodGone(event.pod), time=now)
                elif isinstance(event, e.PodPlaced):
                    placed[event.pod] = at // 1000
                    then(state, changed(event.pod, node=event.node, phase="Running", ready=True), time=now)
    return placed, evicted


def beside_a_slow_one(*more) -> object:
    state = given(conf(), node("a", cpu=2_000), LOW, shape("high", cpu=2_000, priority=10), pod("slow", "low", "a"), pod("l0", "low", "a"))
    return then(state, *[pod(f"w{i}", "low") for i in range(5)], pod("boss", "high"), *more)


def test_a_victim_that_takes_ten_minutes_to_end_is_waited_for_and_nobody_else_goes_meanwhile():
    placed, evicted = play(beside_a_slow_one(), 700_000, {600: [e.PodGone("slow")]})
    assert evicted == {"slow": 0, "l0": 0}
    assert placed == {"boss": 600}


def test_a_session_is_not_due_again_and_again_while_a_victim_ends():
    state = beside_a_slow_one()
    play(state, 0, {})
    late = NOW + 2 * PATIENCE
    schedule(state, late)  # says once more why the others wait
    assert schedule(state, late) == []
    assert decider.due(state, late) is None
    assert decider.deadline(state) is None


def test_who_waits_for_a_slow_victim_goes_where_there_is_capacity_meanwhile():
    placed, evicted = play(beside_a_slow_one(), 700_000, {300: [node("b", cpu=2_000)], 600: [e.PodGone("slow")]})
    assert placed["boss"] == 300
    assert evicted == {"slow": 0, "l0": 0}


def test_a_victim_that_a_budget_refuses_is_not_waited_for_beside_one_that_ends_slowly():
    state = beside_a_slow_one()
    schedule(state)
    then(state, changed("slow", node="a", phase="Running", deleting=NOW))
    assert schedule(state, NOW + PATIENCE)[:2] == [e.PreemptionEnded("l0", "Deadline"), e.NominationEnded("boss", "Deadline")]


def test_the_deadline_of_what_is_held_begins_when_the_last_of_it_has_come():
    state = beside_a_slow_one()
    schedule(state)
    gone = NOW + 60_000
    then(state, e.PodGone("l0"), time=gone)
    assert state.nominations["boss"].deadline == gone + PATIENCE


def test_a_gang_waits_for_the_slowest_of_its_victims():
    state = given(conf(), e.Synced("podgroups.scheduling.volcano.sh", "1"), node("a", cpu=2_000), node("b", cpu=2_000))
    then(state, LOW, shape("high", cpu=2_000, priority=10), pod("slow", "low", "a"), pod("quick", "low", "b"))
    then(state, pod_group("g", need=2), member("g0", "g", "high"), member("g1", "g", "high"))
    placed, evicted = play(state, 700_000, {600: [e.PodGone("slow")]})
    assert evicted == {"slow": 0, "quick": 0}
    assert placed == {"g0": 600, "g1": 600}


def test_a_victim_that_a_restored_api_shows_on_no_node_stops_no_session():
    """The API was put back to a time when the victim was not bound: its uid is the same, its node is not there any more."""
    state = full(shape("big", cpu=2_000, priority=10), pod("h", "big"))
    schedule(state)
    assert set(state.victims_of) == {"l0", "l1"}
    then(state, changed("l1", phase="Pending"))
    schedule(state, NOW + 1_000)
    assert list(state.nominations) == ["h"]
    schedule(state, NOW + 10_000_000)
    assert not state.nominations
