"""A node in full: what it has and what of it is free, who is on it, for whom capacity is held there, which moves concern it, and what we have set on it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from restow.contracts.events import NodeObserved
from restow.contracts.ids import Millis, NodeName
from restow.contracts.values import DeviceShare, Taint
from restow.domain.claim_devices import claim_devices, users
from restow.domain.node_table import NO_DEVICE
from restow.domain.records import FINAL
from restow.domain.resources import PODS
from restow.domain.state import ClusterState
from restow.replay.find import Subject, find
from restow.replay.holds import by_name, pod_name, reservation_name
from restow.replay.pod_status import pod_status
from restow.replay.source import Source
from restow.replay.state_at import Progress, check_whole, no_progress, state_at

Amounts = dict[str, int]


class Resource(msgspec.Struct):
    """In canonical units (cpu in thousandths, bytes). `free` is what a pod may still have: `allocatable` less `used` and `reserved` (by holds). `releasing` is the
    part of `used` whose pods terminate."""

    name: str
    allocatable: int
    used: int
    reserved: int
    releasing: int
    free: int


class Device(msgspec.Struct):
    """`free` in thousandths. `used` and `held`: who has which part of it, by name."""

    index: int
    free: int
    used: dict[str, int]
    held: dict[str, int]


class ClaimDevice(msgspec.Struct):
    """A device that a driver publishes for ResourceClaims. `state`: why nobody can have it, empty for a free one. `claims` have it, and `pods` may use it, by `namespace/name`."""

    driver: str
    pool: str
    name: str
    state: str
    claims: tuple[str, ...]
    pods: tuple[str, ...]
    attributes: dict[str, str]


class OnNode(msgspec.Struct):
    """A pod, by `namespace/name`, and what it requests; or a `slot` of a Reservation, and what is held there now."""

    name: str
    status: str
    requests: Amounts
    devices: tuple[DeviceShare, ...]
    cores: tuple[int, ...]
    slot: str = ""


class MoveHere(msgspec.Struct):
    """A move that is not over. `way`: `to` the node, or `from` it; `other`: where it comes from or goes."""

    migration: str
    way: str
    other: str
    pod: str
    step: str
    since: Millis


class DescribedNode(msgspec.Struct):
    """`gone`: the node is no more, and all else is empty. `marks`: annotations by which Restow says what it has set on it."""

    subject: Subject
    seq: int
    time: Millis
    gone: bool = False
    ready: bool = False
    unschedulable: bool = False
    unreadable: str = ""
    do_not_disrupt: bool = False
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    marks: dict[str, str] = {}
    resources: list[Resource] = []
    devices: list[Device] = []
    claim_devices: list[ClaimDevice] = []
    pods: list[OnNode] = []
    holds: list[OnNode] = []
    nominated: list[str] = []
    moves: list[MoveHere] = []


def described_node(source: Source, text: str, progress: Progress = no_progress) -> DescribedNode:
    """`text` as in `restow why`, with `node/`. Raises NotFound, Ambiguous, ReplayError."""
    check_whole(source)
    subject = find(source, text)
    return describe_node(state_at(source, progress=progress), subject)


def describe_node(state: ClusterState, subject: Subject) -> DescribedNode:
    name = NodeName(subject.name)
    fact = state.nodes.get(name)
    if fact is None:
        return DescribedNode(subject, state.seq, state.time, gone=True)
    pods, holds = list(_pods(state, name)), list(_holds(state, name))
    nominated = sorted(pod_name(state, uid) for uid in state.nominated_on.get(name, ()))
    return DescribedNode(
        subject, state.seq, state.time, False, fact.ready, fact.unschedulable, fact.unreadable, fact.do_not_disrupt, fact.labels, fact.taints, fact.marks,
        _resources(state, fact), _devices(state, name, pods, holds), _claim_devices(state, name), pods, holds, nominated, list(_moves(state, name)),
    )  # fmt: skip


def _resources(state: ClusterState, fact: NodeObserved) -> list[Resource]:
    table = state.table
    row = table.rows[fact.name]
    columns = (table.allocatable, table.used, table.reserved, table.releasing, table.free)
    return [Resource(name, *(int(of[row, at]) for of in columns)) for name, at in table.columns.items() if table.allocatable[row, at] or table.used[row, at]]


def _pods(state: ClusterState, node: NodeName) -> Iterator[OnNode]:
    found = [(state.pods[uid].fact, uid) for uid in state.on_node.get(node, ())]
    for fact, uid in sorted(found, key=lambda one: (one[0].namespace, one[0].name, one[1])):
        charge = state.charges.get(uid)
        requests = {name: amount for name, amount in state.shapes[fact.shape].requests.items() if name != PODS}
        devices, cores = (charge.devices, charge.cores) if charge is not None else (state.pods[uid].live.devices, ())
        yield OnNode(f"{fact.namespace}/{fact.name}", pod_status(state, uid), requests, devices, cores)


def _holds(state: ClusterState, node: NodeName) -> Iterator[OnNode]:
    for uid, slot_name in sorted(state.held_on.get(node, ()), key=lambda key: (reservation_name(state, key[0]), key[1])):
        slot = state.slots[uid][slot_name]
        held = by_name(state, slot.capacity.held)
        yield OnNode(reservation_name(state, uid), str(slot.phase), held, slot.capacity.held_devices, slot.capacity.cores, slot_name)


def _devices(state: ClusterState, node: NodeName, pods: list[OnNode], holds: list[OnNode]) -> list[Device]:
    free = state.table.device_free[state.table.rows[node]].tolist()
    return [
        Device(index, share, _parts(pods, index), _parts(holds, index))
        for index, share in enumerate(free) if share != NO_DEVICE
    ]  # fmt: skip


def _claim_devices(state: ClusterState, node: NodeName) -> list[ClaimDevice]:
    return [
        ClaimDevice(one.driver, one.pool, one.name, one.state, one.claims, users(state, one.claims), dict(sorted(one.attributes.items())))
        for one in claim_devices(state).on(node)
    ]  # fmt: skip


def _parts(of: list[OnNode], index: int) -> dict[str, int]:
    return {f"{one.name}{'/' * bool(one.slot)}{one.slot}": share.milli for one in of for share in one.devices if share.index == index}


def _moves(state: ClusterState, node: NodeName) -> Iterator[MoveHere]:
    for id, record in state.migrations.items():
        move = record.move
        if record.step in FINAL or node not in (move.source, move.target):
            continue
        way, other = ("to", move.source) if move.target == node else ("from", move.target)
        yield MoveHere(id, way, other, f"{move.namespace}/{move.name}", str(record.step), record.since)
