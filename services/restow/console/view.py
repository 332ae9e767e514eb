"""What the console shows of a state: a row for each node, pod, hold and move. Pure: the same state gives the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from restow.contracts.ids import MigrationId, NodeName, PodUid
from restow.contracts.values import DeviceShare
from restow.domain.groups import group_of
from restow.domain.node_table import MAX_DEVICES, NO_DEVICE
from restow.domain.occupants import held_slot
from restow.domain.resources import ALIBABA_GPU_MODEL, GPU_MILLI, MEMORY
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.replay.holds import by_name, reservation_name
from restow.replay.pod_status import pod_status
from restow.replay.workload import workload_of

CLASS_LABELS = ("node.kubernetes.io/instance-type", ALIBABA_GPU_MODEL, "nvidia.com/gpu.product", "beta.kubernetes.io/instance-type")
"""The first that a node has names its class."""
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
RACK = "rack"
"""Kubernetes has no label for racks: the first by name that is called so, whatever its prefix, says which one."""

Shares = tuple[tuple[int, int], ...]
"""(index, thousandths) of devices."""


class NodeRow(msgspec.Struct, frozen=True, gc=False):
    """`devices` are the indices that there are. cpu in thousandths, memory in bytes."""

    ready: bool
    closed: bool
    cpu: int
    memory: int
    devices: tuple[int, ...]
    kind: str
    rack: str
    zone: str


class PodRow(msgspec.Struct, frozen=True, gc=False):
    """`node` is where it is charged, or is to run; empty while it waits. What it uses: cpu in thousandths, memory in bytes, `devices`, and of
    `unsaid` devices nobody says which they are; all that it asks for where it has no node, and nothing where it has ended. `asked`: thousandths of devices that it asks for. `podgroup`: namespace/name of the gang that it is of."""

    namespace: str
    name: str
    status: str
    ready: bool
    node: str
    cpu: int
    memory: int
    devices: Shares
    unsaid: int
    asked: int
    queue: str
    priority: int
    workload: str
    podgroup: str


class HoldRow(msgspec.Struct, frozen=True, gc=False):
    """A slot of a Reservation on its node, with what is held for it now, without what its owners have taken."""

    reservation: str
    node: str
    phase: str
    cpu: int
    memory: int
    devices: Shares
    migration: str


class MoveRow(msgspec.Struct, frozen=True, gc=False):
    """`pod`, and `successor` where there is one, are uids. `since` in ms."""

    plan: str
    pod: str
    namespace: str
    name: str
    source: str
    target: str
    step: str
    since: int
    successor: str
    reason: str
    message: str


class View(msgspec.Struct, frozen=True):
    """All rows of a state, by their keys: names of nodes, uids of pods, (Reservation's uid, slot), ids of migrations."""

    nodes: dict[str, NodeRow]
    pods: dict[str, PodRow]
    holds: dict[SlotKey, HoldRow]
    moves: dict[str, MoveRow]


def view(state: ClusterState) -> View:
    """O(everything): what the index must agree with at any instant."""
    held = [key for keys in state.held_on.values() for key in keys]
    return View(
        _present((name, node_row(state, name)) for name in state.nodes),
        _present((uid, pod_row(state, uid)) for uid in state.pods),
        _present((key, hold_row(state, key)) for key in held),
        _present((id, move_row(state, id)) for id in state.migrations),
    )


def _present(rows: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return {key: row for key, row in rows if row is not None}


def node_row(state: ClusterState, name: NodeName) -> NodeRow | None:
    """None where there is no such node."""
    node = state.nodes.get(name)
    if node is None:
        return None
    table = state.table
    free = table.device_free[table.rows[name]].tolist()
    devices = tuple(index for index, share in enumerate(free) if share > NO_DEVICE // 2)
    labels = node.labels
    rack = min((label for label in labels if label.rpartition("/")[2] == RACK), default="")
    return NodeRow(
        node.ready, node.unschedulable or bool(node.unreadable), node.allocatable.get("cpu", 0), node.allocatable.get(MEMORY, 0), devices,
        _first(labels, CLASS_LABELS), labels.get(rack, ""), _first(labels, ZONE_LABELS),
    )  # fmt: skip


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if name in labels), "")


def pod_row(state: ClusterState, uid: PodUid) -> PodRow | None:
    """None where the pod is not known."""
    pod = state.pods.get(uid)
    if pod is None:
        return None
    fact, live, charge = pod.fact, pod.live, state.charges.get(uid)
    shape = state.shapes[fact.shape]
    node = state.node_of(uid) or ""
    uses = charge is not None or not node
    devices = charge.devices if charge is not None else live.devices if uses else ()
    unsaid = shape.devices.count if charge is not None and not devices and shape.devices is not None else 0
    cpu, memory = (shape.requests.get("cpu", 0), shape.requests.get(MEMORY, 0)) if uses else (0, 0)
    return PodRow(
        fact.namespace, fact.name, pod_status(state, uid), live.ready, node, cpu, memory, _shares(devices), unsaid, shape.requests.get(GPU_MILLI, 0),
        state.queue_of(fact), shape.priority, workload_of(state, fact), "/".join(group_of(fact) or ()),
    )  # fmt: skip


def _shares(devices: tuple[DeviceShare, ...]) -> Shares:
    return tuple((device.index, device.milli) for device in devices if 0 <= device.index < MAX_DEVICES)


def hold_row(state: ClusterState, key: SlotKey) -> HoldRow | None:
    """None where the slot is on no node."""
    slot = held_slot(state, key)
    if slot is None:
        return None
    held = by_name(state, slot.capacity.held)
    migration = state.reservations[key[0]].fact.migration
    return HoldRow(
        reservation_name(state, key[0]), slot.node, str(slot.phase), held.get("cpu", 0), held.get(MEMORY, 0),
        _shares(slot.capacity.held_devices), migration,
    )  # fmt: skip


def move_row(state: ClusterState, id: MigrationId) -> MoveRow | None:
    """None where it is not known, or is forgotten."""
    record = state.migrations.get(id)
    if record is None:
        return None
    move = record.move
    return MoveRow(
        record.plan, move.pod, move.namespace, move.name, move.source, move.target, str(record.step), record.since, record.successor,
        record.reason, record.message,
    )  # fmt: skip
