"""The descheduler and the broker are killed while workloads think about a move: the question is asked again under the same name, nobody is evicted before the
word, and every word is kept. On a real broker and kubesim."""

import asyncio
import json
import time

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from integration.killing import PATIENCE, judge, nobody_is_lost, replica_set

from restow.cli.demo.feed import Api
from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.domain import hooks
from restow.domain.records import FINAL, Step
from restow.kubesim.nodes import NodeShape, build_node

NS = "kill"
SAY_YES, SAY_NO, SAY_NOTHING, ANNOTATED = "yes", "no", "nothing", "annotated"
EACH = (SAY_YES, SAY_NO, SAY_NOTHING, ANNOTATED)
POLICY = """\
  hooks:
  - {name: gate, selector: {matchExpressions: [{key: app, operator: In, values: ["yes", "no", nothing]}]}, before: "URL", after: "URL", deadline: 40s}
  - {name: noted, selector: {matchLabels: {app: annotated}}, before: annotation}
"""


class Gate:
    """Answers for all workloads, and not before it is let."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.may_answer = False

    async def serve(self, request: web.Request) -> web.Response:
        said = await request.json()
        self.asked.append(said)
        app = said["pod"].rpartition("-")[0]
        if said["event"] != "before-move":
            return web.Response()
        if not self.may_answer or app == SAY_NOTHING:
            return web.json_response({"retryAfter": "1s"}, status=202)
        return web.json_response({"allowed": app == SAY_YES, "reason": f"says {app}"})

    def migrations(self, event: str, app: str) -> set[str]:
        return {one["migration"] for one in self.asked if one["event"] == event and one["pod"].startswith(f"{app}-")}


async def world(api: Api, observer: Observer) -> None:
    """Each workload's pod on the source, and a target that is half full."""
    base = f"/apis/apps/v1/namespaces/{NS}/replicasets"
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    await api.create("/api/v1/nodes", build_node(NodeShape("source", 16_000, 64 << 30, labels={"role": "source"}), number=0))
    for app in EACH:
        await api.create(base, replica_set(NS, app, 1, "1"))
    await observer.until("the movers run", lambda: observer.running() == len(EACH), PATIENCE)
    await api.create("/api/v1/nodes", build_node(NodeShape("target", 16_000, 64 << 30, labels={"role": "target"}), number=1))
    await api.create(base, replica_set(NS, "filler", 1, "8", nodeSelector={"role": "target"}))
    await observer.until("the filler runs", lambda: observer.running() == len(EACH) + 1, PATIENCE)


async def play(folder) -> None:
    gate, app = Gate(), web.Application()
    app.router.add_post("/gate", gate.serve)
    async with TestServer(app) as server:
        policy = configs.policy(resource="cpu") + POLICY.replace("URL", f"http://127.0.0.1:{server.port}/gate")
        stack = Stack(folder / "stack", policy=policy, scheduler=configs.scheduler(), keep=True, kubelet_speed=0.1)
        async with stack, Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
            await world(api, observer)
            await asks(stack, observer)
            await kill_while_they_think(stack, observer, gate)
            await answered(stack, observer, gate)
            await nobody_is_lost(api, NS, len(EACH) + 1)
            await asyncio.to_thread(judge, stack, folder / "log.jsonl.zst", {})


async def asks(stack: Stack, observer: Observer) -> None:
    url, state, until = f"{stack.http('descheduler')}/defragment", observer.state, time.monotonic() + PATIENCE
    async with aiohttp.ClientSession(headers=stack.authorization) as session:
        for query in ("?dryRun=true", ""):
            while True:
                async with session.post(url + query, json={}) as answer:
                    said = await answer.json()
                    assert answer.status == 200, said
                if not query or len(said["events"][0].get("moves", ())) == len(EACH):
                    break
                assert time.monotonic() < until, said
    await observer.until("all are asked", lambda: len(state.consents) == len(EACH), PATIENCE)


async def kill_while_they_think(stack: Stack, observer: Observer, gate: Gate) -> None:
    state = observer.state
    deadlines = {id: known.deadline for id, known in state.consents.items()}
    await observer.until("the gate is asked", lambda: len({one["migration"] for one in gate.asked}) == 3, PATIENCE)
    for _ in range(2):
        before, epoch = len(gate.asked), state.leaders["migration"].epoch
        stack.children["descheduler"].kill()
        await observer.until("another process leads", lambda epoch=epoch: state.leaders["migration"].epoch > epoch, PATIENCE)
        await observer.until("it asks again", lambda before=before: len({one["migration"] for one in gate.asked[before:]}) == 3, PATIENCE)
    stack.kill_broker()
    before = len(gate.asked)
    await observer.until("it asks again", lambda: len(gate.asked) > before, PATIENCE)
    assert {id: known.deadline for id, known in state.consents.items()} == deadlines, "it is one question, with one deadline"
    assert {state.migrations[id].step for id in deadlines} == {Step.HELD}, "nobody goes without a word"
    assert {one["attempt"] for one in gate.asked} >= {1, 2}


async def answered(stack: Stack, observer: Observer, gate: Gate) -> None:
    state = observer.state
    gate.may_answer = True
    (noted,) = [pod.fact for pod in state.pods.values() if pod.fact.labels.get("app") == ANNOTATED]
    await observer.until("it is asked on the pod", lambda: hooks.REQUESTED in state.pods[noted.pod].fact.annotations, PATIENCE)
    await says(stack, noted.name, {hooks.ACKNOWLEDGED: state.pods[noted.pod].fact.annotations[hooks.REQUESTED]})
    await observer.until("every move has ended", lambda: all(m.step in FINAL for m in state.migrations.values()), PATIENCE)
    ended = {m.move.name.rpartition("-")[0]: (str(m.step), m.reason) for m in state.migrations.values()}
    assert ended == {SAY_YES: ("landed", ""), ANNOTATED: ("landed", ""), SAY_NO: ("failed", "WorkloadRefused"), SAY_NOTHING: ("failed", "NoWord")}
    await observer.until("all are told", lambda: not state.tellings, PATIENCE)
    assert gate.migrations("after-move", SAY_YES) == gate.migrations("before-move", SAY_YES)
    assert gate.migrations("move-cancelled", SAY_NOTHING) == gate.migrations("before-move", SAY_NOTHING)
    assert not gate.migrations("move-cancelled", SAY_NO), "it knows"
    await observer.until("no hold is left", lambda: not state.reservations and not observer.holds() and observer.running() == len(EACH) + 1, PATIENCE)


async def says(stack: Stack, pod: str, annotations: dict[str, str]) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    async with aiohttp.ClientSession(stack.kube, headers=headers) as session:
        body = json.dumps({"metadata": {"annotations": annotations}})
        async with session.patch(f"/api/v1/namespaces/{NS}/pods/{pod}", data=body) as answer:
            assert answer.status == 200, await answer.text()


@pytest.mark.slow
def test_whoever_is_killed_while_workloads_think_each_word_is_asked_for_once_more_and_kept(tmp_path):
    asyncio.run(play(tmp_path))
