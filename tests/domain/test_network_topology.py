"""Plugin `network-topology-aware`: a gang is placed in the narrowest block of nodes that holds it."""

import pytest
from domain.build import NOW, changed, configured, given, member, node, pod, pod_group, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import NetworkTopology
from restow.domain import session
from restow.domain.session.statuses.podgroup_status import status
from restow.domain.session.verdict import explain_group
from restow.domain.session_config import ConfError, read_conf
from restow.domain.state import ClusterState

PLUGINS = ({"name": "priority"}, {"name": "gang"}, {"name": "predicates"}, {"name": "nodeorder"})


def conf(levels=("zone", "rack"), actions="allocate", *more: dict, **arguments) -> e.Event:
    plugin = {"name": "network-topology-aware", "arguments": {"levels": list(levels)} | arguments}
    return configured("session", read_conf({"actions": actions, "tiers": [{"plugins": [*PLUGINS, *more, plugin]}]}))


def racks(*sizes: int, zone_of=lambda rack: rack // 2, cpu: int = 4_000) -> list[e.NodeObserved]:
    """So many nodes in each rack; two racks in a zone. Nodes are called `r0n0`."""
    return [
        node(f"r{rack}n{i}", cpu=cpu, labels={"zone": f"z{zone_of(rack)}", "rack": f"r{rack}"})
        for rack, size in enumerate(sizes)
        for i in range(size)
    ]


def gang(name: str, pods: int, topology: NetworkTopology | None, need: int | None = None, size: str = "whole") -> list[e.Event]:
    return [pod_group(name, need=pods if need is None else need, topology=topology), *(member(f"{name}-{i}", name, size) for i in range(pods))]


def hard(tier: int) -> NetworkTopology:
    return NetworkTopology("hard", tier)


SOFT = NetworkTopology("soft")
SHAPES = shape("whole", cpu=4_000), shape("half", cpu=2_000), shape("one", cpu=1_000)


def decided(state: ClusterState, turn: int = 0) -> list[e.Event]:
    return run(state, session.decider, c.Schedule(NOW, 1_000, turn))


def placed(events: list[e.Event]) -> dict[str, str]:
    return {event.pod: event.node for event in events if isinstance(event, e.PodPlaced)}


def racks_of(events: list[e.Event]) -> set[str]:
    return {name.partition("n")[0] for name in placed(events).values()}


def waits(events: list[e.Event]) -> e.Withheld:
    [event] = [event for event in events if isinstance(event, e.Withheld)]
    return event


# -- hard ------------------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_in_the_narrowest_block_that_holds_it():
    state = given(conf(), *SHAPES, *racks(2, 3), *gang("g", 3, hard(2)))
    assert racks_of(decided(state)) == {"r1"}


def test_of_blocks_of_one_tier_the_one_is_taken_that_holds_the_least_besides():
    state = given(conf(), *SHAPES, *racks(4, 2, 3), *gang("g", 2, hard(2)))
    assert racks_of(decided(state)) == {"r1"}


def test_where_no_rack_holds_it_it_goes_into_one_zone():
    state = given(conf(), *SHAPES, *racks(2, 2, 2, 3), *gang("g", 5, hard(2)))
    assert racks_of(decided(state)) == {"r2", "r3"}


def test_the_highest_tier_is_never_exceeded_and_the_reason_names_the_best_block_and_what_it_lacks():
    state = given(conf(), *SHAPES, *racks(2, 3, 1), *gang("g", 4, hard(1)))
    event = waits(decided(state))
    assert (event.reason, event.message) == (
        "Unschedulable",
        "the gang needs 4 pods together in one block of tier 1 (rack); 0 run, 4 wait; the best one, z0/r1, has capacity for 3 of them",
    )
    assert event.reasons == {"Insufficient cpu": 3, "node(s) outside the network block of the gang": 3}


def test_a_tier_by_name():
    by_name = NetworkTopology("hard", name="rack")
    state = given(conf(), *SHAPES, *racks(1, 2), *gang("g", 2, by_name))
    assert racks_of(decided(state)) == {"r1"}


def test_a_gang_that_needs_more_than_a_block_has_never_starts_although_the_cluster_has_more():
    state = given(conf(), *SHAPES, *racks(2, 2), *gang("g", 3, hard(1)))
    assert placed(decided(state)) == {}


def test_a_tier_that_the_cluster_does_not_have_is_said():
    state = given(conf(), *SHAPES, *racks(2), *gang("g", 2, NetworkTopology("hard", name="block")))
    event = waits(decided(state))
    assert (event.reason, event.message) == ("NoNetworkTopology", "networkTopology: highestTierName block; tiers: 1 (rack), 2 (zone)")


def test_without_the_plugin_a_hard_gang_waits_and_is_told_why():
    without = configured("session", read_conf({"actions": "allocate", "tiers": [{"plugins": [*PLUGINS]}]}))
    state = given(without, *SHAPES, *racks(2), *gang("g", 2, hard(1)))
    event = waits(decided(state))
    assert event.reason == "InvalidPodGroup"
    assert event.message == "a hard network topology is kept by the plugin network-topology-aware, which the configuration does not have"


def test_nodes_without_labels_take_no_pod_of_a_hard_gang():
    state = given(conf(), *SHAPES, node("bare-0", cpu=4_000), node("bare-1", cpu=4_000), *racks(1), *gang("g", 2, hard(2)))
    assert placed(decided(state)) == {}


def test_members_that_run_fix_the_block_of_those_that_come_later():
    runs = member("g-0", "g", "whole", node="r0n0")
    state = given(conf(), *SHAPES, *racks(2, 3), pod_group("g", need=2, topology=hard(1)), runs, member("g-1", "g", "whole"), member("g-2", "g", "whole"))
    events = decided(state)
    assert placed(events) == {"g-1": "r0n1"}
    assert next(event for event in events if isinstance(event, e.Unfit)).reasons == {"Insufficient cpu": 2, "node(s) outside the network block of the gang": 3}


def test_a_member_that_runs_fixes_the_block_of_a_gang_that_is_not_complete_again():
    runs = member("g-0", "g", "whole", node="r0n0")
    state = given(conf(), *SHAPES, *racks(2, 3), pod_group("g", need=3, topology=hard(1)), runs, member("g-1", "g", "whole"), member("g-2", "g", "whole"))
    assert waits(decided(state)).message == (
        "the gang needs 3 pods together in one block of tier 1 (rack); 1 run, 2 wait; its block z0/r0 has capacity for 1 of them"
    )


def test_who_terminates_does_not_fix_the_block_any_more():
    dying = member("g-0", "g", "whole", node="r0n0", deleting=NOW)
    state = given(conf(), *SHAPES, *racks(1, 2), pod_group("g", need=2, topology=hard(1)), dying, member("g-1", "g", "whole"), member("g-2", "g", "whole"))
    assert racks_of(decided(state)) == {"r1"}


def test_pods_beyond_the_minimum_stay_in_the_block():
    state = given(conf(), *SHAPES, *racks(2, 2, 3), *gang("g", 4, hard(1), need=2))
    events = decided(state)
    assert (racks_of(events), len(placed(events))) == ({"r2"}, 3), "the rack that holds most of them, for the others cannot follow elsewhere"


def test_a_gang_that_waits_is_placed_when_its_block_has_capacity():
    fill = pod("fill", "whole", "r0n0")
    state = given(conf(), *SHAPES, *racks(2, 1), fill, *gang("g", 2, hard(1)))
    assert placed(decided(state)) == {}
    then(state, changed("fill", node="r0n0", phase="Succeeded"))
    assert racks_of(decided(state)) == {"r0"}


def test_a_gang_that_waits_is_placed_when_a_label_says_that_its_nodes_are_near():
    state = given(conf(), *SHAPES, *racks(1, 1), *gang("g", 2, hard(1)))
    assert placed(decided(state)) == {}
    then(state, node("r1n0", cpu=4_000, labels={"zone": "z0", "rack": "r0"}))
    assert set(placed(decided(state)).values()) == {"r0n0", "r1n0"}


def test_pods_that_differ_fit_beside_each_other_in_one_block():
    mixed = [pod_group("g", need=3, topology=hard(1)), member("g-0", "g", "half"), member("g-1", "g", "whole"), member("g-2", "g", "half")]
    state = given(conf(), *SHAPES, *racks(1, 2), *mixed)
    events = decided(state)
    assert (racks_of(events), len(placed(events))) == ({"r1"}, 3)


# -- soft ------------------------------------------------------------------------------------------------------------


def test_a_soft_gang_takes_the_narrowest_block_that_holds_it():
    state = given(conf(), *SHAPES, *racks(2, 3), *gang("g", 3, SOFT))
    assert racks_of(decided(state)) == {"r1"}


def test_a_soft_gang_goes_wider_where_no_block_holds_it():
    state = given(conf(), *SHAPES, *racks(2, 2, 2), *gang("g", 5, SOFT))
    assert len(placed(decided(state))) == 5


def test_who_follows_a_soft_gang_goes_as_near_to_it_as_can_be():
    runs = [member(f"g-{i}", "g", "whole", node=f"r3n{i}") for i in range(2)]
    state = given(conf(), *SHAPES, *racks(2, 2, 1, 2), pod_group("g", need=2, topology=SOFT), *runs, member("g-2", "g", "whole"))
    assert placed(decided(state)) == {"g-2": "r2n0"}


def test_a_soft_gang_without_the_plugin_is_placed_and_its_podgroup_says_that_the_field_has_no_effect():
    without = configured("session", read_conf({"actions": "allocate", "tiers": [{"plugins": [*PLUGINS]}]}))
    state = given(without, *SHAPES, *racks(2), *gang("g", 2, SOFT))
    assert len(placed(decided(state))) == 2
    said = status(state, ("default", "g")).unheeded
    assert said is not None
    assert said.message == "accepted, without effect: spec.networkTopology"
    then(state, conf())
    assert status(state, ("default", "g")).unheeded is None


# -- labels that groups name themselves -------------------------------------------------------------------------------


def test_a_group_of_the_apis_own_stays_within_one_value_of_its_label():
    own = NetworkTopology("hard", label="rack")
    state = given(conf(("zone",)), *SHAPES, *racks(2, 3), *gang("g", 3, own))
    assert racks_of(decided(state)) == {"r1"}


def test_a_label_that_no_node_has_is_said():
    state = given(conf(("zone",)), *SHAPES, *racks(2), *gang("g", 2, NetworkTopology("hard", label="nowhere")))
    event = waits(decided(state))
    assert event.message == "the gang needs 2 pods together in one block of tier 1 (nowhere); 0 run, 2 wait, and no node is in one"
    assert event.reasons == {"node(s) outside the network block of the gang": 2}


def test_a_label_that_is_one_of_the_levels_has_narrower_blocks_inside():
    own = NetworkTopology("hard", label="zone")
    state = given(conf(), *SHAPES, *racks(3, 2), *gang("g", 2, own))
    assert racks_of(decided(state)) == {"r1"}


@pytest.mark.parametrize(("annotation", "many"), [("kueue.x-k8s.io/podset-required-topology", 0), ("kueue.x-k8s.io/podset-preferred-topology", 4)])
def test_kueues_annotations_count_where_the_podgroup_says_nothing(annotation, many):
    members = [member(f"g-{i}", "g", "whole", annotations={annotation: "rack"}) for i in range(4)]
    state = given(conf(), *SHAPES, *racks(2, 3), pod_group("g", need=4), *members)
    assert len(placed(decided(state))) == many
    small = [member(f"h-{i}", "h", "whole", annotations={annotation: "rack"}) for i in range(2)]
    state = given(conf(), *SHAPES, *racks(3, 2), pod_group("h", need=2), *small)
    assert racks_of(decided(state)) == {"r1"}


# -- taking from others ------------------------------------------------------------------------------------------------


def test_a_hard_gang_preempts_in_one_block():
    low, high = shape("low", cpu=4_000), shape("high", cpu=4_000, priority=100)
    running = [pod(f"low-{n.name}", "low", n.name) for n in racks(2, 3)]
    state = given(conf(("zone", "rack"), "allocate, preempt"), low, high, *racks(2, 3), *running, *gang("g", 3, hard(1), size="high"))
    nominated = {event.pod: event.node for event in decided(state) if isinstance(event, e.Nominated)}
    assert (len(nominated), {name.partition("n")[0] for name in nominated.values()}) == (3, {"r1"})


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_levels_may_be_written_as_volcano_writes_lists_and_what_volcano_says_of_filling_hypernodes_is_accepted():
    said = {"levels": "zone, rack", "weight": "10", "hypernode.binpack.cpu": 5, "hypernode.binpack.normal-pod.fading": 0.8}
    config = read_conf({"actions": "allocate", "tiers": [{"plugins": [{"name": "network-topology-aware", "arguments": said}]}]})
    assert config.tiers[0][0].arguments == {"weight": 10, "levels": ["zone", "rack"]}


@pytest.mark.parametrize("levels", [["rack", "rack"], [""]])
def test_levels_that_cannot_be_told_apart_are_refused(levels):
    with pytest.raises(ConfError, match=r"levels: .*; allowed: keys of node labels"):
        read_conf({"actions": "allocate", "tiers": [{"plugins": [{"name": "network-topology-aware", "arguments": {"levels": levels}}]}]})


def test_pods_without_a_topology_are_placed_as_without_the_plugin():
    without = configured("session", read_conf({"actions": "allocate", "tiers": [{"plugins": [*PLUGINS]}]}))
    world = [*SHAPES, *racks(2, 3, 2), *gang("g", 3, None), *(pod(f"p{i}", "half") for i in range(5))]
    assert decided(given(conf(), *world)) == decided(given(without, *world))


def test_why_counts_in_the_best_block():
    state = given(conf(), *SHAPES, *racks(2, 3, 1), *gang("g", 4, hard(1)))
    fit, _, _ = explain_group(state, ("default", "g"))
    assert (fit.fit, fit.complete, fit.reasons) == (3, False, {"Insufficient cpu": 3, "node(s) outside the network block of the gang": 3})
    small = given(conf(), *SHAPES, *racks(2, 3), *gang("g", 3, hard(1)))
    assert explain_group(small, ("default", "g"))[0].complete


def test_of_gangs_that_wait_and_fit_in_no_block_nobody_is_tried_again_and_nothing_is_said_twice():
    state = given(conf(), *SHAPES, *racks(2, 3, 1), *gang("g", 4, hard(1)))
    before = waits(decided(state))
    then(state, node("r2n0", cpu=4_500, labels={"zone": "z1", "rack": "r2"}))
    assert decided(state) == []
    then(state, node("r1n3", cpu=3_000, labels={"zone": "z0", "rack": "r1"}))
    later = run(state, session.decider, c.Schedule(NOW + 20_000, 1_000))
    assert later == [], "it has not changed what the best block holds"
    then(state, *racks(2, 2))
    then(state, e.NodeGone("r1n2"))
    later = waits(run(state, session.decider, c.Schedule(NOW + 20_000, 1_000)))
    assert before.message.endswith("z0/r1, has capacity for 3 of them")
    assert later.message.endswith("z0/r0, has capacity for 2 of them")
