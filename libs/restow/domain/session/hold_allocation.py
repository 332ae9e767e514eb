"""Whether a pod may run in place of a hold, and what it takes of it: the node's own rules, and capacity (RULES G-5, 004-1, 004-4)."""

from collections.abc import Iterable

from restow.contracts.events import PodObserved
from restow.contracts.values import DeviceShare
from restow.domain import resources as r
from restow.domain.device_choice import choose_of_hold
from restow.domain.node_table import NO_DEVICE, Vector
from restow.domain.predicates import repelled, static_mask, switches
from restow.domain.records import Reservation, Slot
from restow.domain.reservation.owner_matching import by_spec
from restow.domain.state import ClusterState
from restow.domain.unsaid_devices import is_share, rows


def may_run(state: ClusterState, pod: PodObserved, slot: Slot, equal: bool) -> bool:
    """Whether the hold's node does, capacity and what runs there aside. With `equal` specs (PodSpec) filter and score are skipped,
    except that the node exists, is ready, schedulable and tolerated; otherwise every rule is asked."""
    row, node = state.table.rows.get(slot.node), state.nodes.get(slot.node)
    if row is None or node is None or (pod.pinned_node and pod.pinned_node != slot.node):
        return False
    if equal:
        return node.ready and not repelled(state.shapes[pod.shape], node, switches(state))
    return bool(static_mask(state, pod.shape)[row])


def share_of(state: ClusterState, pod: PodObserved, slot: Slot, record: Reservation) -> tuple[DeviceShare, ...] | None:
    """The devices that the pod gets, of the hold first and the rest of its node; None where that does not suffice. What the
    policy names has to be in the hold: nothing of it (Aligned), the hold's resources (Restricted), all (Covering)."""
    row = state.table.rows[slot.node]
    v, held = state.vectors[pod.shape], dict(slot.capacity.held)
    free, equal = state.table.free[row].tolist(), by_spec(record)
    kept = _kept(state, v, slot, record)
    for column, amount in v.items:
        there = held.get(column, 0)
        # Equal specs need no capacity but what admission has added to the pod's (a LimitRange's defaults are not compared): that
        # must fit, or the hand-over would promise the same capacity twice.
        if (equal and amount <= there) or (column not in kept and free[column] + there >= amount):
            continue
        if column in kept and amount <= there:
            continue
        return None
    devices = _devices(state, row, v, slot, equal, state.table.columns.get(r.GPU_MILLI, -1) in kept)
    return devices if devices is None or equal or _takes_devices(state, v, slot, devices) else None


def _takes_devices(state: ClusterState, v: Vector, slot: Slot, devices: tuple[DeviceShare, ...]) -> bool:
    """Whether it would have anything of the hold, or asks for nothing: who has all from the node is no owner of it. (Of pods,
    the hold is one.)"""
    columns, held = state.table.columns, dict(slot.capacity.held)
    asked = [column for column, _ in v.items if column != columns.get(r.PODS)]
    of_hold = {d.index for d in slot.capacity.held_devices}
    amounts = any(held.get(column, 0) for column in asked if column != columns.get(r.GPU_MILLI))
    return not asked or amounts or any(d.index in of_hold for d in devices)


def _kept(state: ClusterState, v: Vector, slot: Slot, record: Reservation) -> frozenset[int]:
    """Columns of what may be had of the hold only. (Of pods, the hold is one.)"""
    spec = record.spec
    if spec is None or spec.allocate_policy == "Aligned":
        return frozenset()
    table = state.table
    columns: Iterable[int]
    if spec.allocate_policy == "Covering":
        columns = (column for column, _ in v.items)
    else:
        # Only what the slot itself holds: of a resource that another task's slots hold, all is the node's.
        own = {column for column, _ in state.vectors[slot.shape].items}
        named = {table.columns.get(r.canonical_resource(name), -1) for name in spec.restricted}
        columns = own & named if spec.restricted else own
    return frozenset(columns) - {table.columns.get(r.PODS, -1)}


def _devices(
    state: ClusterState, row: int, v: Vector, slot: Slot, equal: bool, only: bool
) -> tuple[DeviceShare, ...] | None:
    """Of the hold first (`device_choice.choose_of_hold`); who asks for just what the hold was made for gets just that. `only`: no others."""
    request = v.devices
    if request is None:
        return ()
    if is_share(request) and rows(state)[row]:
        return None
    shares = state.table.device_free[row].tolist()
    held = {d.index: d.milli for d in slot.capacity.held_devices}
    if request == state.vectors[slot.shape].devices and held == {d.index: d.milli for d in slot.devices}:
        # A device that the node has lost meanwhile is nobody's; one that facts have over-committed fits nothing.
        least = NO_DEVICE // 2 if equal else 0
        if all(d.index < len(shares) and shares[d.index] >= least for d in slot.devices):
            return slot.devices
    return choose_of_hold(shares, held, request, only)
