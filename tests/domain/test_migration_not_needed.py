"""Moves whose pod was evicted when its controller is scaled down, or rolled out: nobody follows, and the slot is free at once."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, shape, then
from domain.saga import advance, evicts, hold, land, move, owed, plan, session_answers, step, terminate

from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain.config import MigrationConfig
from restow.domain.effects import Evict
from restow.domain.records import ON_NODE, Step

M = "x-1"
DB = replica_of("db", "StatefulSet")
NAMES = (("db-0", "c"), ("db-1", "c"), ("db-2", "a"))


def evicted(wants=None, owner=DB, told=()):
    """db-2 leaves a, and terminates; its slot is on b. `wants`: what its StatefulSet said before."""
    made = [pod(name, node=where, owner=owner) for name, where in NAMES]
    facts = list(told) if wants is None else [e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", wanted=wants)]
    state = given(*(node(name, cpu=16_000) for name in "abc"), shape("s"), shape("big", cpu=2_000), *facts, *made, plan("x", move(M, "db-2")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    terminate(state, "db-2")
    advance(state)
    assert step(state, M) is Step.EVICTED
    return state


def why(state):
    migration = state.migrations[M]
    return migration.step, migration.reason


MINUTE = 60_000
WAITS, OVER = (Step.EVICTED, ""), (Step.FAILED, "NotNeeded")


@pytest.mark.parametrize(("wanted", "expected"), [(2, OVER), (0, OVER), (3, WAITS), (None, WAITS)])
def test_a_stateful_set_that_is_scaled_below_its_ordinal_makes_no_pod_of_that_name(wanted, expected):
    state = evicted()
    then(state, e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", busy="scaling_down", wanted=wanted))
    advance(state)
    assert why(state) == expected
    assert not state.missed, "its controller is at work: nobody's failure"


@pytest.mark.parametrize(("before", "after", "expected"), [(3, 2, OVER), (3, 3, WAITS), (2, None, WAITS)])
def test_one_that_is_scaled_down_by_the_pod_that_has_left_is_at_rest_at_once_and_makes_no_other(before, after, expected):
    """It never has more pods than it is to have. What was told before the eviction says nothing: it may have been scaled up since."""
    state = evicted(wants=before)
    advance(state)
    assert why(state) == WAITS
    if after is not None:
        then(state, e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", parallel=True, wanted=after))
    advance(state)
    assert why(state) == expected
    assert not state.missed, "whoever wants fewer pods misses none"


@pytest.mark.parametrize(("shape", "expected"), [("big", OVER), ("s", WAITS)])
def test_the_pod_of_its_name_that_asks_for_something_else_is_the_only_one_that_comes(shape, expected):
    state = evicted()
    then(state, e.PodGone("db-2"), pod("db-2", shape, uid="later", owner=DB))
    advance(state)
    assert why(state) == expected
    assert bool(state.missed) == (expected == OVER), "by no rollout: somebody's admission has changed it, which is a miss"


# -- Deployments ---------------------------------------------------------------------------------------------------------


WEB = replica_of("web-1")
ABOVE = replica_of("web", "Deployment")


def of_deployment(wanted=3, moves=("web-a",)):
    """Of three pods on a and c some leave for b, and terminate. `wanted`: what the Deployment said before."""
    made = [pod(name, node=where, owner=WEB) for name, where in (("web-a", "a"), ("web-b", "a"), ("web-c", "c"))]
    planned = plan("x", *(move(f"x-{i}", name) for i, name in enumerate(moves, 1)))
    facts = (e.WorkloadObserved(WEB.uid, "ReplicaSet", "default", "web-1", owner=ABOVE), wants(wanted))
    state = given(*(node(name, cpu=16_000) for name in "abc"), shape("s"), shape("big", cpu=2_000), *facts, *made, planned)
    then(state, configured("migration", MigrationConfig(max_unavailable=0)))
    advance(state)
    for i, name in enumerate(moves, 1):
        hold(state, f"x-{i}")
        advance(state)
        terminate(state, name)
    advance(state)
    assert {step(state, f"x-{i}") for i in range(1, len(moves) + 1)} == {Step.EVICTED}
    return state


def wants(number, busy=""):
    return e.WorkloadObserved(ABOVE.uid, "Deployment", "default", "web", busy=busy, wanted=number)


@pytest.mark.parametrize(("wanted", "busy", "expected"), [(2, "", OVER), (0, "", OVER), (3, "", WAITS), (None, "", WAITS), (2, "scaling_down", OVER), (2, "rollout", WAITS), (2, "paused", WAITS)])
def test_a_deployment_at_rest_that_has_all_the_pods_it_wants_makes_no_other(wanted, busy, expected):
    state = of_deployment()
    advance(state)
    assert why(state) == WAITS
    then(state, wants(wanted, busy))
    advance(state)
    assert why(state) == expected
    assert not state.missed, "whoever wants fewer pods misses none"


def test_between_two_steps_of_a_rollout_nobody_is_given_up_and_the_next_revision_s_pod_lands():
    """One of the new ReplicaSet is there before the one that follows: as many as are wanted, and another is to come."""
    state = of_deployment()
    then(state, wants(3, "rollout"), e.WorkloadObserved("uid-web-2", "ReplicaSet", "default", "web-2", owner=ABOVE), pod("new-1", "big", node="c", owner=replica_of("web-2")))
    advance(state)
    assert why(state) == WAITS
    then(state, wants(3))
    advance(state)
    assert why(state) == OVER, "at rest, with three, and none of them follows: they ask for something else"


def test_a_follower_is_waited_for_however_many_there_are():
    """It came before the Deployment was scaled down, and its ReplicaSet has not chosen yet whom to take away."""
    state = of_deployment()
    then(state, pod("later", owner=WEB), wants(2))
    advance(state)
    assert why(state) == WAITS
    then(state, e.PodGone("later"))
    advance(state)
    assert why(state) == OVER


def test_one_that_its_replica_set_has_made_since_and_that_asks_for_something_else_has_come_for_it_and_its_slot_is_missed():
    """Somebody's admission changes every pod (a sidecar): were that nobody's failure, auto-pause would never stop moves that cannot land."""
    state = of_deployment()
    then(state, e.PodGone("web-a"), pod("with-sidecar", "big", node="c", owner=WEB))
    advance(state)
    assert why(state) == WAITS
    advance(state, after=10 * MINUTE)
    assert why(state)[0] is Step.NOT_RECREATED
    assert state.missed


@pytest.mark.parametrize(("wanted", "busy", "expected"), [(3, "", "Elsewhere"), (2, "", "Elsewhere"), (2, "scaling_down", "Elsewhere"), (4, "", ""), (3, "rollout", "")])
def test_where_the_last_one_that_is_to_come_runs_elsewhere_its_slot_is_free_at_once(wanted, busy, expected):
    """Somebody else has bound it, or it had a node before the log knew that the pod had left: as many run as are wanted, and nobody more comes."""
    state = of_deployment()
    then(state, pod("later", owner=WEB, node="c"))
    advance(state)
    assert why(state) == WAITS, "nothing was told since: there may be more to come"
    then(state, wants(wanted, busy))
    advance(state)
    assert why(state) == ((Step.FAILED, expected) if expected else WAITS)
    assert bool(state.missed) == (bool(expected) and not busy), "it has landed on no slot; whose owner is at work misses none"


@pytest.mark.parametrize(("came", "wanted", "reasons"), [(1, 2, ["Elsewhere", "NotNeeded"]), (2, 3, ["Elsewhere", "Elsewhere"])])
def test_of_two_evicted_pods_one_is_missed_where_one_has_come_elsewhere_and_fewer_are_wanted(came, wanted, reasons):
    """Two misses are a reason to pause."""
    state = of_deployment(moves=("web-a", "web-b"))
    then(state, e.PodGone("web-a"), e.PodGone("web-b"), *(pod(f"later-{i}", owner=WEB, node="c") for i in range(came)))
    advance(state)
    then(state, wants(wanted))
    advance(state)
    assert [state.migrations[id].reason for id in ("x-1", "x-2")] == reasons
    assert len(state.missed) == came


@pytest.mark.parametrize(("wanted", "busy", "reason"), [(2, "", "NotNeeded"), (2, "scaling_down", "NotNeeded"), (3, "", "SuccessorGone"), (3, "rollout", "SuccessorGone")])
def test_a_successor_that_goes_before_it_is_ready_because_fewer_are_wanted_is_no_failure(wanted, busy, reason):
    """An autoscaler takes the youngest first. Who is deleted while as many are wanted is made again."""
    state = of_deployment()
    then(state, pod("later", owner=WEB))
    session_answers(state, 0)
    then(state, e.PodGone("web-a"))
    then(state, wants(wanted, busy), changed("later", node="b", phase="Running", deleting=NOW))
    advance(state)
    assert (state.migrations[M].step, state.migrations[M].reason) == (Step.FAILED, reason)
    assert bool(state.missed) == (wanted == 3 and not busy)


def test_of_two_that_left_one_is_needed_and_has_the_slot_of_its_own_and_the_other_is_not():
    state = of_deployment(moves=("web-a", "web-b"))
    then(state, pod("later", owner=WEB))
    land(state, "x-1", "later")
    advance(state)
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.LANDED, Step.EVICTED)
    then(state, wants(2))
    advance(state)
    assert (state.migrations["x-2"].step, state.migrations["x-2"].reason) == OVER


def deletes(state, *more):
    """`kubectl delete deployment`: the object goes at once, and its ReplicaSet and their pods after it."""
    then(state, e.WorkloadGone(ABOVE.uid), *more)


def test_a_deployment_that_is_deleted_makes_no_other_and_its_slot_is_free_at_once():
    state = of_deployment()
    deletes(state)
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")
    assert not state.missed, "nobody's failure"
    assert not state.disturbed
    session_answers(state)
    assert not any(slot.phase in ON_NODE for slots in state.slots.values() for slot in slots.values())


def test_one_that_is_deleted_while_its_successor_starts_has_missed_nothing():
    state = of_deployment()
    then(state, pod("later", owner=WEB))
    session_answers(state)
    then(state, e.PodGone("web-a"))
    deletes(state)
    advance(state)
    assert why(state) == WAITS, "who has come may be ready still, before it is deleted, too"
    then(state, changed("later", node="b", phase="Running", deleting=NOW))
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")
    assert not state.missed
    assert not state.disturbed


def test_a_successor_that_waits_takes_the_slot_although_its_owner_is_deleted_until_it_goes():
    state = of_deployment()
    then(state, pod("later", owner=WEB))
    deletes(state)
    advance(state)
    assert why(state) == WAITS
    then(state, e.PodGone("later"))
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")


@pytest.mark.parametrize("told", [{"busy": "deleting"}, {"wanted": 3}, {"busy": "rollout", "wanted": 3}])
def test_a_stateful_set_that_is_deleted_makes_no_other(told):
    """By propagation `Background`, kubectl's own, the object goes at once, and its pods after it."""
    state = evicted()
    then(state, e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", **told), e.WorkloadGone(DB.uid))
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")
    assert not state.missed


def test_a_volcano_job_that_is_deleted_makes_no_other():
    owner = OwnerRef("Job", "v", "uid-v", "batch.volcano.sh/v1alpha1")
    state = evicted(owner=owner, told=[e.WorkloadObserved(owner.uid, "Job", "default", "v", evicted="ignored", group="batch.volcano.sh")])
    then(state, e.WorkloadGone(owner.uid))
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")


AT_WORK = [{"busy": "rollout"}, {"busy": "scaling_down", "wanted": 3}, {"movable": "true"}, {"parallel": True}]


@pytest.mark.parametrize("told", AT_WORK)
def test_a_stateful_set_that_is_at_rest_again_makes_the_pod(told):
    """Watchers up to 0.2 told nothing of one at rest: `kubectl scale`, up or down to here, made it busy for a moment only."""
    state = evicted()
    then(state, e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", **told))
    advance(state)
    then(state, e.WorkloadGone(DB.uid))
    advance(state)
    assert why(state) == WAITS
    then(state, e.PodGone("db-2"), pod("db-2", uid="later", owner=DB))
    session_answers(state)
    then(state, changed("later", node="b", phase="Running", ready=True))
    advance(state)
    assert why(state) == (Step.LANDED, "")


@pytest.mark.parametrize("first", [True, False])
def test_pods_that_a_deployment_leaves_to_another_one_follow_nobody(first):
    """`--cascade=orphan`: its ReplicaSet goes on, under nobody or the next Deployment, and makes pods of another lineage."""
    state = of_deployment()
    orphan = e.WorkloadObserved(WEB.uid, "ReplicaSet", "default", "web-1", owner=replica_of("again", "Deployment") if first else None)
    then(state, orphan)
    deletes(state, pod("later", owner=WEB))
    advance(state)
    assert why(state) == (Step.FAILED, "OwnerGone")
    session_answers(state)
    assert state.fact_of("later") is not None


def test_a_replica_set_of_an_older_revision_that_is_deleted_says_nothing_of_its_deployment():
    state = of_deployment()
    then(state, e.WorkloadGone(WEB.uid))
    advance(state)
    assert why(state) == WAITS


def test_an_owner_that_is_deleted_before_the_eviction_has_disturbed_nothing():
    made = [pod("web-a", "theirs", node="a", owner=WEB)]
    facts = (e.WorkloadObserved(WEB.uid, "ReplicaSet", "default", "web-1", owner=ABOVE), wants(1), e.NominationsChecked("default-scheduler", "honoured"))
    theirs = shape("theirs", scheduler="default-scheduler")
    state = given(configured("migration", MigrationConfig(max_unavailable=0, beside=("default-scheduler",))), *(node(name, cpu=16_000) for name in "ab"), theirs, *facts, *made)
    then(state, plan("x", move(M, "web-a")))
    advance(state)
    then(state, e.WorkloadGone(ABOVE.uid), e.WorkloadGone(WEB.uid), e.PodGone("web-a"))
    advance(state)
    assert why(state) == (Step.FAILED, "PodGone")
    assert not state.disturbed


@pytest.mark.parametrize("where", ["holding", "evicting"])
def test_nobody_is_evicted_whose_owner_is_deleted_although_its_pods_are_there_still(where):
    """The garbage collector comes to them a moment later, or much later where it is busy."""
    told = e.WorkloadObserved(DB.uid, "StatefulSet", "default", "db", wanted=3)
    made = [pod(name, node=on, owner=DB) for name, on in NAMES]
    state = given(*(node(name, cpu=16_000) for name in "abc"), shape("s"), told, *made, plan("x", move(M, "db-2")))
    advance(state)
    if where == "evicting":
        assert evicts(hold(state, M)) == [M]
    then(state, e.WorkloadGone(DB.uid))
    assert not any(isinstance(effect, Evict) for effect in owed(state)), "not between two decisions either"
    assert evicts([*advance(state), *(hold(state, M) if where == "holding" else advance(state))]) == []
    assert why(state) == (Step.ABORTING if where == "evicting" else Step.FAILED, "OwnerGone")
    assert not state.missed
    assert not state.disturbed


def test_what_was_told_before_the_eviction_says_nothing_of_now():
    """The watch of Deployments is behind that of pods: it was scaled up since, and its pods are told already."""
    state = of_deployment(wanted=2)
    advance(state)
    assert why(state) == WAITS
    then(state, wants(3))
    advance(state)
    assert why(state) == WAITS
    then(state, wants(2))
    advance(state)
    assert why(state) == OVER


def test_pods_of_another_namespace_are_not_counted_whoever_they_say_owns_them():
    state = of_deployment()
    then(state, wants(3, "paused"), pod("forged", "big", namespace="tenant", owner=WEB), wants(3))
    advance(state)
    assert why(state) == WAITS
