"""Two descheduling systems on the same pods: who sees that somebody else disturbs its moves backs off, for longer each time, and says so."""

import pytest
from domain.build import NOW, node, pod, then
from domain.saga import OWNER, advance, move, plan
from domain.test_beside import world

from restow.contracts import events as e
from restow.contracts.events import WorkloadObserved
from restow.contracts.times import rfc3339
from restow.domain.evolve.bounces import ONE_INCIDENT, SOON, TAKEN_AWAY, disturbance
from restow.domain.movable import unmovable
from restow.domain.records import EVERYWHERE
from restow.domain.verdicts import DISTURBED

LINEAGE = OWNER.uid
APART = ONE_INCIDENT + 1


def fails(state, id: str, reason: str, after: int) -> None:
    """A move of the workload's pod is planned and ends so."""
    then(state, plan(id, move(f"{id}-1")), time=NOW + after)
    then(state, e.Holding(f"{id}-1", NOW + after + 1_000), e.MigrationFailed(f"{id}-1", reason, ""), time=NOW + after)


def found(state, after: int = 0) -> list[e.Bounced]:
    return [event for event in advance(state, after) if isinstance(event, e.Bounced)]


@pytest.mark.parametrize("reason", ["HoldStolen", "SuccessorGone", "TargetLost"])
def test_a_workload_whose_moves_are_disturbed_twice_is_left_alone(reason):
    state = world()
    fails(state, "x", reason, 0)
    assert found(state) == []
    assert unmovable(state, "p") == ""
    fails(state, "y", reason, APART)
    assert found(state, APART) == [e.Bounced(LINEAGE, EVERYWHERE, 2, reason)]
    assert unmovable(state, "p").startswith(DISTURBED)


def test_one_incident_counts_once_however_many_moves_it_disturbs():
    state = world()
    for i in range(5):
        fails(state, f"x{i}", "TargetLost", i)
    assert found(state) == []


@pytest.mark.parametrize("reason", ["NotGated", "PodGone", "HoldTimeout", "Elsewhere"])
def test_what_nobody_else_has_done_disturbs_nobody(reason):
    state = world()
    fails(state, "x", reason, 0)
    fails(state, "y", reason, APART)
    assert (found(state, APART), state.disturbed) == ([], {})


def deleted_meanwhile(state, id: str, victim: str, at: int) -> str:
    """Somebody deletes the pod that a move holds a slot for; its controller makes another one. Its name."""
    move_id, source = f"{id}-1", state.live_of(victim).node
    then(state, plan(id, move(move_id, pod=victim, source=source)), time=NOW + at)
    then(state, e.Holding(move_id, NOW + at + 1_000), e.Held(move_id), e.PodGone(victim), time=NOW + at)
    then(state, e.MigrationFailed(move_id, "PodGone", ""), pod(f"{id}-next", node="a", owner=OWNER), time=NOW + at)
    return f"{id}-next"


def test_pods_that_somebody_deletes_while_slots_are_held_for_them_are_a_finding_too():
    state = world()
    following = deleted_meanwhile(state, "x", "p", 0)
    assert found(state) == []
    last = deleted_meanwhile(state, "y", following, APART)
    assert found(state, APART) == [e.Bounced(LINEAGE, EVERYWHERE, 2, "PodGone")]
    assert unmovable(state, last).startswith(DISTURBED)
    assert disturbance(state, LINEAGE) == f"somebody else has disturbed the moves of its workload 2 times in a row (PodGone): it is left alone at least until {rfc3339(NOW + APART + SOON)}"


def test_what_its_controller_asked_for_is_nobody_elses_doing():
    """A rollout, or a scale-down, deletes pods that are about to move."""
    state = then(world(), WorkloadObserved(uid=OWNER.uid, kind="ReplicaSet", namespace="default", name="rs", busy="rollout"))
    deleted_meanwhile(state, "y", deleted_meanwhile(state, "x", "p", 0), APART)
    assert (found(state, APART), state.disturbed) == ([], {})


def test_it_is_left_alone_for_ten_minutes_and_then_for_twice_as_long():
    state, at = world(), 0
    fails(state, "a", "HoldStolen", at)
    for i, minutes in enumerate((10, 20, 40)):
        at += APART
        fails(state, f"b{i}", "HoldStolen", at)
        assert [one.times for one in found(state, at)] == [i + 2]
        then(state, plan(f"c{i}"), time=NOW + at + minutes * 60_000 - 1)
        assert unmovable(state, "p").startswith(DISTURBED)
        at += minutes * 60_000
        then(state, plan(f"d{i}"), time=NOW + at)
        assert unmovable(state, "p") == ""


def test_after_an_hour_of_peace_it_begins_anew():
    state = world()
    fails(state, "x", "HoldStolen", 0)
    fails(state, "y", "HoldStolen", SOON + 6 * SOON)
    assert found(state, 7 * SOON) == []


def landed_and_taken_away(state, id: str, victim: str, target: str, at: int) -> str:
    """A move lands on the target; a second later somebody evicts the pod, and its controller's next one comes to c. Its name."""
    move_id, source = f"{id}-1", state.live_of(victim).node
    then(state, plan(id, move(move_id, pod=victim, source=source, target=target)), time=NOW + at)
    steps = e.Holding(move_id, NOW + at + 9), e.Held(move_id), e.Evicting(move_id, NOW + at + 9), e.Evicted(move_id, NOW + at + 9)
    ending = e.PodGone(victim), pod(f"{id}-new", node=target, owner=OWNER), e.Landed(move_id, f"{id}-new", target)
    then(state, *steps, *ending, time=NOW + at)
    then(state, e.PodGone(f"{id}-new"), pod(f"{id}-next", node="c", owner=OWNER), time=NOW + at + 1_000)
    return f"{id}-next"


def test_pods_that_somebody_takes_away_soon_after_they_have_landed_are_a_finding_too():
    state = then(world(), node("c", cpu=4_000))
    following = landed_and_taken_away(state, "x", "p", "b", 0)
    assert found(state) == []
    landed_and_taken_away(state, "y", following, "b", APART)
    assert found(state, APART + 1_000) == [e.Bounced(LINEAGE, EVERYWHERE, 2, TAKEN_AWAY)]


def test_pods_that_are_ours_have_a_session_that_refuses_and_are_no_finding():
    state = world(schedulers=())
    fails(state, "x", "HoldStolen", 0)
    fails(state, "y", "HoldStolen", APART)
    assert (found(state, APART), state.disturbed) == ([], {})
