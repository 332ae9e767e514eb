"""What a Queue's status says: PodGroups by phase, what it uses, and when it is written."""

from domain.build import GIB, NOW, given, in_queue, member, node, pod, pod_group, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.effects import WriteQueueStatus
from restow.domain.session.statuses.queue_status import QueueStatus, Tally, above, status, tally
from restow.domain.state import Touched

BARE = (node("n"), node("gpus", gpus=2), shape("s", cpu=500), queue("q"), queue("other"))


def said(state, name="q"):
    return status(state, name, Tally(state))


def test_a_queue_counts_its_groups_by_phase():
    state = given(
        *BARE,
        pod_group("new", "q", phase="Pending"), pod_group("in", "q"), pod_group("run", "q"), pod_group("half", "q", need=2),
        pod_group("end", "q"), pod_group("elsewhere", "other"),
        member("r", "run", node="n"), member("h", "half", node="n"), member("e", "end", node="n", phase="Succeeded"),
    )  # fmt: skip
    told = said(state)
    assert (told.pending, told.inqueue, told.running, told.unknown, told.completed) == (1, 1, 1, 1, 1)
    assert said(state, "other").inqueue == 1


def test_what_is_used_is_written_as_kubernetes_writes_it():
    state = given(*BARE, shape("g", cpu=1_000, gpu=(1, 500)), in_queue("a", "q", node="n"), in_queue("b", "q", "g", node="gpus"))
    assert said(state).allocated == {"cpu": "1500m", "memory": "2Gi", "alibabacloud.com/gpu-milli": "500", "pods": "2"}
    assert said(state, "other") == QueueStatus()


def test_whole_gpus_are_called_as_volcano_s_dashboards_ask_for_them():
    state = given(*BARE, shape("g", cpu=1_000, gpu=(2, 1000)), in_queue("b", "q", "g", node="gpus"))
    assert said(state).allocated["nvidia.com/gpu"] == "2"


def test_a_queue_uses_what_the_queues_below_it_use():
    state = given(node("n"), shape("s"), queue("top"), queue("mid", parent="top"), queue("leaf", parent="mid"))
    then(state, in_queue("a", "leaf", node="n"), in_queue("b", "mid", node="n"))
    assert [said(state, name).allocated.get("memory") for name in ("top", "mid", "leaf")] == ["2Gi", "2Gi", "1Gi"]


def test_queues_that_are_tied_in_a_circle_end_somewhere():
    state = given(node("n"), shape("s"), queue("a", parent="b"), queue("b", parent="a"), queue("self", parent="self"))
    then(state, in_queue("p", "a", node="n"))
    assert list(above(state, "a")) == ["b"]
    assert list(above(state, "self")) == []
    assert [said(state, name).allocated["memory"] for name in ("a", "b")] == [f"{GIB >> 30}Gi"] * 2


def owed(state):
    touched, state.touched = state.touched, Touched()
    effects = session.decider.pending(state, touched)
    return {effect.queue for effect in effects if isinstance(effect, WriteQueueStatus)}


def test_a_queue_s_status_is_owed_when_its_use_or_a_group_of_it_moves():
    state = given(node("n"), shape("s"), queue("top"), queue("q", parent="top"), queue("other"), pod_group("g", "q"))
    assert {e.queue for e in session.decider.pending(state, None) if isinstance(e, WriteQueueStatus)} == {"top", "q", "other"}
    owed(state)
    then(state, pod("lone", node="n"))
    assert owed(state) == set(), "the queue default does not exist"
    then(state, member("a", "g"))
    assert owed(state) == {"q", "top"}
    run(state, session.decider, c.Schedule(NOW))
    assert owed(state) == {"q", "top"}
    then(state, pod_group("g", "other"))
    assert owed(state) == {"q", "top", "other"}, "it has left one and come to the other"


def test_counts_that_follow_what_was_touched_are_those_of_all_groups():
    state = given(*BARE, pod_group("g", "q"), pod_group("h", "q", phase="Pending"))
    owed(state)
    steps = (
        member("a", "g", node="n"), member("b", "h"), e.Enqueued("default", "h"), e.PodGone("a"), pod_group("g", "other"),
        e.PodGroupGone("default", "h"), e.PodGone("b"),
    )  # fmt: skip
    for step in steps:
        then(state, step)
        owed(state)
        for name in ("q", "other"):
            assert status(state, name, tally(state)) == said(state, name), (step, name)
