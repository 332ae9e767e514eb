"""Pods with a device by ResourceClaim, moved beside another scheduler: their placeholders have claims of their own, and nodes without a device for them are no targets."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, run, shape, then
from domain.saga import OWNER, advance, evicts, failed, move, plan, terminate
from domain.test_beside import STOCK, guard, holding, opened, session_answers, session_owes
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.dynamic_resources import (
    AllocatedDevice,
    ClaimConstraint,
    ClaimRequest,
    CounterSet,
    PublishedDevice,
    SubRequest,
)
from restow.domain import beside, config, defragmentation, session
from restow.domain.config import DefragmentationArgs
from restow.domain.decider import Rejected
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.effects import CreatePlaceholder, Land
from restow.domain.held_by_claim import Free, wanted
from restow.domain.migration.move import move_pod
from restow.domain.migration.targets import stays
from restow.domain.records import SlotPhase
from restow.kube.placeholder import of_slot

DRIVER = "gpu.example.com"
SHAPE = {"scheduler": STOCK, "resource_claims": ("gpu",), "claim_templates": {"gpu": "one"}}


def gpu(name: str = "gpu-0", **attributes: str) -> PublishedDevice:
    return PublishedDevice(name, {"type": "gpu", "uuid": name} | attributes)


def devices(on: str, *which: PublishedDevice, **more) -> e.ResourceSliceObserved:
    return e.ResourceSliceObserved(on, DRIVER, on, node=on, devices=which or (gpu(),), **more)


def claim(of: str = "p", on: str = "a", device: str = "gpu-0", name: str = "", selectors: tuple[str, ...] = (), **more) -> e.ResourceClaimObserved:
    """Of a pod that has a device, or waits for one."""
    got = (AllocatedDevice("gpu", DRIVER, on, device),) if device else ()
    asked = more.pop("requests", (ClaimRequest("gpu", (SubRequest("", "gpu", selectors),)),))
    return e.ResourceClaimObserved("default", name or f"{of}-gpu", f"uid-{of}", owner=of, pod_claim="gpu", requests=asked, allocated=got, reserved=(of,) if got else (), **more)


def world(*more: e.Event, namespaces=("default",), said: e.Event | None = None):
    """p has a device of a, and b has one, too."""
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=(STOCK,), claim_namespaces=namespaces)
    return given(
        configured("migration", conf), e.NominationsChecked(STOCK, "honoured"), e.DeviceClassObserved("gpu", (f"device.attributes['{DRIVER}'].type == 'gpu'",)),
        node("a", cpu=4_000), node("b", cpu=8_000), shape("s", cpu=3_000, **SHAPE), pod("p", node="a", owner=OWNER), devices("a"), claim() if said is None else said, *more,
    )  # fmt: skip


def placeholder(state, priority_class: str = "restow-hold-0", **more) -> None:
    """As the session makes it: in the pod's namespace, of a class of ours."""
    (name,) = state.slots["hold-x-1"]
    then(state, shape("held", cpu=3_000, priority_class=priority_class, **SHAPE))
    then(state, pod("h", "held", labels={"restow.dev/log": state.log}, annotations={beside.SLOT: f"hold-x-1/{name}"}, **more))


def slot(state):
    (one,) = state.slots["hold-x-1"].values()
    return one


def test_its_slot_is_held_by_a_placeholder_with_a_claim_of_its_own_where_the_pod_is():
    state = holding(world(devices("b")))
    (owed,) = [one for one in session_owes(state) if isinstance(one, CreatePlaceholder)]
    made = of_slot(state, (owed.reservation, owed.slot), NOW)
    assert made.metadata.namespace == "default"
    assert [(one.name, one.resource_claim_template_name) for one in made.spec.resource_claims] == [("gpu", "one")]
    placeholder(state)
    assert slot(state).phase is SlotPhase.WAITING
    then(state, claim("h", "b"), changed("h", node="b"), changed("h", node="b", phase="Running", ready=True))
    session_answers(state)
    assert slot(state).phase is SlotPhase.HELD


def evicting():
    """Its placeholder has a device of b, and it is to be evicted."""
    state = holding(world(devices("b")))
    opened(state)
    placeholder(state)
    then(state, claim("h", "b"), changed("h", node="b"), changed("h", node="b", phase="Running", ready=True))
    session_answers(state)
    assert evicts(advance(state)) == ["x-1"]
    return state


def replaced(state):
    """Its successor has come, gated."""
    then(state, guard(state))
    terminate(state, "p")
    advance(state)
    then(state, e.PodGone("p"), e.ResourceClaimGone("default", "p-gpu"), pod("p2", "s", owner=OWNER, gated=True, landing=True), claim("p2", device=""))
    session_answers(state)
    advance(state)
    return state


