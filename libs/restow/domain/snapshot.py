"""A state as bytes and back. What follows from something else (indexes, charges, masks) is not stored but made anew."""

from collections import Counter

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import (
    MigrationId,
    Millis,
    NodeName,
    PlanId,
    PodUid,
    ReservationUid,
    ShapeId,
    SlotName,
)
from restow.contracts.values import PodShape
from restow.domain import config, devices, promises
from restow.domain.evolve.migration import TAKEN
from restow.domain.evolve.objects import is_pending
from restow.domain.evolve.reservations import needs_review
from restow.domain.fold import FOLD_VERSION
from restow.domain.records import (
    FINAL,
    ON_NODE,
    Charge,
    Demand,
    Draw,
    GroupMoves,
    Leader,
    Left,
    Migration,
    Nomination,
    PhaseSince,
    Placement,
    Plan,
    PlanRoom,
    Refusal,
    Reservation,
    ReservationPhase,
    Search,
    Slot,
    Step,
    Victim,
    Waiting,
)
from restow.domain.state import OVER, ClusterState, Under
from restow.domain.table import Kind, vector_of


class SnapshotError(ValueError):
    """Bytes that are not a snapshot of this fold. Says what is expected; fold the log from the start instead."""


class _Image(msgspec.Struct, array_like=True, frozen=True):
    fold: int
    seq: int
    time: Millis
    last: dict[str, int]
    leaders: dict[str, Leader]
    configured: dict[str, str]
    configs: dict[str, str]
    synced: dict[str, str]
    columns: list[str]
    nodes: list[e.NodeObserved]
    shapes: dict[ShapeId, PodShape]
    pods: list[e.PodObserved]
    live: list[e.PodChanged]
    order: list[int]
    clock: int
    workloads: list[e.WorkloadObserved]
    pod_groups: list[e.PodGroupObserved]
    group_order: list[int]
    enqueued: list[tuple[str, str]]
    queues: list[e.QueueObserved]
    priority_classes: list[e.PriorityClassObserved]
    namespaces: list[e.NamespaceObserved]
    claims: list[e.ClaimObserved]
    volumes: list[e.VolumeObserved]
    storage_classes: list[e.StorageClassObserved]
    csi_nodes: list[e.CsiNodeObserved]
    numa: list[e.NumaObserved]
    unselected: dict[str, NodeName]
    unserved: dict[str, dict[NodeName, Millis]]
    placed: dict[PodUid, Placement]
    charges: dict[PodUid, Charge]
    queue: list[PodUid]
    parked: list[tuple[PodUid, str, Under]]
    waiting: dict[str, Waiting]
    nominations: dict[PodUid, Nomination]
    victims_of: dict[PodUid, Victim]
    stuck: dict[PodUid, Millis]
    reserved_tasks: dict[PodUid, NodeName]
    reservations: dict[ReservationUid, Reservation]
    slots: dict[ReservationUid, dict[SlotName, Slot]]
    phases: dict[ReservationUid, PhaseSince]
    to_release: list[tuple[ReservationUid, SlotName, str]]
    waiting_on: dict[NodeName, list[tuple[ReservationUid, SlotName]]]
    held_on: dict[NodeName, list[tuple[ReservationUid, SlotName]]]
    draws: dict[PodUid, Draw]
    drawers: list[tuple[ReservationUid, SlotName, list[PodUid]]]
    device_objects: list[e.DeviceObserved]
    plans: dict[PlanId, Plan]
    migrations: dict[MigrationId, Migration]
    cooling: dict[NodeName, int]
    cancelled: dict[PlanId, str]
    left_alone: list[tuple[str, NodeName, int]]
    evictions: dict[MigrationId, Millis]
    plan_rooms: dict[str, PlanRoom]
    group_moves: list[tuple[str, str, GroupMoves]]
    left: dict[str, tuple[Left, ...]]
    returned: dict[PodUid, int]
    found: list[tuple[str, NodeName, int]]
    timed_from: Millis
    marks: tuple[int, int, int, int, int]
    capacity_epoch: int
    void: dict[str, int]
    unknown: dict[str, int]
    events: int
    troubles: list[e.PodTroubled] = []
    budgets: list[e.BudgetObserved] = []
    quotas: list[e.QuotaObserved] = []
    demands: dict[str, Demand] = {}
    alone_since: list[tuple[str, NodeName, Millis]] = []
    log: str = ""
    refused: dict[PodUid, Refusal] = {}
    search: Search = Search()
    rows: list[NodeName] = []
    vacant: list[int] = []
    resized: dict[PodUid, ShapeId] = {}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Image)


