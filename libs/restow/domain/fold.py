"""The fold: one commit after another into the `ClusterState`. The same for all services and for replay.

A record that is not ours is void as a whole (`restow.domain.trust`). `evolve` is total: an event about something that has vanished changes nothing and is counted as void; a type that is not
known is counted as unknown. A run of placements in one commit is folded in a vectorised form, which a property test holds
equal to the single-event form.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from restow.contracts.codec import Decision
from restow.contracts.envelope import Envelope
from restow.contracts.events import PodPlaced, Unknown
from restow.contracts.ids import Millis, ShapeId
from restow.contracts.values import DeviceShare
from restow.domain import evolve, trust
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.evolve.reservations import note_review, settle_phases
from restow.domain.evolve.shapes import forget_shapes
from restow.domain.records import Charge, Placement
from restow.domain.state import ClusterState
from restow.domain.table import Vector
from restow.domain.trust import Examined

FOLD_VERSION = 6
"""Changes when the fold changes its meaning; snapshots of another version are folded anew."""

BULK = 16
"""From this many placements in one decision on, the vectorised form is the faster one."""

_EVOLVE: dict[type, Callable[[ClusterState, Any], None]] = evolve.TABLE


def fold_record(state: ClusterState, seq: int, family: str, envelope: Envelope, body: bytes, log_id: str = "") -> Examined:
    """Fold one record of the log `log_id`, or pass over it where it is not ours; says which. For every reader the same."""
    found = trust.examine(family, envelope, body, log_id)
    if found.kind:
        pass_over(state, seq, family, found.kind)
    else:
        _is_of(state, envelope.log or log_id)
        _fold(state, seq, family, found.time, found.decisions)
    return found


def _is_of(state: ClusterState, log: str) -> None:
    """The record is of this log: what was made for another is not ours."""
    if log and state.log != log:
        state.log = log
        for uid in state.reservations:
            note_review(state, uid)
            state.reviewed.append(uid)


def pass_over(state: ClusterState, seq: int, family: str, kind: str) -> None:
    """A record that is not ours: void, and counted as `kind`. It stands in its family's order all the same, and the family's
    next append has to name it. Time stays: nobody of ours has said this one."""
    state.seq = seq
    if family in state.last:
        state.last[family] = seq
    state.void[kind] += 1


def fold(state: ClusterState, seq: int, family: str, time: Millis, decisions: Sequence[Decision]) -> None:
    """Fold one decoded commit, unless it says what is not its family's to say. `time` is the envelope's, in milliseconds."""
    if trust.foreign_event(family, decisions):
        pass_over(state, seq, family, trust.OTHER_FAMILY)
    else:
        _fold(state, seq, family, time, decisions)


def _fold(state: ClusterState, seq: int, family: str, time: Millis, decisions: Sequence[Decision]) -> None:
    state.seq = seq
    state.time = time
    state.last[family] = seq
    for decision in decisions:
        apply(state, decision.events)
    if family == "cluster":
        forget_shapes(state)
    for changes in (state.moved, state.changed_rows, state.objects, state.reviewed, state.parkings, state.table.dirty):
        changes.trim()


def apply(state: ClusterState, events: Sequence[Any]) -> None:
    """Fold events in order."""
    if len(events) >= BULK and not state.drafting:
        at = 0
        while at < len(events):
            end = at
            while end < len(events) and type(events[end]) is PodPlaced:
                end += 1
            if end - at >= BULK:
                place_many(state, events[at:end])
                at = end
            else:
                evolve_one(state, events[at])
                at += 1
        return
    for event in events:
        evolve_one(state, event)


def evolve_one(state: ClusterState, event: Any) -> None:
    """Fold one event."""
    state.events += 1
    rule = _EVOLVE.get(type(event))
    if rule is None:
        if isinstance(event, Unknown):
            state.unknown[event.name] += 1
            return
        raise TypeError(f"no rule folds {type(event).__name__}; add it to restow.domain.evolve")
    rule(state, event)
    if state.unsettled:
        settle_phases(state)


def place_many(state: ClusterState, events: Sequence[PodPlaced]) -> None:
    """`evolve_one` for each of these, with one charge of the table for each run of simple ones: a pod that waits, on a
    node that exists, with its devices named. Any other sees a table that is charged up to it."""
    rows: list[int] = []
    vectors: list[Vector] = []
    devices: list[tuple[DeviceShare, ...]] = []
    asked: Counter[tuple[str, ShapeId]] = Counter()
    table_rows, shapes, pods, now = state.table.rows, state.vectors, state.pods, state.time
    placed, charges, on_node, queue = state.placed, state.charges, state.on_node, state.queue
    touched, moved = state.touched, state.moved.append

    def charge() -> None:
        if rows:
            state.table.charge_many(rows, vectors, devices)
            if state.held_on or state.nominated_on:
                for node in dict.fromkeys(state.table.names[row] for row in rows):
                    state.squeeze(node)
                settle_phases(state)
            for (name, shape), times in asked.items():
                state.accounts.add(name, shapes[shape], times)
                touched.queues[name] = None
            asked.clear()
            for kept in (rows, vectors, devices):
                kept.clear()
            if state.sociable:
                state.capacity_epoch += 1

    for event in events:
        pod = event.pod
        row = table_rows.get(event.node)
        if row is None or pod not in queue or not _simple(state, event):
            charge()
            evolve_one(state, event)
            continue
        del queue[pod]
        state.events += 1
        observed, share = pods[pod], event.devices
        shape = observed.shape
        rows.append(row)
        vectors.append(shapes[shape])
        devices.append(share)
        account = state.queue_of(observed) if observed.annotations else DEFAULT_QUEUE
        asked[account, shape] += 1
        placed[pod] = Placement(event.node, share, None, now)
        charges[pod] = Charge(event.node, shape, share, False, account)
        there = on_node.get(event.node)
        if there is None:
            on_node[event.node] = {pod: None}
        else:
            there[pod] = None
        moved(pod)
        touched.pods[pod] = None
    charge()


def _simple(state: ClusterState, event: PodPlaced) -> bool:
    """Whether a pod of the queue (so it is ours, waits, and nothing is charged or held for it) is reserved nowhere, and the
    event alone says what is charged."""
    pod = event.pod
    if event.volumes or event.cores or pod in state.reserved_tasks or state.live[pod].devices or event.node in state.waiting_on:
        return False
    return bool(event.devices) or state.shapes[state.pods[pod].shape].devices is None
