"""Facts: what the Kubernetes API says is."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, PodUid, ShapeId
from restow.contracts.values import PodShape
from restow.domain import groups, usable_devices
from restow.domain.beside import (
    GUARD,
    PLACEHOLDER,
    REFUSED,
    STOLEN,
    falls_short,
    has_fallen,
    named_slot,
    outlived,
)
from restow.domain.evolve import bounces, changed_places, demand_slots, rejections
from restow.domain.evolve.lost_nodes import lose_node
from restow.domain.evolve.objects import more_may_go
from restow.domain.evolve.reservation_slots import ask, cancel, forget_if_over, note_review, rephase
from restow.domain.evolve.rules import Rules, void
from restow.domain.hooks import REQUESTED
from restow.domain.other_schedulers import other_log
from restow.domain.pod_controllers import asks_same, is_deleted, is_last, known_owner
from restow.domain.pods import Pod
from restow.domain.protection import asked_to_stay
from restow.domain.records import FINAL, Reservation, Slot, SlotPhase, hold_name
from restow.domain.slots import SlotKey
from restow.domain.state import OVER, ClusterState
from restow.domain.verdicts import JOB_ENDED, OWNER_GONE, POD_DONE


def synced(state: ClusterState, event: e.Synced) -> None:
    state.put(state.synced, event.kind, event.version)


def node_observed(state: ClusterState, event: e.NodeObserved) -> None:
    known = state.nodes.get(event.name)
    if known is not None and known.uid != event.uid:
        lose_node(state, event.name)
    if event.marks or (known is not None and known.marks) or event.name in state.emptied:
        state.touched.nodes[event.name] = None
    state.put(state.nodes, event.name, event)
    usable_devices.set_node(state, event.name)
    rejections.changed_on(state, event.name)
    state.capacity_epoch += 1
    housed = [pod for pod, node in state.homeless.items() if node == event.name]
    for pod in sorted(housed, key=state.order_of):
        state.settle(pod)
    state.squeeze(event.name)
    state.top_up(event.name)


def node_gone(state: ClusterState, event: e.NodeGone) -> None:
    if event.name not in state.nodes:
        void(state, event)
        return
    lose_node(state, event.name)


def shape_declared(state: ClusterState, event: e.ShapeDeclared) -> None:
    state.declare(event.shape, event.spec)


def pod_observed(state: ClusterState, event: e.PodObserved) -> None:
    _known(state, event.shape, "cluster.pod_observed")
    uid = event.pod
    before, waited = state.pods.get(uid), event.pod in state.parked
    known = None if before is None else before.fact
    if known is None:
        state.clock += 1
        _touch_awaited(state, event)
        if (key := named_slot(state, event)) is not None:
            state.put(state.placeholders, uid, key)
            if key not in state.stand_ins:
                state.put(state.stand_ins, key, uid)
    else:
        # Whatever is described may be what a rule reads: it is considered anew, in its old turn.
        state.unpark(uid)
        state.drop(state.queue, uid)
        if uid in state.charges and (known.labels, known.annotations) != (event.labels, event.annotations):
            state.capacity_epoch += 1  # somebody may wait for company with these labels, or for one more of its gang
        _resized(state, known, event)
    state.regroup(known, event)
    live = event.moving()
    state.put(state.pods, uid, Pod(event, live, state.clock if before is None else before.order))
    if (asked := event.annotations.get(REQUESTED)) in state.migrations:
        state.touched.migrations[MigrationId(asked)] = None  # its request is seen, or is to be taken off
    if uid in state.victims_of and asked_to_stay(event):
        # A veto counts as long as the API has not been asked (RULES G-11).
        state.drop(state.victims_of, uid)
    _move(state, live, None if before is None else before.live)
    if waited and uid not in state.queue:
        _waits_no_more(state)


def _resized(state: ClusterState, known: e.PodObserved, event: e.PodObserved) -> None:
    """Its controller's template says what it was made with."""
    now, made_with = state.shapes[event.shape], state.resized.get(event.pod, known.shape)
    first = state.shapes.get(made_with)
    if first is not None and asks_same(first, now):
        state.drop(state.resized, event.pod)
    elif event.shape != known.shape:
        state.put(state.resized, event.pod, made_with)


def _touch_awaited(state: ClusterState, event: e.PodObserved) -> None:
    """A move that turned back may have waited for somebody to say what is to be held."""
    for id in state.armed.get(state.lineage(event), ()) if state.armed else ():
        if state.migrations[id].back:
            state.touched.migrations[id] = None


