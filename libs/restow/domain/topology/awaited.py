"""Where one more pod would keep out who is to come to a slot that is held: by its topology spread, or by an affinity of which it
would be the first. (Anti-affinity and host ports need nothing here: a slot that is held counts as a pod that has them.)"""

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from restow.domain.topology import affinity, spread
from restow.domain.topology.asker import Asker, Spreading
from restow.domain.topology.domains import Domains, Eligible
from restow.domain.topology.index import Occupant
from restow.domain.topology.label_classes import Matching


def counts(asker: Asker, of_spread: bool, of_affinity: bool) -> Iterator[Matching]:
    """Nobody else than whom these are about keeps it out."""
    if of_spread:
        yield from (constraint.count for constraint in asker.hard)
    if of_affinity and asker.affinity is not None:
        yield asker.affinity


def like(asker: Asker, occupant: Occupant) -> Hashable:
    """Equal for occupants that make no difference to who is kept out."""
    spreads = ((s.domains.ids[occupant.row], s.eligible is None or s.eligible.ids[occupant.row]) for s in asker.hard)
    return occupant.label_class, occupant.leaving, *spreads, *(domains.ids[occupant.row] for domains in asker.affinity_domains)


class Around(NamedTuple):
    """Who else is there when a successor comes to its slot: of those who are counted now not `gone`, whose first is the slot itself; those who are
    `overlooked` just now; and of those who are `leaving`, among them these, perhaps some."""

    gone: list[Occupant]
    overlooked: list[Occupant]
    leaving: list[Occupant]

    def counts(self, count: Matching, domains: Domains, eligible: Eligible | None, leavers: list[Occupant]) -> np.ndarray:
        """`(domains,) int64`: where these have left, too."""
        found = count.per_domain(domains, eligible).copy()
        for some, sign in ((self.overlooked, 1), (self.gone, -1), (leavers, -1)):
            for one in some:
                if count in one.label_class.matched and not (one.leaving and count.live) and (eligible is None or eligible.ids[one.row]):
                    found[domains.ids[one.row]] += sign
        found[0] = 0
        return found


def closed(asker: Asker, around: Around, about: Iterable[Matching]) -> Iterator[np.ndarray]:
    """`(nodes,) bool`: where no more may come of those that these counts are `about`."""
    about = set(about)
    for constraint in asker.hard:
        if constraint.count in about and (rows := _skewed(constraint, around)) is not None:
            yield rows
    if asker.affinity in about and (rows := _led_away(asker, around)) is not None:
        yield rows


def _skewed(constraint: Spreading, around: Around) -> np.ndarray | None:
    """Eligible nodes of its domain."""
    domains, eligible, count, slot = constraint.domains, constraint.eligible, constraint.count, around.gone[0]
    domain, leaving = domains.ids[slot.row], around.leaving
    # Who leaves its own domain only helps; at worst the others leave alone.
    far = [one for one in leaving if domains.ids[one.row] != domain]
    for some in (leaving, far, []) if leaving else ([],):
        left = around.counts(count, domains, eligible, some)
        if domain and spread.breaks(constraint, slot.label_class, left, domain):
            rows: np.ndarray = domains.array == domain
            return rows if eligible is None else rows & eligible.array
    return None


def _led_away(asker: Asker, around: Around) -> np.ndarray | None:
    """Nodes that are in another domain than it, where it is to be the first whom others are near."""
    assert asker.affinity is not None, "it has required terms"
    slot = around.gone[0]
    left = [around.counts(asker.affinity, domains, None, around.leaving) for domains in asker.affinity_domains]
    if not affinity.may_be_first(asker.affinity, slot.label_class, left):
        return None
    rows = np.zeros(len(asker.affinity_domains[0].array), bool)
    beside = ~rows
    for domains in asker.affinity_domains:
        rows = rows | ~domains.absent
        beside = beside & (domains.array == domains.ids[slot.row])
    return rows & ~beside
