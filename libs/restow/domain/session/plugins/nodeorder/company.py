"""The preferences that depend on which pods run where: preferred inter-pod (anti-)affinity and soft topology spread."""

import numpy as np

from restow.contracts.events import PodObserved
from restow.domain.session.plugins.predicates.filters import Company


class Neighbours:
    """Weighted sum of both scores, each 0 to SCALE."""

    def __init__(self, company: Company, affinity: int, spread: int) -> None:
        self._company, self._affinity, self._spread = company, affinity, spread
        self.active = not company.topology.idle

    def concerns(self, pod: PodObserved) -> bool:
        topology = self._company.topology
        return not topology.idle and topology.prefers(self._company.subject(pod))

    def scores(self, pod: PodObserved, among: np.ndarray) -> np.ndarray | None:
        topology, subject = self._company.topology, self._company.subject(pod)
        total: np.ndarray | None = None
        for weight, score in ((self._affinity, topology.affinity_score), (self._spread, topology.spread_score)):
            scores = score(subject, among) if weight else None
            if scores is not None:
                total = scores * weight if total is None else total + scores * weight
        return total
