"""A gang whose minimum fits starts, whichever of its pods come first in their order."""

import pytest
from domain.build import NOW, configured, given, member, node, pod, pod_group, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider
GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")


def acting(*actions: ActionConfig):
    tiers = ((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),)
    return configured("session", SessionConfig(actions=actions, tiers=tiers))


def task(name: str, of: str, kind: str = "s") -> e.PodObserved:
    return member(name, "g", kind, annotations={"volcano.sh/task-spec": of})


def decided(state, kind: type, at: int = NOW) -> list[str]:
    return [event.pod for event in run(state, decider, c.Schedule(at, 1_000)) if isinstance(event, kind)]


def test_pods_of_other_tasks_do_not_take_the_capacity_of_those_that_the_minimum_names():
    state = given(GROUPS, node("n", cpu=3_000), shape("s", memory=1), pod_group("g", need=3, min_task_member={"worker": 1}))
    then(state, [task("a1", "ps"), task("a2", "ps"), task("a3", "ps"), task("w1", "worker")])
    assert decided(state, e.PodPlaced) == ["a1", "a2", "w1"]


def test_where_the_minimum_is_of_one_task_the_others_come_after_it():
    state = given(GROUPS, node("n", cpu=3_000), shape("s", memory=1), pod_group("g", need=2, min_task_member={"worker": 2}))
    then(state, [task("a1", "ps"), task("a2", "ps"), task("a3", "ps"), task("w1", "worker"), task("w2", "worker")])
    assert decided(state, e.PodPlaced) == ["w1", "w2", "a1"]


def test_a_large_pod_that_comes_first_does_not_keep_a_gang_waiting_whose_other_pods_are_enough():
    state = given(GROUPS, node("n", cpu=3_000), shape("s", memory=1), shape("big", cpu=3_000, memory=1), pod_group("g", need=2))
    then(state, [member("a", "g", "big"), member("b", "g"), member("c", "g")])
    assert decided(state, e.PodPlaced) == ["b", "c"]


def test_where_the_large_pod_fits_beside_the_others_it_keeps_its_turn():
    state = given(GROUPS, node("n", cpu=4_000), shape("s", memory=1), shape("big", cpu=3_000, memory=1), pod_group("g", need=2))
    then(state, [member("a", "g", "big"), member("b", "g"), member("c", "g")])
    assert decided(state, e.PodPlaced) == ["a", "b"]


SSD = {"node_selector": {"disk": "ssd"}}


def test_of_a_gang_nobody_takes_the_only_node_of_another_one_where_there_are_others():
    nodes = node("a", cpu=1_000, labels={"disk": "ssd"}), node("b", cpu=1_000)
    state = given(GROUPS, *nodes, shape("any"), shape("ssd", **SSD), pod_group("g", need=2), member("p", "g", "any"), member("q", "g", "ssd"))
    assert decided(state, e.PodPlaced) == ["q", "p"]


def test_of_a_gang_nobody_takes_the_only_node_that_a_larger_one_of_it_fits_on():
    nodes = node("a", cpu=2_000), node("b", cpu=1_000)
    state = given(GROUPS, *nodes, shape("s"), shape("big", cpu=2_000), pod_group("g", need=2), member("p", "g", "s"), member("q", "g", "big"))
    assert decided(state, e.PodPlaced) == ["q", "p"]


def test_of_a_gang_nobody_takes_the_only_node_on_which_capacity_can_be_made_for_another_one():
    nodes = node("a", cpu=1_000, labels={"disk": "ssd"}), node("b", cpu=1_000)
    state = given(acting(ActionConfig("allocate"), ActionConfig("preempt")), GROUPS, *nodes, shape("low"), pod("v", "low", node="a"), pod("w", "low", node="b"))
    then(state, shape("any", priority=5), shape("ssd", priority=5, **SSD), pod_group("g", need=2), member("p", "g", "any"), member("q", "g", "ssd"))
    assert decided(state, e.Nominated) == ["q", "p"]


def test_of_a_starving_gang_nobody_has_the_only_node_of_another_one_reserved():
    starving = ActionConfig("reserve", {"starvingJobTimeThreshold": 0})
    nodes = node("a", cpu=1_000, labels={"disk": "ssd"}), node("b", cpu=1_000)
    state = given(acting(ActionConfig("allocate"), starving), GROUPS, *nodes, shape("low"), pod("v", "low", node="a"), pod("w", "low", node="b"))
    then(state, shape("any"), shape("ssd", **SSD), pod_group("g", need=2), member("p", "g", "any"), member("q", "g", "ssd"))
    decided(state, e.TaskReserved, NOW + 1)
    assert state.reserved_tasks == {"p": "b", "q": "a"}


@pytest.mark.parametrize("task_of_the_last", ["worker", "ps"])
def test_preemption_frees_capacity_for_those_that_the_minimum_names_and_for_nobody_where_it_cannot_be_reached(task_of_the_last):
    state = given(acting(ActionConfig("allocate"), ActionConfig("preempt")), GROUPS, node("n", cpu=3_000), shape("low", cpu=3_000, memory=1))
    then(state, shape("s", memory=1, priority=5), pod("v", "low", node="n"), pod_group("g", need=3, min_task_member={"worker": 1}))
    then(state, [task("a1", "ps"), task("a2", "ps"), task("a3", "ps"), task("w1", task_of_the_last)])
    assert decided(state, e.Nominated) == (["a1", "a2", "w1"] if task_of_the_last == "worker" else [])


def test_nodes_are_reserved_for_those_that_the_minimum_of_a_starving_gang_names():
    reserve = ActionConfig("reserve", {"starvingJobTimeThreshold": "10"})
    state = given(acting(ActionConfig("allocate"), reserve), GROUPS, node("n", cpu=3_000), shape("low", cpu=3_000, memory=1), shape("s", memory=1))
    then(state, pod("v", "low", node="n"), pod_group("g", need=3, min_task_member={"worker": 1}))
    then(state, [task("a1", "ps"), task("a2", "ps"), task("a3", "ps"), task("w1", "worker")])
    assert decided(state, e.TaskReserved, NOW + 60_000) == ["a1", "a2", "w1"]


def beside(app: str) -> tuple[PodTerm, ...]:
    return (PodTerm("kubernetes.io/hostname", LabelSelector({"app": app})),)


def company(*followers: str):
    """A gang of a pod that anybody may follow, and of followers of a higher priority, each beside the one that is named."""
    state = given(GROUPS, node("n", labels={"kubernetes.io/hostname": "n"}), shape("s", memory=1), pod_group("g", need=1 + len(followers)))
    for at, of in enumerate(followers):
        then(state, shape(f"f{at}", memory=1, pod_affinity=beside(of), priority=9 - at), member(f"f{at}", "g", f"f{at}", labels={"app": f"f{at}"}))
    return then(state, member("lead", "g", labels={"app": "lead"}))


@pytest.mark.parametrize(("followers", "order"), [(["lead"], ["lead", "f0"]), (["f1", "lead"], ["lead", "f1", "f0"]), (["f1", "f2", "lead"], ["lead", "f2", "f1", "f0"])])
def test_a_gang_whose_first_pods_want_to_be_beside_its_later_ones_starts(followers, order):
    assert decided(company(*followers), e.PodPlaced) == order


def test_a_gang_of_which_one_wants_to_be_beside_somebody_who_never_comes_waits():
    assert decided(company("nobody", "lead"), e.PodPlaced) == []
