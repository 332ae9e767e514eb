"""MIG profiles as NVIDIA's device plugin names them are resources like any other: what fits is by their counts, and plans pack them."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape

from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
OWNER = replica_of("rs")


def cut(name: str, small: int = 0, large: int = 0, **more):
    return node(name, allocatable={SMALL: small, LARGE: large}, **more)


def asks(name: str, of: str, many: int = 1):
    return shape(name, cpu=100, requests={of: many})


@pytest.fixture
def scattered():
    """Of four nodes with seven slices each, three in use on the first, and one on each of the others."""
    nodes = [cut(f"n{i}", small=7) for i in range(4)]
    return given(asks("s", SMALL), *nodes, *(pod(f"p{i}", "s", f"n{max(i - 2, 0)}", owner=OWNER) for i in range(6)))


GREEDY = DefragmentationArgs(SMALL, {SMALL: 90}, {SMALL: 40}, {SMALL: 40})
OPTIMIZING = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType=SMALL, protectionThresholds={}, searchSteps=4_000)


@pytest.mark.parametrize("args", [GREEDY, OPTIMIZING], ids=["greedy", "optimizing"])
def test_slices_are_packed_so_that_nodes_become_free(scattered, args):
    got = defragmentation.plan(scattered, args, NOW, "p")
    assert len(got.moves) == 3
    assert {move.target for move in got.moves} == {"n0"}
    assert (got.before.free_nodes, got.after.free_nodes) == (0, 3)


def test_a_profile_goes_only_where_it_is_cut():
    state = given(asks("l", LARGE), cut("a", large=2), cut("b", small=7), cut("c", large=2), pod("p", "l", "a", owner=OWNER), pod("q", "l", "c", owner=OWNER))
    args = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType=LARGE, protectionThresholds={}, searchSteps=4_000)
    (move,) = defragmentation.plan(state, args, NOW, "p").moves
    assert {move.source, move.target} == {"a", "c"}


def test_no_more_are_promised_than_a_node_has():
    state = given(asks("s", SMALL, 4), *(cut(f"n{i}", small=7) for i in range(3)), *(pod(f"p{i}", "s", f"n{i}", owner=OWNER) for i in range(3)))
    assert defragmentation.plan(state, OPTIMIZING, NOW, "p").moves == ()
