"""The judge of the API's objects, write by write: the books are its own, the decisions are those of the log."""

from collections import Counter

from simulation.judging.amounts import GPUS, WHOLE, amounts, gpus, requests, shares
from simulation.judging.beside import BesideJudge, is_own
from simulation.judging.victims import protection

OVER = ("Succeeded", "Failed")
SERVICES = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")
APIS = ("reservations.batch.volcano.sh", "reservations.scheduling.koordinator.sh")
UNENDED = ("Pending", "Available", "Waiting", "")
"""Phases of a Reservation that is not over."""
MINUTE, REJECTIONS = 60.0, 60
"""So many rejections of one workload in so many seconds are too many: of four pods at once some nine times."""
SESSION, DESCHEDULER = "scheduler_session", "descheduler"


def node_of(pod):
    return (pod or {}).get("spec", {}).get("nodeName") or ""


def uid_of(obj):
    return obj["metadata"]["uid"]


def named(obj):
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


def phase_of(reservation):
    """Of either API; empty where it has none."""
    status = reservation.get("status") or {}
    state = status.get("state")
    return (state or {}).get("phase", "") if isinstance(state, dict) else status.get("phase", "")


def occupies(pod):
    return bool(node_of(pod)) and (pod.get("status") or {}).get("phase") not in OVER


