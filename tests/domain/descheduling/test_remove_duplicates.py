"""RemoveDuplicates: copies of one owner and equal images, more on a node than the average."""

import pytest
from domain.build import given, node, pod, replica_of, shape
from domain.descheduling.plugin_words import Plugin, kept, reasons

from restow.contracts.values import Container, Expression, NodeTerm, Taint, Toleration

duplicates = Plugin("RemoveDuplicates")
NODES = (node("n1"), node("n2"))
TAINTED = node("n3", taints=(Taint("gpu", "NoSchedule"),))


def copies(count, at="n1", shape="s", of="web", start=0, **more):
    return tuple(pod(f"{of}{i}", shape, at, owner=replica_of(of), **more) for i in range(start, start + count))


def runs(name="s", images=("web:1",), **more):
    return shape(name, containers=tuple(Container(f"c{i}", image=image) for i, image in enumerate(images)), **more)


@pytest.mark.parametrize(
    ("here", "there", "gone"), [(1, 0, 0), (2, 0, 1), (3, 0, 1), (4, 0, 2), (5, 1, 2), (2, 2, 0), (10, 0, 5)]
)
def test_what_is_above_the_average_goes(here, there, gone):
    state = given(*NODES, runs(), *copies(here), *copies(there, "n2", start=50))
    assert len(duplicates.gone(state)) == gone


def test_it_says_why():
    outcome = duplicates(given(*NODES, runs(), *copies(3)))
    assert reasons(outcome) == {"web2": "3 of 3 copies of ReplicaSet default/web on one node; at most 2 where 2 may have some"}
    assert kept(outcome) == {"web1": "Spread: 3 of 3 copies of ReplicaSet default/web on its node, at most 2 may stay"}


SLOTS = {
    "all nodes": ((node("n3"), node("n4")), {}, 4),
    "a taint that is not tolerated": ((TAINTED,), {}, 3),
    "a taint that is": ((TAINTED,), {"tolerations": (Toleration("gpu", "Exists"),)}, 4),
    "other nodes than it selects": ((node("n3", labels={"a": "b"}), node("n4", labels={"a": "b"})), {"node_selector": {"a": "b"}}, 3),
    "other nodes than its affinity is about": (
        (node("n3", labels={"a": "b"}),),
        {"node_affinity": (NodeTerm((Expression("a", "DoesNotExist"),)),)},
        3,
    ),
}


@pytest.mark.parametrize(("more", "asks", "gone"), SLOTS.values(), ids=SLOTS)
def test_the_average_is_over_nodes_that_it_may_run_on(more, asks, gone):
    assert len(duplicates.gone(given(*NODES, *more, runs(**asks), *copies(6)))) == gone


def test_where_it_may_run_on_one_node_only_nothing_goes():
    state = given(*NODES, node("n3", labels={"a": "b"}), runs(node_selector={"a": "b"}), *copies(3, "n3"))
    assert set(kept(duplicates(state)).values()) == {"Spread: copies of ReplicaSet default/web may run on less than two of the nodes"}


def test_copies_have_equal_images_in_any_order():
    different = given(*NODES, runs("s", ("a", "b")), runs("t", ("a", "c")), *copies(1), *copies(1, shape="t", start=1))
    assert duplicates.gone(different) == []
    equal = given(*NODES, runs("s", ("a", "b")), runs("t", ("b", "a")), *copies(1), *copies(1, shape="t", start=1))
    assert duplicates.gone(equal) == ["web1"]


def test_owners_of_one_name_in_two_namespaces_are_two():
    state = given(*NODES, runs(), *copies(1), pod("other", "s", "n1", namespace="other", owner=replica_of("web")))
    assert duplicates.gone(state) == []


def test_excluded_kinds_and_namespaces():
    state = given(*NODES, runs(), *copies(4))
    assert duplicates.gone(state, excludeOwnerKinds=["ReplicaSet"]) == []
    assert duplicates.gone(state, namespaces={"exclude": ["default"]}) == []
    assert len(duplicates.gone(state, namespaces={"include": ["default"]}, excludeOwnerKinds=["Job"])) == 2


def test_whom_nobody_may_evict_is_no_copy():
    state = given(*NODES, runs(), *copies(2), *copies(2, start=5, static=True))
    assert duplicates.gone(state) == ["web1"]


def test_a_pod_with_several_owners_leaves_once():
    """Upstream asks the API for each of its owners, and counts each time."""
    both = tuple(pod(f"p{i}", "s", "n1", owner=replica_of("a"), owners=(replica_of("b"),)) for i in range(4))
    assert duplicates.gone(given(*NODES, runs(), *both)) == ["p2", "p3"]


def test_a_full_node_keeps_the_rest():
    outcome = duplicates(given(*NODES, runs(), *copies(6)), limits={"maxNoOfPodsToEvictPerNode": 1})
    assert len(outcome.evictions) == 1
    assert sorted(kept(outcome).values())[0] == "Limit: this run evicts nothing more from the node"


def test_arguments_that_make_no_sense():
    said = {"include": ["a"], "exclude": ["b"]}
    assert duplicates.refused(namespaces=said) == "namespaces: has include and exclude; allowed: one of them"
    assert duplicates.refused(labelSelector={}).startswith("Object contains unknown field `labelSelector`")
