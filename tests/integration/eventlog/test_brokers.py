"""Brokers that cannot keep the log are refused, saying what, where and what to do."""

import asyncio
import json
import socket
from contextlib import closing, suppress

import pytest

from restow.eventlog.jetstream import connect
from restow.eventlog.jetstream.connect import Broker
from restow.eventlog.jetstream.stream import LOG_ID, wanted_config
from restow.eventlog.port import BrokerRefused, LogMismatch, NoBroker
from restow.eventlog.testing import envelope, running_server

from .helpers import BODY, follow, until


async def fake_broker(info, host="127.0.0.1", port=0):
    """A server that greets with `info` and says PONG."""

    async def serve(reader, writer):
        try:
            writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    return server, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("version", ["2.9.0", "2.11.9", "1.4", "", "dev"])
async def test_an_old_server_is_refused(version):
    info = {"server_id": "x", "version": version, "headers": True, "jetstream": True, "max_payload": 1048576}
    server, url = await fake_broker(info)
    async with server:
        with pytest.raises(BrokerRefused, match=rf"is nats-server {version or 'of unknown'}.*needs 2\.12\.0 or newer"):
            await connect(url, "c", wait=2)


async def test_a_server_without_jetstream_is_refused(cluster):
    refused = pytest.raises(BrokerRefused, match=r"without JetStream.*nats\.conf")
    with running_server(jetstream=False) as server, refused:
        await connect(server.url, cluster)


async def test_a_missing_broker_is_named():
    with pytest.raises(BrokerRefused, match=r"no broker answers at nats://127\.0\.0\.1:1 within 0\.3 s"):
        await connect("nats://127.0.0.1:1", "c", wait=0.3)


async def test_who_gives_up_on_a_broker_ends_although_the_attempt_goes_on_once_more():
    """`asyncio.wait_for` of Python 3.11 forgets that it was cancelled where the attempt fails in that moment: commands hung for ever (seen with certificates that had ended)."""
    broker, ends = Broker(["nats://broker.example:4222"]), asyncio.Event()
    broker._refused = asyncio.get_running_loop().create_future()

    async def opening():
        with suppress(asyncio.CancelledError):
            await ends.wait()
        await ends.wait()

    with pytest.raises(NoBroker, match=r"no broker answers .* within 0\.01 s"):
        await asyncio.wait_for(broker._opened(asyncio.ensure_future(opening()), 0.01), 5)


async def test_of_a_broker_that_says_nothing_it_is_said_what_that_may_be():
    """The brackets were empty."""

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        with pytest.raises(BrokerRefused, match=r"within 4 s \(nothing comes back from there: it hangs, or a firewall or NetworkPolicy"):
            await connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", "c", wait=4)


@pytest.mark.parametrize("other", ["answers nothing", "is connected, and nobody is behind it"])
async def test_of_a_name_with_several_addresses_one_that_is_no_broker_is_passed_over(nats_server, opened, cluster, monkeypatch, other):
    """Where the machine prefers it, as IPv6 that leads nowhere, the broker was never reached: each attempt spent its time on that one."""
    port = int(nats_server.url.rpartition(":")[2])

    async def named(host, port, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in (["127.0.0.2", "127.0.0.1"] if host == "broker.example" else [host])]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", named)
    hangs = other == "answers nothing"
    with closing(socket.create_server(("127.0.0.2", port), backlog=0 if hangs else 9)) as server, closing(socket.create_connection(server.getsockname())):
        log = await opened(f"nats://broker.example:{port}", cluster)
        assert await log.append("session", BODY, envelope(), expected_last=0) == 1


