"""Which nodes will do for a pod's volumes, what its claims get there, and what is owed until it can be bound."""

import pytest
from domain.build import GIB, changed, given, node, pod, reservation, shape, then
from domain.storage import (
    AT_ONCE,
    CLASSES,
    DRIVER,
    HOST,
    WAITING,
    ZONE,
    claim,
    on,
    storage_class,
    term,
    volume,
)

from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, Disk
from restow.domain import snapshot
from restow.domain import volumes as v
from restow.domain.effects import Bind, BindClaim
from restow.domain.volumes import Volumes

CLAIM = ("persistentVolumeClaim",)


def world(*facts, nodes=("n0", "n1", "n2"), zones=("a", "a", "b")):
    """Three nodes, two zones, three classes; shape `s` is of pods with claims."""
    there = [node(n, labels={HOST: n, ZONE: z}) for n, z in zip(nodes, zones, strict=True)]
    return given([*there, *CLASSES, shape("s", volumes=CLAIM)], *facts)


def waits(state, name="p") -> str:
    return Volumes.of(state).waits(state.pods[name].fact)


def fails(state, name="p") -> dict[str, list[str]]:
    """Reason → nodes that fail by it."""
    names = state.table.names
    return {
        reason: [names[row] for row in rows.nonzero()[0]] for reason, rows in Volumes.of(state).filters(state.pods[name].fact)
    }


def chosen(state, where, name="p") -> dict[str, str]:
    choices = Volumes.of(state).choose(state.pods[name].fact, state.table.rows[where])
    return {c.claim.partition("/")[2]: c.volume for c in choices}


def user(*claims: str, name: str = "p", **more) -> e.PodObserved:
    return pod(name, claims=claims, **more)


# -- what no node can help -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ((), 'persistentvolumeclaim "c" not found'),
        ((claim("c", deleting=5),), 'persistentvolumeclaim "c" is being deleted'),
        ((claim("c", volume="v", phase="Lost"),), 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
        ((claim("c", AT_ONCE),), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("c", ""),), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("c", "no-such-class"),), "pod has unbound immediate PersistentVolumeClaims"),
        # A claim that names its volume is the controller's to bind, whatever its class.
        ((claim("c", volume="v", bound=False), volume("v")), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("c", volume="v"),), 'persistentvolume "v" not found'),
        ((claim("c"),), ""),
        ((claim("c", AT_ONCE, volume="v"), volume("v", claim="c")), ""),
    ],
)
def test_some_claims_are_waited_for_whatever_the_node(facts, reason):
    assert waits(world(*facts, user("c"))) == reason


def test_an_ephemeral_claim_that_is_not_there_yet_is_waited_for_by_name():
    state = given([node("n0"), shape("s", volumes=("ephemeral",))], user("p-scratch"))
    assert waits(state) == 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'


def test_a_pod_without_claims_and_disks_is_no_concern_of_this():
    state = given([node("n0"), shape("s"), shape("d", disks=(Disk("rbd", "x"),)), pod("p"), pod("q", "d")])
    index = Volumes.of(state)
    assert [index.concerns(state.pods[name].fact) for name in ("p", "q")] == [False, True]
    assert (index.filters(state.pods["p"].fact), index.waits(state.pods["p"].fact)) == ([], "")


# -- bound claims --------------------------------------------------------------------------------------------------------


def test_a_bound_claim_binds_the_pod_to_the_nodes_that_reach_its_volume():
    state = world(claim("c", volume="v"), volume("v", claim="c", affinity=on("n1")), user("c"))
    assert fails(state) == {v.NODE_AFFINITY: ["n0", "n2"]}
    assert chosen(state, "n1") == {}


def test_a_volume_without_node_affinity_is_reached_from_everywhere():
    assert fails(world(claim("c", volume="v"), volume("v", claim="c"), user("c"))) == {}


