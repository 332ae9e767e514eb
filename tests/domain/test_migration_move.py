"""`MovePod`: one pod, to a named node or the best, by the scheduler's own rules; or the reason why not."""

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    job_of,
    member,
    node,
    pod,
    pod_group,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.saga import OWNER, advance, begun, decider, evicts, failed, hold, move, plan, step, through

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, HostPort, LabelSelector, PodTerm, Spread, Taint
from restow.domain import config
from restow.domain.config import DefragmentationArgs, Namespaces
from restow.domain.decider import Rejected
from restow.domain.records import Refusal, Step


def world(*more: e.Event, **conf):
    return given(
        configured("migration", config.MigrationConfig(**conf)),
        node("a", labels={"zone": "one"}), node("b", labels={"zone": "one"}), node("c", cpu=16_000, labels={"zone": "two"}),
        shape("s"), pod("p", node="a", owner=OWNER, labels={"app": "web"}), *more,
    )  # fmt: skip


def moved(state, uid: str = "p", target: str = "") -> e.Planned:
    (event,) = run(state, decider, c.MovePod(NOW, "now", uid, target))
    return event


def refused(state, uid: str = "p", target: str = "") -> str:
    with pytest.raises(Rejected) as why:
        when(state, decider, c.MovePod(NOW, "now", uid, target))
    return str(why.value)


def test_a_pod_is_moved_where_it_is_wanted():
    state = world()
    event = moved(state, target="b")
    assert (event.plugin, event.trigger, event.planner) == ("MovePod", "move", "move")
    assert event.reason == "pod default/p was to be moved"
    (one,) = event.moves
    assert (one.migration, one.pod, one.source, one.target) == ("now-1", "p", "a", "b")
    assert begun(advance(state)) == ["now-1"]
    through(state, "now-1", "p2")
    assert step(state, "now-1") is Step.LANDED


def test_or_to_the_node_that_the_scheduler_likes_best_and_never_to_its_own():
    assert moved(world()).moves[0].target == "c"
    alone = given(configured("migration", config.MigrationConfig()), node("a"), shape("s"), pod("p", node="a", owner=OWNER))
    assert "cannot be moved: 0 of 1 nodes would take it" in refused(alone)


def test_it_decides_the_same_again():
    state = world()
    command = c.MovePod(NOW, "now", "p")
    assert when(state, decider, command) == when(state, decider, command)


def test_devices_are_promised():
    state = given(
        configured("migration", config.MigrationConfig()), node("a", gpus=2), node("b", gpus=2), shape("g", gpu=(1, 500)),
        pod("p", "g", node="a", owner=OWNER, devices=(DeviceShare(0, 500),)), pod("q", "g", node="b", owner=OWNER, devices=(DeviceShare(1, 500),)),
    )  # fmt: skip
    assert moved(state).moves[0].devices == (DeviceShare(1, 500),), "the least free device that suffices"
    advance(state)
    hold(state, "now-1")
    assert [slot.devices for slot in state.slots["hold-now-1"].values()] == [(DeviceShare(1, 500),)]


@pytest.mark.parametrize(
    ("pod_of", "said"),
    [
        (pod("q", node="a"), "no controller would create it again"),
        (pod("q", node="a", owner=replica_of("ds", "DaemonSet")), "a DaemonSet's pod belongs to its node"),
        (pod("q", node="a", static=True), "a static pod: only its kubelet can end it"),
        (pod("q", owner=OWNER), "it is not bound to the node yet"),
        (pod("q", node="a", owner=OWNER, deleting=NOW), "it is going away already"),
        (pod("q", node="a", owner=OWNER, ready=False), "it is not ready"),
    ],
    ids=["bare", "DaemonSet", "mirror", "waiting", "terminating", "not ready"],
)
def test_what_must_stay_stays_whoever_asks(pod_of, said):
    assert said in refused(world(pod_of), "q")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((pod("q", "odd", node="a", owner=OWNER, annotations={"karpenter.sh/do-not-disrupt": "true"}),), "karpenter.sh/do-not-disrupt"),
        ((job_of("j", "fatal"), pod("q", "odd", node="a", owner=replica_of("j", "Job"))), "the podFailurePolicy of Job j fails it when a pod is evicted"),
        ((pod("q", "odd", node="a", owner=OWNER), pod("sick", node="b", owner=OWNER, ready=False)), "1 other pods of its workload are not ready"),
        ((pod_group("g", need=1), member("q", "g", "odd", node="a", owner=OWNER)), "its minMember is 1"),
        ((pod("q", "odd", node="a", owner=OWNER, labels={"app": "q"}), e.BudgetObserved("default", "none", "u", LabelSelector({"app": "q"}), 0)), "allows no eviction now"),
    ],
    ids=["do not disrupt", "Job", "MaxUnavailable", "gang", "budget"],
)
def test_also_of_a_pod_of_which_only_the_session_knows_where_it_fits(facts, said):
    """Rules about other pods, ports and volumes are no obstacle, and no word about any other rule."""
    assert said in refused(world(shape("odd", host_ports=(HostPort(80),)), *facts), "q")


def test_other_rules_of_the_policy_but_its_thresholds_hold():
    args = DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 70}, {"cpu": 40}, evictableNamespaces=Namespaces(exclude=("default",)))
    assert "evictableNamespaces leaves its namespace out" in refused(world(defragmentation=args))


