"""Restow's services as processes beside the stock scheduler, each with the rights of its own ServiceAccount."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from e2e.stack import Running, outside, up
from kubernetes.lab import NAMESPACE, Lab
from kubernetes.world import World, pod_spec

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.plan_tables import read
from restow.cli.views import migrations
from restow.contracts.ids import SERVICES, MigrationId
from restow.contracts.values import OwnerRef
from restow.domain.nomination_checks import UNKNOWN, verdict
from restow.domain.state import ClusterState
from restow.kube.gates import Gates, NotGated

T = TypeVar("T")
SESSION, DESCHEDULER = "scheduler_session", "descheduler"
OVER = ("landed", "failed", "not_recreated")
LONG = 60.0
NOT_YET, JUST_MADE, GUARDED = "gone, not ready or unschedulable", "node.kubernetes.io/not-ready", "capacity left beside pods that another scheduler nominated"
"""What is said of a node before its status has come, and while it has the taint with which it was made; and while somebody's guard of a moment ago is there."""
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


def process(stack: Running, service: str) -> int:
    parent = int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"])
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    (found,) = [pid for pid in children if service in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def kill(stack: Running, service: str) -> None:
    """At once; `restow up` starts another one."""
    os.kill(process(stack, service), signal.SIGKILL)


def kill_for_good(stack: Running) -> None:
    """All of it at once, with its broker and its log."""
    stack.killed = True
    os.kill(int(json.loads((stack.folder / ".restow" / "stack.json").read_text())["pid"]), signal.SIGKILL)


async def migrate(stack: Running, pod: dict[str, Any], target: str) -> str:
    """The id of the move, once it is planned. The service is asked: a command of its own for each of twenty moves takes longer than the first one waits."""
    meta = pod["metadata"]
    for _ in range(int(LONG / 0.1)):
        try:
            said = await asyncio.to_thread(posted, stack, "/migrations", {"pod": f"{meta['namespace']}/{meta['name']}", "target": target})
            break
        except urllib.error.HTTPError as error:
            # Of a node that was made a moment ago the watcher may not have told yet, or only what it was at first.
            if not (error.code == 404 and f"no node '{target}'" in error.msg) and not (error.code == 409 and any(one in error.msg for one in (NOT_YET, JUST_MADE, GUARDED))):
                raise
            await asyncio.sleep(0.1)
    planned = read(said)
    assert planned is not None, said
    (move,) = planned.moves
    return str(move.migration)


async def seen(stack: Running, what: str, found: Callable[[ClusterState], T], seconds: float = LONG) -> T:
    """What it finds in the present state, once that is so: folded here, as any reader of the log can."""
    async with Observer(Path(stack.announced["nats_file"]).read_text().strip(), stack.announced["cluster"]) as observer:
        tail = await observer.log.tail()
        await observer.until(what, lambda: observer.state.seq >= tail and bool(found(observer.state)), seconds)
        return found(observer.state)


async def known(stack: Running, pods: list[Any]) -> None:
    """The descheduler has read of them, as they are, and that the canaries have answered: they may move."""
    ready = {pod["metadata"]["uid"]: is_ready(pod) for pod in pods}

    def there(state: ClusterState) -> int:
        lives = {uid: state.live_of(uid) for uid in ready}
        are = all(live is not None and live.ready >= ready[uid] for uid, live in lives.items())
        return state.seq if are and verdict(state, "default-scheduler") != UNKNOWN else 0

    await read_by(stack, DESCHEDULER, await seen(stack, f"{len(ready)} pods are known", there))


def is_ready(pod: Any) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in (pod.get("status") or {}).get("conditions") or ())


async def read_by(stack: Running, service: str, seq: int) -> None:
    """It has folded the log as far as that. What an observer sees in the log a service may hear of a moment later."""
    said = "nothing"
    for _ in range(int(LONG / 0.1)):
        try:
            # One that has begun a moment ago, as after it was killed, has read nothing yet, and names no sequence.
            if (read := (await asyncio.to_thread(state_of, stack, service)).get("seq", 0)) >= seq:
                return
            said = f"that it has read {read}"
        except (OSError, ValueError) as error:
            said = str(error)
        await asyncio.sleep(0.1)
    raise AssertionError(f"{service} has not read as far as {seq}; it says {said}")