@pytest.mark.parametrize(
    ("zones", "excluded"),
    [({ZONE: "a"}, ["n2"]), ({ZONE: "a__b"}, []), ({ZONE: "c"}, ["n0", "n1", "n2"]), ({"topology.kubernetes.io/region": "r"}, ["n0", "n1", "n2"])],
)
def test_a_volume_with_zones_is_used_in_these_zones(zones, excluded):
    state = world(claim("c", volume="v"), volume("v", claim="c", zones=zones), user("c"))
    assert fails(state) == ({v.ZONE: excluded} if excluded else {})


def test_a_node_without_zone_labels_is_in_every_zone_and_a_volumes_old_label_means_a_nodes_new_one():
    old = "failure-domain.beta.kubernetes.io/zone"
    nodes = [node("bare"), node("old", labels={old: "a"}), node("new", labels={ZONE: "a"}), node("other", labels={ZONE: "b"})]
    for label, excluded in ((old, ["other"]), (ZONE, ["old", "other"])):
        facts = [*CLASSES, shape("s"), claim("c", volume="v"), volume("v", claim="c", zones={label: "a"}), user("c")]
        assert fails(given(nodes, facts)) == {v.ZONE: excluded}


def test_a_read_write_once_pod_claim_is_one_pods_alone():
    facts = claim("c", volume="v", modes=("ReadWriteOncePod",)), volume("v", claim="c")
    state = world(*facts, user("c", name="first", node="n0"), user("c"))
    assert fails(state) == {v.ONCE_POD: ["n0", "n1", "n2"]}
    assert fails(then(state, e.PodGone("first"))) == {}


# -- limits of CSI drivers -------------------------------------------------------------------------------------------------


def csi(name: str, **more):
    return claim(name, volume=f"v-{name}"), volume(f"v-{name}", claim=name, driver=DRIVER, handle=f"h-{name}", **more)


def test_a_node_takes_no_more_volumes_than_its_driver_allows():
    state = world(
        *csi("a"), *csi("b"), *csi("c"),
        e.CsiNodeObserved("n0", {DRIVER: 2}), e.CsiNodeObserved("n1", {DRIVER: 0}), e.CsiNodeObserved("n2", {"other": 0}),
        user("a", name="pa", node="n0"), user("b", name="pb", node="n0"), user("c"),
    )  # fmt: skip
    assert fails(state) == {v.LIMIT: ["n0", "n1"]}
    assert fails(then(state, e.PodGone("pa"))) == {v.LIMIT: ["n1"]}
    assert fails(then(state, e.CsiNodeGone("n1"))) == {}


def test_a_volume_that_is_there_already_counts_once():
    state = world(*csi("a"), e.CsiNodeObserved("n0", {DRIVER: 1}), user("a", name="pa", node="n0"), user("a"))
    assert fails(state) == {}


def test_a_volume_that_will_be_provisioned_counts_and_is_the_same_when_it_is_there():
    state = world(claim("c", WAITING), *csi("a"), e.CsiNodeObserved("n0", {DRIVER: 1}), user("c", name="pc", node="n0"), user("a"))
    assert fails(state) == {v.LIMIT: ["n0"]}
    state = then(state, volume("new", WAITING, claim="c", driver="another", handle="x"), claim("c", WAITING, volume="new"))
    assert fails(state) == {}
    state = then(state, volume("new", WAITING, claim="c", driver=DRIVER, handle="x"))
    assert fails(state) == {v.LIMIT: ["n0"]}


def test_a_class_that_appears_late_counts_from_then_on():
    state = world(claim("c", "late"), *csi("a"), e.CsiNodeObserved("n0", {DRIVER: 1}), user("c", name="pc", node="n0"), user("a"))
    assert fails(state) == {}
    assert fails(then(state, storage_class("late"))) == {v.LIMIT: ["n0"]}


