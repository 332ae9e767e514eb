"""That a field has no effect is told by an Event: once for what is asked, again when something else is, and again of a new object."""

import asyncio
from types import SimpleNamespace

from domain.build import given, pod_group, queue, shape, then
from msgspec.structs import replace

from restow.domain.effects import WritePodGroupStatus, WriteQueueStatus
from restow.kube import effects as k
from restow.scheduler_session.status import StatusEffects


class Recorder(list):
    def record(self, notice) -> None:
        self.append((notice.regarding.kind, notice.regarding.name, notice.reason, notice.type, notice.note))


def effects(answers=lambda: None) -> tuple[StatusEffects, Recorder]:
    told = Recorder()
    made = StatusEffects(SimpleNamespace(client=None, recorder=told, clock=SimpleNamespace(now=lambda: 1_000)))

    async def write(*args):
        return answers()

    made._kube = SimpleNamespace(write=write)
    return made, told


def warning(kind: str, what: str) -> tuple:
    return kind, "x", "FieldNotHonoured", "Warning", f"accepted, without effect: {what}"


def test_a_queue_is_warned_when_it_is_first_seen_and_when_it_asks_for_something_else_and_not_in_between():
    made, told = effects()
    state = given(shape("s"), queue("x", unheeded="spec.type"))

    def write() -> list:
        asyncio.run(made.write_queue(WriteQueueStatus("x", state.seq), state))
        return told

    assert write() == write() == [warning("Queue", "spec.type")]
    then(state, queue("x", unheeded="spec.extendClusters"))
    assert write() == [warning("Queue", "spec.type"), warning("Queue", "spec.extendClusters")]
    then(state, queue("x"))
    assert len(write()) == 2
    then(state, queue("x", unheeded="spec.type"))
    assert write()[2:] == [warning("Queue", "spec.type")]


def test_a_queue_that_was_deleted_and_made_anew_is_warned_anew():
    made, told = effects()
    state = given(queue("x", unheeded="spec.type"))
    asyncio.run(made.write_queue(WriteQueueStatus("x", state.seq), state))
    then(state, replace(queue("x", unheeded="spec.type"), uid="another"))
    asyncio.run(made.write_queue(WriteQueueStatus("x", state.seq), state))
    assert told == [warning("Queue", "spec.type")] * 2


def test_a_podgroup_is_warned_once_and_one_of_the_same_name_that_comes_after_it_is_warned_too():
    made, told = effects()
    state = given(shape("s"), pod_group("x", unheeded="spec.networkTopology"))

    def write() -> list:
        asyncio.run(made.write_group(WritePodGroupStatus("default", "x", state.seq), state))
        return [notice for notice in told if notice[2] == "FieldNotHonoured"]

    assert write() == write() == [warning("PodGroup", "spec.networkTopology")]
    then(state, replace(pod_group("x", unheeded="spec.networkTopology"), uid="another"))
    assert write() == [warning("PodGroup", "spec.networkTopology")] * 2


def test_a_write_that_is_refused_is_tried_again_and_nothing_is_told_of_a_podgroup_before():
    answers = [k.Refused(409, "Conflict", "later"), None]
    made, told = effects(lambda: answers.pop(0))
    state = given(pod_group("x", unheeded="spec.networkTopology"))
    effect = WritePodGroupStatus("default", "x", state.seq)
    asyncio.run(made.write_group(effect, state))
    assert told == []
    asyncio.run(made.write_group(effect, state))
    assert told == [warning("PodGroup", "spec.networkTopology")]
