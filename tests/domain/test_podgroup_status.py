"""What a PodGroup's status says: Volcano's phases, counts, and one condition of a type."""

import pytest
from domain.build import NOW, changed, given, member, node, pod_group, run, shape, then
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Taint
from restow.domain import config, session
from restow.domain.effects import WritePodGroupStatus
from restow.domain.session.statuses.podgroup_status import READY, Condition, conditions, is_ours, status
from restow.domain.session_config import read_conf

GROUP = ("default", "g")
BARE = (node("n", cpu=4_000), shape("s"))


def group(*facts: e.Event, need: int = 2, **more):
    return given(*BARE, pod_group("g", need=need, **more), *facts)


def m(name: str, node: str | None = None, **more) -> e.PodObserved:
    return member(name, "g", node=node, **more)


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        pytest.param((), "Inqueue", id="nothing is there yet"),
        pytest.param((m("a"),), "Inqueue", id="nobody has a place"),
        pytest.param((m("a", "n"), m("b", "n")), "Running", id="enough run"),
        pytest.param((m("a", "n", phase="Pending"), m("b", "n", phase="Pending")), "Running", id="bound is as good"),
        pytest.param((m("a", "n"), m("b", "n", phase="Succeeded")), "Running", id="one has ended"),
        pytest.param((m("a", "n"), m("b")), "Unknown", id="some run, the gang is not complete"),
        pytest.param((m("a", "n"), m("b", "n", deleting=NOW)), "Unknown", id="who terminates does not count"),
        pytest.param((m("a", "n"), m("b", "n", phase="Failed")), "Unknown", id="nor does who has failed, while others run"),
        pytest.param((m("a", "n", phase="Succeeded"), m("b", "n", phase="Succeeded")), "Completed", id="all have ended"),
        pytest.param((m("a", "n", phase="Succeeded"), m("b", "n", phase="Failed")), "Completed", id="well or not"),
        pytest.param((m("a", "n", phase="Succeeded"), m("b")), "Inqueue", id="one has ended, one waits"),
    ],
)
def test_the_phase_follows_from_the_pods(facts, phase):
    assert status(group(*facts), GROUP).phase == phase


def test_a_group_is_pending_until_it_is_let_in():
    state = group(phase="Pending", min_resources={"cpu": 1_000})
    assert status(state, GROUP).phase == "Pending"
    then(state, e.Enqueued(*GROUP))
    assert status(state, GROUP).phase == "Inqueue"


