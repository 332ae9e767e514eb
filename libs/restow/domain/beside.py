"""Pods that another scheduler places, moved with a held slot: "gate, nominate, swap".

A slot for such a pod is chosen by our session, as every slot is. What it holds is a *placeholder*: a pod of that scheduler, on the slot's
node, as large as the pod that is moved and of the same priority, so that every scheduler and autoscaler counts it. The slot waits until its
placeholder runs there; where the placeholder goes without us, the slot is lost. What the pod's controller makes meanwhile is *gated* by the
API server (an admission policy, for the controllers of moves under way): its scheduler does not look at the successor before our session has
handed the slot over to it. Then the successor is nominated for the node, which keeps its capacity from all of equal and lower priority, the
placeholder is deleted, and the gate removed. Whoever else is gated is let go at once.

A placeholder is the body of its slot: what it takes is charged once, as held.

The pod's old node has a *guard* meanwhile: a second placeholder that is never bound, nominated for that node before the eviction. So its scheduler
lets nobody of equal or lower priority have what the pod leaves until the move is over, and where the move turns back, the guard is the body of its
slot there. To our session it counts as another scheduler's nominee (`session.plugins.predicates.nominees`): for pods and people's Reservations, not for slots of plans.
"""

from collections.abc import Callable, Iterable, Iterator

from restow.contracts import events as e
from restow.contracts.events import PodChanged, PodObserved
from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid, ReservationUid, ShapeId, SlotName
from restow.domain import nomination_checks as checks
from restow.domain import thefts, verdicts
from restow.domain.effects import CreatePlaceholder, DeletePlaceholder, Effect, Land, LetGo, NominateAgain
from restow.domain.gated import MayRun, expected, forsaken_at
from restow.domain.landing_gate import GATE as GATE
from restow.domain.node_table import WHOLE, Vector
from restow.domain.other_schedulers import LOG, held_for
from restow.domain.other_schedulers import is_beside as is_beside
from restow.domain.quantity import format_resource
from restow.domain.records import FINAL, OBSERVE, ON_NODE, Migration, Slot, SlotPhase, Step
from restow.domain.slots import SlotKey
from restow.domain.state_maps import OVER, Maps, Touched
from restow.domain.verdicts import HOLDS_STOLEN, NOT_CHECKED, NOT_CHOSEN, SCHEDULER

NAMESPACES = (checks.HOLDS, "restow-holds-ports")
"""Where placeholders are (those with host ports in the second): nobody else may make pods there."""
SLOT = "restow.dev/slot"
"""Annotation of a placeholder: `<Reservation's uid>/<slot>`; of a guard `guard/<migration>`."""
HOLD_CLASS = "restow-hold-"
"""How the names of placeholders' PriorityClasses begin."""
VIRTUAL = "restow.dev/hold"
"""The scheduling gate of a placeholder that is never bound."""
GUARD = ReservationUid("guard")
"""Guards are known like placeholders of slots, by this and their migration; no object has such a uid."""
PLACEHOLDER = verdicts.PLACEHOLDER
"""Why a slot waits: its placeholder does not run yet."""
STOLEN = verdicts.STOLEN
"""Why a slot is lost: its placeholder was preempted, refused by its kubelet, or deleted by somebody."""
LET_GO_AGAIN, LET_GO_AGAIN_LONGEST = 30_000, 600_000
"""Milliseconds until it is tried again to let go a pod after the API has refused that: at first, doubled each time, and at most."""
PATIENCE = 10_000
"""Milliseconds for which others on its node wait for a pod that its scheduler may bind: it binds within one, or not at all. They count from when our gate
is off, however long the pod had to wait for its turn before (RULES G-14)."""
GONE = verdicts.SLOT_GONE
"""Why a pod is not waited for any more that a slot was handed over to: its scheduler did not bind it there."""
LOST = "TargetLost"
"""Why one does not wait for its turn there any more."""
REFUSED = verdicts.PLACEHOLDER_REFUSED
"""Why a slot is lost: the API will not make its placeholder."""


