"""Why nobody goes for a pod that waits, although preemption or reclaiming might help: whom they could take, and why these stay."""

import pytest
from domain.build import configured, given, in_queue, member, node, pod, pod_group, queue, shape
from domain.test_preempt import HIGH, LOW, conf, full

from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.verdict import takes

THERE = "on nodes that it may use"


def test_whoever_may_go_is_counted():
    assert takes(full(pod("h", "high")), "h") == [f"preempt: of 2 pods of lower priority in queue default {THERE}, 2 may go"]


@pytest.mark.parametrize(("need", "may"), [(3, 0), (2, 1)])
def test_a_gang_keeps_its_minimum_and_may_lose_what_is_beyond_it(need, may):
    gang = (pod_group("g", need=need), *(member(f"l{i}", "g", "low", node="a") for i in range(3)))
    state = given(conf(), node("a", cpu=3_000), LOW, HIGH, *gang, pod("h", "high"))
    stay = f"{3 - may} stay: their gangs need them"
    assert takes(state, "h") == [f"preempt: of 3 pods of lower priority in queue default {THERE}, {may} may go; {stay}"]


def test_every_protection_has_its_words():
    kept = (
        pod("asked", "low", "a", annotations={"karpenter.sh/do-not-disrupt": "true"}),
        pod("said", "low", "a", annotations={"volcano.sh/preemptable": "false"}),
        pod("budget", "low", "a", labels={"app": "x"}),
        pod("foreign", "theirs", "a"),
        pod("system", "low", "a", namespace="kube-system"),
    )
    budget = e.BudgetObserved("default", "b", "uid-b", LabelSelector({"app": "x"}), 0)
    state = given(conf(), node("a", cpu=5_000), LOW, HIGH, shape("theirs", priority=1, scheduler="default-scheduler"), budget, *kept, pod("h", "high"))
    (line,) = takes(state, "h")
    assert line.startswith(f"preempt: of 4 pods of lower priority in queue default {THERE}, 0 may go; ")
    assert set(line.split("; ")[1:]) == {
        "1 stays: they say karpenter.sh/do-not-disrupt: true",
        "1 stays: they say volcano.sh/preemptable: false",
        "1 stays: their disruption budgets let no more go",
        "1 stays: they are in kube-system",
    }


def test_that_nobody_is_less_important_is_said():
    state = given(conf(), node("a", cpu=1_000), HIGH, pod("there", "high", "a"), pod("h", "high"))
    assert takes(state, "h") == [f"preempt: nobody in queue default {THERE} has a lower priority than 10"]


def test_without_the_action_it_is_said_only_where_it_might_help():
    world = (conf("enqueue", "allocate"), node("a", cpu=1_000), LOW, HIGH, pod("there", "low", "a"))
    why = f"preempt: not an action of the scheduler's configuration; 1 pod of lower priority in queue default {THERE}"
    assert takes(given(*world, pod("h", "high")), "h") == [why]
    assert takes(given(*world, pod("l", "low")), "l") == []


def test_whoever_preempts_nobody_is_told_so():
    meek = shape("meek", priority=10, preemption="Never")
    assert takes(full(meek, pod("m", "meek")), "m") == ["takes from nobody: its preemptionPolicy is Never"]


@pytest.mark.parametrize(
    ("reclaimable", "deserved", "why"),
    [
        (False, 0, "0 may go; 2 stay: their queues are not reclaimable"),
        (True, 2_000, "0 may go; 2 stay: their queues have no more than they deserve"),
        (True, 1_000, "1 may go; 1 stays: their queues have no more than they deserve"),
    ],
)
def test_what_queues_keep_of_theirs(reclaimable, deserved, why):
    tiers = ((PluginConfig("priority"), PluginConfig("gang")), (PluginConfig("predicates"), PluginConfig("capacity")))
    conf = configured("session", SessionConfig(actions=(ActionConfig("allocate"), ActionConfig("reclaim")), tiers=tiers))
    queues = (queue("mine", deserved={"cpu": 2_000}), queue("theirs", deserved={"cpu": deserved}, reclaimable=reclaimable))
    theirs = (in_queue(f"t{i}", "theirs", node="a") for i in range(2))
    state = given(conf, node("a", cpu=2_000), shape("s"), *queues, *theirs, in_queue("p", "mine"))
    assert takes(state, "p") == [f"reclaim: of 2 pods of other queues {THERE}, {why}"]
