"""The file adapter's journal: a torn tail is dropped, damage is refused, one process at a time."""

import asyncio
import os
import sys

import pytest

from restow.eventlog.file import open_file
from restow.eventlog.port import BrokerRefused, LogMismatch
from restow.eventlog.testing import envelope

from .helpers import take


async def journal(folder, count=3):
    log = await open_file(folder, "c")
    last = 0
    for number in range(count):
        last = await log.append("session", b'{"n":%d}' % number, envelope(), expected_last=last)
    log_id = log.log_id
    await log.close()
    return log.path, log_id


async def test_a_reopened_log_is_the_same(tmp_path):
    _, log_id = await journal(tmp_path)
    log = await open_file(tmp_path, "c")
    assert (log.log_id, await log.tail(), await log.last_of("session")) == (log_id, 3, 3)
    assert await log.append("session", b"4", envelope(), expected_last=3) == 4
    await log.truncate(2)
    await log.close()
    log = await open_file(tmp_path, "c")
    assert (log.log_id, await log.first(), await log.tail()) == (log_id, 3, 4)
    assert [r.body for r in await take(log, 3, 4)] == [b'{"n":2}', b"4"]
    await log.close()


async def test_a_torn_last_line_is_dropped(tmp_path):
    path, _ = await journal(tmp_path)
    blob = path.read_bytes()
    for cut in (1, 10, 100):
        path.write_bytes(blob[:-cut])
        log = await open_file(tmp_path, "c")
        assert await log.tail() == 2
        assert await log.append("session", b"{}", envelope(), expected_last=2) == 3
        await log.close()


async def test_a_damaged_line_is_named(tmp_path):
    path, _ = await journal(tmp_path)
    lines = path.read_bytes().splitlines(True)
    for number, line in enumerate(lines, 1):
        changed = bytearray(line)
        changed[20] ^= 1
        path.write_bytes(b"".join([*lines[: number - 1], bytes(changed), *lines[number:]]))
        with pytest.raises(LogMismatch, match=rf"journal\.jsonl: line {number}: its checksum"):
            await open_file(tmp_path, "c")


async def test_missing_and_repeated_lines_are_named(tmp_path):
    path, _ = await journal(tmp_path)
    header, first, second, third = path.read_bytes().splitlines(True)
    for lines, said in [
        ([header, second, third], "line 2: sequence 2 where 1 must be"),
        ([header, first, first], "line 3: sequence 1 where 2 must be"),
        ([first, second], "line 1: it is not a Restow journal"),
        ([], "header is missing"),
    ]:
        path.write_bytes(b"".join(lines))
        with pytest.raises(LogMismatch, match=said):
            await open_file(tmp_path, "c")


async def test_another_clusters_log_is_refused(tmp_path):
    await journal(tmp_path)
    with pytest.raises(LogMismatch, match="is the log of cluster 'c', not of 'd'"):
        await open_file(tmp_path, "d")


async def test_two_processes_cannot_have_it_open(tmp_path):
    log = await open_file(tmp_path, "c")
    code = (
        "import asyncio, sys\nfrom restow.eventlog.file import open_file\n"
        "asyncio.run(open_file(sys.argv[1], 'c'))"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stderr=-1)
    assert b"another process has the log" in (await asyncio.wait_for(other.communicate(), 30))[1]
    with pytest.raises(BrokerRefused, match="another process"):
        await open_file(tmp_path, "c")
    await log.close()


async def test_a_full_disk_stores_nothing_and_says_so(tmp_path, monkeypatch):
    log = await open_file(tmp_path, "c")
    await log.append("session", b"1", envelope(), expected_last=0)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(BrokerRefused, match="No space left"):
            await log.append("session", b"2", envelope(), expected_last=1)
    assert await log.append("session", b"3", envelope(), expected_last=1) == 2
    assert [r.body for r in await take(log, 1, 2)] == [b"1", b"3"]
    await log.close()
