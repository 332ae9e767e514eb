"""Plugin drf: the job with the least dominant share comes first; a job takes only from those that keep as large a share."""

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
    then,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain import session_config as conf
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.plugins.drf import Shares
from restow.domain.session.registry import open_session

decider = session.decider
DRF = configured(
    "session",
    SessionConfig(
        actions=(ActionConfig("allocate"),), tiers=((PluginConfig("drf"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),)
    ),
)


def placed(state):
    events = run(state, decider, c.Schedule(NOW, 1_000))
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def shares(state):
    opened = open_session(state, NOW, 1_000)
    opened.close()
    return opened, Shares(opened)


def cluster(*more, cpu=10_000):
    return given(DRF, node("n", cpu=cpu, memory=100 * GIB), shape("s"), shape("fat", cpu=100, memory=30 * GIB), *more)


def test_the_job_with_the_smaller_share_comes_first_and_they_take_turns():
    state = cluster(pod_group("a"), pod_group("b"), *[member(f"a{i}", "a", node="n") for i in range(2)], cpu=8_000)
    then(state, *[member(f"a{i}", "a") for i in range(2, 6)], *[member(f"b{i}", "b") for i in range(6)])
    assert placed(state) == ["b0", "b1", "a2", "b2", "a3", "b3"]


def test_the_dominant_resource_counts():
    """One fat pod is 30 % of the memory, two of one core are 20 % of the cores."""
    state = cluster(pod_group("a"), pod_group("b"), member("a0", "a", "fat", node="n"), *[member(f"b{i}", "b", node="n") for i in range(2)])
    opened, found = shares(state)
    a, b = (found.order(opened.job_for(uid)) for uid in ("a0", "b0"))
    assert (a, b) == (300_000_000, 200_000_000)


def test_terminating_pods_do_not_count():
    state = cluster(pod_group("a"), member("a0", "a", node="n"), member("a1", "a", node="n"))
    then(state, e.PodChanged("a1", node="n", phase="Running", deleting=NOW))
    opened, found = shares(state)
    assert found.order(opened.job_for("a0")) == 100_000_000


def test_a_job_takes_from_another_only_while_that_keeps_as_large_a_share():
    state = cluster(pod_group("a"), pod_group("b"), *[member(f"a{i}", "a", node="n") for i in range(5)], member("b0", "b", node="n"))
    then(state, member("b1", "b"), pod("alone", node="n"))
    found = shares(state)[1]
    assert found.preemptable("b1", [f"a{i}" for i in range(5)]) == ["a0", "a1", "a2"]
    assert found.preemptable("b1", ["alone"]) == []


def test_a_pod_that_is_passed_over_costs_its_job_nothing():
    """Losing the fat pod would leave the job less than the claimer has; losing a small one does not."""
    state = cluster(pod_group("a"), member("a0", "a", "fat", node="n"), *[member(f"a{i}", "a", node="n") for i in (1, 2)], pod("p"))
    assert shares(state)[1].preemptable("p", ["a0", "a1", "a2"]) == ["a0", "a1"]
    state = cluster(pod_group("a"), member("a0", "a", "fat", node="n"), member("a1", "a", node="n"), shape("two", cpu=2_000), pod("p", "two"))
    assert shares(state)[1].preemptable("p", ["a0", "a1"]) == ["a1"]


def test_hierarchical_drf_is_refused_with_a_reason():
    said = {"tiers": [{"plugins": [{"name": "drf", "enableHierarchy": True}]}]}
    with pytest.raises(conf.ConfError, match=r"enableHierarchy: true; allowed: false \(for queues below queues use the plugin capacity\)"):
        conf.read_conf(said)


def test_it_does_not_matter_whether_the_cluster_has_nodes():
    assert placed(given(DRF, shape("s"), queue("q"), pod_group("a"), member("a0", "a"), in_queue("p", "q"))) == []


# -- pods that are in no group -----------------------------------------------------------------------------------------


def test_pods_of_one_controller_count_together_so_that_one_job_does_not_get_nine_of_ten_slots():
    """In the default configuration: a PodGroup of ten pods that came first, and a batch Job of thirty pods without one."""
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=10_000), shape("s"), pod_group("g", need=1))
    then(state, [member(f"g{i}", "g") for i in range(10)])
    then(state, [pod(f"j{i:02}", owner=replica_of("batch", "Job")) for i in range(30)])
    assert sorted(name[0] for name in placed(state)) == ["g"] * 5 + ["j"] * 5


