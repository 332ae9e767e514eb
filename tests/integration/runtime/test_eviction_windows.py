"""No eviction is sent once pods are not to move by the clock, also where the log does not take the decision that ends its plan."""

from types import SimpleNamespace

from domain.build import NOW
from domain.saga import advance, hold, move, plan, step, world

from restow.contracts.times import rfc3339
from restow.descheduler.effects import executors
from restow.descheduler.landings import Landings
from restow.domain.config import Period
from restow.domain.effects import Evict
from restow.domain.records import Step
from restow.kube import effects as k
from restow.runtime.effector import Retry, Wait

FREEZE = NOW + 30_000


async def test_an_eviction_that_a_budget_has_refused_is_not_tried_again_in_a_blackout_that_has_begun_since(monkeypatch):
    """The broker is away when it begins: nothing is decided, and what was decided before is still carried out."""
    freeze = Period(start=rfc3339(FREEZE), end=rfc3339(FREEZE + 3_600_000), reason="change freeze")
    state = world(plan("x", move("x-1", "p1")), budget_patience=600_000, blackouts=(freeze,))
    advance(state)
    hold(state, "x-1")
    assert step(state, "x-1") is Step.EVICTING
    sent = []

    async def evict(_, pod, *more, **named):
        sent.append(pod.name)
        return k.OverBudget("none is left")

    monkeypatch.setattr(k.Effects, "evict", evict)
    clock = SimpleNamespace(at=FREEZE - 1)
    context = SimpleNamespace(
        client=None, state=state, clock=SimpleNamespace(now=lambda: clock.at), recorder=SimpleNamespace(record=lambda notice: None),
        metrics=SimpleNamespace(gauges=lambda read: None),
    )  # fmt: skip
    execute = executors(context, Landings(context))[Evict].execute
    assert isinstance(await execute(Evict("x-1"), state), Retry)
    clock.at = FREEZE
    assert isinstance(await execute(Evict("x-1"), state), Wait)
    assert sent == ["p1"]
