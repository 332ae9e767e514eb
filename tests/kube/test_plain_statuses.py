"""What every pod says while it starts, is not ready, or has succeeded, needs no fact of its own, and is not lost."""

import json

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from kube.kubelets import (
    NEARLY_PLAIN,
    NO_SANDBOX,
    PLAIN_LIFE,
    any_status,
    at,
    condition,
    ended,
    read_conditions,
    read_containers,
    runs,
    status,
    unready,
    waits,
)

from restow.contracts import events as e
from restow.domain.descheduling.troubles import conditions, containers, restarts
from restow.domain.fold import apply
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Upsert

UID = "u1"


def pod(said, deleting=0, **meta):
    """`deleting`: the second at which it is to end, 0 for never."""
    made = {"metadata": {"name": "p", "namespace": "ns", "uid": UID, **meta}, "spec": {"nodeName": "n1", "containers": [{"name": "a"}]}}
    if deleting:
        made["metadata"]["deletionTimestamp"] = at(deleting)
    return d.PODS.object(json.dumps(made | {"status": said}).encode())


def told(state, *pods):
    """What becomes a fact of it, or of one after the other in one commit, and is folded."""
    batch = Batch(StateKnown(state))
    for one in pods:
        batch.add(d.PODS, Upsert(one))
    assert not batch.undecodable
    apply(state, batch.events())
    return [event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events()]


def begin():
    """A pod that is on its node, and of which no kubelet has said anything."""
    state = ClusterState()
    told(state, pod({"phase": "Pending", "conditions": [condition("PodScheduled")]}))
    return state


def seen(state):
    """By plugins: containers, restarts, conditions."""
    found = {
        (one.kind, one.waiting or one.terminated, one.exit_code)
        for one in containers(state, UID, init=True, ephemeral=True)
        if one.waiting or one.exit_code is not None
    }
    return found, restarts(state, UID), {(c.type, c.status, c.reason, c.since) for c in conditions(state, UID)}


def agrees(state, said):
    found, count, said_of_it = seen(state)
    wanted, restarted = read_containers(said)
    done = {("init", "Completed", 0), ("init", "", 0)}
    # One container stands for init containers that wait for the same reason.
    stand = {one for one in wanted if one[0] == "init" and ("", *one[1:]) in wanted and ("", *one[1:]) in found}
    assert (found - done) | stand == wanted
    ordinary = {one for one in wanted if not one[0]}
    said_by_them = [one for one in containers(state, UID) if one.waiting or one.exit_code is not None]
    assert {(one.kind, one.waiting or one.terminated, one.exit_code) for one in said_by_them} == ordinary
    assert (count, said_of_it) == (restarted, read_conditions(said))


@pytest.mark.parametrize("life", PLAIN_LIFE.values(), ids=PLAIN_LIFE)
def test_a_pod_that_fares_well_has_no_troubles_and_plugins_read_what_it_says(life):
    state = begin()
    for said in life:
        assert told(state, pod(said)) in ([], ["pod_changed"])
        agrees(state, said)
        assert told(state, pod(said)) == [], "the same again is no fact"
        assert conditions(load(dump(state)), UID) == conditions(state, UID)
    assert told(state, pod(life[-1], deleting=59)) == ["pod_changed"]
    last = status("Failed", *unready(50, "PodFailed"), main=ended("a", 137, "Error"))
    assert told(state, pod(last, deleting=59)) == ["pod_changed"]
    assert told(state, pod(last, deleting=51)) == [], "its kubelet ends it sooner"
    assert state.troubles == {}


@pytest.mark.parametrize("said", NEARLY_PLAIN.values(), ids=NEARLY_PLAIN)
def test_what_is_only_nearly_so_is_told_in_full(said):
    state = begin()
    assert told(state, pod(said)) == ["pod_changed", "pod_troubled"]
    agrees(state, said)
    assert told(state, pod(said)) == []


