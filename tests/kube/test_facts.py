"""Changes become facts: once, in order, and only when something changed."""

import json

import pytest
from kube.siblings import NAMES, pod

from restow.contracts import events as e
from restow.domain.fold import apply
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import facts, wire
from restow.kube.describe import pod_fact
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.objects import OBJECTS
from restow.kube.reflector import Bookmark, Delete, Replace, Restart, Upsert

NAMED = {
    "pod_group": d.POD_GROUPS.name,
    "queue": d.QUEUES.name,
    "priority_class": d.PRIORITY_CLASSES.name,
    "namespace": d.NAMESPACES.name,
    "claim": d.CLAIMS.name,
    "volume": d.VOLUMES.name,
    "storage_class": d.STORAGE_CLASSES.name,
    "csi_node": d.CSI_NODES.name,
    "numa": d.NUMA.name,
    "budget": d.BUDGETS.name,
    "quota": d.QUOTAS.name,
}


class Fold:
    """A minimal fold, written apart from the domain's: what was told last is what is known."""

    def __init__(self):
        self.shapes, self.nodes, self.pods, self.workloads, self.reservations = set(), {}, {}, {}, {}
        self.others, self.troubles = {}, {}

    def shape(self, shape):
        return shape in self.shapes

    def ours(self, scheduler):
        return scheduler == "restow"

    def node(self, name):
        return self.nodes.get(name)

    def pod(self, uid):
        return self.pods.get(uid)

    def trouble(self, uid):
        return self.troubles.get(uid)

    def workload(self, uid):
        return self.workloads.get(uid)

    def reservation(self, uid):
        return self.reservations.get(uid)

    def fact(self, collection, key):
        return self.others.get((collection, key))

    def keys(self, collection):
        if collection in OBJECTS:
            return [key for name, key in self.others if name == collection]
        return {
            d.NODES.name: self.nodes,
            d.PODS.name: self.pods,
            d.REPLICASETS.name: self.workloads,
            d.VOLCANO_RESERVATIONS.name: self.reservations,
        }[collection]

    def other(self, event):
        """Objects that are one fact: `pod_group_observed` is kept, `pod_group_gone` takes it out again."""
        name, end = NAMED[event.__struct_config__.tag.removeprefix("cluster.").rpartition("_")[0]], type(event).__name__
        key = event.node if hasattr(event, "node") else "/".join(filter(None, (getattr(event, "namespace", ""), event.name)))
        if end.endswith("Gone"):
            del self.others[name, key]
        else:
            self.others[name, key] = event

    def commit(self, batch: Batch) -> list:
        """Folds a batch; the names of its events."""
        for event in batch.events():
            match event:
                case e.ShapeDeclared(shape):
                    assert shape not in self.shapes
                    self.shapes.add(shape)
                case e.PodObserved(uid):
                    assert event.shape in self.shapes
                    moving = {name: getattr(event, name) for name in e.PodChanged.__struct_fields__}
                    self.pods[uid] = event, e.PodChanged(**moving)
                case e.PodChanged(uid):
                    self.pods[uid] = self.pods[uid][0], event
                case e.PodTroubled(uid):
                    self.troubles[uid] = event
                case e.PodGone(uid):
                    del self.pods[uid]
                    self.troubles.pop(uid, None)
                case e.NodeObserved(name):
                    self.nodes[name] = event
                case e.NodeGone(name):
                    del self.nodes[name]
                case e.WorkloadObserved(uid):
                    self.workloads[uid] = event
                case e.WorkloadGone(uid):
                    del self.workloads[uid]
                case e.ReservationObserved(uid):
                    assert event.spec is None or {t.shape for t in event.spec.tasks} <= self.shapes
                    self.reservations[uid] = event
                case e.ReservationGone(uid):
                    del self.reservations[uid]
                case e.Synced():
                    pass
                case _:
                    self.other(event)
        return [event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events()]


STARTED = pod_fact(pod("deployment"))[2].started


def say(fold: Fold, collection: d.Collection, *changes) -> list:
    batch = Batch(fold)
    for change in changes:
        batch.add(collection, change)
    return fold.commit(batch)


