"""The oracle's volumes are right: the cases of kube-scheduler's volume plugins, by hand."""

import pytest
from domain.build import node, pod, shape

from oracle import volumes as v
from oracle.filters import why_not
from oracle.storage import CSI, HOST, ZONE, bound, claim, on_hosts, taken, volume
from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, Disk, Expression, NodeTerm

LOCAL = e.StorageClassObserved("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
IN_A = (NodeTerm((Expression(ZONE, "In", ("a",)),)),)
MADE = e.StorageClassObserved("made", CSI, "WaitForFirstConsumer", IN_A)
NOW = e.StorageClassObserved("now", CSI)


def nodes() -> list[e.Event]:
    return [node(n, labels={HOST: n, ZONE: z}) for n, z in {"n1": "a", "n2": "b"}.items()] + [shape("s")]


def refusals(*facts: e.Event, claims: tuple[str, ...] = (), kind: str = "s") -> dict[str, list[str]]:
    world = World.of([*nodes(), LOCAL, MADE, NOW, *facts, pod("p", kind, claims=claims)])
    return {name: why_not(world, world.pods["p"], fact) for name, fact in sorted(world.nodes.items())}


def everywhere(*reasons: str) -> dict[str, list[str]]:
    return {"n1": list(reasons), "n2": list(reasons)}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ((), 'persistentvolumeclaim "c" not found'),
        ((claim("c", phase="Lost", volume="v"),), 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
        ((claim("c", storage_class="made", deleting=1),), 'persistentvolumeclaim "c" is being deleted'),
        ((claim("c"),), v.IMMEDIATE),
        ((claim("c", storage_class="now"),), v.IMMEDIATE),
        ((claim("c", storage_class="unknown"),), v.IMMEDIATE),
        ((claim("c", storage_class="made", volume="v"), volume("v")), v.IMMEDIATE),
        ((bound("c", "v"),), v.NO_VOLUME),
    ],
)
def test_a_claim_that_something_is_wrong_with_keeps_the_pod_off_every_node(facts, reason):
    assert refusals(*facts, claims=("c",)) == everywhere(reason)


def test_a_bound_volume_must_reach_the_node():
    facts = bound("c", "v"), taken("v", "c", affinity=on_hosts("n2"))
    assert refusals(*facts, claims=("c",)) == {"n1": [v.NODE_CONFLICT], "n2": []}


@pytest.mark.parametrize(
    ("zones", "fits"),
    [
        ({}, ["n1", "n2", "n3"]),
        ({ZONE: "a"}, ["n1", "n3"]),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, ["n2", "n3"]),
        ({ZONE: "a__b"}, ["n1", "n2", "n3"]),
        ({"topology.kubernetes.io/region": "r"}, ["n3"]),
    ],
)
def test_a_volume_in_a_zone_is_for_nodes_of_that_zone_and_nodes_without_any(zones, fits):
    found = refusals(node("n3"), bound("c", "v"), taken("v", "c", zones=zones), claims=("c",))
    assert found == {n: [] if n in fits else [v.ZONE] for n in ("n1", "n2", "n3")}


def test_an_unbound_claim_waits_for_a_volume_that_fits_it():
    facts = [claim("c", storage_class="local", request=5, modes=("ReadWriteOnce",))]
    good = {"storage_class": "local", "affinity": on_hosts("n1")}
    assert refusals(*facts, volume("v", **good), claims=("c",)) == {"n1": [], "n2": [v.BIND_CONFLICT]}
    for wrong in (
        {"capacity": 4},
        {"storage_class": "made"},
        {"modes": ("ReadOnlyMany",)},
        {"block": True},
        {"phase": "Released"},
        {"claim": "default/other"},
        {"claim": "default/c", "claim_uid": "an older one"},
        {"deleting": 1},
    ):
        assert refusals(*facts, volume("v", **good | wrong), claims=("c",)) == everywhere(v.BIND_CONFLICT)


def test_a_volume_promised_to_a_claim_is_the_only_one_for_it():
    facts = claim("c", storage_class="local"), volume("v1", storage_class="local", affinity=on_hosts("n1"))
    mine = volume("v2", storage_class="local", affinity=on_hosts("n2"), claim="default/c", phase="Pending")
    assert refusals(*facts, mine, claims=("c",)) == {"n1": [v.BIND_CONFLICT], "n2": []}


