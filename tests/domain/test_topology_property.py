"""Whatever happened, in whatever order: host ports, affinity and spread are what a slow and obvious reading of
kube-scheduler's rules says, and the index that followed every change answers like one that is built now."""

import math
from collections import defaultdict
from random import Random

import numpy as np
import pytest
from domain.build import changed, given, node, pod, reservation, shape, then
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
from restow.domain.predicates import term_matches, tolerates
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology

HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
NAMESPACES = ("a", "b", "c")
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
PORTS = "node(s) didn't have free ports for the requested pod ports"


# -- the slow and obvious reading ------------------------------------------------------------------------------------


def fits(selector, labels) -> bool:
    if selector is None:
        return False
    for key, value in selector.labels.items():
        if labels.get(key) != value:
            return False
    for x in selector.expressions:
        have = labels.get(x.key)
        good = {
            "In": have in x.values,
            "NotIn": have not in x.values,
            "Exists": have is not None,
            "DoesNotExist": have is None,
        }
        if not good[x.operator]:
            return False
    return True


def with_keys(selector, same, other, own):
    if selector is None:
        return None
    more = [Expression(k, "In", (own[k],)) for k in same if k in own]
    more += [Expression(k, "NotIn", (own[k],)) for k in other if k in own]
    return LabelSelector(selector.labels, selector.expressions + tuple(more))


