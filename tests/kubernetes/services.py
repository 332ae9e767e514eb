"""Restow's services as processes beside the stock scheduler, each with the rights of its own ServiceAccount."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.stack import Running, outside, up
from kubernetes.lab import NAMESPACE, Lab
from kubernetes.world import World

from restow.cli.embedded import configs
from restow.cli.plan_tables import read
from restow.contracts.ids import SERVICES
from restow.contracts.values import OwnerRef
from restow.kube.beside import Beside, NotGated

SESSION, DESCHEDULER = "scheduler_session", "descheduler"
OVER = ("landed", "failed", "not_recreated")
LONG = 30.0
POLICY = f"{configs.policy()}  beside: [default-scheduler]\n  perNode: 50\n  holdDeadline: 60s\n  budgetPatience: 60s\n"


@contextlib.contextmanager
def services(lab: Lab, policy: str = POLICY, *, namespace: str = NAMESPACE, scheduler: str = "") -> Iterator[Running]:
    """`restow up` on the lab, with its own broker; then everything of it is gone. `namespace`: of its accounts."""
    with tempfile.TemporaryDirectory(prefix="restow-beside-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        running = Running("lab", folder, lab.target, ())
        admin = lab.work / "kubeconfig"
        outside(running, admin)
        accounts = folder / "accounts"
        accounts.mkdir()
        shutil.copy(admin, accounts / "admin.yaml")
        for service in SERVICES:
            shutil.copy(lab.kubeconfig(lab.account(service.replace("_", "-"), namespace), f"{namespace}-{service}"), accounts / f"{service}.yaml")
        with up(running, ["--kube", str(accounts)], policy, scheduler):
            yield running


def kill(stack: Running, service: str) -> None:
    """At once; `restow up` starts another one."""
    parent = int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"])
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    (process,) = [pid for pid in children if service in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(process, signal.SIGKILL)


def kill_for_good(stack: Running) -> None:
    """All of it at once, with its broker and its log."""
    stack.killed = True
    os.kill(int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"]), signal.SIGKILL)


async def migrate(stack: Running, pod: dict[str, Any], target: str) -> str:
    """The id of the move, once it is planned."""
    meta = pod["metadata"]
    said = await asyncio.to_thread(stack.restow, "migrate", f"pod/{meta['namespace']}/{meta['name']}", "--to", target, "--no-follow", "--output", "json")
    planned = read(json.loads(said))
    assert planned is not None, said
    (move,) = planned.moves
    return str(move.migration)


async def known(stack: Running, pods: list[Any]) -> None:
    """Restow has seen them."""
    names = {pod["metadata"]["uid"] for pod in pods}
    for _ in range(600):
        said = await asyncio.to_thread(stack.restow, "get", "pods", "-A", "--output", "json")
        if all(name in said for name in names):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not known: {names}")


async def ended(stack: Running, move: str) -> dict[str, Any]:
    """A migration, once it is over."""
    for _ in range(int(LONG / 0.2)):
        told = json.loads(await asyncio.to_thread(stack.restow, "get", "migrations", "--output", "json"))["items"]
        (one,) = [one for one in told if one["id"] == move]
        if one["step"] in OVER:
            return dict(one)
        await asyncio.sleep(0.2)
    raise AssertionError(f"{move} is not over: {one}")


async def all_ended(stack: Running, seconds: float = 90.0) -> list[dict[str, Any]]:
    """All migrations, once none is under way."""
    for _ in range(int(seconds / 0.5)):
        told = json.loads(await asyncio.to_thread(stack.restow, "get", "migrations", "--output", "json"))["items"]
        open = [one for one in told if one["step"] not in OVER]
        if not open:
            return list(told)
        await asyncio.sleep(0.5)
    raise AssertionError(f"not over within {seconds:g} s: {open[:5]}")


async def plan(stack: Running, count: int) -> list[str]:
    """Defragmentation's moves, once it finds so many."""
    for _ in range(100):
        events = (await asyncio.to_thread(defragment, stack, "?dryRun=true"))["events"]
        if sum(len(event.get("moves", ())) for event in events) == count:
            events = (await asyncio.to_thread(defragment, stack))["events"]
            return [move["migration"] for event in events for move in event.get("moves", ())]
        await asyncio.sleep(0.2)
    raise AssertionError(f"no plan of {count} moves: {events}")


def defragment(stack: Running, query: str = "") -> Any:
    headers = {**stack.authorization, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{stack.service_url(DESCHEDULER)}/defragment{query}", b"{}", headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def not_gated(descheduler: Beside, pod: Any) -> None:
    """The API server has heard that the policy is gone."""
    (owner,) = pod["metadata"]["ownerReferences"]
    for _ in range(100):
        if isinstance(await descheduler.gated(OwnerRef(owner["kind"], owner["name"], owner["uid"], owner["apiVersion"])), NotGated):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it is still gated")


async def stand(world: World, count: int) -> list[Any]:
    """The placeholders, once they run."""

    def found() -> list[Any]:
        there = [pod for pod in world.placeholders() if pod["status"].get("phase") == "Running"]
        return there if len(there) >= count else []

    return await world.until(found, f"{count} placeholders run", LONG)
