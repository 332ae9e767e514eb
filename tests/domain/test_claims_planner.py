"""Planner `claims`: whole devices are freed of the parts that are in use, and what the scheduler will give to each pod is foreseen."""

import random

import msgspec
import pytest
from domain.build import NOW, configured, given, node, pod, replica_of, shape, then
from domain.test_claim_moves import DRIVER, SHAPE, STOCK

from restow.contracts import events as e
from restow.contracts.dynamic_resources import (
    AllocatedDevice,
    ClaimRequest,
    CounterSet,
    DeviceTaint,
    PublishedDevice,
    SubRequest,
)
from restow.contracts.values import Toleration
from restow.domain import config, defragmentation
from restow.domain.claim_devices import claim_devices
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation import ArgsError, check, explain

ARGS = DefragmentationArgs(planner="claims", protectionThresholds={})
SIZES = {"whole": 4, "half": 2, "quarter": 1}


def cut(on: str, gpus: int = 1) -> e.ResourceSliceObserved:
    """GPUs that can be cut in halves or quarters; parts before wholes, as NVIDIA's driver does not: the first that does is the first part."""
    listed = []
    for gpu in range(gpus):
        for kind, many in sorted(SIZES.items(), key=lambda one: one[1]):
            for i in range(4 // many):
                places = {f"slice-{place}": 1 for place in range(i * many, (i + 1) * many)}
                listed.append(PublishedDevice(f"gpu-{gpu}-{kind}-{i}", {"size": str(many)}, consumes=(CounterSet(f"gpu-{gpu}", places),)))
    counters = tuple(CounterSet(f"gpu-{gpu}", {f"slice-{place}": 1 for place in range(4)}) for gpu in range(gpus))
    return e.ResourceSliceObserved(on, DRIVER, on, node=on, devices=tuple(listed), counters=counters)


def has(name: str, on: str, device: str, **more) -> list[e.Event]:
    """A pod with this device."""
    kind = device.split("-")[2]
    asked = (ClaimRequest("gpu", (SubRequest("", "gpu", (f"device.attributes['{DRIVER}'].size == {SIZES[kind]}",)),)),)
    got = (AllocatedDevice("gpu", DRIVER, on, device),)
    claim = e.ResourceClaimObserved("default", f"{name}-gpu", f"uid-{name}", owner=name, pod_claim="gpu", requests=asked, allocated=got, reserved=(name,))
    more.setdefault("owner", replica_of("web"))
    return [pod(name, kind, on, **more), claim]


def world(*facts, nodes: str = "abc", gpus: int = 1):
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=(STOCK,), claim_namespaces=("default",))
    shapes = [shape(kind, cpu=100, spec_digest=kind, **SHAPE | {"claim_templates": {"gpu": kind}}) for kind in SIZES]
    made = [configured("migration", conf), e.NominationsChecked(STOCK, "honoured"), e.DeviceClassObserved("gpu", (f"device.driver == '{DRIVER}'",)), *shapes]
    state = given(*made, *(node(name) for name in nodes), *(cut(name, gpus) for name in nodes))
    for fact in facts:
        then(state, *fact)
    return state


def planned(state, **more) -> list[tuple[str, str, str]]:
    return [(one.pod, one.source, one.target) for one in defragmentation.plan(state, ARGS, NOW, "x", **more).moves]


def free(state) -> int:
    return claim_devices(state).by_driver()[DRIVER].free_wholes


def carried_out(state, plan) -> None:
    """As kube-scheduler does it: each pod gets the first device that does, in the plan's order; what it had is free after that. Written from the rule, not from the planner."""
    taken: dict[str, set[tuple[str, str]]] = {}
    listed = {name: {one.name: one for one in state.resource_slices[name].devices} for name in state.nodes}
    for claim in state.resource_claims.values():
        for one in claim.allocated:
            taken.setdefault(one.pool, set()).update((of.name, place) for of in listed[one.pool][one.device].consumes for place in of.counters)
    for move in plan.moves:
        claim = state.resource_claims[f"default/{move.pod}-gpu"]
        size = listed[move.source][claim.allocated[0].device].attributes["size"]
        for name, device in listed[move.target].items():
            places = {(of.name, place) for of in device.consumes for place in of.counters}
            kept_away = bool(device.taints) and not claim.requests[0].any_of[0].tolerations
            if device.attributes["size"] == size and not kept_away and not places & taken.get(move.target, set()):
                taken.setdefault(move.target, set()).update(places)
                then(state, e.ResourceClaimObserved("default", f"{move.pod}-gpu", f"uid-{move.pod}", owner=move.pod, pod_claim="gpu", allocated=(AllocatedDevice("gpu", DRIVER, move.target, name),), reserved=(move.pod,)))
                break
        else:
            raise AssertionError(f"{move.target} has nothing for {move.pod}")


