"""What is freed for a pod in several steps (its victims end one after the other) goes to nobody else between two of them."""

from dataclasses import dataclass

import pytest
from domain.build import NOW, configured, given, node, owner, pod, reservation, run, shape, then
from domain.storage import AT_ONCE, CLASSES, DRIVER, HOST, claim, volume
from domain.test_cores import EIGHT
from domain.test_numa import topology

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Container, CoreRequest, DeviceShare, HostPort, LabelSelector, PodTerm
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import ActionConfig, SessionConfig
from restow.domain.node_table import NO_DEVICE
from restow.domain.records import SlotPhase
from restow.domain.session.preemption.claims import PATIENCE

CONF = configured("session", SessionConfig(actions=tuple(ActionConfig(n) for n in ("enqueue", "reserve", "allocate", "preempt", "backfill"))))
PORTS = HostPort(80, "TCP", ""), HostPort(81, "TCP", "")


@dataclass(frozen=True)
class Story:
    """`there`: pods that stay. `first`, `second`: pods of low priority, the victims; `first` ends first. `thief`: a pod of low priority that
    would fit into what that leaves."""

    facts: tuple
    first: e.PodObserved
    second: e.PodObserved
    preemptor: e.PodObserved
    thief: e.PodObserved
    there: tuple = ()
    shapes: tuple = ()


def low(id: str, **more):
    return shape(id, priority=1, **more)


def high(id: str, **more):
    return shape(id, priority=10, **more)


def gpu(index: int, milli: int = 1000) -> DeviceShare:
    return DeviceShare(index, milli)


STORIES = {
    "cpu and memory": Story(
        (node("a", cpu=3_000),), pod("x", "low", "a"), pod("y", "low", "a"), pod("h", "high"), pod("thief", "low"),
        (pod("z", "other", "a"),), (low("low"), high("high", cpu=2_000), high("other")),
    ),
    "number of pods": Story(
        (node("a", cpu=8_000, pods=2),), pod("x", "low", "a"), pod("y", "low", "a"), pod("h", "high"), pod("thief", "small"),
        (), (low("low", cpu=4_000), low("small"), high("high", cpu=8_000)),
    ),
    # Two other GPUs have shares free, so that GPUs as an amount are not what keeps the thief away; neither has as much as it asks for.
    "two halves of a GPU": Story(
        (node("a", gpus=3),), pod("x", "half", "a", devices=(gpu(0, 500),)), pod("y", "half", "a", devices=(gpu(0, 500),)),
        pod("h", "whole"), pod("thief", "half"),
        (pod("z", "most", "a", devices=(gpu(1, 600),)), pod("z2", "most", "a", devices=(gpu(2, 600),))),
        (low("half", gpu=(1, 500)), high("whole", gpu=(1, 1000)), high("most", gpu=(1, 600))),
    ),
    "four whole GPUs": Story(
        (node("a", gpus=8),), pod("x", "two", "a", devices=(gpu(0), gpu(1))), pod("y", "two", "a", devices=(gpu(2), gpu(3))),
        pod("h", "four"), pod("thief", "one"), (pod("z", "rest", "a", devices=tuple(gpu(i) for i in range(4, 8))),),
        (low("two", gpu=(2, 1000)), low("one", gpu=(1, 1000)), high("four", gpu=(4, 1000)), high("rest", gpu=(4, 1000))),
    ),
    "GPUs that a device plugin gives": Story(
        (node("a", allocatable={"nvidia.com/gpu": 4}),), pod("x", "two", "a"), pod("y", "two", "a"), pod("h", "four"), pod("thief", "one"),
        (), (low("two", requests={"nvidia.com/gpu": 2}), low("one", requests={"nvidia.com/gpu": 1}), high("four", requests={"nvidia.com/gpu": 4})),
    ),
    "CPUs of its own": Story(
        (node("a", cpu=64_000, cpus=EIGHT),), pod("x", "low", "a", cores=tuple(range(8))), pod("y", "low", "a", cores=tuple(range(8, 16))),
        pod("h", "high"), pod("thief", "small"), (),
        (low("low", cores=CoreRequest(8)), low("small", cores=CoreRequest(2)), high("high", cores=CoreRequest(16))),
    ),
    "host ports": Story(
        (node("a"),), pod("x", "p80", "a"), pod("y", "p81", "a"), pod("h", "both"), pod("thief", "p80"),
        (), (low("p80", host_ports=PORTS[:1]), low("p81", host_ports=PORTS[1:]), high("both", host_ports=PORTS)),
    ),
    "volumes that can be attached": Story(
        (*CLASSES, *(claim(n, AT_ONCE, volume=f"v{n}") for n in "xyhit"), *(volume(f"v{n}", AT_ONCE, claim=n, driver=DRIVER, handle=f"v{n}") for n in "xyhit"),
         node("a"), e.CsiNodeObserved("a", {DRIVER: 2})),
        pod("x", "low", "a", claims=("x",)), pod("y", "low", "a", claims=("y",)), pod("h", "high", claims=("h", "i")),
        pod("thief", "low", claims=("t",)), (), (low("low", volumes=("persistentVolumeClaim",)), high("high", volumes=("persistentVolumeClaim",))),
    ),
    "company that it cannot stand": Story(
        (node("a", labels={HOST: "a"}),), pod("x", "low", "a", labels={"app": "noisy"}), pod("y", "low", "a", labels={"app": "noisy"}), pod("h", "high"),
        pod("thief", "low", labels={"app": "noisy"}), (),
        (low("low"), high("high", pod_anti_affinity=(PodTerm(HOST, LabelSelector({"app": "noisy"})),))),
    ),
}  # fmt: skip


