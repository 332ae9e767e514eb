"""Volumes and NUMA zones: what is kept up to date equals what is made anew, and both equal a slow reading of the rules."""

from typing import Any

import numpy as np
from domain.build import NOW, given, node, pod, reservation, shape, then
from domain.storage import CLASSES, DRIVER, HOST, LOCAL, WAITING, ZONE, claim, on, storage_class, term, volume
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, Container, Disk, NumaZone, PodShape
from restow.domain import volumes as v
from restow.domain.numa import CONTAINER, INIT_CONTAINER, POD, Numa
from restow.domain.predicates import term_matches
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.domain.volumes import Volumes
from restow.replay.diff import diff

NODES = ("n0", "n1", "n2")
CLAIMS = ("a", "b", "c")
VOLUMES = ("v0", "v1", "v2", "v3")
PODS = ("p0", "p1", "p2", "p3")
STORES = (LOCAL, WAITING, "zonal")
DISKS = (Disk("rbd", "x"), Disk("rbd", "x", True), Disk("awsElasticBlockStore", "x", True))
SHAPES = {"plain": {}, "disk": {"disks": DISKS[:1]}, "reader": {"disks": DISKS[1:]}} | {
    f"numa{n}": {
        "qos": "Guaranteed",
        "containers": tuple(Container(f"c{i}", requests={"cpu": cores * 1000, "restow.dev/gpu-milli": gpus}, init=init) for i, (cores, gpus, init) in enumerate(what)),
    }
    for n, what in enumerate([[(1, 0, False)], [(2, 1000, False), (1, 0, False)], [(3, 0, True), (1, 0, False)]])
}
maybe = st.sampled_from


@st.composite
def happening(draw) -> Any:
    where, what, which, who = draw(maybe(NODES)), draw(maybe(CLAIMS)), draw(maybe(VOLUMES)), draw(maybe(PODS))
    store, size = draw(maybe(STORES)), draw(st.integers(1, 3))
    bound = draw(st.booleans())
    choice = (ClaimChoice(f"default/{what}", draw(maybe(["", which]))),)
    scope, policy = draw(maybe(["container", "pod"])), draw(maybe(["single-numa-node", "single-numa-node", "none"]))
    zones = draw(st.lists(st.fixed_dictionaries({"cpu": st.integers(0, 4).map(lambda n: n * 1000)}, optional={"nvidia.com/gpu": st.integers(0, 2)}), max_size=3))
    return draw(
        maybe(
            [
                node(where, uid=draw(maybe(["u", "w"])), labels={HOST: where, ZONE: draw(maybe(["a", "b"]))}),
                node(where, labels={HOST: where}),
                e.NodeGone(where),
                claim(what, store, size, volume=which if bound else "", modes=draw(maybe([("ReadWriteOnce",), ("ReadWriteOncePod",)]))),
                claim(what, store, size, selected_node=where),
                claim(what, store, size),
                e.ClaimGone("default", what),
                volume(which, store, size, claim=what, driver=DRIVER, handle=which, affinity=draw(maybe([None, on(where)]))),
                volume(which, store, size, affinity=on(*draw(st.sets(maybe(NODES)))), modes=("ReadWriteOnce", "ReadWriteOncePod")),
                volume(which, store, size, phase="Available", affinity=(term(ZONE, "a"),)),
                volume(which, store, size, claim=what, claim_uid="", zones={ZONE: draw(maybe(["a", "a__b"]))}),
                volume(which, store, size),
                e.VolumeGone(which),
                storage_class("zonal", topologies=(term(ZONE, draw(maybe(["a", "b"]))),)),
                e.CsiNodeObserved(where, {DRIVER: draw(st.integers(0, 2))}),
                e.CsiNodeGone(where),
                pod(who, draw(maybe(list(SHAPES))), claims=tuple(draw(st.lists(maybe(CLAIMS), max_size=3)))),
                e.PodPlaced(who, where, volumes=choice),
                e.PodReleased(who, "test"),
                e.PodChanged(who, where, "Running", True),
                e.PodChanged(who, where, "Succeeded", False),
                e.PodGone(who),
                e.HoldPlaced("r", "t-0", where),
                e.HoldReleased("r", "t-0", "Superseded"),
                e.NumaObserved(where, policy, scope, tuple(NumaZone(f"node-{i}", z) for i, z in enumerate(zones))),
                e.NumaGone(where),
            ]
        )
    )


