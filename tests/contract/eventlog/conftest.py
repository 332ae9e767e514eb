"""One suite, three adapters: every test here runs against each of them."""

import pytest

from restow.eventlog.file import open_file
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.memory import MemoryLog
from restow.eventlog.snapshots import DirectorySnapshots, MemorySnapshots
from restow.eventlog.testing import running_server, unique_cluster


@pytest.fixture(scope="session")
def nats_server():
    # Without fsync: a machine that runs other tests has a busy disk.
    with running_server(sync=False) as server:
        yield server


@pytest.fixture(params=["memory", "file", "jetstream"])
def adapter(request):
    return request.param


@pytest.fixture
async def make_log(adapter, request, tmp_path):
    """Makes an empty log; options: log_id, first_seq."""
    server = request.getfixturevalue("nats_server") if adapter == "jetstream" else None
    made = []

    async def make(cluster="", **options):
        cluster = cluster or unique_cluster()
        if adapter == "memory":
            log = MemoryLog(cluster, **options)
        elif adapter == "file":
            log = await open_file(tmp_path / cluster, cluster, **options)
        else:
            log = await connect(server.url, cluster, **options)
        made.append(log)
        return log

    yield make
    for log in made:
        await log.close()


@pytest.fixture
async def log(make_log):
    return await make_log()


@pytest.fixture
async def snapshots(adapter, log, tmp_path):
    if adapter == "memory":
        return MemorySnapshots(log.log_id)
    if adapter == "file":
        return DirectorySnapshots(tmp_path / "snapshots", log.log_id)
    return await open_snapshots(log)