def _known(state: ClusterState, shape: ShapeId, name: str) -> None:
    """Only a truncated or foreign log names a shape that it has not declared: then nothing is asked for."""
    if shape not in state.shapes:
        state.void[name] += 1
        shape_declared(state, e.ShapeDeclared(shape, PodShape(requests={"pods": 1})))


def pod_changed(state: ClusterState, event: e.PodChanged) -> None:
    known = state.pods.get(event.pod)
    if known is None:
        void(state, event)
        return
    state.put(state.pods, event.pod, Pod(known.fact, event, known.order))
    _move(state, event, known.live)


def _waits_no_more(state: ClusterState) -> None:
    """A pod that was looked at has ended or is gated now: what it asked for kept a share for its queue, and others may have that."""
    state.capacity_epoch += 1


def _move(state: ClusterState, live: e.PodChanged, before: e.PodChanged | None) -> None:
    uid = live.pod
    waited = uid in state.parked
    if live.node is not None and uid in state.successors and (before is None or before.node is None):
        changed_places.bound(state, uid, live.node)
    if state.left and live.node is not None and (before is None or before.node is None):
        bounces.seen_on(state, uid, live.node)
    group = groups.group_of(state.pods[uid].fact)
    if group is not None:
        state.touched.groups[group] = None
    if live.deleting or live.phase in OVER:
        state.drop(state.victims_of, uid)
        _arm(state, uid)
        if live.deleting and live.phase == "Succeeded" and uid in state.victims:
            _ended_well(state, uid)
        if live.phase == "Failed" and not live.deleting:
            _rearm(state, uid)
        elif live.deleting and live.node is not None and (before is None or not before.deleting):
            _next_follows(state, uid)
    elif live.ready and uid in state.successors:
        _arrive(state, live)
    elif before is not None and before.ready and not live.ready and any(budget.unready for budget in state.budgets.values()):
        more_may_go(state)
    if live.node is not None and before is not None and before.node is None:
        # Before it was bound it was nobody's victim.
        more_may_go(state)
    _settle(state, uid)
    rejections.seen(state, live, before)
    state.requeue(uid)
    if waited and uid not in state.parked:
        _waits_no_more(state)
    if uid in state.placeholders:
        _embody(state, uid, live)
    _touch(state, uid)


def _ended_well(state: ClusterState, uid: PodUid) -> None:
    """It was told to go, and went with success: its Job takes that for what it was to do."""
    pod = state.pods[uid].fact
    known = known_owner(pod)
    if pod.owner is not None and pod.owner.uid in state.workloads and known is not None and known.again == "retries":
        state.put(state.ended_well, pod.owner.uid, None)
        migration = state.migrations[state.victims[uid]]
        state.put(state.migrations, migration.id, replace(migration, done=POD_DONE))


def _settle(state: ClusterState, uid: PodUid) -> None:
    """What it is charged, and, where a device is somebody's whom nobody knows, that something has changed there."""
    before = state.charges.get(uid)
    state.settle(uid)
    now = state.charges.get(uid)
    for charge in (before, now) if state.refusing and (before is None) != (now is None) else ():
        if charge is not None:
            rejections.changed_on(state, charge.node)


def _embody(state: ClusterState, uid: PodUid, live: e.PodChanged | None) -> None:
    """A slot is ready once its placeholder runs on its node, and lost with it."""
    key = state.placeholders[uid]
    if key[0] == GUARD:
        _guard(state, MigrationId(key[1]))
        return
    slot = state.slots.get(key[0], {}).get(key[1])
    if slot is None or key not in state.held_on.get(slot.node, ()) or state.stand_ins.get(key) != uid:
        return
    state.touched.reservations[key[0]] = None
    if (live is not None and outlived(state, key, live)) or (slot.body == uid and has_fallen(live)):
        # The place is as it was, and another one is to stand in it. Of one that was deleted for a successor, which has gone, nobody is to be blamed.
        state.drop(state.stand_ins, key)
        slot = replace(slot, phase=SlotPhase.WAITING, reason=PLACEHOLDER, body=PodUid(""))
        state.put_slot(key, slot)
        state.note_waiting(key, slot)
        rephase(state, key[0])
    elif has_fallen(live) or (live is not None and live.node not in (None, slot.node)):
        _disembody(state, key, STOLEN)
    elif short := falls_short(state, key, uid, slot.shape):
        _disembody(state, key, f"{REFUSED}: {short}")
    elif slot.phase is SlotPhase.WAITING:
        state.note_waiting(key, slot)