def another_scheduler(state: Maps, shape: ShapeId) -> str:
    """The verdict on pods that another scheduler places: empty where they are ours, or may be moved all the same. A placeholder can hold neither a chosen
    part of a device nor chosen CPUs: that scheduler knows nothing of them."""
    known = state.shapes[shape]
    if known.scheduler in state.session_config.scheduler_names:
        return ""
    if not is_beside(state, shape):
        return SCHEDULER
    if state.mode.name != OBSERVE:
        # What is only observed needs no placeholder.
        if checks.verdict(state, known.scheduler) == checks.UNKNOWN:
            return NOT_CHECKED
        if thefts.rests_until(state):
            return HOLDS_STOLEN
    shares = known.devices is not None and known.devices.milli != WHOLE
    return NOT_CHOSEN if shares or known.cores is not None else ""


def named_slot(state: Maps, pod: PodObserved) -> SlotKey | None:
    """The slot whose placeholder a pod says it is; None where it says nothing, or is another log's."""
    said = pod.annotations.get(SLOT, "")
    if not said or not _may_stand(state, pod) or pod.owner is not None or pod.labels.get(LOG, "") != state.log:
        return None
    reservation, slash, slot = said.partition("/")
    return (ReservationUid(reservation), SlotName(slot)) if slash else None


def _may_stand(state: Maps, pod: PodObserved) -> bool:
    """Whether it is where only we may make such pods. Of a namespace of people's, their class says so: it is nobody else's to name (`restow-guard-priorities`)."""
    if pod.namespace in NAMESPACES:
        return True
    return pod.namespace in state.migration_config.claim_namespaces and state.shapes[pod.shape].priority_class.startswith(HOLD_CLASS)


def guard_of(id: MigrationId) -> SlotKey:
    """What the guard of a migration's old node is known by."""
    return (GUARD, SlotName(id))


def needs_placeholder(state: Maps, key: SlotKey, slot: Slot) -> bool:
    """Whether the slot is for a pod that another scheduler places: a migration's, or one of a Reservation that is held for that one."""
    if state.shapes[slot.shape].scheduler in state.session_config.scheduler_names or (record := state.reservations.get(key[0])) is None:
        return False
    migration = state.migrations.get(record.fact.migration)
    return (migration is not None and migration.reservation == key[0]) or bool(held_for(state, record))


def is_embodied(state: Maps, key: SlotKey, slot: Slot) -> bool:
    """Whether nothing but its capacity keeps a slot waiting."""
    if not needs_placeholder(state, key, slot):
        return True
    if (migration := _turned_back(state, key[0])) is not None:
        return guards(state, migration)
    pod = state.stand_ins.get(key)
    return pod is not None and stands(state.live_of(pod), slot) and not falls_short(state, key, pod, slot.shape)


def _turned_back(state: Maps, reservation: ReservationUid) -> Migration | None:
    """The migration whose slot on its old node this holds: its guard is the body."""
    record = state.reservations.get(reservation)
    migration = state.migrations.get(record.fact.migration) if record is not None else None  # type: ignore[call-overload]
    return migration if migration is not None and migration.back and migration.reservation == reservation else None


def body_of(state: Maps, key: SlotKey) -> PodUid | None:
    """The placeholder that stands in a slot."""
    migration = _turned_back(state, key[0])
    return state.stand_ins.get(key if migration is None else guard_of(migration.id))


def stands(live: PodChanged | None, slot: Slot) -> bool:
    """Whether a placeholder occupies its slot's node: its kubelet has taken it."""
    return live is not None and live.node == slot.node and live.phase == "Running" and not live.deleting


def falls_short(state: Maps, key: SlotKey, pod: PodUid, wanted: ShapeId) -> str:
    """What a placeholder lacks of what it is to hold, as a sentence: somebody's admission may have made it smaller, or less important than a pod that is
    moved (by one it may be: `nomination_checks`). Its scheduler would give the rest to others, or let them preempt it."""
    there, asked = state.shapes[state.pods[pod].fact.shape], state.shapes[wanted]
    for name, amount in asked.requests.items():
        if (has := there.requests.get(name, 0)) < amount:
            return f"somebody has changed its placeholder: it requests {format_resource(name, has)} of {name}, not {format_resource(name, amount)}"
    record = state.reservations.get(key[0])
    is_moves = key[0] == GUARD or (record is not None and record.fact.migration in state.migrations)
    if is_moves and there.priority < asked.priority - 1:
        return f"somebody has changed its placeholder: that has priority {there.priority}, not {asked.priority}"
    return ""


