"""RemovePodsViolatingNodeAffinity: required affinity that is about other nodes, and preferred nodes that would take the pod."""

import pytest
from domain.build import given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import WEB

from restow.contracts.values import Expression, NodeTerm, PreferredNodeTerm

affinity = Plugin("RemovePodsViolatingNodeAffinity")
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
SSD = NodeTerm((Expression("disk", "In", ("ssd",)),))
SSD_NODE, HDD_NODE = {"disk": "ssd"}, {"disk": "hdd"}
NEEDS = shape("needs", node_affinity=(SSD,))


def likes(weight=10, **labels):
    return tuple(PreferredNodeTerm(weight, NodeTerm((Expression(key, "In", (value,)),))) for key, value in labels.items())


def one(shape="needs", at="n1", name="p"):
    return pod(name, shape, at, owner=WEB)


OTHER = {
    "another node is as it must be": (node("n2", labels=SSD_NODE), REQUIRED, True),
    "none is": (node("n2", labels=HDD_NODE), REQUIRED, False),
    "it is, and cordoned": (node("n2", labels=SSD_NODE, unschedulable=True), REQUIRED, False),
    "it is, and full": (node("n2", cpu=500, labels=SSD_NODE), REQUIRED, False),
    "the kind that is not asked for": (node("n2", labels=SSD_NODE), PREFERRED, False),
}


@pytest.mark.parametrize(("other", "kind", "goes"), OTHER.values(), ids=OTHER)
def test_required(other, kind, goes):
    state = given(node("n1", labels=HDD_NODE), other, NEEDS, one())
    outcome = affinity(state, nodeAffinityType=[kind])
    assert reasons(outcome) == ({"p": "required node affinity is about other nodes"} if goes else {})
    assert set(kept(outcome)) == (set() if goes or kind == PREFERRED else {"p"}), "who stays is told why"


def test_it_stays_where_it_is_as_it_must_be():
    state = given(node("n1", labels=SSD_NODE), node("n2", labels=SSD_NODE), NEEDS, one())
    outcome = affinity(state, nodeAffinityType=[REQUIRED])
    assert (reasons(outcome), kept(outcome)) == ({}, {})


def test_a_pod_whose_affinity_names_another_node_goes_there():
    """`matchFields` with one node's name."""
    pinned = pod("p", "s", "n1", owner=WEB, pinned_node="n2")
    assert affinity.gone(given(node("n1"), node("n2"), shape("s"), pinned), nodeAffinityType=[REQUIRED]) == ["p"]
    assert affinity.gone(given(node("n1"), node("n2", unschedulable=True), shape("s"), pinned), nodeAffinityType=[REQUIRED]) == []
    assert affinity.gone(given(node("n1"), node("n2"), shape("s"), pod("p", "s", "n2", owner=WEB, pinned_node="n2")), nodeAffinityType=[REQUIRED]) == []


def test_a_node_selector_is_not_its_business_as_upstream_has_it():
    state = given(node("n1"), node("n2", labels=SSD_NODE), shape("s", node_selector=SSD_NODE), one("s"))
    assert affinity.gone(state, nodeAffinityType=[REQUIRED]) == []


@pytest.mark.parametrize(
    ("preferences", "other", "goes"),
    [
        (likes(disk="ssd"), node("n2", labels=SSD_NODE), True),
        (likes(disk="ssd"), node("n2", labels=HDD_NODE), False),
        (likes(disk="ssd"), node("n2", labels=SSD_NODE, unschedulable=True), False),
        (likes(5, disk="ssd") + likes(4, zone="a"), node("n2", labels=SSD_NODE), True),
        (likes(4, disk="ssd") + likes(5, zone="a"), node("n2", labels=SSD_NODE), False),
        (likes(5, disk="ssd") + likes(5, zone="a"), node("n2", labels=SSD_NODE), False),
    ],
    ids=["preferred", "not preferred", "cordoned", "weighs more", "weighs less", "weighs the same"],
)
def test_preferred(preferences, other, goes):
    state = given(node("n1", labels=HDD_NODE | {"zone": "a"}), other, shape("s", node_preferences=preferences), one("s"))
    assert affinity.gone(state, nodeAffinityType=[PREFERRED]) == (["p"] if goes else [])


def test_a_preferred_node_must_take_it_not_just_any_node():
    """Upstream evicts here: n3 would take the pod. It would have won nothing."""
    nodes = node("n1", labels=HDD_NODE), node("n2", cpu=500, labels=SSD_NODE), node("n3", labels=HDD_NODE)
    state = given(*nodes, shape("s", node_preferences=likes(disk="ssd")), one("s"))
    outcome = affinity(state, nodeAffinityType=[PREFERRED])
    assert kept(outcome) == {"p": "Affinity: no node that it prefers would take it"}


def test_both_kinds_and_no_pod_twice():
    both = shape("s", node_affinity=(SSD,), node_preferences=likes(disk="ssd"))
    state = given(node("n1", labels=HDD_NODE), node("n2", labels=SSD_NODE), both, one("s"))
    assert affinity.gone(state, nodeAffinityType=[PREFERRED, REQUIRED]) == ["p"]


def test_a_full_node_lets_no_more_go():
    state = given(node("n1", labels=HDD_NODE), node("n2", labels=SSD_NODE), NEEDS, one(name="a"), one(name="b"))
    assert affinity.gone(state, limits={"maxNoOfPodsToEvictPerNode": 1}, nodeAffinityType=[REQUIRED]) == ["a"]


def test_arguments():
    assert affinity.refused() == f"nodeAffinityType: none; allowed: {REQUIRED}, {PREFERRED}"
    state = given(node("n1"), node("n2"))
    assert affinity.told(state, nodeAffinityType=["required"]) == [f"nodeAffinityType: 'required' means nothing; allowed: {REQUIRED}, {PREFERRED}"]
