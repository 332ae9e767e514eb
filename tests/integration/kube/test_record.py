"""Events tell people what happened, once with a count, and never stand in anyone's way."""

import asyncio
import json

import pytest

from restow.kube.event_recorder import Notice, Recorder, Regarding

WEB = Regarding("v1", "Pod", "default", "web", "u")
NOTICE = Notice(WEB, "Scheduled", "Binding", "Assigned default/web to node-a")
PATH = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
async def recorder(api):
    made = Recorder(api.client, "restow.dev/session", "session-0", limit=2)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def events(api):
    return json.loads(await api.client.get(PATH))["items"]


async def test_an_event_says_what_who_and_why(api, recorder):
    assert recorder.record(NOTICE)
    await recorder.flushed()
    (event,) = await events(api)
    assert (event["reason"], event["action"], event["note"], event["type"]) == (
        "Scheduled", "Binding", "Assigned default/web to node-a", "Normal",
    )  # fmt: skip
    assert event["regarding"]["name"] == "web"
    assert event["reportingController"] == "restow.dev/session"


async def test_repetitions_are_counted_on_one_object(api, recorder):
    for _ in range(3):
        recorder.record(NOTICE)
        await recorder.flushed()
    (event,) = await events(api)
    assert event["series"]["count"] == 3


async def test_another_process_counts_on_the_same_object(api, recorder):
    recorder.record(NOTICE)
    await recorder.flushed()
    other = Recorder(api.client, "restow.dev/session", "session-1")
    other.record(NOTICE)
    task = asyncio.create_task(other.run())
    await other.flushed()
    task.cancel()
    assert len(await events(api)) == 1


async def test_a_full_queue_drops_and_counts(recorder):
    taken = [recorder.record(Notice(WEB, "R", "A", str(i))) for i in range(3)]
    assert taken == [True, True, False]
    assert recorder.dropped == 1
    await recorder.flushed()


async def test_a_refusing_api_stops_nothing(api, recorder):
    api.faults.add("status", verb="create", resource="events", code=500)
    recorder.record(NOTICE)
    await recorder.flushed()
    recorder.record(NOTICE)
    await recorder.flushed()
    assert (recorder.dropped, len(await events(api))) == (1, 1)


async def test_a_long_note_is_cut(api, recorder):
    recorder.record(Notice(WEB, "R", "A", "ä" * 2000))
    await recorder.flushed()
    assert len((await events(api))[0]["note"].encode()) <= 1024


@pytest.mark.parametrize("end", [".b", "-b", "-.-b"])
async def test_a_name_of_any_length_has_events(api, recorder, end):
    """What is cut in its middle may end where no name of an event may go on."""
    long = "a" * (200 - len(end) + 1) + end + "c" * 20
    assert recorder.record(Notice(Regarding("v1", "Pod", "default", long, "u"), "Scheduled", "Binding", "note"))
    await recorder.flushed()
    (event,) = await events(api)
    assert event["regarding"]["name"] == long
    assert recorder.dropped == 0
