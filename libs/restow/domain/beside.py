"""Pods that another scheduler places, moved with a held slot: "gate, nominate, swap".

A slot for such a pod is chosen by our session, as every slot is. What it holds is a *placeholder*: a pod of that scheduler, on the slot's
node, as large as the pod that is moved and of the same priority, so that every scheduler and autoscaler counts it. The slot waits until its
placeholder runs there; where the placeholder goes without us, the slot is lost. What the pod's controller makes meanwhile is *gated* by the
API server (an admission policy, for the controllers of moves under way): its scheduler does not look at the successor before our session has
handed the slot over to it. Then the successor is nominated for the node, which keeps its capacity from all of equal and lower priority, the
placeholder is deleted, and the gate removed. Whoever else is gated is let go at once.

A placeholder is the body of its slot: what it takes is charged once, as held.
"""

from collections.abc import Callable, Iterator

from restow.contracts import events as e
from restow.contracts.events import PodChanged, PodObserved
from restow.contracts.ids import MigrationId, NodeName, PodUid, ReservationUid, ShapeId, SlotName
from restow.domain import verdicts
from restow.domain.effects import CreatePlaceholder, DeletePlaceholder, Effect, Land, LetGo
from restow.domain.node_table import WHOLE
from restow.domain.other_schedulers import LOG
from restow.domain.records import FINAL, Migration, Slot, SlotPhase
from restow.domain.slots import SlotKey
from restow.domain.state_maps import OVER, Maps, Touched
from restow.domain.verdicts import NOT_CHOSEN, SCHEDULER

GATE = "restow.dev/landing"
"""The scheduling gate that the admission policy sets."""
NAMESPACES = ("restow-holds", "restow-holds-ports")
"""Where placeholders are (those with host ports in the second): nobody else may make pods there."""
SLOT = "restow.dev/slot"
"""Annotation of a placeholder: `<Reservation's uid>/<slot>`."""
PLACEHOLDER = verdicts.PLACEHOLDER
"""Why a slot waits: its placeholder does not run yet."""
STOLEN = verdicts.STOLEN
"""Why a slot is lost: its placeholder was preempted, refused by its kubelet, or deleted by somebody."""
PATIENCE = 10_000
"""Milliseconds, from its hand-over on, for which others on its node wait for a pod that its scheduler may bind: it binds within one, or not at all."""
GONE = verdicts.SLOT_GONE
"""Why a pod is not waited for any more that a slot was handed over to: its scheduler did not bind it there."""
REFUSED = verdicts.PLACEHOLDER_REFUSED
"""Why a slot is lost: the API will not make its placeholder."""


def is_beside(state: Maps, shape: ShapeId) -> bool:
    """Whether its pods are another scheduler's, and may be moved all the same."""
    scheduler = state.shapes[shape].scheduler
    return scheduler in state.migration_config.beside and scheduler not in state.session_config.scheduler_names


def another_scheduler(state: Maps, shape: ShapeId) -> str:
    """The verdict on pods that another scheduler places: empty where they are ours, or may be moved all the same. A placeholder can hold neither a chosen
    part of a device nor chosen CPUs: that scheduler knows nothing of them."""
    known = state.shapes[shape]
    if known.scheduler in state.session_config.scheduler_names:
        return ""
    if known.scheduler not in state.migration_config.beside:
        return SCHEDULER
    shares = known.devices is not None and known.devices.milli != WHOLE
    return NOT_CHOSEN if shares or known.cores is not None else ""


def named_slot(state: Maps, pod: PodObserved) -> SlotKey | None:
    """The slot whose placeholder a pod says it is; None where it says nothing, or is another log's."""
    said = pod.annotations.get(SLOT, "")
    if not said or pod.namespace not in NAMESPACES or pod.owner is not None or pod.labels.get(LOG, "") != state.log:
        return None
    reservation, slash, slot = said.partition("/")
    return (ReservationUid(reservation), SlotName(slot)) if slash else None


def needs_placeholder(state: Maps, key: SlotKey, slot: Slot) -> bool:
    """Whether the slot is a migration's, of a pod that another scheduler places."""
    record = state.reservations.get(key[0])
    migration = state.migrations.get(record.fact.migration) if record is not None else None  # type: ignore[call-overload]
    if migration is None or migration.reservation != key[0]:
        return False
    return state.shapes[slot.shape].scheduler not in state.session_config.scheduler_names


def is_embodied(state: Maps, key: SlotKey, slot: Slot) -> bool:
    """Whether nothing but its capacity keeps a slot waiting."""
    if not needs_placeholder(state, key, slot):
        return True
    pod = state.stand_ins.get(key)
    return pod is not None and stands(state.live_of(pod), slot)


def stands(live: PodChanged | None, slot: Slot) -> bool:
    """Whether a placeholder occupies its slot's node: its kubelet has taken it."""
    return live is not None and live.node == slot.node and live.phase == "Running" and not live.deleting


def has_fallen(live: PodChanged | None) -> bool:
    """Whether a placeholder is on its way out, or has ended."""
    return live is None or live.deleting > 0 or live.phase in OVER


def is_body(state: Maps, pod: PodUid) -> bool:
    """Whether what the pod takes is charged as its slot's, or, where the slot was handed over a moment ago, as the successor's."""
    key = state.placeholders.get(pod)
    slot = state.slots.get(key[0], {}).get(key[1]) if key is not None else None
    if key is None or slot is None or (key not in state.held_on.get(slot.node, ()) and slot.phase is not SlotPhase.USED):
        return False
    live = state.live_of(pod)
    return live is not None and live.node == slot.node


# -- placeholders that are missing, or left over ---------------------------------------------------------------------------


