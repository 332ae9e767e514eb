"""Several gangs that are to be near to each other, as nodes, labels and pods come and go: no gang is ever begun outside of one block, and a state from a
snapshot decides the same."""

from collections import defaultdict

from domain.build import NOW, changed, given, member, node, pod_group, run, then
from domain.test_network_topology import SHAPES, conf, hard
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import NetworkTopology
from restow.domain import session
from restow.domain.snapshot import dump, load

GANGS, NODES = 4, 6
KINDS = [hard(1), hard(2), NetworkTopology("soft"), NetworkTopology("hard", label="rack"), NetworkTopology("hard", 0)]
PLACE = st.tuples(st.sampled_from("ab"), st.sampled_from("12"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("end"), st.integers(0, GANGS * 4 - 1), st.none()),
        st.tuples(st.just("more"), st.integers(0, GANGS - 1), st.sampled_from(["half", "one", "whole"])),
        st.tuples(st.just("lose"), st.integers(0, NODES - 1), st.none()),
        st.tuples(st.just("node"), st.integers(0, NODES - 1), PLACE),
    ),
    max_size=8,
)


def at(i: int, place: tuple[str, str]) -> e.NodeObserved:
    return node(f"n{i}", cpu=4_000, labels={"zone": place[0], "rack": place[1]})


def world(kinds, needs, places, sizes):
    facts = [at(i, place) for i, place in enumerate(places)]
    for g, (kind, need) in enumerate(zip(kinds, needs, strict=True)):
        facts.append(pod_group(f"g{g}", need=need, topology=kind))
        facts += [member(f"g{g}-{i}", f"g{g}", sizes[g]) for i in range(4)]
    return given(conf(("zone", "rack", "kubernetes.io/hostname"), "reserve, allocate, backfill, preempt", {"name": "reservation"}), *SHAPES, *facts)


def homes(state, group: str) -> list[str]:
    return [state.charges[uid].node for uid in state.groups.get(("default", group), ()) if uid in state.charges and not state.pods[uid].live.deleting]


def is_near(state, kind: NetworkTopology, there: list[str]) -> bool:
    labels = [state.nodes[name].labels for name in there]
    keys = {1: ("zone", "rack"), 2: ("zone",), None: ("zone", "rack") if kind.label else ()}.get(kind.tier, ())
    if kind.tier == 0:
        return len(set(there)) <= 1
    return len({tuple(said[key] for key in keys) for said in labels}) <= 1


@settings(max_examples=examples(80), deadline=None)
@drawn(
    st.lists(st.sampled_from(KINDS), min_size=GANGS, max_size=GANGS),
    st.lists(st.integers(1, 4), min_size=GANGS, max_size=GANGS),
    st.lists(PLACE, min_size=NODES, max_size=NODES),
    st.lists(st.sampled_from(["half", "one", "whole"]), min_size=GANGS, max_size=GANGS),
    STEPS,
)
def test_nobody_is_placed_away_from_a_hard_gang(kinds, needs, places, sizes, steps):
    state, moved, made = world(kinds, needs, places, sizes), set[str](), defaultdict(int)
    for what, i, how in [("", 0, None), *steps]:
        if what == "end":
            uid = f"g{i // 4}-{i % 4}"
            if uid in state.charges:
                then(state, changed(uid, node=state.charges[uid].node, phase="Succeeded"))
        elif what == "more":
            made[i] += 1
            then(state, member(f"g{i}-x{made[i]}", f"g{i}", how))
        elif what == "lose" and f"n{i}" in state.nodes:
            then(state, e.NodeGone(f"n{i}"))
        elif what == "node":
            moved.add(f"n{i}")
            then(state, at(i, how))
        before = {g: set(homes(state, f"g{g}")) for g in range(GANGS)}
        for _ in range(3):
            again = load(dump(state))
            command = c.Schedule(NOW, 1_000)
            events = run(state, session.decider, command)
            assert run(again, session.decider, command) == events
        placed = {event.pod for event in events if isinstance(event, e.PodPlaced)}
        for g, kind in enumerate(kinds):
            there = homes(state, f"g{g}")
            grown = len(there) > len(before[g]) or placed & set(state.groups.get(("default", f"g{g}"), ()))
            if kind.mode == "hard" and grown and not (before[g] & moved):
                assert is_near(state, kind, there), (kind, there)
