"""Workloads that are asked before a move and told after it (docs/hooks.md), on the real API server: over HTTP, and by annotations that pass the guard. Whatever
they say, and if they say nothing, nothing is left behind. Pods of the stock scheduler and of Restow's own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab
from kubernetes.services import POLICY, ended, known, migrate, services, stand
from kubernetes.world import World, path_of, pod_spec
from kubesim.conformance.harness import MERGE

from restow.domain.hooks import (
    ACKNOWLEDGED,
    AFTER,
    BEFORE,
    DEADLINE,
    MOVED_BY,
    MOVED_FROM,
    ON_SILENCE,
    REFUSED,
    REQUESTED,
    UNTIL,
)

pytestmark = [pytest.mark.usefixtures("nothing_is_left"), pytest.mark.parametrize("scheduler", ["default-scheduler", "restow"])]
NOT_YET = (202, {"retryAfter": "1s"})
YES = (200, {"allowed": True, "reason": "saved step 4000"})
NO = (409, {"allowed": False, "reason": "the epoch ends soon", "retryAfter": "30m"})


class Coordinator:
    """Answers for all workloads. `asked`: every question; `says`: status and body for a question before a move."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.says: tuple[int, dict[str, Any]] = NOT_YET
        coordinator = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                coordinator.asked.append(asked)
                status, body = coordinator.says if asked["event"] == "before-move" else (200, {})
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True, name="coordinator").start()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.asked if one["event"] == event]


@pytest.fixture(scope="module", name="server")
def serving() -> Iterator[Coordinator]:
    one = Coordinator()
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def coordinator(server: Coordinator) -> Coordinator:
    server.asked.clear()
    server.says = NOT_YET
    return server


@pytest.fixture(scope="module", name="stack")
def running_stack(lab: Lab, kubelets: Kubelets, server: Coordinator) -> Iterator[Running]:
    url = f"http://127.0.0.1:{server.server.server_port}/move"
    hook = f"  hooks:\n  - {{name: trainers, selector: {{matchLabels: {{app: trainer}}}}, before: '{url}', after: '{url}', deadline: 6s}}\n"
    with services(lab, POLICY + hook) as running:
        yield running


async def asked(world: World, stack: Running, scheduler: str, app: str, annotations: dict[str, str] | None = None) -> tuple[Any, str]:
    """The pod and its move to `target`, whose slot is held."""
    await world.node("source", gpus=1)
    await world.workload("deployments", app, 1, pod_spec(schedulerName=scheduler), 0.2, annotations=annotations)
    (pod,) = await world.running(app)
    await world.node("target", gpus=1)
    await known(stack, [pod])
    move = await migrate(stack, pod, "target")
    if scheduler == "default-scheduler":
        await stand(world, 1)
    return pod, move


async def until(what: str, found: Any, seconds: float = 20) -> Any:
    for _ in range(int(seconds / 0.05)):
        if got := found():
            return got
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}")


def notes(world: World, pod: Any) -> dict[str, str]:
    """Its annotations, by now."""
    there = world.pods.get(pod["metadata"]["uid"]) or {"metadata": {}}
    return there["metadata"].get("annotations") or {}


def stays(world: World, pod: Any) -> None:
    """As if nobody had asked."""
    assert (pod["metadata"]["uid"], "ending") not in world.at
    assert not {REQUESTED, UNTIL} & notes(world, pod).keys()


async def reason(stack: Running, move: str) -> str:
    return " ".join((await asyncio.to_thread(stack.restow, "why", f"migration/{move}")).split())


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_nobody_goes_before_the_coordinator_agrees_and_it_is_told_the_successor(
    world: World, stack: Running, coordinator: Coordinator, scheduler: str
) -> None:
    pod, move = await asked(world, stack, scheduler, "trainer")
    await until("it is asked twice", lambda: len(coordinator.events("before-move")) >= 2)
    assert (pod["metadata"]["uid"], "ending") not in world.at
    coordinator.says = YES
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.stands("trainer", ["target"])
    (told,) = await until("it is told", lambda: coordinator.events("after-move"))
    await world.gone([pod])
    (successor,) = world.of("trainer")
    assert (told["migration"], told["pod"], told["uid"]) == (move, successor["metadata"]["name"], successor["metadata"]["uid"])
    assert {(one["migration"], one["uid"], one["node"], one["target"]) for one in coordinator.events("before-move")} == {
        (move, pod["metadata"]["uid"], "source", "target")
    }


