"""`restow log refold`: the log from its beginning, into a snapshot that services start from."""

import asyncio
import json

import pytest
from click.testing import CliRunner
from domain.build import NOW, node

from restow.cli.main import cli
from restow.contracts.codec import encode
from restow.contracts.envelope import Envelope
from restow.contracts.times import rfc3339
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION, fold_record
from restow.domain.state import ClusterState
from restow.eventlog.archive import export
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import running_server, unique_cluster
from restow.replay.source import open_path

from .chained import Writer
from .rig import facts

RECORDS = 12


@pytest.fixture(scope="module")
def server():
    with running_server(sync=False) as one:
        yield one


def restow(*argv):
    return CliRunner().invoke(cli, argv, catch_exceptions=False)


async def logged(server, cluster, archive=None, truncated=0):
    log = await connect(server.url, cluster)
    for number in range(RECORDS):
        await facts(log, node(f"n{number}"))
    if archive is not None:
        await export(log, archive)
    if truncated:
        await log.truncate(truncated)
    await log.close()


async def stored(server, cluster):
    log = await connect(server.url, cluster, create=False)
    try:
        found = await (await open_snapshots(log, create=False)).latest()
        return found.seq, found.fold_version, len(snapshot.load(found.body).nodes)
    finally:
        await log.close()


