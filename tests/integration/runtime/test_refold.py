"""`restow log refold`: the log from its beginning, into a snapshot that services start from."""

import asyncio
import json

import pytest
from click.testing import CliRunner
from domain.build import node

from restow.cli.main import cli
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.archive import export
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.testing import running_server, unique_cluster

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


def test_without_its_archive_a_truncated_log_is_refused_with_what_helps(server, monkeypatch):
    cluster = unique_cluster()
    asyncio.run(logged(server, cluster, truncated=5))
    monkeypatch.delenv("RESTOW_DATA", raising=False)
    done = restow("log", "refold", "--server", server.url, "--cluster", cluster)
    assert done.exit_code != 0
    assert "the log begins at 6: name the archive with what was before. Restore the archive from a backup" in " ".join(done.output.split())
