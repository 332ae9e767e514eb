"""The session's check whether another scheduler honours nominations: by the leader alone, at its start, when that scheduler has another leader, and again
where it came to nothing."""

import asyncio
from types import SimpleNamespace

import pytest
from domain.build import NOW, given, node, run, then
from domain.test_beside import STOCK, world
from integration.runtime.rig import ManualClock
from structlog.testing import capture_logs

from restow.contracts import events as e
from restow.domain import nomination_checks as rules
from restow.domain import session
from restow.kube import canaries
from restow.kube import effects as k
from restow.kube.canary import Verdict
from restow.kube.client import ApiStatus
from restow.kube.placeholder import IMAGE
from restow.scheduler_session import nomination_checks as subject


class Rig:
    """The task, without its API: `answers` are what the canaries find, one after the other."""

    def __init__(self, monkeypatch, *answers, image=""):
        self.state, self.clock, self.answers = world(), ManualClock(), list(answers)
        self.state.nominations_checked.clear()
        then(self.state, e.NamespaceObserved("restow-holds", {}))
        self.asked, self.images, self.swept, self.told, self.leader, self.steady = [], [], [], [], "one", 0.0
        self.notes, self.gauges, self.leadership = [], [], SimpleNamespace(leading=True)
        context = SimpleNamespace(
            state=self.state, clock=self.clock, client=None, leadership=self.leadership,
            health=SimpleNamespace(notes=self.notes), metrics=SimpleNamespace(labelled=self.gauges.append),
            recorder=SimpleNamespace(record=self.told.append), commander=SimpleNamespace(submit=self.submit),
        )  # fmt: skip
        monkeypatch.setattr(canaries, "honours_nominations", self.honours)
        monkeypatch.setattr(canaries, "sweep", self.sweep)
        monkeypatch.setattr(subject.Beside, "scheduler", self.holder)
        monkeypatch.setattr(subject.machine, "steady", lambda: self.steady)
        self.task = subject.NominationChecks(context, image)

    async def honours(self, client, scheduler, node, log, token, image):
        self.images.append(image)
        self.asked.append((scheduler, node))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sweep(self, client, log):
        self.swept.append(log)

    async def holder(self):
        return self.leader

    async def submit(self, command, cause):
        run(self.state, session.decider, command)

    async def turns(self, count=3):
        """So many looks at what is due."""
        left = count

        async def sleep(seconds):
            nonlocal left
            left -= 1
            if left <= 0:
                raise asyncio.CancelledError
        before, asyncio.sleep = asyncio.sleep, sleep
        try:
            with pytest.raises(asyncio.CancelledError):
                await self.task.run()
        finally:
            asyncio.sleep = before

    def later(self, millis):
        self.clock.advance(millis)
        self.steady += millis / 1000


async def test_the_leader_asks_once_and_what_was_left_behind_goes_before(monkeypatch):
    rig = Rig(monkeypatch, Verdict("honoured"))
    rig.leadership.leading = False
    await rig.turns()
    assert rig.asked == []
    rig.leadership.leading = True
    await rig.turns()
    assert (rig.asked, rig.swept) == ([(STOCK, "a")], [rig.state.log])
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED
    assert [note() for note in rig.notes] == [""]
    assert [(g.name, g.samples) for read in rig.gauges for g in read()] == [("nominations_honoured", [((STOCK,), 1.0)])]
    assert rig.told == []


@pytest.mark.parametrize(("said", "image"), [("", IMAGE), ("local/pause", "local/pause")])
async def test_canaries_have_the_image_of_the_settings(monkeypatch, said, image):
    rig = Rig(monkeypatch, Verdict("honoured"), image=said)
    await rig.turns()
    assert rig.images == [image]


async def test_another_leader_of_the_scheduler_is_asked_again_and_a_next_process_asks_once_more(monkeypatch):
    rig = Rig(monkeypatch, Verdict("honoured"), Verdict("ignored", "why"), Verdict("honoured"))
    await rig.turns()
    rig.leader = "two"
    rig.later(11_000)
    await rig.turns()
    assert rules.verdict(rig.state, STOCK) == rules.IGNORED
    assert "preempting" in rig.notes[0]()
    assert [notice.reason for notice in rig.told] == ["NominationsIgnored"]
    rig.task._asked.clear()
    await rig.turns()
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED
    assert rig.answers == []


async def test_what_the_api_refuses_is_unknown_and_asked_again_later_on_another_node(monkeypatch):
    rig = Rig(monkeypatch, ApiStatus(403, "Forbidden", "no"), Verdict("unknown", "late"), Verdict("honoured"))
    await rig.turns()
    assert rig.asked == [(STOCK, "a")]
    assert "not known: 403 Forbidden no" in rig.notes[0]()
    rig.later(rules.FIRST)
    await rig.turns()
    rig.later(rules.FIRST)
    await rig.turns()
    assert rig.asked == [(STOCK, "a"), (STOCK, "b")]
    rig.later(rules.FIRST)
    await rig.turns()
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED


async def test_a_scheduler_that_was_away_for_an_hour_is_asked_as_soon_as_its_lease_has_another_holder(monkeypatch):
    late = Verdict("unknown", "the scheduler did not look at the probe within 10 s")
    rig = Rig(monkeypatch, *[late] * 9, Verdict("honoured"))
    await rig.turns()
    for failed in range(1, 9):
        rig.later(min(rules.FIRST << (failed - 1), rules.LONGEST))
        await rig.turns()
    assert len(rig.answers) == 1
    rig.leader = "two"
    rig.later(11_000)
    await rig.turns()
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED


@pytest.mark.parametrize(("gone", "why"), [("nodes", "no node takes another pod"), ("namespaces", "namespace restow-holds is not there (is deploy/beside applied?)")])
async def test_where_it_cannot_be_tried_nobody_is_asked_until_it_can(monkeypatch, gone, why):
    rig = Rig(monkeypatch, Verdict("honoured"))
    there = dict(getattr(rig.state, gone))
    getattr(rig.state, gone).clear()
    await rig.turns()
    assert rig.notes[0]() == f"whether {STOCK} honours nominations is not known: {why}; until it is, its pods do not move"
    getattr(rig.state, gone).update(there)
    await rig.turns()
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED


async def test_where_nobody_is_beside_nothing_is_asked_or_said(monkeypatch):
    rig = Rig(monkeypatch)
    rig.task._context.state = given(node("a"), time=NOW)
    await rig.turns()
    assert (rig.asked, [note() for note in rig.notes], [list(one.samples) for read in rig.gauges for one in read()]) == ([], [""], [[]])


async def test_that_its_lease_may_not_be_read_is_said_once(monkeypatch):
    rig = Rig(monkeypatch, Verdict("honoured"))
    rig.leader = k.Refused(403, "Forbidden", 'cannot get resource "leases"')
    with capture_logs() as said:
        await rig.turns()
        rig.later(11_000)
        await rig.turns()
    assert [one["reason"] for one in said] == ['403 Forbidden cannot get resource "leases"']
    assert rules.verdict(rig.state, STOCK) == rules.HONOURED