def state_of(stack: Running, service: str) -> Any:
    """Where it is now: a service that was killed a moment ago comes back at another address."""
    request = urllib.request.Request(f"{stack.service_url(service)}/state", headers=stack.authorization)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


async def ended(stack: Running, move: str, seconds: float = LONG) -> dict[str, Any]:
    """A migration, once it is over."""
    return await reached(stack, move, *OVER, seconds=seconds)


async def reached(stack: Running, move: str, *steps: str, seconds: float = LONG) -> dict[str, Any]:
    """A migration, once it is at one of these steps; as `restow get migrations` tells it."""

    def found(state: ClusterState) -> Any:
        known = state.migrations.get(MigrationId(move))
        return next(one for one in migrations(state) if one["id"] == move) if known is not None and known.step in steps else None

    return dict(await seen(stack, f"{move} is {' or '.join(steps)}", found, seconds))


async def all_ended(stack: Running, seconds: float = 90.0) -> list[dict[str, Any]]:
    """All migrations, once none is under way."""
    return await seen(stack, "no move is under way", lambda state: all(m.step in OVER for m in state.migrations.values()) and migrations(state), seconds)


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
    return posted(stack, f"/defragment{query}", {})


def posted(stack: Running, path: str, body: dict[str, Any]) -> Any:
    """What the descheduler answers."""
    headers = {**stack.authorization, "Content-Type": "application/json"}
    request = urllib.request.Request(stack.service_url(DESCHEDULER) + path, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # With what it says: a test that only tells "Conflict" tells nothing.
        raise urllib.error.HTTPError(error.url, error.code, error.read().decode(errors="replace"), error.headers, None) from None
    except http.client.RemoteDisconnected as error:
        # Still of its kind: whoever kills deschedulers passes over it.
        raise http.client.RemoteDisconnected(f"{path}: the descheduler has ended the connection, and says last:\n{stack.log(DESCHEDULER)[-4000:]}") from error


async def not_gated(descheduler: Gates, pod: Any) -> None:
    """The API server has heard that the policy is gone."""
    (owner,) = pod["metadata"]["ownerReferences"]
    for _ in range(100):
        if isinstance(await descheduler.gated(OwnerRef(owner["kind"], owner["name"], owner["uid"], owner["apiVersion"])), NotGated):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it is still gated")


async def victims(world: World, stack: Running, count: int = 1, kind: str = "deployments", term: float = 0.2) -> list[Any]:
    """They run on `source`, which takes no more, and a budget keeps them; then there are as many targets, with room for one each. `term`: seconds that a pod takes to end."""
    await world.node("source", gpus=count)
    await world.workload(kind, "victim", count, pod_spec(), term)
    found = await world.running("victim", count)
    await world.cordon("source")
    await world.budget(0)
    for i in range(count):
        await world.node(f"target-{i}", gpus=1)
    await known(stack, found)
    return found


async def all_held(world: World, stack: Running, count: int, term: float = 0.3) -> tuple[list[Any], list[str]]:
    """So many pods of a Deployment, and their moves: they are to leave `source`, for nodes of their own; their slots are held, and a budget keeps them."""
    pods = await victims(world, stack, count, term=term)
    moves = [await migrate(stack, pod, f"target-{i}") for i, pod in enumerate(pods)]
    await stand(world, count)
    return pods, moves


async def stand(world: World, count: int) -> list[Any]:
    """The placeholders, once they run."""

    def found() -> list[Any]:
        there = [pod for pod in world.placeholders() if pod["status"].get("phase") == "Running"]
        return there if len(there) >= count else []

    return await world.until(found, f"{count} placeholders run", LONG)
