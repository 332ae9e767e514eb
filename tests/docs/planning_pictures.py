"""The pictures of docs/planning.md, drawn from plans that are made for them: `make planning` writes them into the page."""

import re
import sys
import textwrap
from pathlib import Path

from domain.build import NOW, given, job_of, member, node, pod, pod_group, replica_of, shape
from domain.test_network_topology import conf

from restow.cli.plan_worth import amount, headline, missed
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, NetworkTopology
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.hooks import CHECKPOINTED
from restow.domain.node_table import WHOLE
from restow.domain.state import ClusterState

PAGE = Path(__file__).parents[2] / "docs" / "planning.md"
BLOCK = re.compile(r"(<!-- picture: (\w+) -->\n```\n)(.*?)(```\n)", re.DOTALL)
HOUR = 3_600_000
SERVER, JOB = replica_of("web"), replica_of("train", "Job")


def on(name: str, shape: str, node: str, *devices: int, milli: int = WHOLE, **more) -> e.PodObserved:
    return pod(name, shape, node, devices=tuple(DeviceShare(device, milli) for device in devices), **{"owner": SERVER} | more)


def shared() -> ClusterState:
    """Three nodes of four GPUs, four of which are shared by pods of a half."""
    facts = [shape("half", cpu=2_000, gpu=(1, 500)), shape("one", cpu=4_000, gpu=(1, WHOLE))]
    facts += [node(name, cpu=64_000, gpus=4) for name in ("a", "b", "c")]
    return given(
        *facts, on("p", "half", "a", 0, milli=500), on("q", "half", "a", 1, milli=500), on("A", "one", "a", 2), on("r", "half", "b", 0, milli=500),
        on("B", "one", "b", 1), on("s", "half", "c", 0, milli=500),
    )  # fmt: skip


def waiting() -> ClusterState:
    """A job of eight GPUs waits. A server is on one of node a's, a Job that has run for thirty hours on two of b's, and c is half full."""
    facts = [shape(name, cpu=1_000, gpu=(count, WHOLE)) for name, count in (("one", 1), ("two", 2), ("four", 4), ("eight", 8))]
    facts += [node(name, cpu=64_000, gpus=8) for name in ("a", "b", "c")]
    return given(
        *facts, job_of("train"), on("s", "one", "a", 0), on("T", "two", "b", 0, 1, owner=JOB, created=NOW - 30 * HOUR), on("C", "four", "c", 0, 1, 2, 3),
        pod("waits", "eight"),
    )  # fmt: skip


def jobs(**more) -> ClusterState:
    """Two nodes of two GPUs, each with a Job of half a GPU that has run for a hundred hours; a job of two waits."""
    halves = [on(uid, "half", name, 0, milli=500, owner=JOB, created=NOW - 100 * HOUR, **more) for uid, name in (("t", "a"), ("u", "b"))]
    facts = [shape("half", cpu=2_000, gpu=(1, 500)), shape("two", cpu=2_000, gpu=(2, WHOLE))]
    return given(*facts, *[node(name, cpu=64_000, gpus=2) for name in ("a", "b")], job_of("train"), *halves, pod("waits", "two"))


def racks() -> ClusterState:
    """Two racks of two nodes of four GPUs. A server is on one of a1's, another one has two of b1's; a gang of two that takes a rack wholly waits."""
    facts = [shape(name, cpu=1_000, gpu=(count, WHOLE)) for name, count in (("one", 1), ("two", 2), ("four", 4))]
    facts += [node(name, cpu=64_000, gpus=4, labels={"rack": name[0]}) for name in ("a1", "a2", "b1", "b2")]
    gang = [pod_group("g", need=2, topology=NetworkTopology("hard", 1)), *(member(f"g{i}", "g", "four") for i in range(2))]
    return given(conf(("rack",), "reserve, allocate", {"name": "reservation"}), *facts, on("s", "one", "a1", 0), on("C", "two", "b1", 0, 1), *gang)


VALUE = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={})
DEVICES = DefragmentationArgs(planner="optimizing", protectionThresholds={})


def drawn(state: ClusterState, args: DefragmentationArgs) -> str:
    """Nodes before and after, a letter for the pod of each GPU, and what the plan says of itself."""
    plan = defragmentation.plan(state, args, NOW, "p")
    before: dict[str, list[str]] = {name: [""] * one.devices for name, one in state.nodes.items()}
    for uid in state.charges:
        for device in state.devices_of(uid):
            before[state.charges[uid].node][device.index] += str(uid)
    after = {name: list(devices) for name, devices in before.items()}
    for move in plan.moves:
        after[move.source] = ["".join(one for one in there if one != move.pod) for there in after[move.source]]
        for device in move.devices:
            after[move.target][device.index] += str(move.pod)
    lines = [f"{'before':<{_width(before) + 10}}after"]
    lines += [f"{name}  {_row(before[name])}     {_row(after[name])}" for name in before]
    lines += ["" for _ in plan.moves[:1]] + [*(f"{move.pod} moves from {move.source} to {move.target}; it costs {amount(move.cost)}" for move in plan.moves)]
    assert plan.worth is not None, "every plan is appraised"
    lines += ["", headline(plan.worth)]
    lines += [f"of it for gangs of {one.pods} in one {one.name}: {one.before} → {one.after}, worth {amount(one.was)} → {amount(one.will)}" for one in plan.worth.gangs]
    if plan.worth.missed is not None:
        lines += textwrap.wrap(missed(plan.worth.missed, plan.worth.unit), 100)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(devices: list[str]) -> str:
    return " ".join(f"{one or '·':<2}" for one in devices)


def _width(nodes: dict[str, list[str]]) -> int:
    return 3 * max(map(len, nodes.values())) - 2


def pictures() -> dict[str, str]:
    saved = {CHECKPOINTED: "2023-11-14T22:03:20Z"}  # ten minutes ago
    return {"shared": drawn(shared(), DEVICES), "waiting": drawn(waiting(), VALUE), "jobs": drawn(jobs(), DEVICES), "saved": drawn(jobs(annotations=saved), DEVICES), "racks": drawn(racks(), VALUE)}


def page(text: str) -> str:
    """With its pictures drawn anew."""
    found = pictures()
    return BLOCK.sub(lambda block: block[1] + found[block[2]] + block[4], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    sys.exit(0)
