"""What a service remembers of objects beside the state goes when they do: a process lives for months."""

from types import SimpleNamespace

from domain.build import NOW, given, node, queue, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as decider
from restow.domain.effects import WriteQueueStatus, WriteReservationStatus
from restow.kube.effects import Done
from restow.reservation_cache.effects import _Status
from restow.scheduler_session.status import StatusEffects


async def done(*_args):
    return Done()


def context(state):
    return SimpleNamespace(client=None, state=state, recorder=SimpleNamespace(record=lambda notice: True), clock=SimpleNamespace(now=lambda: NOW))


async def test_reservations_that_are_gone_are_not_remembered(monkeypatch):
    state = given(node("a"), shape("s"))
    writer = _Status(context(state))
    monkeypatch.setattr(writer._kube, "write_status", done)
    for i in range(500):
        uid = f"r{i}"
        then(state, reservation(uid, ("t", 1, "s")))
        run(state, decider.decider, c.Review(NOW))
        await writer.write(WriteReservationStatus(uid, state.seq), state)
        then(state, e.ReservationGone(uid))
    assert writer._generations
    assert len(state.reservations) < 50
    assert max(len(writer._told), len(writer._generations)) < 200


async def test_queues_that_are_gone_are_not_remembered(monkeypatch):
    state = given(node("a"), shape("s"))
    writer = StatusEffects(context(state))
    monkeypatch.setattr(writer._kube, "write", done)
    for i in range(500):
        then(state, queue(f"q{i}"))
        await writer.write_queue(WriteQueueStatus(f"q{i}", state.seq), state)
        then(state, e.QueueGone(f"q{i}"))
    assert 0 < len(writer._queues) < 200
