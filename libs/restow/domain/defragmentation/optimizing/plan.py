"""The optimizing plan: searched for in one world, put in order in another, judged by what it gains as ordered, and carried on until
nothing more is found.

The search is no proof: from where a plan ends it may find a little more. So it is made again there, in a world that begins at the end of
the plan, exactly as it will be made when the plan has been carried out; what it finds becomes a part of the plan. The moves of both
together are put in order anew, so that nobody goes twice; where they find no order, the second part goes after the first. It
ends when nothing more is found (then the next plan is empty as well), with the steps of search, or with the limit of moves.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import NamedTuple, Protocol

import numpy as np

from restow.contracts.ids import MigrationId, PodUid
from restow.contracts.values import Missed, Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing import blocks, pricing
from restow.domain.defragmentation.optimizing.annealing import anneal, anneal_gaps
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.choices import loads_on
from restow.domain.defragmentation.optimizing.exchange import exchange
from restow.domain.defragmentation.optimizing.gangs import PART, Gang, able, as_gangs, chosen
from restow.domain.defragmentation.optimizing.improve import improve, prune, take_if_better, take_up
from restow.domain.defragmentation.optimizing.order import Ordered, following
from restow.domain.defragmentation.optimizing.order import Sequence as Order
from restow.domain.defragmentation.optimizing.pricing import Start, priced
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.turns import in_turn
from restow.domain.defragmentation.optimizing.vacating import vacated
from restow.domain.defragmentation.optimizing.value import Objective
from restow.domain.defragmentation.optimizing.world import Rows, World, opened
from restow.domain.defragmentation.plan import Found, Stays, Task
from restow.domain.defragmentation.simulation import Spot
from restow.domain.movable import starts_again
from restow.domain.verdicts import LIMIT, NO_GAIN, NO_TARGET, STEPS, TOGETHER, Stay, stay

OFTEN = 4
"""Times that moves are put in order, while some find none."""
FEW, FOLLOWING = 1_000, 2
"""On so few nodes a plan is carried on with so many times `searchSteps`, until nothing more is found; on more nodes with what is left of them, for each step takes longer."""
ANNEALED = 20_000
"""On so many nodes a plan by value is annealed, and its moves are exchanged: what a board keeps grows with the nodes, and with the pods."""
EXCHANGING = 2
"""One in so many steps more may go into exchanging what leaves one node for what leaves others."""
FEWEST, TRYING = 100, 20_000
"""On so few nodes all steps may go into taking parts of a plan back and trying again, up to so many."""
PRICED = 20
"""On more nodes a plan by value begins with prices."""
NEARLY = 100
"""A plan that misses no more than one in so many of the moves that are allowed is not carried on: the next one is not empty in any case."""
PARTLY = 10
"""Where more than one in so many moves that begin with prices finds no order, the plan is made without prices, too."""
OTHERS = 10
"""On many nodes a plan may begin with prices alone where they think of all who may move but one for so many others; the search sees to the nodes of these then."""
FREEING = 2
"""One in so many steps is for whole blocks, where there are gangs to be near to each other."""
NONE = Ordered([], {}, [])
"""No moves."""
MISSED, MISSED_PART = 3, 10
"""Pods that are moved in thought where nothing was worth it, to say what it would have cost, and the part of the steps that this takes."""


def plan(task: Task, stays: Stays) -> Found:
    """The state stays as it is. Raises ArgsError."""
    maker = _Maker(task)
    search, ordered, steps = _made(maker, NOWHERE)
    as_one: Ends = NOWHERE
    gangs = [] if task.args.wholeNodes else able(task.state, maker.rows.evictable)
    if gangs:
        # With gangs that are moved as one, if that gains more: they may keep others from moving.
        with_gangs = _Maker(task)
        ends, taken = with_gangs.moved_as_one(gangs)
        steps += taken
        if ends:
            search_with, ordered_with, taken = _made(with_gangs, ends)
            steps += taken
            if with_gangs.net(ordered_with) > maker.net(ordered):
                maker, search, ordered, as_one = with_gangs, search_with, ordered_with, ends
    if maker.counts_blocks:
        # With whole blocks that are freed first, and stay free, if that gains more: they may keep others from moving.
        with_blocks = _Maker(task)
        as_gangs(with_blocks.rows, [gang for gang in gangs if gang.pods[0] in as_one], TOGETHER)
        if with_blocks.keep_blocks(task.args.searchSteps, as_one)[0] or with_blocks.closed:
            search_with, ordered_with, taken = _made(with_blocks, as_one)
            steps += taken
            if with_blocks.net(ordered_with) > maker.net(ordered):
                maker, search, ordered = with_blocks, search_with, ordered_with
    missed = None if ordered.moves else maker.missed()
    if missed is not None and missed.told.least >= task.args.minimumGain:
        # It is worth its cost: what was found instead of it gains more, but has no order.
        ordered, more = settle(maker, maker.order(missed.wanted, NOWHERE), task.args.searchSteps, maker.more(steps))
        steps += more
    _tell(search, maker.rows, ordered, stays)
    return Found(ordered.moves, ordered.ends, steps, None if ordered.moves or missed is None else missed.told)


def _made(maker: "_Maker", gangs: "Ends") -> tuple[Search, Ordered, int]:
    """The search, the plan and the steps of it. `gangs`: where those go who are moved as one."""
    task = maker.task
    search, ends = maker.searched(task.args.searchSteps, gangs)
    steps, wanted = search.world.steps, {**ends, **search.world.away}
    ordered = maker.order(wanted, NOWHERE)
    if maker.prices and len(ordered.ends) * PARTLY < len(wanted) * (PARTLY - 1):
        # Prices say what nodes are to hold, and not what must leave first for it: where nearly everything is in use little of it may be possible.
        maker.prices = False
        other, ends = maker.searched(task.args.searchSteps, gangs)
        steps, others = steps + other.world.steps, {**ends, **other.world.away}
        without = maker.order(others, NOWHERE)
        if maker.net(without) > maker.net(ordered):
            search, wanted, ordered = other, others, without
        else:
            maker.prices = True
    ordered, more = maker.mended(wanted, ordered)
    steps += more
    if not search.bounded and not _all_taken(len(ordered.ends), task.max_moves):
        left = maker.more(steps)
        ordered, taken = settle(maker, ordered, task.args.searchSteps, left)
        if maker.keeps_blocks:
            # What whole gangs kept from others, too.
            maker.opens()
            ordered, more = settle(maker, ordered, task.args.searchSteps, left - taken)
            taken += more
        steps += taken
    return search, ordered, steps


def _all_taken(moves: int, limit: int) -> bool:
    """Nearly as many as are allowed."""
    return moves >= limit - limit // NEARLY


STARTS: tuple[Objective, ...] = ("devices", "nodes")
"""A plan by value may begin where the best one by these ends: where moves are few, what whole pieces are worth is found by looking for these."""
STARTING = 10
"""One in so many steps is for each of them."""
Ends = Mapping[PodUid, Spot]
NOWHERE: Ends = {}
"""Nobody has moved yet."""


class Wanted(NamedTuple):
    """Where those go who are to move. `full`: a limit kept more from moving."""

    wanted: Mapping[PodUid, Spot]
    steps: int
    full: bool


class Little(NamedTuple):
    """What a few moves would gain, and where these go."""

    told: Missed
    wanted: Mapping[PodUid, Spot]


class Maker(Protocol):
    """How one plan is made (`settle`). `ends` is where an earlier part of it ends."""

    def search(self, steps: int, ends: Ends) -> Wanted: ...

    def order(self, wanted: Mapping[PodUid, Spot], ends: Ends) -> Ordered:
        """All moves that can be carried out and are worth it."""
        ...

    def joined(self, first: Ordered, then: Ordered) -> Ordered | None:
        """The same moves and then these, which begin where those end; None where that cannot be."""
        ...

    def net(self, ordered: Ordered) -> int:
        """What it gains beyond what it costs, from where the pods are now."""
        ...


def settle(maker: Maker, made: Ordered, each: int, steps: int) -> tuple[Ordered, int]:
    """The plan carried on, and the steps that this took: so many in all, and for `each` search no more than a plan made next would have, which
    would find nothing where that finds nothing."""
    taken, net = 0, maker.net(made)
    while made.moves and taken < steps:
        found = maker.search(min(each, steps - taken), made.ends)
        taken += found.steps
        if not found.wanted:
            break
        better = _joined(maker, made, found.wanted, net)
        if better is None:
            break
        made, net = better, maker.net(better)
        if found.full:
            break
    return made, taken


def _joined(maker: Maker, made: Ordered, wanted: Mapping[PodUid, Spot], net: int) -> Ordered | None:
    """Both parts as one plan that gains more; None where there is none."""
    together = {**made.ends, **wanted}
    whole = maker.order(together, NOWHERE)
    if whole.moves and maker.net(whole) > net:
        return whole
    rest = maker.order(wanted, made.ends)
    if not rest.moves:
        return None
    both = maker.joined(made, rest)
    return both if both is not None and maker.net(both) > net else None


def least(args: DefragmentationArgs) -> int:
    """`Limits.least`: by objective `value` the gain, in the unit of the cost, is to be so many thousandths larger than the cost."""
    return THOUSANDTHS // 1000 * (1000 + args.minimumGain) if args.objective == "value" else args.minimumGain


class _Maker:
    """`Maker`."""

    def __init__(self, task: Task) -> None:
        args = task.args
        self.task, self.rows = task, Rows(task)
        self._open = self.rows.open
        self.keeps_blocks = False
        """Whether whole blocks are freed first, and nobody comes to what holds whole gangs."""
        self._freed: tuple[Ends, int] | None = None
        """What that came to, for the next search."""
        self.limits = Limits(task.max_moves, least(args), args.searchSteps, args.wholeNodes, task.scope.quota)
        if (nodes := int(self.rows.counted.sum())) <= FEWEST:
            self.limits.improving = max(self.limits.improving, min(args.searchSteps, TRYING))
        self._seen: World | None = None
        """The last one that was searched from where everybody is at home: what is known of rows there is known in the next one, too."""
        self._few = nodes <= FEW
        self._fresh = nodes <= FEWEST
        self._sampled = nodes > pricing.MANY
        """So prices are, and what annealing and exchanging find beside takes long."""
        self._exchanges = nodes <= ANNEALED and args.objective == "value" and not args.wholeNodes
        self._anneals = self._exchanges and not task.scope.quota.bounds
        self.prices = self._anneals and nodes > PRICED
        """By value, on more nodes than annealing alone finds its way on."""
        self._fills = self._few and args.objective in ("devices", "nodes") and not args.wholeNodes and not task.scope.quota.bounds
        self._vacates = self._fills and args.objective == "nodes" and nodes > FEWEST
        """By `nodes` from prices as well."""
        self._near = False
        """On many nodes, whether prices alone made the last plan, and came near to what they promise."""

    def moved_as_one(self, gangs: Sequence[Gang]) -> tuple[dict[PodUid, Spot], int]:
        """Where those of them go that are worth it, and the steps. From now on none of their pods is moved in any other way."""
        limits = self.limits.within(self.limits.steps // PART)
        as_gangs(self.rows, gangs, TOGETHER)
        with self._opened(NOWHERE) as world:
            ends = chosen(world, limits, gangs)
        as_gangs(self.rows, [gang for gang in gangs if gang.pods[0] in ends], TOGETHER)
        return ends, world.steps

    def more(self, steps: int) -> int:
        """For carrying a plan on which so many were taken by."""
        if self._near:
            # On many nodes it takes as long as a plan to find a little more, and so the next plan may.
            return 0
        return FOLLOWING * self.task.args.searchSteps if self._few else self.task.args.searchSteps - steps

    def _opened(self, ends: Ends, objective: Objective | None = None) -> AbstractContextManager[World]:
        return opened(self.task, objective or self.task.args.objective, self.rows, ends)

    def searched(self, steps: int, ends: Ends) -> tuple[Search, Ends]:
        """From where these end; the search began where those end that are returned, whole blocks having been freed first."""
        freed, taken = self._freed or self._free_blocks(steps, ends)
        self._freed, ends = None, {**ends, **freed}
        limits, rows = self.limits.within(steps, len(ends)), self._by_name()
        starts, board = self._priced(limits, ends)
        # Of those who take no part neither prices nor annealing think.
        alone = board is not None and bool(starts) and len(board.others) * OTHERS <= (0 if self._few else len(board.uids))
        self._near = near = alone and not self._few and starts[0].near
        if board is not None and near:
            rows = rows[np.isin(rows, board.others)]
        if alone and not self._few:
            # On many nodes the search takes long to find little more.
            limits = limits.within(min(steps, starts[0].steps + steps // STARTING))
        if not alone and self.task.args.objective == "value":
            starts += [self._started(limits, ends, objective, rows) for objective in STARTS]
        with self._opened(ends) as world:
            self._seen = self._seen if ends else world
            world.steps = taken + sum(start.steps for start in starts)
            for start in starts:
                take_if_better(Search(world, limits), start.ends)
            search = Search(world, limits)
            if not alone:
                self._run(search, rows)
            elif self._few:
                # Prices have seen to it who makes room for whom.
                search.run(rows, depth=0)
            else:
                search.run(rows)
                search.full |= _all_taken(len(world.away), limits.moves)
            if not alone:
                improve(search, [row for row in rows.tolist() if world.pods(row)])
            if self._anneals and not (near and search.full and self._sampled):
                anneal(search, steps // STARTING if near and self._sampled else steps, self._fresh and not alone, board)
            if self._fills:
                anneal_gaps(search, rows, self.rows.fill, steps)
            if self._exchanges and self._few:
                # On more nodes once the moves are in order (`mended`).
                exchange(search, rows.tolist(), steps // EXCHANGING)
        return search, ends

    @property
    def counts_blocks(self) -> bool:
        """Whether whole blocks are worth anything."""
        return self.task.args.objective == "value" and bool(self.rows.appraisal.blocks.classes)

    @property
    def closed(self) -> bool:
        """Whether nobody comes to some nodes because they hold whole gangs."""
        return bool((self.rows.open != self._open).any())

    def keep_blocks(self, steps: int, ends: Ends) -> tuple[Ends, int]:
        """From now on whole blocks come first. Where those go who leave for that, and the steps."""
        self.keeps_blocks = True
        self._freed = self._free_blocks(steps, ends)
        return self._freed

    def opens(self) -> None:
        """From now on whole gangs keep nobody from nodes that are worth more to others."""
        self.keeps_blocks, self._freed, self.rows.open = False, None, self._open

    def _free_blocks(self, steps: int, ends: Ends) -> tuple[Ends, int]:
        """Where those go who leave whole blocks free, and the steps; nobody comes to what holds whole gangs then."""
        if not self.keeps_blocks:
            return NOWHERE, 0
        self.rows.open = self._open
        with self._opened(ends) as world:
            search = Search(world, self.limits.within(steps // FREEING, len(ends)))
            blocks.free(search)
            prune(search)
            self.rows.open = self._open & ~blocks.kept(world)
            return dict(world.away), world.steps

    def _by_name(self) -> np.ndarray:
        """Rows that pods may leave."""
        sources = np.flatnonzero(self.rows.sources)
        return sources[np.argsort(self.task.state.table.rank[sources])]

    def _run(self, search: Search, rows: np.ndarray) -> None:
        """The search from what there is, and from where everybody is at home, whichever finds more."""
        world, limits, best = search.world, search.limits, dict[PodUid, Spot]()
        if world.away:
            Search(world, limits.within(limits.steps // 2)).run(rows)
            best = dict(world.away)
            take_up(world, {})
        search.run(rows)
        if best:
            take_if_better(search, best)

    def _priced(self, limits: Limits, ends: Ends) -> tuple[list[Start], Board | None]:
        """Where prices lead, if they lead anywhere, and the board on which that was found, where annealing by value may go on from it."""
        if self._vacates:
            with self._opened(ends) as world:
                start = vacated(Search(world, limits))
                return [] if start is None else [start], None
        if not self.prices:
            return [], None
        with self._opened(ends) as world:
            search = Search(world, limits)
            board = Board(search, lazy=True)
            start = priced(search, board)
            return [] if start is None else [start], board

    def _started(self, limits: Limits, ends: Ends, objective: Objective, rows: np.ndarray) -> Start:
        """What is found by another objective, and in how many steps."""
        with self._opened(ends, objective) as world:
            Search(world, Limits(limits.moves, self.task.args.minimumGain, limits.steps // STARTING, limits.whole, limits.quota)).run(rows)
            return Start(dict(world.away), world.steps)

    def missed(self) -> Little | None:
        """What gains anything and has an order, whatever it costs: of pieces the cheapest, of value the most; None where nothing was found."""
        if self.task.args.objective == "value":
            return self._missed(gratis=True)
        # A piece that costs more than the least of all `minimumGain` allows is found where nothing costs anything.
        return self._missed(gratis=False) or self._missed(gratis=True)

    def _missed(self, gratis: bool) -> Little | None:
        args = self.task.args
        moves = self.limits.moves if args.wholeNodes else min(self.limits.moves, MISSED)
        with self._opened(NOWHERE) as world:
            by_value, world.gratis = args.objective == "value", gratis
            search, before = Search(world, Limits(moves, 1, args.searchSteps // MISSED_PART, args.wholeNodes, self.task.scope.quota)), world.total
            search.run(self._by_name())
            gain, cost = world.total - before, world.whatever_it_costs()
            if gain <= 0 or not world.away:
                return None
            wanted = dict(world.away)
            source = min(world.name(world.home(uid).row) for uid in wanted)
            # It must be more than the cost, not as much.
            least = (gain * 1000 - 1) // max(cost, 1) - 1000 if by_value else (gain * THOUSANDTHS - 1) // max(cost, 1)
        found = Missed(args.objective, len(wanted), source, gain if by_value else gain * 1000, cost, least)
        return Little(found, wanted) if self._in_order(wanted) else None

    def _in_order(self, wanted: Ends) -> bool:
        """Whether these can all be carried out: what some would leave may be somebody else's, who waits for it."""
        with self._opened(NOWHERE) as world:
            return Order(world, self.task.plan, self.limits.moves).order(wanted, by_target(world, wanted)).ends.keys() == wanted.keys()

    def search(self, steps: int, ends: Ends) -> Wanted:
        """As the plan that is made next: where nothing more is found, with whole blocks first."""
        found = self._search(steps, ends)
        left = steps - found.steps
        if found.wanted or left <= 0 or self.keeps_blocks or not self.counts_blocks:
            return found
        freed, taken = self.keep_blocks(left, ends)
        if freed:
            found = self._search(left, ends)
            taken = found.steps
        self.opens()
        return found._replace(steps=steps - left + taken)

    def _search(self, steps: int, ends: Ends) -> Wanted:
        search, begun = self.searched(steps, ends)
        wanted = {uid: spot for uid, spot in begun.items() if ends.get(uid) != spot} | search.world.away
        return Wanted(wanted, search.world.steps, search.full or bool(search.bounded))

    def order(self, wanted: Mapping[PodUid, Spot], ends: Ends) -> Ordered:
        """All moves that can be carried out, as long as they gain what they cost. Those that are of no use without others that found no order are
        left out, and the rest is put in order anew; after some times, or where that finds less order, the best is kept as it is (of equals the last, which is the least), for all of it together is worth it."""
        often, best, most = OFTEN, NONE, 0
        while often:
            with self._opened(ends) as world:
                wanted = {uid: spot for uid, spot in wanted.items() if spot.row != world.home(uid).row}
                if not wanted:
                    break
                leaving = {world.home(uid).row for uid in wanted} if self.limits.whole else ()
                loads = [loads_on(world, row) for row in leaving]
                ordered = Order(world, self.task.plan, self.limits.moves).order(wanted, by_target(world, wanted))
            if ordered.stayed:
                ordered = self._in_turn(wanted, ends, ordered)
            halves = {uid for some in loads if any(uid not in ordered.ends for uid in some) for uid in some}
            halves |= {move.pod for move in ordered.moves if move.gang and move.after}
            if halves := self._mates(halves | {uid for uid in wanted if uid in self.rows.gangs and uid not in ordered.ends}):
                # Each time fewer: this ends by itself.
                wanted = {uid: spot for uid, spot in ordered.ends.items() if uid not in halves}
                continue
            often -= 1
            if dropped := self._mates(beyond(self.limits, ordered)):
                wanted = {uid: spot for uid, spot in ordered.ends.items() if uid not in dropped}
                continue
            net, again = self._judged(ordered, ends, pruned=True)
            done = net > 0 and again == set(ordered.ends)
            if (whole := net if done else self._judged(ordered, ends, pruned=False)[0]) >= max(most, 1):
                best, most = ordered, whole
            if done:
                break
            wanted = {uid: ordered.ends[uid] for uid in again} if net > 0 else {}
        return best if ends or best is NONE else best._replace(net=most)

    def _in_turn(self, wanted: Mapping[PodUid, Spot], ends: Ends, ordered: Ordered) -> Ordered:
        """Where somebody found no order: with places exchanged among equal pods, if more of them do then."""
        with self._opened(ends) as world:
            turns = in_turn(world, wanted)
            other = Order(world, self.task.plan, self.limits.moves).order(turns, list(turns))
        return other if len(other.ends) > len(ordered.ends) else ordered

    def _mates(self, pods: set[PodUid]) -> set[PodUid]:
        """These and all others of their gangs that are moved as one."""
        gangs = {self.rows.gangs[uid] for uid in pods if uid in self.rows.gangs}
        return pods | {uid for uid, gang in self.rows.gangs.items() if gang in gangs} if gangs else pods

    def mended(self, wanted: Ends, made: Ordered) -> tuple[Ordered, int]:
        """By value: with others in place of those who found no order, whose nodes nobody else is to come to, and the steps that this took."""
        lost = [uid for uid in wanted if uid not in made.ends]
        enough = _all_taken(len(made.ends), len(wanted)) if self._sampled else self._few and not lost
        if not self._exchanges or not made.moves or enough:
            return made, 0
        rows = copy(self.rows)
        rows.open = self.rows.open.copy()
        rows.open[[wanted[uid].row for uid in lost]] = False
        with opened(self.task, self.task.args.objective, rows, NOWHERE) as world:
            if self._seen is not None:
                world.recall(self._seen)
            take_up(world, made.ends)
            search, sources = Search(world, self.limits.within(self.limits.steps // STARTING)), self._by_name()
            if self._few:
                # On many nodes it takes all of these steps to look at each of them once.
                search.run(sources)
            exchange(search, sources.tolist(), self.limits.steps // EXCHANGING)
            taken, ends = world.steps, dict(world.away)
        better = self.order(ends, NOWHERE) if ends != made.ends else made
        return (better if self.net(better) > self.net(made) else made), taken

    def joined(self, first: Ordered, then: Ordered) -> Ordered | None:
        """The same moves and then these, which begin where those end; None where that cannot be. Nobody waits for a gang that is moved as one, which may stay."""
        if any(move.gang for move in first.moves) or len(first.moves) + len(then.moves) > self.limits.moves:
            return None
        both = following(self.task.plan, first, then)
        return None if both is None or beyond(self.limits, both) else both

    def net(self, ordered: Ordered) -> int:
        """What they gain beyond what they cost."""
        if ordered.net is not None or not ordered.moves:
            return ordered.net or 0
        return self._judged(ordered, NOWHERE, pruned=False)[0]

    def _judged(self, ordered: Ordered, ends: Ends, pruned: bool) -> tuple[int, set[PodUid]]:
        """What the moves gain beyond their cost, and whose moves are worth it: where some have found no place in the order, others may
        be for nothing."""
        with self._opened(ends) as world:
            worth = world.total
            arrive(world, ordered.ends)
            if pruned:
                prune(Search(world, self.limits))
            legs = sum(move.cost for move in ordered.moves if move.follows)
            net = (world.total - worth) * THOUSANDTHS - self.limits.least * (world.spent + legs)
            return net, set(world.away)


def by_target(world: World, wanted: Mapping[PodUid, Spot]) -> list[PodUid]:
    """In which order they are thought of: by where they go. By the node's name, for which row it has depends on what came and went before, and
    is another one in a state from a snapshot."""
    rank = world.state.table.rank
    return sorted(wanted, key=lambda uid: (int(rank[wanted[uid].row]), uid))


def beyond(limits: Limits, ordered: Ordered) -> set[PodUid]:
    """Pods whose moves, counted in the order of the plan, break a limit of the policy (a second leg is an eviction, too); with whole
    nodes all that leave the same node with one of them."""
    if not limits.quota.bounds:
        return set()
    quota, who = limits.quota.copy(), dict[MigrationId, Move]()
    dropped: set[PodUid] = set()
    for move in ordered.moves:
        first = who[move.migration] = who[move.follows] if move.follows else move
        charged = quota.charged(first.pod, move.source)
        if first.pod in dropped or quota.reached(move.source, move.namespace, charged):
            dropped.add(first.pod)
        else:
            quota.take(move.source, move.namespace, charged)
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


def _stuck(world: World, uid: PodUid, ordered: Ordered) -> str:
    """Who would have had no place if this one had moved. That one may have one by the plan as it has become."""
    pod = world.state.pods[uid].fact
    more = f", which is to land on {world.name(ordered.ends[uid].row)}, would fit nowhere if this one moved, too" if uid in ordered.ends else " would fit nowhere"
    return f"{pod.namespace}/{pod.name}{more}"


def _tell(search: Search, rows: Rows, ordered: Ordered, stays: Stays) -> None:
    """A verdict for every pod that does not move."""
    world, rest = search.world, stay(LIMIT if search.full else STEPS if search.cut else NO_GAIN)
    for node, pods in world.state.on_node.items():
        closed = rows.closed.get(node, "")
        for uid in pods:
            if uid in ordered.ends:
                continue
            itself = rows.evictable.verdict(uid) if uid in rows.gangs else world.verdict(uid)
            if said := itself or closed or search.bounded.get(uid, ""):
                why = stay(said)
                if starts_again(world.state, world.state.pods[uid].fact):
                    together, kept = rows.evictable.as_one(uid)
                    kept = f"its gang cannot be moved as one: {kept}" if kept else "moving its gang as one is not worth it" if together else "this plan moves no gang as one"
                    kept = "with wholeNodes no gang is moved as one" if search.limits.whole else kept
                    why = Stay(why.id, f"{why.sentence}; and {kept}")
                stays(uid, node, why)
            else:
                stays(uid, node, Stay(NO_TARGET, _stuck(world, search.stuck[uid], ordered)) if uid in search.stuck else rest)
