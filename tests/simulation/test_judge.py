"""The judge sees every promise break, and says nothing while all are kept: a judge that never objects proves nothing."""

import json
import subprocess
import sys

import pytest

from simulation.history import CONF, RESERVATION, SHAPE, History, instant
from simulation.judging.promises import PROMISES

GANG = {"scheduling.k8s.io/group-name": "g"}
LARGE = {**SHAPE, "requests": {"cpu": 3000, "pods": 1}}
CRITICAL = {**SHAPE, "priority": 2_000_000_000}
DO_NOT = {"karpenter.sh/do-not-disrupt": "true"}


def a_move(h, **pod):
    h.run("p", "a", **pod)
    h.plan("p")
    h.hold()
    h.move_away("p")
    h.land("q", "p")


def group(h, least=2):
    meta = {"name": "g", "namespace": "d", "uid": "group-g"}
    h.write("podgroups.scheduling.volcano.sh", {"metadata": meta, "spec": {"minMember": least}})
    h.say("cluster.pod_group_observed", namespace="d", name="g", uid="group-g", created=1, min_member=least)


def gang_of(h, count, least=2, node="a"):
    group(h, least)
    for number in range(count):
        h.pod(f"g{number}", annotations=GANG)
    h.commit("session", *({"type": "session.pod_placed", "pod": f"g{n}", "node": node} for n in range(count)))
    for number in range(count):
        h.bind(f"g{number}", node)


def queue(h, name, **spec):
    h.write("queues.scheduling.volcano.sh", {"metadata": {"name": name, "uid": f"queue-{name}"}, "spec": spec})
    capability = {what: int(amount) * 1000 for what, amount in spec.get("capability", {}).items()}
    h.say("cluster.queue_observed", name=name, uid=f"queue-{name}", created=1, weight=spec.get("weight", 1), capability=capability)


def preemption(h, victim="v", by="p", node="a", evict=True):
    h.commit(
        "session",
        {"type": "session.preempted", "pod": victim, "by": by, "action": "preempt"},
        {"type": "session.nominated", "pod": by, "node": node, "deadline": 9, "victims": [victim]},
    )
    if evict:
        h.evict(victim, "scheduler_session-0.1")
        h.gone(victim)
        h.place(by, node)
        h.bind(by, node)


def reservation(h, ttl, created=0.0, phase="Available"):
    meta = {"name": "r", "namespace": "d", "uid": "r", "creationTimestamp": instant(created)}
    h.write(RESERVATION, {"metadata": meta, "spec": {"ttl": ttl}, "status": {"state": {"phase": phase}}})


def lease(h, renewed, holder="x"):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": instant(renewed)}
    h.write("leases.coordination.k8s.io", {"metadata": {"name": "session", "namespace": "s", "uid": "l"}, "spec": spec})