def test_where_nothing_lets_groups_in_none_is_pending():
    conf = read_conf({"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}]}]})
    state = group(e.SessionConfigured(config.text_of(conf), "d"), phase="Pending")
    assert status(state, GROUP).phase == "Inqueue"


def test_placed_pods_count_before_they_are_bound():
    state = group(m("a"), m("b"))
    run(state, session.decider, c.Schedule(NOW))
    assert (status(state, GROUP).phase, status(state, GROUP).running) == ("Running", 0)


def test_a_group_that_needs_nobody_is_not_completed_before_it_has_begun():
    assert status(group(need=0), GROUP).phase == "Inqueue"
    assert status(group(m("a"), need=0), GROUP).phase == "Inqueue"


def test_each_task_has_its_minimum_too():
    worker = {"volcano.sh/task-spec": "worker"}
    state = group(m("a", "n"), m("b", "n"), min_task_member={"worker": 1})
    assert status(state, GROUP).phase == "Unknown"
    then(state, replace(m("w", "n"), annotations=m("w").annotations | worker))
    assert status(state, GROUP).phase == "Running"


def test_counts_are_of_pods_by_phase():
    state = group(m("a", "n"), m("b", "n"), m("c", "n", phase="Succeeded"), m("d", "n", phase="Failed"), m("e", "n", deleting=NOW))
    said = status(state, GROUP)
    assert (said.running, said.succeeded, said.failed) == (2, 1, 1)


# -- the condition -------------------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_fit_says_how_far_it_is_and_what_its_first_pod_lacks():
    state = group(m("r1", "n"), m("r2", "n"), *(m(f"w{i}") for i in range(3)), need=5)
    run(state, session.decider, c.Schedule(NOW))
    said = status(state, GROUP)
    assert said.phase == "Unknown"
    assert (said.holds.type, said.holds.reason) == ("Unschedulable", "NotEnoughResources")
    assert said.holds.message == (
        "3/5 tasks in gang unschedulable: pod group is not ready, 2 Running, 3 Pending, 5 minAvailable; "
        "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_too_few_pods_are_not_enough_tasks():
    state = group(m("a"), need=3)
    run(state, session.decider, c.Schedule(NOW))
    holds = status(state, GROUP).holds
    assert (holds.reason, "the gang needs 3 pods" in holds.message) == ("NotEnoughTasks", True)
    lost = group(m("a", "n"), m("b", "n", phase="Failed"), need=2)
    assert status(lost, GROUP).holds.message == "0/2 tasks in gang unschedulable: pod group is not ready, 1 Failed, 1 Running, 2 minAvailable"


def test_a_group_that_nobody_has_looked_at_says_nothing():
    assert status(group(m("a"), m("b")), GROUP).holds is None
    assert status(group(), GROUP).holds is None


def test_a_complete_gang_is_scheduled():
    assert status(group(m("a", "n"), m("b", "n")), GROUP).holds == Condition("Scheduled", "True", reason=READY)


def unschedulable(message: str = "m") -> Condition:
    return Condition("Unschedulable", "True", reason="NotEnoughResources", message=message)


SCHEDULED = Condition("Scheduled", "True", reason=READY)


def test_what_stays_true_keeps_its_moment_whatever_its_message():
    first = conditions((), unschedulable("one"), "uid", NOW)
    (second,) = conditions(first, unschedulable("two"), "uid", NOW + 60_000)
    assert second == replace(first[0], message="two")
    assert second.last_transition_time == "2023-11-14T22:13:20Z"
    assert len(second.transition_id) == 36


def test_there_is_one_condition_of_a_type_and_only_one_of_them_is_true():
    told = conditions((), unschedulable(), "uid", NOW)
    for turn in range(4):
        told = conditions(told, (SCHEDULED, unschedulable())[turn % 2], "uid", NOW + 1_000 * turn)
        assert [(t.type, t.status) for t in told] in (
            [("Unschedulable", "False"), ("Scheduled", "True")],
            [("Scheduled", "False"), ("Unschedulable", "True")],
        )


def test_the_conditions_of_others_stay():
    theirs = Condition("Inspected", "True", "id", "2026-01-01T00:00:00Z", "Because", "text")
    told = conditions((theirs,), SCHEDULED, "uid", NOW)
    assert told[0] == theirs
    assert conditions(told, None, "uid", NOW + 1) == told


# -- when it is written --------------------------------------------------------------------------------------------------


def owed(state, touched):
    return [effect for effect in session.decider.pending(state, touched) if isinstance(effect, WritePodGroupStatus)]


def fresh(state):
    from restow.domain.state import Touched

    touched, state.touched = state.touched, Touched()
    return touched


def test_the_status_is_owed_when_anything_of_the_group_moves_and_after_a_restart():
    state = group(m("a"), m("b"))
    assert owed(state, None) == [WritePodGroupStatus(*GROUP, state.seq)]
    moves = (
        e.PodPlaced("a", "n"), e.PodReleased("a", "why"), changed("b", node="n", phase="Running"), e.PodGone("b"),
        e.Withheld("Unschedulable", "m", ("a",), "default/g"), e.Enqueued(*GROUP), pod_group("g", need=3),
    )  # fmt: skip
    for move in moves:
        fresh(state)
        then(state, move)
        assert owed(state, fresh(state)) == [WritePodGroupStatus(*GROUP, state.seq)], move
    then(state, node("other", taints=(Taint("k", "NoSchedule"),)))
    assert owed(state, fresh(state)) == []


def test_groups_of_other_schedulers_are_never_touched():
    state = given(node("n"), shape("s"), shape("f", scheduler="else"), pod_group("g"), pod_group("empty"))
    then(state, replace(m("a"), shape="f"))
    assert not is_ours(state, GROUP)
    assert not is_ours(state, ("default", "empty")), "another scheduler may be in charge of it"
    then(state, m("b"))
    assert is_ours(state, GROUP)
    answers = config.SessionConfig(scheduler_names=("restow", "volcano"))
    then(state, e.SessionConfigured(config.text_of(answers), "d"))
    assert is_ours(state, ("default", "empty")), "Volcano's controllers wait for its phase before they create pods"


def test_our_own_writing_of_the_phase_makes_no_session_due():
    state = group(m("a"), m("b"), m("c"), need=9)
    run(state, session.decider, c.Schedule(NOW))
    epoch, parked = state.capacity_epoch, dict(state.parked)
    then(state, pod_group("g", need=9, phase="Inqueue"))
    then(state, pod_group("g", need=9, phase="Unknown"))
    assert (state.capacity_epoch, state.parked, dict(state.queue)) == (epoch, parked, {})
