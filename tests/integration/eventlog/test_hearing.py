"""Messages reach whoever waits for them without a task between, and their headers say what nats-py reads in them."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.aio.client import Client

from restow.eventlog.jetstream.client import BrokerClient
from restow.eventlog.testing import envelope

from .helpers import until

NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8) | st.sampled_from(["ce-id", "Nats-Expected-Stream", "Status"])
VALUES = st.text(max_size=12) | st.text(st.characters(min_codepoint=9, max_codepoint=126), max_size=12)
LINES = st.lists(st.tuples(NAMES, st.sampled_from([": ", ":", ":  ", " : ", ":\t", ""]), VALUES), max_size=5)
FIRST = st.sampled_from([b"NATS/1.0\r\n", b"NATS/1.0 503\r\n", b"NATS/1.0 100 Idle Heartbeat\r\n", b"NATS/1.0"])


def read(client: Client, sent: bytes):
    """What a client makes of headers; nothing where it does not get through."""
    try:
        client._process_headers(sent).send(None)
    except StopIteration as done:
        return done.value
    except (IndexError, UnicodeDecodeError):
        return None
    raise AssertionError("it waits for something")


@given(first=FIRST, lines=LINES, end=st.sampled_from([b"\r\n", b"", b"\r\n\r\n"]))
@example(first=b"NATS/1.0\r\n", lines=[("ce-time", ": ", "2026-11-28T21:00:00.000Z"), ("a", ": ", "b: c"), ("a", ": ", "d")], end=b"\r\n")
@example(first=b"NATS/1.0\r\n", lines=[("a b", ": ", "c"), ("ok", ": ", "x  y ")], end=b"\r\n")
@example(first=b"NATS/1.0\r\n", lines=[("a", ": ", "")], end=b"\r\n")
@example(first=b"NATS/1.0\r\n", lines=[("a", ": ", "b\u2028c")], end=b"\r\n")
def test_headers_are_read_as_nats_py_reads_them(first, lines, end):
    sent = first + "".join(f"{name}{colon}{value}\r\n" for name, colon, value in lines).encode("utf-8", "surrogatepass") + end
    assert read(BrokerClient(), sent) == read(Client(), sent)


def test_an_envelope_is_read_without_nats_py(monkeypatch):
    monkeypatch.setattr(Client, "_process_headers", None)
    headers = envelope().headers()
    assert read(BrokerClient(), b"NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode() + b"\r\n") == headers

@pytest.fixture
async def client(nats_server):
    client = BrokerClient()
    errors = []
    await client.connect(nats_server.url, error_cb=_kept(errors))
    client.errors = errors
    yield client
    await client.close()


def _kept(errors):
    async def keep(error):
        errors.append(error)

    return keep


async def test_messages_are_told_in_their_order_until_nobody_hears_them(client):
    told: list[tuple[str, bytes]] = []
    hearing = await client.hear("here.*", lambda message: told.append((message.headers["number"], message.data)))
    for number in range(500):
        await client.publish(f"here.{number % 3}", b"%d" % number, headers={"number": str(number)})
    await until(lambda: len(told) == 500)
    assert told == [(str(number), b"%d" % number) for number in range(500)]
    await hearing.unsubscribe()
    await client.publish("here.1", b"late", headers={"number": "late"})
    await client.flush()
    await asyncio.sleep(0.05)
    assert len(told) == 500
    assert not client._hearers


async def test_an_error_of_who_is_told_does_not_end_the_connection(client):
    told: list[bytes] = []

    def fails_once(message):
        told.append(message.data)
        if len(told) == 1:
            raise ValueError("a bug")

    await client.hear("here", fails_once)
    for data in (b"first", b"second"):
        await client.publish("here", data)
    await until(lambda: told == [b"first", b"second"])
    assert [str(error) for error in client.errors] == ["a bug"]
    assert client.is_connected
