"""Every move of an optimizing plan is one that the scheduler would make: after the moves before it, by all its rules."""

import random

import msgspec
from domain.build import NOW, given, node, pod, replica_of, shape
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import HostPort, LabelSelector, PodTerm, Spread, Taint, Toleration
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.session.registry import open_session
from restow.domain.state import ClusterState

HOST, ZONE = "kubernetes.io/hostname", "zone"
X, Y = LabelSelector({"app": "x"}), LabelSelector({"app": "y"})
KINDS = {
    "plain": {},
    "apart": {"pod_anti_affinity": (PodTerm(HOST, X),)},
    "spread": {"spread": (Spread(1, ZONE, "DoNotSchedule", X),)},
    "near": {"pod_affinity": (PodTerm(ZONE, Y),)},
    "port": {"host_ports": (HostPort(80),)},
    "zone": {"node_selector": {ZONE: "0"}},
    "taint": {"tolerations": (Toleration("only", "Exists"),)},
}
ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={}, searchSteps=800)


def cluster(seed: int) -> ClusterState:
    """Placed by the scheduler's rules one after another, on nodes at random."""
    chance = random.Random(seed)
    facts: list[e.Event] = []
    for i in range(chance.randint(3, 6)):
        taints = (Taint("only", "NoSchedule"),) if not chance.randrange(5) else ()
        facts.append(node(f"n{i}", cpu=4_000, labels={HOST: f"n{i}", ZONE: str(i % 2)}, taints=taints))
    facts += [shape(kind, cpu=chance.choice([500, 1_000]), **rules) for kind, rules in KINDS.items()]
    for i in range(chance.randint(4, 14)):
        kind, labels = chance.choice(sorted(KINDS)), {"app": chance.choice("xy")}
        waiting = pod(f"p{i:02}", kind, labels=labels, owner=replica_of(kind))
        fits = [name for name in _nodes(facts) if may(facts, waiting, name)]
        if fits:
            facts.append(pod(f"p{i:02}", kind, chance.choice(fits), labels=labels, owner=replica_of(kind)))
    return given(*facts)


def _nodes(facts: list[e.Event]) -> list[str]:
    return [fact.name for fact in facts if isinstance(fact, e.NodeObserved)]


def may(facts: list[e.Event], waiting: e.PodObserved, name: str) -> bool:
    """What a new session says of a pod that waits."""
    state = given(*facts, waiting)
    session = open_session(state, NOW, 1)
    try:
        return session.fits_at(waiting, state.table.rows[name], session.concerned(waiting))
    finally:
        session.close()


@settings(max_examples=60, deadline=None)
@any_of(st.integers(0, 100_000), st.booleans())
def test_the_scheduler_would_make_each_move(seed, swaps):
    state = cluster(seed)
    plan = defragmentation.plan(state, msgspec.structs.replace(ARGS, swaps=swaps), NOW, "p")
    pods = {uid: state.pods[uid] for uid in state.pods}
    rest = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
    of = {move.migration: move.pod for move in plan.moves}
    done: set[str] = set()
    for move in plan.moves:
        uid = move.pod or of[move.follows]
        assert set(move.after) <= done, "the order of the moves is one that their `after` permits"
        here = [fact for other, fact in pods.items() if other != uid]
        if not move.swap:
            successor = msgspec.structs.replace(pods[uid], node=None, phase="Pending", ready=False)
            assert may([*rest, *here], successor, move.target), move
        pods[uid] = msgspec.structs.replace(pods[uid], node=move.target)
        done.add(move.migration)
