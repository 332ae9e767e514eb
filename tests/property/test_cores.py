"""No CPU is ever given twice: pods, holds and their owners, whatever comes and goes."""

from collections import Counter

import pytest
from domain.build import NOW, given, node, owner, pod, reservation, run, shape, then
from domain.test_cores import machine
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import CoreRequest
from restow.domain import session
from restow.domain.cores import FULL, SPREAD, Cores, Topology, choose
from restow.domain.cores.choose import Wish
from restow.domain.occupants import everybody
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState

SHAPES = {
    "two": CoreRequest(2, FULL),
    "four": CoreRequest(4, FULL, required=True),
    "odd": CoreRequest(3, SPREAD),
    "spread": CoreRequest(4, SPREAD, required=True),
    "alone": CoreRequest(2, SPREAD, exclusive="PCPULevel"),
    "shared": None,
}
MACHINES = {"n0": machine(), "n1": machine(sockets=2, zones=1, cores=2), "n2": machine(zones=1, cores=6, threads=1)}


def world() -> list[e.Event]:
    return [
        *(node(name, cpu=len(cpus) * 1000) for name, cpus in MACHINES.items()),
        *(e.NumaObserved(name, cpus=cpus) for name, cpus in MACHINES.items()),
        node("n3", cpu=4_000),
        *(shape(name, (cores.count if cores else 1) * 1000, 0, cores=cores) for name, cores in SHAPES.items()),
    ]


def owned(state: ClusterState) -> dict[str, Counter[int]]:
    """By node, how many have each CPU: pods, held slots, pods that are nominated."""
    found: dict[str, Counter[int]] = {name: Counter() for name in state.nodes}
    for who in everybody(state):
        if isinstance(who, tuple):
            slot = state.slots[who[0]][who[1]]
            found[slot.node].update(slot.capacity.cores)
        else:
            found[state.charges[who].node].update(state.charges[who].cores)
    for nomination in state.nominations.values():
        found[nomination.node].update(nomination.capacity.cores)
    return found


def check(state: ClusterState) -> None:
    for name, counts in owned(state).items():
        there = {cpu.id for cpu in MACHINES.get(name, ())}
        assert set(counts) <= there, f"{name} has no CPUs {set(counts) - there}"
        assert not [cpu for cpu, count in counts.items() if count > 1], f"CPUs of {name} are given twice: {counts}"
    for uid, charge in state.charges.items():
        request = state.shapes[charge.shape].cores
        assert len(charge.cores) == (request.count if request is not None else 0), f"{uid} has {charge.cores}"
        if request is not None and request.required:
            topology = Topology(MACHINES[charge.node])
            cores = {topology.core[cpu] for cpu in charge.cores}
            assert len(cores) * (topology.per_core if request.policy == FULL else 1) == request.count
    kept, anew = Cores.of(state), Cores(state)
    assert kept.image() == anew.image()
    for request in filter(None, SHAPES.values()):
        found, again = kept.filter(request), anew.filter(request)
        assert [(reason, rows.tolist()) for reason, rows in found] == [(reason, rows.tolist()) for reason, rows in again]


def schedule(state: ClusterState, now: int) -> None:
    for at in range(20):
        if not run(state, session.decider, c.Schedule(now + at)):
            return


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from(list(SHAPES)), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("pod"), st.sampled_from(list(SHAPES)), st.sampled_from(["a", "b"])),
        st.tuples(st.just("hold"), st.sampled_from(list(SHAPES)), st.sampled_from(["a", "b"]), st.booleans(), st.integers(1, 2)),
        st.tuples(st.just("end"), st.integers(0, 99)),
        st.tuples(st.just("release"), st.integers(0, 99)),
        st.tuples(st.just("bind"), st.integers(0, 99)),
        st.tuples(st.just("node"), st.sampled_from(list(MACHINES))),
    ),
    max_size=24,
)


def happens(state: ClusterState, step: tuple, at: int) -> list[e.Event]:
    match step:
        case "pod", kind, label:
            return [pod(f"p{at}", kind, labels={"app": label} if label else {})]
        case "hold", kind, label, once, places:
            spec = {"allocate_once": once, "match_policy": "Owner", "allocate_policy": "Aligned"}
            fact = reservation(f"r{at}", ("t", places, kind), owners=(owner(app=label),), **spec)
            return [fact, e.ReservationAccepted(f"r{at}", 1, places)]
        case "end", which:
            return [e.PodGone(list(state.pods)[which % len(state.pods)])] if state.pods else []
        case "release", which:
            return [e.ReservationGone(list(state.reservations)[which % len(state.reservations)])] if state.reservations else []
        case "bind", which:
            waiting = [uid for uid in state.placed if state.pods[uid].live.node is None]
            if not waiting:
                return []
            uid = waiting[which % len(waiting)]
            placement = state.placed[uid]
            return [e.PodChanged(uid, placement.node, "Running", True, cores=placement.cores)]
        case "node", name:
            labels = {"node.koordinator.sh/numa-allocate-strategy": "LeastAllocated", "at": str(at)}
            return [node(name, cpu=len(MACHINES[name]) * 1000, labels=labels)]
    raise AssertionError(step)


@settings(max_examples=examples(150), deadline=None)
@for_all(STEPS)
def test_no_cpu_is_ever_given_twice(steps):
    state = given(world())
    for at, step in enumerate(steps):
        for event in happens(state, step, at):
            then(state, event, time=NOW + at * 1000)
        schedule(state, NOW + at * 1000)
        check(state)
    again = load(dump(state))
    assert owned(again) == owned(state)
    assert Cores.of(again).image()[0] == Cores.of(state).image()[0]


@settings(max_examples=examples(300), deadline=None)
@for_all(
    st.sampled_from(list(MACHINES)), st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15)), st.integers(1, 16),
    st.sampled_from([FULL, SPREAD]), st.booleans(), st.sets(st.integers(0, 15)), st.booleans(),
)  # fmt: skip
def test_what_is_chosen_is_free_as_much_as_asked_for_and_of_the_preferred_as_much_as_can_be(
    name, free, preferred, count, policy, required, blocked, emptiest
):
    topology = Topology(MACHINES[name])
    free &= set(topology.cpus)
    preferred &= free
    # Somebody who wants to be alone is in whole cores, or zones.
    blocked = {cpu for cpu in topology.cpus if not blocked.isdisjoint(topology.siblings[topology.core[cpu]])}
    if required and policy == FULL:
        count += -count % topology.per_core
    got = choose(topology, free, Wish(count, policy, required, blocked, emptiest), preferred)
    usable = free if not required else topology.whole(free) if policy == FULL else topology.single(free, preferred)
    if len(usable) < count:
        assert got is None
        return
    assert got is not None
    assert sorted(set(got)) == list(got)
    assert len(got) == count
    assert set(got) <= free
    cores = len({topology.core[cpu] for cpu in got})
    if required:
        assert cores * (topology.per_core if policy == FULL else 1) == count
    else:
        assert len(preferred.intersection(got)) == min(count, len(preferred))
    zones: dict[int, int] = Counter(topology.zone[cpu] for cpu in usable)
    if not preferred and not (policy == FULL and len(topology.whole(free)) >= count):
        assert (len({topology.zone[cpu] for cpu in got}) == 1) == (max(zones.values()) >= count)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_restart_in_between_gives_the_same(kind):
    first = given(world(), [pod(f"p{i}", kind) for i in range(3)])
    second = load(dump(first))
    schedule(first, NOW)
    schedule(second, NOW)
    assert first.placed == second.placed
