"""Which nodes a pod of a group may be on so that all of it is near to each other, and which of them are nearest to those that are there."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.domain.groups import Group
from restow.domain.network.blocks import NO_BLOCK
from restow.domain.occupants import Who
from restow.domain.session.framework import Filter, Within
from restow.domain.session.plugins.network_topology_aware.groups import Groups
from restow.domain.session.scoring import SCALE
from restow.domain.session.session import Session

OUTSIDE = "node(s) outside the network block of the gang"


class Near(Filter):
    """A hard group stays in the widest block that it may be in around those of it that are there. A gang that is tried in one block stays in that."""

    stage, lasting = "network", True

    def __init__(self, session: Session, groups: Groups) -> None:
        self._session, self._groups = session, groups
        self._masks: dict[Hashable, np.ndarray] = {}

    def concerns(self, pod: PodObserved) -> bool:
        group = self._groups.of(pod)
        return group is not None and (self._tried_in(group) is not None or self._groups.reach(group).hard)

    def _tried_in(self, group: Group) -> Within | None:
        within = self._session.within
        return within if within is not None and within.group == group else None

    def _about(self, pod: PodObserved) -> tuple[int, tuple[int, int] | None]:
        """The blocks by the place of the widest tier, and the one of them that it is kept to (its tier's place, and its number): none, where nobody is
        there yet."""
        group = self._groups.of(pod)
        assert group is not None, "it concerns the pod"
        reach, rows = self._groups.reach(group), self._groups.rows(group)
        if (within := self._tried_in(group)) is not None:
            return reach.top, within[1:]
        if not rows:
            return reach.top, None
        found = reach.among(rows)
        return reach.top, found[-1] if found else NOWHERE

    def key(self, pod: PodObserved) -> Hashable:
        return self._groups.of(pod), self._about(pod)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        group, about = self._groups.of(pod), self._about(pod)
        assert group is not None, "it concerns the pod"
        blocks, (top, kept_to) = self._groups.reach(group).blocks, about
        known = self._masks.get(key := (id(blocks), about))
        if known is None:
            if kept_to is not None:
                mask = blocks.inside(*kept_to)
            else:
                mask = (blocks.at[: top + 1] != NO_BLOCK).any(axis=0)
            known = self._masks[key] = ~mask
        return ((OUTSIDE, known),)

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        self._groups.come(pod, row)

    def removed(self, pod: PodObserved, row: int) -> None:
        self._groups.go(pod)

    def vacated(self, who: Who) -> None:
        if not isinstance(who, str):
            self._groups.gave_up(who, -1)

    def restored(self, who: Who) -> None:
        if not isinstance(who, str):
            self._groups.gave_up(who, 1)


NOWHERE = 0, NO_BLOCK - 1
"""The block of those that are in no block together."""


class Nearest:
    """For a node that is in a block with a member of the group the more points the narrower that is; the mean over all members."""

    active = True

    def __init__(self, session: Session, groups: Groups, weight: int) -> None:
        self._session, self._groups, self._weight = session, groups, weight

    def concerns(self, pod: PodObserved) -> bool:
        group = self._groups.of(pod)
        return group is not None and self._weight > 0 and bool(self._groups.rows(group))

    def scores(self, pod: PodObserved, among: np.ndarray) -> np.ndarray | None:
        group = self._groups.of(pod)
        assert group is not None, "it concerns the pod"
        blocks, rows, within = self._groups.reach(group).blocks, self._groups.rows(group), self._session.within
        tiers = len(blocks.tiers) if within is None or within.group != group else within.tier
        if not tiers:
            return None
        return blocks.near(rows, tiers) * (SCALE * self._weight) // (len(rows) * len(blocks.tiers))
