"""Plugin `conformance`: what the cluster itself needs is never a victim: critical priority classes and kube-system."""

from collections.abc import Sequence

from restow.contracts.ids import PodUid
from restow.domain.session.plugins.conformance.args import Args
from restow.domain.session.run import Session

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
NAMESPACE = "kube-system"


def open(session: Session, args: Args) -> None:
    state = session.state

    def ordinary(claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        return [
            uid
            for uid in candidates
            if state.pods[uid].namespace != NAMESPACE and state.shapes[state.pods[uid].shape].priority_class not in CRITICAL
        ]

    session.extensions.add("preemptable", ordinary)
    session.extensions.add("reclaimable", ordinary)
