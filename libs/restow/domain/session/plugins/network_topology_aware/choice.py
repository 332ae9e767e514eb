"""In which blocks a gang is tried: the narrowest tier first; of one tier first those that hold most of its pods, of these the ones that hold the least
besides, so that large blocks stay whole."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.domain.fragmentation.fitting import times
from restow.domain.groups import Group
from restow.domain.network.blocks import NO_BLOCK, Blocks
from restow.domain.network.reach import Reach
from restow.domain.node_table import Vector
from restow.domain.occupants import stands_for
from restow.domain.predicates import only, static_mask
from restow.domain.reservation.reservation_affinity import ignores
from restow.domain.resources import GPU_MILLI
from restow.domain.session.framework import Within
from restow.domain.session.jobs import TOGETHER, Job
from restow.domain.session.plugins.network_topology_aware.groups import Groups
from restow.domain.session.reasons import REFRESH, REFRESHES, refusal_of
from restow.domain.session.session import Session

EVICTING = 8
"""Blocks that a gang tries to be placed in by evicting others, in one session; the others have their turn in the next ones (RULES G-17)."""

PodClass = tuple[ShapeId, NodeName]
"""Shape and pinned node: equal for pods that fit equally often on a row, as far as amounts go."""


class Choice:
    def __init__(self, session: Session, groups: Groups) -> None:
        self._session, self._groups = session, groups
        self._again = 0
        """How many were looked at that wait already, and of which nothing can be placed."""
        self._sums: dict[tuple[PodClass, Blocks, int], tuple[int | None, np.ndarray]] = {}
        self._fits: dict[PodClass, tuple[int | None, np.ndarray]] = {}

    def concerns(self, pod: PodObserved) -> bool:
        return self._groups.of(pod) is not None

    def near(self, pod: PodObserved, now: bool = False) -> np.ndarray | None:
        group = self._groups.of(pod)
        if group is None or not (rows := self._groups.others(group, stands_for(pod.pod), now)):
            return None
        blocks = self._groups.reach(group).blocks
        return blocks.near(rows, len(blocks.tiers))

    def inside(self, within: Within) -> np.ndarray:
        return self._groups.reach(within.group).blocks.inside(within.tier, within.number)

    def leave(self, pods: Iterable[PodUid]) -> None:
        self._groups.leave(set(pods))

    def _of(self, pods: Sequence[PodObserved]) -> Group | None:
        """Pods of one gang are of one group."""
        return self._groups.of(pods[0]) if pods else None

    def choices(self, job: Job, pods: Sequence[PodObserved], evicting: bool = False) -> Iterator[Within | None]:
        group = self._of(pods) if job.hold is None else None
        if group is None:
            # A hold of a move goes where it was promised; the rule says whether that is near enough.
            yield None
            return
        reach, rows = self._groups.reach(group), self._groups.rows(group)
        if evicting:
            yield from self._in_turn(list(self.freeable(job, pods)))
            return
        if rows:
            tiers = [(tier, np.array([number], np.int64)) for tier, number in reach.among(rows)]
        else:
            tiers = [(tier, reach.blocks.numbers(tier)) for tier in range(reach.top + 1)]
        found = False
        for tier, numbers in tiers:
            for number in self._holding(job, pods, reach, tier, numbers):
                found = True
                yield Within(group, tier, number)
        if not reach.hard:
            yield None
        elif not found and tiers and (best := self._best(pods, reach, *tiers[-1])) is not None and self._is_news(job, pods):
            # Nothing has capacity enough. It is tried for what it lacks there.
            yield Within(group, *best[1])

    def _is_news(self, job: Job, pods: Sequence[PodObserved]) -> bool:
        """Whether what it lacks is to be found out, and said; of those that wait already of a few a session, as of anybody (`reasons`)."""
        known = refusal_of(self._session.state, job)
        if known is None:
            return True
        if self._again >= REFRESHES or self._session.now - known.at < REFRESH or known.message == self.sentence(job, pods):
            return False
        self._again += 1
        return True

    def _holding(self, job: Job, pods: Sequence[PodObserved], reach: Reach, tier: int, numbers: np.ndarray) -> Iterator[int]:
        """Of these blocks those that have capacity for as many as the job needs, in order."""
        hold, all_in_all = self._counts(pods, reach, tier)
        if self._may_take_holds(pods):
            hold = np.full(len(hold), len(pods))
        need, ranks = max(job.need - job.ready, 1), reach.blocks.ranks(tier)
        able = numbers[hold[numbers] >= min(need, len(pods))]
        for at in np.lexsort((ranks[able], all_in_all[able], -hold[able])):
            yield int(able[at])

    def _may_take_holds(self, pods: Sequence[PodObserved]) -> bool:
        """Whether what is free may not be all that they can have."""
        offers = self._session.offers if self._session.handing_over else None
        return any((offers and (offers.own(pod) or offers.left_to(pod))) or ignores(pod) for pod in pods)

    def _counts(self, pods: Sequence[PodObserved], reach: Reach, tier: int) -> tuple[np.ndarray, np.ndarray]:
        """`(blocks,) int64` each: how many of these pods a block holds by amounts, each class for itself, and how many pods of these classes at all."""
        hold = all_in_all = np.zeros(len(reach.blocks.names[tier]), np.int64)
        for pod_class, many in Counter((pod.shape, pod.pinned_node) for pod in pods).items():
            sums = self._holds(pod_class, reach.blocks, tier)
            hold, all_in_all = hold + np.minimum(sums, many), all_in_all + sums
        return hold, all_in_all

    def _holds(self, pod_class: PodClass, blocks: Blocks, tier: int) -> np.ndarray:
        """`(blocks,) int64`: how many such pods each block of a tier holds as it is now."""
        key, charged = (pod_class, blocks, tier), self._session.charged
        known = self._sums.get(key)
        if known is None or charged is None or known[0] != charged:
            known = self._sums[key] = charged, blocks.sums(tier, self._fitting(pod_class))
        return known[1]

    def _fitting(self, pod_class: PodClass) -> np.ndarray:
        """`(nodes,) int64`: how many such pods fit on each row as it is now, by amounts."""
        session, charged = self._session, self._session.charged
        known = self._fits.get(pod_class)
        if known is None or charged is None or known[0] != charged:
            table = session.state.table
            known = self._fits[pod_class] = charged, _times(session, pod_class, table.free, table.device_free)
        return known[1]

    # -- where others give way ---------------------------------------------------------------------------------------

    def freeable(self, job: Job, pods: Sequence[PodObserved], most: np.ndarray | None = None) -> Iterator[Within | None]:
        """The widest blocks that it may be in, as in Volcano, and of these those that hold most of it already. Where some of it are placed, or it may be
        anywhere, no block needs to be chosen."""
        group = self._of(pods) if job.hold is None else None
        reach = None if group is None else self._groups.reach(group)
        if group is None or reach is None or self._groups.rows(group) or not reach.hard or reach.top == NO_BLOCK:
            yield None
            return
        for number in self._freeable(job, pods, reach, reach.top, reach.blocks.numbers(reach.top), most):
            yield Within(group, reach.top, number)

    def narrower(self, job: Job, pods: Sequence[PodObserved], most: np.ndarray) -> Iterator[Sequence[Within]]:
        group = self._of(pods) if job.hold is None else None
        if group is None:
            return
        reach, rows = self._groups.reach(group), self._groups.rows(group)
        around = {tier: np.array([number], np.int64) for tier, number in reach.among(rows)} if rows else None
        for tier in range(reach.top + (not reach.hard)):
            numbers = reach.blocks.numbers(tier) if around is None else around.get(tier)
            if numbers is not None:
                yield [Within(group, tier, number) for number in self._freeable(job, pods, reach, tier, numbers, most)]

    def _freeable(self, job: Job, pods: Sequence[PodObserved], reach: Reach, tier: int, numbers: np.ndarray, most: np.ndarray | None) -> list[int]:
        """Of these blocks those that would hold as many as the job needs, in order."""
        most, need = self._session.state.table.allocatable if most is None else most, max(job.need - job.ready, 1)
        able = np.zeros(len(reach.blocks.names[tier]), np.int64)
        for pod_class, many in Counter((pod.shape, pod.pinned_node) for pod in pods).items():
            able = able + np.minimum(reach.blocks.sums(tier, _times(self._session, pod_class, most, None)), many)
        hold, _ = self._counts(pods, reach, tier)
        numbers = numbers[able[numbers] >= min(need, len(pods))]
        return [int(number) for number in numbers[np.lexsort((reach.blocks.ranks(tier)[numbers], -hold[numbers]))]]

    def _in_turn(self, blocks: list[Within | None]) -> list[Within | None]:
        """Those whose turn it is in this session."""
        parts = -(-len(blocks) // EVICTING)
        if parts > 1:
            self._session.parts = max(self._session.parts, parts)
        first = self._session.turn % max(parts, 1) * EVICTING
        return blocks[first : first + EVICTING]

    # -- why it does not fit -----------------------------------------------------------------------------------------

    def _best(self, pods: Sequence[PodObserved], reach: Reach, tier: int, numbers: np.ndarray) -> tuple[int, tuple[int, int]] | None:
        """How many of it the block holds that holds most of it, of these, and which that is: its tier's place, and its number."""
        if not len(numbers):
            return None
        hold, ranks = self._counts(pods, reach, tier)[0], reach.blocks.ranks(tier)
        number = int(numbers[np.lexsort((ranks[numbers], -hold[numbers]))[0]])
        return int(hold[number]), (tier, number)

    def sentence(self, job: Job, pods: Sequence[PodObserved]) -> str:
        group = self._of(pods)
        if group is None or not (reach := self._groups.reach(group)).hard:
            return ""
        rows, top = self._groups.rows(group), reach.blocks.tiers[reach.top]
        what = f"{TOGETHER} {job.need} pods together in one block of tier {top.number} ({top.name})"
        counts = f"{job.ready} run, {len(job.tasks)} wait"
        if rows:
            found = reach.among(rows)
            if not found:
                return f"{what}; {counts}, and those that are there are in no such block together"
            best = self._best(pods, reach, found[-1][0], np.array([found[-1][1]], np.int64))
        else:
            best = self._best(pods, reach, reach.top, reach.blocks.numbers(reach.top))
        if best is None:
            return f"{what}; {counts}, and no node is in one"
        name = reach.blocks.describe(*best[1])[1]
        where = f"its block {name}" if rows else f"the best one, {name},"
        return f"{what}; {counts}; {where} has capacity for {best[0]} of them"


def _times(session: Session, pod_class: PodClass, free: np.ndarray, devices: np.ndarray | None) -> np.ndarray:
    """`(nodes,) int64`: how often such a pod fits into what is `free` `(nodes, resources)`, on nodes that take it at all; `devices` None where all are free."""
    state, (shape, pinned) = session.state, pod_class
    table, v = state.table, state.vectors[shape]
    able = static_mask(state, shape) & table.alive
    if pinned:
        able = able & only(state, pinned)
    if devices is None:
        v = Vector(v.items, None)
    return np.where(able, times(v, free, table.device_free, table.columns.get(GPU_MILLI, -1)), 0)