def begin() -> ClusterState:
    declared = [shape(name, cpu=sum(c.requests["cpu"] for c in more.get("containers", ())), memory=0, **more) for name, more in SHAPES.items()]
    return given(
        [node(n, labels={HOST: n, ZONE: z}) for n, z in zip(NODES, "aab", strict=True)],
        [*declared, *CLASSES, storage_class("zonal", topologies=(term(ZONE, "a"),))],
        [claim(c, s) for c, s in zip(CLAIMS, STORES, strict=True)],
        [pod(p, claims=CLAIMS[i : i + 2], shape="plain") for i, p in enumerate(PODS)],
        [reservation("r", ("t", 1, "disk"), created=NOW), e.ReservationAccepted("r", 1, 1)],
    )


EVENTS = st.lists(happening(), min_size=5, max_size=40)


@settings(max_examples=examples(60), deadline=None)
@for_all(EVENTS)
def test_an_index_that_is_kept_up_to_date_is_one_that_is_made_anew(events):
    state = begin()
    for event in events:
        then(state, event)
        kept, anew = Volumes.of(state), Volumes(state)
        assert kept.image() == anew.image()
        for known in state.pods.values():
            if not kept.waits(known.fact):
                assert said(kept, known.fact) == said(anew, known.fact)
        zones, again = Numa.of(state), Numa(state)
        assert zones.image() == again.image()
        for name in state.shapes:
            assert [(r, rows.tolist()) for r, rows in zones.filter(name)] == [(r, rows.tolist()) for r, rows in again.filter(name)]


def said(index: Volumes, observed: e.PodObserved) -> list[tuple[str, list[bool]]]:
    return [(reason, rows.tolist()) for reason, rows in index.filters(observed)]


@settings(max_examples=examples(60), deadline=None)
@for_all(EVENTS)
def test_a_snapshot_has_what_claims_wait_for(events):
    state = then(begin(), *events)
    assert diff(state, load(dump(state))) == []


@settings(max_examples=examples(60), deadline=None)
@for_all(EVENTS, st.data())
def test_whatever_a_session_tries_leaves_no_trace(events, data):
    state = then(begin(), *events)
    volumes, numa = Volumes.of(state), Numa.of(state)
    for uid in data.draw(st.lists(maybe(PODS), max_size=8)):
        numa.filter("numa1")
        if data.draw(st.booleans()):
            volumes.restore(uid)
            numa.restore(uid)
        if uid not in state.pods or data.draw(st.booleans()):
            volumes.remove(uid)
            numa.remove(uid)
            continue
        observed = state.pods[uid].fact
        row = data.draw(maybe(sorted(state.table.rows.values()) or [0]))
        choices = tuple(ClaimChoice(f"default/{c}", data.draw(maybe(["", *VOLUMES]))) for c in dict.fromkeys(observed.claims))
        volumes.add(uid, row, observed, choices)
        numa.add(uid, row, observed)
    volumes.close()
    numa.close()
    assert volumes.image() == Volumes(state).image()
    assert numa.image() == Numa(state).image()


# -- volumes, slowly -------------------------------------------------------------------------------------------------------


def users(state: ClusterState) -> dict[Any, tuple[str, list[str], tuple[Disk, ...]]]:
    """Node, claims and disks of everything that holds a node."""
    found: dict[Any, tuple[str, list[str], tuple[Disk, ...]]] = {}
    for uid, charge in state.charges.items():
        observed = state.pods[uid].fact
        found[uid] = charge.node, [f"default/{c}" for c in observed.claims], state.shapes[observed.shape].disks
    for name, held in state.held_on.items():
        for uid, place in held:
            found[uid, place] = name, [], state.shapes[state.slots[uid][place].shape].disks
    return found


def counts_as(state: ClusterState, path: str) -> tuple[str, str] | None:
    fact = state.claims.get(path)
    if fact is None:
        return None
    if fact.volume in state.volumes:
        there = state.volumes[fact.volume]
        return (there.driver, there.handle) if there.driver else None
    made_by = state.storage_classes.get(fact.storage_class)
    return (made_by.provisioner, path) if made_by else None