class World:
    """`there` is who is where: uid → (namespace, labels, shape, node, terminating)."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.there = {}
        for uid, charge in state.charges.items():
            p = state.pods[uid]
            self.there[uid] = (p.namespace, p.labels, p.shape, charge.node, state.live[uid].deleting > 0)
        for name, held in state.held_on.items():
            for r, s in held:
                slot, record = state.slots[r][s], state.reservations[r]
                labels = next(t.labels for t in record.spec.tasks if t.name == slot.task)
                self.there[r, s] = (record.fact.namespace, labels, slot.shape, name, False)

    def of(self, id):
        return self.state.shapes[id]

    def about(self, term: PodTerm, owner: Subject, namespace, labels, arriving) -> bool:
        if not term.namespaces and term.namespace_selector is None:
            within = namespace == owner.namespace
        elif term.namespace_selector is None:
            within = namespace in term.namespaces
        else:
            known = self.state.namespaces.get(namespace)
            everything = term.namespace_selector == LabelSelector()
            chosen = fits(term.namespace_selector, known.labels if known else {}) and (known is not None or arriving)
            within = namespace in term.namespaces or everything or chosen
        return within and fits(with_keys(term.selector, term.match_label_keys, term.mismatch_label_keys, owner.labels), labels)

    def affinity(self, s: Subject) -> dict[str, set[str]]:
        failing = defaultdict(set)
        mine = self.of(s.shape)
        required = [t for t in mine.pod_affinity if not t.weight]
        anti = [t for t in mine.pod_anti_affinity if not t.weight]
        nodes = self.state.nodes
        pairs, against, refused = set(), set(), set()
        for namespace, labels, id, name, _ in self.there.values():
            here = nodes[name].labels
            if required and all(self.about(t, s, namespace, labels, False) for t in required):
                pairs |= {(t.topology_key, here[t.topology_key]) for t in required if t.topology_key in here}
            for t in anti:
                if t.topology_key in here and self.about(t, s, namespace, labels, False):
                    against.add((t.topology_key, here[t.topology_key]))
            for t in self.of(id).pod_anti_affinity:
                if not t.weight and t.topology_key in here:
                    if self.about(t, Subject(namespace, labels, id), s.namespace, s.labels, True):
                        refused.add((t.topology_key, here[t.topology_key]))
        for name, n in nodes.items():
            if required:
                keys = all(t.topology_key in n.labels for t in required)
                met = keys and all((t.topology_key, n.labels[t.topology_key]) in pairs for t in required)
                first = not pairs and all(self.about(t, s, s.namespace, s.labels, False) for t in required)
                if not (met or (keys and first)):
                    failing[AFFINITY].add(name)
            if set(n.labels.items()) & against:
                failing[ANTI].add(name)
            if set(n.labels.items()) & refused:
                failing[EXISTING].add(name)
        return failing

    def counts_on(self, s: Subject, c: Spread, together, n) -> bool:
        mine = self.of(s.shape)
        if any(o.topology_key not in n.labels for o in together):
            return False
        if c.node_affinity_policy == "Honor":
            if any(n.labels.get(k) != v for k, v in mine.node_selector.items()):
                return False
            if mine.node_affinity is not None and not any(term_matches(t, n) for t in mine.node_affinity):
                return False
            if s.pinned and n.name != s.pinned:
                return False
        bad = [t for t in n.taints if t.effect != "PreferNoSchedule" and not tolerates(mine.tolerations, t)]
        return c.node_taints_policy != "Honor" or not bad

    def matching(self, s: Subject, c: Spread, name) -> int:
        wanted = with_keys(c.selector, c.match_label_keys, (), s.labels)
        return sum(
            at == name and namespace == s.namespace and not leaving and fits(wanted, labels)
            for namespace, labels, _, at, leaving in self.there.values()
        )

    def per_domain(self, s: Subject, c: Spread, together) -> dict[str, int]:
        found = defaultdict(int)
        for n in self.state.nodes.values():
            if self.counts_on(s, c, together, n):
                found[n.labels[c.topology_key]] += self.matching(s, c, n.name)
        return found

    def spread(self, s: Subject) -> dict[str, set[str]]:
        failing = defaultdict(set)
        hard = [c for c in self.of(s.shape).spread if c.when_unsatisfiable == "DoNotSchedule"]
        counted = [self.per_domain(s, c, hard) for c in hard]
        for name, n in self.state.nodes.items():
            for c, domains in zip(hard, counted, strict=True):
                if c.topology_key not in n.labels:
                    failing[MISSING].add(name)
                    break
                least = min(domains.values()) if len(domains) >= max(1, c.min_domains) else 0
                own = fits(with_keys(c.selector, c.match_label_keys, (), s.labels), s.labels)
                if domains.get(n.labels[c.topology_key], 0) + own - least > c.max_skew:
                    failing[SKEWED].add(name)
                    break
        return failing

    def ports(self, s: Subject) -> dict[str, set[str]]:
        failing = defaultdict(set)
        for want in self.of(s.shape).host_ports:
            for _, _, id, name, _ in self.there.values():
                for got in self.of(id).host_ports:
                    meets = want.ip == got.ip or "0.0.0.0" in (want.ip, got.ip)
                    if meets and (want.port, want.protocol) == (got.port, got.protocol):
                        failing[PORTS].add(name)
        return failing

    def affinity_score(self, s: Subject, among: set[str]) -> dict[str, int]:
        nodes, mine, raw = self.state.nodes, self.of(s.shape), defaultdict(int)
        for namespace, labels, id, name, _ in self.there.values():
            here, other, them = nodes[name].labels, self.of(id), Subject(namespace, labels, id)
            terms = [(t, t.weight) for t in mine.pod_affinity if t.weight and self.about(t, s, namespace, labels, False)]
            terms += [(t, -t.weight) for t in mine.pod_anti_affinity if t.weight and self.about(t, s, namespace, labels, False)]
            terms += [(t, t.weight or 1) for t in other.pod_affinity if self.about(t, them, s.namespace, s.labels, True)]
            terms += [
                (t, -t.weight) for t in other.pod_anti_affinity if t.weight and self.about(t, them, s.namespace, s.labels, True)
            ]
            for t, weight in terms:
                for n in among:
                    if t.topology_key in here and nodes[n].labels.get(t.topology_key) == here[t.topology_key]:
                        raw[n] += weight
        low, high = min((raw[n] for n in among), default=0), max((raw[n] for n in among), default=0)
        return {n: (raw[n] - low) * 10_000 // (high - low) if high > low else 0 for n in among}

    def spread_score(self, s: Subject, among: set[str]) -> dict[str, int]:
        nodes = self.state.nodes
        soft = [c for c in self.of(s.shape).spread if c.when_unsatisfiable == "ScheduleAnyway"]
        scored = {n for n in among if soft and all(c.topology_key in nodes[n].labels for c in soft)}
        raw = dict.fromkeys(scored, 0.0)
        for c in soft:
            sizes = {nodes[n].labels[c.topology_key] for n in scored} if c.topology_key != HOST else scored
            domains = self.per_domain(s, c, soft)
            for n in scored:
                count = self.matching(s, c, n) if c.topology_key == HOST else domains[nodes[n].labels[c.topology_key]]
                raw[n] += count * math.log(len(sizes) + 2) + c.max_skew - 1
        rounded = {n: math.floor(v + 0.5) for n, v in raw.items()}
        low, high = min(rounded.values(), default=0), max(rounded.values(), default=0)
        scores = {n: 10_000 * (high + low - v) // high if high else 10_000 for n, v in rounded.items()}
        return {n: scores.get(n, 0) for n in among}


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
                    known = state.pods.get(uid)
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


def named(state: ClusterState, failing) -> dict[str, set[str]]:
    names = {}
    for reason, rows in failing:
        found = {state.table.names[row] for row in np.flatnonzero(rows & state.table.alive)}
        if found:
            names[reason] = found
    return names


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
    if not topology.concerns(subject):
        assert not any(expected)
        assert not any(world.affinity_score(subject, among).values())


@settings(max_examples=150)
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


@settings(max_examples=60)
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
    from restow.domain.topology import domains, index

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
