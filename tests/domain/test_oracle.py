"""Placement equals a slow and obvious scheduler: same node, same devices, same pods left over, same counts of reasons.

The oracle shares nothing with the session but the words of the contract: plain dicts, one node after another.
"""

from dataclasses import dataclass, field

from domain.build import GPU, NOW, configured, given, node, pod, run, shape
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, Taint, Toleration
from restow.domain import config, session

TAINT = Taint("team", "NoSchedule", "a")


@dataclass
class Machine:
    fact: e.NodeObserved
    free: dict = field(default_factory=dict)
    devices: list = field(default_factory=list)

    def reason(self, want) -> str:
        """Why not, by rules about the node; room aside."""
        if not self.fact.ready:
            return "node(s) were not ready"
        if self.fact.unschedulable:
            return "node(s) were unschedulable"
        if self.fact.taints and not want.tolerations:
            return "node(s) had untolerated taint {team: a}"
        if any(self.fact.labels.get(k) != v for k, v in want.node_selector.items()):
            return "node(s) didn't match Pod's node affinity/selector"
        return ""

    def lacks(self, want) -> list[str]:
        short = []
        for resource, amount in want.requests.items():
            if amount and resource != GPU and self.free.get(resource, 0) < amount:
                short.append("Too many pods" if resource == "pods" else f"Insufficient {resource}")
        if want.devices and self.pick(want.devices) is None:
            short.append("Insufficient gpu")
        return short

    def pick(self, ask: DeviceRequest):
        able = sorted((share, i) for i, share in enumerate(self.devices) if share >= ask.milli)
        return sorted(i for _, i in able[: ask.count]) if len(able) >= ask.count else None

    def score(self, want, name: str) -> int:
        total = weights = 0
        for resource, weight in (("cpu", 1), ("memory", 1), (GPU, 2)):
            have = self.fact.allocatable.get(resource, 0)
            if not have or (resource == GPU and not want.devices):
                continue
            share = max(self.free.get(resource, 0) - want.requests.get(resource, 0), 0) * 10_000 // have
            total += weight * (share if name == "leastAllocated" else 10_000 - share)
            weights += weight
        return total // max(weights, 1)


def oracle(nodes, shapes, pods, score):
    machines = [Machine(n, dict(n.allocatable), [1000] * n.devices) for n in nodes]
    placed, waiting = {}, {}
    order = sorted(range(len(pods)), key=lambda i: (-shapes[pods[i].shape].priority, i))
    for i in order:
        want = shapes[pods[i].shape]
        able = [m for m in machines if not m.reason(want) and not m.lacks(want)]
        if not able:
            waiting.setdefault(pods[i].shape, []).append(pods[i].pod)
            continue
        best = min(able, key=lambda m: (-m.score(want, score), m.fact.name))
        chosen = best.pick(want.devices) if want.devices else []
        for resource, amount in want.requests.items():
            best.free[resource] = best.free.get(resource, 0) - amount
        for index in chosen:
            best.devices[index] -= want.devices.milli
        placed[pods[i].pod] = (best.fact.name, tuple(chosen))
    counts = {}
    for name in waiting:
        reasons: dict[str, int] = {}
        for m in machines:
            first = m.reason(shapes[name])
            for reason in [first] if first else m.lacks(shapes[name]):
                reasons[reason] = reasons.get(reason, 0) + 1
        counts[name] = reasons
    return placed, waiting, counts


nodes = st.lists(
    st.builds(
        dict,
        cpu=st.integers(1, 6).map(lambda n: n * 500),
        memory=st.integers(1, 6),
        gpus=st.integers(0, 3),
        pods=st.sampled_from([2, 110]),
        ready=st.sampled_from([True, True, True, False]),
        unschedulable=st.sampled_from([False, False, False, True]),
        taints=st.sampled_from([(), (), (TAINT,)]),
        labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}]),
    ),
    min_size=1,
    max_size=7,
)
shapes = st.lists(
    st.builds(
        dict,
        cpu=st.integers(0, 4).map(lambda n: n * 300),
        memory=st.integers(0, 3),
        gpu=st.sampled_from([None, (1, 1000), (1, 400), (1, 700), (2, 1000), (2, 500)]),
        priority=st.sampled_from([0, 0, 5]),
        tolerations=st.sampled_from([(), (Toleration("team", "Exists"),)]),
        node_selector=st.sampled_from([{}, {}, {"zone": "a"}]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@for_all(nodes, shapes, st.lists(st.integers(0, 4), min_size=1, max_size=25), st.sampled_from(["leastAllocated", "binpack"]), st.randoms())
def test_the_session_places_as_the_oracle_does(machines, kinds, asked, score, order):
    names = [f"n{i}" for i in range(len(machines))]
    order.shuffle(names)
    observed = [node(name, **m) for name, m in zip(names, machines, strict=True)]
    declared = {f"s{i}": shape(f"s{i}", **s) for i, s in enumerate(kinds)}
    pods = [pod(f"p{i}", f"s{k % len(kinds)}") for i, k in enumerate(asked)]
    state = given(configured("session", config.SessionConfig(score=score)), observed, declared.values(), pods)
    events = run(state, session.decider, c.Schedule(NOW))
    placed, waiting, counts = oracle(observed, {k: d.spec for k, d in declared.items()}, pods, score)
    assert {x.pod: (x.node, tuple(d.index for d in x.devices)) for x in events if isinstance(x, e.PodPlaced)} == placed
    assert {x.shape: list(x.pods) for x in events if isinstance(x, e.Unfit)} == waiting
    assert {x.shape: x.reasons for x in events if isinstance(x, e.Unfit)} == counts


@settings(max_examples=40, deadline=None)
@for_all(nodes, shapes, st.lists(st.integers(0, 4), min_size=2, max_size=20), st.integers(1, 5))
def test_small_sessions_lead_to_the_same_placements_as_one_big_one(machines, kinds, asked, limit):
    """With equal priorities: a limit only cuts the queue, it does not change who comes first."""
    observed = [node(f"n{i}", **m) for i, m in enumerate(machines)]
    declared = [shape(f"s{i}", **{**s, "priority": 0}) for i, s in enumerate(kinds)]
    pods = [pod(f"p{i}", f"s{k % len(kinds)}") for i, k in enumerate(asked)]
    whole = given(observed, declared, pods)
    parts = given(observed, declared, pods)
    run(whole, session.decider, c.Schedule(NOW))
    for _ in range(len(asked) + 1):
        run(parts, session.decider, c.Schedule(NOW, limit))
    assert {p: x.node for p, x in parts.placed.items()} == {p: x.node for p, x in whole.placed.items()}
