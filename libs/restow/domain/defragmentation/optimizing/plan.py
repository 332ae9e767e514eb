"""The optimizing plan: searched for in one world, put in order in another, judged by what it gains as ordered, and carried on until
nothing more is found."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.classify import COOLDOWN, CRITICAL_NODE
from restow.domain.defragmentation.evictable import MEANING
from restow.domain.defragmentation.optimizing.choices import loads_on
from restow.domain.defragmentation.optimizing.improve import improve, prune
from restow.domain.defragmentation.optimizing.landing import Landing
from restow.domain.defragmentation.optimizing.opened import NOT_OPEN, OWED, Rows, opened
from restow.domain.defragmentation.optimizing.order import Ordered, Sequence, following
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.settle import NOWHERE, Ends, Found, settle
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.outcome import planned
from restow.domain.defragmentation.scope import EVERYTHING, Scope, word
from restow.domain.defragmentation.scope import MEANING as OF_SCOPE
from restow.domain.defragmentation.simulation import Spot
from restow.domain.state import ClusterState

NO_TARGET, NO_GAIN, LIMIT, STEPS = "NoTarget", "NoGain", "Limit", "SearchSteps"
OFTEN = 4
"""Times that moves are put in order, while some find none."""

SENTENCES = MEANING | OF_SCOPE | {
    NO_GAIN: "moving it would gain nothing that is worth it",
    STEPS: "searchSteps were used up before it was its turn",
    CRITICAL_NODE: "its node has the label critical=true",
    COOLDOWN: "its node had migrations within coolDownTime",
    NOT_OPEN: "its node is not ready, or cordoned",
    OWED: "what becomes free on its node is promised to others",
}

Stays = Callable[[PodUid, NodeName, str, str], None]
"""Is told of each pod that stays: its node, the verdict, and more about it."""


def plan(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, stays: Stays | None = None,
    scope: Scope = EVERYTHING,
) -> Planned:  # fmt: skip
    """The plan as a value; the state stays as it is. Raises ArgsError."""
    rows = Rows(state, args, time, scope)
    limits = Limits(max_moves, args.minimumGain, args.searchSteps, args.wholeNodes, scope.quota)
    maker = _Maker(state, args, time, plan_id, rows, limits)
    search = maker.searched(args.searchSteps, NOWHERE)
    steps, wanted = search.world.steps, {uid: spot.row for uid, spot in search.world.away.items()}
    ordered = maker.order(wanted, NOWHERE)
    if not (search.full or search.bounded):
        ordered, more = settle(maker, ordered, args.searchSteps - steps)
        steps += more
    kept = Counter[str]()

    def stay(uid: PodUid, node: NodeName, verdict: str, more: str) -> None:
        kept[verdict] += 1
        if stays is not None:
            stays(uid, node, verdict, more)

    _tell(search, rows, ordered, stay)
    return planned(state, plan_id, ordered.moves, ordered.ends, kept, planner="optimizing", steps=steps, whole=args.wholeNodes)


class _Maker:
    """How the parts of one plan are made (`settle`)."""

    def __init__(
        self, state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, rows: Rows, limits: Limits
    ) -> None:
        self.state, self.args, self.time, self.plan, self.rows, self.limits = state, args, time, plan_id, rows, limits

    def _opened(self, ends: Ends) -> AbstractContextManager[tuple[World, Landing]]:
        return opened(self.state, self.args, self.time, self.args.objective, self.rows, ends)

    def searched(self, steps: int, ends: Ends) -> Search:
        """From where these end."""
        limits, sources = self.limits.within(steps), np.flatnonzero(self.rows.sources)
        with self._opened(ends) as (world, landing):
            search = Search(world, landing, limits)
            search.run(sources[np.argsort(self.state.table.rank[sources])])
            improve(search, [row for row in sources.tolist() if world.pods(row)])
        return search

    def search(self, steps: int, ends: Ends) -> Found:
        search = self.searched(steps, ends)
        wanted = {uid: spot.row for uid, spot in search.world.away.items()}
        return Found(wanted, search.world.steps, search.full or bool(search.bounded))

    def order(self, wanted: dict[PodUid, int], ends: Ends) -> Ordered:
        """All moves that can be carried out, as long as they gain what they cost."""
        often = OFTEN
        while often:
            with self._opened(ends) as (world, landing):
                wanted = {uid: row for uid, row in wanted.items() if row != world.home(uid).row}
                if not wanted:
                    break
                leaving = {world.home(uid).row for uid in wanted} if self.limits.whole else ()
                loads = [loads_on(world, row) for row in leaving]
                ordered = Sequence(world, landing, self.plan, self.limits.moves).order(wanted, first(world, wanted))
            if halves := {uid for some in loads if any(uid not in ordered.ends for uid in some) for uid in some}:
                # Each time fewer: this ends by itself.
                wanted = {uid: spot.row for uid, spot in ordered.ends.items() if uid not in halves}
                continue
            often -= 1
            if dropped := beyond(self.limits, ordered):
                wanted = {uid: spot.row for uid, spot in ordered.ends.items() if uid not in dropped}
                continue
            net, again = self._judged(ordered, ends, pruned=True)
            if net > 0 and again == set(ordered.ends):
                return ordered
            wanted = {uid: ordered.ends[uid].row for uid in again} if net > 0 else {}
        return Ordered([], {}, [])

    def after(self, first: Ordered, then: Ordered) -> Ordered | None:
        """The same moves and then these, which begin where those end; None where that cannot be."""
        if len(first.moves) + len(then.moves) > self.limits.moves:
            return None
        both = following(self.plan, first, then)
        return None if both is None or beyond(self.limits, both) else both

    def net(self, ordered: Ordered) -> int:
        """What they gain beyond what they cost."""
        return self._judged(ordered, NOWHERE, pruned=False)[0] if ordered.moves else 0

    def _judged(self, ordered: Ordered, ends: Ends, pruned: bool) -> tuple[int, set[PodUid]]:
        """What the moves gain beyond their cost, and whose moves are worth it: where some have found no place in the order, others may
        be for nothing."""
        with self._opened(ends) as (world, landing):
            worth = world.total
            arrive(world, ordered.ends)
            if pruned:
                prune(Search(world, landing, self.limits))
            legs = sum(move.cost for move in ordered.moves if move.follows)
            net = (world.total - worth) * THOUSANDTHS - self.limits.least * (world.spent + legs)
            return net, set(world.away)


def first(world: World, wanted: dict[PodUid, int]) -> list[PodUid]:
    """In which order they are thought of: by where they go. By the node's name, for which row it has depends on what came and went before, and
    is another one in a state from a snapshot."""
    rank = world.state.table.rank
    return sorted(wanted, key=lambda uid: (int(rank[wanted[uid]]), uid))


def beyond(limits: Limits, ordered: Ordered) -> set[PodUid]:
    """Pods whose moves, counted in the order of the plan, break a limit of the policy (a second leg is an eviction, too); with whole
    nodes all that leave the same node with one of them."""
    if not limits.quota.bounds:
        return set()
    quota, who = limits.quota.copy(), dict[MigrationId, Move]()
    dropped: set[PodUid] = set()
    for move in ordered.moves:
        first = who[move.migration] = who[move.follows] if move.follows else move
        if first.pod in dropped or quota.reached(move.source, move.namespace):
            dropped.add(first.pod)
        else:
            quota.take(move.source, move.namespace)
    if limits.whole:
        left = {move.source for move in ordered.moves if move.pod in dropped}
        dropped |= {move.pod for move in ordered.moves if move.pod and move.source in left}
    return dropped


def arrive(world: World, ends: dict[PodUid, Spot]) -> None:
    """Everybody is where the plan ends."""
    for uid in ends:
        world.lift(uid)
    for uid, spot in ends.items():
        world.land(uid, spot)


def _tell(search: Search, rows: Rows, ordered: Ordered, stay: Stays) -> None:
    """A verdict for every pod that does not move."""
    world = search.world
    for node, pods in world.state.on_node.items():
        closed = rows.closed.get(node, "")
        for uid in pods:
            if uid in ordered.ends:
                continue
            verdict, more = world.verdict(uid) or closed, ""
            if (head := word(verdict)) != verdict:
                verdict, more = head, verdict.partition(": ")[2]
            verdict = verdict or search.bounded.get(uid, "")
            if not verdict and uid in search.stuck:
                verdict, more = NO_TARGET, search.stuck[uid]
            stay(uid, node, verdict or (LIMIT if search.full else STEPS if search.cut else NO_GAIN), more)

