"""What Reservations and queues are owed at rest: capacity that is there is held, and a queue that has less than it deserves takes it back."""

import json
from collections import Counter

from simulation.judging.amounts import GPUS, amounts, requests, shares
from simulation.judging.cluster import APIS, named, node_of, occupies, uid_of
from simulation.judging.fit import Capacity, place_all, simple
from simulation.judging.nodes import why_not
from simulation.judging.victims import about, protection

GROUPS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
QUEUES = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
QUEUE, GROUP, BUDGET = "queues.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh", "poddisruptionbudgets.policy"
SHORT = 60
"""Seconds of grace: who is given longer may still be on the way out."""


def note(obj, names):
    notes = obj["metadata"].get("annotations") or {}
    return next((notes[name] for name in names if notes.get(name)), "")


class HeldRules:
    """Part of the judge of rest: Reservations that wait beside free capacity."""

    def judge_held(self):
        if not self.understands() or not self.one_queue():
            return
        nodes = self.slots()
        for reservation in (obj for api in APIS for obj in self.cluster.of(api).values()):
            missing = self.missing(reservation)
            if missing and all(simple(place) and not place["spec"].get("nodeName") and not note(place, GROUPS) for place in missing):
                found = not self.repelled(missing) and place_all(missing, [Capacity(node, there, self.log) for node, there in nodes])
                if found:
                    where = ", ".join(sorted(set(found.values())))
                    waited = self.at - self.log.moments[self.log.reservations[uid_of(reservation)]["accepted_at"]]
                    self.tell("fits-held", f"{len(missing)} places of Reservation {named(reservation)} would fit ({where}), and waited for {waited:.0f} s")

    def one_queue(self):
        queues = self.cluster.of(QUEUE).values()
        return all(q["metadata"]["name"] == "default" and not (q.get("spec") or {}).get("capability") for q in queues)

    def missing(self, reservation):
        """As pods: places that were never held although they are asked for, for the stated time. Only of what is used once: at most one
        reusable Reservation of a kind is on a node (RULES 004-3)."""
        meta, record = reservation["metadata"], self.log.reservations.get(uid_of(reservation))
        if meta["name"].startswith("restow-") or meta.get("deletionTimestamp") or record is None or not record["accepted"]:
            return []
        spec, end = record["spec"] or {}, self.expiry(meta, reservation.get("spec") or {})
        over = self.log.dead(record)[0] or (end is not None and end <= self.now)
        if over or spec.get("pre_allocation") or not spec.get("allocate_once") or self.at - self.log.moments[record["accepted_at"]] < self.limits.runs:
            return []
        never = [(t["name"], n) for t in spec.get("tasks", ()) for n in range(t["replicas"]) if (meta["uid"], f"{t['name']}-{n}") not in self.log.holds]
        templates = {t["name"]: t["template"] for t in reservation["spec"].get("tasks") or ()}
        return [self.place(meta, task, number, templates.get(task) or reservation["spec"].get("template") or {}) for task, number in never]

    @staticmethod
    def place(meta, task, number, template):
        uid, said = f"{meta['uid']}/{task}-{number}", template.get("metadata") or {}
        own = {"name": f"{meta['name']}/{task}-{number}", "namespace": meta.get("namespace", ""), "uid": uid}
        return {"metadata": own | {what: said.get(what) or {} for what in ("labels", "annotations")}, "spec": template.get("spec") or {"containers": []}}