def dump(state: ClusterState) -> bytes:
    """Everything that the log says, as MessagePack. Not inside a draft."""
    assert not state.drafting, "a draft is not a state"
    pods = list(state.pods)
    image = _Image(
        fold=FOLD_VERSION,
        seq=state.seq,
        time=state.time,
        last=state.last,
        leaders=state.leaders,
        configured=state.configured,
        configs={f: config.text_of(getattr(state, f"{f}_config")) for f in config.CONFIGS},
        synced=state.synced,
        columns=list(state.table.columns),
        nodes=list(state.nodes.values()),
        shapes=state.shapes,
        pods=list(state.pods.values()),
        live=[state.live[p] for p in pods],
        order=[state.order[p] for p in pods],
        clock=state.clock,
        workloads=list(state.workloads.values()),
        pod_groups=list(state.pod_groups.values()),
        group_order=[state.group_order[key] for key in state.pod_groups],
        enqueued=list(state.enqueued),
        queues=list(state.queues.values()),
        priority_classes=list(state.priority_classes.values()),
        namespaces=list(state.namespaces.values()),
        claims=list(state.claims.values()),
        volumes=list(state.volumes.values()),
        storage_classes=list(state.storage_classes.values()),
        csi_nodes=list(state.csi_nodes.values()),
        numa=list(state.numa.values()),
        unselected=state.unselected,
        unserved=state.unserved,
        placed=state.placed,
        charges=state.charges,
        queue=sorted(state.queue, key=state.order.__getitem__),
        parked=[(pod, *state.parked[pod]) for pod in sorted(state.parked, key=state.order.__getitem__)],
        waiting=state.waiting,
        nominations=state.nominations,
        victims_of=state.victims_of,
        stuck=state.stuck,
        reserved_tasks=state.reserved_tasks,
        reservations=state.reservations,
        slots=state.slots,
        phases=state.phases,
        to_release=[(uid, slot, reason) for (uid, slot), reason in state.to_release.items()],
        waiting_on={node: list(keys) for node, keys in state.waiting_on.items()},
        held_on={node: list(keys) for node, keys in state.held_on.items()},
        draws=state.draws,
        drawers=[(uid, slot, list(pods)) for (uid, slot), pods in state.drawers.items()],
        device_objects=list(state.device_objects.values()),
        plans=state.plans,
        migrations=state.migrations,
        cooling=state.cooling,
        cancelled=state.cancelled,
        left_alone=[(lineage, node, times) for (lineage, node), times in state.left_alone.items()],
        alone_since=[(lineage, node, at) for (lineage, node), at in state.alone_since.items()],
        evictions=state.evictions,
        plan_rooms=state.plan_rooms,
        group_moves=[(*group, moves) for group, moves in state.group_moves.items()],
        left=state.left,
        returned=state.returned,
        found=[(lineage, node, times) for (lineage, node), times in state.found.items()],
        timed_from=state.timed_from,
        marks=(state.snapshot_seq, state.archived, state.truncated, state.archive_first, state.shapes_kept),
        capacity_epoch=state.capacity_epoch,
        void=dict(state.void),
        unknown=dict(state.unknown),
        events=state.events,
        troubles=list(state.troubles.values()),
        budgets=list(state.budgets.values()),
        quotas=list(state.quotas.values()),
        demands=state.demands,
        refused=state.refused,
        resized=state.resized,
        log=state.log,
        search=state.search,
        rows=state.table.names,
        vacant=list(state.table.vacant),
    )
    return _encoder.encode(image)


