"""Slots for pods that another scheduler places, in the judge's own books: a *placeholder* is a pod of that scheduler which stands in the slot.

What is read is what anybody can read: the pod's namespace and annotation, the slot's node, the order of events. Nothing of `restow.domain`."""

import json
from collections import defaultdict

NAMESPACES = ("restow-holds", "restow-holds-ports")
SLOT = "restow.dev/slot"
GATE = "restow.dev/landing"
GUARD = "guard"
THERE = ("held", "waiting", "used")


def said_slot(namespace, annotations, more=()):
    """The (Reservation, slot) for which a pod says that it stands; None for every other pod, guards among them. `more`: where placeholders with claims are."""
    reservation, slash, slot = ((annotations or {}).get(SLOT) or "").partition("/")
    return (reservation, slot) if slash and reservation != GUARD and (namespace in NAMESPACES or namespace in more) else None


class BesideRules:
    """Part of the judge of logs."""

    def __init__(self):
        super().__init__()
        self.bodies = defaultdict(dict)
        """Slot → uids of the pods that say that they stand in it, the first one first."""
        self.fell = {}
        """Slot → the sequence at which it became known last that one of its placeholders had gone."""
        self.named, self.named_at = (), 0
        """Other schedulers that the policy names, and the sequence of the last change."""
        self.claim_namespaces = ()
        """Where pods are moved with their claims: their placeholders are there, too."""

    def migration_configured(self, event):
        """What is held for a scheduler that is named from now on waits for placeholders."""
        said = json.loads(event["text"])
        named, self.claim_namespaces = tuple(said.get("beside") or ()), tuple(said.get("claimNamespaces") or ())
        if named == self.named:
            return
        self.named, self.named_at = named, self.seq
        for key, hold in self.holds.items():
            if hold.state == "held" and not self.is_moves(key) and self.awaits_body(key, hold.shape) and not self.stands(key, hold.node):
                self.begins_to_wait(key, hold)
                hold.moved = 0

    def is_moves(self, key):
        return ((self.reservations.get(key[0]) or {}).get("fact") or {}).get("migration") in self.migrations

    def lost_its_body(self, key, hold):
        """Whether its scheduler was named, or its placeholder went, only after what was known when it was decided that the slot is ready: that is void."""
        is_news = (self.named_at > self.read and not self.is_moves(key)) or self.fell.get(key, 0) > self.read
        return is_news and self.awaits_body(key, hold.shape) and not self.stands(key, hold.node)

    def is_our_own(self, uid):
        """Whether it is a placeholder, a guard or a canary: Restow makes them and ends them, and nobody moves them."""
        pod = self.pods.get(uid, {})
        return pod.get("namespace") in NAMESPACES or self.slot_of(pod) is not None

    def slot_of(self, pod):
        return said_slot(pod.get("namespace"), pod.get("annotations"), self.claim_namespaces)

    def is_theirs(self, shape):
        return self.shapes.get(shape, {}).get("scheduler") not in self.ours

    def note_body(self, uid, pod):
        """`pod` is None where it is gone."""
        for key in [key for key, pods in self.bodies.items() if uid in pods] if pod is None else ():
            del self.bodies[key][uid]
            self.fell[key] = self.seq
        if pod is not None and (key := self.slot_of(pod)) is not None:
            self.bodies[key][uid] = None

    def is_body(self, uid, node):
        """Whether what the pod has on this node is charged as its slot's, or as that of the pod which the slot was handed over to."""
        pod = self.pods[uid]
        key = self.slot_of(pod)
        hold = self.holds.get(key) if key is not None else None
        return hold is not None and hold.node == node and not hold.lost and hold.state in THERE

    def bodies_are_charged_anew(self, key):
        for uid in list(self.bodies.get(key, ())):
            self.settle(uid, fact=False)

    def stands(self, key, node):
        """Whether a placeholder of the slot runs there."""
        pods = [self.pods[uid] for uid in self.bodies.get(key, ()) if uid in self.pods]
        return any(pod.get("node") == node and pod.get("phase") == "Running" and not pod.get("deleting") for pod in pods)

    def awaits_body(self, key, shape):
        """Whether the slot is for a pod that another scheduler places: of a move, or of a Reservation that names that scheduler."""
        record = self.reservations.get(key[0]) or {}
        said = ((record.get("fact") or {}).get("spec") or {}).get("scheduler")
        named = self.shapes.get(shape, {}).get("scheduler") in self.named
        return self.is_theirs(shape) and (self.is_moves(key) or bool(named and said and said not in self.ours))

    def judge_body(self, key, hold):
        """Such a slot is ready once its placeholder runs. (Where a move turns back, what guards the old node stands in it, and is never bound.)"""
        migration = self.migrations.get((self.reservations[key[0]].get("fact") or {}).get("migration"))
        if migration is not None and (migration.get("back") or migration.get("target") != hold.node):
            return
        if self.awaits_body(key, hold.shape) and not self.stands(key, hold.node):
            self.say(self.seq, f"placeholder: {key} is ready, and none runs on {hold.node}")
