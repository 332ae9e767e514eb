"""The clusters on which plans are compared: the openb trace, aged; hosts of two NUMA zones; large pods that leave too little."""

from __future__ import annotations

import random

import numpy as np
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import DeviceRequest, DeviceShare, OwnerRef, PodShape
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.resources import GPU_MILLI
from restow.domain.session import decider
from restow.domain.state import ClusterState

from .quality import Trace, arrivals, trace
from .world import START, Scribe

FULL = 80
"""Percent of the GPUs that are in use when the plan is made."""
ZONE_CORES, CORE = 40, 25
"""Cores of a NUMA zone, and thousandths of a zone that a core is."""
FREE_FOR = 16
"""Cores of the pods that capacity is freed for."""


def _owned(i: int, shape: ShapeId, node: NodeName | None = None, devices: tuple[DeviceShare, ...] = (), name: str = "pod") -> e.PodObserved:
    """A ReplicaSet's pod: waiting, or running on `node`."""
    owner = OwnerRef("ReplicaSet", f"job-{i // 10}", f"uid-job-{i // 10}")
    on = node is not None
    return e.PodObserved(
        PodUid(f"{name}-{i:06d}"), "bench", f"{name}-{i:06d}", shape, START, owner=owner, node=node,
        phase="Running" if on else "Pending", ready=on, devices=devices,
    )  # fmt: skip


def aged_openb(seed: int, shorter: int = 1, nodes: int = 0, name: str = "default") -> ClusterState:
    """A list (`name`) until all GPUs have been asked for, placed by the session's default plugins; then pods end at random until
    FULL percent of the GPUs are in use. `shorter`: one in so many nodes and pods; or so many `nodes`, spread over the trace's, several of each where it has fewer."""
    given = trace(name)
    if nodes:
        given = _of_size(given, nodes)
    if shorter > 1:
        nodes = given.nodes[::shorter]
        given = Trace(nodes, given.shapes, given.pods[::shorter], given.asked, sum(n.devices for n in nodes) * 1000)
    scribe = Scribe()
    state, order, asked = scribe.state, [], 0
    for shape in arrivals(given, seed):
        if (asked := asked + given.asked[shape]) > given.capacity:
            break
        order.append(shape)
    scribe.facts([*given.nodes, *given.shapes])
    scribe.facts([_owned(i, given.shapes[shape].shape) for i, shape in enumerate(order)])
    while (command := decider.due(state, START)) is not None:
        decisions = decide_all(state, decider, [command])
        if not decisions:
            break
        fold(state, state.seq + 1, "session", START, decisions)
    scribe.facts([e.PodChanged(uid, placed.node, "Running", True) for uid, placed in list(state.placed.items())])
    column, chance = state.table.columns[GPU_MILLI], random.Random(seed)
    running = sorted(state.charges)
    chance.shuffle(running)
    used, total = int(state.table.used[:, column].sum()), int(state.table.allocatable[:, column].sum())
    ended = [uid for uid in state.pods if uid not in state.charges]
    while used * 100 > total * FULL:
        uid = running.pop()
        used -= dict(state.vectors[state.pods[uid].fact.shape].items).get(column, 0)
        ended.append(uid)
    fold(state, state.seq + 1, "cluster", START, [Decision(c.Observe("pods", "watch"), tuple(map(e.PodGone, ended)))])
    return state


