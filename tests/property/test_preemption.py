"""Preemption on random clusters: what a slow and obvious search finds, and that nothing is ever given out twice."""

from itertools import combinations
from typing import Any

from domain.build import GIB, NOW, changed, configured, given, node, pod, run, shape, then, when
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.preemption.claims import PATIENCE

decider = session.decider
TIERS = (tuple(PluginConfig(name) for name in ("priority", "conformance", "gang")), (PluginConfig("predicates"), PluginConfig("nodeorder")))
CONF = configured("session", SessionConfig(actions=tuple(ActionConfig(n) for n in ("allocate", "preempt")), tiers=TIERS))

PRIORITIES, SIZES = (0, 1, 5), ((250, 1), (500, 1), (500, 3), (1_000, 2), (2_000, 1))
"""Thousandths of a core, GiB."""


def small(priority: int, size: int) -> e.ShapeDeclared:
    cpu, memory = SIZES[size]
    return shape(f"s{priority}-{size}", cpu, memory * GIB, priority=priority)


SHAPES = [small(p, s) for p in PRIORITIES for s in range(len(SIZES))]
SHARES = [shape(f"g{p}-{m}", 100, GIB, gpu=(1, m), priority=p) for p in PRIORITIES for m in (300, 500, 1000)]


@st.composite
def clusters(draw) -> tuple[list[Any], e.ShapeDeclared]:
    """Facts without over-commitment, and a shape of high priority that is to be placed."""
    facts: list[Any] = []
    number = 0
    for i in range(draw(st.integers(1, 4))):
        cpu, memory, gpus = draw(st.sampled_from([1_000, 1_500, 2_000])), draw(st.integers(2, 5)), draw(st.integers(0, 2))
        facts.append(node(f"n{i}", cpu, memory * GIB, gpus=gpus))
        left = {"cpu": cpu, "memory": memory * GIB}
        shares = [1000] * gpus
        for _ in range(draw(st.integers(4, 9))):
            what = draw(st.sampled_from(SHAPES + (SHARES if gpus else [])))
            asks = what.spec.requests
            if any(left[r] < asks[r] for r in left):
                continue
            devices: tuple[DeviceShare, ...] = ()
            if what.spec.devices is not None:
                able = [d for d, share in enumerate(shares) if share >= what.spec.devices.milli]
                if not able:
                    continue
                devices = (DeviceShare(able[0], what.spec.devices.milli),)
                shares[able[0]] -= what.spec.devices.milli
            for r in left:
                left[r] -= asks[r]
            started = NOW - draw(st.integers(0, 3))
            facts.append(pod(f"p{number}", what.shape, f"n{i}", devices=devices, started=started))
            number += 1
    wanted = draw(st.sampled_from([(500, 3), (1_000, 2), (1_500, 2), (2_000, 1), 300, 500, 1000]))
    priority = draw(st.sampled_from([1, 5, 9, 9]))
    if isinstance(wanted, int):
        return facts, shape("claimer", 100, GIB, gpu=(1, wanted), priority=priority)
    return facts, shape("claimer", wanted[0], wanted[1] * GIB, priority=priority)


def slowly(facts: list[Any], claimer: e.ShapeDeclared) -> tuple[str, set[str]] | None:
    """The cheapest node and its victims, by trying every set of pods on every node."""
    shapes = {s.shape: s.spec for s in [*SHAPES, *SHARES]}
    best: tuple[Any, str, set[str]] | None = None
    for n in (fact for fact in facts if isinstance(fact, e.NodeObserved)):
        here = [fact for fact in facts if isinstance(fact, e.PodObserved) and fact.node == n.name]
        important = sorted(here, key=lambda p: (-shapes[p.shape].priority, p.started, int(p.name[1:])))
        may_go = [p for p in important if shapes[p.shape].priority < claimer.spec.priority]
        for count in range(len(may_go) + 1):
            for gone in combinations(may_go, count):
                if not _fits(n, [p for p in here if p not in gone], shapes, claimer):
                    continue
                # The most important ones are spared first: the set that is smallest as a number with a digit for each.
                sparing = tuple(p in gone for p in may_go)
                priorities = [shapes[p.shape].priority for p in gone]
                highest = max(priorities, default=None)
                cost = (
                    -(1 << 62) if highest is None else highest,
                    sum(p + (1 << 31) for p in priorities),
                    count,
                    -min((p.started for p in gone if shapes[p.shape].priority == highest), default=0),
                    n.name,
                )
                # Within a node sparing decides, between nodes the cost.
                mine = (sparing, cost, n.name, {p.name for p in gone})
                known = _of_node.get(n.name) if count or _of_node else None
                if known is None or mine[0] < known[0]:
                    _of_node[n.name] = mine
    for _, cost, name, gone in _of_node.values():
        if best is None or cost < best[0]:
            best = (cost, name, gone)
    _of_node.clear()
    return None if best is None else (best[1], best[2])


_of_node: dict[str, Any] = {}


def _fits(n: e.NodeObserved, stay: list[e.PodObserved], shapes: dict, claimer: e.ShapeDeclared) -> bool:
    for resource, amount in claimer.spec.requests.items():
        if n.allocatable.get(resource, 0) - sum(shapes[p.shape].requests.get(resource, 0) for p in stay) < amount:
            return False
    asked = claimer.spec.devices
    if asked is None:
        return True
    shares = [1000] * n.devices
    for p in stay:
        for d in p.devices:
            shares[d.index] -= d.milli
    return sum(share >= asked.milli for share in shares) >= asked.count


