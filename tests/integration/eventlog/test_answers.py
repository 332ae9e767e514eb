"""What each of the broker's answers to an append means. Wrong here would lose or double a decision."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from restow.eventlog.jetstream import append as append_module
from restow.eventlog.jetstream.append import EXPECTED, EXPECTED_STREAM, Appender
from restow.eventlog.port import BrokerRefused, Conflict, LogMismatch, Unknown
from restow.eventlog.testing import envelope


class ScriptedBroker:
    """Answers in turn; remembers what was asked."""

    max_payload = 8 * 1024 * 1024
    losses = 0

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    async def request(self, subject, payload, headers=None, *, timeout):
        self.asked.append((subject, headers))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return SimpleNamespace(data=answer if isinstance(answer, bytes) else json.dumps(answer).encode())


def error(code, err_code, description="because"):
    return {"error": {"code": code, "err_code": err_code, "description": description}}


def appender(broker):
    return Appender(broker, SimpleNamespace(name="restow-c", cluster="c"))


async def append(broker):
    return await appender(broker).append("session", b"{}", envelope("an-id"), 7)


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr(append_module, "BACKOFF", (0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (error(400, 10071, "wrong last sequence: 9"), Conflict),
        (error(400, 10164, "wrong last sequence"), Conflict),
        (error(400, 10060, "expected stream does not match"), LogMismatch),
        (error(503, 10008, "JetStream system temporarily unavailable"), Unknown),
        (error(503, 10077, "no space left on device"), Unknown),
        (error(500, 10047, "insufficient storage resources available"), Unknown),
        (error(400, 10054, "message size exceeds maximum allowed"), BrokerRefused),
        (error(429, 10167, "too many requests"), BrokerRefused),
        ({"stream": "restow-c", "seq": 8, "duplicate": True}, BrokerRefused),
        ({"stream": "restow-c"}, BrokerRefused),
        (b"", Unknown),
        (b'{"stream":"restow-c","seq":', Unknown),
        (b'{"seq":"8"}', Unknown),
    ],
)
async def test_every_answer_has_one_meaning(answer, means):
    with pytest.raises(means) as raised:
        await append(ScriptedBroker(answer))
    assert type(raised.value) is means


async def test_a_store_that_could_not_write_says_that_the_broker_is_to_be_started_again():
    for said in ("write /data/1.blk: no space left on device", "no message cache"):
        with pytest.raises(Unknown, match=f"{said}.*start the broker again") as unknown:
            await append(ScriptedBroker(error(503, 10077, said)))
        assert unknown.value.full


async def test_a_conflict_tells_the_actual_place_where_the_broker_does():
    with pytest.raises(Conflict) as conflict:
        await append(ScriptedBroker(error(400, 10071, "wrong last sequence: 9")))
    assert conflict.value.actual == 9


async def test_only_a_refusal_for_overload_is_repeated_and_with_the_same_expectation():
    busy = error(429, 10167)
    broker = ScriptedBroker(busy, busy, {"stream": "restow-c", "seq": 8})
    assert await append(broker) == 8
    assert len(broker.asked) == 3
    assert {headers[EXPECTED] for _, headers in broker.asked} == {"7"}
    broker = ScriptedBroker(busy)
    with pytest.raises(BrokerRefused, match="overloaded and refused 4 times"):
        await append(broker)
    broker = ScriptedBroker(error(503, 10008))
    with pytest.raises(Unknown):
        await append(broker)
    assert len(broker.asked) == 1


async def test_a_refusal_for_overload_is_not_repeated_on_another_connection():
    broker = ScriptedBroker(error(429, 10167), {"stream": "restow-c", "seq": 8})
    asking = asyncio.create_task(append(broker))
    while not broker.asked:
        await asyncio.sleep(0)
    broker.losses += 1
    with pytest.raises(Unknown, match="the connection was lost meanwhile"):
        await asking
    assert len(broker.asked) == 1


async def test_an_append_names_stream_and_expectation_and_never_a_message_id():
    broker = ScriptedBroker({"stream": "restow-c", "seq": 8})
    await append(broker)
    [(subject, headers)] = broker.asked
    assert subject == "restow.c.session"
    assert (headers[EXPECTED], headers[EXPECTED_STREAM], headers["ce-id"]) == ("7", "restow-c", "an-id")
    assert not [name for name in headers if name.lower() == "nats-msg-id"]
