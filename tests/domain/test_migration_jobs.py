"""Moves of a Job's pods: when its controller makes the next one, and when it makes none."""

import pytest
from domain.build import NOW, changed, job_of, pod, replica_of, then
from domain.saga import advance, evicts, hold, move, plan, session_answers, step, terminate, world
from domain.test_beside import STOCK
from domain.test_beside import evicted as evicted_beside
from domain.test_beside import session_owes as owes_beside
from domain.test_beside import world as beside_world

from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain.effects import DeletePlaceholder
from restow.domain.migration.deadlines import JOB_PAUSE, lands_until
from restow.domain.records import ON_NODE, Step
from restow.domain.snapshot import dump, load

M = "x-1"
JOB = replica_of("j", "Job")
LAND = 300_000


def evicted(*more, evicted="ignored", **job):
    """j1 of a Job leaves a, and terminates; its slot is on b."""
    state = world(job_of("j", evicted, 5, **job), pod("j1", node="a", owner=JOB), *more, plan("x", move(M, "j1")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    terminate(state, "j1")
    advance(state)
    assert step(state, M) is Step.EVICTED
    return state


def gone(state, phase="Failed"):
    then(state, changed("j1", node="a", phase=phase, deleting=NOW), e.PodGone("j1"))
    return advance(state)


def why(state):
    migration = state.migrations[M]
    return migration.step, migration.reason


def is_held(state):
    return any(slot.phase in ON_NODE for slot in state.slots.get(f"hold-{M}", {}).values())


@pytest.mark.parametrize("said", ["ignored", "counted"])
def test_its_slot_waits_for_as_long_as_the_job_controller_may_pause_after_failures(said):
    """It counts what the podFailurePolicy ignores as a failure in a row, too: the eighth waits for ten minutes."""
    state = evicted(evicted=said)
    gone(state)
    advance(state, after=JOB_PAUSE + LAND - 1)
    assert (step(state, M), is_held(state)) == (Step.EVICTED, True)
    then(state, pod("j2", owner=JOB), time=NOW + JOB_PAUSE + LAND - 1)
    session_answers(state, after=JOB_PAUSE + LAND - 1)
    assert (state.placed["j2"].node, state.migrations[M].successor) == ("b", "j2")
    assert lands_until(state, state.migrations[M]) == NOW + JOB_PAUSE + LAND - 1 + LAND


def test_a_job_that_makes_no_other_pod_has_its_slot_back_when_that_is_so_late():
    state = evicted()
    gone(state)
    advance(state, after=JOB_PAUSE + LAND)
    assert step(state, M) is Step.NOT_RECREATED


def test_pods_of_other_controllers_wait_for_no_job():
    state = world(plan("x", move(M, "p1")))
    advance(state)
    hold(state, M)
    terminate(state, "p1")
    advance(state)
    then(state, e.PodGone("p1"))
    advance(state, after=LAND)
    assert step(state, M) is Step.NOT_RECREATED


@pytest.mark.parametrize("at_once", [True, False])
def test_a_pod_that_ends_with_success_when_it_is_told_to_go_gives_its_slot_back_at_once(at_once):
    state = evicted()
    if at_once:
        then(state, changed("j1", node="a", phase="Succeeded", deleting=NOW))
    else:
        # The descheduler was away meanwhile.
        then(state, changed("j1", node="a", phase="Succeeded", deleting=NOW), e.PodGone("j1"))
        state = load(dump(state))
    advance(state)
    assert why(state) == (Step.FAILED, "PodDone")
    session_answers(state)
    assert not is_held(state)
    assert not state.missed, "nobody's failure"


def test_a_pod_of_a_replicaset_that_ends_with_success_is_made_again():
    state = world(plan("x", move(M, "p1")))
    advance(state)
    hold(state, M)
    then(state, changed("p1", node="a", phase="Succeeded", deleting=NOW))
    advance(state)
    assert (step(state, M), is_held(state)) == (Step.EVICTED, True)


@pytest.mark.parametrize("busy", ["over", "deleting"])
def test_a_job_that_has_ended_makes_no_other(busy):
    state = evicted()
    then(state, job_of("j", busy=busy))
    advance(state)
    assert why(state) == (Step.FAILED, "JobEnded")
    assert not state.missed


def test_nor_does_one_that_is_gone():
    state = evicted()
    then(state, e.WorkloadGone("uid-j"))
    advance(state)
    assert why(state) == (Step.FAILED, "JobEnded")


def test_a_suspended_job_may_go_on():
    state = evicted()
    then(state, job_of("j", busy="suspended"))
    advance(state)
    assert step(state, M) is Step.EVICTED


@pytest.mark.parametrize(("kind", "ends"), [("JobSet", False), ("CronJob", True)])
def test_a_jobset_may_make_the_job_anew_and_a_cronjobs_next_one_is_another(kind, ends):
    above = OwnerRef(kind, "above", "uid-above", "jobset.x-k8s.io/v1alpha2" if kind == "JobSet" else "batch/v1")
    state = evicted(owner=above)
    then(state, job_of("j", busy="over", owner=above))
    then(state, e.WorkloadGone("uid-j"))
    advance(state)
    assert step(state, M) is (Step.FAILED if ends else Step.EVICTED)


def test_who_came_before_the_job_had_ended_lands():
    state = evicted()
    gone(state)
    then(state, pod("j2", owner=JOB), job_of("j", busy="deleting"))
    advance(state)
    session_answers(state)
    assert (step(state, M), state.placed["j2"].node) == (Step.EVICTED, "b")


def test_beside_another_scheduler_the_placeholder_goes_with_the_slot():
    state = beside_world(job_of("j"), pod("p", node="a", owner=JOB), schedulers=(STOCK,))
    evicted_beside(state)
    then(state, changed("p", node="a", phase="Succeeded", deleting=NOW))
    advance(state)
    assert why(state) == (Step.FAILED, "PodDone")
    session_answers(state)
    assert {DeletePlaceholder("h"), DeletePlaceholder("g")} <= set(owes_beside(state))