def moved(name="deployment", i=0, **status) -> wire.Pod:
    made = pod(name, i)
    for field, value in status.items():
        setattr(made.status, field, value)
    return made


def a_node(name="a", uid="1", cpu="4") -> wire.Node:
    return wire.Node(wire.Meta(name=name, uid=uid), status=wire.NodeStatus(allocatable={"cpu": cpu}))


# -- pods ----------------------------------------------------------------------------------------------------------------


def test_a_new_pod_is_observed_after_its_shape():
    assert say(Fold(), d.PODS, Upsert(pod("deployment"))) == ["shape_declared", "pod_observed"]


def test_siblings_in_one_batch_declare_their_shape_once():
    names = say(Fold(), d.PODS, *(Upsert(pod("deployment", i)) for i in range(3)))
    assert names == ["shape_declared", "pod_observed", "pod_observed", "pod_observed"]


def test_a_shape_that_the_log_has_is_not_declared_again():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment", 0)))
    assert say(fold, d.PODS, Upsert(pod("deployment", 1))) == ["pod_observed"]


def test_a_pod_that_is_delivered_again_says_nothing():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    assert say(fold, d.PODS, Upsert(pod("deployment")), Upsert(pod("deployment"))) == []


def test_what_no_rule_reads_says_nothing():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    same = pod("deployment")
    same.metadata.resource_version = "5000"
    same.metadata.annotations["someone.else/annotation"] = "x"
    assert say(fold, d.PODS, Upsert(same)) == []


def test_a_pod_that_moved_on_says_only_its_moving_part():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    batch = Batch(fold)
    batch.add(d.PODS, Upsert(moved(phase="Failed", reason="Evicted", conditions=[])))
    (event,) = batch.events()
    uid = pod("deployment").metadata.uid
    assert event == e.PodChanged(uid, "node-000", "Failed", False, 0, "Evicted", started=STARTED)


def test_a_pod_whose_description_changed_is_observed_in_full():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    labelled = pod("deployment")
    labelled.metadata.labels["new"] = "label"
    assert say(fold, d.PODS, Upsert(labelled)) == ["pod_observed"]


def test_changes_within_one_batch_build_on_each_other():
    failed = moved(phase="Failed", conditions=[])
    changes = [Upsert(pod("deployment")), Upsert(failed), Upsert(failed), Delete(failed.metadata.uid, failed)]
    fold = Fold()
    assert say(fold, d.PODS, *changes) == ["shape_declared", "pod_observed", "pod_changed", "pod_gone"]
    assert fold.pods == {}


def test_the_latest_moving_part_counts_not_the_first():
    fold = Fold()
    say(fold, d.PODS, Upsert(moved(phase="Pending")), Upsert(moved(phase="Running")))
    assert say(fold, d.PODS, Upsert(moved(phase="Running"))) == []
    assert say(fold, d.PODS, Upsert(moved(phase="Pending"))) == ["pod_changed"]


def test_an_unknown_pod_that_goes_says_nothing():
    assert say(Fold(), d.PODS, Delete("nobody", pod("deployment"))) == []


def test_a_completed_list_tells_who_is_gone():
    fold = Fold()
    say(fold, d.PODS, *(Upsert(pod("deployment", i)) for i in range(3)))
    kept = pod("deployment", 1).metadata.uid
    batch = Batch(fold)
    batch.add(d.PODS, Replace(frozenset({kept}), "44"))
    assert fold.commit(batch) == ["pod_gone", "pod_gone", "synced"]
    assert list(fold.pods) == [kept]
    assert batch.events()[-1] == e.Synced("pods", "44")


def test_a_list_in_the_batch_that_observed_the_pods():
    changes = [Upsert(pod("deployment", 0)), Upsert(pod("deployment", 1))]
    names = say(Fold(), d.PODS, *changes, Replace(frozenset({pod("deployment", 1).metadata.uid}), "1"))
    assert names == ["shape_declared", "pod_observed", "pod_observed", "pod_gone", "synced"]


