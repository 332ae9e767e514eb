"""The clock of the API server, as its answers say it: what admission compares with it is written by it."""

from datetime import UTC, datetime, timedelta

import pytest

from restow.contracts.ids import Millis
from restow.kube.client import ApiStatus, ClientConfig, connect
from restow.kube.server_clock import ServerClock, date_of
from restow.kubesim.server import Server


class Said:
    """An API server whose clock says this after so many milliseconds."""

    def __init__(self, date, takes=0):
        self.date, self.takes, self.now = date, takes, 1_000_000

    async def peek(self, path):
        self.now += self.takes
        if isinstance(self.date, ApiStatus):
            raise self.date
        return 200, b"", self.date

    def clock(self):
        return ServerClock(self, lambda: Millis(self.now))


def header(millis):
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.mark.parametrize(
    ("said", "takes", "ahead"),
    [(1_000_000, 0, 0), (1_002_000, 0, 0), (999_000, 0, 0), (1_003_000, 0, 3_000), (1_300_000, 0, 300_000), (700_000, 0, -299_001), (1_009_000, 9_500, 0), (1_020_000, 10_000, 10_000)],
)
async def test_seconds_that_it_is_away_are_known_and_those_that_an_answer_takes_are_not_taken_for_that(said, takes, ahead):
    clock = Said(header(said), takes).clock()
    assert await clock.ahead() == ahead


@pytest.mark.parametrize("said", ["", "yesterday", ApiStatus(0, "Unreachable", "")])
async def test_what_was_known_counts_where_it_does_not_say(said):
    api = Said(header(1_300_000))
    clock = api.clock()
    assert await clock.ahead() == 300_000
    api.date = said
    await clock.look()
    assert await clock.ahead() == 300_000
    assert await Said(said).clock().ahead() == 0


def test_a_date_is_read_in_utc():
    assert date_of("Fri, 27 Nov 2026 23:17:00 GMT") == datetime(2026, 11, 27, 23, 17, tzinfo=UTC)
    assert date_of("soon") is None


async def test_kubesim_says_its_own():
    server = Server(clock=lambda: datetime.now(UTC) + timedelta(minutes=10))
    await server.start()
    try:
        async with await connect(ClientConfig(url=server.url, timeout=3.0)) as client:
            ahead = await ServerClock(client, lambda: Millis(int(datetime.now(UTC).timestamp() * 1000))).ahead()
    finally:
        await server.stop()
    assert abs(ahead - 600_000) < 2_000
