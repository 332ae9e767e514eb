"""The simulator's own ground: virtual time, processes that die or stand still, a network and a broker with faults."""

import asyncio
import contextvars
import random

import pytest

from restow.contracts.envelope import Envelope
from restow.eventlog.port import Conflict, Unknown
from simulation.broker import Broker, SimLog
from simulation.loop import Process, SimLoop, Spin, Stuck, running
from simulation.network import _connect


@pytest.fixture
def loop():
    loop = SimLoop("test")
    yield loop
    loop.finished = True
    loop.close()


def run(loop, main):
    return loop.run_until_complete(loop.create_task(main, context=contextvars.Context()))


def start(loop, process, main):
    return loop.create_task(main, context=process.context())


def test_an_hour_passes_in_no_time(loop):
    async def main():
        await asyncio.sleep(3600)
        return loop.time()

    assert run(loop, main()) == pytest.approx(3600, abs=0.01)


def test_a_killed_process_runs_nothing_more_not_even_finally(loop):
    said = []

    async def service():
        try:
            said.append("began")
            await asyncio.sleep(1)
            said.append("went on")
        finally:
            said.append("cleaned up")

    async def main():
        process = Process("service")
        task = start(loop, process, service())
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(10)
        assert not task.done()
        return process, task

    kept = run(loop, main())
    assert said == ["began"]
    assert kept[0].dead


def test_a_process_can_be_killed_between_any_two_awaits(loop):
    async def main(after):
        done = []
        process = Process("service")

        async def service():
            for step in range(10):
                done.append(step)
                await asyncio.sleep(0.1)

        process.kill_at = after
        kept = start(loop, process, service())
        await asyncio.sleep(10)
        assert process.dead
        return len(done), kept

    assert [run(loop, main(after))[0] for after in (2, 4, 6)] == [1, 2, 3]


def test_a_paused_process_does_what_it_missed_when_it_goes_on(loop):
    said = []

    async def service():
        while len(said) < 3:
            await asyncio.sleep(1)
            said.append(loop.time())

    async def main():
        process = Process("service")
        task = start(loop, process, service())
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(10)
        assert len(said) == 1
        loop.resume(process)
        await task

    run(loop, main())
    assert said[1] == pytest.approx(11.5, abs=0.01)


def test_what_goes_round_without_waiting_is_a_spin(loop):
    async def main():
        while True:
            await asyncio.sleep(0)

    loop.spin = 1_000
    with pytest.raises(Spin):
        run(loop, main())


def test_what_waits_for_nothing_is_stuck(loop):
    async def main():
        await loop.create_future()

    with pytest.raises(Stuck):
        run(loop, main())


class Echo(asyncio.Protocol):
    def __init__(self):
        self.got, self.lost = b"", None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data

    def connection_lost(self, exc):
        self.lost = exc or "closed"


def test_bytes_arrive_whole_and_in_order_on_a_slow_network(loop):
    loop.latency = (0.001, 0.5)
    servers = []

    def made():
        servers.append(Echo())
        return servers[-1]

    async def main():
        listener = await loop.create_server(made, "127.0.0.1", 0)
        client = await _connect(loop, Echo, listener.port)
        for number in range(100):
            client.transport.write(b"%d," % number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        return servers[0].got

    assert run(loop, main()) == b"".join(b"%d," % number for number in range(100))


def test_who_talks_to_a_killed_process_is_told_by_a_reset(loop):
    async def main():
        server, client = Process("server"), Echo()
        listener = await start(loop, server, loop.create_server(Echo, "127.0.0.1", 0))
        await _connect(loop, lambda: client, listener.port)
        loop.kill(server)
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await _connect(loop, Echo, listener.port)

    run(loop, main())


# -- the broker --------------------------------------------------------------------------------------------------------


def envelope(number):
    return Envelope(id=f"id-{number}", source="/restow/test", time="2026-01-01T00:00:00Z", read=0, logic="", traceparent="")


def broker(loop):
    stored = []
    return Broker(loop, "test", "0" * 32, stored.append), stored


@pytest.mark.parametrize(("fault", "is_stored"), [("lost", False), ("unacked", True), ("late", True)])
def test_a_commit_without_an_answer_may_or_may_not_be_stored(loop, fault, is_stored):
    made, stored = broker(loop)

    async def main():
        made.shares = {fault: 1.0}
        with pytest.raises(Unknown):
            await SimLog(made).append("session", b"{}", envelope(1), expected_last=0)
        await asyncio.sleep(20)

    run(loop, main())
    assert bool(stored) is is_stored


def test_a_commit_that_arrives_twice_is_stored_once(loop):
    made, stored = broker(loop)

    async def main():
        made.shares = {"repeat": 1.0}
        assert await SimLog(made).append("session", b"{}", envelope(1), expected_last=0) == 1
        await asyncio.sleep(20)

    run(loop, main())
    assert [record.seq for record in stored] == [1]


def test_a_crash_loses_what_was_not_synced_and_nothing_that_was_acknowledged(loop):
    made, stored = broker(loop)

    async def main():
        log = SimLog(made)
        await log.append("session", b"{}", envelope(1), expected_last=0)
        made.sync = 0.5
        waiting = asyncio.ensure_future(log.append("session", b"{}", envelope(2), expected_last=1))
        await asyncio.sleep(0.1)
        made.stop(crash=True)
        made.start()
        with pytest.raises(Unknown):
            await waiting
        made.sync = 0.0
        assert await log.tail() == 1
        with pytest.raises(Conflict):
            await log.append("session", b"{}", envelope(3), expected_last=2)
        assert await log.append("session", b"{}", envelope(4), expected_last=1) == 2

    run(loop, main())
    assert [record.envelope.id for record in stored] == ["id-1", "id-4"]
    assert made.count["tail lost"] == 1


def test_each_process_has_its_own_wall_clock(loop):
    from restow import machine
    from simulation.seams import SimMachine

    async def told():
        return machine.wall(), running().name

    async def main():
        return [await start(loop, process, told()) for process in (Process("right"), Process("wrong", skew=60.0))]

    before = machine.use(SimMachine(loop, "test"))
    try:
        right, wrong = run(loop, main())
    finally:
        machine.use(before)
    assert (right[1], wrong[1]) == ("right", "wrong")
    assert 59.9e9 < wrong[0] - right[0] < 60.1e9


def test_a_plan_is_drawn_from_its_seed_alone():
    from simulation.draw import draw

    random.seed(1)
    first = draw(5)
    random.seed(2)
    assert draw(5) == first
    assert draw(6) != first
    assert {act.what for seed in range(60) for act in draw(seed).faults} >= {"kill", "pause", "crash", "appends", "status", "drop", "watch", "history", "dies", "refuses"}