class ReclaimRules:
    """Part of the judge of rest: who waits in a queue that deserves more, while others have more than they deserve.

    What a queue deserves is bounded from both sides, so that nothing depends on how it is divided: at least what it wants up to its share by
    weight, at most what all others leave of the cluster by that."""

    def judge_reclaim(self, pods, fact, queue, nodes):
        pod, need = pods[0], ((fact or {}).get("spec") or {}).get("minMember") or 1
        asked = requests(pod)
        if not self.reclaims() or uid_of(pod) in self.log.nominations or need > 1 or (fact is not None and self.running(pod)):
            return
        if set(asked) & (GPUS - {"nvidia.com/gpu"}) or len(self.cluster.of(QUEUE)) < 2 or not self.queue_allows(queue, asked):
            return
        least = self.usage(queue) + asked
        whole = sum((amounts((n.get("status") or {}).get("allocatable")) for n in self.cluster.of("nodes").values()), Counter())
        for node, there in nodes:
            if why_not(pod, node) or any(other["metadata"].get("deletionTimestamp") for other in there):
                continue
            for victim in there:
                theirs = self.queue_of(victim)
                if theirs == queue or not self.may_lose(victim, theirs, asked, whole - least) or not self.may_go(victim):
                    continue
                capacity = Capacity(node, there, self.log)
                capacity.take(Counter({what: -amount for what, amount in requests(victim).items()}), Counter({i: -m for i, m in shares(victim).items()}))
                if capacity.fits(pod, asked) is not None:
                    since = self.at - self.cluster.asked_at[uid_of(pod)]
                    said = f"pod {named(pod)} of queue {queue}, which has less than it deserves, waited for {since:.0f} s"
                    return self.tell("deserved", f"{said}; {named(victim)} of queue {theirs}, which has more, is on {capacity.name}")

    def reclaims(self):
        said = self.log.configuration
        plugins = {p["name"]: p.get("enabled") or {} for tier in said.get("tiers", ()) for p in tier}
        on = plugins.get("proportion")
        return on is not None and on.get("enableReclaimable", True) and "capacity" not in plugins and "reclaim" in json.dumps(said.get("actions") or "")

    def queue_of(self, pod):
        group = (pod["metadata"]["namespace"], note(pod, GROUPS))
        fact = next((g for g in self.cluster.of(GROUP).values() if (g["metadata"]["namespace"], g["metadata"]["name"]) == group), None)
        return ((fact or {}).get("spec") or {}).get("queue") or note(pod, QUEUES) or "default"

    def running(self, pod):
        group = (pod["metadata"]["namespace"], note(pod, GROUPS))
        return any((p["metadata"]["namespace"], note(p, GROUPS)) == group and node_of(p) for p in self.cluster.of("pods").values())

    def may_lose(self, victim, queue, asked, most):
        """Whether its queue has, without it, certainly what it deserves of something that is asked for."""
        used, gives = self.usage(queue), requests(victim)
        said = next((q.get("spec") or {} for q in self.cluster.of(QUEUE).values() if q["metadata"]["name"] == queue), {})
        return said.get("reclaimable", True) and any(gives[what] and used[what] - gives[what] >= most[what] for what in asked if what not in GPUS)

    def may_go(self, pod):
        """Whether nothing protects it, or might."""
        meta, spec = pod["metadata"], pod["spec"]
        group = (meta["namespace"], note(pod, GROUPS))
        fact = next((g for g in self.cluster.of(GROUP).values() if (g["metadata"]["namespace"], g["metadata"]["name"]) == group), None)
        members = [p for p in self.cluster.of("pods").values() if (p["metadata"]["namespace"], note(p, GROUPS)) == group and occupies(p)]
        bound = group[1] and (fact is None or len(members) <= ((fact.get("spec") or {}).get("minMember") or 1) or (fact["spec"].get("minTaskMember")))
        labels = {"namespace": meta["namespace"], "labels": meta.get("labels") or {}}
        budgeted = any(b["namespace"] == meta["namespace"] and (about(b, labels) or (b.get("selector") or {}).get("expressions")) for b in self.log.budgets.values())
        owner = next((o["kind"] for o in meta.get("ownerReferences") or () if o.get("controller")), "")
        known = self.log.pods.get(uid_of(pod), {})
        return not (
            bound or budgeted or owner == "DaemonSet" or protection({"annotations": meta.get("annotations")}, spec.get("priority") or 0)
            or spec.get("schedulerName") not in self.log.ours or (spec.get("terminationGracePeriodSeconds") or 0) > SHORT
            or uid_of(pod) in self.log.victims or uid_of(pod) in self.log.gone_for or not known.get("ready")
            or any(m["pod"] == uid_of(pod) for m in self.log.migrations.values() if "ended" not in m)
        )  # fmt: skip