def has_fallen(live: PodChanged | None) -> bool:
    """Whether a placeholder is on its way out, or has ended."""
    return live is None or live.deleting > 0 or live.phase in OVER


def outlived(state: Maps, key: SlotKey, live: PodChanged) -> bool:
    """Whether a placeholder has ended by its own deadline although its Reservation goes on: that was made longer since, which no pod's deadline can be."""
    record = state.reservations.get(key[0])
    return live.phase == "Failed" and live.reason == ENDED_BY_DEADLINE and record is not None and record.alive and record.fact.migration not in state.migrations


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
    """Whether a slot is on a node, and nobody stands in it; or whether a guard is to be made, or nominated."""
    if key[0] == GUARD:
        return lacks_guard(state, state.migrations.get(MigrationId(key[1])))
    slot = state.slots.get(key[0], {}).get(key[1])
    if slot is None or key not in state.held_on.get(slot.node, ()) or key in state.to_release or key in state.stand_ins:
        return False
    return slot.capacity.complete and needs_placeholder(state, key, slot) and _turned_back(state, key[0]) is None


def is_idle(state: Maps, pod: PodUid) -> bool:
    """Whether a placeholder is of no use any more. Of a slot that was handed over it is deleted by `Land`, unless the successor is gone."""
    key, live = state.placeholders.get(pod), state.live_of(pod)
    if key is None or live is None or live.deleting:
        return False
    if key[0] == GUARD:
        return state.stand_ins.get(key) != pod or not may_guard(state, state.migrations.get(MigrationId(key[1])))
    slot = state.slots.get(key[0], {}).get(key[1])
    if slot is None or state.stand_ins.get(key) != pod:
        return True
    if slot.phase is SlotPhase.USED:
        return slot.pod not in state.to_land
    return key not in state.held_on.get(slot.node, ())


def is_to_land(state: Maps, pod: PodUid) -> bool:
    """Whether a slot was handed over to a pod that still has our gate, or has its placeholder beside it, and it is its turn: one after the other on each
    node, until it is bound. A nomination is charged beside the placeholder that it replaces, so that another one, let go meanwhile, would not fit."""
    return pod in state.to_land and _is_kept(state, pod) and pod == _turns(state, state.placed[pod].node)[state.placed[pod].node]


def _turns(state: Maps, node: NodeName | None = None) -> dict[NodeName, PodUid]:
    """Of each node, or of this one, whose turn it is there."""
    found: dict[NodeName, PodUid] = {}
    for pod in state.to_land:
        where = state.placed[pod].node
        if where not in found and (node is None or where == node) and _is_awaited(state, pod):
            found[where] = pod
    return found


def _is_awaited(state: Maps, pod: PodUid) -> bool:
    """Whether the next one on its node waits for it: while it has our gate, and, once its scheduler may bind it, for the moment that this takes."""
    return _is_kept(state, pod) or state.time < goes_astray(state, pod)


def _is_kept(state: Maps, pod: PodUid) -> bool:
    """Whether something of ours keeps a pod from the node that was handed over to it."""
    if state.pods[pod].fact.landing:
        return True
    body = placeholder_of(state, pod)
    return body is not None and not has_fallen(state.live_of(body))


def is_denominated(state: Maps, pod: PodUid, may_run: MayRun) -> bool:
    """Whether nothing of ours keeps a pod from the node that was handed over to it any more, and its nomination has gone. A kube-scheduler that fails to bind a
    pod, as while etcd does not answer, takes it away, tries the pod again after seconds, and on whichever node is best then."""
    fact, live = state.pods[pod].fact, state.live_of(pod)
    if live is None or live.node is not None or live.deleting or fact.nominated or _is_kept(state, pod):
        return False
    return may_run(state, fact.shape, state.placed[pod].node) and not _has_lost_its_place(state, pod)


