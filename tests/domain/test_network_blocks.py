"""Blocks of nodes: which there are, who is in them, and which hold several nodes. Compared with sets of names, made anew after every change."""

import numpy as np
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.domain.network import Blocks, Labels, Tier
from restow.domain.network.blocks import HOSTNAME, NO_BLOCK

LEVELS = ("zone", "block", "rack", HOSTNAME)


def blocks_of(keys: tuple[str, ...], *nodes: dict[str, str] | None) -> Blocks:
    blocks = Blocks(Labels(keys))
    for row, labels in enumerate(nodes):
        blocks.set(row, f"n{row}" if labels is not None else "", labels or {})
    return blocks


def named(blocks: Blocks, found: list[tuple[int, int]]) -> list[tuple[int, str]]:
    return [blocks.describe(*one) for one in found]


def test_tier_1_is_the_narrowest_group_of_nodes_whether_a_node_is_a_level_of_its_own_or_not():
    assert Labels(("zone", "rack")).tiers == (Tier(1, "rack"), Tier(2, "zone"))
    assert Labels(("zone", "rack", HOSTNAME)).tiers == (Tier(0, HOSTNAME), Tier(1, "rack"), Tier(2, "zone"))


def test_racks_of_one_name_in_two_zones_are_two_blocks():
    blocks = blocks_of(("zone", "rack"), {"zone": "a", "rack": "1"}, {"zone": "b", "rack": "1"}, {"zone": "a", "rack": "1"})
    assert named(blocks, blocks.around([0, 2])) == [(1, "a/1"), (2, "a")]
    assert named(blocks, blocks.around([0, 1])) == []


def test_a_node_that_lacks_a_label_is_in_no_block_of_that_level_nor_of_narrower_ones():
    blocks = blocks_of(("zone", "rack"), {"zone": "a"}, {"rack": "1"}, {"zone": "a", "rack": "1"})
    assert named(blocks, blocks.around([0, 2])) == [(2, "a")]
    assert named(blocks, blocks.around([0])) == [(2, "a")]
    assert named(blocks, blocks.around([1])) == []


def test_a_node_without_a_label_for_its_host_name_is_known_by_its_own_name():
    blocks = blocks_of(("zone", HOSTNAME), {"zone": "a"}, {"zone": "a", HOSTNAME: "other"})
    assert named(blocks, blocks.around([0])) == [(0, "a/n0"), (1, "a")]
    assert named(blocks, blocks.around([1])) == [(0, "a/other"), (1, "a")]


def test_the_widest_tier_up_to_a_number_or_of_a_name():
    blocks = blocks_of(("zone", "rack", HOSTNAME))
    assert [blocks.tier_of(highest) for highest in (-1, 0, 1, 2, 9)] == [NO_BLOCK, 0, 1, 2, 2]
    assert [blocks.tier_named(name) for name in ("rack", "zone", "pod")] == [1, 2, NO_BLOCK]


VALUES = st.sampled_from(["", "1", "2", "3"])
NODE = st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys(LEVELS, VALUES))
CHANGES = st.lists(st.tuples(st.integers(0, 9), NODE), min_size=1, max_size=40)


def slow(keys: tuple[str, ...], nodes: dict[int, dict[str, str]]) -> dict[tuple[int, str], set[int]]:
    """Who is in which block, from the words of the docstring alone."""
    found: dict[tuple[int, str], set[int]] = {}
    for depth in range(len(keys)):
        tier = len(keys) - 1 - depth + (keys[-1] != HOSTNAME)
        for row, labels in nodes.items():
            values = [labels.get(key) or (f"n{row}" if key == HOSTNAME else "") for key in keys[: depth + 1]]
            if all(values):
                found.setdefault((tier, "/".join(values)), set()).add(row)
    return found


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from(LEVELS), unique=True).map(lambda keys: tuple(sorted(keys, key=LEVELS.index))), CHANGES, st.data())
def test_blocks_follow_their_nodes_as_if_they_were_made_anew(keys, changes, data):
    blocks, nodes = Blocks(Labels(keys)), dict[int, dict[str, str]]()
    for row, labels in changes:
        blocks.set(row, "" if labels is None else f"n{row}", labels or {})
        nodes.pop(row, None)
        if labels is not None:
            nodes[row] = labels
    expected = slow(keys, nodes)
    size = blocks.at.shape[1]
    amounts = np.array(data.draw(st.lists(st.integers(0, 100), min_size=size, max_size=size)), np.int64)
    found, sums = {}, {}
    for tier, names in enumerate(blocks.names):
        totals, ranks = blocks.sums(tier, amounts), blocks.ranks(tier)
        assert [names[i] for i in np.argsort(ranks)] == sorted(names)
        for number in range(len(names)):
            rows = {int(row) for row in np.flatnonzero(blocks.inside(tier, number))}
            if rows:
                found[blocks.describe(tier, number)] = rows
                sums[blocks.describe(tier, number)] = int(totals[number])
            else:
                assert totals[number] == 0
    assert found == expected
    assert sums == {block: sum(int(amounts[row]) for row in rows) for block, rows in expected.items()}
    some = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    around = [blocks.describe(*one) for one in blocks.around(sorted(some))]
    assert around == sorted((block for block, rows in expected.items() if some <= rows), key=lambda block: block[0])