def pending(state: ClusterState) -> dict[str, dict[str, tuple[str, str]]]:
    """Claim → pod → (node, volume) of what is chosen and is no fact."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for uid, placement in state.placed.items():
        uses = state.pods[uid].fact.claims or state.shapes[state.pods[uid].fact.shape].disks
        if uses and uid in state.charges and state.pods[uid].live.node is None:
            for choice in placement.volumes:
                found.setdefault(choice.claim, {})[uid] = (placement.node, choice.volume)
    return found


def reaches(state: ClusterState, name: str, where: str) -> bool:
    affinity = state.volumes[name].affinity
    return affinity is None or any(term_matches(t, state.nodes[where]) for t in affinity)


def matched(state: ClusterState, observed: e.PodObserved, where: str) -> bool:
    """Whether every unbound claim gets a volume on this node."""
    said, taken = pending(state), {volume for chosen in pending(state).values() for _, volume in chosen.values()}
    claims = [state.claims[f"default/{c}"] for c in dict.fromkeys(observed.claims)]
    good = True
    for fact in sorted((c for c in claims if not c.volume), key=lambda c: c.request):
        path = f"default/{fact.name}"
        made_by = state.storage_classes[fact.storage_class]
        makes = made_by.provisioner != "kubernetes.io/no-provisioner" and (
            not made_by.topologies or any(term_matches(t, state.nodes[where]) for t in made_by.topologies)
        )
        others = {uid: chosen for uid, chosen in said.get(path, {}).items() if uid != observed.pod}
        made_at = [n for _, (n, volume) in sorted(others.items()) if not volume]
        given_to = [name for _, (_, name) in sorted(others.items()) if name in state.volumes]
        fit = [x for x in state.volumes.values() if x.storage_class == fact.storage_class and x.capacity >= fact.request and not x.deleting]
        reserved = sorted((x.capacity, x.name) for x in fit if x.claim == path and x.claim_uid in ("", fact.uid))
        free = [
            (x.capacity, x.name)
            for x in fit
            if not x.claim and x.phase == "Available" and x.name not in taken and set(fact.modes) <= set(x.modes) and reaches(state, x.name, where)
        ]
        if fact.selected_node or made_at:
            good &= makes and (fact.selected_node or made_at[0]) == where
        elif given_to:
            good &= reaches(state, given_to[0], where)
        elif reserved:
            good &= reaches(state, reserved[0][1], where)
        elif free:
            taken.add(min(free)[1])
        else:
            # Where a provisioner has given the node back it is left out for a while.
            good &= makes and state.unserved.get(path, {}).get(where, 0) <= state.time
    return good


def slowly(state: ClusterState, observed: e.PodObserved, where: str) -> set[str]:
    """The reasons against this node."""
    found, there = set(), users(state)
    there.pop(observed.pod, None)
    paths = [f"default/{c}" for c in dict.fromkeys(observed.claims)]
    for mine in state.shapes[observed.shape].disks:
        for name, _, disks in there.values():
            for other in disks:
                same = name == where and (mine.kind, mine.id) == (other.kind, other.id)
                if same and (mine.kind == "awsElasticBlockStore" or not (mine.read_only and other.read_only)):
                    found.add(v.DISK)
    if any("ReadWriteOncePod" in state.claims[p].modes and any(p in claims for _, claims, _ in there.values()) for p in paths):
        found.add(v.ONCE_POD)
    attached = {x for name, claims, _ in users(state).values() if name == where for c in claims if (x := counts_as(state, c))}
    new = {x for p in paths if (x := counts_as(state, p))} - attached
    for driver, most in (state.csi_nodes[where].limits if where in state.csi_nodes else {}).items():
        count = sum(d == driver for d, _ in new)
        if count and count + sum(d == driver for d, _ in attached) > most:
            found.add(v.LIMIT)
    for p in paths:
        if name := state.claims[p].volume:
            if not reaches(state, name, where):
                found.add(v.NODE_AFFINITY)
            labels, zones = state.nodes[where].labels, state.volumes[name].zones
            if ZONE in labels and zones and labels[ZONE] not in zones[ZONE].split("__"):
                found.add(v.ZONE)
    if not matched(state, observed, where):
        found.add(v.NO_VOLUME)
    return found


@settings(max_examples=examples(120), deadline=None)
@for_all(EVENTS)
def test_filters_say_what_the_rules_say_of_every_node(events):
    state = then(begin(), *events)
    index = Volumes.of(state)
    for known in state.pods.values():
        if index.waits(known.fact):
            continue
        answer = index.filters(known.fact)
        assert [reason for reason, _ in answer] == [r for r in (v.DISK, v.ONCE_POD, v.LIMIT, v.NODE_AFFINITY, v.NO_VOLUME, v.ZONE) if r in dict(answer)]
        for name, row in state.table.rows.items():
            failing = {reason for reason, rows in answer if rows[row]}
            assert failing == slowly(state, known.fact, name), (known.fact.name, name)
            if v.NO_VOLUME not in failing:
                got = {c.claim for c in index.choose(known.fact, row)}
                assert got == {p for c in known.fact.claims if not state.claims[p := f"default/{c}"].volume}


# -- zones, slowly ---------------------------------------------------------------------------------------------------------


def zones_of(state: ClusterState, name: str) -> tuple[bool, list[dict[str, int]]]:
    fact = state.numa[name]
    zones = [{"cpu": z.allocatable["cpu"]} | ({"gpu": n * 1000} if (n := z.allocatable.get("nvidia.com/gpu", 0)) else {}) for z in fact.zones]
    return fact.scope == "pod", [{k: n for k, n in z.items() if n} for z in zones]


def asked(what: PodShape, whole: bool) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    def amounts(c: Container) -> dict[str, int]:
        gpus = c.requests["restow.dev/gpu-milli"]
        return {"cpu": c.requests["cpu"]} | ({"gpu": gpus} if gpus else {})

    init = [amounts(c) for c in what.containers if c.init]
    lasting = [amounts(c) for c in what.containers if not c.init]
    if not whole:
        return init, lasting
    # The shapes here say what the table is charged of CPUs and nothing of devices.
    return [], [{"cpu": max(sum(c["cpu"] for c in lasting), *(c["cpu"] for c in init), 0)}]


def lowest(zones: list[dict[str, int]], wanted: dict[str, int]) -> int | None:
    reported = {k for z in zones for k in z}
    for at, zone in enumerate(zones):
        if all(zone.get(k, -1) >= n for k, n in wanted.items() if k in reported) and ("cpu" in reported or "cpu" not in wanted):
            return at
    return None


def charge(zones: list[dict[str, int]], wanted: dict[str, int]) -> None:
    wanted = {k: n for k, n in wanted.items() if any(k in z for z in zones)}
    at = lowest(zones, wanted)
    for k, n in wanted.items():
        for i, zone in enumerate(zones):
            if at is None or i == at:
                taken = min(zone.get(k, 0), n)
                if k in zone:
                    zone[k] -= taken
                n -= taken


@settings(max_examples=examples(80), deadline=None)
@for_all(EVENTS)
def test_alignment_says_what_the_rules_say_of_every_node(events):
    state = then(begin(), *events)
    index = Numa.of(state)
    for name, what in state.shapes.items():
        answer = dict(index.filter(name)) if index.concerns(name) else {}
        for where, row in state.table.rows.items():
            fact = state.numa.get(where)
            expected = set()
            if what.qos and fact is not None and fact.policy == "single-numa-node" and fact.zones:
                whole, zones = zones_of(state, where)
                for uid in sorted((u for u, c in state.charges.items() if c.node == where), key=state.order_of):
                    for wanted in asked(state.shapes[state.pods[uid].fact.shape], whole)[1] if state.shapes[state.pods[uid].fact.shape].qos else ():
                        charge(zones, wanted)
                init, lasting = asked(what, whole)
                if any(lowest(zones, w) is None for w in init):
                    expected = {INIT_CONTAINER}
                else:
                    for wanted in lasting:
                        if lowest(zones, wanted) is None:
                            expected = {POD if whole else CONTAINER}
                            break
                        charge(zones, wanted)
            assert {reason for reason, rows in answer.items() if np.asarray(rows)[row]} == expected, (name, where)
