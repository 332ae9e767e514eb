"""The clusters that the benchmarks in one process work on: node and pod shapes of the openb trace, as facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from restow.cli.demo.generate import NODE_SHAPES
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.contracts.values import DeviceRequest, DeviceShare, OwnerRef, PodShape
from restow.domain.decider import Decider, decide_all
from restow.domain.fold import fold
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState
from restow.eventlog.port import Record

MIB = 1 << 20
START = Millis(1_767_225_600_000)
POD_SHAPES = (
    ((3_152, 5_600, 1, 810), 1047),
    ((11_300, 49_152, 1, 1000), 857),
    ((11_400, 48_128, 1, 1000), 534),
    ((3_152, 5_600, 1, 1000), 470),
    ((11_908, 47_104, 1, 470), 388),
    ((12_500, 57_344, 0, 0), 364),
    ((8_000, 30_517, 1, 470), 360),
    ((32_000, 49_152, 0, 0), 284),
    ((18_708, 64_512, 1, 1000), 255),
    ((11_908, 47_104, 1, 650), 237),
    ((9_810, 41_560, 1, 1000), 195),
    ((8_000, 30_517, 0, 0), 163),
    ((12_000, 24_576, 1, 1000), 158),
    ((15_700, 58_368, 1, 1000), 158),
    ((11_908, 47_104, 1, 1000), 153),
    ((4_000, 22_888, 1, 320), 111),
    ((16_000, 32_768, 1, 1000), 108),
    ((8_000, 16_384, 1, 1000), 104),
    ((4_000, 30_517, 1, 230), 84),
    ((4_000, 15_258, 1, 320), 78),
    ((3_152, 5_600, 1, 590), 75),
    ((4_152, 10_600, 1, 550), 72),
    ((32_000, 131_072, 8, 1000), 44),
    ((16_000, 65_536, 2, 1000), 16),
    ((32_000, 98_304, 4, 1000), 15),
)
"""((cpu milli, memory MiB, GPUs, milli of each), number of pods): those of openb's default list that cover nine tenths of its pods."""
FAMILIES = {"cluster": "cluster@1", "session": "session@1"}


def shape_id(i: int) -> str:
    return f"{i:016x}"