def test_who_has_gone_before_a_list_is_told_before_who_has_come_in_their_place():
    fold = Fold()
    say(fold, d.PODS, *(Upsert(pod("deployment", i)) for i in range(2)))
    kept, new = pod("deployment", 1).metadata.uid, pod("deployment", 2).metadata.uid
    batch = Batch(fold)
    for change in (Upsert(pod("deployment", 1)), Upsert(pod("deployment", 2)), Replace(frozenset({kept, new}), "44")):
        batch.add(d.PODS, change)
    assert len(batch) == 2
    assert fold.commit(batch) == ["pod_gone", "pod_observed", "synced"], "no node has both for a moment"
    assert list(fold.pods) == [kept, new]


def test_who_has_ended_before_a_list_is_told_before_who_has_come_in_their_place():
    fold, ended, new = Fold(), moved(phase="Failed", conditions=[]), pod("deployment", 1)
    say(fold, d.PODS, Upsert(pod("deployment")))
    for listed, told in ((False, ["pod_observed", "pod_changed"]), (True, ["pod_changed", "pod_observed"])):
        batch = Batch(fold)
        for change in (Upsert(new), Upsert(ended)):
            batch.add(d.PODS, change, listed=listed)
        assert [event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events()] == told


def test_who_has_changed_since_and_is_gone_by_the_list_is_told_in_the_order_in_which_it_was_seen():
    fold = Fold()
    say(fold, d.PODS, Upsert(moved(phase="Pending")))
    assert say(fold, d.PODS, Upsert(moved(phase="Running")), Replace(frozenset(), "44")) == ["pod_changed", "pod_gone", "synced"]
    assert fold.pods == {}


def test_a_pod_that_cannot_be_decoded_is_kept_as_it_was_and_reported():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    batch = Batch(fold)
    batch.add(d.PODS, Upsert(d.Undecodable("Pod", "n", "p", pod("deployment").metadata.uid, "why")))
    assert batch.events() == ()
    assert [(u.name, u.kind) for u in batch.undecodable] == [("p", "Pod")]


def test_what_becomes_of_a_pod_is_a_fact_also_after_somebody_has_given_it_an_annotation_that_cannot_be_read():
    fold = Fold()
    say(fold, d.PODS, Upsert(pod("deployment")))
    broken = pod("deployment")
    broken.metadata.annotations = {"scheduling.koordinator.sh/device-allocated": "{"}
    assert say(fold, d.PODS, Upsert(broken)) == ["shape_declared", "pod_observed"]
    ended = pod("deployment")
    ended.metadata.annotations, ended.status.phase = broken.metadata.annotations, "Succeeded"
    batch = Batch(fold)
    batch.add(d.PODS, Upsert(ended))
    assert [event.phase for event in batch.events()] == ["Succeeded"]
    assert not batch.undecodable


# -- the others ------------------------------------------------------------------------------------------------------------


def test_a_node_is_told_when_it_changes():
    fold = Fold()
    changes = [Upsert(a_node()), Upsert(a_node()), Upsert(a_node(cpu="8")), Delete("a", a_node())]
    assert say(fold, d.NODES, *changes) == ["node_observed", "node_observed", "node_gone"]


def test_a_node_that_cannot_be_read_any_more_takes_no_pods_and_is_else_as_it_was_until_it_can_be_read():
    fold = Fold()
    say(fold, d.NODES, Upsert(a_node()))
    for broken in (a_node(cpu="lots"), d.Undecodable("Node", "", "a", "1", "Expected `str`, got `int`")):
        assert say(fold, d.NODES, Upsert(broken)) == ["node_observed"]
        known = fold.node("a")
        assert known.unschedulable
        assert known.unreadable
        assert known.allocatable == {"cpu": 4_000}
        assert say(fold, d.NODES, Upsert(broken)) == []
    assert say(fold, d.NODES, Upsert(a_node())) == ["node_observed"]
    assert not fold.node("a").unschedulable
    assert not fold.node("a").unreadable


def test_another_machine_that_cannot_be_read_ends_the_first_of_the_name_and_one_that_was_never_read_is_no_node():
    fold = Fold()
    assert say(fold, d.NODES, Upsert(a_node(cpu="lots"))) == []
    assert say(fold, d.NODES, Upsert(a_node()), Upsert(a_node(uid="2", cpu="lots"))) == ["node_observed", "node_gone"]