async def test_a_broker_that_has_lost_the_others_is_left_for_another_address_of_its_name(monkeypatch):
    """Of a single name (a headless Service, a load balancer) nobody left it, for it is one address of the list; and all prefer the same one."""
    info = {"version": "2.12.1", "headers": True, "jetstream": True, "max_payload": 1048576}
    one, url = await fake_broker(info | {"server_id": "one"})
    port = int(url.rpartition(":")[2])
    other, _ = await fake_broker(info | {"server_id": "other"}, "127.0.0.2", port)

    async def named(host, port, **kwargs):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", named)
    async with one, other:
        broker = await Broker.connect(f"nats://brokers.example:{port}")
        assert broker.client._server_info["server_id"] == "one"
        await broker.leave()
        await until(lambda: broker.connected and broker.client._server_info["server_id"] == "other", 10)
        await broker.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_age": 3_600_000_000_000}, "max_age is 3600000000000, must be 0"),
        ({"max_msgs": 10}, "max_msgs is 10, must be -1"),
        ({"discard": "old"}, "discard is 'old', must be 'new'"),
        ({"deny_delete": False}, "deny_delete is False, must be True"),
        ({"subjects": ["other.>"]}, "subjects is \\['other.>'\\]"),
        ({"allow_msg_ttl": True}, "allow_msg_ttl is True, must not be set"),
        ({"storage": "memory"}, "storage is 'memory', must be 'file'"),
        ({"duplicate_window": 0}, "duplicate_window is"),
        ({"metadata": {}}, "Restow did not create it"),
        ({"metadata": {LOG_ID: "x", "restow-format": "9"}}, "has format '9'; this Restow reads format 1"),
    ],
)
async def test_a_differing_stream_is_refused_naming_the_field(nats_server, cluster, change, said):
    metadata = {LOG_ID: "x", "restow-format": "1"}
    subjects = [f"{cluster}.other.>"] if "subjects" in change else wanted_config(cluster)["subjects"]
    broker = await Broker.connect(nats_server.url)
    config = wanted_config(cluster) | {"num_replicas": 1, "metadata": metadata} | change | {"subjects": subjects}
    await broker.api(f"STREAM.CREATE.restow-{cluster}", config)
    await broker.close()
    with pytest.raises(LogMismatch, match=said.replace("other", f"{cluster}.other")):
        await connect(nats_server.url, cluster)


async def test_replicas_must_match_when_they_are_asked_for(nats_server, opened, cluster):
    await opened(nats_server.url, cluster)
    await opened(nats_server.url, cluster, replicas=1)
    with pytest.raises(LogMismatch, match="has 1 copy, and must have 3"):
        await connect(nats_server.url, cluster, replicas=3)


async def test_creators_at_once_adopt_one_id(nats_server, opened, cluster):
    logs = await asyncio.gather(*(opened(nats_server.url, cluster) for _ in range(8)))
    assert len({log.log_id for log in logs}) == 1


async def test_a_log_is_not_made_by_who_only_wants_to_look(nats_server, cluster):
    with pytest.raises(BrokerRefused, match=f"has no stream 'restow-{cluster}'.*Start the services first"):
        await connect(nats_server.url, cluster, create=False)


async def test_a_log_that_was_replaced_is_noticed(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    await log.append("session", BODY, envelope(), expected_last=0)
    reader, seen = follow(log, 1)
    await until(lambda: seen)
    await log.broker.api(f"STREAM.DELETE.restow-{cluster}")
    async with asyncio.timeout(60):
        with pytest.raises(LogMismatch, match="is gone"):
            await reader
        other = await opened(nats_server.url, cluster)
        assert other.log_id != log.log_id
        with pytest.raises(LogMismatch, match="is now log"):
            await log.tail()
        with pytest.raises(LogMismatch, match="is now log"):
            await anext(log.read(1))


async def test_a_small_max_payload_is_the_limit_or_refused(cluster):
    with running_server(max_payload="64KB") as server:
        log = await connect(server.url, cluster)
        assert log.max_body == 48 * 1024
        assert await log.append("session", b"x" * log.max_body, envelope(), expected_last=0) == 1
        await log.close()
    refused = pytest.raises(BrokerRefused, match="max_payload is 16384 bytes; set it to 8MB")
    with running_server(max_payload="16KB") as server, refused:
        await connect(server.url, cluster)
