"""The embedded broker as a child process."""

from types import SimpleNamespace

import pytest

from restow.eventlog.jetstream import connect
from restow.eventlog.port import Unknown
from restow.eventlog.server import NatsServer, ServerError, find_binary
from restow.eventlog.testing import envelope


async def test_a_restarted_server_keeps_port_and_store(tmp_path, cluster):
    with NatsServer(tmp_path / "a folder") as server:
        url = server.url
        log = await connect(url, cluster)
        await log.append("session", b"{}", envelope(), expected_last=0)
        log_id = log.log_id
        await log.close()
    assert server.pid is None
    await server.start_async()
    try:
        assert server.url == url
        log = await connect(url, cluster, create=False)
        assert (log.log_id, await log.tail()) == (log_id, 1)
        await log.close()
    finally:
        await server.stop_async()


async def test_what_a_restarted_server_may_store_counts_what_it_has(tmp_path, cluster, monkeypatch):
    """Its own limit is three quarters of what is free: behind a log with half of the disk it would take nothing more."""

    async def fill(log, start):
        for number in range(start, start + 40):
            await log.append("session", b"{%s}" % (b" " * 200_000), envelope(), expected_last=number)
        return start + 40

    with NatsServer(tmp_path / "nats") as server:
        log = await connect(server.url, cluster)
        tail = await fill(log, 0)
        await log.close()
    free = 5 << 20
    monkeypatch.setattr("restow.eventlog.server.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    with server:
        log = await connect(server.url, cluster, create=False)
        with pytest.raises(Unknown, match="the broker's store is full") as refused:
            await fill(log, tail)
        assert refused.value.full
        assert (await log.tail() - tail) * 200_000 == pytest.approx(free * 3 / 4, rel=0.2)
        await log.close()


def test_a_server_that_does_not_start_shows_its_last_words(tmp_path):
    server = NatsServer(tmp_path, extra="nonsense {")
    with pytest.raises(ServerError, match=r"nats-server ended with 1: .*Parse error on line 7.*\(log: "):
        server.start()
    assert server.pid is None


def test_a_named_binary_must_exist(monkeypatch, tmp_path):
    assert find_binary().name == "nats-server"
    monkeypatch.setenv("RESTOW_NATS_SERVER", str(tmp_path / "none"))
    with pytest.raises(ServerError, match="not an executable file"):
        find_binary()