def test_an_error_that_nobody_foresaw_says_where_it_was(monkeypatch):
    def broken(node):
        raise RuntimeError("who would have thought")

    monkeypatch.setattr(facts, "node_fact", broken)
    batch = facts.Batch(Fold())
    batch.add(d.NODES, Upsert(a_node()))
    (left,) = batch.undecodable
    assert left.trace.startswith("Traceback")
    assert ", in broken" in left.trace


def test_another_machine_under_the_same_name_ends_the_first():
    assert say(Fold(), d.NODES, Upsert(a_node()), Upsert(a_node(uid="2"))) == [
        "node_observed", "node_gone", "node_observed",
    ]  # fmt: skip


def test_a_workload_is_told_while_it_is_controlled():
    meta = wire.Meta(name="w", uid="w", owner_references=[wire.Owner("Deployment", "d", "d", "apps/v1", True)])
    orphan = wire.ReplicaSet(wire.Meta(name="w", uid="w"))
    assert say(Fold(), d.REPLICASETS, Upsert(wire.ReplicaSet(meta)), Upsert(wire.ReplicaSet(meta)), Upsert(orphan)) == [
        "workload_observed", "workload_observed",
    ]  # fmt: skip


@pytest.mark.parametrize("ttl", ["600s", "nonsense"])
def test_a_reservation_is_told_once_whether_it_can_be_read_or_not(ttl):
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    body = {"metadata": {"name": "r", "uid": "r", "namespace": "n"}, "spec": {"ttl": ttl, "template": template}}
    got = d.VOLCANO_RESERVATIONS.object(json.dumps(body).encode())
    names = say(Fold(), d.VOLCANO_RESERVATIONS, Upsert(got), Upsert(got), Delete("r", got))
    expected = ["reservation_observed", "reservation_gone"]
    assert names == (["shape_declared", *expected] if ttl == "600s" else expected)


def test_a_bookmark_only_says_how_far_it_is_and_a_restart_nothing():
    assert say(Fold(), d.NODES, Bookmark("7"), Bookmark("9"), Restart("Expired", 0)) == ["synced"]


def test_how_far_a_stream_is_comes_last():
    batch = Batch(Fold())
    batch.synced(d.NODES, "12")
    batch.add(d.NODES, Upsert(a_node()))
    assert [type(event) for event in batch.events()] == [e.NodeObserved, e.Synced]


def test_what_the_domain_has_folded_is_not_told_again():
    def told() -> list[str]:
        batch = Batch(StateKnown(state))
        for name in NAMES:
            for i in range(3):
                batch.add(d.PODS, Upsert(pod(name, i)))
        batch.add(d.NODES, Upsert(a_node("node-000")))
        meta = wire.Meta(name="w", uid="w", owner_references=[wire.Owner("Deployment", "d", "d", "apps/v1", True)])
        batch.add(d.REPLICASETS, Upsert(wire.ReplicaSet(meta)))
        for collection in (d.VOLCANO_RESERVATIONS, d.KOORDINATOR_RESERVATIONS):
            template = {"spec": {"containers": [{"name": "c"}]}}
            body = {"metadata": {"name": "r", "uid": f"r-{collection.name}"}, "spec": {"template": template}}
            batch.add(collection, Upsert(collection.object(json.dumps(body).encode())))
        apply(state, batch.events())
        return [event.__struct_config__.tag for event in batch.events()]

    state = ClusterState()
    assert len(told()) == 10 + 30 + 1 + 1 + 1 + 2
    assert told() == []
    gone = Batch(StateKnown(state))
    for collection in d.COLLECTIONS:
        gone.add(collection, Replace(frozenset(), "9"))
    apply(state, gone.events())
    assert len(gone) == 30 + 1 + 1 + 2
    assert all(not list(StateKnown(state).keys(collection.name)) for collection in d.COLLECTIONS)


def test_a_collection_that_is_not_watched_is_refused():
    with pytest.raises(ValueError, match="'secrets' is not watched; allowed: nodes, pods, "):
        StateKnown(ClusterState()).keys("secrets")