def _of_size(given: Trace, nodes: int) -> Trace:
    many = len(given.nodes)
    chosen = [replace(given.nodes[i * many // nodes], name=NodeName(f"node-{i:05d}"), uid=f"uid-{i}") for i in range(nodes)]
    times = -(-nodes // many)
    return Trace(chosen, given.shapes, given.pods * times, given.asked, sum(node.devices for node in chosen) * 1000)


def racks(nodes: int, seed: int) -> ClusterState:
    """Racks of sixteen nodes, one rack in four with 4 GPUs a node and the others with 8, filled at random until FULL percent of the GPUs are in use, half of the pods
    with shares of a GPU; what is left of cores is filled with pods without GPUs, to three quarters."""
    scribe, chance = Scribe(), random.Random(seed)
    kinds = [(1, 250), (1, 300), (1, 500), (1, 700), (1, 1000), (1, 1000), (2, 1000), (4, 1000)]
    asks = [(DeviceRequest(*kind), 3_000 * kind[0] * kind[1] // 1000 + 1_000) for kind in kinds]
    shapes = [
        e.ShapeDeclared(_vm(i), PodShape({"cpu": cpu, "pods": 1, GPU_MILLI: one.count * one.milli}, scheduler="restow", devices=one)) for i, (one, cpu) in enumerate(asks)
    ]
    plain = ShapeId(f"{len(shapes):016x}")
    scribe.facts([*shapes, e.ShapeDeclared(plain, PodShape({"cpu": 2_000, "pods": 1}, scheduler="restow"))])
    gpus = [4 if (i // 16) % 4 == 0 else 8 for i in range(nodes)]
    cores = [32_000 if many == 4 else 64_000 for many in gpus]
    names = [NodeName(f"rack-{i // 16:03d}-{i % 16:02d}") for i in range(nodes)]
    scribe.facts([
        e.NodeObserved(name, f"uid-{name}", {"cpu": cpu, "pods": 110, GPU_MILLI: many * 1000}, {"rack": name[:8]}, devices=many)
        for name, many, cpu in zip(names, gpus, cores, strict=True)
    ])  # fmt: skip
    free, left, used, pods = [[1000] * many for many in gpus], list(cores), 0, []
    while used * 100 < sum(gpus) * 1000 * FULL:
        i, kind = chance.randrange(nodes), chance.randrange(len(asks))
        one, cpu = asks[kind]
        able = [d for d, share in enumerate(free[i]) if share >= one.milli]
        if len(able) < one.count or left[i] < cpu:
            continue
        shares = tuple(DeviceShare(d, one.milli) for d in sorted(chance.sample(able, one.count)))
        for share in shares:
            free[i][share.index] -= share.milli
        left[i] -= cpu
        used += one.count * one.milli
        pods.append(_owned(len(pods), _vm(kind), names[i], shares))
    while sum(left) * 4 > sum(cores):
        i = chance.randrange(nodes)
        if left[i] >= 2_000:
            left[i] -= 2_000
            pods.append(_owned(len(pods), plain, names[i]))
    scribe.facts(pods)
    return scribe.state


def vm_hosts(hosts: int = 280, full: int = 81, seed: int = 42) -> ClusterState:
    """Hosts of two NUMA zones with ZONE_CORES cores each, filled at random. A zone is written as a device of 1000 thousandths: so a pod
    of up to 16 cores is in one zone, and one of 32 or 64 in both, half in each (the VM rescheduling data set has both kinds)."""
    scribe, chance = Scribe(), random.Random(seed)
    state = scribe.state
    mix = {1: 12, 2: 16, 4: 20, 8: 20, 16: 18, 32: 11, 64: 3}
    sizes = list(mix)
    scribe.facts([
        e.ShapeDeclared(_vm(size), PodShape(
            {"pods": 1, GPU_MILLI: size * CORE}, scheduler="restow",
            devices=DeviceRequest(2, size * CORE // 2) if size > FREE_FOR else DeviceRequest(1, size * CORE),
        )) for size in sizes
    ])  # fmt: skip
    capacity = {"pods": 1_000, GPU_MILLI: 2_000}
    scribe.facts([e.NodeObserved(NodeName(f"host-{i:03d}"), f"uid-{i}", capacity, devices=2) for i in range(hosts)])
    free = [[1000, 1000] for _ in range(hosts)]
    used, pods = 0, []
    while used < hosts * 2000 * full // 100:
        size = chance.choices(sizes, list(mix.values()))[0]
        host = chance.randrange(hosts)
        count, milli = (2, size * CORE // 2) if size > FREE_FOR else (1, size * CORE)
        able = [zone for zone in (0, 1) if free[host][zone] >= milli]
        if len(able) < count:
            continue
        zones = sorted(chance.sample(able, count))
        for zone in zones:
            free[host][zone] -= milli
        shares = tuple(DeviceShare(zone, milli) for zone in zones)
        pods.append(_owned(len(pods), _vm(size), NodeName(f"host-{host:03d}"), shares, "vm"))
        used += count * milli
    scribe.facts(pods)
    return state


def _vm(size: int) -> ShapeId:
    return ShapeId(f"{size:016x}")


def usable(state: ClusterState) -> float:
    """Percent of the free cores that pods of FREE_FOR cores can use: 100 less the fragment rate."""
    unit, free = FREE_FOR * CORE, np.maximum(state.table.device_free, 0)
    return 100 * int((free // unit).sum()) * unit / max(int(free.sum()), 1)


def large_pods(nodes: int = 500, waiting: int = 10) -> ClusterState:
    """Nodes of 8 GPUs, nine in ten with a pod of 5; each tenth has three pods of one GPU. A gang of pods of 6 GPUs waits: there are
    3 GPUs or 5 free everywhere."""
    scribe = Scribe()
    shapes = {gpus: ShapeId(f"{gpus:016x}") for gpus in (1, 5, 6)}
    scribe.facts([
        e.ShapeDeclared(id, PodShape(
            {"cpu": 4_000 * gpus, "memory": gpus << 34, "pods": 1, GPU_MILLI: gpus * 1000}, scheduler="restow", devices=DeviceRequest(gpus, 1000)
        )) for gpus, id in shapes.items()
    ])  # fmt: skip
    capacity = {"cpu": 64_000, "memory": 1 << 40, "pods": 110, GPU_MILLI: 8_000}
    scribe.facts([e.NodeObserved(NodeName(f"node-{i:03d}"), f"uid-{i}", capacity, devices=8) for i in range(nodes)])
    pods = []
    for i in range(nodes):
        name = NodeName(f"node-{i:03d}")
        if i % 10:
            pods.append(_owned(len(pods), shapes[5], name, tuple(DeviceShare(d, 1000) for d in range(5))))
        else:
            pods += [_owned(len(pods) + d, shapes[1], name, (DeviceShare(d, 1000),)) for d in range(3)]
    scribe.facts(pods)
    scribe.facts([e.PodGroupObserved("bench", "six", "uid-six", START, min_member=waiting, phase="Inqueue")])
    group = {"scheduling.k8s.io/group-name": "six"}
    owner = OwnerRef("Job", "six", "uid-job-six")
    scribe.facts([
        e.PodObserved(PodUid(f"six-{i}"), "bench", f"six-{i}", shapes[6], START, annotations=group, owner=owner) for i in range(waiting)
    ])  # fmt: skip
    return scribe.state