def _has_lost_its_place(state: Maps, pod: PodUid) -> bool:
    """Whether others have the capacity by now that was handed over to it, so that its scheduler would take each nomination away, and look at all that wait each time.
    It is charged there still: then its node has less than nothing left, or a slot has given way whose placeholder stands there all the same."""
    node = state.placed[pod].node
    row = state.table.rows.get(node)
    if row is None:
        return False
    free, asked = state.table.free[row], state.vectors[state.pods[pod].fact.shape]
    if any(free[column] < 0 for column, _ in asked.items):
        return True
    lacking = ((key, slot) for key in state.waiting_on.get(node, ()) if _lacks(slot := state.slots[key[0]][key[1]], asked))
    return any((body := state.stand_ins.get(key)) is not None and stands(state.live_of(body), slot) for key, slot in lacking)


def _lacks(slot: Slot, asked: Vector) -> bool:
    """Whether a slot is short of something that is asked for. What else it is short of, as where a device has died, is nobody's but its own."""
    held = dict(slot.capacity.held)
    columns = {column for column, _ in asked.items}
    return any(held.get(column, 0) < amount for column, amount in slot.capacity.wanted if column in columns) or (
        asked.devices is not None and slot.capacity.held_devices != slot.capacity.devices
    )


# -- guards ------------------------------------------------------------------------------------------------------------------


ENDED_BY_DEADLINE = "DeadlineExceeded"
"""The reason that a kubelet gives of a pod whose activeDeadlineSeconds are over."""
_LEAVES = (Step.EVICTING, Step.ABORTING, Step.EVICTED)


def may_guard(state: Maps, migration: Migration | None) -> bool:
    """Whether its old node may be kept for it: from the decision to evict on, for while its pod is there, too, the scheduler counts both. Once a slot was
    handed over, not from the successor itself: who is let go and not bound where the slot was may need what the guard keeps."""
    if migration is None or migration.step not in _LEAVES or not migration.move.target or not is_beside(state, migration.shape):
        return False
    successor = migration.successor
    if not successor:
        return migration.move.source in state.nodes
    is_on_its_way = successor in state.to_land and _is_kept(state, successor)
    return is_on_its_way or (not migration.back and successor not in state.to_land)


def lacks_guard(state: Maps, migration: Migration | None) -> bool:
    """Whether a guard is to be made or nominated: until a slot is handed over."""
    if migration is None or migration.successor or not may_guard(state, migration) or guards(state, migration):
        return False
    # Who turns back to a node whose guard has gone after the pod is let go (`migration.holds.source_given_up`).
    return not (migration.back and migration.vacated) or guard_of(migration.id) in state.stand_ins


def guards(state: Maps, migration: Migration) -> bool:
    """Whether its old node is kept for it: there is a guard, and that is nominated."""
    key = guard_of(migration.id)
    pod = state.stand_ins.get(key)
    if pod is not None and falls_short(state, key, pod, migration.shape):
        return False
    return pod is not None and not has_fallen(state.live_of(pod)) and state.pods[pod].fact.nominated == migration.move.source


def nominated(state: Maps) -> list[PodUid]:
    """Guards that keep a node, as far as their schedulers know of their nominations."""
    return [pod for key, pod in state.stand_ins.items() if key[0] == GUARD and pod in state.pods and state.pods[pod].fact.nominated]


def is_kept_from(state: Maps, reservation: ReservationUid) -> bool:
    """Whether who turns back would not fit on its old node, for another pod of that node is to leave, and is still there beside its guard."""
    migration = _turned_back(state, reservation)
    if migration is None:
        return False
    others = (state.migrations[id] for id in state.active if id != migration.id)
    return any(
        other.move.source == migration.move.source and (charge := state.charges.get(other.move.pod)) is not None
        and charge.node == other.move.source and guard_of(other.id) in state.stand_ins
        for other in others
    )  # fmt: skip


