"""Plugin overcommit: groups are admitted while the cluster times a factor has capacity for their minimum."""

import pytest
from domain.build import NOW, configured, given, member, node, pod, pod_group, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider


def conf(**arguments):
    plugin = PluginConfig("overcommit", {}, {name.replace("_", "-"): value for name, value in arguments.items()})
    return configured("session", SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate")), tiers=((plugin, PluginConfig("gang")),)))


def cluster(*more, **arguments):
    return given(conf(**arguments), node("n", cpu=10_000), shape("s"), *more)


def admitted(state):
    return [event.group for event in run(state, decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.Enqueued)]


def waiting(name, cpu=4_000, **more):
    return pod_group(name, phase="Pending", min_resources={"cpu": cpu}, **more)


def test_up_to_twelve_tenths_of_the_cluster_are_admitted_one_after_the_other():
    assert admitted(cluster(*[waiting(f"g{i}") for i in range(5)])) == ["g0", "g1", "g2"]


@pytest.mark.parametrize(("factor", "count"), [("1", 2), ("1.6", 4), ("2.0", 5)])
def test_the_factor_says_how_much(factor, count):
    assert len(admitted(cluster(*[waiting(f"g{i}") for i in range(5)], overcommit_factor=factor))) == count


def test_a_resource_may_have_its_own_factor():
    state = cluster(*[waiting(f"g{i}") for i in range(5)], **{"overcommit-factor.cpu": "1"})
    assert len(admitted(state)) == 2


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "koordinator.sh/gpu", "alibabacloud.com/gpu-milli"])
def test_gpus_have_theirs_by_each_of_their_names_and_are_called_as_users_do(name):
    gangs = [pod_group(f"g{i}", phase="Pending", min_resources={"restow.dev/gpu-milli": 4_000}) for i in range(4)]
    state = cluster(node("g", gpus=4), *gangs, member("m", "g3"), **{f"overcommit-factor.{name}": "2"})
    assert admitted(state) == ["g0", "g1"]
    assert state.waiting[state.parked["m"][0]].message == "the cluster has no nvidia.com/gpu left for the group's minimum, of 2 times what there is"


def test_what_runs_counts_and_what_a_group_was_promised_and_does_not_use():
    state = cluster(*[pod(f"p{i}", node="n") for i in range(4)], pod_group("in", need=4, min_resources={"cpu": 4_000}), member("in0", "in", node="n"))
    assert admitted(then(state, waiting("g"), waiting("h", 1_000))) == ["g"]


def test_a_group_that_has_started_is_promised_nothing_more():
    """Its driver has succeeded: what it does not use now was not kept for it."""
    state = cluster(pod_group("in", need=1, min_resources={"cpu": 8_000}), member("in0", "in", node="n"))
    then(state, e.PodChanged("in0", node="n", phase="Succeeded"))
    assert admitted(then(state, waiting("g", 12_000))) == ["g"]


def test_what_is_admitted_stays_promised_in_the_next_session():
    state = cluster(*[waiting(f"g{i}") for i in range(3)])
    admitted(state)
    assert admitted(then(state, waiting("late", 1_000))) == []


def test_a_group_that_asks_for_nothing_is_let_in_and_one_that_can_never_fit_stops_nobody():
    state = cluster(waiting("never", 10**15), pod_group("none", phase="Pending"), waiting("g"), member("m", "never"))
    assert admitted(state) == ["none", "g"]
    assert state.waiting[state.parked["m"][0]].message == "the cluster has no cpu left for the group's minimum, of 1.2 times what there is"


def test_what_no_node_has_is_not_admitted():
    state = cluster(pod_group("g", phase="Pending", min_resources={"example.com/fpga": 1}), pod_group("h", phase="Pending", min_resources={"example.com/fpga": 0}))
    assert admitted(state) == ["h"]


def test_a_group_of_a_closed_queue_promises_nothing():
    state = cluster(queue("shut", state="Closed"), waiting("a", 12_000, queue="shut"), waiting("b", 12_000))
    assert admitted(state) == ["b"]
