"""Plugin `nodeorder`: kube-scheduler's preferences among nodes that fit, each with its weight.

`imagelocality.weight` is read and has no effect: which images a node has is not among the facts.
"""

import msgspec
import numpy as np

from restow.contracts.events import PodObserved
from restow.domain.session.args import Arguments, weights_wrong
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.plugins.nodeorder.reserve_score import resource_scores
from restow.domain.session.plugins.nodeorder.resource_scores import NodeAffinity, Resources, TaintToleration
from restow.domain.session.session import Session


def _weight(name: str, default: int) -> int:
    return msgspec.field(name=name + ".weight", default=default)  # type: ignore[no-any-return]


class Args(Arguments, frozen=True):
    """Each score is 0 to 10 000 and counts so many times; 0 for never. The defaults are Volcano's."""

    node_affinity: int = _weight("nodeaffinity", 2)
    pod_affinity: int = _weight("podaffinity", 2)
    least_requested: int = _weight("leastrequested", 1)
    most_requested: int = _weight("mostrequested", 0)
    balanced_resource: int = _weight("balancedresource", 1)
    taint_toleration: int = _weight("tainttoleration", 3)
    image_locality: int = _weight("imagelocality", 1)
    pod_topology_spread: int = _weight("podtopologyspread", 2)

    def check(self) -> str:
        return weights_wrong(msgspec.to_builtins(self))


def open(session: Session, args: Args) -> None:
    score, state = session.extensions.score, session.state
    score("resourceNodeOrder", lambda pod: resource_scores(state.table, state.vectors[pod.shape]))
    if args.least_requested or args.most_requested or args.balanced_resource:
        score("nodeOrder", Resources(args.least_requested, args.most_requested, args.balanced_resource))
    if args.node_affinity:
        score("nodeOrder", NodeAffinity(args.node_affinity))
    if args.taint_toleration:
        score("nodeOrder", TaintToleration(args.taint_toleration))
    if args.pod_affinity or args.pod_topology_spread:
        session.other_pods = session.other_pods or OtherPods(session.state)
        score("nodeOrder", Neighbours(session.other_pods, args.pod_affinity, args.pod_topology_spread))


class Neighbours:
    """The preferences that depend on which pods run where: preferred inter-pod (anti-)affinity and soft topology spread, each 0 to
    SCALE, weighted and added up."""

    def __init__(self, others: OtherPods, affinity: int, spread: int) -> None:
        self._others, self._affinity, self._spread = others, affinity, spread
        self.active = not others.topology.idle

    def concerns(self, pod: PodObserved) -> bool:
        topology = self._others.topology
        return not topology.idle and topology.prefers(self._others.subject(pod))

    def scores(self, pod: PodObserved, among: np.ndarray) -> np.ndarray | None:
        topology, subject = self._others.topology, self._others.subject(pod)
        total: np.ndarray | None = None
        for weight, score in ((self._affinity, topology.affinity_score), (self._spread, topology.spread_score)):
            scores = score(subject, among) if weight else None
            if scores is not None:
                total = scores * weight if total is None else total + scores * weight
        return total
