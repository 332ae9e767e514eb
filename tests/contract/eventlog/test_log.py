"""What every EventLog promises (DESIGN 2)."""

import asyncio
import time
from contextlib import aclosing

import pytest

from restow.eventlog.port import MAX_BODY, Closed, Conflict, EventLog, LogMismatch, TooLarge, Truncated
from restow.eventlog.testing import envelope

BODY = b'{"decisions":[]}'


async def fill(log, *families):
    """Append one commit for each name; returns the sequences."""
    last = {family: await log.last_of(family) for family in set(families)}
    sequences = []
    for family in families:
        last[family] = await log.append(
            family, BODY, envelope(family=family), expected_last=last[family]
        )
        sequences.append(last[family])
    return sequences


async def take(log, from_seq, count):
    """The next `count` records from `from_seq`."""
    records = []
    async with asyncio.timeout(60), aclosing(log.read(from_seq)) as batches:
        async for batch in batches:
            assert batch, "a batch is never empty"
            records += batch
            if len(records) >= count:
                return records
    raise AssertionError("a reader never ends by itself")


def test_every_adapter_is_an_event_log(log):
    assert isinstance(log, EventLog)
    assert log.connected
    assert len(log.log_id) == 32
    assert log.max_body == MAX_BODY


async def test_an_empty_log_begins_at_one(log):
    assert (await log.tail(), await log.first(), await log.last_of("session")) == (0, 1, 0)


async def test_a_commit_comes_back_as_it_was_written(log):
    body = '{"b": [1,  2.50], "ü":"\\u0000"}'.encode()
    written = envelope("an-id", read=41, family="session", logic="session@3")
    assert await log.append("session", body, written, expected_last=0) == 1
    [record] = await take(log, 1, 1)
    assert (record.seq, record.family, record.body, record.envelope) == (1, "session", body, written)
    assert record.time > 0


async def test_families_share_one_order_and_keep_their_own_last(log):
    assert await fill(log, "session", "cluster", "session", "gc") == [1, 2, 3, 4]
    assert [r.family for r in await take(log, 1, 4)] == ["session", "cluster", "session", "gc"]
    assert [await log.last_of(f) for f in ("session", "cluster", "gc", "migration")] == [3, 2, 4, 0]
    assert await log.tail() == 4


@pytest.mark.parametrize("expected", [0, 1, 2, 4, 99])
async def test_a_wrong_expectation_stores_nothing(log, expected):
    await fill(log, "session", "cluster", "session", "cluster")
    with pytest.raises(Conflict) as conflict:
        await log.append("session", BODY, envelope(), expected_last=expected)
    assert (conflict.value.family, conflict.value.expected) == ("session", expected)
    assert conflict.value.actual in (None, 3)
    assert await log.tail() == 4


async def test_another_family_does_not_disturb_an_expectation(log):
    await fill(log, "session", "cluster", "cluster")
    assert await log.append("session", BODY, envelope(), expected_last=1) == 4


async def test_of_many_writers_at_one_place_exactly_one_wins(log):
    results = await asyncio.gather(
        *(log.append("session", BODY, envelope(), expected_last=0) for _ in range(20)), return_exceptions=True
    )
    assert sorted(r for r in results if isinstance(r, int)) == [1]
    assert sum(isinstance(r, Conflict) for r in results) == 19


async def test_a_reader_starts_anywhere_and_follows_the_tail(log):
    await fill(log, *["session"] * 5)
    seen = []

    async def follow():
        async for batch in log.read(3):
            seen.extend(r.seq for r in batch)

    reader = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        while seen != [3, 4, 5]:
            await asyncio.sleep(0.001)
        await fill(log, "cluster", "session")
        while seen != [3, 4, 5, 6, 7]:
            await asyncio.sleep(0.001)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_many_readers_see_the_same(log):
    await fill(log, *["session", "cluster"] * 20)
    first, second, third = await asyncio.gather(take(log, 1, 40), take(log, 1, 40), take(log, 21, 20))
    assert first == second
    assert first[20:] == third


async def test_a_long_log_comes_in_batches_without_hole_or_repeat(log):
    last = 0
    for _ in range(1200):
        last = await log.append("session", BODY, envelope(), expected_last=last)
    records = await take(log, 1, 1200)
    assert [r.seq for r in records] == list(range(1, 1201))


async def test_its_clock_is_the_one_of_its_records(log):
    before = await log.time()
    await log.append("session", b"{}", envelope(), expected_last=0)
    after = await log.time()
    (record,) = await take(log, 1, 1)
    assert before // 1000 <= record.time // 1000 <= after // 1000 + 1
    assert abs(after - time.time_ns()) < 60 * 10**9


