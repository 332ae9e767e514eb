"""The embedded broker as a child process."""

import pytest

from restow.eventlog.jetstream import connect
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
