"""Whatever happened, in whatever order: host ports, affinity and spread are what a slow and obvious reading of
kube-scheduler's rules says, and the index that followed every change answers like one that is built now."""

from random import Random

import numpy as np
import pytest
from domain.build import changed, given, node, pod, reservation, shape, then
from domain.topology_words import HOST, RACK, ZONE, World, named
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import (
    Expression,
    HostPort,
    LabelSelector,
    NodeTerm,
    PodTerm,
    Spread,
    Taint,
    Toleration,
)
from restow.domain import changes
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology, domains, index

NAMESPACES = ("a", "b", "c")


# -- any cluster -----------------------------------------------------------------------------------------------------


def any_labels(r: Random) -> dict[str, str]:
    return {k: r.choice("xy") for k in ("app", "rev") if r.random() < 0.7}


def any_selector(r: Random, keys=("app", "rev")):
    match r.randrange(6):
        case 0:
            return None
        case 1:
            return LabelSelector()
        case 2 | 3:
            return LabelSelector({r.choice(keys): r.choice("xy")})
        case _:
            operator = r.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            values = tuple(sorted(r.sample("xyz", r.randint(1, 2)))) if operator in ("In", "NotIn") else ()
            return LabelSelector({}, (Expression(r.choice(keys), operator, values),))


def some_keys(r: Random, selector) -> tuple[str, ...]:
    """The API refuses a key that the selector has, too."""
    used = {*selector.labels, *(x.key for x in selector.expressions)} if selector else set()
    return tuple(k for k in ("app", "rev") if k not in used and r.random() < 0.2)


def any_term(r: Random, weight: int) -> PodTerm:
    selector = any_selector(r)
    keys = some_keys(r, selector)
    same = tuple(k for k in keys if r.random() < 0.5)
    return PodTerm(
        r.choice((HOST, ZONE, ZONE, RACK)),
        selector,
        tuple(sorted(r.sample(NAMESPACES, r.choice((0, 0, 1, 2))))),
        any_selector(r, ("team",)) if r.random() < 0.4 else None,
        same,
        tuple(k for k in keys if k not in same),
        weight,
    )


def any_terms(r: Random) -> tuple[PodTerm, ...]:
    return tuple(any_term(r, r.choice((0, 0, 0, 1, 5, 100))) for _ in range(r.choice((0, 0, 1, 1, 2))))


def any_spread(r: Random) -> Spread:
    selector = any_selector(r)
    return Spread(
        r.choice((1, 1, 2)),
        r.choice((HOST, ZONE, ZONE, RACK)),
        r.choice(("DoNotSchedule", "ScheduleAnyway")),
        selector,
        r.choice((0, 0, 2, 4)),
        r.choice(("Honor", "Ignore")),
        r.choice(("Honor", "Ignore")),
        some_keys(r, selector),
    )


def any_shape(r: Random, id: str) -> e.ShapeDeclared:
    if r.random() < 0.2:
        return shape(id, cpu=1)
    ports = {HostPort(r.choice((80, 81)), r.choice(("TCP", "UDP")), r.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2")))}
    wanted = NodeTerm((Expression("disk", r.choice(("Exists", "DoesNotExist"))),))
    return shape(
        id,
        cpu=1,
        pod_affinity=any_terms(r),
        pod_anti_affinity=any_terms(r),
        spread=tuple(any_spread(r) for _ in range(r.choice((0, 1, 1, 2)))),
        host_ports=tuple(ports) if r.random() < 0.3 else (),
        node_selector={"disk": "ssd"} if r.random() < 0.2 else {},
        node_affinity=(wanted,) if r.random() < 0.2 else None,
        tolerations=(Toleration("t", "Exists"),) if r.random() < 0.3 else (),
    )


def any_node(r: Random, name: str) -> e.NodeObserved:
    labels = {ZONE: r.choice("12")} if r.random() < 0.85 else {}
    labels |= {RACK: r.choice("123")} if r.random() < 0.6 else {}
    labels |= {HOST: name} if r.random() < 0.9 else {}
    labels |= {"disk": r.choice(("ssd", "hdd"))} if r.random() < 0.5 else {}
    taints = (Taint("t", r.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))),) if r.random() < 0.3 else ()
    return node(name, labels=labels, taints=taints)