def test_two_halves_of_two_gpus_become_one():
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "b", "gpu-0-half-1"), nodes="ab")
    assert planned(state) == [("p", "a", "b")]
    plan = defragmentation.plan(state, ARGS, NOW, "x")
    assert plan.reason == f"1 more whole device by claim of {DRIVER} becomes free (of 2 in all, 0 are), if the scheduler gives each pod the first device that does"
    assert (plan.planner, plan.plugin) == ("claims", "Defragmentation")
    carried_out(state, plan)
    assert free(state) == 1


def test_where_the_first_device_is_of_a_free_gpu_nothing_is_won():
    """c has two GPUs; the scheduler would take a half of the first, which nobody uses."""
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "c", "gpu-1-half-0"), nodes="ac", gpus=2)
    assert planned(state) == [("q", "c", "a")], "the other way round it is: of a the first one is in use"


def test_it_goes_to_the_fullest():
    state = world(has("p", "a", "gpu-0-quarter-0"), has("q", "b", "gpu-0-quarter-0"), has("r", "c", "gpu-0-quarter-0"), has("s", "c", "gpu-0-quarter-1"))
    assert planned(state) == [("p", "a", "c"), ("q", "b", "c")]


def test_of_two_that_ask_for_different_devices_of_one_node_the_second_waits_for_the_first():
    """Which part the second one gets hangs on the first."""
    state = world(has("p", "a", "gpu-0-half-0"), has("s", "b", "gpu-0-quarter-0", owner=None), has("q", "c", "gpu-0-quarter-0"))
    plan = defragmentation.plan(state, ARGS, NOW, "x")
    assert [(one.pod, one.target, one.after) for one in plan.moves] == [("p", "b", ()), ("q", "b", ("x-1",))]
    carried_out(state, plan)
    assert free(state) == 2


def test_all_or_none_of_a_device():
    """A half and a quarter are on a; only the quarter finds a place."""
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "a", "gpu-0-quarter-2"), has("r", "b", "gpu-0-half-0"), has("s", "b", "gpu-0-quarter-2"), nodes="ab")
    assert planned(state) == []


def test_nobody_goes_where_somebody_leaves():
    state = world(*(has(name, on, "gpu-0-quarter-0") for name, on in zip("pqrs", "abcd", strict=True)), nodes="abcd")
    plan = defragmentation.plan(state, ARGS, NOW, "x")
    assert {one.source for one in plan.moves} & {one.target for one in plan.moves} == set()
    carried_out(state, plan)
    assert free(state) == 3


def test_who_may_not_go_keeps_the_device():
    state = world(has("p", "a", "gpu-0-half-0", owner=None), has("q", "b", "gpu-0-half-1", owner=None), nodes="ab")
    assert planned(state) == []
    assert {one.pod: one.verdict for one in explain(state, ARGS, NOW)} == {"p": "Bare", "q": "Bare"}


def test_who_has_two_devices_is_left_where_it_is():
    """Moving it would free two at once, or none: this planner moves pods with one."""
    (fact, claim) = has("p", "a", "gpu-0-half-0")
    asked = (ClaimRequest("gpu", (msgspec.structs.replace(claim.requests[0].any_of[0], count=2),)),)
    both = msgspec.structs.replace(claim, requests=asked, allocated=(*claim.allocated, AllocatedDevice("gpu", DRIVER, "a", "gpu-1-half-0")))
    state = world([fact, both], *(has(f"q{i}", "b", f"gpu-{i}-half-0") for i in range(2)), *(has(f"r{i}", "b", f"gpu-{i}-half-1", owner=None) for i in range(2)), nodes="ab", gpus=2)
    assert planned(state) == []
    (stays,) = [one for one in explain(state, ARGS, NOW) if one.pod == "p"]
    assert "has 2 devices: only pods with one are moved to free whole ones" in stays.message