def schedule(state, at: int = NOW):
    return run(state, session.decider, c.Schedule(at))


def placed(events) -> list[str]:
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


@pytest.mark.parametrize("name", STORIES)
def test_what_is_freed_in_two_steps_goes_to_nobody_of_lower_priority_in_between(name):
    story = STORIES[name]
    state = given(CONF, *story.shapes, *story.facts, *story.there, story.first, story.second, story.preemptor)
    events = schedule(state)
    assert sorted(event.pod for event in events if isinstance(event, e.Preempted)) == ["x", "y"]
    then(state, e.PodGone("x"), story.thief)
    assert placed(schedule(state)) == []
    then(state, e.PodGone("y"))
    assert "h" in placed(schedule(state))


@pytest.mark.parametrize("name", STORIES)
def test_the_thief_would_fit_if_nobody_were_nominated(name):
    """What the stories are about: without it they would prove nothing."""
    story = STORIES[name]
    state = given(CONF, *story.shapes, *story.facts, *story.there, story.second, story.thief)
    assert placed(schedule(state)) == ["thief"]


# -- a share of a device, step by step ---------------------------------------------------------------------------------


def free(state) -> list[int]:
    return [share for share in state.table.device_free[state.table.rows["a"]].tolist() if share > NO_DEVICE // 2]


def test_of_a_device_what_is_free_is_held_at_once_and_the_rest_as_it_comes():
    third, whole = low("third", gpu=(1, 300)), high("whole", gpu=(1, 1000))
    running = [pod(f"x{i}", "third", "a", devices=(gpu(0, 300),)) for i in range(3)]
    state = given(CONF, node("a", gpus=2), third, whole, pod("z", "whole", "a", devices=(gpu(1),)), running, pod("h", "whole"))
    schedule(state)
    assert free(state) == [0, 0]
    assert state.nominations["h"].capacity.held_devices == (gpu(0, 100),)
    for gone, held in (("x0", 400), ("x1", 700), ("x2", 1000)):
        then(state, e.PodGone(gone))
        assert (free(state), state.nominations["h"].capacity.held_devices) == ([0, 0], (gpu(0, held),))
    assert placed(schedule(state)) == ["h"]


def test_a_fact_that_overcommits_the_device_takes_only_what_it_needs_of_that():
    half, part, whole = low("half", gpu=(1, 500)), low("part", gpu=(1, 200)), high("whole", gpu=(1, 1000))
    running = [pod(f"x{i}", "half", "a", devices=(gpu(0, 500),)) for i in range(2)]
    state = given(CONF, node("a", gpus=1, allocatable={"restow.dev/gpu-milli": 5_000}), half, part, whole, running, pod("h", "whole"))
    schedule(state)
    then(state, e.PodGone("x0"), pod("foreign", "part", "a", devices=(gpu(0, 200),)))
    assert (free(state), state.nominations["h"].capacity.held_devices) == ([0], (gpu(0, 300),))
    then(state, e.PodGone("foreign"))
    assert state.nominations["h"].capacity.held_devices == (gpu(0, 500),)


def test_a_slot_that_waits_for_its_device_keeps_what_is_free_of_it():
    """A hold has what comes free of its device before anybody else gets it, too."""
    most, part = low("most", gpu=(1, 700)), low("part", gpu=(1, 300))
    there = pod("z", "most", "a", devices=(gpu(1, 700),))
    state = given(CONF, node("a", gpus=3), most, part, there, reservation("r", ("t", 1, "most"), owners=(owner(app="x"),)))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert state.slots["r"]["t-0"].capacity.held_devices == (gpu(0, 700),)
    then(state, pod("f0", "most", "a", devices=(gpu(0, 700),)), pod("f1", "part", "a", devices=(gpu(0, 300),)))
    assert state.slots["r"]["t-0"].phase is SlotPhase.WAITING
    then(state, e.PodGone("f1"), pod("thief", "part"))
    assert free(state) == [0, 300, 1000]
    assert state.slots["r"]["t-0"].capacity.held_devices == (gpu(0, 300),)
    assert schedule(state) == [e.PodPlaced("thief", "a", (gpu(1, 300),))]
    then(state, e.PodGone("f0"))
    assert state.slots["r"]["t-0"].capacity.complete


# -- whose device is in use keeps nobody from another one ----------------------------------------------------------------


def shares(state) -> int:
    """Thousandths that are free of all GPUs together."""
    return int(state.table.free[state.table.rows["a"], state.table.columns["restow.dev/gpu-milli"]])


def test_a_nominee_whose_device_is_still_in_use_keeps_nobody_from_another_one():
    part, whole, most = low("part", gpu=(1, 300)), high("whole", gpu=(1, 1000)), high("most", gpu=(1, 600))
    state = given(CONF, node("a", gpus=2), part, whole, most, low("victim", gpu=(1, 1000)),
                  pod("z", "most", "a", devices=(gpu(0, 600),)), pod("x", "victim", "a", devices=(gpu(1),)), pod("h", "whole"))  # fmt: skip
    schedule(state)
    assert (shares(state), free(state)) == (400, [400, 0])
    then(state, pod("p", "part"))
    assert schedule(state) == [e.PodPlaced("p", "a", (gpu(0, 300),))]
    then(state, e.PodGone("x"))
    assert (shares(state), free(state)) == (100, [100, 0])
    assert placed(schedule(state)) == ["h"]


WAITS = reservation("r", ("t", 1, "whole"), owners=(owner(app="a"),), pre_allocation=True)


def waiting_slot(*facts):
    """A slot waits for device 0 of two; 400 of device 1 come free after that."""
    state = given(CONF, low("part", gpu=(1, 300)), low("whole", gpu=(1, 1000)), low("most", gpu=(1, 600)), low("rest", gpu=(1, 400)), node("a", gpus=2),
                  pod("x", "whole", "a", devices=(gpu(0),), labels={"app": "a"}), pod("z", "most", "a", devices=(gpu(1, 600),)),
                  pod("y", "rest", "a", devices=(gpu(1, 400),)), WAITS, *facts)  # fmt: skip
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert (state.slots["r"]["t-0"].phase, state.slots["r"]["t-0"].devices) == (SlotPhase.WAITING, (gpu(0),))
    then(state, e.PodGone("y"))
    return state


def test_a_slot_whose_device_is_still_in_use_keeps_nobody_from_another_one():
    state = waiting_slot()
    assert (shares(state), free(state)) == (400, [0, 400])
    then(state, pod("p", "part"))
    assert schedule(state) == [e.PodPlaced("p", "a", (gpu(1, 300),))]
    then(state, e.PodGone("x"))
    assert state.slots["r"]["t-0"].capacity.complete


def test_who_fits_no_device_waits_for_gpus_as_before():
    state = waiting_slot()
    then(state, pod("p", "most"))
    assert [(event.reasons, event.pods) for event in schedule(state)] == [({"Insufficient gpu": 1}, ("p",))]


def test_a_slot_whose_device_is_still_in_use_takes_no_other_numa_zone():
    """Neither does a pod that is nominated: zones have what is held in them, not what is waited for."""

    def aligned(name, milli, **more):
        containers = (Container("c", requests={"cpu": 1_000, "restow.dev/gpu-milli": milli}),)
        return shape(name, memory=0, gpu=(1, milli), qos="Guaranteed", containers=containers, **more)

    zones = topology("a", {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})
    state = waiting_slot(zones, *(aligned(name, milli) for name, milli in (("part", 300), ("whole", 1000), ("most", 600), ("rest", 400))))
    then(state, pod("p", "part"))
    assert schedule(state) == [e.PodPlaced("p", "a", (gpu(1, 300),))]
    state = given(CONF, node("a", gpus=2), zones, aligned("part", 300), aligned("victim", 1000), aligned("most", 600, priority=10), aligned("whole", 1000, priority=10),
                  pod("z", "most", "a", devices=(gpu(0, 600),)), pod("x", "victim", "a", devices=(gpu(1),)), pod("h", "whole"))  # fmt: skip
    schedule(state)
    assert "h" in state.nominations
    then(state, pod("p", "part"))
    assert schedule(state) == [e.PodPlaced("p", "a", (gpu(0, 300),))]


def test_a_device_that_facts_overcommit_gives_back_what_was_held_of_all_together_for_others():
    state = given(CONF, low("part", gpu=(1, 300)), low("whole", gpu=(1, 1000)), node("a", gpus=2), reservation("r", ("t", 1, "whole"), owners=(owner(app="a"),)))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert (shares(state), free(state)) == (1000, [0, 1000])
    then(state, pod("f", "part", "a", devices=(gpu(0, 300),)))
    slot = state.slots["r"]["t-0"]
    assert (slot.phase, slot.capacity.held_devices) == (SlotPhase.WAITING, (gpu(0, 700),))
    assert (shares(state), free(state)) == (1000, [0, 1000])
    then(state, pod("p", "whole"))
    assert schedule(state) == [e.PodPlaced("p", "a", (gpu(1),))]


def test_the_deadline_begins_anew_with_every_part_of_a_device_that_comes():
    half, whole = low("half", gpu=(1, 500)), high("whole", gpu=(1, 1000))
    running = [pod(f"x{i}", "half", "a", devices=(gpu(0, 500),)) for i in range(2)]
    # GPUs as an amount are there already, so that only the device's own share shows that something has come.
    state = given(CONF, node("a", gpus=1, allocatable={"restow.dev/gpu-milli": 5_000, "cpu": 8_000}), half, whole, running, pod("h", "whole"))
    schedule(state)
    then(state, e.PodGone("x0"), time=NOW + 20_000)
    assert state.nominations["h"].deadline == NOW + 20_000 + PATIENCE
