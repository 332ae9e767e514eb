"""Inter-pod affinity and anti-affinity that is required, as kube-scheduler's InterPodAffinity decides it."""

from collections.abc import Iterable

import numpy as np

from restow.domain.topology.asker import Asker
from restow.domain.topology.domains import Count, Counted, Domains
from restow.domain.topology.label_classes import Carried, LabelClass, Matching

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def failing(asker: Asker, label_class: LabelClass, hits: Iterable[Carried]) -> list[tuple[str, np.ndarray]]:
    """(reason, `(nodes,) bool`), in kube-scheduler's order; a rule that fails nowhere may be left out."""
    found = unmet(asker, label_class)
    anti = _rows((domains, count.per_domain(domains)) for domains, count in asker.anti if count.rows)
    if anti is not None:
        found.append((ANTI_AFFINITY, anti))
    existing = _rows((c.domains, c.per_domain(c.domains)) for c in hits if not c.term.weight and c.rows)
    if existing is not None:
        found.append((EXISTING, existing))
    return found


def unmet(asker: Asker, label_class: LabelClass, counted: Counted = Count.per_domain) -> list[tuple[str, np.ndarray]]:
    """Of these only where nobody is whom it is to be near."""
    if asker.affinity is None:
        return []
    return [(AFFINITY, _unmet(asker.affinity, asker.affinity_domains, label_class, counted))]


def _unmet(count: Matching, keys: tuple[Domains, ...], label_class: LabelClass, counted: Counted) -> np.ndarray:
    """A node needs every term's topology key, and in each of its domains a pod that *all* terms are about. If there is no
    such pod in any domain, a pod that its own terms are about may be the first, wherever the keys are."""
    counts = [counted(count, domains, None) for domains in keys]
    if may_be_first(count, label_class, counts):
        return np.logical_or.reduce([domains.absent for domains in keys])
    met = (counts[0] > 0).take(keys[0].array)
    for domains, there in zip(keys[1:], counts[1:], strict=True):
        met &= (there > 0).take(domains.array)
    return ~met


def may_be_first(count: Matching, label_class: LabelClass, counts: list[np.ndarray]) -> bool:
    """Whether there is nobody to be near, and it may be the one whom others are near. `counts`: `(domains,) int64` for each key."""
    return count in label_class.matched and not any((counted > 0).any() for counted in counts)


def _rows(counts: Iterable[tuple[Domains, np.ndarray]]) -> np.ndarray | None:
    """`(nodes,) bool`: rows in a domain that has any; None where nothing is counted. Domains of one key are put together
    before they are spread over rows."""
    flags: dict[Domains, np.ndarray] = {}
    for domains, counted in counts:
        known = flags.get(domains)
        flags[domains] = counted > 0 if known is None else known | (counted > 0)
    rows = None
    for domains, flag in flags.items():
        here = flag.take(domains.array)
        rows = here if rows is None else rows | here
    return rows
