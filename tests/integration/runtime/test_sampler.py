"""Whoever asks the descheduler for something waits neither for everybody before nor for what is only told beside: metrics that do not
come, and what a plan does to groups of nodes."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from domain.build import NOW, configured, given, node, then
from multidict import MultiDict

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Packing
from restow.descheduler import api, sampler
from restow.descheduler.follow import Followers
from restow.descheduler.sampler import Sampler
from restow.domain import config
from restow.domain.descheduling.policy import load, written
from restow.runtime.bearer import Gate
from restow.runtime.command_queue import Outcome
from restow.runtime.leadership import Leadership
from restow.runtime.offload import CopyFailed

MEASURED = {
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [
                {
                    "name": "LowNodeUtilization",
                    "args": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metricsUtilization": {"source": "KubernetesMetrics"}},
                }
            ],
            "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
        }
    ],
    "metricsProviders": [{"source": "KubernetesMetrics"}],
}
TOKEN = "a-token-of-sixteen-characters"


class Clock:
    """Time goes on while metrics are read."""

    time = NOW

    def now(self):
        return self.time


@pytest.fixture
def context():
    said = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"} | MEASURED
    state = given(configured("migration", config.MigrationConfig(policy=written(load(said)))), node("a"))
    metrics = SimpleNamespace(labelled=lambda _: None)
    leadership = Leadership("migration", "one")
    leadership.claim()
    leadership.won(1)
    return SimpleNamespace(state=state, clock=Clock(), client=None, metrics=metrics, gate=Gate(TOKEN), leadership=leadership, settings=SimpleNamespace(lease="off"), refused=lambda: "")


async def test_metrics_that_do_not_come_are_waited_for_once_however_many_ask(context, monkeypatch):
    """Each wait of all of DEADLINE after the other would keep the timed trigger waiting for as long as anybody asks for dry runs."""
    asked = 0

    async def down(*_):
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        context.clock.time += int(sampler.DEADLINE * 1000)
        raise TimeoutError

    monkeypatch.setattr(sampler, "sample", down)
    samples = Sampler(context)
    found = await asyncio.gather(*(samples.sample() for _ in range(20)))
    assert asked == 1
    assert {one.error for one in found if one is not None} == {f"metrics.k8s.io: no answer in {sampler.DEADLINE:g} s"}
    context.clock.time += sampler.FRESH
    await samples.sample()
    assert asked == 2


async def test_a_plan_that_is_carried_out_is_not_refused_because_groups_cannot_be_told(context, monkeypatch):
    """Its events are in the log by then: an answer 409 would have it asked for again."""
    none = Packing(0, 0, 0, 0, 0, 0)

    async def submit(command: c.Defragment, cause: str) -> Outcome:
        return Outcome(7, (e.Planned(command.plan, "Defragmentation", (), none, none),))

    async def killed(_):
        raise CopyFailed("its process was killed, most likely for its memory")

    context.commander, context.follower = SimpleNamespace(submit=submit), SimpleNamespace(broken="")
    monkeypatch.setattr(api, "in_copy", killed)
    (defragment,) = [route for route in api.routes(context, Followers(context)) if route.path == "/defragment"]

    async def read():
        return b""

    request = SimpleNamespace(query=MultiDict(), read=read, path="/defragment", headers=SimpleNamespace(getall=lambda *_: [f"Bearer {TOKEN}"]))
    answer = await defragment.handler(request)
    assert answer.status == 200
    said = json.loads(answer.body)
    assert (said["seq"], said["groups"]) == (7, [])


async def test_of_a_source_that_the_policy_goes_by_no_more_nobody_hears(context, monkeypatch):
    """It is read for a plan, and a policy without it may make none for days: meanwhile RestowMetricsUnusable went on."""

    async def down(client, policy, uids, now):
        raise RuntimeError("nobody is there")

    monkeypatch.setattr(sampler, "sample", down)
    samples = Sampler(context)
    await samples.sample()
    assert [one.samples for one in samples._usable()] == [[(("metrics.k8s.io",), 0.0)]]
    then(context.state, configured("migration", config.MigrationConfig()))
    assert [one.samples for one in samples._usable()] == [[]]
