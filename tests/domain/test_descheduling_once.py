"""A whole policy once, where nothing can be held: Defragmentation plans beside the others, and who waits for nobody goes."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape, then
from domain.descheduling_words import HOUR, why
from domain.test_defragmentation_policy import GREEDY, OPTIMIZING, SHAPES, THRESHOLDS, app, cluster
from msgspec.structs import replace

from restow.contracts.ids import MigrationId
from restow.contracts.values import Move
from restow.domain.config import MigrationConfig
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.policy import load
from restow.domain.migration.run_once import carried_out, independent
from restow.domain.snapshot import dump

LIFE = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60, "labelSelector": {"matchLabels": {"old": ""}}}}
HIGH = {"name": "HighNodeUtilization", "args": {"thresholds": {"cpu": 40}}}


def whole(args=GREEDY, evictor=None, others=(), balance=("Defragmentation",), **more) -> Policy:
    said = {
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
        "profiles": [{
            "name": "p",
            "pluginConfig": [{"name": "DefaultEvictor", "args": evictor or {}}, *others],
            "plugins": {"deschedule": {"enabled": [o["name"] for o in others if o is LIFE]}, "balance": {"enabled": list(balance)}},
        }],
    }  # fmt: skip
    made = load(said | more)
    assert made.own is not None
    return made.upstream.defragmenting("p", args, made.own.before)


def evictions(state, what):
    made = carried_out(state, what, NOW)
    return [(one.pod, one.plugin) for one in made.outcome.evictions]


def some(*facts, **more):
    """Of a scheduler that nobody here knows."""
    return cluster(shape("s", scheduler="default-scheduler"), *facts, conf=MigrationConfig(), **more)


@pytest.mark.parametrize("args", [GREEDY, OPTIMIZING], ids=["greedy", "optimizing"])
def test_pods_of_every_scheduler_are_planned_for_and_the_state_stays_as_it_is(args):
    state = some()
    before = dump(state)
    made = carried_out(state, whole(args), NOW)
    assert [(m.pod, m.target) for m in made.planned.moves] == [("a", "full"), ("b", "full")]
    assert [one.reason for one in made.outcome.evictions] == ["the plan has capacity for it on full"] * 2
    assert dump(state) == before


def test_a_queue_that_a_pod_names_is_no_matter_where_nobody_has_asked_which_there_are():
    queued = app("a", annotations={"scheduling.volcano.sh/queue-name": "research"})
    assert evictions(some(queued), whole()) == [("a", "Defragmentation"), ("b", "Defragmentation")]


def test_a_pod_is_evicted_once():
    state = some(app("old", labels={"old": ""}, created=NOW - HOUR))
    assert evictions(state, whole(others=(LIFE,))) == [("old", "PodLifeTime"), ("a", "Defragmentation"), ("b", "Defragmentation")]


def test_where_the_successors_of_others_will_be_is_taken():
    """Only `full` has capacity for the old pod's successor, and then not for both of the others."""
    tight = shape("four", cpu=4_000, scheduler="default-scheduler")
    old = app("old", "rest", "four", labels={"old": ""}, created=NOW - HOUR)
    state = some(tight, node("rest", cpu=4_000), old)
    then(state, node("thin", cpu=5_500))
    assert evictions(state, whole()) == [("a", "Defragmentation"), ("b", "Defragmentation")]
    assert evictions(state, whole(others=(LIFE,))) == [("old", "PodLifeTime"), ("a", "Defragmentation")]


def test_plugins_after_it_leave_alone_whom_it_has_taken():
    both = whole(others=(HIGH,), balance=("Defragmentation", "HighNodeUtilization"))
    assert evictions(some(), both) == [("a", "Defragmentation"), ("b", "Defragmentation")]
    first = whole(others=(HIGH,), balance=("HighNodeUtilization", "Defragmentation"))
    assert evictions(some(), first) == [("a", "HighNodeUtilization"), ("b", "HighNodeUtilization")]


@pytest.mark.parametrize("limit", ["PerNode", "PerNamespace", "Total"])
def test_limits_count_all_plugins(limit):
    state = some(app("old", labels={"old": ""}, created=NOW - HOUR))
    for most, gone in ((0, []), (1, ["old"]), (2, ["old", "a"]), (3, ["old", "a", "b"])):
        got = evictions(state, whole(others=(LIFE,), **{f"maxNoOfPodsToEvict{limit}": most}))
        assert [name for name, _ in got] == gone


def test_who_needs_the_capacity_of_others_stays_and_is_told():
    """p would take the capacity that q leaves."""
    state = given(
        shape("three", cpu=3_000, scheduler="x"), shape("two", cpu=2_000, scheduler="x"), shape("fix", cpu=1_000),
        node("a", cpu=4_000), node("b", cpu=5_000), node("c", cpu=4_000),
        pod("p", "three", "a", owner=replica_of("rs")), pod("q", "two", "b", owner=replica_of("rs")),
        pod("f", "fix", "b"), pod("g", "fix", "c"), pod("h", "fix", "c"),
    )  # fmt: skip
    made = carried_out(state, whole(OPTIMIZING), NOW)
    assert [(m.pod, m.target) for m in made.planned.moves] == [("q", "c"), ("p", "b")]
    assert [one.pod for one in made.outcome.evictions] == ["q"]
    assert why(made.outcome) == {"p": "Waits", "f": "Bare", "g": "Bare", "h": "Bare"}


@pytest.mark.parametrize(("whole_nodes", "refused", "gone"), [(False, "", "ab"), (False, "a", "b"), (True, "", "ab"), (True, "a", ""), (True, "b", "a")])
def test_where_the_api_refuses_one_pod_the_others_of_its_node_go_unless_all_of_them_must(whole_nodes, refused, gone):
    asked = []

    def carry(eviction):
        asked.append(eviction.pod)
        return "a budget" if eviction.pod == refused else ""

    made = carried_out(some(), whole(replace(OPTIMIZING, wholeNodes=whole_nodes)), NOW, evicts=carry)
    assert [one.pod for one in made.outcome.evictions] == list(gone)
    assert asked == (["a"] if whole_nodes and refused == "a" else ["a", "b"])
    if whole_nodes and refused == "a":
        assert why(made.outcome)["b"] == "Whole"


def test_with_whole_nodes_a_node_that_cannot_be_emptied_at_once_is_not_begun():
    first = Move(MigrationId("1"), "x", "d", "x", "n1", "n2")
    after = Move(MigrationId("2"), "y", "d", "y", "n1", "n3", after=(MigrationId("9"),))
    other = Move(MigrationId("3"), "z", "d", "z", "n4", "n2")
    assert independent((first, after, other), False) == {"1", "3"}
    assert independent((first, after, other), True) == {"3"}


def test_whoever_the_profile_protects_stays_with_its_reason():
    state = some(*(replace(one, spec=replace(one.spec, scheduler="x")) for one in SHAPES), app("x", shape="local"))
    made = carried_out(state, whole(), NOW)
    assert why(made.outcome) == {"x": "LocalStorage"}


def test_what_selects_nothing_is_told():
    state = some()
    said = [one.text for one in carried_out(state, whole(replace(GREEDY, resourceType="nvidia.com/gpu", **GPU)), NOW).outcome.warnings]
    assert said == ["resourceType: no node has nvidia.com/gpu"]


GPU = {name: {"nvidia.com/gpu": next(iter(THRESHOLDS[name].values()))} for name in THRESHOLDS if name != "resourceType"}
