"""Random histories of Reservations, one event at a time: mostly what the services would say next, sometimes anything at all."""

from random import Random

from domain.build import GIB, NOW, given, node, pod, reservation, shape
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.values import DeviceShare
from restow.domain.records import SlotPhase
from restow.domain.state import ClusterState

NODES = ("n0", "n1")
PODS = tuple(f"p{i}" for i in range(8))
SHAPES = {"small": 500, "big": 1_500}
TASKS, TEMPLATE, MANY = "tasks", "template", "many"
RESERVATIONS = (TASKS, TEMPLATE, MANY)
MINE = {"app": "owner"}


def asked(uid: str, generation: int = 1, shape: str = "big", replicas: int = 2, **more) -> e.ReservationObserved:
    """Volcano's tasks form (each place used once), its template form and Koordinator's (both for many owners)."""
    if uid == TASKS:
        return reservation(uid, ("t", replicas, shape), generation=generation, match_policy="Owner", **more)
    task = ("reservation", 1, shape)
    more |= {"allocate_once": False, "match_policy": "Owner"}
    if uid == MANY:
        return replace(reservation(uid, task, generation=generation, namespace="", **more), api="koordinator")
    return reservation(uid, task, generation=generation, allocate_policy="Covering", **more)


def begin(cpu: int = 4_000) -> ClusterState:
    """Nodes with this many thousandths of a core, owners that wait, and three Reservations."""
    return given(
        [node(n, cpu=cpu, memory=64 * GIB, gpus=2) for n in NODES],
        [shape(name, cpu=amount) for name, amount in SHAPES.items()],
        [fresh(p) for p in PODS],
        [asked(uid) for uid in RESERVATIONS],
    )


def fresh(name: str, where: str | None = None) -> e.PodObserved:
    return pod(name, "small" if int(name[1:]) % 2 else "big", where, labels=MINE)


