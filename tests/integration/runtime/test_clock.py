"""What is due is decided by the log's time, whatever the clock of the machine that leads says (issue 10, log 13)."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from domain.build import node, reservation, shape

from restow import machine
from restow.contracts import events as e
from restow.contracts.times import stamped
from restow.eventlog.jetstream import JetStreamLog, connect
from restow.eventlog.port import Unavailable
from restow.eventlog.testing import running_server, unique_cluster
from restow.garbage_collector.service import service as garbage_collector
from restow.kubesim.testing import kubesim
from restow.runtime.clock import TOLERANCE, LogClock

from .rig import facts, named, records
from .test_services import service

HOUR = 3_600
MS, NS = 1_000, 10**9
TRUE = 1_800_000_000


class Wrong(machine.Machine):
    """A machine whose wall clock is off by so many seconds; its seconds pass as everybody's, or as a test says."""

    def __init__(self, off, steady=None):
        self.off, self.passed = off, steady

    def wall(self):
        now = time.time_ns() if self.passed is None else (TRUE + self.passed) * NS
        return int(now + self.off * NS)

    def steady(self):
        return time.monotonic() if self.passed is None else float(self.passed)


@pytest.fixture
def on():
    """Put this process on another machine."""
    before = machine.use(machine.Machine())

    def put(other):
        machine.use(other)
        return other

    yield put
    machine.use(before)


@pytest.mark.parametrize("off", [HOUR, -HOUR, 0])
def test_once_asked_it_is_the_logs_time_and_goes_on_by_steady_seconds(on, off):
    there = on(Wrong(off, steady=0))
    clock = LogClock()
    clock.asked(TRUE * NS, machine.steady(), machine.steady())
    assert clock.now() == TRUE * MS
    there.passed = 10
    there.off = 5 * HOUR  # somebody sets the wall clock meanwhile
    assert clock.now() == (TRUE + 10) * MS


def test_a_stamp_that_is_later_than_its_record_says_that_we_are_ahead(on):
    there = on(Wrong(HOUR, steady=0))
    clock = LogClock()
    assert clock.now() == (TRUE + HOUR) * MS
    clock.stored(TRUE * NS, clock.now())
    assert clock.now() == TRUE * MS
    there.passed = 7
    clock.stored((TRUE + 7) * NS, clock.now())
    assert clock.now() == (TRUE + 7) * MS


def test_a_record_that_is_later_than_now_says_that_we_are_behind_and_an_old_one_nothing(on):
    on(Wrong(-HOUR, steady=0))
    clock = LogClock()
    clock.stored((TRUE - 2 * HOUR) * NS)
    assert clock.now() == (TRUE - HOUR) * MS
    clock.stored(TRUE * NS)
    assert clock.now() == TRUE * MS
    clock.stored((TRUE - 1) * NS)  # read again, or late: the past says nothing
    assert clock.now() == TRUE * MS


def test_it_says_by_how_much_the_machine_is_wrong_and_what_to_do(on):
    on(Wrong(HOUR, steady=0))
    clock = LogClock()
    assert clock.problem() == ""  # nothing is known yet
    clock.asked(TRUE * NS, 0.0, 0.0)
    assert clock.ahead == HOUR * MS
    assert "3600 s ahead of the log's" in clock.problem()
    assert "NTP" in clock.problem()
    on(Wrong(TOLERANCE / MS, steady=0))
    assert clock.problem() == ""


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


@asynccontextmanager
async def collector(broker, cluster):
    async with kubesim() as kube, service(garbage_collector(), broker, cluster, kube) as running:
        yield await running.leading()


@pytest.mark.parametrize(
    ("off", "unanswered"), [(HOUR, 0), (-HOUR, 0), (HOUR, 2)],
    ids=["an hour ahead", "an hour behind", "an hour ahead, and the broker goes away when it is asked what time it is"],
)  # fmt: skip
async def test_a_leader_with_a_wrong_clock_expires_what_is_due_and_nothing_else(broker, on, monkeypatch, off, unanswered):
    ask, asked = JetStreamLog.time, []

    async def time_of(log):
        asked.append(log)
        if len(asked) <= unanswered:
            raise Unavailable("away for a moment")
        return await ask(log)

    monkeypatch.setattr(JetStreamLog, "time", time_of)
    cluster = unique_cluster()
    log = await connect(broker.url, cluster)
    now = time.time_ns() // 1_000_000
    ends = {"due": now - 60 * MS, "later": now + HOUR // 2 * MS}
    there = [reservation(name, ("t", 1, "s"), expires=end) for name, end in ends.items()]
    await facts(log, node("n0"), shape("s"), *there, time=now)
    await facts(log, *(e.ReservationAccepted(name, 1, 1, end) for name, end in ends.items()), family="reservation", time=now)
    on(Wrong(off))
    async with collector(broker, cluster) as running:
        async with asyncio.timeout(60):
            while not await named(log, e.Expired, family="gc"):
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert await named(log, e.Expired, family="gc") == [e.Expired("due")]
        _, ready = await running.get("/readyz")
        assert any("this machine's clock is 36" in note for note in ready["notes"])
        summary = running.process.context.state.time
        assert abs(summary - time.time_ns() // 1_000_000) < 60 * MS
    said = [(stamped(record.envelope.time), record.time // 1_000_000) for record in await records(log, "gc")]
    assert said
    assert all(abs(ours - the_logs) < 60 * MS for ours, the_logs in said)
    await log.close()
