"""The judge sees faults of moves beside another scheduler, and says nothing of one that keeps every promise."""

import pytest

from simulation.history import SHAPE, History

THEIRS = {**SHAPE, "requests": {"cpu": 1000, "pods": 1}, "scheduler": "default-scheduler", "priority": 7}
SESSION, STOCK = "scheduler_session-0.1", "kube-scheduler"
NOTE = {"restow.dev/slot": "r-m/hold-0"}


class Move(History):
    """A pod `p` of the stock scheduler on node a, whose slot is to be on node b; step by step."""

    def __init__(self):
        super().__init__()
        self.shape("t", THEIRS)
        self.pod("p", shape="t", schedulerName="default-scheduler", priority=7)
        self.binds("p", "a")
        self.plan("p")

    def binds(self, uid, node, phase="Running"):
        """By the other scheduler."""
        self.change("pods", uid, STOCK, spec__nodeName=node)
        self.say("cluster.pod_changed", pod=uid, node=node, phase=phase, ready=True, started=1)
        self.change("pods", uid, "kubelet", status__phase=phase)

    def slot(self, shape="t"):
        self.hold(shape=shape, place=False)
        self.say("session.hold_placed", reservation="r-m", slot="hold-0", node="b", shape=shape)

    def placeholder(self, uid="h", cpu="1", priority=7, node="b", note=NOTE):
        meta = {"name": uid, "uid": uid, "namespace": "restow-holds", "annotations": note, "labels": {}}
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        spec = {"schedulerName": "default-scheduler", "priority": priority, "affinity": affinity, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
        self.write("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, SESSION)
        self.say("cluster.pod_observed", pod=uid, namespace="restow-holds", name=uid, shape="t", created=1, annotations=note, labels={})
        self.binds(uid, node)

    def move_away(self, uid, id="m"):
        """Its old node is kept."""
        self.guard(id)
        super().move_away(uid, id)

    def guard(self, id="m"):
        meta = {"name": "g", "uid": "g", "namespace": "restow-holds", "annotations": {"restow.dev/slot": f"guard/{id}"}, "labels": {}}
        spec = {"schedulerName": "default-scheduler", "priority": 7, "schedulingGates": [{"name": "restow.dev/hold"}], "containers": []}
        self.write("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, SESSION)
        self.nominate("g", "a")

    def ready(self):
        self.say("session.hold_ready", reservation="r-m", slot="hold-0")
        self.say("migration.held", migration="m")

    def lists(self, by="descheduler-0.1"):
        """Who is to be gated."""
        self.write("landings.restow.dev", {"metadata": {"name": "log", "uid": "log"}, "spec": {"open": {"c": "2026-01-01T00:00:00Z"}}}, by)

    def successor(self, uid="q", listed=True):
        if listed:
            self.lists()
        self.pod(uid, shape="t", log=False, schedulerName="default-scheduler", priority=7, schedulingGates=[{"name": "restow.dev/landing"}])
        self.say("cluster.pod_observed", pod=uid, namespace="d", name=uid, shape="t", created=1, gated=True, landing=True, annotations={}, labels={})

    def hands_over(self, uid="q"):
        self.say("session.handed_over", reservation="r-m", slot="hold-0", pod=uid, node="b")

    def nominate(self, uid="q", node="b"):
        self.change("pods", uid, SESSION, status__nominatedNodeName=node)

    def delete(self, uid="h"):
        self.drop("pods", uid, SESSION)
        self.say("cluster.pod_gone", pod=uid)

    def ungate(self, uid="q"):
        self.change("pods", uid, SESSION, spec__schedulingGates=[])

    def lands(self, uid="q", node="b", guard=True):
        if guard:
            self.drop("pods", "g", SESSION)
        self.binds(uid, node)
        self.gone("p")
        self.say("migration.landed", migration="m", pod=uid, node=node)
        self.collect()

    def until_held(self, **placeholder):
        self.slot()
        self.placeholder(**placeholder)
        self.ready()

    def until_handed_over(self):
        self.until_held()
        self.move_away("p")
        self.successor()
        self.hands_over()


def canaries(h, left=False):
    """They find out whether the scheduler honours nominations; nobody's slot is meant."""
    meta = {"name": "c", "uid": "c", "namespace": "restow-holds", "annotations": {}, "labels": {}}
    spec = {"schedulerName": "default-scheduler", "containers": [], "schedulingGates": [{"name": "restow.dev/hold"}]}
    h.write("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, SESSION)
    h.nominate("c", "a")
    if not left:
        h.drop("pods", "c", SESSION)


def test_canaries_are_nobodys_slot():
    h = Move()
    canaries(h)
    h.rest()
    assert h.promises() <= {"migration-ends"}


def test_a_slot_on_the_old_node_needs_no_placeholder_that_runs():
    """Its guard is never bound."""
    h = Move()
    h.until_held()
    h.move_away("p")
    h.say("migration.turning_back", migration="m", deadline=9, reason="TargetLost")
    asks = {"allocate_once": True, "match_policy": "Owner", "tasks": [{"name": "hold", "shape": "t", "replicas": 1}]}
    h.say("cluster.reservation_observed", reservation="r-m-back", api="volcano", namespace="d", name="restow-m-back", created=1, migration="m", spec=asks)
    h.say("reservation.accepted", reservation="r-m-back", generation=1, min_available=1)
    h.say("session.hold_placed", reservation="r-m-back", slot="hold-0", node="a", shape="t", waiting=True)
    h.say("session.hold_ready", reservation="r-m-back", slot="hold-0")
    assert "beside" not in h.promises()


def test_of_a_move_that_keeps_every_promise_nothing_is_said():
    h = Move()
    h.until_handed_over()
    h.nominate()
    h.delete()
    h.ungate()
    h.lands()
    assert h.rest() == []


def test_a_placeholder_and_its_slot_are_one():
    """Node b has four cores, and three of them are used: beside the slot there is no room for its placeholder."""
    h = Move()
    for number in range(3):
        h.run(f"o{number}", "b")
    h.until_held()
    assert h.judge.broken == []
    h.say("session.hold_released", reservation="r-m", slot="hold-0", reason="x")
    assert h.judge.log.used["b"]["cpu"] == 4000


def ready_without_a_placeholder(h):
    h.slot()
    h.ready()


def of_another_size(h):
    h.until_held(cpu="500m")


def of_another_priority(h):
    h.until_held(priority=6)


def on_another_node(h):
    h.slot()
    h.placeholder(node="a")


def for_no_slot(h):
    h.placeholder()


def ungated_before_the_nomination(h):
    h.until_handed_over()
    h.delete()
    h.ungate()


def ungated_beside_its_placeholder(h):
    h.until_handed_over()
    h.nominate()
    h.ungate()


def two_are_nominated(h):
    h.until_handed_over()
    h.successor("q2")
    h.nominate()
    h.nominate("q2")


def landed_elsewhere(h):
    h.until_handed_over()
    h.nominate()
    h.delete()
    h.ungate()
    h.binds("q", "a")


def evicted_unguarded(h):
    h.until_held()
    History.move_away(h, "p")


@pytest.mark.parametrize("fault", [
    evicted_unguarded, ready_without_a_placeholder, of_another_size, of_another_priority, on_another_node, for_no_slot, ungated_before_the_nomination,
    ungated_beside_its_placeholder, two_are_nominated, landed_elsewhere,
])  # fmt: skip
def test_faults_of_the_swap_are_seen(fault):
    h = Move()
    fault(h)
    assert "beside" in h.promises()


def placeholder_is_left(h):
    h.until_handed_over()
    h.nominate()
    h.ungate()
    h.lands()


def guard_is_left(h):
    h.until_held()
    h.move_away("p")
    h.successor()
    h.hands_over()
    h.nominate()
    h.delete()
    h.ungate()
    h.lands(guard=False)


def gate_is_left(h):
    h.successor("q2")


@pytest.mark.parametrize(("away", "by", "breaks"), [(190.0, "descheduler-0.1", False), (210.0, "descheduler-0.1", True), (10.0, "user", True)])
def test_whoever_is_gated_long_after_restow_was_last_heard_of_is_seen(away, by, breaks):
    h = Move()
    h.lists(by)
    h.at += away
    h.successor(listed=False)
    assert ("fails-open" in h.promises()) is breaks


def canary_is_left(h):
    canaries(h, left=True)


@pytest.mark.parametrize("fault", [placeholder_is_left, canary_is_left, guard_is_left, gate_is_left])
def test_what_is_left_is_seen_at_rest(fault):
    h = Move()
    fault(h)
    h.rest()
    assert "nothing-left" in h.promises()