class History:
    """Says what happens next. With `roomy`, nothing that may over-commit a node and no loans."""

    def __init__(self, random: Random, spacious: bool) -> None:
        self._random, self._roomy = random, spacious
        self._kinds = [
            self._review, self._review, self._hold, self._hold, self._hold, self._ready, self._ready, self._hand_over,
            self._hand_over, self._hand_over, self._release, self._release, self._bind, self._bind, self._pod_ends, self._pod_gone,
            self._pod_comes, self._unbound, self._update, self._end, self._unfit, self._resize, self._node, self._wild,
        ]  # fmt: skip
        if not spacious:
            self._kinds += [self._crowd, self._lend]

    def next(self, state: ClusterState) -> e.Event:
        while True:
            event = self._random.choice(self._kinds)(state)
            if event is not None:
                return event

    def _one(self, items):
        found = list(items)
        return self._random.choice(found) if found else None

    def _places(self, state, *phases):
        return [(uid, name) for uid, slots in state.slots.items() for name, slot in slots.items() if slot.phase in phases]

    # -- what the services say -------------------------------------------------------------------------------------------

    def _review(self, state):
        uid = self._one(state.unreviewed)
        if uid is None:
            return None
        record = state.reservations[uid]
        if self._random.random() < 0.15:
            return e.ReservationRefused(uid, record.fact.generation, "InvalidSpec", "no", record.revision)
        spec = record.fact.spec
        least = spec.min_available or sum(t.replicas for t in spec.tasks) if spec else 1
        return e.ReservationAccepted(uid, record.fact.generation, least, NOW + 5, record.revision)

    def _hold(self, state):
        place = self._one(state.slot_queue)
        if place is None:
            return None
        shape = state.slots[place[0]][place[1]].shape
        return e.HoldPlaced(*place, self._random.choice(NODES), (), shape, self._random.random() < 0.2)

    def _ready(self, state):
        place = self._one(state.whole)
        return None if place is None else e.HoldReady(*place)

    def _hand_over(self, state):
        place, pod = self._one(self._places(state, SlotPhase.HELD)), self._one(state.queue)
        if place is None or pod is None:
            return None
        return e.HandedOver(*place, pod, state.slots[place[0]][place[1]].node)

    def _release(self, state):
        asked_back = self._one(state.to_release.items())
        if asked_back is not None:
            return e.HoldReleased(*asked_back[0], asked_back[1])
        place = self._one(self._places(state, SlotPhase.HELD, SlotPhase.WAITING))
        if place is None or self._random.random() < 0.7:
            return None
        return e.HoldReleased(*place, self._random.choice(["Preempted", "Unavailable"]))

    def _unfit(self, state):
        place = self._one(state.slot_queue)
        return None if place is None else e.HoldUnfit(*place, 2, {"Insufficient cpu": 2})

    def _resize(self, state):
        place = self._one(state.resizes)
        return None if place is None else e.HoldResized(*place, state.slots[place[0]][place[1]].asked)

    def _unbound(self, state):
        pod = self._one(state.placed)
        return None if pod is None else e.PodReleased(pod, "refused")

    def _lend(self, state):
        place, pod = self._one(self._places(state, SlotPhase.HELD)), self._one(state.queue)
        return None if place is None or pod is None else e.HoldBorrowed(*place, pod)

    # -- facts -----------------------------------------------------------------------------------------------------------

    def _bind(self, state):
        placed = self._one(p for p in state.placed if state.pods[p].live.node is None)
        if placed is None:
            return None
        where = state.placed[placed].node if self._random.random() < 0.85 else self._random.choice(NODES)
        return e.PodChanged(placed, where, "Running", True)

    def _pod_ends(self, state):
        running = self._one(p for p in state.pods if state.pods[p].live.node)
        if running is None:
            return None
        live = state.pods[running].live
        phase, deleting = self._random.choice([("Succeeded", 0), ("Failed", 0), (live.phase, NOW)])
        return e.PodChanged(running, live.node, phase, False, deleting)

    def _pod_gone(self, state):
        pod = self._one(state.pods)
        return None if pod is None or self._random.random() < 0.5 else e.PodGone(pod)

    def _pod_comes(self, state):
        name = self._random.choice(PODS)
        return None if name in state.pods else fresh(name)

    def _crowd(self, state):
        """A pod of somebody else on a node, however full that is; or one that goes."""
        name, where = self._random.choice(["x0", "x1"]), self._random.choice(NODES)
        return e.PodGone(name) if name in state.pods else pod(name, "big", where)

    def _node(self, state):
        name = self._random.choice(NODES)
        if name not in state.nodes:
            return node(name, cpu=1_000_000 if self._roomy else 4_000, memory=64 * GIB, gpus=2)
        if not self._roomy and self._random.random() < 0.5:
            return node(name, cpu=self._random.choice([1_000, 2_500, 4_000]), memory=64 * GIB, gpus=2)
        return e.NodeGone(name) if self._random.random() < 0.3 else None

    def _update(self, state):
        uid = self._random.choice(RESERVATIONS)
        record = state.reservations.get(uid)
        if record is None:
            return asked(uid)
        if self._random.random() < 0.5:
            return None
        if self._random.random() < 0.3:
            # Labels and annotations say something, too, and make no new generation.
            spec = replace(record.fact.spec, unschedulable=not record.fact.spec.unschedulable)
            return replace(record.fact, spec=spec)
        shape, replicas = self._random.choice(list(SHAPES)), self._random.choice([1, 2, 3])
        least = self._random.choice([0, 1]) if uid == TASKS else 0
        return asked(uid, record.fact.generation + 1, shape, replicas, min_available=least, deleting=record.fact.deleting)

    def _end(self, state):
        uid = self._random.choice(RESERVATIONS)
        record = state.reservations.get(uid)
        if record is None or self._random.random() < 0.6:
            return None
        return self._random.choice(
            [e.Expired(uid), e.Collected(uid, "Retention"), replace(record.fact, deleting=NOW), e.ReservationGone(uid)]
        )

    def _wild(self, state):
        """Anything about anybody, in its time or not."""
        r = self._random
        uid, name, where, who = r.choice(RESERVATIONS), r.choice(["t-0", "t-1", "reservation-0", "t-9"]), r.choice(NODES), r.choice(PODS)
        return r.choice(
            [
                e.ReservationAccepted(uid, r.choice([1, 2, 3]), 1, NOW),
                e.ReservationRefused(uid, r.choice([1, 2, 3]), "InvalidSpec", "no"),
                e.HoldPlaced(uid, name, where, (), r.choice(["", "big"])),
                e.HoldReady(uid, name),
                e.HandedOver(uid, name, who, where, r.choice([(), (DeviceShare(0, 500),)])),
                e.HoldReleased(uid, name, r.choice(["Preempted", "Expired", "NodeLost", "Superseded"])),
                e.HoldResized(uid, name, r.choice(list(SHAPES))),
                e.HoldUnfit(uid, name, 2, {}, "QueueQuota", "its queue is full"),
                e.PodReleased(who, "refused"),
                e.PodGone(who),
                e.Expired(uid),
                e.ReservationGone(uid),
            ]
        )