def test_what_a_controllers_pods_use_already_counts_and_those_that_end_do_not():
    web, new = replica_of("web"), replica_of("new")
    state = cluster(*[pod(f"w{i}", node="n", owner=web) for i in range(4)], cpu=8_000)
    then(state, *[pod(f"w{i}", owner=web) for i in range(4, 9)], *[pod(f"n{i}", owner=new) for i in range(6)])
    assert placed(state) == ["n0", "n1", "n2", "n3"]
    then(state, *[e.PodGone(f"w{i}") for i in range(4)])
    assert placed(state) == ["w4", "w5", "w6", "w7"]


def test_that_holds_among_pods_that_wait_too_whatever_tells_them_apart():
    """Pods of a StatefulSet differ by their labels; each is of a class of its own."""
    a, b = replica_of("a", "StatefulSet"), replica_of("b", "StatefulSet")
    state = cluster(*[pod(f"{x}{i}", owner=o, labels={"i": f"{x}{i}"}) for x, o in (("a", a), ("b", b)) for i in range(8)], cpu=100)
    placed(state)
    then(state, node("n", cpu=6_100, memory=100 * GIB))
    assert sorted(placed(state)) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_pod_takes_from_a_controller_only_while_that_keeps_as_large_a_share():
    web = replica_of("web")
    state = cluster(*[pod(f"w{i}", node="n", owner=web) for i in range(4)], pod("p"))
    assert shares(state)[1].preemptable("p", [f"w{i}" for i in range(4)]) == ["w0", "w1", "w2"]


def test_two_jobs_with_the_same_share_of_gpus_do_not_take_each_others_cpus_for_ever():
    """What one takes changes the share of neither: the GPUs' is the dominant one."""
    state = given(DRF, node("n", gpus=2), shape("head", cpu=500, memory=0, gpu=(1, 1_000)), shape("worker", cpu=500, memory=0))
    for name in "ab":
        then(state, pod(f"{name}-head", "head", node="n", owner=replica_of(name)))
    then(state, pod("a-worker", "worker", node="n", owner=replica_of("a")), pod("b-worker", "worker", owner=replica_of("b")))
    assert shares(state)[1].preemptable("b-worker", ["a-worker"]) == []
    assert shares(state)[1].preemptable("b-worker", ["a-head"]) == [], "that would leave a less than b has"


def test_nor_does_a_job_take_from_itself():
    web = replica_of("web")
    state = given(DRF, node("n", gpus=2), shape("head", cpu=500, memory=0, gpu=(2, 1_000)), shape("worker", cpu=500, memory=0))
    then(state, pod("head", "head", node="n", owner=web), pod("w0", "worker", node="n", owner=web), pod("w1", "worker", owner=web))
    assert shares(state)[1].preemptable("w1", ["w0"]) == []


def test_a_job_with_less_takes_also_what_is_not_the_others_dominant_resource():
    state = given(DRF, node("n", gpus=2), shape("head", cpu=500, memory=0, gpu=(2, 1_000)), shape("worker", cpu=500, memory=0))
    then(state, pod("a-head", "head", node="n", owner=replica_of("a")), pod("a-worker", "worker", node="n", owner=replica_of("a")))
    then(state, pod("b-worker", "worker", owner=replica_of("b")))
    assert shares(state)[1].preemptable("b-worker", ["a-worker"]) == ["a-worker"]


def test_bare_pods_are_jobs_of_their_own_and_take_turns_in_the_order_in_which_they_came():
    state = cluster(*[pod(f"p{i}") for i in range(4)], cpu=3_000)
    assert placed(state) == ["p0", "p1", "p2"]
