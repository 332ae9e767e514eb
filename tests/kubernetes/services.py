"""Restow's services as processes beside the stock scheduler, each with the rights of its own ServiceAccount."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.stack import Running, outside, up
from kubernetes.lab import NAMESPACE, Lab

from restow.cli.embedded import configs
from restow.cli.plan_tables import read
from restow.contracts.ids import SERVICES

SESSION, DESCHEDULER = "scheduler_session", "descheduler"
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