# -- disks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "clashes"),
    [
        (Disk("gcePersistentDisk", "d"), Disk("gcePersistentDisk", "d"), True),
        (Disk("gcePersistentDisk", "d", True), Disk("gcePersistentDisk", "d", True), False),
        (Disk("gcePersistentDisk", "d", True), Disk("gcePersistentDisk", "d"), True),
        (Disk("gcePersistentDisk", "d"), Disk("gcePersistentDisk", "e"), False),
        (Disk("awsElasticBlockStore", "d", True), Disk("awsElasticBlockStore", "d", True), True),
        (Disk("iscsi", "d"), Disk("rbd", "d"), False),
    ],
)
def test_a_disk_is_shared_on_a_node_only_by_readers(mine, theirs, clashes):
    state = given(
        [node("n0"), node("n1"), shape("s", disks=(mine,)), shape("t", disks=(theirs,))], [pod("other", "t", "n0"), pod("p")]
    )
    assert fails(state) == ({v.DISK: ["n0"]} if clashes else {})


def test_a_hold_uses_the_disks_of_its_shape():
    held = [reservation("r", ("t", 1, "s")), e.ReservationAccepted("r", 1, 1), e.HoldPlaced("r", "t-0", "n1")]
    state = given([node("n0"), node("n1"), shape("s", disks=(Disk("rbd", "x"),))], *held, pod("p"))
    assert fails(state) == {v.DISK: ["n1"]}
    assert fails(then(state, e.HoldReleased("r", "t-0", "Deleted"))) == {}


# -- claims that are bound when the pod is placed ------------------------------------------------------------------------


def test_a_claim_of_local_volumes_goes_where_one_is():
    state = world(claim("c"), volume("v1", affinity=on("n1")), volume("v2", affinity=on("n2")), user("c"))
    assert fails(state) == {v.NO_VOLUME: ["n0"]}
    assert (chosen(state, "n1"), chosen(state, "n2")) == ({"c": "v1"}, {"c": "v2"})
    with pytest.raises(ValueError, match="default/c"):
        chosen(state, "n0")


@pytest.mark.parametrize(
    "unfit",
    [
        volume("v", capacity=GIB - 1),
        volume("v", storage=WAITING),
        volume("v", modes=("ReadOnlyMany",)),
        volume("v", block=True),
        volume("v", phase="Released"),
        volume("v", deleting=7),
        volume("v", claim="other"),
        volume("v", claim="c", claim_uid="of an earlier claim of that name"),
        volume("v", affinity=()),
    ],
)
def test_what_is_no_volume_for_a_claim(unfit):
    assert fails(world(claim("c"), unfit, user("c"))) == {v.NO_VOLUME: ["n0", "n1", "n2"]}


def test_the_smallest_volume_that_fits_is_taken_and_the_first_by_name_of_equal_ones():
    sizes = {"big": 9, "d": 2, "b": 2, "c": 3, "tiny": 1}
    state = world(claim("c", request=2 * GIB), *(volume(n, capacity=s * GIB) for n, s in sizes.items()), user("c"))
    assert chosen(state, "n0") == {"c": "b"}


def test_a_volume_of_more_access_modes_than_asked_fits():
    state = world(claim("c"), volume("v", modes=("ReadOnlyMany", "ReadWriteOnce")), user("c"))
    assert chosen(state, "n0") == {"c": "v"}


def test_claims_of_one_pod_do_not_get_the_same_volume():
    facts = [claim("big", request=4 * GIB), claim("small"), volume("v1", capacity=4 * GIB, affinity=on("n0", "n1"))]
    state = world(*facts, volume("v2", capacity=5 * GIB, affinity=on("n1")), user("big", "small"))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n2"]}
    # The small one chooses first and takes the smaller volume.
    assert chosen(state, "n1") == {"big": "v2", "small": "v1"}


def test_a_volume_that_is_reserved_for_the_claim_is_the_one():
    facts = volume("mine", claim="c", claim_uid="", phase="Available", affinity=on("n2"), capacity=9 * GIB), volume("any")
    state = world(claim("c"), *facts, user("c"))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n1"]}
    assert chosen(state, "n2") == {"c": "mine"}


def test_what_is_not_there_is_provisioned_where_the_class_may():
    spread = storage_class("zonal", topologies=(term(ZONE, "b"),))
    state = world(spread, claim("c", "zonal"), volume("v", "zonal", affinity=on("n0")), user("c"))
    assert fails(state) == {v.NO_VOLUME: ["n1"]}
    assert (chosen(state, "n0"), chosen(state, "n2")) == ({"c": "v"}, {"c": ""})


