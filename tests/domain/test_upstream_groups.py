"""PodGroups of `scheduling.k8s.io` bind as Volcano's do, and nobody writes to them but Kubernetes."""

import pytest
from domain.build import NOW, configured, given, node, pod, pod_group, run, shape, then
from domain.saga import OWNER, advance, create, failed, move, owed, plan, session_answers, terminate

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import NetworkTopology
from restow.domain import config, session, snapshot
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.disruption import Spare
from restow.domain.effects import TellGroupMoves, WritePodGroupStatus
from restow.domain.groups import GROUP_ANNOTATIONS, UPSTREAM
from restow.domain.movable import unmovable
from restow.kube.annotations import grouped

STOCK = "default-scheduler"
SERVED = e.Synced("podgroups.scheduling.k8s.io", "1")


def group(need: int = 2, **more) -> e.PodGroupObserved:
    return pod_group(f"{UPSTREAM}g", need=need, **more)


def of_group(name: str, kind: str = "s", node: str | None = None, **more) -> e.PodObserved:
    return pod(name, kind, node, annotations=grouped({}, "g"), **more)


def placed(state) -> list[str]:
    return [event.pod for event in run(state, session.decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.PodPlaced)]


def beside(*more: e.Event):
    """Three pods of the stock scheduler on a, of one group that Restow may move."""
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=(STOCK,))
    members = [of_group(f"m{i}", node="a", owner=OWNER, phase="Running", ready=True) for i in range(3)]
    return given(configured("migration", conf), node("a"), node("b"), shape("s", scheduler=STOCK), *members, *more)


def test_a_pods_own_field_wins_over_the_annotation():
    assert grouped({GROUP_ANNOTATIONS[0]: "volcanos", "restow.dev/movable": "true"}, "g") == {
        GROUP_ANNOTATIONS[0]: "scheduling.k8s.io:g", "restow.dev/movable": "true",
    }  # fmt: skip


def test_a_gang_of_ours_starts_when_its_minimum_fits_and_not_before():
    state = given(SERVED, node("n", cpu=2_000), shape("s", memory=1), group(need=3), of_group("a"), of_group("b"))
    assert placed(state) == []
    then(state, of_group("d"))
    assert placed(state) == [], "three do not fit"
    then(state, node("n2", cpu=1_000))
    assert placed(state) == ["a", "b", "d"]


def test_pods_whose_group_does_not_exist_wait_for_it_where_the_api_serves_such_groups():
    state = given(SERVED, node("n"), shape("s"), of_group("a"))
    assert placed(state) == []
    then(state, group(need=1))
    assert placed(state) == ["a"]
    volcano = e.Synced("podgroups.scheduling.volcano.sh", "1")
    assert placed(given(volcano, node("n"), shape("s"), of_group("a"))) == ["a"]


def test_a_group_with_the_basic_policy_lets_each_pod_start_by_itself():
    state = given(SERVED, node("n", cpu=1_000), shape("s", memory=1), group(need=0), of_group("a"), of_group("b"))
    assert placed(state) == ["a"]


def test_a_group_that_asks_for_one_domain_waits_without_the_plugin_and_says_why():
    state = given(SERVED, node("n"), shape("s"), group(need=1, topology=NetworkTopology("hard", label="rack")), of_group("a"))
    (waits,) = [event for event in run(state, session.decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.Withheld)]
    assert waits.message == "a hard network topology is kept by the plugin network-topology-aware, which the configuration does not have"


@pytest.mark.parametrize(("need", "moves"), [(2, True), (3, False)])
def test_a_gang_of_another_scheduler_is_not_moved_below_its_minimum(need, moves):
    state = beside(group(need=need))
    why = Spare.planning(state).why_not("m0")
    assert (why == "") is moves
    if not moves:
        assert why == "GangMinimum: 2 other members of PodGroup default/scheduling.k8s.io:g are ready; its minCount is 3"
    then(state, plan("x", move("x-1", "m0")))
    assert failed(advance(state)) == ({} if moves else {"x-1": "GangMinimum"})


def test_of_a_group_that_is_disrupted_together_nobody_is_moved_alone():
    state = beside(group(need=1, together=True))
    assert unmovable(state, "m0") == "Together: PodGroup default/scheduling.k8s.io:g is disrupted as a whole or not at all (disruptionMode)"
    then(state, plan("x", move("x-1", "m0")))
    assert failed(advance(state)) == {"x-1": "Together"}
    asked = beside(group(need=1, together=True), of_group("n0", node="a", owner=OWNER))
    then(asked, pod("m0", "s", "a", owner=OWNER, annotations=grouped({"restow.dev/movable": "true"}, "g")))
    assert unmovable(asked, "m0").startswith("Together"), "a protection is a veto, whoever says that its pods are movable"


def test_pods_that_must_stay_in_one_domain_are_not_moved_for_another_scheduler():
    state = beside(group(need=1, topology=NetworkTopology("hard", label="rack")))
    assert unmovable(state, "m0") == "Unsupported: PodGroup default/scheduling.k8s.io:g: another scheduler keeps its pods near to each other in the network"


def test_the_session_evicts_nobody_of_a_group_that_is_disrupted_together():
    conf = SessionConfig(
        actions=(ActionConfig("allocate"), ActionConfig("preempt")),
        tiers=((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),),
    )  # fmt: skip

    def victims(**more) -> list[str]:
        state = given(
            configured("session", conf), SERVED, node("n", cpu=2_000), shape("s", memory=1), shape("high", cpu=1_000, memory=1, priority=10), group(need=1, **more),
            of_group("a", node="n", phase="Running", ready=True), of_group("b", node="n", phase="Running", ready=True), pod("p", "high"),
        )  # fmt: skip
        return [event.pod for event in run(state, session.decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.Preempted)]

    assert victims() == ["b"]
    assert victims(together=True) == []


def test_nobody_writes_to_a_group_that_kubernetes_keeps_the_status_of():
    state = beside(group(need=1))
    then(state, of_group("own", "mine"), shape("mine"))
    assert not [effect for effect in session.decider.pending(state, None) if isinstance(effect, WritePodGroupStatus)]
    ours = given(SERVED, node("a"), node("b"), shape("s"), group(need=1), *(of_group(f"m{i}", node="a", owner=OWNER, ready=True) for i in range(3)))
    then(ours, plan("x", move("x-1", "m0")))
    advance(ours)
    create(ours, "x-1")
    session_answers(ours)
    advance(ours)
    terminate(ours, "m0")
    advance(ours)
    assert ours.migrations["x-1"].group == "default/scheduling.k8s.io:g"
    assert not [effect for effect in owed(ours) if isinstance(effect, TellGroupMoves)]
    assert snapshot.load(snapshot.dump(ours)).pod_groups == ours.pod_groups
