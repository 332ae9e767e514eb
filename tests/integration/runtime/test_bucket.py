"""The archive in a bucket of a real S3 server: kills, a server that is away, two who write, credentials that are refused."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
import trustme
from domain.build import node
from s3_server import BINARY, LACKING, S3Server

from restow.eventlog import archive, bucket
from restow.eventlog.archive import covered, export, open_archive, place_of
from restow.eventlog.bucket import ArchiveAway
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import NotAllowed
from restow.eventlog.testing import envelope
from restow.garbage_collector import snapshot_keeper
from restow.runtime.effector import Done, Retry

from .rig import facts, memory
from .test_keeper import collecting, grow, records_of

pytestmark = pytest.mark.skipif(BINARY is None, reason=LACKING)

RECORDS = 4_000


@pytest.fixture
def server(tmp_path, monkeypatch):
    archive._connected.cache_clear()
    one = S3Server(tmp_path / "s3" / "data").start()
    one.bucket("restow-backups")
    for name, value in one.environment().items():
        monkeypatch.setenv(name, value)
    yield one
    one.stop()
    archive._connected.cache_clear()


async def same_log(count=RECORDS):
    """The log that every process of a test makes for itself, with the same bytes."""
    log = MemoryLog("same", log_id="5a3e", clock=lambda: 1_700_000_000_000_000_000)
    last = 0
    for number in range(count):
        last = await log.append("session", b'{"number":%d,"more":"%s"}' % (number, b"x" * (number % 200)), envelope(f"id-{number}"), expected_last=last)
    return log


async def archive_it(address):
    """What a process of its own does when it is told to: a segment for every few records, until all is there."""
    log = await same_log()
    print("begins", flush=True)
    sys.stdin.readline()
    for end in range(100, RECORDS + 1, 100):
        while True:
            try:
                await export(log, address, to_seq=max(end, covered(address, 1)), segment_bytes=3_000)
                break
            except archive.ArchiveError as error:
                if "another process has written it" not in str(error):
                    raise


async def process(server, address):
    one = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"import asyncio; from integration.runtime.test_bucket import archive_it; asyncio.run(archive_it({address!r}))",
        env={**os.environ, **server.environment(), "PYTHONPATH": str(Path(__file__).parents[2])}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert (await one.stdout.readline()).strip() == b"begins"
    return one


async def ended(one):
    """Its pipes, too: what is left of them after the loop has ended is a failure of whichever test runs then."""
    one.stdin.close()
    await one.communicate()


async def test_an_archiver_that_is_killed_again_and_again_leaves_whole_segments_and_the_next_one_goes_on(server):
    address, ends = "s3://restow-backups/same", []
    for number in range(8):
        one = await process(server, address)
        one.stdin.write(b"go\n")
        until = time.monotonic() + 60
        while covered(place_of(address), 1) <= sum(ends[-1:]) and one.returncode is None and time.monotonic() < until:
            await asyncio.sleep(0.01 + 0.013 * number)
        if one.returncode is None:
            one.send_signal(signal.SIGKILL)
        await ended(one)
        archive._connected.cache_clear()
        ends.append(open_archive(address, log_id="5a3e").last)
        if ends[-1] == RECORDS:
            break
    assert len(set(ends)) == len(ends), "each went on"
    await export(await same_log(), address)
    archive._connected.cache_clear()
    log = await same_log()
    assert [(r.seq, r.body) for r in open_archive(address).records()] == [(r.seq, r.body) for r in await records_of(log)]
    left = [file.name for file in server.folder.rglob("*") if file.is_file() and not file.name.endswith(".jsonl.zst") and "restow-backups/same" in str(file)]
    assert left == ["restow-archive"]


async def test_two_processes_that_archive_at_once_leave_one_chain(server):
    address = "s3://restow-backups/same"
    both = [await process(server, address) for _ in range(2)]
    async with asyncio.timeout(240):
        await asyncio.gather(*(one.communicate(b"go\n") for one in both))
    assert [one.returncode for one in both] == [0, 0]
    found = open_archive(address, log_id="5a3e")
    assert [r.body for r in found.records()] == [r.body for r in await records_of(await same_log())]


async def recovered(collector):
    """It has nothing to complain about any more."""
    async with asyncio.timeout(60):
        while collector.notes():
            collector.clock.advance(snapshot_keeper.AGAIN + 1)
            await asyncio.sleep(0.1)


async def test_while_the_bucket_is_away_the_log_goes_on_is_not_truncated_and_is_archived_when_it_is_back(server, monkeypatch):
    log = memory()
    await grow(log)
    async with collecting(log, "s3://restow-backups", snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
        archived, address = one.state.archived, f"s3://restow-backups/{log.cluster}"
        assert open_archive(address, log_id=log.log_id).last == archived
        server.stop()
        await grow(log, 40)
        await one.until(lambda: one.state.snapshot_seq > archived + 20 and one.notes())
        assert "no snapshot or archive could be stored, the log grows: " in one.notes()[0]
        assert f"the archive in {address} cannot be used: no answer" in one.notes()[0]
        assert one.keeper.failing()
        answer = await one.drop(archived)
        assert isinstance(answer, Retry)
        assert "cannot be used: no answer" in answer.reason
        assert await log.first() == 1
        server.start()
        await recovered(one)
        assert one.state.archived >= one.state.snapshot_seq > archived
        assert isinstance(await one.drop(archived), Done)
        assert await log.first() == archived + 1
    # Whoever starts then, on a server that is away, begins from the snapshot and says so; it archives when it is back.
    server.stop()
    archive._connected.cache_clear()
    before = one.state.archived
    async with collecting(log, "s3://restow-backups", one.state, snapshot_every=20, keep=1_000) as another:
        await grow(log, 30)
        await another.until(lambda: another.state.snapshot_seq > before + 10 and another.notes())
        assert "no answer" in another.notes()[0]
        server.start()
        await recovered(another)
        assert another.state.archived >= another.state.snapshot_seq > before
        found = open_archive(address, log_id=log.log_id)
        assert (found.first, found.last) == (1, another.state.archived)


async def test_refused_credentials_are_said_the_secret_is_not_and_the_log_goes_on(server, monkeypatch, capsys):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-that-is-wrong")
    log = memory()
    await grow(log)
    async with collecting(log, "s3://restow-backups", snapshot_every=20, keep=1_000) as one:
        await one.until(one.notes)
        (note,) = one.notes()
        assert "the server refuses these credentials, or they lack a right (SignatureDoesNotMatch: " in note
        await facts(log, node("more"))
        assert (one.state.archived, await log.first()) == (0, 1)
        assert one.state.snapshot_seq
    shown = capsys.readouterr()
    assert "a-secret-that-is-wrong" not in shown.out + shown.err + note


async def test_a_bucket_that_is_not_there_is_said(server):
    log = memory()
    await grow(log)
    async with collecting(log, "s3://nobodys-bucket", snapshot_every=20, keep=1_000) as one:
        await one.until(one.notes)
        assert "the archive in s3://nobodys-bucket/test cannot be used: there is no such bucket (NoSuchBucket: " in one.notes()[0]
    assert log.cluster == "test"


async def test_a_bucket_that_was_emptied_begins_anew_with_what_the_log_still_holds_and_the_gap_is_said(server):
    log = memory()
    await grow(log)
    async with collecting(log, "s3://restow-backups", snapshot_every=20, keep=1_000) as one:
        await one.until(lambda: one.state.archived)
    await log.truncate(10)
    for file in (server.folder / "restow-backups" / log.cluster).rglob("*.jsonl.zst"):
        file.unlink()
    async with collecting(log, "s3://restow-backups", one.state, snapshot_every=20, keep=1_000) as one:
        assert isinstance(await one.drop(20), Retry), "nothing is dropped that no archive holds"
        await facts(log, node("more"))
        await one.until(lambda: one.state.archive_first == 11)
        assert one.notes() == ("an archive was lost: records 1 to 10 of the log are in none",)
        found = open_archive(f"s3://restow-backups/{log.cluster}", log_id=log.log_id)
        assert (found.first, found.last) == (11, one.state.archived)


async def test_a_server_of_ones_own_authority_is_believed_where_that_is_named_and_nowhere_else(tmp_path, monkeypatch):
    authority, files = trustme.CA(), [tmp_path / "tls.crt", tmp_path / "tls.key"]
    made = authority.issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(files[0])
    made.private_key_pem.write_to_path(files[1])
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    server = S3Server(tmp_path / "s3" / "data", files)
    server.bucket("restow-backups")
    server.start()
    try:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        log = await same_log(10)
        with pytest.raises(ArchiveAway, match=r"no answer \(its certificate: UnknownIssuer: "):
            await export(log, bucket.connect("s3://restow-backups/same"))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.crt"))
        assert (await export(log, bucket.connect("s3://restow-backups/same"))).last == 10
        # The collector runs for months. Another authority is in the file from some day on, half of it first.
        trustme.CA().cert_pem.write_to_path(tmp_path / "renewed.crt")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "renewed.crt"))
        place, text = bucket.connect("s3://restow-backups/renewed"), (tmp_path / "ca.crt").read_text()
        for said in (None, text[:100], text):
            if said is not None:
                (tmp_path / "renewed.crt").write_text(said)
            with pytest.raises(ArchiveAway, match="UnknownIssuer"):
                await export(log, place)
        assert (await export(log, place)).last == 10
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.crt"))
        with pytest.raises(NotAllowed, match="AWS_CA_BUNDLE cannot be read: No such file"):
            bucket.connect("s3://restow-backups/same")
    finally:
        server.stop()