def test_a_claim_whose_node_is_selected_goes_there_and_nowhere_else():
    state = world(claim("c", WAITING, selected_node="n1"), volume("v", WAITING, affinity=on("n0")), user("c"))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n2"]}
    assert chosen(state, "n1") == {"c": ""}
    assert fails(then(state, e.NodeGone("n1"))) == {v.NO_VOLUME: ["n0", "n2"]}


# -- what other placements have chosen -------------------------------------------------------------------------------------


def test_a_volume_that_another_placement_has_chosen_is_taken():
    state = world(claim("c"), claim("d"), volume("v", affinity=on("n0")), user("d", name="other"), user("c"))
    state = then(state, e.PodPlaced("other", "n0", volumes=(ClaimChoice("default/d", "v"),)))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n1", "n2"]}
    assert fails(then(state, e.PodReleased("other", "test"))) == {v.NO_VOLUME: ["n1", "n2"]}


def test_pods_with_the_same_claim_get_the_same_volume():
    facts = [claim("c"), volume("v", affinity=on("n0", "n1")), volume("w"), user("c", name="other"), user("c")]
    state = then(world(*facts), e.PodPlaced("other", "n0", volumes=(ClaimChoice("default/c", "v"),)))
    assert fails(state) == {v.NO_VOLUME: ["n2"]}
    assert chosen(state, "n1") == {"c": "v"}


def test_pods_with_a_claim_that_is_being_provisioned_go_to_its_node():
    state = world(claim("c", WAITING), user("c", name="other"), user("c"))
    state = then(state, e.PodPlaced("other", "n2", volumes=(ClaimChoice("default/c"),)))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n1"]}
    assert chosen(state, "n2") == {"c": ""}


def test_a_session_adds_and_removes_occupants_and_leaves_no_trace():
    facts = [claim("c"), claim("d"), volume("v"), user("c", name="other", node="n0"), user("d"), *csi("a"), user("a", name="pa", node="n1")]
    state = world(*facts, e.CsiNodeObserved("n1", {DRIVER: 1}))
    index, before = Volumes.of(state), Volumes(state).image()
    index.add("p", 1, state.pods["p"].fact, (ClaimChoice("default/d", "v"),))
    index.remove("pa")
    assert index.image() != before
    index.close()
    assert index.image() == before


# -- until the pod is bound ------------------------------------------------------------------------------------------------


def placed(*choices: tuple[str, str], facts=(), node="n1"):
    volumes = tuple(ClaimChoice(f"default/{c}", name) for c, name in choices)
    return then(world(*facts, user(*(c for c, _ in choices))), e.PodPlaced("p", node, volumes=volumes))


def test_the_api_is_told_of_every_choice_and_the_pod_is_bound_when_its_claims_are():
    state = placed(("c", "v"), ("d", ""), facts=(claim("c"), claim("d", WAITING), volume("v")))
    assert v.owed(state, "p") == [BindClaim("default/c", "v", "n1"), BindClaim("default/d", "", "n1")]
    state = then(state, volume("v", claim="c", phase="Available"), claim("d", WAITING, selected_node="n1"))
    assert v.owed(state, "p") == []
    state = then(state, claim("c", volume="v"))
    assert v.owed(state, "p") == []
    state.touched.pods.clear()
    state = then(state, claim("d", WAITING, selected_node="n1", volume="made"))
    assert list(state.touched.pods) == ["p"]
    assert v.owed(state, "p") == [Bind("p", "n1")]
    assert v.rejected(state, "p") == ""
    assert v.owed(then(state, changed("p", node="n1")), "p") == []


def test_a_pod_without_choices_is_bound_at_once():
    state = then(world(pod("p")), e.PodPlaced("p", "n1"))
    assert v.owed(state, "p") == [Bind("p", "n1")]