def load(data: bytes) -> ClusterState:
    """The state that `dump` was given. Raises SnapshotError."""
    try:
        version = msgspec.msgpack.decode(data, type=list)[0] if len(data) < 64 else _peek(data)
        if version != FOLD_VERSION:
            raise SnapshotError(f"snapshot of fold version {version}; this is {FOLD_VERSION}: fold the log from the start")
        image = _decoder.decode(data)
        state = ClusterState()
        _plain(state, image)
        _capacity(state, image)
        _reservations(state, image)
        _nominations(state, image)
        # The counters of what has changed are made by loading, too.
        state.capacity_epoch = image.capacity_epoch
        _migrations(state)
        return state
    except SnapshotError:
        raise
    except (ValueError, LookupError, OverflowError) as error:
        # A flipped bit may still be MessagePack, and then names what is not there.
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}: {type(error).__name__} {error}") from error


def _peek(data: bytes) -> int:
    """The first element of a MessagePack array with 16-bit length, which is the fold version, a small integer."""
    if data[0] != 0xDC or data[3] > 0x7F:
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}")
    return data[3]


def _plain(state: ClusterState, image: _Image) -> None:
    state.seq, state.time, state.clock = image.seq, image.time, image.clock
    state.last.update(image.last)
    state.leaders.update(image.leaders)
    state.configured.update(image.configured)
    for family, text in image.configs.items():
        setattr(state, f"{family}_config", config.read(config.CONFIGS[family], text))
    state.synced.update(image.synced)
    state.shapes.update(image.shapes)
    uids = [p.pod for p in image.pods]
    state.pods = dict(zip(uids, image.pods, strict=True))
    state.live = dict(zip(uids, image.live, strict=True))
    state.order = dict(zip(uids, image.order, strict=True))
    state.workloads = {w.uid: w for w in image.workloads}
    _objects(state, image)
    state.placed.update(image.placed)
    state.binding = {uid: None for uid, p in state.placed.items() if p.volumes and uid in state.live and state.live[uid].node is None}
    state.queue = {uid: state.turn(uid) for uid in image.queue}
    for pod in image.pods:
        state.regroup(None, pod)
    for uid, key, under in image.parked:
        state.park(uid, key, under)
    state.waiting.update(image.waiting)
    state.plans.update(image.plans)
    state.migrations.update(image.migrations)
    state.cooling.update(image.cooling)
    state.cancelled.update(image.cancelled)
    state.left_alone = {(lineage, node): times for lineage, node, times in image.left_alone}
    state.alone_since = {(lineage, node): at for lineage, node, at in image.alone_since}
    state.evictions.update(image.evictions)
    state.plan_rooms.update(image.plan_rooms)
    state.group_moves = {(namespace, name): moves for namespace, name, moves in image.group_moves}
    state.left.update(image.left)
    state.returned.update(image.returned)
    state.found = {(lineage, node): times for lineage, node, times in image.found}
    state.demands.update(image.demands)
    state.refused.update(image.refused)
    state.resized.update(image.resized)
    state.timed_from = image.timed_from
    state.log, state.search = image.log, image.search
    state.snapshot_seq, state.archived, state.truncated, state.archive_first, state.shapes_kept = image.marks
    state.void, state.unknown, state.events = Counter(image.void), Counter(image.unknown), image.events


def _objects(state: ClusterState, image: _Image) -> None:
    for group, order in zip(image.pod_groups, image.group_order, strict=True):
        state.pod_groups[group.namespace, group.name] = group
        state.group_order[group.namespace, group.name] = order
    state.enqueued = dict.fromkeys(image.enqueued)
    for key, group in state.pod_groups.items():
        if key not in state.enqueued and is_pending(group):
            state.unqueued[key] = None
    state.queues = {q.name: q for q in image.queues}
    state.priority_classes = {c.name: c for c in image.priority_classes}
    state.namespaces = {n.name: n for n in image.namespaces}
    state.budgets = {f"{b.namespace}/{b.name}": b for b in image.budgets}
    state.quotas = {f"{q.namespace}/{q.name}": q for q in image.quotas}
    state.exceeded = {path: q for path, q in state.quotas.items() if q.exceeded}
    state.troubles = {t.pod: t for t in image.troubles}
    state.claims = {f"{c.namespace}/{c.name}": c for c in image.claims}
    state.volumes = {v.name: v for v in image.volumes}
    state.storage_classes = {c.name: c for c in image.storage_classes}
    state.csi_nodes = {n.node: n for n in image.csi_nodes}
    state.numa = {n.node: n for n in image.numa}
    state.device_objects = {d.node: d for d in image.device_objects}
    state.unselected.update(image.unselected)
    state.unserved.update(image.unserved)
    state.victims_of.update(image.victims_of)
    state.stuck.update(image.stuck)