def test_the_successor_gets_the_slot_and_its_guard_has_no_claim():
    state = evicting()
    (owed,) = [one for one in session_owes(state) if isinstance(one, CreatePlaceholder)]
    made = of_slot(state, (owed.reservation, owed.slot), NOW)
    assert (made.metadata.namespace, made.spec.resource_claims) == ("restow-holds", ())
    assert Land("p2", "b") in session_owes(replaced(state))


def test_where_the_only_device_is_somebodys_no_slot_is_held():
    state = world(devices("b"), shape("t", scheduler=STOCK), pod("q", "t", node="b"), claim("q", "b"))
    with pytest.raises(Rejected, match=r"node\(s\) had too few free devices like those that its claim has"):
        move_pod(state, NOW, "m", "p", "b")
    holding(state)
    assert slot(state).phase is SlotPhase.PENDING


def test_a_placeholder_that_has_its_device_needs_no_other_one():
    """The slot's own device is not counted twice, and no second move gets it."""
    second = (pod("p2", node="c", owner=OWNER), node("c", cpu=4_000), devices("c"), claim("p2", "c"))
    state = holding(world(devices("b"), *second))
    with pytest.raises(Rejected, match="too few free devices"):
        move_pod(state, NOW, "m", "p2", "b")
    placeholder(state)
    then(state, claim("h", "b"))
    with pytest.raises(Rejected, match="too few free devices"):
        move_pod(state, NOW, "m", "p2", "b")


def test_two_moves_to_one_node_need_two_devices():
    second = (pod("p2", node="c", owner=OWNER), node("c", cpu=4_000), devices("c"), claim("p2", "c"), node("d", cpu=16_000), devices("d", gpu("gpu-0"), gpu("gpu-1")))
    state = world(*second)
    then(state, plan("x", move("x-1", target="d")))
    assert [one.target for one in move_pod(state, NOW, "m", "p2", "d").moves] == ["d"]
    then(state, claim("q", "d"))
    with pytest.raises(Rejected, match="too few free devices"):
        move_pod(state, NOW, "m", "p2", "d")


def test_a_device_does_that_is_alike_in_all_that_the_selectors_read():
    """`uuid` is another one, and nobody asks for it."""
    state = world(devices("b"), said=claim(selectors=(f"device.attributes['{DRIVER}'].memory == '40'",)))
    then(state, devices("a", gpu(memory="40")))
    for memory, does in (("40", True), ("80", False)):
        then(state, devices("b", gpu("gpu-7", memory=memory)))
        assert Free(state, "b").take(wanted(state, "p")) is does, memory


def test_parts_of_a_device_share_its_counters():
    parts = [PublishedDevice(name, {"type": "gpu"}, consumes=(CounterSet("gpu-0", {"slices": many}),)) for name, many in (("half-0", 2), ("half-1", 2), ("whole", 4))]
    state = world(devices("b", *parts, counters=(CounterSet("gpu-0", {"slices": 4}),)))
    free, one = Free(state, "b"), wanted(state, "p")
    assert [found and found.name for found in (free.first(one), free.take(one) and free.first(one), free.take(one) and free.first(one))] == ["half-0", "half-1", None]
    assert not free.take(one)


def two(of: str = "p", on: str = "a", have: tuple[str, ...] = ("gpu-0", "gpu-1"), selectors: tuple[str, ...] = (), **more) -> e.ResourceClaimObserved:
    """Of a pod that has two devices by one claim."""
    got = tuple(AllocatedDevice("gpu", DRIVER, on, device) for device in have)
    asked = (ClaimRequest("gpu", (SubRequest("", "gpu", selectors, 2),)),)
    return e.ResourceClaimObserved("default", f"{of}-gpu", f"uid-{of}", owner=of, pod_claim="gpu", requests=asked, allocated=got, reserved=(of,), **more)


@pytest.mark.parametrize(
    ("there", "moves"),
    [
        ((gpu(), gpu("gpu-1")), True),
        ((gpu(), gpu("gpu-1"), gpu("gpu-2")), True),
        ((gpu(),), False),
        ((gpu(), gpu("gpu-1", memory="80")), False),
    ],
)
def test_who_has_two_devices_by_one_claim_goes_where_two_like_them_are_free(there, moves):
    state = world(devices("b", *there), said=two(selectors=(f"device.attributes['{DRIVER}'].memory == '40'",)))
    then(state, devices("a", gpu(memory="40"), gpu("gpu-1", memory="40")), devices("b", *(replace(one, attributes={"memory": "40"} | one.attributes) for one in there)))
    assert stays(state, "p") == ""
    if moves:
        assert [one.target for one in move_pod(state, NOW, "m", "p", "b").moves] == ["b"]
        then(state, claim("q", "b", there[0].name))
        moves = len(there) > 2
    if not moves:
        with pytest.raises(Rejected, match="too few free devices"):
            move_pod(state, NOW, "m", "p", "b")


