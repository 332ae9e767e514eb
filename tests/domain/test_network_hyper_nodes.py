"""Volcano's HyperNodes say which nodes are near to each other, where there are any."""

from domain.build import given, then
from domain.test_network_topology import SHAPES, conf, decided, gang, hard, placed, racks, racks_of, waits
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import BlockMember, LabelSelector, NetworkTopology
from restow.domain.network import Blocks, Tier
from restow.domain.network.hyper_nodes import HyperNodes
from restow.domain.snapshot import dump, load


def hyper(name: str, tier: int, *members: str | BlockMember, tier_name: str = "") -> e.HyperNodeObserved:
    """Members that are HyperNodes begin with `h`."""
    found = [BlockMember(m, inner=m.startswith("h")) if isinstance(m, str) else m for m in members]
    return e.HyperNodeObserved(name, tier, tier_name, tuple(found))


def test_a_node_is_in_the_narrowest_hyper_node_that_names_it_and_in_those_around_that():
    source = HyperNodes([hyper("h3", 3, "h1", "h2"), hyper("h1", 1, "a", "b", tier_name="rack"), hyper("h2", 2, BlockMember(pattern="^c[0-9]$"))])
    assert source.tiers == (Tier(1, "rack"), Tier(2, ""), Tier(3, ""))
    assert source.chain("a", {}) == ("h1", "", "h3")
    assert source.chain("c7", {}) == ("", "h2", "h3")
    assert source.chain("d", {}) == ("", "", "")


def test_members_by_labels():
    source = HyperNodes([hyper("h1", 1, BlockMember(selector=LabelSelector({"rack": "1"})))])
    assert [source.chain("x", {"rack": value}) for value in "12"] == [("h1",), ("",)]


def test_who_is_claimed_twice_belongs_to_the_first_by_name_and_a_cycle_ends():
    source = HyperNodes([hyper("h2", 1, "a"), hyper("h1", 1, "a"), hyper("h4", 2, "h1"), hyper("h3", 2, "h1"), hyper("h5", 3, "h5", "h3", "h6"), hyper("h6", 3, "h5")])
    assert source.chain("a", {}) == ("h1", "h3", "h5")


def test_hyper_nodes_come_before_the_levels():
    three = hyper("h1", 1, "r0n0", "r0n1", "r1n0")
    state = given(conf(), *SHAPES, *racks(2, 2), three, *gang("g", 3, hard(1)))
    assert sorted(placed(decided(state)).values()) == ["r0n0", "r0n1", "r1n0"]


def test_without_levels_they_are_enough():
    state = given(conf(()), *SHAPES, *racks(2, 3), hyper("h1", 1, BlockMember(pattern="^r1n")), *gang("g", 3, NetworkTopology("soft")))
    assert racks_of(decided(state)) == {"r1"}


def test_a_label_that_a_group_names_stays_a_label():
    state = given(conf(()), *SHAPES, *racks(2, 3), hyper("h1", 1, "r0n0"), *gang("g", 3, NetworkTopology("hard", label="rack")))
    assert racks_of(decided(state)) == {"r1"}


def test_a_gang_that_waits_is_placed_when_a_hyper_node_says_that_its_nodes_are_near_and_not_when_it_has_gone():
    state = given(conf(()), *SHAPES, *racks(1, 1), hyper("h1", 1, "r0n0"), *gang("g", 2, hard(1)))
    assert waits(decided(state)).message.endswith("the best one, h1, has capacity for 1 of them")
    then(state, hyper("h1", 1, "r0n0", "r1n0"))
    then(state, e.HyperNodeGone("h1"))
    assert waits(decided(state)).reason == "NoNetworkTopology"
    then(state, hyper("h1", 1, "r0n0", "r1n0"))
    assert len(placed(decided(state))) == 2


def test_a_snapshot_keeps_them():
    state = given(conf(()), *SHAPES, *racks(2, 3), hyper("h1", 1, BlockMember(pattern="^r1n")), *gang("g", 3, hard(1)))
    again = load(dump(state))
    assert decided(again) == decided(state)


NAMES = [f"h{i}" for i in range(6)]
FACTS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.lists(st.sampled_from([*NAMES, "a", "b", "c"]), max_size=4)), unique_by=lambda fact: fact[0], max_size=6)


@settings(max_examples=examples(200))
@drawn(FACTS)
def test_whatever_they_say_a_node_is_in_one_block_of_a_tier_and_the_order_of_objects_does_not_matter(said):
    facts = [hyper(name, tier, *members) for name, tier, members in said]
    source, other = HyperNodes(facts), HyperNodes(reversed(facts))
    tiers = {fact.name: fact.tier for fact in facts}
    for name in "abc":
        chain = source.chain(name, {})
        assert chain == other.chain(name, {})
        assert all(not block or tiers[block] == tier.number for block, tier in zip(chain, source.tiers, strict=True))
        direct = [fact.name for fact in facts if any(member.name == name for member in fact.members)]
        narrowest = min(((tiers[one], one) for one in direct), default=None)
        assert next((block for block in chain if block), None) == (narrowest[1] if narrowest else None)
    blocks = Blocks(source)
    for row, name in enumerate("abc"):
        blocks.set(row, name, {})
    assert blocks.at.shape == (len(source.tiers), 3)
