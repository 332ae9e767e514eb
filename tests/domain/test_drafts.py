"""A draft leaves nothing behind, not even the order of a map: what goes over maps decides alike, whether or not a commit came to nothing."""

from domain.build import given, node, pod, shape
from hypothesis import given as for_all
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.domain.fold import apply
from restow.domain.snapshot import dump

PODS = [f"p{i}" for i in range(5)]


def world():
    state = given(node("a", cpu=9_000), node("b", cpu=9_000), shape("s"), *(pod(name, "s") for name in PODS))
    apply(state, [e.PodPlaced(name, "a") for name in PODS])
    return state


def orders(state):
    return [*state.charges], [*state.placed], {node: [*pods] for node, pods in state.on_node.items()}


@for_all(st.lists(st.tuples(st.sampled_from(PODS), st.sampled_from(["a", "b", ""])), max_size=12), st.integers(0, 12))
def test_a_draft_leaves_the_same_bytes(changes, inner):
    state = world()
    before = dump(state)
    events = [e.PodPlaced(name, to) if to else e.PodReleased(name, "Rejected") for name, to in changes]
    with state.draft():
        for event in events[:inner]:
            apply(state, [event])
        between = orders(state)
        with state.draft():
            for event in events[inner:]:
                apply(state, [event])
        assert orders(state) == between
    assert dump(state) == before


def test_who_was_released_and_placed_again_stands_where_it_stood():
    state = world()
    before = [*state.charges], dump(state)
    with state.draft():
        apply(state, [e.PodReleased("p1", "Rejected"), e.PodPlaced("p1", "b")])
        assert [*state.charges] != before[0]
    assert ([*state.charges], dump(state)) == before
