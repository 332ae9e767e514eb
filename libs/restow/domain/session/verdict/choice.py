"""How the chosen node compared with the others."""

import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.domain.predicates import only
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session
from restow.domain.session.verdict.values import Choice
from restow.domain.state import ClusterState


def choice(state: ClusterState, pod: PodUid, node: NodeName) -> Choice | None:
    """Of a pod that waits in this state and was placed on `node` next; None where that cannot be told any more. The state is
    that at the `read` of the commit: what the commit had placed before is not counted."""
    row = state.table.rows.get(node)
    if row is None or pod not in state.pods or not state.awaits_placement(pod):
        return None
    session = open_session(state, state.time, 1)
    try:
        scores, fits = _scores(session, pod)
    finally:
        session.close()
    others = np.flatnonzero(fits)
    others = others[others != row]
    if not len(others):
        return Choice(node, int(scores[row]), int(fits.sum()))
    rank = state.table.rank
    best = min(others.tolist(), key=lambda r: (-int(scores[r]), int(rank[r])))
    return Choice(node, int(scores[row]), int(fits.sum()), session.name(best), int(scores[best]))


def _scores(session: Session, uid: PodUid) -> tuple[np.ndarray, np.ndarray]:
    """`(nodes,) int64` and `(nodes,) bool`: the score of each row, and whether the pod fits there."""
    pod = session.state.pods[uid].fact
    keys = session.placer.keys(pod.shape)
    fits = keys >= 0
    if pod.pinned_node:
        fits &= only(session.state, pod.pinned_node)
    for rule in session.concerned(pod):
        for _, failing in rule.failing(pod):
            fits = fits & ~failing
    for scorer in session.extensions.dynamic:
        if scorer.concerns(pod) and (more := scorer.scores(pod, fits)) is not None:
            keys = keys + more * session.placer.unit
    return keys // session.placer.unit, fits
