"""The optimizing plan: searched for in one world, put in order in another, and judged by what it gains as ordered."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from restow.contracts.events import Planned
from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.classify import COOLDOWN, CRITICAL_NODE
from restow.domain.defragmentation.evictable import MEANING
from restow.domain.defragmentation.optimizing.improve import improve, prune
from restow.domain.defragmentation.optimizing.opened import NOT_OPEN, OWED, Rows, opened
from restow.domain.defragmentation.optimizing.order import Ordered, Sequence
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.world import Spot, World
from restow.domain.defragmentation.outcome import planned
from restow.domain.state import ClusterState

NO_TARGET, NO_GAIN, LIMIT, STEPS = "NoTarget", "NoGain", "Limit", "SearchSteps"
OFTEN = 4
"""Times that moves are put in order, while some find none."""

SENTENCES = MEANING | {
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
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, stays: Stays | None = None
) -> Planned:
    """The plan as a value; the state stays as it is. Raises ArgsError."""
    rows = Rows(state, args, time)
    limits = Limits(max_moves, args.minimumGain, args.searchSteps, args.wholeNodes, args.swaps)
    with opened(state, args, time, args.objective, rows) as (world, landing):
        worth = world.total
        search = Search(world, landing, limits)
        sources = np.flatnonzero(rows.sources)
        search.run(sources[np.argsort(state.table.rank[sources])])
        improve(search, [row for row in sources.tolist() if world.pods(row)])
        steps, wanted = world.steps, {uid: spot.row for uid, spot in world.away.items()}
    ordered = _ordered(state, args, time, plan_id, rows, limits, worth, wanted)
    kept = Counter[str]()

    def stay(uid: PodUid, node: NodeName, verdict: str, more: str) -> None:
        kept[verdict] += 1
        if stays is not None:
            stays(uid, node, verdict, more)

    _tell(search, rows, ordered, stay)
    return planned(state, plan_id, ordered.moves, ordered.ends, kept, planner="optimizing", steps=steps)


def _ordered(
    state: ClusterState,
    args: DefragmentationArgs,
    time: Millis,
    plan_id: PlanId,
    rows: Rows,
    limits: Limits,
    worth: int,
    wanted: dict[PodUid, int],
) -> Ordered:
    """All moves that can be carried out, as long as they gain what they cost."""
    for _ in range(OFTEN):
        if not wanted:
            break
        with opened(state, args, time, args.objective, rows) as (world, landing):
            first = sorted(wanted, key=lambda uid: (wanted[uid], uid))
            ordered = Sequence(world, landing, plan_id, limits.swaps, limits.moves).order(wanted, first)
        net, again = _judged(state, args, time, rows, limits, worth, ordered)
        if net > 0 and again == set(ordered.ends):
            return ordered
        wanted = {uid: ordered.ends[uid].row for uid in again} if net > 0 else {}
    return Ordered([], {}, [])


def _judged(
    state: ClusterState, args: DefragmentationArgs, time: Millis, rows: Rows, limits: Limits, worth: int, ordered: Ordered
) -> tuple[int, set[PodUid]]:
    """What the moves gain beyond their cost, and whose moves are worth it: where some have found no place in the order, others may
    be for nothing."""
    with opened(state, args, time, args.objective, rows) as (world, landing):
        arrive(world, ordered.ends)
        search = Search(world, landing, limits)
        prune(search)
        legs = sum(move.cost for move in ordered.moves if move.follows)
        net = (world.total - worth) * THOUSANDTHS - limits.least * (world.spent + legs)
        return net, set(world.away)


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
            if not verdict and uid in search.stuck:
                verdict, more = NO_TARGET, f"{search.stuck[uid]} would have no place"
            stay(uid, node, verdict or (LIMIT if search.full else STEPS if search.cut else NO_GAIN), more)