def _nominations(state: ClusterState, image: _Image) -> None:
    """Charged as they were: what is free now was free then."""
    for pod, nomination in image.nominations.items():
        state.nominations[pod] = nomination
        state.nominated_on.setdefault(nomination.node, {})[pod] = None
        room = nomination.room
        if room.held or room.held_devices:
            row = state.table.rows[nomination.node]
            state.table.charge(row, vector_of(room.held), room.held_devices, 1, Kind.HELD)
    for pod, node in image.reserved_tasks.items():
        state.reserve(pod, node)


def _capacity(state: ClusterState, image: _Image) -> None:
    table = state.table
    for resource in image.columns:
        table.column(resource)
    if {node.name for node in image.nodes} != {name for name in image.rows if name}:
        raise ValueError("its rows are of other nodes")
    table.seat(image.rows, image.vacant)
    # Whoever follows rows by what changed has to hear of vacant ones, too: there may be no others.
    for row in image.vacant:
        state.changed_rows.append(row)
    for node in image.nodes:
        state.nodes[node.name] = node
        devices.set_node(state, node.name)
    for id, shape in state.shapes.items():
        state.vectors[id] = table.vector(shape.requests, shape.devices)
    state.charges.update(image.charges)
    for uid, charge in state.charges.items():
        state.on_node.setdefault(charge.node, {})[uid] = None
    state.charge_many(list(state.charges.values()), 1)
    for uid, live in state.live.items():
        if uid not in state.charges and live.phase not in OVER:
            where = state.node_of(uid)
            if where is not None:
                state.homeless[uid] = where
    state.capacity_epoch = image.capacity_epoch


def _reservations(state: ClusterState, image: _Image) -> None:
    state.reservations.update(image.reservations)
    state.phases.update(image.phases)
    state.to_release = {(uid, slot): reason for uid, slot, reason in image.to_release}
    for uid, slots in image.slots.items():
        state.slots[uid] = slots
        state.index_places(uid)
        record = state.reservations[uid]
        for name, slot in slots.items():
            if slot.phase in ON_NODE and slot.asked and (uid, name) not in state.to_release:
                state.resizes[uid, name] = None
        if uid in state.phases and state.phases[uid].phase is ReservationPhase.AVAILABLE and not record.over:
            state.available[uid] = None
        if needs_review(state, record):
            state.unreviewed[uid] = None
    state.unsettled.clear()
    # In the order in which they came, which says who gives way.
    for keys in image.held_on.values():
        for uid, name in keys:
            state.occupy((uid, name), state.slots[uid][name])
    state.waiting_on = {node: dict.fromkeys((uid, name) for uid, name in keys) for node, keys in image.waiting_on.items()}
    state.draws.update(image.draws)
    state.drawers = {(uid, name): dict.fromkeys(pods) for uid, name, pods in image.drawers}


def _migrations(state: ClusterState) -> None:
    for id, migration in state.migrations.items():
        if migration.step in FINAL:
            continue
        (state.backlog if migration.step is Step.PLANNED else state.active)[id] = None
        promises.settle(state, id)
        if migration.move.pod and migration.reason != TAKEN:
            state.victims[migration.move.pod] = id
        if migration.move.follows and migration.step is Step.PLANNED and not migration.move.pod:
            state.followers[migration.move.follows] = id
        if migration.successor:
            state.successors[migration.successor] = id
        elif migration.armed:
            state.armed.setdefault(migration.lineage, {})[id] = None