class Cluster:
    """Facts and decisions in any order. `extra` is what a session has added or (None) removed."""

    NODES = tuple(f"n{i}" for i in range(6))
    SHAPES = tuple(f"s{i}" for i in range(5))
    PODS = tuple(f"p{i}" for i in range(12))

    def __init__(self, r: Random) -> None:
        self.r = r
        self.state = given(
            [any_node(r, name) for name in self.NODES[:4]],
            [any_shape(r, id) for id in self.SHAPES],
            [e.NamespaceObserved(n, any_team(r)) for n in NAMESPACES[:2]],
        )
        self.extra: dict = {}
        for _ in range(4):
            self.step()

    def step(self) -> None:
        r, state = self.r, self.state
        names = list(state.nodes)
        match r.randrange(9):
            case 0:
                then(state, any_node(r, r.choice(self.NODES)))
            case 1 if len(names) > 2 and r.random() < 0.5:
                then(state, e.NodeGone(r.choice(names)))
            case 2:
                name = r.choice(NAMESPACES)
                gone = name in state.namespaces and r.random() < 0.3
                then(state, e.NamespaceGone(name) if gone else e.NamespaceObserved(name, any_team(r)))
            case 3 if state.pods:
                uid = r.choice(list(state.pods))
                then(state, e.PodGone(uid))
            case 4 if state.pods:
                uid = r.choice(list(state.pods))
                phase = r.choice(("Running", "Running", "Failed"))
                then(state, changed(uid, node=state.node_of(uid), phase=phase, deleting=r.choice((0, 9))))
            case 5:
                self.hold()
            case 6 if state.held_on:
                place = r.choice([place for held in state.held_on.values() for place in held])
                then(state, e.HoldReleased(*place, "Deleted"))
            case _:
                for _ in range(r.randint(1, 3)):
                    uid = r.choice(self.PODS)
                    known = state.fact_of(uid)
                    id = known.shape if known else r.choice(self.SHAPES)
                    on = (known and state.node_of(uid)) or r.choice((*names, None))
                    then(state, pod(uid, id, on, labels=any_labels(r), namespace=known.namespace if known else r.choice(NAMESPACES)))
        # The session's changes end with it.
        self.extra.clear()

    def hold(self) -> None:
        r, uid = self.r, f"r{len(self.state.reservations)}"
        fact = reservation(uid, ("t", 1, r.choice(self.SHAPES)), namespace=r.choice(("", *NAMESPACES)))
        spec = fact.spec
        task = type(spec.tasks[0])("t", 1, spec.tasks[0].shape, any_labels(r))
        fact = type(fact)(*(getattr(fact, f) if f != "spec" else type(spec)((task,), spec.owners) for f in fact.__struct_fields__))
        then(self.state, fact, e.ReservationAccepted(uid, 1, 1))
        then(self.state, e.HoldPlaced(uid, "t-0", r.choice(list(self.state.nodes))))

    def tentatively(self, topology: Topology) -> None:
        """A session places a pod, takes a placement back, or takes somebody away."""
        r, state = self.r, self.state
        match r.randrange(4):
            case 0 | 1:
                who, name = f"new{r.randrange(4)}", r.choice(list(state.nodes))
                one = any_subject(r, self)
                self.extra[who] = (one.namespace, one.labels, one.shape, name, False)
                topology.add(who, state.table.rows[name], one)
            case 2 if self.extra:
                who = r.choice(list(self.extra))
                del self.extra[who]
                topology.restore(who) if who in state.charges else topology.remove(who)
            case 3 if state.charges:
                who = r.choice(list(state.charges))
                self.extra[who] = None
                topology.remove(who)

    def world(self) -> World:
        world = World(self.state)
        world.there = {who: one for who, one in (world.there | self.extra).items() if one is not None}
        return world