def _disembody(state: ClusterState, key: SlotKey, why: str) -> None:
    """What is held by name is not held for its scheduler any more: it is to be released."""
    if key not in state.to_release:
        state.put(state.to_release, key, why)
        state.moved.append(key)
        rephase(state, key[0])


def _guard(state: ClusterState, id: MigrationId) -> None:
    """Whether the old node of a move is kept for it is another thing now, and with it whether its slot there is ready."""
    state.touched.migrations[id] = None
    migration = state.migrations.get(id)
    if migration is None or not migration.back:
        return
    for name, slot in state.slots.get(migration.reservation, {}).items():
        if slot.phase is SlotPhase.WAITING:
            state.note_waiting((migration.reservation, name), slot)


def pod_troubled(state: ClusterState, event: e.PodTroubled) -> None:
    if event.pod not in state.pods:
        void(state, event)
    elif event.containers or event.conditions:
        state.put(state.troubles, event.pod, event)
    else:
        state.drop(state.troubles, event.pod)


def pod_gone(state: ClusterState, event: e.PodGone) -> None:
    uid = event.pod
    known = state.pods.get(uid)
    if known is None:
        void(state, event)
        return
    _arm(state, uid)
    _vacated(state, uid)
    if uid in state.parked:
        _waits_no_more(state)
    if known.live.node is not None and not known.live.deleting:
        _next_follows(state, uid)
    state.drop(state.pods, uid)
    _settle(state, uid)
    state.drop(state.placed, uid)
    state.drop(state.victims_of, uid)
    state.drop(state.stuck, uid)
    state.drop(state.troubles, uid)
    state.drop(state.returned, uid)
    state.drop(state.refused, uid)
    state.drop(state.resized, uid)
    state.requeue(uid)
    _touch(state, uid)
    group = groups.group_of(known.fact)
    if group is not None:
        state.touched.groups[group] = None
    state.regroup(known.fact, None)
    if uid in state.placeholders:
        _embody(state, uid, None)
        key = state.drop(state.placeholders, uid)
        if state.stand_ins.get(key) == uid:
            state.drop(state.stand_ins, key)
            state.touched.reservations[key[0]] = None


def _touch(state: ClusterState, uid) -> None:
    state.touched.pods[uid] = None
    migration = state.victims.get(uid) or state.successors.get(uid)
    if migration is not None:
        state.touched.migrations[migration] = None


def _arm(state: ClusterState, uid) -> None:
    """The victim's end is a fact: from here on its successor may take the hold (DESIGN 5)."""
    id = state.victims.get(uid)
    migration = state.migrations.get(id) if id is not None else None
    if migration is None or migration.armed or migration.step in FINAL or not migration.lineage:
        return
    state.put(state.migrations, id, replace(migration, armed=state.clock))
    state.put_in(state.armed, migration.lineage, id)


def _vacated(state: ClusterState, uid) -> None:
    """Its landing has as long as it may take from here on (RULES G-14)."""
    id = state.victims.get(uid)
    migration = state.migrations.get(id) if id is not None else None
    if migration is not None and migration.step not in FINAL:
        state.put(state.migrations, id, replace(migration, vacated=state.time))


def _arrive(state: ClusterState, live: e.PodChanged) -> None:
    """The successor is ready where it was to go. Whoever deletes it after that does not get its hold back, however late the
    descheduler looks."""
    migration = state.migrations[state.successors[live.pod]]
    if live.node == migration.move.target and not migration.arrived:
        state.put(state.migrations, migration.id, replace(migration, arrived=True))


def _next_follows(state: ClusterState, uid) -> None:
    """A successor that was bound goes before it was ready: where its migration turns back, it is those who come after it that may follow."""
    id = state.successors.get(uid)
    migration = state.migrations.get(id) if id is not None else None
    if migration is not None and not migration.arrived and migration.step not in FINAL:
        state.put(state.migrations, id, replace(migration, asked=state.clock))


