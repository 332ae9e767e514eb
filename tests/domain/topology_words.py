"""Words for tests of host ports, affinity and spread: nodes with zones, who is out and why, and the slow and obvious
reading of kube-scheduler's rules."""

import math
from collections import defaultdict

import numpy as np
from domain.build import node

from restow.contracts import events as e
from restow.contracts.values import Expression, LabelSelector, PodTerm, Spread
from restow.domain.predicates import term_matches, tolerates
from restow.domain.state import ClusterState
from restow.domain.topology import Subject

HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
SKEWED = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"
PORTS = "node(s) didn't have free ports for the requested pod ports"


def zoned(name: str, zone: str | None = None, **more) -> e.NodeObserved:
    labels = {HOST: name} | ({ZONE: zone} if zone else {}) | more.pop("labels", {})
    return node(name, labels=labels, **more)


def named(state: ClusterState, failing) -> dict[str, set[str]]:
    """Which nodes each reason removes."""
    names = {}
    for reason, rows in failing:
        if found := {state.table.names[row] for row in np.flatnonzero(rows & state.table.alive)}:
            names[reason] = found
    return names


def sel(*expressions: Expression, **labels: str) -> LabelSelector:
    return LabelSelector(labels, expressions)


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
            p = state.pods[uid].fact
            self.there[uid] = (p.namespace, p.labels, p.shape, charge.node, state.pods[uid].live.deleting > 0)
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
                meant = self.about(t, Subject(namespace, labels, id), s.namespace, s.labels, True)
                if not t.weight and t.topology_key in here and meant:
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
        if wanted == LabelSelector():
            return 0
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