def shape_facts(count: int, parts: int = 1) -> list[e.Event]:
    """`count` shapes, the trace's most popular ones, cut into `parts`; beyond those that it has, they differ in memory."""
    facts: list[e.Event] = []
    for i in range(count):
        (cpu, memory, gpus, milli), _ = POD_SHAPES[i % len(POD_SHAPES)]
        milli = milli // parts if gpus == 1 else milli
        requests = {"cpu": cpu // (4 * parts), "memory": (memory // (4 * parts) + i // len(POD_SHAPES)) * MIB, "pods": 1}
        devices = DeviceRequest(gpus, milli) if gpus else None
        if gpus:
            requests[GPU_MILLI] = gpus * milli
        spec = PodShape(requests, scheduler="restow", devices=devices, spec_digest=shape_id(i))
        facts.append(e.ShapeDeclared(shape_id(i), spec))  # type: ignore[arg-type]
    return facts


def node_facts(count: int) -> list[e.NodeObserved]:
    """Nodes in the trace's mix, with the labels that a cloud gives."""
    pool = [shape for shape, weight in NODE_SHAPES for _ in range(max(1, weight // 20))]
    facts = []
    for i in range(count):
        cpu, memory, gpus, model = pool[i * 7 % len(pool)]
        name = f"node-{i:05d}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{i % 3}",
            "alibabacloud.com/gpu-card-model": model,
        }
        capacity = {"cpu": cpu, "memory": memory * MIB, "pods": 110, "ephemeral-storage": 100 << 30, GPU_MILLI: gpus * 1000}
        facts.append(e.NodeObserved(name, f"uid-{name}", capacity, labels, devices=gpus))  # type: ignore[arg-type]
    return facts


def pod_fact(i: int, shape: int, node: str | None = None, devices: tuple[DeviceShare, ...] = ()) -> e.PodObserved:
    """A ReplicaSet's pod: pending, or running on `node`."""
    owner = OwnerRef("ReplicaSet", f"job-{i // 10}", f"uid-job-{i // 10}")
    running = node is not None
    return e.PodObserved(
        f"00000000-0000-4000-8000-{i:012d}", f"team-{i % 7}", f"job-{i // 10}-{i:06d}", shape_id(shape), START,  # type: ignore[arg-type]
        labels={"app": f"job-{i // 10}"}, owner=owner, node=node, phase="Running" if running else "Pending",  # type: ignore[arg-type]
        ready=running, devices=devices,
    )  # fmt: skip


def plain_nodes(count: int, zones: int = 3) -> list[e.NodeObserved]:
    """The issue's template: 4 CPU, 32Gi, 110 pods each, in `zones` zones."""
    capacity = {"cpu": 4_000, "memory": 32 * 1024 * MIB, "pods": 110}
    facts = []
    for i in range(count):
        name = f"node-{i:05d}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{i % zones}"}
        facts.append(e.NodeObserved(name, f"uid-{name}", capacity, labels))  # type: ignore[arg-type]
    return facts


def plain_shape(i: int, kinds: int = 8, **rules: Any) -> e.ShapeDeclared:
    """A pod of about 100m and 500Mi: one of `kinds` that differ in both; `rules` are fields of PodShape."""
    kind = i % kinds
    memory = (440 * MIB + kind * 16 * MIB) if kinds <= 8 else (500 * MIB + kind * 4096)
    requests = {"cpu": 80 + kind % 8 * 5, "memory": memory, "pods": 1}
    return e.ShapeDeclared(shape_id(i), PodShape(requests, scheduler="restow", spec_digest=shape_id(i), **rules))  # type: ignore[arg-type]


def app_pod(i: int, shape: int, app: str, group: str = "", node: str | None = None) -> e.PodObserved:
    """A pod of an app in one namespace: pending, of a PodGroup if one is named, or running on `node`."""
    running = node is not None
    return e.PodObserved(
        f"00000000-0000-4000-8000-{i:012d}", "default", f"{app}-{i:06d}", shape_id(shape), START,  # type: ignore[arg-type]
        {"app": app, "tier": "bench"}, {"scheduling.k8s.io/group-name": group} if group else {},
        OwnerRef("ReplicaSet", app, f"uid-{app}"), node=node, phase="Running" if running else "Pending", ready=running,  # type: ignore[arg-type]
    )  # fmt: skip


class Scribe:
    """Folds facts into `state` as commits, the way a service does."""

    def __init__(self) -> None:
        self.state = ClusterState()

    def facts(self, events: Sequence[e.Event], at_once: int = 1_000) -> None:
        for i in range(0, len(events), at_once):
            decision = Decision(c.Observe("pods", "watch"), tuple(events[i : i + at_once]))
            fold(self.state, self.state.seq + 1, "cluster", START, [decision])

    def decide(self, decider: Decider, command: c.Command) -> bool:
        """Fold what the decider answers; whether it has answered anything."""
        decisions = decide_all(self.state, decider, [command])
        fold(self.state, self.state.seq + 1, decider.family, START, decisions)
        return bool(decisions)


def filled(nodes: int, pods: int, shapes: int = 24) -> ClusterState:
    """`pods` running pods on `nodes` nodes: every third node is a quarter full, the others take the rest."""
    scribe = Scribe()
    state = scribe.state
    facts = node_facts(nodes)
    scribe.facts([*facts, *shape_facts(shapes, parts=4)])
    table, gpu = state.table, state.table.columns[GPU_MILLI]
    made, lap, idle = 0, 0, 0
    while made < pods and idle < 3 * nodes:
        for i, fact in enumerate(facts):
            row, shape = table.rows[fact.name], (i * 5 + lap * 7) % shapes
            v, share = state.vectors[shape_id(shape)], 25 if i % 3 == 0 else 75  # type: ignore[index]
            used = int(table.used[row, gpu])
            if made == pods or used * 100 > share * fact.allocatable[GPU_MILLI] or not table.fits_row(row, v):
                idle += 1
                continue
            scribe.facts([pod_fact(made, shape, fact.name, table.choose_devices(row, v.devices) or ())])
            made, idle = made + 1, 0
        lap += 1
    return state


def envelope(seq: int, family: str) -> Envelope:
    return Envelope(
        id=f"{seq:026d}", source=f"/restow/bench/{family}", time="2026-01-01T00:00:00.000Z", read=seq - 1, logic=FAMILIES[family]
    )


def record(seq: int, family: str, command: c.Command, events: Sequence[e.Event]) -> Record:
    return Record(seq, family, envelope(seq, family), encode([Decision(command, tuple(events))]), 0)


def history(events: int, at_once: int, gpus: bool = True) -> Iterator[Record]:
    """A log of at least `events` events, `at_once` a commit: pods come, are placed, run and go, on a cluster of 500 nodes. Most ask for
    GPUs, as in the trace, and placements name them; without `gpus` no pod asks for any."""
    seq, told, made = 1, 0, 0
    shapes = [shape for shape in shape_facts(64) if gpus or shape.spec.devices is None][:8]
    ids, requests = [shape.shape for shape in shapes], [shape.spec.devices for shape in shapes]
    yield record(seq, "cluster", c.Observe("nodes", "list"), [*node_facts(500), *shapes])
    while told < events:
        numbers = range(made, made + at_once)
        pods = [msgspec.structs.replace(pod_fact(i, 0), shape=ids[i % 8]) for i in numbers]
        nodes = [f"node-{(made * 31 + i) % 500:05d}" for i in range(at_once)]
        devices = [() if ask is None else tuple(DeviceShare(d, ask.milli) for d in range(ask.count)) for ask in (requests[i % 8] for i in numbers)]
        steps: tuple[tuple[str, c.Command, list[e.Event]], ...] = (
            ("cluster", c.Observe("pods", "watch"), list(pods)),
            ("session", c.Schedule(START), [e.PodPlaced(p.pod, n, d) for p, n, d in zip(pods, nodes, devices, strict=True)]),  # type: ignore[arg-type]
            ("cluster", c.Observe("pods", "watch"), [e.PodChanged(p.pod, n, "Running", True) for p, n in zip(pods, nodes, strict=True)]),  # type: ignore[arg-type]
            ("cluster", c.Observe("pods", "watch"), [e.PodGone(p.pod) for p in pods]),
        )  # fmt: skip
        for family, command, what in steps:
            seq += 1
            yield record(seq, family, command, what)
        made += at_once
        told += 4 * at_once
