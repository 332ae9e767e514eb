"""The judge of moves beside another scheduler, by what is written to the API: placeholders, nominations, gates. It knows the protocol's promise,
and none of our code."""

from checker_beside import GATE, GUARD, NAMESPACES, SLOT, THERE, said_slot

from simulation.judging.amounts import GPUS, amounts, requests
from simulation.judging.nodes import selected, why_not

MOMENT = 10.0
"""Seconds in which who was nominated and let go is bound."""
AWAY = 200.0
"""Seconds after which nobody new is gated where nothing of Restow is there: three minutes, and a while for what is on its way."""


def uid_of(pod):
    return pod["metadata"]["uid"]


def named(pod):
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def gates(pod):
    return {gate["name"] for gate in ((pod or {}).get("spec") or {}).get("schedulingGates") or ()}


def nominated(pod):
    return ((pod or {}).get("status") or {}).get("nominatedNodeName") or ""


def slot_of(pod):
    return said_slot(pod["metadata"].get("namespace"), pod["metadata"].get("annotations"))


def is_own(pod):
    """Placeholders and canaries: nobody else may make pods there."""
    return pod["metadata"].get("namespace") in NAMESPACES


def is_placeholder(pod):
    return is_own(pod) and SLOT in (pod["metadata"].get("annotations") or {})


class BesideJudge:
    """`cluster`: the judge of the API's objects, for what is where."""

    def __init__(self, tell, log, cluster):
        self.tell, self.log, self.cluster = tell, log, cluster
        self.let_go = {}
        """Pods that a slot was handed over to, by uid: when their gate was removed."""
        self.guarded = set()
        """Pairs of a migration and a node that a guard was nominated for."""
        self.listed_at = float("-inf")
        """When a service last wrote who is to be gated."""

    def pod_was_written(self, old, new, service):
        if new is None:
            return
        if old is None and GATE in gates(new) and self.cluster.at - self.listed_at > AWAY:
            self.tell("fails-open", f"pod {named(new)} is gated for a Restow of which nothing was heard for {self.cluster.at - self.listed_at:.0f} s")
        if service and old is None and is_placeholder(new):
            self.judge_size(new)
        if service and old is not None and GATE in gates(old) - gates(new):
            self.judge_swap(new)
        if service and old is not None and nominated(new) != nominated(old) and nominated(new) and not is_own(new):
            self.judge_nominated(new)
        if is_placeholder(new) and nominated(new):
            kind, _, migration = new["metadata"]["annotations"][SLOT].partition("/")
            if kind == GUARD:
                self.guarded.add((migration, nominated(new)))
        if new["spec"].get("nodeName") and not ((old or {}).get("spec") or {}).get("nodeName"):
            self.judge_landed(new)

    # -- placeholders ------------------------------------------------------------------------------------------------------

    def judge_size(self, pod):
        key = slot_of(pod)
        if key is None:
            return None
        hold = self.log.holds.get(key)
        if hold is None or hold.state not in THERE:
            return self.tell("beside", f"placeholder {named(pod)} is made for {key}, which is {hold.state if hold else 'unknown'}")
        shape, has = self.log.shapes[hold.shape], requests(pod)
        other = {what: has[what] for what, amount in shape["requests"].items() if what not in GPUS and "/gpu" not in what and has[what] != amount}
        if other:
            self.tell("beside", f"placeholder {named(pod)} asks for {other}, and stands for a pod that asks for {shape['requests']}")
        if (pod["spec"].get("priority") or 0) != (shape.get("priority") or 0):
            self.tell("beside", f"placeholder {named(pod)} has priority {pod['spec'].get('priority')}, and stands for a pod with {shape.get('priority') or 0}")
        if not selected(pod["spec"], {}, hold.node) and not shape.get("node_selector") and not shape.get("node_affinity"):
            self.tell("beside", f"placeholder {named(pod)} may not go to {hold.node}, where its slot is")
        return None

    def judge_guarded(self, pod, migration):
        """Before somebody of another scheduler goes, its old node was kept for it."""
        theirs = pod["spec"].get("schedulerName") not in self.log.ours
        if theirs and migration.get("target") and (migration["migration"], migration["source"]) not in self.guarded:
            self.tell("beside", f"placeholder: pod {named(pod)} is evicted, and no guard was nominated for {migration['source']}")

    # -- who comes ---------------------------------------------------------------------------------------------------------

    def judge_nominated(self, pod):
        """Only who was given the slot."""
        placed = self.log.placed.get(uid_of(pod))
        if pod["spec"].get("schedulerName") not in self.log.ours and (placed is None or placed[0] != nominated(pod)):
            self.tell("beside", f"placeholder: pod {named(pod)} is nominated to {nominated(pod)}, and no slot there was handed over to it")

    def judge_swap(self, pod):
        """Its gate is removed. Whoever has a slot is nominated by that, and the placeholder is on its way out."""
        uid = uid_of(pod)
        placed, key = self.log.placed.get(uid), self.log.heirs.get(uid)
        if placed is None or key is None:
            return
        if nominated(pod) != placed[0]:
            self.tell("beside", f"placeholder: the gate of {named(pod)} is removed before it is nominated to {placed[0]}")
        for body in self.cluster.of("pods").values():
            if slot_of(body) == key and not body["metadata"].get("deletionTimestamp"):
                self.tell("beside", f"placeholder {named(body)} is there still, and the gate of {named(pod)} is removed")
        self.let_go[uid] = self.cluster.at

    def judge_landed(self, pod):
        """Who was nominated and let go comes to its node, if that takes it."""
        uid, at = uid_of(pod), self.let_go.get(uid_of(pod))
        placed = self.log.placed.get(uid)
        if at is None or placed is None or placed[0] == pod["spec"]["nodeName"] or self.cluster.at - at > MOMENT:
            return
        node = self.cluster.node(placed[0])
        if node is None or why_not(pod, node) or any(what in GPUS for what in requests(pod)):
            return
        free = amounts((node.get("status") or {}).get("allocatable"))
        for other in self.cluster.on(placed[0]):
            free.subtract(requests(other))
        if all(free[what] >= amount for what, amount in requests(pod).items()):
            self.tell("beside", f"placeholder: pod {named(pod)} is bound to {pod['spec']['nodeName']}, and its slot on {placed[0]} was free for it")

    # -- at rest -----------------------------------------------------------------------------------------------------------

    def judge_rest(self, at, cleanup):
        for pod in self.cluster.of("pods").values():
            if pod["metadata"].get("deletionTimestamp"):
                continue
            since = at - self.cluster.asked_at.get(uid_of(pod), at)
            if GATE in gates(pod) and since > cleanup:
                self.tell("nothing-left", f"pod {named(pod)} is gated by us for {since:.0f} s")
            if is_placeholder(pod) and self.is_left(pod, at, cleanup):
                self.tell("nothing-left", f"placeholder {named(pod)} is left, and stands for nothing")
            elif is_own(pod) and not is_placeholder(pod) and at - self.cluster.made_at.get(uid_of(pod), at) > cleanup:
                self.tell("nothing-left", f"canary {named(pod)} is left")

    def is_left(self, pod, at, cleanup):
        key, log = slot_of(pod), self.log
        said = (pod["metadata"]["annotations"] or {})[SLOT]
        if key is None:
            migration = log.migrations.get(said.partition("/")[2]) if said.startswith(f"{GUARD}/") else None
            return migration is None or at - log.ended_at.get(migration["migration"], at) > cleanup
        hold = log.holds.get(key)
        return hold is None or hold.state not in ("held", "waiting")
