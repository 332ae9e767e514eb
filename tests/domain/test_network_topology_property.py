"""Where one gang goes, against a model that counts nodes by hand: equal pods that take a whole node each, some nodes in use."""

from collections import defaultdict

from domain.build import member, pod, pod_group
from domain.test_network_topology import SHAPES, conf, decided, given, node, placed
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts.values import NetworkTopology

NODES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "1", "2", "3"]), st.sampled_from(["free", "used", "mine"])), min_size=1, max_size=9)


def blocks(nodes: list[tuple[str, str, str]]) -> dict[int, dict[tuple[str, ...], set[int]]]:
    """By tier the nodes of each block: racks in zones."""
    found: dict[int, dict[tuple[str, ...], set[int]]] = {1: defaultdict(set), 2: defaultdict(set)}
    for i, (zone, rack, _) in enumerate(nodes):
        found[2][zone,].add(i)
        if rack:
            found[1][zone, rack].add(i)
    return found


def expected(nodes: list[tuple[str, str, str]], need: int, highest: int) -> tuple[int, int] | None:
    """The tier and the size of what is free in the block that is taken; None where none will do."""
    mine = {i for i, node in enumerate(nodes) if node[2] == "mine"}
    free = {i for i, node in enumerate(nodes) if node[2] == "free"}
    lack = need - len(mine)
    for tier in (1, 2)[:highest]:
        able = [len(there & free) for there in blocks(nodes)[tier].values() if mine <= there and len(there & free) >= lack]
        if able:
            return tier, min(able)
    return None


@settings(max_examples=examples(200))
@drawn(NODES, st.integers(1, 5), st.integers(1, 2), st.booleans())
def test_a_gang_is_where_the_model_puts_it(nodes, more, highest, is_hard):
    names = [f"n{i}" for i in range(len(nodes))]
    facts = [node(name, cpu=4_000, labels={"zone": zone} | ({"rack": rack} if rack else {})) for name, (zone, rack, _) in zip(names, nodes, strict=True)]
    runs = [i for i, (_, _, use) in enumerate(nodes) if use == "mine"]
    used = [pod(f"fill{i}", "whole", names[i]) for i, (_, _, use) in enumerate(nodes) if use == "used"]
    need = len(runs) + more
    topology = NetworkTopology("hard", highest) if is_hard else NetworkTopology("soft")
    members = [member(f"old{i}", "g", "whole", node=names[i]) for i in runs] + [member(f"new{i}", "g", "whole") for i in range(more)]
    state = given(conf(), *SHAPES, *facts, *used, pod_group("g", need=need, topology=topology), *members)
    found = {int(name.removeprefix("n")) for name in placed(decided(state)).values()}
    wanted = expected(nodes, need, highest if is_hard else 2)
    free = sum(use == "free" for _, _, use in nodes)
    if wanted is None:
        assert len(found) == (0 if is_hard or free < more else more)
        return
    tier, size = wanted
    everybody = found | set(runs)
    [home] = [there for there in blocks(nodes)[tier].values() if everybody <= there]
    assert len(found) == more
    assert sum(nodes[i][2] == "free" for i in home) == size