@for_all(clusters())
@settings(max_examples=examples(300), deadline=None)
def test_the_cheapest_node_is_found_wherever_there_is_one(cluster):
    facts, claimer = cluster
    state = given(CONF, *SHAPES, *SHARES, claimer, *facts, pod("claimer", "claimer"))
    events = when(state, decider, c.Schedule(NOW))
    expected = slowly(facts, claimer)
    if expected is None:
        assert not any(isinstance(event, e.Nominated | e.PodPlaced) for event in events)
        return
    name, gone = expected
    if not gone:
        # It fits without: `allocate` has placed it, on the node that scores best.
        assert any(isinstance(event, e.PodPlaced) for event in events)
        return
    (nominated,) = [event for event in events if isinstance(event, e.Nominated)]
    assert (nominated.node, set(nominated.victims)) == (name, gone)
    assert {event.pod for event in events if isinstance(event, e.Preempted)} == gone


@st.composite
def stories(draw) -> Any:
    facts, claimer = draw(clusters())
    steps = st.sampled_from(["pod", "gang", "end", "end", "end", "schedule", "schedule", "lose", "late", "refuse"])
    return facts, claimer, draw(st.lists(st.tuples(steps, st.integers(0, 99)), max_size=25))


@for_all(stories())
@settings(max_examples=examples(200), deadline=None)
def test_nothing_is_given_out_twice_and_only_lower_priorities_go(story):
    facts, claimer, steps = story
    state = given(CONF, *SHAPES, *SHARES, claimer, *facts)
    now, made = NOW, 0
    for step, choice in steps:
        match step:
            case "pod":
                made += 1
                then(state, pod(f"x{made}", "claimer"), time=now)
            case "gang":
                made += 1
                name, mark = f"gang{made}", {"scheduling.k8s.io/group-name": f"gang{made}"}
                group = e.PodGroupObserved("default", name, name, NOW, "default", 2, phase="Running")
                then(state, group, *(pod(f"x{made}-{i}", "claimer", annotations=mark) for i in range(3)), time=now)
            case "end":
                going = sorted({*state.victims_of, *(uid for uid, pod in state.pods.items() if pod.live.deleting)})
                if going:
                    uid = going[choice % len(going)]
                    live = state.pods[uid].live
                    if live.deleting:
                        then(state, e.PodGone(uid), time=now)
                    else:
                        then(state, changed(uid, node=live.node, phase="Running", deleting=now, devices=live.devices), time=now)
            case "lose" if choice < 10 and len(state.nodes) > 1:
                then(state, e.NodeGone(sorted(state.nodes)[choice % len(state.nodes)]), time=now)
            case "late" if choice < 30:
                now += PATIENCE
            case "refuse" if state.victims_of and choice < 30:
                run(state, decider, c.RefusePreemption(now, sorted(state.victims_of)[choice % len(state.victims_of)], "403"))
            case "schedule":
                _scheduled(state, now)
        _sound(state)
    # Whatever was held is used or given back in the end.
    for _ in range(8):
        for uid in sorted(state.victims_of):
            live = state.pods[uid].live
            then(state, changed(uid, node=live.node, phase="Running", deleting=now, devices=live.devices), time=now)
        for uid in sorted(uid for uid, known in state.pods.items() if known.live.deleting):
            then(state, e.PodGone(uid), time=now)
        _scheduled(state, now)
        _sound(state)
    now += PATIENCE
    _scheduled(state, now)
    assert all(n.deadline > now for n in state.nominations.values())


def _scheduled(state, now: int) -> None:
    """One session after the other, until there is nothing left to decide."""
    for _ in range(20):
        if not _session(state, now):
            return
    raise AssertionError("sessions do not come to an end")


def _session(state, now: int) -> list[e.Event]:
    before = state.table.free.copy(), state.table.device_free.copy()
    events = when(state, decider, c.Schedule(now))
    assert (state.table.free == before[0]).all()
    assert (state.table.device_free == before[1]).all()
    for event in events:
        if isinstance(event, e.Preempted):
            assert _priority(state, event.pod) < _priority(state, event.by)
            assert not state.pods[event.pod].live.deleting
    then(state, events, time=now)
    for group, spec in state.pod_groups.items():
        # No half gang: two or more of it have a place, or none.
        members = sum(uid in state.placed for uid in state.groups.get(group, ()))
        assert members == 0 or members >= min(spec.min_member, 2)
    return events


def _priority(state, uid: str) -> int:
    return state.shapes[state.pods[uid].fact.shape].priority


def _sound(state) -> None:
    table = state.table
    assert (table.used + table.reserved <= table.allocatable)[table.alive].all()
    shares = table.device_free[table.alive]
    assert ((shares >= 0) | (shares < -(1 << 39))).all()
    for uid, victim in state.victims_of.items():
        assert uid in state.nominations[victim.by].victims
    for uid in state.pods:
        if state.awaits_placement(uid):
            # Nobody is forgotten.
            assert uid in state.queue or uid in state.parked or uid in state.nominations