def test_a_log_that_is_whole_needs_no_archive(server):
    cluster = unique_cluster()
    asyncio.run(logged(server, cluster))
    done = restow("log", "refold", "--server", server.url, "--cluster", cluster, "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"cluster": cluster, "seq": RECORDS, "fold": FOLD_VERSION}
    assert asyncio.run(stored(server, cluster)) == (RECORDS, FOLD_VERSION, RECORDS)


def test_what_was_truncated_is_folded_from_the_archive(server, tmp_path, monkeypatch):
    cluster = unique_cluster()
    folder = tmp_path / "archive" / cluster
    asyncio.run(logged(server, cluster, folder, truncated=5))
    monkeypatch.setenv("RESTOW_DATA", str(tmp_path))
    done = restow("log", "refold", "--server", server.url, "--cluster", cluster)
    assert done.exit_code == 0, done.output
    assert f"the log up to {RECORDS} is folded anew" in done.stdout
    assert asyncio.run(stored(server, cluster)) == (RECORDS, FOLD_VERSION, RECORDS)


def test_the_present_of_a_truncated_log_needs_no_archive_where_a_snapshot_continues_it(server, tmp_path, monkeypatch):
    """`restow state` and `get` refused, as whoever has no archive in his container or is not in the cluster saw a day after an installation."""
    cluster, folder, there = unique_cluster(), tmp_path / "archive", ("--server", server.url, "--cluster")
    monkeypatch.delenv("RESTOW_DATA", raising=False)
    asyncio.run(logged(server, cluster, folder))
    assert restow("log", "refold", *there, cluster).exit_code == 0

    async def goes_on():
        log = await connect(server.url, cluster, create=False)
        await facts(log, node("late"))
        await log.truncate(5)
        await log.close()

    asyncio.run(goes_on())
    for asked in (("state",), ("state", "--at", str(RECORDS), "nodes"), ("get", "nodes"), ("why", "nodes"), ("top", "--once")):
        alone, whole = (restow(*asked, *there, cluster, *more) for more in ((), ("--archive", str(folder))))
        assert (alone.exit_code, alone.stdout) == (0, whole.stdout), (asked, alone.output)
        assert whole.stdout
    assert "late" in restow("get", "nodes", *there, cluster).stdout
    for asked in (("state", "--at", str(RECORDS - 1)), ("why", "node/late")):
        done = restow(*asked, *there, cluster)
        assert (done.exit_code, "the garbage collector's container knows its own" in " ".join(done.output.split())) == (2, True), (asked, done.output)


def test_the_present_comes_from_a_snapshot_that_the_log_follows_from_also_where_the_archive_is_at_hand(server, tmp_path, monkeypatch):
    """The archive was folded from its first record on. And the newest snapshot may be of records that the log has lost."""
    cluster, folder = unique_cluster(), tmp_path / "archive"
    asyncio.run(logged(server, cluster, folder))
    assert restow("log", "refold", "--server", server.url, "--cluster", cluster).exit_code == 0

    async def goes_on():
        log = await connect(server.url, cluster, create=False)
        writer = await Writer(log).fold()
        other = snapshot.load(snapshot.dump(writer.state))
        fold_record(other, RECORDS + 1, "cluster", Envelope("lost", "/test", rfc3339(NOW), RECORDS, "cluster@1", log=log.log_id), encode([]), log.log_id)
        await (await open_snapshots(log)).put(Snapshot(log.log_id, other.seq, FOLD_VERSION, snapshot.dump(other)))
        for name in ("late", "later"):
            await writer.write(node(name))
        await log.truncate(RECORDS)
        await log.close()

    asyncio.run(goes_on())
    monkeypatch.setattr("restow.eventlog.archive.read_segment", lambda *of: pytest.fail("reads the archive"))
    done = restow("get", "nodes", "-o", "name", "--server", server.url, "--cluster", cluster, "--archive", str(folder))
    assert (done.exit_code, len(done.stdout.split())) == (0, RECORDS + 2), done.output


def test_without_its_archive_a_truncated_log_is_refused_with_what_helps(server, monkeypatch):
    cluster = unique_cluster()
    asyncio.run(logged(server, cluster, truncated=5))
    monkeypatch.delenv("RESTOW_DATA", raising=False)
    done = restow("log", "refold", "--server", server.url, "--cluster", cluster)
    assert done.exit_code != 0
    assert "the log begins at 6: name the archive with what was before. Restore the archive from a backup" in " ".join(done.output.split())


async def lost(server, cluster):
    """A snapshot of records that the log has not, as after an old copy of its volume was restored with newer snapshots."""
    log = await connect(server.url, cluster, create=False)
    try:
        state = ClusterState()
        for number in range(2 * RECORDS):
            envelope = Envelope(f"lost-{number}", "/test", rfc3339(NOW), number, "cluster@1", log=log.log_id)
            fold_record(state, number + 1, "cluster", envelope, encode([]), log.log_id)
        await (await open_snapshots(log)).put(Snapshot(log.log_id, state.seq, FOLD_VERSION, snapshot.dump(state)))
    finally:
        await log.close()


def test_a_truncated_log_with_no_snapshot_but_of_lost_records_is_repaired_with_the_archive_and_says_so_without(server, tmp_path, monkeypatch):
    """Without it the command waited for ever, for a snapshot that nobody was to store."""
    cluster = unique_cluster()
    folder = tmp_path / "archive" / cluster
    asyncio.run(logged(server, cluster, folder, truncated=5))
    asyncio.run(lost(server, cluster))
    command = ("log", "repair", "--yes", "--cluster", cluster)
    monkeypatch.delenv("RESTOW_DATA", raising=False)
    done = restow(*command, "--server", server.url)
    assert done.exit_code == 2
    assert "the log begins at 6, and no snapshot continues it: name its archive" in " ".join(done.output.split())
    monkeypatch.setenv("RESTOW_NATS_URL", server.url)
    monkeypatch.setenv("RESTOW_DATA", str(tmp_path))
    done = restow(*command, "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"repaired": RECORDS + 1, "what": f"The log has lost records: it ends at {RECORDS}, and {2 * RECORDS} was read of it before", "first": 0, "lost": 2 * RECORDS}


@pytest.mark.parametrize("truncated", [0, 5])
def test_log_verify_says_what_an_archive_holds_of_what_the_log_has_lost(server, tmp_path, truncated):
    """Of a log that is not truncated the archive was not looked at, and of one that is the command failed."""
    cluster, folder = unique_cluster(), tmp_path / "archive"

    async def lose():
        await logged(server, cluster, folder)
        log = await connect(server.url, cluster, create=False)
        source = open_path(folder)
        other = await connect(server.url, f"{cluster}-b", log_id=log.log_id)
        await other.bulk_append(each([record for batch in source.batches(1, RECORDS - 3) for record in batch]))
        await facts(other, node("another"))
        if truncated:
            await other.truncate(truncated)
        await log.close()
        await other.close()

    async def each(records):
        for record in records:
            yield record

    asyncio.run(lose())
    command = ("log", "verify", "--server", server.url, "--archive", str(folder))
    done = restow(*command, "--cluster", f"{cluster}-b")
    assert done.exit_code == 1, done.output
    assert f"holds records 1 to {RECORDS}: {RECORDS - 2} to {RECORDS} are not in the log, or others are." in " ".join(done.output.split())
    assert json.loads(restow(*command, "--cluster", f"{cluster}-b", "-o", "json").stdout)["archive"]["same"] == RECORDS - 3
    done = restow(*command, "--cluster", cluster)
    assert done.exit_code == 0, done.output
    assert f"holds records 1 to {RECORDS}: nothing that the log has not" in " ".join(done.output.split())
