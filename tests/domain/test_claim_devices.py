"""Devices by claim: which there are, who has them, and which of them somebody can still get."""

from collections import Counter

from domain.build import given, node, pod, shape, then
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, CounterSet, DeviceTaint, PublishedDevice
from restow.domain.claim_devices import (
    INCOMPLETE,
    OUTDATED,
    PARTS_TAKEN,
    TAINTED,
    TAKEN,
    ClaimDevices,
    Count,
    claim_devices,
    count,
    users,
)
from restow.domain.snapshot import dump, load

DRIVER = "gpu.example.com"


def gpus(where: str, *devices: PublishedDevice | str, name: str = "", **more) -> e.ResourceSliceObserved:
    listed = tuple(PublishedDevice(one) if isinstance(one, str) else one for one in devices)
    return e.ResourceSliceObserved(name or f"slice-{where}", DRIVER, more.pop("pool", where), node=where, devices=listed, **more)


def claim(name: str, *devices: str, pool: str = "a", reserved: tuple[str, ...] = (), admin: bool = False) -> e.ResourceClaimObserved:
    return e.ResourceClaimObserved("default", name, f"uid-{name}", allocated=tuple(AllocatedDevice("r", DRIVER, pool, one, admin) for one in devices), reserved=reserved)


def states(state, where: str = "a") -> dict[str, str]:
    return {one.name: one.state for one in claim_devices(state).on(where)}


def total(state) -> Count:
    return claim_devices(state).by_driver().get(DRIVER, Count())


def test_a_device_is_free_until_a_claim_has_it_and_again_once_that_is_gone():
    state = given(node("a"), gpus("a", "g0", "g1"))
    assert states(state) == {"g0": "", "g1": ""}
    then(state, claim("c", "g1"))
    assert states(state) == {"g0": "", "g1": TAKEN}
    assert total(state) == Count(2, 1, 1, 2, 1)
    then(state, e.ResourceClaimGone("default", "c"))
    assert states(state) == {"g0": "", "g1": ""}
    then(state, e.ResourceSliceGone("slice-a"))
    assert states(state) == {}
    assert total(state) == Count()


def test_a_claim_that_is_given_back_or_gets_another_device():
    state = given(node("a"), gpus("a", "g0", "g1"), claim("c", "g1"))
    then(state, claim("c", "g0"))
    assert states(state) == {"g0": TAKEN, "g1": ""}
    then(state, claim("c"))
    assert states(state) == {"g0": "", "g1": ""}


def test_access_for_monitoring_takes_nothing():
    assert states(given(node("a"), gpus("a", "g0"), claim("c", "g0", admin=True))) == {"g0": ""}


def test_who_may_use_what_a_claim_has():
    state = given(node("a"), shape("s"), pod("p", node="a"), gpus("a", "g0", "g1"), claim("c", "g1", reserved=("uid-p", "unknown")))
    assert [one.claims for one in claim_devices(state).on("a")] == [(), ("default/c",)]
    uid = next(iter(state.pods))
    then(state, claim("c", "g1", reserved=(uid, "unknown")))
    assert users(state, ("default/c",)) == ("default/p", "unknown")
    assert claim_devices(state).reserved_for(uid) == ["default/c"]
    assert [one.name for one in claim_devices(state).claim("default/c")] == ["g1"]
    then(state, e.ResourceClaimGone("default", "c"))
    assert claim_devices(state).reserved_for(uid) == claim_devices(state).claim("default/c") == []


def test_a_tainted_device_is_not_free_unless_the_taint_is_a_note():
    tainted = [PublishedDevice(effect, taints=(DeviceTaint("k", effect),)) for effect in ("NoSchedule", "NoExecute", "None")]
    assert states(given(node("a"), gpus("a", *tainted))) == {"NoSchedule": TAINTED, "NoExecute": TAINTED, "None": ""}