def lacks_placeholder(state: Maps, key: SlotKey) -> bool:
    """Whether a slot is on a node, and nobody stands in it."""
    slot = state.slots.get(key[0], {}).get(key[1])
    if slot is None or key not in state.held_on.get(slot.node, ()) or key in state.to_release or key in state.stand_ins:
        return False
    return slot.capacity.complete and needs_placeholder(state, key, slot)


def is_idle(state: Maps, pod: PodUid) -> bool:
    """Whether a placeholder is of no use any more. Of a slot that was handed over it is deleted by `Land`, unless the successor has lost its gate, or is
    gone."""
    key, live = state.placeholders.get(pod), state.live_of(pod)
    if key is None or live is None or live.deleting:
        return False
    slot = state.slots.get(key[0], {}).get(key[1])
    if slot is None or state.stand_ins.get(key) != pod:
        return True
    if slot.phase is SlotPhase.USED:
        return slot.pod not in state.to_land or not state.pods[slot.pod].fact.landing
    return key not in state.held_on.get(slot.node, ())


def is_to_land(state: Maps, pod: PodUid) -> bool:
    """Whether a slot was handed over to a pod that still has our gate, and it is its turn: one after the other on each node, until it is bound. A
    nomination is charged beside the placeholder that it replaces, so that another one, let go meanwhile, would not fit."""
    if pod not in state.to_land or not state.pods[pod].fact.landing:
        return False
    node = state.placed[pod].node
    return pod == next(one for one in state.to_land if state.placed[one].node == node and _is_awaited(state, one))


def _is_awaited(state: Maps, pod: PodUid) -> bool:
    """Whether the next one on its node waits for it: while it has our gate, and, once its scheduler may bind it, for the moment that this takes."""
    return state.pods[pod].fact.landing or state.time < state.placed[pod].at + PATIENCE


# -- who is waited for ------------------------------------------------------------------------------------------------------


MayRun = Callable[[Maps, PodObserved, NodeName], bool]
"""Whether a pod may run on a node by the node's own rules (`restow.domain.session.beside`)."""


def expected(state: Maps, pods: dict[PodUid, None], may_run: MayRun) -> set[PodUid]:
    """Of these gated pods those that a migration waits for: each waits for one, the first that may follow its pod and may run on its target. (Others may
    have bound it to other nodes since it was made, as Kueue does.)"""
    found: set[PodUid] = set()
    for id in _waiting(state):
        migration = state.migrations[id]
        one = next((uid for uid in pods if uid not in found and _may_land(state, state.pods[uid].fact, migration, may_run)), None)
        if one is not None:
            found.add(one)
    return found


def _may_land(state: Maps, pod: PodObserved, migration: Migration, may_run: MayRun) -> bool:
    return state.may_follow(pod, migration) and may_run(state, pod, migration.move.target)  # type: ignore[attr-defined]


def _waiting(state: Maps) -> Iterator[MigrationId]:
    """Moves whose pod has gone and whose slot may still be handed over."""
    armed = [state.migrations[id] for ids in state.armed.values() for id in ids]
    for migration in sorted(armed, key=lambda m: (m.armed, m.id)):
        if migration.step not in FINAL and not migration.successor and is_beside(state, migration.shape):
            yield migration.id


def astray(state: Maps) -> list[PodUid]:
    """Pods that a slot was handed over to, that their scheduler has not bound, and whose move is over: they are that scheduler's alone."""
    return [uid for uid in state.to_land if uid not in state.successors]


# -- what is owed ------------------------------------------------------------------------------------------------------------


def pending(state: Maps, touched: Touched | None, may_run: MayRun) -> Iterator[Effect]:
    reservations = state.slots.keys() if touched is None else touched.reservations
    for uid in reservations:
        for name in state.slots.get(uid, ()):
            if lacks_placeholder(state, (uid, name)):
                yield CreatePlaceholder(uid, name)
    slots = [key for key in state.stand_ins if touched is None or key[0] in touched.reservations]
    pods: dict[PodUid, None] = dict.fromkeys(state.placeholders if touched is None else touched.pods)
    pods |= dict.fromkeys(state.stand_ins[key] for key in slots)
    for pod in pods:
        if is_idle(state, pod):
            yield DeletePlaceholder(pod)
    for pod in state.to_land:
        # Also of those who waited for the one before them on their node.
        if is_to_land(state, pod):
            yield Land(pod, state.placed[pod].node)
    if state.gated:
        wanted = expected(state, state.gated, may_run)
        for pod in state.gated:
            if pod not in wanted:
                yield LetGo(pod)


def owed(state: Maps, effect: CreatePlaceholder | DeletePlaceholder | Land | LetGo, may_run: MayRun) -> bool:
    match effect:
        case CreatePlaceholder(reservation=uid, slot=name):
            return lacks_placeholder(state, (uid, name))
        case DeletePlaceholder(pod=pod):
            return is_idle(state, pod)
        case Land(pod=pod, node=node):
            return is_to_land(state, pod) and state.placed[pod].node == node
        case LetGo(pod=pod):
            return pod in state.gated and pod not in expected(state, state.gated, may_run)


def placeholder_of(state: Maps, pod: PodUid) -> PodUid | None:
    """Of the slot that was handed over to this pod."""
    hold = state.placed[pod].hold if pod in state.placed else None
    return state.stand_ins.get(hold) if hold is not None else None


def lost_to(state: Maps, reservation: ReservationUid, slot: str, reason: str) -> tuple[e.Event, ...]:
    """The API refuses its placeholder."""
    key = (reservation, slot)
    return (e.HoldReleased(*key, f"{REFUSED}: {reason}"),) if lacks_placeholder(state, key) else ()  # type: ignore[arg-type]