async def test_a_coordinator_that_refuses_keeps_its_pod_and_its_words_are_said(
    world: World, stack: Running, coordinator: Coordinator, scheduler: str
) -> None:
    coordinator.says = NO
    pod, move = await asked_at_once(world, stack, scheduler)
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "WorkloadRefused"), one
    assert "the epoch ends soon" in await reason(stack, move)
    stays(world, pod)


async def asked_at_once(world: World, stack: Running, scheduler: str) -> tuple[Any, str]:
    """One whose answer may come before its placeholder is seen."""
    await world.node("source", gpus=1)
    await world.workload("deployments", "trainer", 1, pod_spec(schedulerName=scheduler), 0.2)
    (pod,) = await world.running("trainer")
    await world.node("target", gpus=1)
    await known(stack, [pod])
    return pod, await migrate(stack, pod, "target")


async def test_a_coordinator_that_says_not_yet_until_the_deadline_keeps_its_pod_and_is_told_that_it_may_resume(
    world: World, stack: Running, coordinator: Coordinator, scheduler: str
) -> None:
    pod, move = await asked(world, stack, scheduler, "trainer")
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "NoWord"), one
    (told,) = await until("it is told", lambda: coordinator.events("move-cancelled"))
    assert (told["migration"], told["reason"]) == (move, "NoWord")
    stays(world, pod)


# -- by annotations ----------------------------------------------------------------------------------------------------


async def answered(world: World, stack: Running, scheduler: str, **more: str) -> tuple[Any, str]:
    """One that is asked on its pod."""
    pod, move = await asked(world, stack, scheduler, "worker", {BEFORE: "annotation", AFTER: "annotation", **more})
    await world.until(lambda: notes(world, pod).get(REQUESTED) == move and notes(world, pod).get(UNTIL), "it is asked on the pod")
    assert (pod["metadata"]["uid"], "ending") not in world.at
    return pod, move


async def says(world: World, pod: Any, annotation: str, text: str) -> None:
    await world.api.ok("PATCH", path_of(pod), {"metadata": {"annotations": {annotation: text}}}, media=MERGE)


async def test_a_workload_that_acknowledges_on_its_pod_is_moved_and_its_successor_says_from_where(
    world: World, stack: Running, scheduler: str
) -> None:
    pod, move = await answered(world, stack, scheduler)
    await says(world, pod, ACKNOWLEDGED, "another-move")
    await asyncio.sleep(0.5)
    assert (pod["metadata"]["uid"], "ending") not in world.at, "an answer to another move counts"
    await says(world, pod, ACKNOWLEDGED, move)
    one = await ended(stack, move)
    assert one["step"] == "landed", one
    await world.gone([pod])
    (successor,) = world.of("worker")
    await world.until(lambda: notes(world, successor).get(MOVED_BY) == move, "the successor is told")
    assert notes(world, successor)[MOVED_FROM] == "source"
    assert REQUESTED not in notes(world, successor)


async def test_a_workload_that_refuses_on_its_pod_stays_and_is_asked_nothing_any_more(world: World, stack: Running, scheduler: str) -> None:
    pod, move = await answered(world, stack, scheduler)
    await says(world, pod, REFUSED, f"{move} retry-after=30m the epoch ends soon")
    one = await ended(stack, move)
    assert (one["step"], one["reason"]) == ("failed", "WorkloadRefused"), one
    assert "the epoch ends soon" in await reason(stack, move)
    await world.until(lambda: REQUESTED not in notes(world, pod), "the question goes")
    stays(world, pod)


@pytest.mark.parametrize("silence", ["stay", "evict"])
async def test_a_workload_that_says_nothing_until_its_deadline_does_as_it_has_declared(
    world: World, stack: Running, scheduler: str, silence: str
) -> None:
    pod, move = await answered(world, stack, scheduler, **{DEADLINE: "3s", ON_SILENCE: silence})
    one = await ended(stack, move)
    if silence == "evict":
        assert one["step"] == "landed", one
        await world.stands("worker", ["target"])
        return
    assert (one["step"], one["reason"]) == ("failed", "NoWord"), one
    await world.until(lambda: REQUESTED not in notes(world, pod), "the question goes")
    stays(world, pod)