def test_a_pod_that_is_being_moved_is_not_moved_again():
    state = world()
    then(state, plan("x", move("x-1")))
    assert "it is part of a migration that is under way" in refused(state)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("a", "is on a already; allowed: another node"),
        ("z", "there is no node 'z'"),
        ("cordoned", "node cordoned is gone, not ready or unschedulable"),
        ("small", "cannot be moved to small: Insufficient cpu"),
        ("tainted", "cannot be moved to tainted: node(s) had untolerated taint"),
    ],
)
def test_a_target_that_does_not_do_is_refused_with_the_reason(target, said):
    state = world(node("cordoned", unschedulable=True), node("small", cpu=500), node("tainted", taints=(Taint("k", "NoSchedule"),)))
    assert said in refused(state, target=target)


def test_capacity_that_is_promised_to_others_is_not_promised_again():
    state = world(pod("q", node="a", owner=OWNER), shape("l", cpu=7_500), pod("r", "l", node="a", owner=OWNER))
    then(state, plan("x", move("x-1", "r", "a", "b")))
    assert "Insufficient cpu" in refused(state, target="b")


def test_rules_of_pods_that_are_promised_a_place_hold_there_already():
    apart = PodTerm("zone", LabelSelector({"app": "web"}))
    state = world(
        node("d", labels={"zone": "three"}), shape("anti", pod_anti_affinity=(apart,)),
        pod("q", "anti", node="d", owner=OWNER, labels={"app": "web"}), e.PodGone("p"), pod("r", node="c", owner=OWNER, labels={"app": "web"}),
    )  # fmt: skip
    then(state, plan("x", move("x-1", "q", "d", "b")))
    assert "anti-affinity" in refused(state, "r", "b")


def test_the_pod_itself_is_in_nobodys_way():
    """Neither its labels in its zone, nor its host port, nor where its siblings are spread."""
    apart = PodTerm("zone", LabelSelector({"app": "web"}))
    spread = Spread(1, "zone", "DoNotSchedule", LabelSelector({"app": "web"}))
    state = world(
        shape("anti", pod_anti_affinity=(apart,)), pod("q", "anti", node="a", owner=OWNER, labels={"app": "web"}),
    )  # fmt: skip
    then(state, e.PodGone("p"))
    assert moved(state, "q", "b").moves[0].target == "b"
    state = given(
        configured("migration", config.MigrationConfig()), node("a", labels={"zone": "one"}), node("b", labels={"zone": "two"}),
        shape("s", spread=(spread,), host_ports=(HostPort(80),)), pod("p", node="a", owner=OWNER, labels={"app": "web"}),
        pod("q", "s", node="a", owner=OWNER, labels={"app": "other"}),
    )  # fmt: skip
    assert moved(state).moves[0].target == "b"


def test_others_are():
    apart = PodTerm("zone", LabelSelector({"app": "web"}))
    state = world(shape("anti", pod_anti_affinity=(apart,)), pod("q", "anti", node="c", owner=OWNER, labels={"app": "web"}))
    assert "node(s) didn't match pod anti-affinity rules" in refused(state, "q", "b")


def test_a_fresh_plan_id_is_needed_and_a_pod_that_there_is():
    state = world()
    moved(state)
    assert "plan 'now' exists already" in refused(state)
    assert "there is no pod 'nobody'" in refused(world(), "nobody")


def test_a_gang_keeps_its_minimum_also_then():
    state = world(pod_group("g", need=1), member("m", "g", node="a", owner=OWNER))
    with pytest.raises(Rejected, match="its minMember is 1"):
        moved(state, "m")
    then(state, member("n", "g", node="a", owner=OWNER))
    moved(state, "m")
    then(state, e.PodGone("n"))
    assert failed(advance(state)) == {"now-1": "GangMinimum"}


def test_the_session_holds_what_was_promised():
    """Also for a pod with rules about others, which a plan by thresholds leaves alone."""
    near = PodTerm("zone", LabelSelector({"app": "db"}))
    state = world(
        shape("near", memory=2 * GIB, pod_affinity=(near,)), pod("q", "near", node="a", owner=OWNER, labels={"app": "web"}),
        pod("db", node="c", owner=replica_of("db"), labels={"app": "db"}),
    )  # fmt: skip
    assert moved(state, "q").moves[0].target == "c"
    advance(state)
    assert evicts(hold(state, "now-1")) == ["now-1"]


def test_a_pod_that_was_refused_before_is_refused_by_name_too_where_its_node_is_lost():
    """Found by the plays: who asks for it by name may try again, but a pod whose node nobody knows cannot be moved."""
    state = world()
    state.put(state.refused, "p", Refusal(1, NOW + 60_000, "Budget"))
    then(state, e.NodeGone("a"))
    assert "its node is not known" in refused(state)


def test_a_pod_that_other_plans_leave_alone_is_refused_by_name_where_its_node_is_lost():
    """A command that ends in no answer ends the service."""
    state = world(shape("port", host_ports=(HostPort(80),)), pod("q", "port", node="a", owner=OWNER))
    then(state, e.NodeGone("a"))
    assert "its node is not known" in refused(state, "q")
    assert "its node is not known" in refused(state, "q", "b")