def test_a_device_that_many_pods_share_is_not_worth_it():
    many = [has(f"p{i}", "a", f"gpu-0-quarter-{i}") for i in range(3)]
    state = world(*many, has("q", "b", "gpu-0-quarter-0"), nodes="ab")
    assert planned(state) == [("q", "b", "a")]
    dear = DefragmentationArgs(planner="claims", protectionThresholds={}, minimumGain=1001)
    assert defragmentation.plan(state, dear, NOW, "x").moves == ()


def test_it_is_bounded_by_the_moves_of_a_plan():
    state = world(*(has(name, on, "gpu-0-quarter-0") for name, on in zip("pqr", "abc", strict=True)))
    assert len(planned(state)) == 2
    assert len(planned(state, max_moves=1)) == 1


def test_while_moves_are_under_way_nobody_leaves_where_they_go_nor_goes_where_they_leave():
    """Each plan's promise counts on what the other one would change."""
    for seed in range(60):
        chance = random.Random(seed)
        places = {(chance.choice("abcdef"), chance.randrange(2), chance.randrange(4)) for _ in range(10)}
        state = world(*(has(f"p{i}", on, f"gpu-{gpu}-quarter-{at}") for i, (on, gpu, at) in enumerate(sorted(places))), nodes="abcdef", gpus=2)
        first = defragmentation.plan(state, ARGS, NOW, "x", max_moves=1 + seed % 3)
        then(state, first)
        second = defragmentation.plan(state, ARGS, NOW, "y")
        assert {one.source for one in second.moves}.isdisjoint(one.target for one in first.moves), seed
        assert {one.target for one in second.moves}.isdisjoint(one.source for one in first.moves), seed


@pytest.mark.parametrize(("how", "moved"), [("== 2", True), ("== 2 && device.driver == 'gpu.example.com'", True), (">= 2", False), ("== 2 || true", False)])
def test_where_a_device_comes_first_that_may_do_as_well_nothing_is_foreseen(how, moved):
    """CEL is not evaluated. The whole GPU that is free on b has another size: of `>= 2` it may be what the scheduler gives."""
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "b", "gpu-0-half-0", owner=None), nodes="ab", gpus=2)
    published = state.resource_slices["b"]
    then(state, msgspec.structs.replace(published, devices=tuple(sorted(published.devices, key=lambda one: "whole" not in one.name))))
    asked = (ClaimRequest("gpu", (SubRequest("", "gpu", (f"device.attributes['{DRIVER}'].size {how}",)),)),)
    then(state, msgspec.structs.replace(state.resource_claims["default/p-gpu"], requests=asked))
    assert planned(state) == ([("p", "a", "b")] if moved else [])


def tainted(state, on: str, *prefixes: str) -> None:
    """Devices of a node whose names begin so have a taint."""
    said = state.resource_slices[on]
    marked = [msgspec.structs.replace(one, taints=(DeviceTaint("ill", "NoSchedule", "yes"),)) if one.name.startswith(prefixes) else one for one in said.devices]
    then(state, msgspec.structs.replace(said, devices=tuple(marked)))


def asking(state, name: str, *tolerations: Toleration) -> None:
    known = state.resource_claims[f"default/{name}-gpu"]
    ((asked,),) = (one.any_of for one in known.requests)
    then(state, msgspec.structs.replace(known, requests=(ClaimRequest("gpu", (msgspec.structs.replace(asked, tolerations=tolerations),)),)))


@pytest.mark.parametrize("why", ["a taint", "slices that are missing"])
def test_a_whole_device_that_nobody_could_have_afterwards_is_not_worth_a_move(why):
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "b", "gpu-0-half-1", owner=None), nodes="ab")
    if why == "a taint":
        tainted(state, "a", "gpu-0")
    else:
        then(state, msgspec.structs.replace(state.resource_slices["a"], slices=2))
    assert planned(state) == []


@pytest.mark.parametrize(
    ("tolerations", "target"),
    [
        ((), "c"), ((Toleration("ill", "Exists", effect="NoSchedule"),), "b"), ((Toleration("ill", value="yes"),), "b"), ((Toleration("ill", value="no"),), "c"),
        ((Toleration("ill", "Exists", effect="NoExecute"),), "c"), ((Toleration("", "Exists"),), "b"),
    ],
)  # fmt: skip
def test_who_tolerates_a_tainted_device_gets_it_and_nobody_else(tolerations, target):
    """On b a quarter of the GPU that is in use is tainted, and it is the fuller one; whoever does not tolerate that gets a quarter of the GPU that nobody uses."""
    state = world(
        has("p", "a", "gpu-0-quarter-0"), has("q", "b", "gpu-0-quarter-0", owner=None), has("r", "b", "gpu-0-quarter-1", owner=None), has("s", "c", "gpu-0-quarter-0", owner=None), gpus=2,
    )  # fmt: skip
    tainted(state, "b", "gpu-0-quarter-2", "gpu-0-quarter-3")
    asking(state, "p", *tolerations)
    assert planned(state) == [("p", "a", target)]