def test_a_claim_that_two_pods_wait_for_is_asked_for_as_long_as_one_of_them_does():
    state = placed(("c", "v"), facts=(claim("c"), volume("v")))
    effect = BindClaim("default/c", "v", "n1")
    assert v.asks(state, effect)
    assert not v.asks(then(state, e.PodReleased("p", "test")), effect)


def test_a_provisioner_that_gives_the_node_back_ends_the_placement_once():
    state = placed(("c", ""), facts=(claim("c", WAITING),))
    assert v.rejected(state, "p") == ""
    state = then(state, claim("c", WAITING, selected_node="n1"))
    assert v.rejected(state, "p") == ""
    state = then(state, claim("c", WAITING))
    assert v.rejected(state, "p") == 'provisioning failed for PVC "c"'
    assert v.owed(state, "p") == []
    state = then(state, e.PodReleased("p", "provisioning failed"), e.PodPlaced("p", "n1", volumes=(ClaimChoice("default/c"),)))
    assert v.rejected(state, "p") == ""
    assert v.owed(state, "p") == [BindClaim("default/c", "", "n1")]


def test_where_no_volume_could_be_made_another_node_is_tried_for_a_minute():
    state = world(claim("c", WAITING), user("c"))
    for tried in ("n1", "n2"):
        state = then(state, claim("c", WAITING, selected_node=tried))
        state = then(state, claim("c", WAITING))
    assert fails(state) == {v.NO_VOLUME: ["n1", "n2"]}
    with pytest.raises(ValueError, match="no volume for default/c on this node"):
        chosen(state, "n1")
    assert chosen(state, "n0") == {"c": ""}
    assert snapshot.load(snapshot.dump(state)).unserved == state.unserved
    Volumes.of(state).at(state.unserved["default/c"]["n2"])
    assert fails(state) == {}
    state = then(state, claim("c", WAITING, selected_node="n1"))
    assert fails(state) == {v.NO_VOLUME: ["n0", "n2"]}, "somebody has chosen it all the same"
    state = then(state, claim("c", WAITING, volume="made"))
    assert not state.unserved


def test_one_claim_s_failure_is_not_another_s():
    state = world(claim("c", WAITING), claim("d", WAITING), user("c"), user("d", name="q"), user("c", "d", name="both"))
    state = then(state, claim("c", WAITING, selected_node="n1"))
    state = then(state, claim("c", WAITING))
    assert fails(state, "q") == {}
    assert fails(state) == fails(state, "both") == {v.NO_VOLUME: ["n1"]}
    state = then(state, claim("c", WAITING, uid="another"))
    assert fails(state) == fails(state, "both") == {}


@pytest.mark.parametrize(
    ("choice", "facts", "reason"),
    [
        ("v", (e.ClaimGone("default", "c"),), 'persistentvolumeclaim "c" not found'),
        ("v", (claim("c", deleting=1),), 'persistentvolumeclaim "c" is being deleted'),
        ("v", (claim("c", volume="w", phase="Lost"),), 'persistentvolumeclaim "c" bound to non-existent persistentvolume "w"'),
        ("v", (e.VolumeGone("v"),), 'persistentvolume "v" not found'),
        ("v", (volume("v", deleting=1),), 'persistentvolume "v" is being deleted'),
        ("v", (volume("v", claim="d"),), 'persistentvolume "v" is bound to another persistentvolumeclaim "default/d"'),
        ("v", (volume("v", affinity=on("n2")),), 'pv "v" node affinity doesn\'t match node "n1"'),
        ("v", (claim("c", volume="w"), volume("w", claim="c", affinity=on("n1"))), ""),
        ("v", (claim("c", volume="not seen yet"),), ""),
        ("", (claim("c", selected_node="n2"),), 'persistentvolumeclaim "c" is provisioned for node "n2"'),
        ("", (claim("c", volume="w"), volume("w", claim="c", affinity=on("n2"))), 'pv "w" node affinity doesn\'t match node "n1"'),
    ],
)
def test_when_a_placement_can_no_longer_come_true(choice, facts, reason):
    state = placed(("c", choice), facts=(claim("c"), volume("v")))
    assert v.rejected(then(state, *facts), "p") == reason
