"""What one sort of pod asks, with the counts that answer it."""

import msgspec

from restow.domain.topology.domains import Domains, Eligible
from restow.domain.topology.label_classes import LabelClass, Matching


class Spreading(msgspec.Struct, frozen=True, eq=False):
    """A spread constraint. `count` is of those that it is about; on `eligible` nodes they count. Of a soft one over
    hostnames `domains` are the rows themselves, and all nodes count, as in kube-scheduler. One with an `empty` selector is about nobody but the
    pod itself."""

    max_skew: int
    min_domains: int
    domains: Domains
    eligible: Eligible | None
    count: Matching
    empty: bool = False

    def is_about(self, label_class: LabelClass) -> bool:
        """Whether such a pod counts itself where it comes to."""
        return self.empty or self.count in label_class.matched


class Asker(msgspec.Struct, frozen=True, eq=False):
    """`affinity` counts those that all required terms are about, None without such terms; per (anti-)affinity term its
    domains, count and weight."""

    affinity: Matching | None = None
    affinity_domains: tuple[Domains, ...] = ()
    anti: tuple[tuple[Domains, Matching], ...] = ()
    preferred: tuple[tuple[int, Domains, Matching], ...] = ()
    hard: tuple[Spreading, ...] = ()
    soft: tuple[Spreading, ...] = ()
    soft_keys: tuple[Domains, ...] = ()

    @property
    def counts(self) -> tuple[Matching, ...]:
        """All that it reads."""
        own = (self.affinity,) if self.affinity is not None else ()
        return (
            *own,
            *(count for _, count in self.anti),
            *(count for _, _, count in self.preferred),
            *(s.count for s in (*self.hard, *self.soft)),
        )