def steps_aside_at(state: Maps, pod: PodUid) -> Millis:
    """When a guard that is idle may be deleted: its pod's successor, let go a moment ago, may be about to be bound where its slot was."""
    key = state.placeholders[pod]
    migration = state.migrations.get(MigrationId(key[1])) if key[0] == GUARD else None
    if migration is None or migration.step in FINAL or migration.back or migration.successor not in state.to_land:
        return Millis(0)
    return goes_astray(state, migration.successor)


def meets_guard(state: Maps, migration: Migration, others: Iterable[Migration]) -> bool:
    """Whether, if it began now, a guard would be nominated for a node where a placeholder is to be, its own or that of one of these: the scheduler
    counts both, and what is handed over there would not fit."""
    if not is_beside(state, migration.shape):
        return False
    move = migration.move
    return any(
        is_beside(state, other.shape) and other.id != migration.id and (other.move.source == move.target or other.move.target == move.source)
        for other in others
        if other.move.target
    )


# -- who was not bound ------------------------------------------------------------------------------------------------------


def astray(state: Maps, now: Millis) -> list[PodUid]:
    """Pods that a slot was handed over to, that their scheduler has not bound, and whose move is over: they are that scheduler's alone. Who got a slot of a
    Reservation is, when he has been free to be bound for a while."""
    return [uid for uid in state.to_land if uid not in state.successors and not (_has_slot(state, uid) and (state.pods[uid].fact.landing or now < goes_astray(state, uid)))]


def in_vain(state: Maps, may_run: MayRun) -> list[PodUid]:
    """Pods that wait for their turn on a node that takes nobody any more. They are gated still, so what was handed over to them is given back: their moves
    may turn back, and owners of Reservations go their way."""
    turns: dict[NodeName, PodUid] | None = None
    found = []
    for uid in state.to_land:
        fact, node = state.pods[uid].fact, state.placed[uid].node
        if fact.landing and not may_run(state, fact.shape, node):
            turns = _turns(state) if turns is None else turns
            if turns.get(node) != uid:
                found.append(uid)
    return found


def goes_astray(state: Maps, pod: PodUid) -> Millis:
    """Of one that its scheduler may bind. Since a time that is still to come by more than that: the clock was put back, and nobody waits until it is there again."""
    since = state.to_land[pod]
    return Millis(since + PATIENCE if since <= state.time + PATIENCE else 0)


def _has_slot(state: Maps, pod: PodUid) -> bool:
    """Of a Reservation that is held for its scheduler."""
    hold = state.placed[pod].hold
    record = state.reservations.get(hold[0]) if hold is not None else None
    return record is not None and bool(held_for(state, record))


def astray_at(state: Maps) -> Millis | None:
    """When the next of them is nobody's business any more."""
    return min((goes_astray(state, uid) for uid in state.to_land if uid not in state.successors and not state.pods[uid].fact.landing), default=None)


# -- what is owed ------------------------------------------------------------------------------------------------------------


def pending(state: Maps, touched: Touched | None, may_run: MayRun, owns: Callable[[PodUid], bool]) -> Iterator[Effect]:
    """`owns`: whether a gated pod may get a slot of a Reservation: the session says if not (`PodLetGo`)."""
    reservations = state.slots.keys() if touched is None else touched.reservations
    for uid in reservations:
        for name in state.slots.get(uid, ()):
            if lacks_placeholder(state, (uid, name)):
                yield CreatePlaceholder(uid, name)
    for id in state.active if touched is None else touched.migrations:
        if lacks_guard(state, state.migrations.get(id)):
            yield CreatePlaceholder(*guard_of(id))
    slots = [key for key in state.stand_ins if touched is None or key[0] in touched.reservations or (key[0] == GUARD and key[1] in touched.migrations)]
    pods: dict[PodUid, None] = dict.fromkeys(state.placeholders if touched is None else touched.pods)
    pods |= dict.fromkeys(state.stand_ins[key] for key in slots)
    for pod in pods:
        if is_idle(state, pod):
            yield DeletePlaceholder(pod)
    for node, pod in _turns(state).items():
        # Also of those who waited for the one before them on their node.
        if _is_kept(state, pod):
            yield Land(pod, node)
    for pod in state.to_land:
        # Also where it is another one that has given its place back.
        if is_denominated(state, pod, may_run):
            yield NominateAgain(pod, state.placed[pod].node)
    if state.gated:
        wanted = expected(state, may_run)
        for pod in state.gated:
            if pod not in wanted and not owns(pod) and state.pods[pod].fact.landing:
                yield LetGo(pod)