def test_a_volume_is_made_where_its_class_allows():
    assert refusals(claim("c", storage_class="made"), claims=("c",)) == {"n1": [], "n2": [v.BIND_CONFLICT]}
    promised = claim("c", storage_class="made", selected_node="n2")
    assert refusals(promised, claims=("c",)) == everywhere(v.BIND_CONFLICT)


def test_small_claims_choose_first_and_take_the_smallest_volume():
    facts = [claim("big", storage_class="local", request=9), claim("small", storage_class="local", request=5)]
    facts += [volume("v1", storage_class="local", capacity=20), volume("v2", storage_class="local", capacity=9)]
    world = World.of([*nodes(), LOCAL, *facts, volume("v0", storage_class="local", capacity=20), pod("p", claims=("big", "small"))])
    chosen = v.choose_volumes(world, world.pods["p"], world.nodes["n1"])
    assert chosen == (ClaimChoice("default/small", "v2"), ClaimChoice("default/big", "v0"))


def test_what_one_pod_was_promised_the_next_cannot_have():
    facts = [claim("c1", storage_class="local"), claim("c2", storage_class="local"), volume("v", storage_class="local")]
    world = World.of([*nodes(), LOCAL, MADE, *facts, claim("m", storage_class="made"), pod("p", claims=("c1",)), pod("q", claims=("c2",))])
    world.observe(pod("r", claims=("m",)))
    world.place("p", "n1", (), (ClaimChoice("default/c1", "v"),))
    assert why_not(world, world.pods["q"], world.nodes["n1"]) == [v.BIND_CONFLICT]
    world.place("r", "n1", (), (ClaimChoice("default/m"),))
    assert why_not(world, pod("t", claims=("m",)), world.nodes["n2"]) == [v.BIND_CONFLICT]


def test_a_conflict_of_bound_and_of_unbound_claims_are_two_reasons():
    facts = bound("c", "v"), taken("v", "c", affinity=on_hosts("n1")), claim("d", storage_class="local")
    assert refusals(*facts, claims=("c", "d"))["n2"] == [v.NODE_CONFLICT, v.BIND_CONFLICT]


def test_a_claim_for_one_pod_is_taken_on_every_node():
    facts = bound("c", "v", modes=("ReadWriteOncePod",)), taken("v", "c"), pod("q", node="n2", claims=("c",))
    assert refusals(*facts, claims=("c",)) == everywhere(v.ONE_POD)
    assert refusals(*facts, e.PodGone("q"), claims=("c",)) == everywhere()


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        (Disk("gcePersistentDisk", "foo"), Disk("gcePersistentDisk", "foo"), False),
        (Disk("gcePersistentDisk", "foo"), Disk("gcePersistentDisk", "bar"), True),
        (Disk("gcePersistentDisk", "foo", True), Disk("gcePersistentDisk", "foo", True), True),
        (Disk("gcePersistentDisk", "foo", True), Disk("gcePersistentDisk", "foo"), False),
        (Disk("awsElasticBlockStore", "foo", True), Disk("awsElasticBlockStore", "foo", True), False),
        (Disk("iscsi", "foo"), Disk("rbd", "foo"), True),
    ],
)
def test_disks_may_be_shared_only_by_readers(mine, theirs, fits):
    facts = shape("d", disks=(mine,)), shape("t", disks=(theirs,)), pod("q", "t", "n1")
    assert refusals(*facts, kind="d") == {"n1": [] if fits else [v.DISK], "n2": []}


def test_a_driver_attaches_so_many_volumes_and_the_same_one_once():
    facts = [e.CsiNodeObserved("n1", {CSI: 1}), bound("c", "v"), taken("v", "c", driver=CSI, handle="h")]
    facts += [claim("m", storage_class="made"), pod("q", node="n1", claims=("c",))]
    assert refusals(*facts, claims=("c",)) == everywhere()
    assert refusals(*facts, claims=("m",))["n1"] == [v.LIMIT]
    assert refusals(*facts, e.CsiNodeObserved("n1", {CSI: 2}), claims=("m",))["n1"] == []
    assert refusals(*facts, e.CsiNodeObserved("n1", {"other": 0}), claims=("m",))["n1"] == []