def any_team(r: Random) -> dict[str, str]:
    return {"team": r.choice("xy")} if r.random() < 0.8 else {}


def any_subject(r: Random, cluster: Cluster) -> Subject:
    pinned = r.choice(cluster.NODES) if r.random() < 0.1 else ""
    return Subject(r.choice((*NAMESPACES, "")), any_labels(r), r.choice(cluster.SHAPES), pinned)


def scored(state: ClusterState, among: set[str], values) -> dict[str, int]:
    rows = state.table.rows
    return {n: 0 if values is None else int(values[rows[n]]) for n in among}


def check(cluster: Cluster, topology: Topology, subject: Subject) -> None:
    state, world = cluster.state, cluster.world()
    expected = world.ports(subject), world.spread(subject), world.affinity(subject)
    found = topology.ports(subject), topology.spread(subject), topology.affinity(subject)
    for wanted, got in zip(expected, found, strict=True):
        assert named(state, got) == wanted
    among = {n for n in state.nodes if cluster.r.random() < 0.8}
    rows = np.zeros(len(state.table.names), bool)
    rows[[state.table.rows[n] for n in among]] = True
    assert scored(state, among, topology.affinity_score(subject, rows)) == world.affinity_score(subject, among)
    assert scored(state, among, topology.spread_score(subject, rows)) == world.spread_score(subject, among)
    assert topology.requires(subject) or not expected[2]
    preferences = (*world.affinity_score(subject, among).values(), *world.spread_score(subject, among).values())
    assert topology.prefers(subject) or not any(preferences)
    assert topology.concerns(subject) or not any((*expected, *preferences))


@settings(max_examples=examples(150))
@for_all(st.randoms(use_true_random=False))
def test_every_answer_is_the_obvious_one_whatever_has_happened(r: Random):
    cluster = Cluster(r)
    for _ in range(r.randint(1, 8)):
        cluster.step()
        topology = Topology.of(cluster.state)
        for _ in range(r.randint(0, 5)):
            cluster.tentatively(topology)
            check(cluster, topology, any_subject(r, cluster))
        check(cluster, topology, any_subject(r, cluster))


@settings(max_examples=examples(60))
@for_all(st.randoms(use_true_random=False))
def test_subjects_with_one_key_are_treated_alike(r: Random):
    cluster = Cluster(r)
    topology = Topology.of(cluster.state)
    for _ in range(4):
        cluster.tentatively(topology)
    subjects = [any_subject(r, cluster) for _ in range(12)]
    keys, at = [topology.key(s) for s in subjects], topology.version
    among = cluster.state.table.alive
    answers: dict = {}
    for subject, key in zip(subjects, keys, strict=True):
        answer = (
            named(cluster.state, [*topology.ports(subject), *topology.spread(subject), *topology.affinity(subject)]),
            *(None if s is None else s.tolist() for s in (topology.affinity_score(subject, among), topology.spread_score(subject, among))),
        )
        if topology.version == at:
            assert answers.setdefault(key, answer) == answer


@pytest.mark.parametrize("seed", range(3))
def test_an_index_that_sweeps_and_rebuilds_all_the_time_answers_the_same(monkeypatch, seed):
    monkeypatch.setattr(changes, "KEPT", 2)
    monkeypatch.setattr(index, "SPARE", 2)
    monkeypatch.setattr(index, "VIEWS", 1)
    monkeypatch.setattr(domains, "FEW_ROWS", 0)
    monkeypatch.setattr(domains, "FEW_DOMAINS", 0)
    r = Random(seed)
    for _ in range(10):
        cluster = Cluster(r)
        for _ in range(8):
            cluster.step()
            topology = Topology.of(cluster.state)
            cluster.tentatively(topology)
            for _ in range(3):
                check(cluster, topology, any_subject(r, cluster))