def owed(
    state: Maps, effect: CreatePlaceholder | DeletePlaceholder | Land | LetGo | NominateAgain, may_run: MayRun, owns: Callable[[PodUid], bool]
) -> bool:
    match effect:
        case CreatePlaceholder(reservation=uid, slot=name):
            return lacks_placeholder(state, (uid, name))
        case DeletePlaceholder(pod=pod):
            return is_idle(state, pod)
        case Land(pod=pod, node=node):
            return is_to_land(state, pod) and state.placed[pod].node == node
        case NominateAgain(pod=pod, node=node):
            return pod in state.to_land and state.placed[pod].node == node and is_denominated(state, pod, may_run)
        case LetGo(pod=pod):
            return pod in state.gated and state.pods[pod].fact.landing and pod not in expected(state, may_run) and not owns(pod)


def let_go_at(state: Maps, pod: PodUid, ahead: int = 0) -> Millis:
    """When a gated pod for which nothing is held may be let go: another installation's only when its entry has been over for a while, and one that the API has
    refused to let go a while after that. `ahead`: milliseconds by which the API server's clock, by which an entry ends, is ahead of ours. On an idle cluster no event says that it is so late, so that it is owed before, and waits for the clock."""
    known = state.not_let_go.get(pod)
    # Where the clock was put back, nobody waits until it is there again.
    again = known.until if known is not None and known.until <= state.time + LET_GO_AGAIN_LONGEST else Millis(0)
    forsaken = forsaken_at(state, state.pods[pod].fact)
    return max(Millis(forsaken - ahead if forsaken else 0), again)


def let_go_refused(state: Maps, pod: PodUid, reason: str, may_run: MayRun, owns: Callable[[PodUid], bool]) -> tuple[e.Event, ...]:
    """The API refuses to take our gate off a pod that is still to be let go."""
    return (e.LetGoRefused(pod, reason),) if owed(state, LetGo(pod), may_run, owns) else ()


def placeholder_of(state: Maps, pod: PodUid) -> PodUid | None:
    """Of the slot that was handed over to this pod, where it is to be deleted for it."""
    hold = state.placed[pod].hold if pod in state.placed else None
    there = body_of(state, hold) if hold is not None else None
    return None if there is None or checks.gives_way(state, there, pod) else there


def keeps_slot(state: Maps, key: SlotKey) -> bool:
    """Whether the slot on the target is kept although this is a guard that the API refuses: the pod is evicted already, so its successor needs the slot, and
    has no way back until the API takes a guard again."""
    migration = state.migrations.get(MigrationId(key[1])) if key[0] == GUARD else None
    return migration is not None and migration.step is Step.EVICTED and not migration.back


def lost_to(state: Maps, reservation: ReservationUid, slot: str, reason: str) -> tuple[e.Event, ...]:
    """The API refuses its placeholder, or the guard of its pod's old node: then nobody is evicted, so its slot is of no use."""
    key = (reservation, SlotName(slot))
    if not lacks_placeholder(state, key) or keeps_slot(state, key):
        return ()
    if reservation != GUARD:
        return (e.HoldReleased(*key, f"{REFUSED}: {reason}"),)
    held = state.migrations[MigrationId(slot)].reservation
    # Whoever nominates it may have been refused twice: what that has released is not released again.
    names = [name for name, slot in state.slots.get(held, {}).items() if slot.phase in ON_NODE and (held, name) not in state.to_release]
    return tuple(e.HoldReleased(held, name, f"{REFUSED}: {reason}") for name in names)