def test_who_has_two_devices_that_are_not_alike_stays():
    """Of one that is like neither, or of two like the first, nobody knows whether they pass."""
    state = world(devices("b", gpu(), gpu("gpu-1")), said=two(selectors=(f"device.attributes['{DRIVER}'].memory > '20'",)))
    then(state, devices("a", gpu(memory="40"), gpu("gpu-1", memory="80")))
    assert "what it asks for is more than a number of devices of its node that are alike" in stays(state, "p")


def test_of_two_devices_that_are_not_there_none_is_taken():
    """A whole one and its two halves: once a half is somebody's, there is one left, and it stays free for who asks for one."""
    parts = [PublishedDevice(name, {"type": "gpu"}, consumes=(CounterSet("gpu-0", {"slices": many}),)) for name, many in (("half-0", 2), ("half-1", 2), ("whole", 4))]
    state = world(devices("b", *parts, counters=(CounterSet("gpu-0", {"slices": 4}),)))
    free, one = Free(state, "b"), wanted(state, "p")
    assert free.take(one)
    assert not free.take(one._replace(number=2))
    assert free.take(one)
    assert Free(state, "b").take(one._replace(number=2))


def test_where_two_devices_are_promised_to_a_move_none_is_left_for_another():
    second = (pod("p2", node="c", owner=OWNER), node("c", cpu=4_000), devices("c"), claim("p2", "c"), node("d", cpu=16_000), devices("d", gpu(), gpu("gpu-1")))
    state = world(devices("a", gpu(), gpu("gpu-1")), *second, said=two())
    then(state, plan("x", move("x-1", target="d")))
    with pytest.raises(Rejected, match="too few free devices"):
        move_pod(state, NOW, "m", "p2", "d")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (claim(constraints=(ClaimConstraint("x"),)), "it has gpu-0 of gpu.example.com by ResourceClaim, and what it asks for is more than a number of devices of its node that are alike"),
        (claim(requests=(ClaimRequest("gpu", (SubRequest("", "gpu", count=0),)),)), "it has gpu-0 of gpu.example.com by ResourceClaim, and what it asks for is more than a number of devices of its node that are alike"),
        (claim(requests=(ClaimRequest("gpu", (SubRequest("a", "gpu"), SubRequest("b", "gpu"))),)), "it has gpu-0 of gpu.example.com by ResourceClaim, and what it asks for is more than a number of devices of its node that are alike"),
    ],
)
def test_who_asks_for_more_stays(said, why):
    state = world(devices("b"), said=said)
    with pytest.raises(Rejected) as refused:
        move_pod(state, NOW, "m", "p", "b")
    assert str(refused.value).endswith(f"cannot be moved: {why}")
    assert stays(state, "p") == Evictable(state, DefragmentationArgs(), "cpu", True).verdict("p") == f"Unsupported: {why}"


def test_it_stays_where_the_policy_does_not_name_its_namespace():
    assert stays(world(namespaces=()), "p") == "Unsupported: it has gpu-0 of gpu.example.com by ResourceClaim, and claimNamespaces of the policy does not name default"
    assert stays(world(), "p") == ""


def test_a_pod_of_our_own_scheduler_stays():
    """Which gives no devices: nobody would give one to its placeholder, if it had any."""
    state = world(devices("b"))
    then(state, shape("ours", cpu=3_000, **SHAPE | {"scheduler": "restow"}), pod("q", "ours", node="b", owner=OWNER), claim("q", "b"))
    assert stays(state, "q") == f"Unsupported: it has gpu-0 of {DRIVER} by ResourceClaim, and scheduler restow gives no devices"


def test_a_pod_of_peoples_is_no_placeholder_whatever_it_says():
    """Its class says who has made it: nobody else's pods may have that (`restow-guard-priorities`)."""
    state = holding(world(devices("b")))
    placeholder(state, priority_class="mine")
    assert state.stand_ins == {}
    state = holding(world(devices("b")))
    placeholder(state)
    assert list(state.stand_ins.values()) == ["h"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_plan_that_frees_nodes_moves_it_where_a_device_is(taken):
    """b and c have a pod each that keeps them in use; b has a device, which may be somebody's."""
    args = DefragmentationArgs(planner="optimizing", objective="nodes", protectionThresholds={})
    others = [shape("t", scheduler=STOCK), pod("q", "t", node="b"), pod("r", "t", node="c"), node("c", cpu=8_000)]
    state = world(devices("b"), *others, *([claim("q", "b")] if taken else []))
    found = defragmentation.plan(state, args, NOW, "x")
    assert [(one.pod, one.target) for one in found.moves] == ([] if taken else [("p", "b")])


def test_a_placeholder_that_gets_no_device_ends_the_move_and_the_pod_stays():
    state = holding(world(devices("b")))
    opened(state)
    placeholder(state)
    assert failed(advance(state, after=60_000)) == {"x-1": "HoldTimeout"}
    run(state, session.decider, c.Schedule(NOW + 60_000))
    assert "p" in state.charges
