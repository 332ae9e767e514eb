"""Topology spread with DoNotSchedule, as kube-scheduler's PodTopologySpread decides it."""

import numpy as np

from restow.domain.topology.asker import Asker, Spreading
from restow.domain.topology.domains import Count, Counted
from restow.domain.topology.label_classes import LabelClass

SKEWED = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"


def failing(asker: Asker, label_class: LabelClass, counted: Counted = Count.per_domain) -> list[tuple[str, np.ndarray]]:
    """(reason, `(nodes,) bool`). No row is in both: a node fails for the first constraint that it does not meet."""
    skewed = missing = None
    for constraint in asker.hard:
        over = _over(constraint, label_class, counted).take(constraint.domains.array)
        absent = constraint.domains.absent
        if skewed is None or missing is None:
            skewed, missing = over, absent
            continue
        missing = missing | (absent & ~skewed)
        skewed = skewed | (over & ~missing)
    return [] if skewed is None or missing is None else [(SKEWED, skewed), (MISSING, missing)]


def breaks(constraint: Spreading, label_class: LabelClass, counts: np.ndarray, domain: int) -> bool:
    """Whether one more of those that it is about keeps a pod out of this domain that could be there now. `counts` are those of
    the others, `(domains,) int64`."""
    more = counts.copy()
    more[domain] += 1
    return not _too_many(constraint, label_class, counts)[domain] and bool(_too_many(constraint, label_class, more)[domain])


def _over(constraint: Spreading, label_class: LabelClass, counted: Counted) -> np.ndarray:
    return _too_many(constraint, label_class, counted(constraint.count, constraint.domains, constraint.eligible))


def _too_many(constraint: Spreading, label_class: LabelClass, counts: np.ndarray) -> np.ndarray:
    """`(domains,) bool`: where one more would make the skew too large. With fewer eligible domains than minDomains the
    global minimum is 0."""
    least = 0
    if constraint.eligible is not None:
        eligible = constraint.eligible.domains(constraint.domains)
        if len(eligible) >= max(constraint.min_domains, 1):
            least = int(counts.take(eligible).min())
    over: np.ndarray = counts > constraint.max_skew + least - constraint.is_about(label_class)
    over[0] = False
    return over