async def test_a_reader_may_wait_at_the_end_but_not_beyond(log):
    await fill(log, "session")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(log.read(2))
    with pytest.raises(LogMismatch, match="ends at 1"):
        await take(log, 3, 1)
    with pytest.raises(ValueError, match="count from 1"):
        await take(log, 0, 1)


async def test_a_truncated_prefix_is_reported_with_the_first_sequence(log):
    await fill(log, *["session"] * 6)
    await log.truncate(4)
    assert (await log.first(), await log.tail(), await log.last_of("session")) == (5, 6, 6)
    assert [r.seq for r in await take(log, 5, 2)] == [5, 6]
    with pytest.raises(Truncated) as truncated:
        await take(log, 4, 1)
    assert truncated.value.first_seq == 5


async def test_the_expectation_of_an_emptied_family_falls_back_to_zero(log):
    await fill(log, "gc", "session")
    await log.truncate(1)
    assert await log.last_of("gc") == 0
    with pytest.raises(Conflict):
        await log.append("gc", BODY, envelope(), expected_last=1)
    assert await log.append("gc", BODY, envelope(), expected_last=0) == 3


async def test_a_log_can_be_truncated_to_nothing_and_goes_on(log):
    await fill(log, *["session"] * 3)
    await log.truncate(3)
    assert (await log.first(), await log.tail()) == (4, 3)
    await log.truncate(2)
    assert await fill(log, "session") == [4]
    assert [r.seq for r in await take(log, 4, 1)] == [4]


async def test_truncating_beyond_the_end_is_refused(log):
    await fill(log, "session")
    with pytest.raises(LogMismatch, match="ends at 1"):
        await log.truncate(2)


async def test_a_reader_that_is_overtaken_by_truncation_hears_of_it(log):
    await fill(log, *["session"] * 3)
    reader = log.read(1)
    async with asyncio.timeout(60), aclosing(reader):
        seen = 0
        while seen < 3:
            seen = (await anext(reader))[-1].seq
        await log.truncate(2)
        await fill(log, "session")
        assert [r.seq for r in await anext(reader)] == [4], "it had seen all that went"


async def test_a_commit_at_the_limit_is_stored_and_one_above_is_not(log):
    body = b'"' + b"x" * (MAX_BODY - 2) + b'"'
    assert await log.append("session", body, envelope(), expected_last=0) == 1
    with pytest.raises(TooLarge) as refused:
        await log.append("session", body + b" ", envelope(), expected_last=1)
    assert (refused.value.size, refused.value.limit) == (MAX_BODY + 1, MAX_BODY)
    [record] = await take(log, 1, 1)
    assert record.body == body


@pytest.mark.parametrize("family", ["", "a.b", "*", ">", "Session", "a b", "x" * 64])
async def test_a_family_is_one_token(log, family):
    with pytest.raises(ValueError, match="not allowed"):
        await log.append(family, BODY, envelope(), expected_last=0)


async def test_bodies_that_are_not_json_survive(log):
    for last, body in enumerate([b"", b"\xff\x00\n", b" 1 ", b"line\nline", b"\r{}"]):
        await log.append("session", body, envelope(), expected_last=last)
    assert [r.body for r in await take(log, 1, 5)] == [b"", b"\xff\x00\n", b" 1 ", b"line\nline", b"\r{}"]


async def test_a_cancelled_reader_leaves_the_log_usable(log):
    await fill(log, "session")
    for _ in range(5):
        reader = asyncio.create_task(take(log, 1, 99))
        await asyncio.sleep(0.01)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert await fill(log, "session") == [2]
    assert len(await take(log, 1, 2)) == 2


async def test_closing_wakes_everybody_and_refuses_the_rest(log):
    await fill(log, "session")
    readers = [asyncio.create_task(take(log, 1, 99)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await log.close()
    async with asyncio.timeout(60):
        for reader in readers:
            with pytest.raises(Closed):
                await reader
    assert not log.connected
    with pytest.raises(Closed):
        await log.append("session", BODY, envelope(), expected_last=1)
    with pytest.raises(Closed):
        await log.tail()
    await log.close()


async def test_a_log_can_begin_late_with_a_given_id(make_log):
    log = await make_log(log_id="a" * 32, first_seq=101)
    assert (log.log_id, await log.first(), await log.tail()) == ("a" * 32, 101, 100)
    assert await fill(log, "session", "session") == [101, 102]
    with pytest.raises(Truncated):
        await take(log, 100, 1)