def _rearm(state: ClusterState, uid) -> None:
    """A kubelet rejected the successor: the hold may be taken again by the next one. The session holds the slot anew."""
    id = state.successors.get(uid)
    migration = state.migrations.get(id) if id is not None else None
    if migration is None or migration.step in FINAL or migration.arrived:
        return
    state.drop(state.successors, uid)
    state.put(state.migrations, id, replace(migration, successor="", armed=state.clock))
    state.put_in(state.armed, migration.lineage, id)
    for name, slot in list(state.slots.get(migration.reservation, {}).items()):
        if slot.phase is SlotPhase.USED and slot.pod == uid:
            ask(state, migration.reservation, name, Slot(slot.shape, slot.task))
    rephase(state, migration.reservation)


def workload_observed(state: ClusterState, event: e.WorkloadObserved) -> None:
    known = state.workloads.get(event.uid)
    state.put(state.workloads, event.uid, event)
    if event.owner != (known.owner if known is not None else None):
        state.parkings.forget()
        state.capacity_epoch += 1  # pods that wait may turn out to be somebody's owner
        for pod in list(state.owned.get(event.uid, ())) if state.armed else ():
            # Or to follow one that was evicted, as those of a Deployment's next ReplicaSet.
            state.requeue(pod)
            _touch_awaited(state, state.pods[pod].fact)
    for migration in [state.migrations[id] for id in state.active]:
        if migration.came_before and not migration.told and migration.lineage.partition("/")[0] == event.uid:
            state.put(state.migrations, migration.id, replace(migration, told=True))
            state.touched.migrations[migration.id] = None


def workload_gone(state: ClusterState, event: e.WorkloadGone) -> None:
    known = state.drop(state.workloads, event.uid)
    if known is None:
        void(state, event)
        return
    state.drop(state.ended_well, event.uid)
    for migration in [state.migrations[id] for id in state.active]:
        # Whoever its pods are left to (`--cascade=orphan`) makes pods of another lineage.
        is_gone = is_deleted(known) and migration.lineage.partition("/")[0] == event.uid
        ended = JOB_ENDED if migration.job == event.uid and is_last(known) else OWNER_GONE if is_gone else ""
        if ended and not migration.done:
            state.put(state.migrations, migration.id, replace(migration, done=ended))
            state.touched.migrations[migration.id] = None


def reservation_observed(state: ClusterState, event: e.ReservationObserved) -> None:
    uid = event.reservation
    for task in () if event.spec is None else event.spec.tasks:
        _known(state, task.shape, "cluster.reservation_observed")
    known = state.reservations.get(uid)
    if known is None:
        state.clock += 1
        record = Reservation(fact=event, order=state.clock)
        state.put(state.slots, uid, {})
        migration = state.migrations.get(event.migration)
        ours = migration is not None and (event.namespace, event.name) == (migration.move.namespace, hold_name(migration))
        if migration is not None and ours and not migration.reservation and not other_log(state, event):
            state.put(state.migrations, migration.id, replace(migration, reservation=uid))
            state.touched.migrations[migration.id] = None
    else:
        record = _observed_again(known, event)
    state.put(state.reservations, uid, record)
    if state.demand_slots:
        demand_slots.observed(state, event)
    note_review(state, uid)
    if event.deleting:
        cancel(state, uid, "Deleted")
    rephase(state, uid)


def _observed_again(known: Reservation, event: e.ReservationObserved) -> Reservation:
    """What it asks for follows from its labels and annotations, too, which make no new generation: then it is reviewed again."""
    if known.fact.generation != event.generation:
        return replace(known, fact=event, revision=0, reviewed=0)
    other = (known.fact.spec, known.fact.invalid) != (event.spec, event.invalid)
    return replace(known, fact=event, revision=known.revision + other)


def reservation_gone(state: ClusterState, event: e.ReservationGone) -> None:
    known = state.reservations.get(event.reservation)
    if known is None:
        void(state, event)
        return
    state.put(state.reservations, event.reservation, replace(known, gone=True))
    if state.demand_slots:
        demand_slots.gone(state, event.reservation)
    state.drop(state.unreviewed, event.reservation)
    cancel(state, event.reservation, "Deleted")
    forget_if_over(state, event.reservation)


RULES: Rules = {
    e.Synced: synced,
    e.NodeObserved: node_observed,
    e.NodeGone: node_gone,
    e.ShapeDeclared: shape_declared,
    e.PodObserved: pod_observed,
    e.PodChanged: pod_changed,
    e.PodTroubled: pod_troubled,
    e.PodGone: pod_gone,
    e.WorkloadObserved: workload_observed,
    e.WorkloadGone: workload_gone,
    e.ReservationObserved: reservation_observed,
    e.ReservationGone: reservation_gone,
}