class ClusterJudge:
    """`log`: the judge of the log, whose decisions are compared with what is done."""

    def __init__(self, tell, log, limits):
        self.tell, self.log, self.limits = tell, log, limits
        self.objects = {}
        """resource → uid → object."""
        self._bound = {}
        """Node → uids of the pods that name it."""
        self.freed_at, self.asked_at = Counter(), {}
        """Node → when something on it last became free, or it changed; pod → when it last began to wait."""
        self.ending, self.evicted_pods = {}, {}
        """Pods whose end began by a write of ours → (when, who, name); pods whose eviction the API took → when."""
        self.foreign, self.shrunk = {}, {}
        """Nodes with pods that others bound, and nodes that have become smaller."""
        self.renewed_at = {}
        """Lease → when its holder last said that it is there."""
        self.made_at = {}
        """Pod → when it was created."""
        self.marked_at = {}
        """Pod → when its annotations were last changed."""
        self.beside = BesideJudge(tell, log, self)
        self.rejected_at = {}
        """Controller → when kubelets rejected its pods lately."""
        self.calm_at = None
        """When users and faults ended; None before."""

    def of(self, resource):
        return self.objects.setdefault(resource, {})

    def wrote(self, at, verb, resource, old, new, by):
        self.at = at
        resource = resource.removesuffix(".coordination.k8s.io")
        mine = by.startswith(SERVICES)
        if resource == "pods":
            self._bind(uid_of(new or old), None if verb == "deleted" else new)
        if verb == "deleted":
            gone = new or old
            self.of(resource).pop(uid_of(gone), None)
        else:
            self.of(resource)[uid_of(new)] = new
        if resource == "leases" and verb != "deleted" and ((old or {}).get("spec") or {}).get("renewTime") != (new.get("spec") or {}).get("renewTime"):
            self.renewed_at[uid_of(new)] = at
        if resource == "pods":
            self.pod_was_written(old, None if verb == "deleted" else new, by if mine else "")
        elif resource == "landings.restow.dev" and mine:
            self.beside.listed_at = at
        elif resource == "nodes":
            self.node_was_written(old, None if verb == "deleted" else new)
        elif resource in APIS and verb == "deleted" and mine:
            self.judge_said(new or old)

    # -- Reservations --------------------------------------------------------------------------------------------------

    def judge_said(self, reservation):
        """One that is taken away after its expiry had said that it is over: the retention is there for users to read it. Not while faults may
        keep anybody from writing."""
        expired = self.log.expired_at.get(uid_of(reservation))
        if expired is None or self.calm_at is None or self.at - max(expired, self.calm_at) < self.limits.said:
            return
        phase = phase_of(reservation)
        if phase in UNENDED:
            self.tell("expired", f"Reservation {named(reservation)} expired {self.at - expired:.0f} s ago and is taken away, and its phase is {phase or 'none'}")

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def node_was_written(self, old, new):
        name = (new or old)["metadata"]["name"]
        if old is None or new is None:
            self.freed_at[name] = self.at
            if new is None:
                self.shrunk[name] = self.at
            return
        before, after = ((obj.get("status") or {}).get("allocatable") or {} for obj in (old, new))
        if any(amounts(before)[what] > amounts(after)[what] for what in before):
            self.shrunk[name] = self.at
        closed = [(obj.get("spec") or {}, [c.get("status") for c in (obj.get("status") or {}).get("conditions") or ()], obj["metadata"].get("labels")) for obj in (old, new)]
        if before != after or closed[0] != closed[1]:
            self.freed_at[name] = self.at

    # -- pods ----------------------------------------------------------------------------------------------------------

    def pod_was_written(self, old, new, service):
        pod = new or old
        uid, before, after = uid_of(pod), node_of(old), node_of(new)
        self.beside.pod_was_written(old, new, service)
        self.judge_rejected(old, new)
        if old is not None and occupies(old) and (new is None or not occupies(new)):
            self.freed_at[before] = self.at
        if old is None:
            self.made_at[uid] = self.at
        if new is None:
            self.made_at.pop(uid, None)
            self.asked_at.pop(uid, None)
            self.ends(old, pod, service)
            return
        if before and after != before:
            self.tell("placed-once", f"pod {named(new)} was bound to {before}, and is bound to {after or 'nothing'} now")
        if after and not before:
            self.bound(new, service)
        if not after:
            gates = [bool((o or {}).get("spec", {}).get("schedulingGates")) for o in (old, new)]
            if old is None or gates[0] != gates[1] or (old["metadata"].get("labels") != new["metadata"].get("labels")):
                self.asked_at[uid] = self.at
        if old is not None and old["metadata"].get("annotations") != new["metadata"].get("annotations"):
            self.marked_at[uid] = self.at
        if new["metadata"].get("deletionTimestamp"):
            self.ends(old, new, service)

    def judge_rejected(self, old, new):
        status = (new or {}).get("status") or {}
        failed = status.get("phase") == "Failed" and ((old or {}).get("status") or {}).get("phase") != "Failed"
        if not failed or not status.get("reason") or status["reason"] == "Evicted" or new["spec"].get("schedulerName") not in self.log.ours:
            return
        owner = next((o["uid"] for o in new["metadata"].get("ownerReferences") or () if o.get("controller")), "")
        times = self.rejected_at[owner] = [at for at in self.rejected_at.get(owner, ()) if self.at - at < MINUTE] + [self.at]
        if owner and len(times) > REJECTIONS:
            self.tell("rejected", f"kubelets rejected {len(times)} pods like {named(new)} within {MINUTE:.0f} s, the last one for {status['reason']}")

    def ends(self, old, pod, service):
        """A pod's end began: if a service of ours did it, then by an eviction (told by `evicted`, before or after)."""
        if service and not is_own(pod) and not (old or {}).get("metadata", {}).get("deletionTimestamp"):
            self.ending.setdefault(uid_of(pod), (self.at, service, named(pod)))

    def bound(self, pod, service):
        uid, node = uid_of(pod), node_of(pod)
        if not service:
            self.foreign[node] = self.at
            return
        if not service.startswith(SESSION):
            self.tell("decided-effect", f"pod {named(pod)} is bound to {node} by {service}")
        elif node not in self.log.decided_for.get(uid, ()):
            decided = ", ".join(self.log.decided_for.get(uid, ())) or "nothing"
            self.tell("decided-effect", f"pod {named(pod)} is bound to {node}; the log has decided {decided}")
        self.judge_capacity(node, f"since {named(pod)} was bound")

    # -- capacity ----------------------------------------------------------------------------------------------------------

    def node(self, name):
        return next((n for n in self.of("nodes").values() if n["metadata"]["name"] == name), None)

    def _bind(self, uid, new):
        """`on` is asked at every binding: it does not go through all pods."""
        before, after = node_of(self.of("pods").get(uid)), node_of(new)
        if before != after:
            if before:
                del self._bound[before][uid]
            if after:
                self._bound.setdefault(after, {})[uid] = None

    def on(self, name):
        pods = self.of("pods")
        return [pod for uid in self._bound.get(name, ()) if occupies(pod := pods[uid])]

    def judge_capacity(self, name, since, always=False):
        """What is on the node fits into it. Not where facts that the log had not yet explain it: a node that became smaller, pods
        that others bound."""
        node = self.node(name)
        if node is None or self.overlooked(name):
            return
        capacity, used, devices = amounts((node.get("status") or {}).get("allocatable")), Counter(), Counter()
        pods = self.on(name)
        for pod in pods:
            asked = requests(pod)
            wanted = gpus(asked)
            used.update({what: amount for what, amount in asked.items() if what not in GPUS})
            if wanted:
                used["nvidia.com/gpu"] += wanted[0] * wanted[1]
            devices.update(shares(pod))
        for what, amount in sorted(used.items()):
            have = capacity[what] * (WHOLE if what == "nvidia.com/gpu" else 1)
            if amount > have and any(requests(pod)[what] or what in GPUS for pod in pods):
                self.tell("overcommitted", f"{since}: {name} has {have} of {what}, its pods ask for {amount}")
        for minor, milli in sorted(devices.items()):
            if milli > WHOLE:
                self.tell("overcommitted", f"{since}: device {minor} of {name} has {WHOLE} thousandths, its pods have {milli}")

    def overlooked(self, name):
        """Whether the log cannot have known who is there, or how large the node is."""
        known = self.log.nodes.get(name)
        return bool(known is None or name in self.foreign or (name in self.shrunk and self.at - self.shrunk[name] < self.limits.lag))

    # -- evictions -------------------------------------------------------------------------------------------------------

    def evicted(self, at, pod, by):
        self.at = at
        uid = uid_of(pod)
        self.evicted_pods[uid] = at
        if not by.startswith((SESSION, DESCHEDULER)):
            if by.startswith(SERVICES):
                self.tell("decided-effect", f"pod {named(pod)} is evicted by {by}")
            return
        self.judge_victim(pod, by)
        if by.startswith(SESSION):
            self.judge_preemption(uid, pod)
        else:
            self.judge_migration(uid, pod)

    def judge_victim(self, pod, by):
        if (pod.get("status") or {}).get("phase") in OVER:
            return
        meta = pod["metadata"]
        why = protection({"annotations": meta.get("annotations")}, pod["spec"].get("priority") or 0)
        notes = meta.get("annotations") or {}
        if "kubernetes.io/config.mirror" in notes or notes.get("kubernetes.io/config.source", "api") != "api":
            why = "it is its kubelet's own"
        owners = [o["kind"] for o in meta.get("ownerReferences") or () if o.get("controller")]
        if "DaemonSet" in owners and by.startswith(DESCHEDULER):
            why = "a DaemonSet makes it again on the same node"
        since = self.marked_at.get(uid_of(pod), 0.0)
        if why and self.at - since > self.limits.lag:
            self.tell("protected", f"pod {named(pod)} is evicted by {by}, but {why}")

    def judge_preemption(self, uid, pod):
        log = self.log
        if uid in log.evicted or (uid in log.victims and log.victims[uid] in log.nominations):
            return
        late = self.at - log.gone_for.get(uid, -1e9) < self.limits.lag
        if not late and not (uid in log.victims and log.denominated_at.get(log.victims[uid], -1e9) > self.at - self.limits.lag):
            self.tell("for-somebody", f"pod {named(pod)} is evicted, but room is held for nobody that it goes for")

    def judge_migration(self, uid, pod):
        log = self.log
        mine = [m for m in log.migrations.values() if m["pod"] == uid]
        if not any("evicting" in m["been"] for m in mine):
            steps = [m["step"] for m in mine] or "none"
            return self.tell("decided-effect", f"pod {named(pod)} is evicted, but its migrations are {steps}")
        last = next(m for m in reversed(mine) if "evicting" in m["been"])
        if last["step"] == "failed" and last.get("why") != "NotMarked" and "aborting" in last["been"]:
            return self.tell("decided-effect", f"pod {named(pod)} is evicted after migration {last['migration']} was rolled back ({last.get('why')})")
        self.beside.judge_guarded(pod, last)
        if last.get("target") and last["step"] == "evicting":
            self.judge_place(last, pod)
        return None

    def judge_place(self, migration, pod):
        """Its place is still held, and its node still there, or what took them is quite new."""
        log = self.log
        _key, hold = log.hold_of(migration)
        if hold is None:
            return
        since = self.at - log.moments.get(max(hold.moved, hold.lost, hold.left), 0.0)
        if (hold.state not in ("held", "used") or hold.lost) and since > self.limits.lag:
            state = "lost" if hold.lost else hold.state
            self.tell("place-first", f"pod {named(pod)} is evicted, but its place on {hold.node} is {state} for {since:.0f} s")
            return
        known = log.known_at["node", hold.node]
        why = log.closed(hold.node, log.shapes[hold.shape])
        if why and self.at - log.moments.get(known, 0.0) > self.limits.lag:
            self.tell("place-first", f"pod {named(pod)} is evicted towards {hold.node}, but {why} since {self.at - log.moments[known]:.0f} s")