def test_who_tolerates_a_taint_may_get_a_tainted_device_first():
    """So on b, where a free GPU's tainted part is listed before, nothing is won."""
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "b", "gpu-1-half-0", owner=None), nodes="ab", gpus=2)
    tainted(state, "b", "gpu-0")
    assert planned(state) == [("p", "a", "b")]
    asking(state, "p", Toleration("ill", "Exists"))
    assert planned(state) == []


def test_what_is_promised_is_said_of_its_driver_alone():
    nics = e.ResourceSliceObserved("a-nics", "nic.example.com", "a-nics", node="a", devices=(PublishedDevice("nic-0"), PublishedDevice("nic-1")))
    state = world([nics], has("p", "a", "gpu-0-half-0"), has("q", "b", "gpu-0-half-1"), nodes="ab")
    assert "(of 2 in all, 0 are)" in defragmentation.plan(state, ARGS, NOW, "x").reason


def test_a_whole_that_somebody_else_still_has_a_part_of_is_not_promised():
    """A device of two GPUs together: p has it, and q the rest of the second one."""
    pair = PublishedDevice("pair", {"size": "2"}, consumes=(CounterSet("gpu-0", {"slice-0": 1}), CounterSet("gpu-1", {"slice-0": 1})))
    state = world(has("p", "a", "gpu-0-half-0"), has("q", "a", "gpu-1-quarter-2", owner=None), has("r", "b", "gpu-0-half-0"), nodes="ab", gpus=2)
    slice_ = state.resource_slices["a"]
    then(state, msgspec.structs.replace(slice_, devices=(*slice_.devices, pair)))
    got = (AllocatedDevice("gpu", DRIVER, "a", "pair"),)
    then(state, msgspec.structs.replace(state.resource_claims["default/p-gpu"], allocated=got))
    plan = defragmentation.plan(state, ARGS, NOW, "x")
    assert [one.pod for one in plan.moves] == ["p"]
    assert plan.reason.startswith("1 more whole device "), plan.reason


@pytest.mark.parametrize("seed", range(80))
def test_what_is_promised_comes_about(seed):
    """On random clusters: as many whole devices are free as the plan says, and each move finds its device."""
    chance = random.Random(seed)
    names, gpus = "abcdef"[: chance.randint(2, 6)], chance.randint(1, 3)
    used: set[tuple[str, int, int]] = set()
    facts = []
    for number in range(chance.randint(2, 14)):
        kind = chance.choice(["half", "quarter", "quarter"])
        on, gpu, i = chance.choice(names), chance.randrange(gpus), chance.randrange(4 // SIZES[kind])
        places = {(on, gpu, place) for place in range(i * SIZES[kind], (i + 1) * SIZES[kind])}
        if not places & used:
            used |= places
            facts.append(has(f"p{number:02}", on, f"gpu-{gpu}-{kind}-{i}", owner=None if chance.random() < 0.1 else replica_of("web")))
    state = world(*facts, nodes=names, gpus=gpus)
    if seed % 2:
        for on in names:
            tainted(state, on, *(f"gpu-{gpu}-{chance.choice(['', 'quarter-1', 'half-0'])}" for gpu in range(gpus) if chance.random() < 0.5), "none")
        for claim in list(state.resource_claims.values()):
            if chance.random() < 0.3:
                asking(state, claim.owner, Toleration("ill", "Exists"))
    before, plan = free(state), defragmentation.plan(state, ARGS, NOW, "x")
    said = int(plan.reason.partition(" ")[0]) if plan.moves else 0
    carried_out(state, plan)
    assert free(state) - before == said


def test_the_rest_of_the_arguments_is_refused():
    for wrong in ({"objective": "nodes"}, {"wholeNodes": True}, {"costs": {"age": 5}}, {"demand": True}, {"perDevice": True}):
        with pytest.raises(ArgsError):
            check(DefragmentationArgs(planner="claims", **wrong))
    check(ARGS)
    assert DefragmentationArgs().planner == "greedy"
