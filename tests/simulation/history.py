"""Histories made by hand, for tests of the judge: what a small cluster's log and API would have told it."""

import copy
import json

from simulation.judge import Judge, Limits

EPOCH = 1_767_225_600
SERVICE = {
    "cluster": "cluster_watcher", "session": "scheduler_session", "reservation": "reservation_cache",
    "migration": "descheduler", "gc": "garbage_collector",
}  # fmt: skip
CONF = {"actions": ["enqueue", "reserve", "allocate"], "schedulerNames": ["restow"], "tiers": [[{"name": "gang"}, {"name": "proportion"}]]}
SHAPE = {"requests": {"cpu": 1000, "pods": 1}, "scheduler": "restow"}
RESERVATION = "reservations.batch.volcano.sh"


def instant(at):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(EPOCH + at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class History:
    """Each step takes a second. Facts are told to the log in the moment in which the API has them."""

    def __init__(self, nodes=("a", "b"), cpu=4, gpus=2, conf=CONF, **limits):
        self.judge = Judge(limits=Limits(**limits))
        self.at, self.seq, self.objects = 0.0, 0, {}
        for family in SERVICE:
            self.commit(family, {"type": f"{family}.led", "epoch": 1, "holder": family})
        self.commit("session", {"type": "session.configured", "text": json.dumps(conf), "digest": ""})
        for node in nodes:
            self.node(node, cpu, gpus)
        self.shape("s", SHAPE)

    # -- the log -------------------------------------------------------------------------------------------------------

    def commit(self, family, *events, read=None, source=None, seq=None, at=None):
        self.at += 1
        self.seq = self.seq + 1 if seq is None else seq
        headers = {"ce-source": source or f"/restow/sim/{SERVICE[family]}/{SERVICE[family]}-0", "restow-read": str(self.seq - 1 if read is None else read)}
        self.judge.commit(self.at if at is None else at, self.seq, family, headers, {"decisions": [{"command": {}, "events": list(events)}]})

    def say(self, kind, read=None, **fields):
        self.commit(kind.partition(".")[0], {"type": kind, **fields}, read=read)

    def shape(self, name, spec):
        self.say("cluster.shape_declared", shape=name, spec=spec)

    # -- the API -------------------------------------------------------------------------------------------------------

    def write(self, resource, new, by="user"):
        uid = new["metadata"]["uid"]
        old = self.objects.get((resource, uid))
        self.objects[resource, uid] = new
        self.judge.wrote(self.at, "modified" if old else "created", resource, old, new, by)

    def drop(self, resource, uid, by="user"):
        old = self.objects.pop((resource, uid))
        self.judge.wrote(self.at, "deleted", resource, old, None, by)

    def change(self, resource, uid, by="user", **fields):
        """`spec__nodeName="a"`: at this path."""
        new = copy.deepcopy(self.objects[resource, uid])
        for path, value in fields.items():
            *above, last = path.split("__")
            at = new
            for step in above:
                at = at.setdefault(step, {})
            at[last] = value
        self.write(resource, new, by)

    # -- both ----------------------------------------------------------------------------------------------------------

    def node(self, name, cpu=4, gpus=2, *, log=True, **spec):
        status = {"allocatable": {"cpu": str(cpu), "pods": "9", "nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
        self.write("nodes", {"metadata": {"name": name, "uid": f"node-{name}"}, "spec": spec, "status": status})
        if log:
            self.log_node(name, cpu, gpus)

    def log_node(self, name, cpu=4, gpus=2, **more):
        allocatable = {"cpu": cpu * 1000, "pods": 9, "restow.dev/gpu-milli": gpus * 1000}
        self.say("cluster.node_observed", name=name, uid=f"node-{name}", allocatable=allocatable, devices=gpus, **more)

    def pod(self, uid, shape="s", cpu="1", *, log=True, annotations=None, labels=None, priority=0, owner=None, **spec):
        meta = {"name": uid, "uid": uid, "namespace": "d", "annotations": annotations or {}, "labels": labels or {}}
        if owner:
            meta["ownerReferences"] = [{"kind": owner, "controller": True, "name": "o", "uid": "o"}]
        spec = {"schedulerName": "restow", "priority": priority, "containers": [{"resources": {"requests": {"cpu": cpu}}}], **spec}
        self.write("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
        if log:
            owned = {"owner": {"kind": owner, "name": "o", "uid": "o"}} if owner else {}
            self.say("cluster.pod_observed", pod=uid, namespace="d", name=uid, shape=shape, created=1, annotations=annotations or {}, labels=labels or {}, **owned)

    def place(self, uid, node, **event):
        self.say("session.pod_placed", pod=uid, node=node, **event)

    def bind(self, uid, node, by="scheduler_session-0.1", ready=True):
        self.change("pods", uid, by, spec__nodeName=node)
        self.say("cluster.pod_changed", pod=uid, node=node, phase="Running", ready=ready, started=1)
        self.change("pods", uid, "kubelet", status__phase="Running")

    def run(self, uid, node, **more):
        self.pod(uid, **more)
        self.place(uid, node)
        self.bind(uid, node)

    def evict(self, uid, by="descheduler-0.1"):
        """The API takes it; its fact follows."""
        self.judge.evicted(self.at, self.objects["pods", uid], by)
        self.change("pods", uid, by, metadata__deletionTimestamp=instant(self.at))
        pod = self.objects["pods", uid]
        self.say("cluster.pod_changed", pod=uid, node=pod["spec"]["nodeName"], phase="Running", deleting=1)

    def gone(self, uid, by="kubelet"):
        self.drop("pods", uid, by)
        self.say("cluster.pod_gone", pod=uid)

    # -- a migration ---------------------------------------------------------------------------------------------------

    def plan(self, uid, source="a", target="b", id="m"):
        self.say("migration.planned", plan="p", plugin="x", moves=[{"migration": id, "pod": uid, "namespace": "d", "name": uid, "source": source, "target": target}])

    def hold(self, id="m", node="b", shape="s", *, place=True):
        self.say("migration.holding", migration=id, deadline=9)
        meta = {"name": f"restow-{id}", "namespace": "d", "uid": f"r-{id}", "creationTimestamp": instant(self.at), "labels": {"restow.dev/migration": id}}
        self.write(RESERVATION, {"metadata": meta, "spec": {"ttl": "0s"}}, "descheduler-0.1")
        asks = {"allocate_once": True, "match_policy": "Owner", "tasks": [{"name": "hold", "shape": shape, "replicas": 1}]}
        self.say("cluster.reservation_observed", reservation=f"r-{id}", api="volcano", namespace="d", name=f"restow-{id}", created=1, migration=id, spec=asks)
        self.say("reservation.accepted", reservation=f"r-{id}", generation=1, min_available=1)
        if place:
            self.say("session.hold_placed", reservation=f"r-{id}", slot="hold-0", node=node, shape=shape)
            self.say("migration.held", migration=id)

    def move_away(self, uid, id="m"):
        self.say("migration.evicting", migration=id, deadline=9)
        self.evict(uid)
        self.say("migration.evicted", migration=id, deadline=9)

    def land(self, uid, old, id="m", node="b"):
        self.pod(uid)
        self.say("session.handed_over", reservation=f"r-{id}", slot="hold-0", pod=uid, node=node)
        self.gone(old)
        self.bind(uid, node)
        self.say("migration.landed", migration=id, pod=uid, node=node)
        self.collect(id)

    def collect(self, id="m"):
        self.say("gc.collected", reservation=f"r-{id}", reason="Orphaned")
        self.drop(RESERVATION, f"r-{id}", "garbage_collector-0.1")
        self.say("cluster.reservation_gone", reservation=f"r-{id}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def rest(self, after=200.0):
        self.judge.calm(self.at)
        self.at += after
        self.judge.rest(self.at)
        return self.judge.broken

    def promises(self):
        return {broken.promise for broken in self.judge.broken}
