"""Of a gang that is moved as one the API is asked about every eviction before the first is sent."""

import asyncio

import pytest
from domain.build import NOW, then
from domain.test_gang_evictions import decided, kept
from integration.runtime.test_beside_effects import Api

from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain.effects import Evict
from restow.kube import effects as k
from restow.kube.gates import Gated, Gates, NotGated
from restow.runtime.effector import Done, Report, Retry, Wait

REFUSED = k.Refused(403, "Forbidden", "a webhook says no")
OVER = k.OverBudget("none is left")


class Gang:
    """Three pods that may leave, and what the API says of each: to a dry run, and to the eviction."""

    def __init__(self, monkeypatch, **conf):
        self.state, self.moves = decided(**conf)
        kept(self.state, *self.moves)
        self.api = Api(monkeypatch)
        self.asked, self.sent, self.gates = [], [], 0
        self.dry, self.real = {}, {}
        self.is_gated = True

        async def evict(_, pod, *more, dry=False, **named):
            await asyncio.sleep(0)
            (self.asked if dry else self.sent).append(pod.name)
            return (self.dry if dry else self.real).get(pod.name, k.Accepted())

        async def gated(_, controller):
            self.gates += 1
            return Gated(self.api.ends) if self.is_gated else NotGated()

        monkeypatch.setattr(k.Effects, "evict", evict)
        monkeypatch.setattr(Gates, "gated", gated)
        executors = self.api.executors(self.state)
        self.execute = executors[Evict].execute
        self.told = []

    async def hear(self):
        """Every API server has heard of the entry."""
        await self.all()
        self.api.steady += 2.0

    async def all(self):
        return await asyncio.gather(*(self.execute(Evict(id), self.state) for id in self.moves))


@pytest.fixture
def gang(monkeypatch):
    return Gang(monkeypatch)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Events to users are another test's."""
    from restow.descheduler import effects

    monkeypatch.setattr(effects._MigrationEffects, "_say_waits", lambda *_: None)
    monkeypatch.setattr(effects, "Notice", lambda *_: None)
    monkeypatch.setattr(Api, "executors", with_recorder(Api.executors))


def with_recorder(executors):
    def made(self, state):
        found = executors(self, state)
        found[Evict].execute.__self__._context.recorder = type("Recorder", (), {"record": lambda *_: None})()
        return found

    return made


async def test_all_are_asked_about_once_and_then_all_leave(gang):
    await gang.hear()
    assert (gang.asked, gang.sent) == ([], []), "nobody leaves before each API server has heard of the entry"
    assert await gang.all() == [Done()] * 3
    assert sorted(gang.asked) == ["p1", "p2", "p3"]
    assert sorted(gang.sent) == ["p1", "p2", "p3"]


async def test_one_that_would_be_refused_keeps_all_of_them_and_is_told_once(gang):
    await gang.hear()
    gang.dry = {"p2": REFUSED}
    answers = await gang.all()
    assert gang.sent == []
    reports = [one.command for one in answers if isinstance(one, Report)]
    assert [(one.migration, one.reason, one.message) for one in reports] == [(gang.moves[1], "Refused", "403 Forbidden a webhook says no")]
    assert [one for one in answers if not isinstance(one, Report)] == [Wait(0.5)] * 2


async def test_a_budget_that_would_refuse_one_is_waited_for_by_all_as_long_as_the_policy_says(monkeypatch):
    gang = Gang(monkeypatch, budget_patience=20_000)
    await gang.hear()
    gang.dry = {"p3": OVER}
    assert all(isinstance(one, Retry) for one in await gang.all())
    assert sorted(gang.asked) == ["p1", "p2", "p3"], "and nobody is asked about again by each of them"
    gang.dry, gang.api.steady = {}, gang.api.steady + 3.0
    assert await gang.all() == [Done()] * 3


async def test_a_budget_that_allows_one_is_not_enough_for_all_although_each_dry_run_says_yes(gang):
    then(gang.state, e.BudgetObserved("default", "w", "uid-w", LabelSelector({}), 1))
    await gang.hear()
    (said,) = [one.command for one in await gang.all() if isinstance(one, Report)]
    assert said.reason == "Budget"
    assert said.message == "the disruption budget default/w allows 1 evictions now, 2 too few for all of its gang"
    assert gang.sent == []


async def test_where_one_is_refused_all_the_same_it_is_tried_again_until_it_is_late(gang):
    """The log does not say yet that the others have left."""
    await gang.hear()
    gang.real = {"p2": OVER}
    answers = await gang.all()
    assert [type(one) for one in answers] == [Done, Retry, Done]
    gang.dry, gang.asked = {"p2": OVER}, []
    gang.api.steady += 60.0
    assert isinstance(await gang.execute(Evict(gang.moves[1]), gang.state), Retry)
    assert gang.asked == [], "once some have left, it is no question any more whether all may"
    gang.api.now = gang.state.migrations[gang.moves[1]].deadline
    gang.api.ends = gang.api.now + 180_000
    said = await gang.execute(Evict(gang.moves[1]), gang.state)
    assert isinstance(said, Report)
    assert said.command.reason == "Budget"


@pytest.mark.parametrize("outcome", [k.Gone(), k.AlreadyTerminating()])
async def test_one_that_has_left_by_itself_is_followed(gang, outcome):
    await gang.hear()
    gang.dry = {"p1": outcome, "p2": REFUSED}
    await gang.all()
    assert sorted(gang.sent) == ["p1", "p2", "p3"]


async def test_one_that_its_owner_moves_by_itself_refuses_nothing(gang):
    await gang.hear()
    gang.dry = {"p1": k.InBackground("evacuation")}
    await gang.all()
    assert sorted(gang.sent) == ["p1", "p2", "p3"]


async def test_nobody_leaves_where_the_successor_of_one_would_not_be_gated(gang):
    await gang.hear()
    gang.is_gated = False
    assert all(isinstance(one, Retry) for one in await gang.all())
    assert (gang.asked, gang.sent) == ([], [])


async def test_what_comes_while_they_are_asked_about_is_looked_at_again(gang, monkeypatch):
    await gang.hear()
    before = k.Effects.evict

    async def evict(self, pod, *more, dry=False, **named):
        if dry and "h-lost" not in gang.told:
            gang.told.append("h-lost")
            then(gang.state, e.PodGone(f"h{gang.moves[0]}"))
        return await before(self, pod, *more, dry=dry, **named)

    monkeypatch.setattr(k.Effects, "evict", evict)
    assert await gang.all() == [Wait(0.1)] * 3
    assert gang.sent == []


async def test_an_api_that_does_not_answer_is_asked_again_at_the_usual_pace(gang):
    await gang.hear()
    gang.dry = dict.fromkeys(("p1", "p2", "p3"), k.Failed(503, "", "away"))
    assert all(isinstance(one, Retry) for one in await gang.all())
    assert len(gang.asked) == 3
    gang.dry, gang.api.steady = {}, gang.api.steady + 0.5
    assert await gang.all() == [Done()] * 3
    assert gang.api.now == NOW
