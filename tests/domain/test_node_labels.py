"""Which nodes a selector and an affinity are about: for all rows at once the same as node by node, and however long they are at no length."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import Expression, NodeTerm, PodShape, PreferredNodeTerm, Taint, Toleration
from restow.domain import predicates
from restow.domain.fold import apply
from restow.domain.node_labels import as_mask, node_labels
from restow.domain.session.plugins.nodeorder.resource_scores import NodeAffinity
from restow.domain.session.scoring import SCALE
from restow.domain.state import ClusterState

KEYS, VALUES = ("a", "b", "c"), ("", "x", "y", "1", "+1", "01", "-3", "22", "9" * 20)
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
OPERATORS = st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"))
EXPRESSIONS = st.builds(Expression, st.sampled_from(KEYS), OPERATORS, st.lists(st.sampled_from(VALUES), max_size=3).map(tuple))
FIELDS = st.builds(Expression, st.sampled_from(("metadata.name", "metadata.uid")), OPERATORS, st.lists(st.sampled_from(("n0", "n1", "n7")), max_size=2).map(tuple))
TERMS = st.builds(NodeTerm, st.lists(EXPRESSIONS, max_size=3).map(tuple), st.lists(FIELDS, max_size=1).map(tuple))
SHAPES = st.builds(
    lambda selector, affinity, preferences: PodShape(requests={}, node_selector=selector, node_affinity=affinity, node_preferences=preferences),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=1),
    st.none() | st.lists(TERMS, max_size=4).map(tuple),
    st.lists(st.builds(PreferredNodeTerm, st.integers(1, 100), TERMS), max_size=4).map(tuple),
)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.none() | LABELS), min_size=1, max_size=25)
"""A node gets labels, or goes."""


def step(state, number, labels):
    name = f"n{number}"
    if labels is not None:
        apply(state, [e.NodeObserved(name, f"u{number}", {"cpu": 1000, "pods": 10}, labels)])
    elif name in state.nodes:
        apply(state, [e.NodeGone(name)])


@given(STEPS, st.lists(SHAPES, min_size=1, max_size=4))
def test_all_rows_at_once_say_what_each_node_says(steps, shapes):
    state = ClusterState()
    for number, labels in steps:
        step(state, number, labels)
        index, names = node_labels(state), state.table.names
        for shape in shapes:
            found = as_mask(index.selected(shape), len(names))
            assert found.tolist() == [name in state.nodes and predicates.selected(shape, state.nodes[name]) for name in names]
            for term in shape.node_affinity or ():
                matching = as_mask(index.of_term(term), len(names))
                assert matching.tolist() == [name in state.nodes and predicates.term_matches(term, state.nodes[name]) for name in names]


@given(STEPS, SHAPES)
def test_preferred_affinity_counts_what_each_node_matches(steps, shape):
    state = ClusterState()
    apply(state, [e.ShapeDeclared("s", shape)])
    for number, labels in steps:
        step(state, number, labels)
    rows = np.arange(len(state.table.names))
    scores = NodeAffinity(3).static(state, "s", rows)
    preferred, whole = shape.node_preferences, sum(t.weight for t in shape.node_preferences)
    if not preferred:
        assert scores is None
        return
    for row, name in enumerate(state.table.names):
        liked = sum(t.weight for t in preferred if name in state.nodes and predicates.term_matches(t.term, state.nodes[name]))
        assert scores[row] == liked * SCALE // whole * 3


def cluster(nodes, shape):
    state = ClusterState()
    apply(state, [e.ShapeDeclared("s", shape)])
    for i in range(nodes):
        labels = {"kubernetes.io/hostname": f"n{i}", "rank": str(i)}
        apply(state, [e.NodeObserved(f"n{i}", f"u{i}", {"cpu": 1000, "pods": 10}, labels, (Taint("t", "NoSchedule", str(i % 3)),))])
    return state


def test_a_pod_with_as_many_terms_as_an_object_can_hold_is_judged_at_once():
    """Node by node each of these took half a minute and more, in which the session placed nobody and lost its Lease."""
    many = range(20_000)
    terms = [
        tuple(NodeTerm((Expression(f"k{i}", "Exists"),)) for i in many),
        tuple(NodeTerm((Expression("kubernetes.io/hostname", "NotIn", (f"x{i}",)), Expression("rank", "Gt", (str(5_000 + i),)))) for i in many),
        tuple(NodeTerm((Expression("rank", "Lt", (str(-i),)),)) for i in many),
        tuple(NodeTerm((), (Expression("metadata.name", "In", (f"x{i}",)),)) for i in many),
    ]
    tolerations = tuple(Toleration(key=f"k{i}", operator="Exists") for i in many)
    for affinity in terms:
        state = cluster(1_000, PodShape(requests={"cpu": 1}, node_affinity=affinity, tolerations=tolerations))
        started = time.monotonic()
        assert not predicates.static_mask(state, "s").any()
        assert time.monotonic() - started < 5
        state = cluster(1_000, PodShape(requests={"cpu": 1}, node_preferences=tuple(PreferredNodeTerm(1, term) for term in affinity)))
        started = time.monotonic()
        assert len(NodeAffinity(1).static(state, "s", np.arange(1_000))) == 1_000
        assert time.monotonic() - started < 5
