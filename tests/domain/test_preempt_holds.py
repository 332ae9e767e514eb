"""Holds that may be given up: the cheapest node is found among all of them, and at no cost that grows with those that are held."""

from domain.build import NOW, configured, pod, reservation, run, shape, then
from domain.build import given as cluster
from domain.build import node as machine
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import ActionConfig, SessionConfig
from restow.domain.session.jobs import single
from restow.domain.session.preemption.victims import Hunt, Scope
from restow.domain.session.registry import open_session

decider = session.decider
CONF = configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("enqueue", "reserve", "allocate", "preempt", "backfill")))))


def settle(state) -> None:
    for _ in range(4):
        for who in (reservations.decider, decider):
            if (due := who.due(state, NOW)) is not None:
                run(state, who, due)


def held(nodes: int, priority: int):
    """Nodes that are full of a pod and a hold each."""
    state = cluster(CONF, [machine(f"n{i:04}", cpu=2_000) for i in range(nodes)], shape("run", priority=50), shape("hold", priority=priority))
    then(state, [pod(f"r{i}", "run", node=f"n{i:04}") for i in range(nodes)])
    then(state, reservation("r", ("t", nodes, "hold"), match_policy="Owner"))
    settle(state)
    assert sum(len(places) for places in state.held_on.values()) == nodes
    return state


def looked_at(monkeypatch, nodes: int, claimers: int, priority: int) -> tuple[int, list[e.Event]]:
    state = held(nodes, priority)
    then(state, [shape(f"c{i}", memory=(1 << 30) + i, priority=40) for i in range(claimers)], [pod(f"p{i}", f"c{i}") for i in range(claimers)])
    calls: list[int] = []

    def counted(real):
        def count(hunt, job, pod, scope, row):
            calls.append(row)
            return real(hunt, job, pod, scope, row)

        return count

    for name in ("_cost", "_free"):
        monkeypatch.setattr(Hunt, name, counted(getattr(Hunt, name)))
    events = run(state, decider, c.Schedule(NOW, 2_000))
    return len(calls), events


def test_however_many_nodes_are_held_nobody_looks_at_them_for_each_pod_that_wants_capacity(monkeypatch):
    calls, events = looked_at(monkeypatch, 300, 16, priority=50)
    assert not any(isinstance(event, e.Nominated) for event in events), "they are more important"
    assert calls == 0
    calls, events = looked_at(monkeypatch, 300, 16, priority=30)
    assert sum(isinstance(event, e.HoldReleased) for event in events) == 16
    assert calls <= 16 * 16, "and those that this session has taken something from"


SMALL = st.integers(0, 3)


@settings(max_examples=examples(40))
@given(
    running=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), SMALL), max_size=8),
    holds=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), SMALL), max_size=3),
    before=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=2),
    wants=st.integers(1, 4),
    priority=st.integers(1, 4),
)
def test_the_node_that_costs_least_is_found_whatever_is_held_or_promised_there(running, holds, before, wants, priority):
    state = cluster(CONF, [machine(f"n{i}", cpu=4_000) for i in range(4)])

    def kind(cores: int, priority: int) -> str:
        if (name := f"s{cores}p{priority}") not in state.shapes:
            then(state, shape(name, cpu=cores * 1_000, priority=priority))
        return name

    for i, (where, cores, priority_) in enumerate(running):
        then(state, pod(f"r{i}", kind(cores, priority_), node=f"n{where}"))
    for i, (count, cores, priority_) in enumerate(holds):
        then(state, reservation(f"h{i}", ("t", count, kind(cores, priority_)), match_policy="Owner"))
    settle(state)
    for i, (cores, priority_) in enumerate(before):
        then(state, pod(f"b{i}", kind(cores, priority_)))
        run(state, decider, c.Schedule(NOW, 1_000))
    then(state, pod("claimer", kind(wants, priority)))
    opened = open_session(state, NOW, 1_000)
    try:
        claimer = state.pods["claimer"].fact
        job = single(state, claimer)
        hunt = Hunt(opened, [job])
        keys = [
            hunt._key(row, choice.victims)
            for row in range(4)
            if (choice := hunt._free(job, claimer, Scope.QUEUE, row)) is not None
        ]
        found = hunt.find(job, claimer, Scope.QUEUE)
        assert (None if found is None else hunt._key(found.fit.row, found.victims)) == min(keys, default=None)
    finally:
        opened.close()