def test_of_a_pool_the_newest_generation_counts_and_only_once_it_is_whole():
    state = given(node("a"), gpus("a", "g0", "old", name="s1"), claim("c", "old"))
    then(state, gpus("a", "g0", name="s2", generation=2, slices=2))
    assert states(state) == {"g0": INCOMPLETE}
    then(state, gpus("a", "g1", name="s1", generation=2, slices=2))
    assert states(state) == {"g0": "", "g1": ""}
    # What is not published any more has no node; whoever has it has it still.
    assert [(one.name, one.state) for one in claim_devices(state).pool((DRIVER, "a"))] == [("g0", ""), ("g1", ""), ("old", OUTDATED)]
    assert total(state) == Count(2, 0, 2, 2, 2)


def parts(whole: str = "gpu-0", slices: int = 4) -> tuple[PublishedDevice, ...]:
    """A GPU, its halves and its quarters."""
    def used(first: int, many: int) -> tuple[CounterSet, ...]:
        return (CounterSet(whole, {f"slice-{i}": 1_000 for i in range(first, first + many)}),)

    return (
        PublishedDevice(whole, consumes=used(0, slices)),
        *(PublishedDevice(f"{whole}-half-{i}", consumes=used(2 * i, 2)) for i in range(slices // 2)),
        *(PublishedDevice(f"{whole}-quarter-{i}", consumes=used(i, 1)) for i in range(slices)),
    )


def supply(*wholes: str) -> tuple[CounterSet, ...]:
    return tuple(CounterSet(whole, {f"slice-{i}": 1_000 for i in range(4)}) for whole in wholes)


def test_a_part_that_is_taken_takes_what_it_is_a_part_of_and_leaves_the_others():
    state = given(node("a"), gpus("a", *parts(), *parts("gpu-1"), counters=supply("gpu-0", "gpu-1")), claim("c", "gpu-0-quarter-1"))
    found = states(state)
    assert {name for name, why in found.items() if not why and name.startswith("gpu-0")} == {"gpu-0-half-1", "gpu-0-quarter-0", "gpu-0-quarter-2", "gpu-0-quarter-3"}
    assert found["gpu-0"] == found["gpu-0-half-0"] == PARTS_TAKEN
    assert total(state) == Count(14, 1, 11, 2, 1)


def test_counters_in_a_slice_of_their_own():
    state = given(node("a"), gpus("a", *parts(), name="devices", slices=2))
    assert not any(one.free for one in claim_devices(state).on("a"))
    then(state, gpus("a", name="counters", slices=2, counters=supply("gpu-0")))
    assert all(one.free for one in claim_devices(state).on("a"))


def test_parts_made_by_hand_are_of_their_parent():
    by_hand = [PublishedDevice(f"mig-{i}", {"parentUUID": f"GPU-{i // 2}"}) for i in range(4)]
    assert total(given(node("a"), gpus("a", *by_hand), claim("c", "mig-0"))) == Count(4, 1, 3, 2, 1)


def test_a_device_that_says_itself_where_it_is():
    slice_ = e.ResourceSliceObserved("s", DRIVER, "rack", devices=(PublishedDevice("x", node="a"), PublishedDevice("y", node="b"), PublishedDevice("z", everywhere=True)))
    state = given(node("a"), node("b"), slice_)
    assert [list(states(state, where)) for where in "abc"] == [["x"], ["y"], []]
    assert total(state).devices == 3


def test_claims_make_nobody_who_waits_be_considered_anew():
    state = given(node("a"), gpus("a", "g0"))
    before = state.capacity_epoch
    then(state, claim("c", "g0"), e.ResourceClaimGone("default", "c"), e.DeviceClassObserved("k"), e.DeviceClassGone("k"), e.ResourceSliceGone("slice-a"))
    assert state.capacity_epoch == before
    then(state, e.ResourceClaimGone("default", "c"))
    assert state.void["cluster.resource_claim_gone"] == 1


def test_a_snapshot_has_them():
    state = load(dump(given(node("a"), gpus("a", *parts(), counters=supply("gpu-0")), claim("c", "gpu-0-half-0"), e.DeviceClassObserved("k", ("true",)))))
    assert states(state)["gpu-0-half-0"] == TAKEN
    assert total(state) == Count(7, 1, 3, 1, 0)
    assert list(state.device_classes) == ["k"]


# -- followed in steps, against all of it anew, by another way ---------------------------------------------------------------

WHOLES = ("gpu-0", "gpu-1")
NAMES = [one.name for whole in WHOLES for one in parts(whole)] + ["plain"]


@st.composite
def stories(draw):
    """Slices and claims that come, change and go."""
    events = []
    for _ in range(draw(st.integers(1, 12))):
        where, number = draw(st.sampled_from("ab")), draw(st.integers(0, 2))
        match draw(st.sampled_from(["slice", "slice", "slice gone", "claim", "claim", "claim gone"])):
            case "slice":
                listed = [one for whole in WHOLES for one in parts(whole)] + [PublishedDevice("plain")]
                some = draw(st.lists(st.sampled_from(listed), unique_by=lambda one: one.name, max_size=9))
                sets = draw(st.sampled_from([supply(*WHOLES), supply("gpu-0"), ()]))
                events.append(gpus(where, *some, name=f"s{number}", generation=draw(st.integers(1, 2)), slices=draw(st.integers(1, 2)), counters=sets))
            case "slice gone":
                events.append(e.ResourceSliceGone(f"s{number}"))
            case "claim":
                had = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
                events.append(claim(f"c{number}", *had, pool=where, reserved=("p",) * draw(st.integers(0, 1)), admin=draw(st.booleans())))
            case _:
                events.append(e.ResourceClaimGone("default", f"c{number}"))
    return events


def by_hand(state) -> dict[tuple[str, str], str]:
    """(pool, device) → whether it could be allocated: tried on a copy of all counters."""
    found = {}
    for pool in "ab":
        slices = [one for one in state.resource_slices.values() if one.pool == pool]
        newest = [one for one in slices if one.generation == max(other.generation for other in slices)]
        taken = {got.device for one in state.resource_claims.values() for got in one.allocated if got.pool == pool and not got.admin}
        devices = {device.name: device for one in sorted(newest, key=lambda one: one.name) for device in one.devices}
        for name, device in devices.items():
            supplied = {(s.name, c): n for one in sorted(newest, key=lambda one: one.name) for s in one.counters for c, n in s.counters.items()}
            wanted = Counter()
            for other in {*(taken & set(devices)), name}:
                wanted.update({(s.name, c): n for s in devices[other].consumes for c, n in s.counters.items()})
            own = {(s.name, c) for s in device.consumes for c in s.counters}
            fits = all(supplied.get(key, 0) >= wanted[key] for key in own)
            # The order of slices of one generation says how many there should be, as the first of them does.
            whole = len(newest) >= min(newest, key=lambda one: one.name).slices
            found[pool, name] = name not in taken and fits and whole
    return found


@settings(max_examples=examples(150), deadline=None)
@drawn(stories())
def test_what_is_followed_step_by_step_is_what_there_is(story):
    state = given(node("a"), node("b"))
    for event in story:
        then(state, event)
        known = claim_devices(state)
        anew = ClaimDevices(state)
        anew.refresh(state)
        assert known.pools() == anew.pools()
        assert known.by_driver() == anew.by_driver()
        assert [known.pool(pool) for pool in known.pools()] == [anew.pool(pool) for pool in known.pools()]
        assert [known.on(where) for where in "ab"] == [anew.on(where) for where in "ab"]
        assert known.reserved_for("p") == anew.reserved_for("p")
        found = {(one.pool, one.name): one.free for where in "ab" for one in known.on(where)}
        assert found == by_hand(state)
        assert count(one for where in "ab" for one in known.on(where)).free == sum(found.values())