def test_only_a_change_that_plugins_read_is_a_fact_where_the_phase_stays():
    state = begin()
    creating = status("Pending", NO_SANDBOX, *unready(1), main=(waits("a", "ContainerCreating"), waits("b", "ContainerCreating")))
    one_runs = status("Pending", NO_SANDBOX, *unready(1), main=(runs("a"), waits("b", "ContainerCreating")))
    assert [told(state, pod(said)) for said in (creating, one_runs)] == [["pod_changed"], []]


def test_what_goes_wrong_on_the_way_is_told_once_and_so_is_its_end():
    state = begin()
    creating = status("Pending", *unready(1), main=waits("a", "ContainerCreating"))
    failing = status("Pending", *unready(1), main=waits("a", "ErrImagePull"))
    running = status("Running", main=runs("a"))
    assert told(state, pod(creating)) == ["pod_changed"]
    assert told(state, pod(failing)) == ["pod_troubled"]
    agrees(state, failing)
    assert told(state, pod(creating)) == ["pod_troubled"], "what was known of it before counts again"
    agrees(state, creating)
    assert [told(state, pod(said)) for said in (failing, running)] == [["pod_troubled"], ["pod_changed", "pod_troubled"]]
    agrees(state, running)


def test_troubles_of_a_pod_that_is_being_deleted_stay_as_they_were():
    state = begin()
    loops = status("Running", *unready(1), main=waits("a", "CrashLoopBackOff") | {"restartCount": 4})
    told(state, pod(loops))
    before = state.troubles[UID]
    assert told(state, pod(loops, deleting=59)) == ["pod_changed"]
    assert told(state, pod(status("Running", main=runs("a")), deleting=59)) == ["pod_changed"], "it is ready, says the moving part"
    assert state.troubles[UID] == before


def test_that_it_is_evicted_is_not_told_of_a_pod_that_is_being_deleted():
    """The API says the one just before the other."""
    state = begin()
    running, marked = status("Running", main=runs("a")), status("Running", NEARLY_PLAIN["another condition"]["conditions"][-1], main=runs("a"))
    told(state, pod(running))
    assert told(state, pod(marked), pod(marked, deleting=59)) == ["pod_changed"]
    assert state.troubles == {}
    state = begin()
    assert told(state, pod(running), pod(marked)) == ["pod_changed", "pod_troubled"], "for it may stay so"
    assert told(state, pod(marked, deleting=59)) == ["pod_changed"]


def test_who_is_to_be_evicted_whatever_else_is_said_is_looked_at_even_then():
    state, asks = begin(), {"annotations": {"descheduler.alpha.kubernetes.io/evict": ""}}
    told(state, pod(status("Running", main=runs("a")), **asks))
    error = status("Running", *unready(5), main=ended("a", 1, "Error"))
    assert told(state, pod(error, deleting=True, **asks)) == ["pod_changed", "pod_troubled"]
    agrees(state, error)


def test_a_log_that_tells_plain_statuses_as_troubles_is_read_as_before():
    """As logs do that were written before the moving part had capacity for them."""
    state = begin()
    creating = status("Pending", *unready(1), main=waits("a", "ContainerCreating"))
    told(state, pod(creating))
    fact = state.pods[UID].live
    said = conditions(state, UID)
    apply(state, [e.PodChanged(UID, fact.node, "Pending", started=fact.started), e.PodTroubled(UID, (), said)])
    assert conditions(state, UID) == said
    assert told(state, pod(creating)) == ["pod_changed", "pod_troubled"]
    agrees(state, creating)
    assert state.troubles == {}


@for_all(st.lists(any_status(), min_size=1, max_size=6), st.booleans())
def test_plugins_read_what_any_status_says(history, evictable):
    """Through fact and fold, whatever was said before."""
    state = begin()
    meta = {"annotations": {"descheduler.alpha.kubernetes.io/evict": ""}} if evictable else {}
    told(state, pod({"conditions": []}, **meta))
    for said in history:
        assert set(told(state, pod(said, **meta))) <= {"pod_changed", "pod_troubled"}
        agrees(state, said)
        assert told(state, pod(said, **meta)) == []
        fresh = ClusterState()
        told(fresh, pod(said, **meta))
        agrees(fresh, said)