def places_for(h, cpu="1", ttl="3600s"):
    """A Reservation of two places, accepted."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}
    meta = {"name": "r", "namespace": "d", "uid": "r", "creationTimestamp": instant(h.at)}
    h.write(RESERVATION, {"metadata": meta, "spec": {"ttl": ttl, "tasks": [{"name": "t", "replicas": 2, "template": template}]}, "status": {"state": {"phase": "Pending"}}})
    asks = {"match_policy": "Owner", "allocate_once": True, "owners": [], "tasks": [{"name": "t", "shape": "s", "replicas": 2}]}
    h.say("cluster.reservation_observed", reservation="r", api="volcano", namespace="d", name="r", created=1, spec=asks)
    h.say("reservation.accepted", reservation="r", generation=1, min_available=1)


def reclaim(h, actions="enqueue, allocate, reclaim", **victim):
    """Queue `b` has everything, and a pod of queue `a` waits, which has nothing."""
    h.say("session.configured", text=json.dumps({**CONF, "actions": actions}), digest="")
    queue(h, "a")
    queue(h, "b")
    for number in range(8):
        h.run(f"v{number}", "ab"[number % 2], annotations={"scheduling.volcano.sh/queue-name": "b"} | victim.pop("annotations", {}), **victim)
    h.pod("p", annotations={"scheduling.volcano.sh/queue-name": "a"})


def emptied(h, *ids):
    """A plan that empties node `a` wholly, of one pod for each id; each place is held."""
    for id in "mn":
        h.run(f"p{id}", "a")
    moves = [{"migration": id, "pod": f"p{id}", "namespace": "d", "name": f"p{id}", "source": "a", "target": "b"} for id in "mn"]
    h.say("migration.planned", plan="p", plugin="x", whole=True, moves=moves)
    for id in ids:
        h.hold(id=id)


# -- histories that keep every promise --------------------------------------------------------------------------------


def whole_gang(h):
    gang_of(h, 3)


def a_member_above_the_minimum_moves(h):
    gang_of(h, 3)
    h.plan("g0")
    h.hold()
    h.move_away("g0")
    h.pod("g3", annotations=GANG)
    h.say("session.handed_over", reservation="r-m", slot="hold-0", pod="g3", node="b")
    h.gone("g0")
    h.bind("g3", "b")
    h.say("migration.landed", migration="m", pod="g3", node="b")
    h.collect()


def a_member_goes_while_another_comes(h):
    gang_of(h, 2)
    h.pod("g2", annotations=GANG)
    h.place("g2", "b")
    h.shape("more", {**SHAPE, "priority": 10})
    h.pod("p", shape="more", priority=10)
    preemption(h, "g0", evict=False)
    h.bind("g2", "b")
    h.evict("g0", "scheduler_session-0.1")
    h.gone("g0")
    h.place("p", "a")
    h.bind("p", "a")


def a_preemption(h):
    h.shape("more", {**SHAPE, "priority": 10})
    h.run("v", "a")
    h.pod("p", shape="more", priority=10)
    preemption(h)


def who_it_goes_for_leaves(h, later=1.0):
    """The eviction was on its way then."""
    h.shape("more", {**SHAPE, "priority": 10})
    h.run("v", "a")
    h.pod("p", shape="more", priority=10)
    preemption(h, evict=False)
    h.gone("p")
    h.at += later
    h.evict("v", "scheduler_session-0.1")


def expired_and_taken_away(h, phase="Failed", calm=True, retention=60.0):
    reservation(h, "10s")
    h.say("gc.expired", reservation="r")
    if phase:
        h.change(RESERVATION, "r", status__state__phase=phase)
    if calm:
        h.judge.calm(h.at)
    h.at += retention
    h.drop(RESERVATION, "r", "garbage_collector-0.1")


def taken_away_unsaid_while_there_were_faults(h):
    expired_and_taken_away(h, "Available", calm=False)


def taken_away_unsaid_soon_after_calm(h):
    expired_and_taken_away(h, "Available", retention=20.0)


def a_refused_move(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("migration.evicting", migration="m", deadline=9)
    h.say("migration.aborting", migration="m", reason="Budget")
    h.say("migration.failed", migration="m", reason="Budget")
    h.say("session.hold_released", reservation="r-m", slot="hold-0", reason="Deleted")
    h.collect()


def one_who_does_not_fit(h):
    h.run("p", "a", cpu="3", shape="large")
    h.run("q", "b", cpu="3", shape="large")
    h.pod("r", cpu="3", shape="large")


def a_full_queue_waits(h):
    queue(h, "q", capability={"cpu": "1"})
    notes = {"scheduling.volcano.sh/queue-name": "q"}
    h.run("p", "a", annotations=notes)
    h.pod("x", annotations=notes)


def a_gang_that_is_not_all_there(h):
    group(h, 3)
    h.pod("g0", annotations=GANG)
    h.pod("g1", annotations=GANG)


def a_user_ends_one(h):
    h.run("p", "a", annotations=DO_NOT)
    h.evict("p", "user")
    h.gone("p")


def a_target_that_was_lost_in_between(h):
    """The fact came after the decision had been made."""
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.log_node("b", unschedulable=True)
    h.say("migration.evicting", migration="m", deadline=9, read=h.seq - 1)
    h.evict("p")
    h.say("migration.evicted", migration="m", deadline=9)
    h.say("migration.failed", migration="m", reason="HoldLost")
    h.say("session.hold_released", reservation="r-m", slot="hold-0", reason="Deleted")
    h.gone("p")
    h.collect()


def an_equal_goes(h):
    h.run("v", "a")
    h.pod("p")
    preemption(h)


def onto_a_node_that_had_just_gone(h):
    """The fold makes it void, and the session looks for another one."""
    h.pod("p", cpu="9")
    h.drop("nodes", "node-a")
    h.say("cluster.node_gone", name="a")
    h.say("session.pod_placed", read=h.seq - 1, pod="p", node="a")
    h.say("session.pod_released", pod="p", reason="NodeLost")


def all_replicas_move_where_that_is_asked_for(h):
    h.say("migration.configured", text='{"maxUnavailable": 2}', digest="")
    for number in range(2):
        h.run(f"p{number}", "a", owner="ReplicaSet")
        h.plan(f"p{number}", id=f"m{number}")
        h.hold(id=f"m{number}")
        h.move_away(f"p{number}", id=f"m{number}")
    for number in range(2):
        h.land(f"q{number}", f"p{number}", id=f"m{number}")


def goes(h, number, second):
    """Its eviction is decided then."""
    h.run(f"p{number}", "a", owner="ReplicaSet")
    h.plan(f"p{number}", id=f"m{number}")
    h.hold(id=f"m{number}")
    h.say("migration.evicting", migration=f"m{number}", deadline=100_000 + second * 1_000)


BUDGET = '{"maxUnavailable": 0, "budgets": [{"name": "few", "evictions": 2, "within": 10000, "per": "namespace"}]}'


def more_are_evicted_than_a_budget_allows(h):
    h.say("migration.configured", text=BUDGET, digest="")
    for number, second in enumerate((0, 4, 9)):
        goes(h, number, second)


def a_reservation_that_does_not_fit(h):
    places_for(h, cpu="5")


def a_reservation_whose_time_is_short(h):
    """It is over, and says so."""
    places_for(h, ttl="10s")
    h.say("gc.expired", reservation="r")
    h.change(RESERVATION, "r", status__state__phase="Failed")


def a_queue_waits_where_nothing_is_reclaimed(h):
    reclaim(h, actions="enqueue, allocate")


def a_queue_waits_for_pods_that_must_stay(h):
    h.say("cluster.budget_observed", namespace="d", name="b", uid="b", selector={"labels": {"app": "v"}}, allowed=0)
    reclaim(h, labels={"app": "v"})


def a_node_is_emptied_wholly(h):
    emptied(h, "m", "n")
    for id in "mn":
        h.move_away(f"p{id}", id)
        h.land(f"q{id}", f"p{id}", id)


def what_was_acknowledged_is_truncated_later(h):
    h.judge.acknowledged(h.at, 3, "c-3")
    h.judge.acknowledged(h.at, h.seq, "c-last")
    h.say("gc.truncated", upto=4)
    h.judge.kept(h.at, 5, {h.seq - 1: "c-last", h.seq: "c"})


def a_lease_by_a_wrong_clock(h):
    h.at += 150
    lease(h, h.at - 3_600)
    h.judge.calm(h.at)
    for _ in range(20):
        h.at += 10
        h.change("leases.coordination.k8s.io", "l", spec__renewTime=instant(h.at - 3_600))


def held_and_handed_over_in_one_commit_that_came_too_late(h):
    """Seed 3025: its Reservation was collected in between, so that both are void."""
    asks = {"match_policy": "Owner", "allocate_once": True, "owners": [{"selector": {"labels": {"app": "x"}}}], "tasks": [{"name": "t", "shape": "s", "replicas": 1}]}
    h.say("cluster.reservation_observed", reservation="r", api="volcano", namespace="d", name="r", created=1, spec=asks)
    h.say("reservation.accepted", reservation="r", generation=1, min_available=1)
    h.pod("p", labels={"app": "x"}, cpu="5")
    h.say("gc.collected", reservation="r", reason="Orphaned")
    held = {"type": "session.hold_placed", "reservation": "r", "slot": "t-0", "node": "a", "shape": "s"}
    h.commit("session", held, {"type": "session.handed_over", "reservation": "r", "slot": "t-0", "pod": "p", "node": "a"}, read=h.seq - 1)


KEPT = [
    held_and_handed_over_in_one_commit_that_came_too_late,
    a_reservation_that_does_not_fit, a_reservation_whose_time_is_short, a_queue_waits_where_nothing_is_reclaimed, a_queue_waits_for_pods_that_must_stay,
    a_node_is_emptied_wholly, what_was_acknowledged_is_truncated_later,
    who_it_goes_for_leaves, expired_and_taken_away, taken_away_unsaid_while_there_were_faults, taken_away_unsaid_soon_after_calm,
    an_equal_goes, onto_a_node_that_had_just_gone, all_replicas_move_where_that_is_asked_for,
    a_move, whole_gang, a_member_above_the_minimum_moves, a_member_goes_while_another_comes, a_preemption, a_refused_move, one_who_does_not_fit, a_full_queue_waits,
    a_gang_that_is_not_all_there, a_user_ends_one, a_target_that_was_lost_in_between,
]  # fmt: skip


def started(**more):
    h = History(away="10%", **more)
    h.shape("large", LARGE)
    h.shape("critical", CRITICAL)
    return h


@pytest.mark.parametrize("story", KEPT, ids=lambda story: story.__name__)
def test_while_every_promise_is_kept_nothing_is_said(story):
    h = started()
    story(h)
    assert h.rest() == []


# -- histories that break one ------------------------------------------------------------------------------------------


def lost_sequence(h):
    h.commit("session", seq=h.seq + 2)


def clock_back(h):
    h.commit("session", at=0.5)


def decided_on_itself(h):
    h.commit("session", read=h.seq + 1)


def deposed_writer(h):
    h.commit("session", {"type": "session.led", "epoch": 2, "holder": "y"}, source="/restow/sim/scheduler_session/y")
    h.commit("session")


def epoch_again(h):
    h.commit("session", {"type": "session.led", "epoch": 1, "holder": "y"}, source="/restow/sim/scheduler_session/y")


def anothers_event(h):
    h.commit("session", {"type": "gc.truncated", "upto": 1})


def node_promised_twice(h):
    h.run("p", "a", shape="large", cpu="3")
    h.pod("q", shape="large", cpu="3")
    h.place("q", "a")


def node_over_committed_by_binds(h):
    """The log believes that each asks for one core, the API knows better."""
    h.run("p", "a", cpu="3")
    h.run("q", "a", cpu="3")


def device_given_twice(h):
    """The log calls it 400 of 1000 each."""
    notes = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"60"}}]}'}
    h.run("p", "a", annotations=notes)
    h.run("q", "a", annotations=notes)


def bound_again(h):
    h.run("p", "a")
    h.change("pods", "p", "scheduler_session-0.1", spec__nodeName="b")


def placed_again(h):
    h.pod("p")
    h.place("p", "a")
    h.place("p", "b")


def onto_a_cordoned_node(h):
    h.log_node("a", unschedulable=True)
    h.pod("p")
    h.place("p", "a")


def onto_a_tainted_node(h):
    h.log_node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    h.pod("p")
    h.place("p", "a")


def onto_an_unready_node(h):
    h.log_node("a", ready=False)
    h.pod("p")
    h.place("p", "a")


def more_devices_than_asked(h):
    h.pod("p")
    h.place("p", "a", devices=[{"index": 0, "milli": 1000}])


def held_twice(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("session.hold_placed", reservation="r-m", slot="hold-0", node="b", shape="s")


def taken_by_a_stranger(h):
    asks = {"match_policy": "Owner", "owners": [{"selector": {"labels": {"app": "x"}}}], "tasks": [{"name": "t", "shape": "s", "replicas": 1}]}
    h.say("cluster.reservation_observed", reservation="r", api="volcano", namespace="d", name="r", created=1, spec=asks)
    h.say("reservation.accepted", reservation="r", generation=1, min_available=1)
    h.say("session.hold_placed", reservation="r", slot="t-0", node="a", shape="s")
    h.pod("p", labels={"app": "y"})
    h.say("session.handed_over", reservation="r", slot="t-0", pod="p", node="a")


def hold_of_an_ended_migration(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("migration.failed", migration="m", reason="PodGone")


def landed_before_it_was_evicted(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("migration.landed", migration="m", pod="p", node="b")


def a_plugin_fails(h):
    h.say("migration.planned", plan="x", plugin="PodLifeTime", moves=[], before={}, after={}, fault=True, reason="could not be made by a fault of Restow's own, which is worth a report: OverflowError")


def a_plan_fails(h):
    h.say("migration.search_begun", plan="x", trigger="interval")
    h.say("migration.search_ended", plan="x", reason="Failed", message="KeyError: 'n7'", failed=True)


def evicted_without_a_hold(h):
    h.run("p", "a")
    h.plan("p")
    h.hold(place=False)
    h.say("migration.held", migration="m")
    h.move_away("p")


def evicted_after_the_hold_was_released(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("session.hold_released", reservation="r-m", slot="hold-0", reason="Preempted")
    h.say("migration.evicting", migration="m", deadline=9)


def evicted_towards_a_cordoned_node(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.log_node("b", unschedulable=True)
    h.say("migration.evicting", migration="m", deadline=9)


def evicted_for_a_place_too_small(h):
    h.run("p", "a", shape="large", cpu="3")
    h.plan("p")
    h.hold()
    h.move_away("p")


def evicted_long_after_the_target_was_lost(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("migration.evicting", migration="m", deadline=9)
    h.log_node("b", unschedulable=True)
    h.at += 100
    h.evict("p")


def critical_pod_moves(h):
    a_move(h, shape="critical", priority=2_000_000_000)


def pod_that_says_no_moves(h):
    a_move(h, annotations=DO_NOT)


def daemon_moves(h):
    a_move(h, owner="DaemonSet")


def preempted_by_one_below(h):
    h.shape("more", {**SHAPE, "priority": 10})
    h.run("v", "a", shape="more", priority=10)
    h.pod("p")
    preemption(h)


def preempted_by_one_below_because_of_shares(h):
    """The configuration of seed 303: `priority` in the first tier names nobody, `drf` of the second decides by shares."""
    tiers = [[{"name": n} for n in names] for names in (("priority", "gang", "conformance"), ("drf", "predicates", "proportion", "nodeorder"))]
    h.say("session.configured", text=json.dumps({**CONF, "actions": "allocate, preempt", "tiers": tiers}), digest="")
    preempted_by_one_below(h)


def gang_member_at_the_minimum_moves(h):
    gang_of(h, 2)
    h.plan("g0")
    h.hold()
    h.move_away("g0")


def gang_member_at_the_minimum_is_preempted(h):
    gang_of(h, 2)
    h.shape("more", {**SHAPE, "priority": 10})
    h.pod("p", shape="more", priority=10)
    preemption(h, "g0", evict=False)


def half_a_gang_starts(h):
    group(h, 2)
    h.pod("g0", annotations=GANG)
    h.pod("g1", annotations=GANG)
    h.place("g0", "a")


def victim_of_an_empty_budget(h):
    h.shape("more", {**SHAPE, "priority": 10})
    h.say("cluster.budget_observed", namespace="d", name="b", uid="b", selector={"labels": {"app": "v"}}, allowed=0)
    h.run("v", "a", labels={"app": "v"})
    h.pod("p", shape="more", priority=10)
    preemption(h, evict=False)


def evicted_for_nobody(h):
    h.run("v", "a")
    h.evict("v", "scheduler_session-0.1")


def evicted_long_after_who_it_was_for_had_left(h):
    who_it_goes_for_leaves(h, later=100.0)


def onto_a_reserved_node(h):
    h.pod("p")
    h.say("session.task_reserved", pod="p", node="a")
    h.pod("x")
    h.place("x", "a")


def taken_away_without_having_said_that_it_is_over(h):
    expired_and_taken_away(h, "Available")


def beyond_the_capability(h):
    queue(h, "q", capability={"cpu": "1"})
    notes = {"scheduling.volcano.sh/queue-name": "q"}
    h.run("p", "a", annotations=notes)
    h.run("x", "a", annotations=notes)


def bound_where_nothing_was_decided(h):
    h.pod("p")
    h.place("p", "a")
    h.bind("p", "b")


def evicted_after_the_way_back(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("migration.evicting", migration="m", deadline=9)
    h.say("migration.aborting", migration="m", reason="Budget")
    h.say("migration.failed", migration="m", reason="Budget")
    h.evict("p")


def deleted_without_an_eviction(h):
    h.run("p", "a")
    h.drop("pods", "p", "descheduler-0.1")


def rejected_again_and_again(h):
    """Each a moment after the one before: a controller makes the next one at once."""
    for number in range(61):
        h.pod(f"p{number}", owner="ReplicaSet", log=False)
        h.change("pods", f"p{number}", "kubelet", status__phase="Failed", status__reason="OutOfcpu")


def waits_beside_free_capacity(h):
    h.pod("p")


def gang_waits_beside_free_capacity(h):
    group(h, 2)
    h.pod("g0", annotations=GANG)
    h.pod("g1", annotations=GANG)


def placed_and_never_bound(h):
    h.pod("p")
    h.place("p", "a")


def queue_with_little_waits(h):
    queue(h, "q", weight=1)
    queue(h, "other", weight=3)
    h.pod("p", annotations={"scheduling.volcano.sh/queue-name": "q"})


def all_replicas_move_at_once(h):
    for number in range(2):
        h.run(f"p{number}", "a", owner="ReplicaSet")
    for number in range(2):
        h.plan(f"p{number}", id=f"m{number}")
        h.hold(id=f"m{number}")
        h.say("migration.evicting", migration=f"m{number}", deadline=9)


def migration_never_ends(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()


def reservation_left_behind(h):
    a_move(h)
    meta = {"name": "restow-m", "namespace": "d", "uid": "again", "creationTimestamp": instant(0), "labels": {"restow.dev/migration": "m"}}
    h.write(RESERVATION, {"metadata": meta, "spec": {"ttl": "0s"}})


def landed_before_it_was_ready(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.move_away("p")
    h.pod("q")
    h.say("session.handed_over", reservation="r-m", slot="hold-0", pod="q", node="b")
    h.bind("q", "b", ready=False)
    h.say("migration.landed", migration="m", pod="q", node="b")


def hold_of_a_move_under_way_is_collected(h):
    h.run("p", "a")
    h.plan("p")
    h.hold()
    h.say("gc.collected", reservation="r-m", reason="Orphaned")


def what_holds_is_collected(h):
    asks = {"match_policy": "Owner", "owners": [{"selector": {"labels": {"app": "x"}}}], "tasks": [{"name": "t", "shape": "s", "replicas": 1}]}
    h.say("cluster.reservation_observed", reservation="r", api="volcano", namespace="d", name="r", created=1, spec=asks)
    h.say("reservation.accepted", reservation="r", generation=1, min_available=1)
    h.say("session.hold_placed", reservation="r", slot="t-0", node="a", shape="s")
    h.say("gc.collected", reservation="r", reason="Retention")


def lease_of_the_dead(h):
    lease(h, h.at)


def time_is_over(h):
    reservation(h, "10s")


def reservation_waits_beside_free_capacity(h):
    places_for(h)


def queue_with_less_than_it_deserves_waits_for_one_with_more(h):
    reclaim(h)


def evicted_before_the_whole_node_has_places(h):
    emptied(h, "m")
    h.say("migration.evicting", migration="m", deadline=9)


def evicted_although_another_stays(h):
    emptied(h, "m", "n")
    h.say("migration.failed", migration="n", reason="HoldLost")
    h.say("migration.evicting", migration="m", deadline=9)


def asked_and_evicted(h, asked=True, **answer):
    h.run("p", "a", owner="ReplicaSet", annotations={"restow.dev/before-move": "annotation", **answer})
    h.plan("p")
    h.hold()
    if asked:
        h.say("migration.consent_asked", migration="m", deadline=9, way="annotation")
    h.move_away("p")
    h.land("q", "p")


def evicted_without_a_question(h):
    asked_and_evicted(h, asked=False)


def evicted_without_a_word(h):
    asked_and_evicted(h)


def evicted_on_the_word_for_another_move(h):
    asked_and_evicted(h, **{"restow.dev/move-acknowledged": "m-0"})


def still_asked_when_its_move_is_over(h):
    h.run("p", "a", annotations={"restow.dev/move-requested": "m"})
    h.plan("p")
    h.say("migration.failed", migration="m", reason="NoWord")


def test_who_agrees_or_whose_silence_is_assent_may_go():
    for answer in ({"restow.dev/move-acknowledged": "m"}, {"restow.dev/on-silence": "evict"}):
        h = started()
        asked_and_evicted(h, **answer)
        assert "word-first" not in h.promises(), h.judge.broken


def acknowledged_and_lost(h):
    h.judge.acknowledged(h.at, h.seq, "c-1")
    h.judge.kept(h.at, 1, {seq: f"other-{seq}" for seq in range(1, h.seq + 1)})


def truncated_by_nobody(h):
    h.judge.acknowledged(h.at, 2, "c-2")
    h.judge.kept(h.at, 5, {})


BROKEN = [
    ("fits-held", reservation_waits_beside_free_capacity), ("deserved", queue_with_less_than_it_deserves_waits_for_one_with_more),
    ("whole-nodes", evicted_before_the_whole_node_has_places), ("whole-nodes", evicted_although_another_stays),
    ("word-first", evicted_without_a_question), ("word-first", evicted_without_a_word), ("word-first", evicted_on_the_word_for_another_move),
    ("word-first", still_asked_when_its_move_is_over),
    ("durable", acknowledged_and_lost), ("durable", truncated_by_nobody),
    ("log-whole", lost_sequence), ("log-whole", clock_back), ("decided-on-the-past", decided_on_itself), ("one-writer", deposed_writer),
    ("one-writer", epoch_again), ("own-family", anothers_event), ("overcommitted", node_promised_twice),
    ("overcommitted", node_over_committed_by_binds), ("overcommitted", device_given_twice), ("placed-once", bound_again), ("placed-once", placed_again),
    ("open-node", onto_a_cordoned_node), ("open-node", onto_a_tainted_node), ("open-node", onto_an_unready_node),
    ("right-devices", more_devices_than_asked), ("hold-lifecycle", held_twice), ("hold-owner", taken_by_a_stranger),
    ("plans-are-made", a_plugin_fails), ("plans-are-made", a_plan_fails),
    ("hold-left", hold_of_an_ended_migration), ("saga-order", landed_before_it_was_evicted),
    ("saga-order", landed_before_it_was_ready), ("ended-only", hold_of_a_move_under_way_is_collected), ("ended-only", what_holds_is_collected), ("place-first", evicted_without_a_hold),
    ("place-first", evicted_after_the_hold_was_released), ("place-first", evicted_towards_a_cordoned_node),
    ("place-first", evicted_for_a_place_too_small), ("place-first", evicted_long_after_the_target_was_lost), ("protected", critical_pod_moves),
    ("protected", pod_that_says_no_moves), ("protected", daemon_moves), ("protected", preempted_by_one_below), ("protected", preempted_by_one_below_because_of_shares),
    ("gang-minimum", gang_member_at_the_minimum_moves), ("gang-minimum", gang_member_at_the_minimum_is_preempted),
    ("gang-minimum", half_a_gang_starts), ("budget", victim_of_an_empty_budget), ("for-somebody", evicted_for_nobody),
    ("for-somebody", evicted_long_after_who_it_was_for_had_left),
    ("reserved-node", onto_a_reserved_node), ("capability", beyond_the_capability), ("decided-effect", bound_where_nothing_was_decided),
    ("rejected", rejected_again_and_again), ("decided-effect", evicted_after_the_way_back), ("decided-effect", deleted_without_an_eviction), ("fits-runs", waits_beside_free_capacity),
    ("fits-runs", gang_waits_beside_free_capacity), ("fits-runs", placed_and_never_bound), ("deserved", queue_with_little_waits),
    ("one-at-a-time", all_replicas_move_at_once),
    ("eviction-budget", more_are_evicted_than_a_budget_allows),
    ("migration-ends", migration_never_ends), ("nothing-left", reservation_left_behind), ("nothing-left", lease_of_the_dead), ("expired", time_is_over),
    ("expired", taken_away_without_having_said_that_it_is_over),
]  # fmt: skip


@pytest.mark.parametrize(("promise", "story"), BROKEN, ids=lambda what: getattr(what, "__name__", what))
def test_a_promise_that_breaks_is_said(promise, story):
    h = started()
    story(h)
    h.rest()
    assert promise in h.promises(), h.judge.broken


def test_every_promise_was_seen_to_break():
    elsewhere = {"judge", "beside", "fails-open"}  # `test_judge_beside.py`
    assert {promise for promise, _ in BROKEN} == set(PROMISES) - elsewhere


def test_what_is_broken_says_when_and_who():
    h = started()
    beyond_the_capability(h)
    assert str(h.judge.broken[0]).endswith("capability: queue q may use 1000 of cpu, and uses 2000")
    assert h.judge.broken[0].seq == h.seq - 1


def test_a_judge_that_cannot_read_something_says_so_and_goes_on():
    h = started()
    h.commit("cluster", {"type": "cluster.pod_changed"})
    assert h.promises() == {"judge"}
    h.pod("p")
    assert len(h.judge.broken) == 1


def test_liveness_is_asked_for_only_after_its_time():
    h = started()
    waits_beside_free_capacity(h)
    assert h.rest(after=20.0) == []
    assert {b.promise for b in h.rest()} == {"fits-runs"}


def test_who_waits_is_judged_where_the_configuration_says_no_actions():
    h = started(conf={"schedulerNames": ["restow"]})
    waits_beside_free_capacity(h)
    assert {b.promise for b in h.rest()} == {"fits-runs"}


def test_who_waits_is_judged_beside_switches_that_are_off():
    off = {"name": "predicates", "arguments": {"predicate.ProportionalEnable": False}}
    h = started(conf={**CONF, "tiers": [[off]]})
    waits_beside_free_capacity(h)
    assert {b.promise for b in h.rest()} == {"fits-runs"}


def test_a_pod_that_has_finished_does_not_stay_on_a_node_that_is_to_be_emptied():
    h = started()
    emptied(h, "m", "n")
    h.say("cluster.pod_changed", pod="pn", node="a", phase="Succeeded")
    h.say("migration.failed", migration="n", reason="PodFinished")
    h.say("migration.evicting", migration="m", deadline=9)
    assert "whole-nodes" not in h.promises()


def test_a_lease_is_judged_by_when_it_was_written_not_by_its_holders_clock():
    h = started()
    a_lease_by_a_wrong_clock(h)
    h.judge.rest(h.at)
    assert h.judge.broken == []


@pytest.mark.parametrize(("size", "away", "broken"), [(9, 1, False), (19, 2, True), (20, 2, False)])
def test_a_tenth_of_a_workload_is_rounded_down_but_one_at_least(size, away, broken):
    h = started()
    for number in range(size):
        h.pod(f"p{number}", owner="ReplicaSet")
    h.say("migration.configured", text='{"maxUnavailable": "10%"}', digest="")
    for number in range(away):
        h.log_node("a", cpu=20)
        h.place(f"p{number}", "a")
        h.bind(f"p{number}", "a")
        h.plan(f"p{number}", id=f"m{number}")
        h.hold(id=f"m{number}")
        h.say("migration.evicting", migration=f"m{number}", deadline=9)
    assert ("one-at-a-time" in h.promises()) is broken


def test_of_a_budget_those_count_that_go_within_its_time_and_were_not_given_up():
    h = started()
    h.say("migration.configured", text=BUDGET, digest="")
    for number, second in enumerate((0, 1, 11)):
        goes(h, number, second)
    h.say("migration.aborting", migration="m2", reason="Refused")
    h.say("migration.failed", migration="m2", reason="Refused")
    for number, second in ((3, 12), (4, 13)):
        goes(h, number, second)
    assert "eviction-budget" not in h.promises()
    goes(h, 5, 20)
    assert "eviction-budget" in h.promises()


def test_a_gangs_own_class_says_how_important_its_pods_are():
    h = started()
    h.say("cluster.priority_class_observed", name="high", value=100)
    group(h, 1)
    h.say("cluster.pod_group_observed", namespace="d", name="g", uid="group-g", created=1, min_member=1, priority_class="high")
    h.run("v", "a", annotations=GANG)
    h.shape("more", {**SHAPE, "priority": 10})
    h.pod("p", shape="more", priority=10)
    preemption(h, evict=False)
    assert h.promises() == {"protected"}


def test_the_judge_knows_none_of_our_code():
    program = "import sys, simulation.judge; print([m for m in sys.modules if m.split('.')[0] == 'restow'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": "tests"})
    assert done.stdout.strip() == "[]"
