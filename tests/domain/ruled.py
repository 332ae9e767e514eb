"""Small clusters of pods that have rules about each other, and what the scheduler would say of one more: each time a new state and a new
session, so that nothing of what planners keep is asked."""

import random

from domain.build import NOW, given, node, pod, replica_of, shape

from restow.contracts import events as e
from restow.contracts.values import HostPort, LabelSelector, PodTerm, Spread, Taint, Toleration
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
        fits = [name for name in nodes_of(facts) if may(facts, waiting, name)]
        if fits:
            facts.append(pod(f"p{i:02}", kind, chance.choice(fits), labels=labels, owner=replica_of(kind)))
    return given(*facts)


def nodes_of(facts: list[e.Event]) -> list[str]:
    return [fact.name for fact in facts if isinstance(fact, e.NodeObserved)]


def may(facts: list[e.Event], waiting: e.PodObserved, name: str) -> bool:
    """What a new session says of a pod that waits."""
    state = given(*facts, waiting)
    session = open_session(state, NOW, 1)
    try:
        return session.fits_at(waiting, state.table.rows[name], session.concerned(waiting))
    finally:
        session.close()
