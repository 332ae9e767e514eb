"""Random terms: node affinity, inter-pod affinity, spread; every operator."""

import msgspec
from hypothesis import strategies as st

from restow.contracts.values import Expression, LabelSelector, NodeTerm, PodTerm, PreferredNodeTerm, Spread

some = st.sampled_from

TOPOLOGIES = ["zone", "kubernetes.io/hostname", "rack", "zone", "kubernetes.io/hostname", "rack", "zone", "nowhere"]

node_expressions = some(
    [
        Expression("zone", "In", ("a", "b")),
        Expression("zone", "NotIn", ("a",)),
        Expression("disk", "Exists"),
        Expression("disk", "DoesNotExist"),
        Expression("disk", "NotIn", ("ssd",)),
        Expression("size", "Gt", ("0",)),
        Expression("size", "Lt", ("5",)),
        Expression("size", "Gt", ("y",)),
    ]
)


@st.composite
def node_affinity(draw, names: list[str]) -> tuple[NodeTerm, ...] | None:
    """Mostly none; no term at all, and a term that asks nothing, match no node."""
    if not draw(some([False, False, False, True])):
        return None
    found = []
    for _ in range(draw(some([1, 1, 2, 0]))):
        fields = Expression("metadata.name", draw(some(["In", "NotIn"])), (draw(some(names)),))
        labels = draw(st.lists(node_expressions, max_size=2).map(tuple))
        found.append(NodeTerm(labels, (fields,) if draw(some([False, False, True])) else ()))
    return tuple(found)


selectors = some(
    [
        LabelSelector({"app": "a"}),
        LabelSelector({"app": "b"}),
        LabelSelector(),
        LabelSelector({}, (Expression("app", "In", ("a", "b")),)),
        LabelSelector({}, (Expression("app", "NotIn", ("a",)),)),
        LabelSelector({}, (Expression("tier", "Exists"),)),
        LabelSelector({}, (Expression("tier", "DoesNotExist"),)),
        LabelSelector({"app": "a"}, (Expression("tier", "In", ("b",)),)),
    ]
)

namespace_selectors = some(
    [
        None,
        None,
        LabelSelector(),
        LabelSelector({"env": "prod"}),
        LabelSelector({}, (Expression("env", "Exists"),)),
        LabelSelector({}, (Expression("env", "NotIn", ("dev",)),)),
    ]
)


def as_validated(term: PodTerm | Spread) -> PodTerm | Spread:
    """The API refuses label keys that the selector already speaks of (and any without a selector)."""
    spoken = set() if term.selector is None else {*term.selector.labels, *(x.key for x in term.selector.expressions)}
    keys = {f: getattr(term, f) for f in ("match_label_keys", "mismatch_label_keys") if hasattr(term, f)}
    left = {f: () if term.selector is None else tuple(k for k in own if k not in spoken) for f, own in keys.items()}
    return msgspec.structs.replace(term, **left)


pod_terms = st.lists(
    st.builds(
        PodTerm,
        topology_key=some(TOPOLOGIES),
        selector=st.one_of(selectors, selectors, selectors, st.none()),
        namespaces=some([(), (), ("team",), ("default", "other")]),
        namespace_selector=namespace_selectors,
        match_label_keys=some([(), (), ("tier",)]),
        mismatch_label_keys=some([(), (), (), ("app",)]),
    ).map(as_validated),
    min_size=1,
    max_size=2,
).map(tuple)

@st.composite
def preferences(draw) -> dict:
    """What a pod would like and does not insist on."""
    weight = st.integers(1, 100)
    liked = draw(st.lists(st.builds(PodTerm, topology_key=some(TOPOLOGIES), selector=selectors, weight=weight), max_size=2))
    disliked = draw(st.lists(st.builds(PodTerm, topology_key=some(TOPOLOGIES), selector=selectors, weight=weight), max_size=2))
    nodes = draw(st.lists(st.builds(PreferredNodeTerm, weight, node_expressions.map(lambda x: NodeTerm((x,)))), max_size=2))
    spread = draw(st.lists(st.builds(Spread, some([1, 2]), some(TOPOLOGIES), st.just("ScheduleAnyway"), selectors), max_size=1))
    return {
        "pod_affinity": tuple(liked),
        "pod_anti_affinity": tuple(disliked),
        "node_preferences": tuple(nodes),
        "spread": tuple(spread),
    }


spreads = st.one_of(
    st.just(()),
    st.lists(
        st.builds(
            Spread,
            max_skew=some([1, 1, 2]),
            topology_key=some(TOPOLOGIES),
            when_unsatisfiable=st.just("DoNotSchedule"),
            selector=selectors,
            min_domains=some([0, 0, 2, 3, 5]),
            node_affinity_policy=some(["Honor", "Ignore"]),
            node_taints_policy=some(["Ignore", "Honor"]),
            match_label_keys=some([(), (), ("tier",)]),
        ).map(as_validated),
        min_size=1,
        max_size=2,
        unique_by=lambda spread: spread.topology_key,
    ).map(tuple),
)
