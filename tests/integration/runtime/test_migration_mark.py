"""The mark on the way back, when the API does not take it: tried until its time is up, then that is reported, and people are told."""

from types import SimpleNamespace

import pytest
from domain.build import NOW, node, pod, run, then
from domain.saga import advance, decider, hold, move, plan, step, world

from restow.contracts import commands as c
from restow.descheduler.effects import executors
from restow.descheduler.landings import Landings
from restow.descheduler.user_events import Told
from restow.domain import config
from restow.domain.effects import AbortEviction
from restow.domain.records import Step
from restow.kube import effects as k
from restow.runtime.effector import Report, Retry

UNTIL = NOW + config.MigrationConfig().abort_deadline


def aborting():
    state = world(plan("x", move("x-1", "p1")))
    advance(state)
    hold(state, "x-1")
    run(state, decider, c.ReportEviction(NOW, "x-1", "Budget", "minAvailable"))
    assert step(state, "x-1") is Step.ABORTING
    return state


class Clock:
    at = NOW

    def now(self):
        return self.at


def executor(state, answer, monkeypatch):
    async def refuses(self, pod, deadline=0):
        assert deadline == state.migrations["x-1"].deadline, "only the eviction that is given up is forbidden"
        return answer

    monkeypatch.setattr(k.Effects, "abort_eviction", refuses)
    clock = Clock()
    context = SimpleNamespace(client=None, state=state, clock=clock, recorder=None, metrics=SimpleNamespace(gauges=lambda read: None))
    return clock, executors(context, Landings(context))[AbortEviction].execute


@pytest.mark.parametrize(
    "answer", [k.Refused(403, "Forbidden", "no"), k.Refused(422, "Invalid", "no"), k.Failed(429, "TooManyRequests", "no"), k.Failed(500, "InternalError", "no")]
)
async def test_it_is_tried_until_its_time_is_up_and_then_said_why_not(answer, monkeypatch):
    state = aborting()
    clock, execute = executor(state, answer, monkeypatch)
    clock.at = UNTIL - 1
    assert isinstance(await execute(AbortEviction("x-1"), state), Retry)
    clock.at = UNTIL
    said = await execute(AbortEviction("x-1"), state)
    assert said == Report(c.ReportEviction(UNTIL, "x-1", "NotMarked", f"{answer.code} {answer.reason} no"))
    run(state, decider, said.command)
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "NotMarked")


def test_people_are_told_on_the_pod_and_on_its_node():
    state = aborting()
    then(state, pod("other", node="a"), node("c"))
    run(state, decider, c.ReportEviction(UNTIL, "x-1", "NotMarked", "403 Forbidden"))
    said = []
    Told(SimpleNamespace(record=said.append)).ended(state, state.migrations["x-1"], evicted=False)
    assert [(notice.regarding.kind, notice.reason, notice.type) for notice in said] == [
        ("Pod", "MigrationNotMarked", "Warning"),
        ("Node", "MigrationNotMarked", "Warning"),
    ]
    assert "403 Forbidden" in said[0].note
