"""Simulated annealing: pods go elsewhere one by one, or change places in twos, at first also where a little is lost by it, at the end only where something is gained.

What a node is worth by objective `value` changes a little with every pod. So there is a slope to follow that sets of pods, each of which has to gain by itself, do not see. Where
pods share a device, all of them together are tried, too: often none gains anything before the last has left. All on a copy in integers (`board`), many tries at once, with a
generator of its own: the same state gives the same plan. Only pods take part that no rule about others concerns and that prefer nothing;
whether its end is better is asked of the world, and whether it can be reached when the moves are put in order.
"""

import numpy as np

from restow.domain.defragmentation.optimizing.board import NEVER, Board, Contents, Worth
from restow.domain.defragmentation.optimizing.gaps import PIECES, Filled, Vacant
from restow.domain.defragmentation.optimizing.improve import improve, prune, take_if_better, take_up
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search
from restow.domain.defragmentation.optimizing.swaps import mixed
from restow.domain.node_table import NO_DEVICE, WHOLE

TRIES, CHANGE = 250, 900
"""As many tries as take the time of one step of search; and as many as take the time of one change."""
EACH, EACH_MOVE = 20_000, 200_000
"""Tries for each pod that takes part, and for each move that is left, at most: with few of them there is less to be tried."""
HEAT_MOVE, HEAT_NODE = 2, 1_200
"""What may be lost at first: about so many tenths of what a move costs, or one in so many parts of what the dearest node is worth, whichever is more."""
HEAT_PIECE, NODE = 500, 2
"""By objectives `devices` and `nodes`: one in so many parts of a device, or a node; and what a node with one pod that asks for nothing counts for, one in so many parts of a free one."""
EMPTYING = 2
"""One in so many steps more are for what can be emptied once gaps have been made."""
FIRST = 8
"""Where tries are spared, one in so many is made at first, and the others only if these have gained anything."""
HOME = 5
"""One try in so many of who is away leads home."""
FEWEST, MOST = 64, 2_048
"""Tries that are looked at together, as hot as each other."""
SETS, MEMBERS = 6, 4
"""One time in so many tries are of all pods that share a device, where these are so many at most."""
CELLS = 200_000
"""Sets times rows that are looked at together, once it is known which sets may gain: on large clusters the first of them."""
APART = 8
"""If more than one change for so many rows comes of them, they become fewer: of changes to the same row only the first is made."""
NEAR = 64
"""The limit of moves is near once all but one part in so many are made."""
PRICE = 100_000_000
"""By so much the price of a move changes each time: about a tenth of what it costs."""
FREE = 16
"""The last one in so many tries are without that price: what is left of the limit is used."""
_BITS, _PARTS = 12, 16
_WIDE = 20
"""Bits of a number that choose a pod, and a row."""
_NUMBERS = 1 << 15


def anneal(search: Search, steps: int, fresh: bool, board: Board | None = None) -> None:
    """The plan becomes what is found in so many steps, if that is better. `fresh`: it begins with everybody at home. `board`: one of the same world on which everybody is at home, which is no more
    what it was then; one is made where there is none, and where there is (prices came before) most tries are made only if the `FIRST` gained anything."""
    world, plan = search.world, dict(search.world.away)
    if fresh:
        take_up(world, {})
    sparing = board is not None
    if board is None:
        board = Board(search)
    else:
        board.follow(world)
    if steps > 0 and len(board.rows) > 1 and board.uids:
        tries = min(steps * TRIES, EACH * len(board.uids), EACH_MOVE * search.limits.moves)
        first = max(world.least_cost * search.limits.least * HEAT_MOVE // 10, world.value.most * THOUSANDTHS // HEAT_NODE)
        parts = [tries // FIRST, tries - tries // FIRST] if sparing else [tries]
        for nth, part in enumerate(parts):
            if nth:
                board.follow(world)
            net = search.net()
            Tries(board, search.limits.moves).cool(first, part)
            world.steps += part // TRIES
            take_if_better(search, board.ends())
            if search.net() <= net:
                break
    if fresh:
        take_if_better(search, plan)


def anneal_gaps(search: Search, rows: np.ndarray, fill: np.ndarray, steps: int) -> None:
    """By objectives `devices` and `nodes`: the plan becomes what is found from where gaps can be filled best, if that is better. `rows` as of `Search.run`; `fill`: as
    `gaps.fillable`; so many steps of annealing, and half as many beside."""
    world, plan, net = search.world, dict(search.world.away), search.net()
    of = _by_gaps(search, fill)
    if of is None or steps <= 0:
        return
    board = Board(search, of, PIECES)
    if len(board.rows) > 1 and board.uids:
        tries = min(steps * TRIES, EACH * len(board.uids), EACH_MOVE * search.limits.moves)
        Tries(board, search.limits.moves).cool(PIECES * THOUSANDTHS // HEAT_PIECE, tries)
        world.steps += tries // TRIES
        take_up(world, board.ends())
        again = Search(world, search.limits.within(world.steps + steps // EMPTYING))
        prune(again)
        again.run(rows)
        improve(again, [row for row in rows.tolist() if world.pods(row)])
        search.full |= again.full
        if search.net() <= net:
            take_up(world, plan)


def _by_gaps(search: Search, fill: np.ndarray) -> Worth | None:
    """What rows are worth there; None where there is nothing to be looked for. A gap of a device counts for what it may save, a whole device less one move."""
    world, table = search.world, search.world.state.table
    if world.value.objective == "nodes":
        return Vacant(fill, PIECES // NODE, world.counted, table.allocatable, (table.device_free > NO_DEVICE // 2).sum(axis=1), world.value.gpu)
    part = (THOUSANDTHS - world.least_cost * search.limits.least) * PIECES // THOUSANDTHS
    return Filled(fill, part, world.counted) if part > 0 and fill[WHOLE - 1] else None


def numbers(first: int, many: int = _NUMBERS) -> np.ndarray:
    """`(many,) uint64`: they look like chance: numbers that follow each other from this one on, mixed."""
    at = np.arange(first + 1, first + many + 1, dtype=np.uint64)
    return mixed(at * np.uint64(0x9E3779B97F4A7C15))


def _logarithm(n: int) -> int:
    """To the base 2 and by straight lines, of one divided by so many `_BITS`ths; in `_PARTS`ths."""
    halves = _BITS + 1 - n.bit_length()
    within = (n << halves) - (1 << _BITS)
    return ((halves << _BITS) - within) << _PARTS >> _BITS


LOSSES = np.array([_logarithm(n + 1) for n in range(1 << _BITS)], np.int64)
"""How many times its heat a try may lose, each with the same chance, in 2 to the `_PARTS`ths."""


def losses(heat: int, randoms: np.ndarray) -> np.ndarray:
    """`(tries,) int64`: what each may lose; in int64 however dear nodes are."""
    return (heat >> _PARTS // 2) * LOSSES[randoms] >> _PARTS // 2


Change = tuple[tuple[int, ...], tuple[int, ...], int]
"""The pods, the rows that they come to, and how many more are away then."""


class Tries:
    """On a board, with at most `limit` pods away. Where nearly so many are, a move has a price beside its cost, so that those remain that gain most for each."""

    def __init__(self, board: Board, limit: int) -> None:
        self._board, self._limit = board, limit
        self._numbers, self._at, self._first, self._turn = numbers(0), 0, 0, 0
        self._price, self._cost = 0, board.cost
        self._apart = max(len(board.rows) // APART, 1)

    def cool(self, first: int, tries: int) -> None:
        """So many tries, of heat `first` down to nothing."""
        left, together = tries, FEWEST
        while left > 0:
            made, changes = self.even(min(together, left), first * left // tries)
            left -= made + CHANGE * changes
            self._rate(free=left * FREE < tries)
            together = max(together // 2, FEWEST) if changes > self._apart else min(2 * together, MOST)

    def _rate(self, free: bool) -> None:
        """A little more where the limit is near, a little less where it is not; nothing once moves are `free`."""
        near = self._board.away * NEAR >= self._limit * (NEAR - 1)
        price = 0 if free else max(self._price + (PRICE if near else -PRICE), 0)
        if price != self._price:
            self._price, self._cost = price, self._board.cost + price

    def even(self, tries: int, heat: int) -> tuple[int, int]:
        """As hot as each other: all that are accepted, but those of rows that an earlier one has changed. How many tries, and how many changes. The heat is what half of
        them may lose."""
        if self._at == len(self._numbers):
            self._first += _NUMBERS
            self._numbers, self._at = numbers(self._first), 0
        randoms = self._numbers[self._at : self._at + tries]
        self._at += len(randoms)
        self._turn = (self._turn + 1) % SETS
        moves: list[tuple[int, int]] = []
        board, changed, changes, away = self._board, set[int](), 0, self._board.away
        for pods, to, farther in self._alone(randoms, heat) if self._turn else self._sets(randoms, heat):
            rows = {*to, int(board.row[pods[0]])}
            if changed.isdisjoint(rows) and (farther <= 0 or away + farther <= self._limit):
                changed |= rows
                away += farther
                changes += 1
                moves += zip(pods, to, strict=True)
        if moves:
            board.move(moves)
        return len(randoms), changes

    def _alone(self, randoms: np.ndarray, heat: int) -> list[Change]:
        """Of pods alone and of pairs that change places: those that lose no more than they may."""
        board = self._board
        low = (randoms & np.uint64((1 << 2 * _BITS) - 1)).astype(np.int64)
        loss, chosen = losses(heat, low >> _BITS), low & (1 << _BITS) - 1
        high = (randoms >> np.uint64(2 * _BITS)).astype(np.int64)
        pods, places = (high >> _WIDE) * len(board.uids) >> _WIDE, (high & (1 << _WIDE) - 1) * len(board.rows) >> _WIDE
        here, home = board.row[pods], board.home[pods]
        left, gained = here != home, board.leave[pods]
        to = np.where(left & (chosen % HOME == 0), home, board.rows[places])
        # Nobody's coming gains anything.
        able = (to != here) & (left | (gained * THOUSANDTHS + loss >= self._cost[pods])) & (board.masks[board.may[pods], to] | (to == home))
        some = np.flatnonzero(able)
        if not len(some):
            return []
        pods, here, home, to, loss, chosen, gained = pods[some], here[some], home[some], to[some], loss[some], chosen[some], gained[some]
        come = np.where(to == home, board.own[pods], board.come[board.kind[pods], to])
        farther = (to != home).astype(np.int64) - (here != home)
        fits = come > NEVER
        good = fits & ((gained + come) * THOUSANDTHS - farther * self._cost[pods] >= -loss)
        others = np.full(len(pods), -1, np.int64)
        at = np.flatnonzero(~fits & (board.many[to] > 0))
        if len(at):
            left_to, there = to[at], here[at]
            who = board.on[left_to, chosen[at] * board.many[left_to] >> _BITS]
            theirs = (there != board.home[who]).astype(np.int64) - (left_to != board.home[who])
            spent = farther[at] * self._cost[pods[at]] + theirs * self._cost[who]
            near = self._exchange(pods[at], who, gained[at], spent - loss[at])
            good[at[near]], others[at[near]] = True, who[near]
            farther[at[near]] += theirs[near]
        found = np.flatnonzero(good)
        each = zip(*(of[found].tolist() for of in (pods, here, to, others, farther)), strict=True)
        return [((pod,), (row,), more) if other < 0 else ((pod, other), (row, there), more) for pod, there, row, other, more in each]

    def _exchange(self, pods: np.ndarray, others: np.ndarray, gained: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Which of these pods can come each to the other's place and gain so much by that (`THOUSANDTHS`). `gained`: by the leaving of `pods`."""
        board = self._board
        here, home = board.row[pods], board.home[others]
        some = np.flatnonzero(((gained + board.leave[others]) * THOUSANDTHS >= least) & (board.masks[board.may[others], here] | (here == home)))
        if len(some):
            there = board.replace(others[some], pods[some])
            near = (there > NEVER) & ((gained[some] + there) * THOUSANDTHS >= least[some])
            some, there = some[near], there[near]
        if len(some):
            back = board.replace(pods[some], others[some])
            some = some[(back > NEVER) & ((back + there) * THOUSANDTHS >= least[some])]
        return some

    def _sets(self, randoms: np.ndarray, heat: int) -> list[Change]:
        """The same of all pods together that share a device: each goes where most is gained by it, the largest first."""
        board, nobody = self._board, len(self._board.uids)
        loss = losses(heat, (randoms >> np.uint64(_BITS)).astype(np.int64) & (1 << _BITS) - 1)
        sets = self.together((randoms >> np.uint64(2 * _BITS + _WIDE)).astype(np.int64) * nobody >> _WIDE)
        several = np.flatnonzero(sets[:, 1] < nobody)
        sets, loss = sets[several], loss[several]
        back, padded = np.append(board.row != board.home, False), np.append(self._cost, 0)
        gained = board.gains_without(sets) * THOUSANDTHS + (padded * back)[sets].sum(axis=1)
        # At the best place that there is for each, whoever may go there. Most sets end here.
        most = np.maximum(board.come[:, board.rows].max(axis=1)[board.kind] * THOUSANDTHS - self._cost, np.where(back[:-1], board.own, NEVER) * THOUSANDTHS)
        left = gained + np.append(np.maximum(most, NEVER * THOUSANDTHS // MEMBERS), 0)[sets].sum(axis=1) >= -loss
        left = np.flatnonzero(left)[: max(CELLS // len(board.rows), 1)]
        sets, gained, loss = sets[left], gained[left], loss[left]
        farther, rows = -back[sets].sum(axis=1), np.full(sets.shape, -1, np.int64)
        home, earlier = np.append(board.home, -1), list[Contents]()
        for at in range(sets.shape[1]):
            # Nobody's coming gains anything.
            left = gained >= -loss
            sets, gained, loss, farther, rows = sets[left], gained[left], loss[left], farther[left], rows[left]
            earlier = [Contents(*(of[left] for of in one)) for one in earlier]
            pods = sets[:, at]
            row, net, contents = self._target(pods, rows[:, :at], earlier)
            rows[:, at] = row
            gained += net
            farther += (pods < nobody) & (row != home[pods])
            earlier.append(contents)
        left = gained >= -loss
        found = zip(*(of[left].tolist() for of in (sets, rows, farther)), strict=True)
        return [(tuple([i for i in some if i < nobody]), tuple([row for row in to if row >= 0]), more) for some, to, more in found]

    def _target(self, pods: np.ndarray, taken: np.ndarray, earlier: list[Contents]) -> tuple[np.ndarray, np.ndarray, Contents]:
        """Of pods in the air (`len(uids)`: nobody, who goes nowhere, -1): the row on which each gains most beyond its cost; how much that is (`THOUSANDTHS`; less than any loss
        where it has no place); and what the row has then. `taken` `(pods, others)`: where others of its set go, with what these rows have then."""
        board, each, nobody = self._board, np.arange(len(pods)), len(self._board.uids)
        someone = pods < nobody
        who = np.where(someone, pods, 0)
        gained, home, kinds = board.targets(who), board.home[who], board.kind[who]
        places = np.column_stack((np.broadcast_to(board.rows, (len(pods), len(board.rows))), home, taken))
        beside, after = [], []
        for at, there in enumerate(earlier):
            rows = taken[:, at]
            gained[places[:, : gained.shape[1]] == rows[:, None]] = NEVER
            possible, contents = board.beside(rows, there, kinds, np.where(rows == home, who, nobody))
            possible &= (rows >= 0) & (taken[:, at + 1 :] != rows[:, None]).all(axis=1) & ((rows == home) | board.masks[board.may[who], rows])
            beside.append(np.where(possible, board.weighed(rows, contents) - board.weighed(rows, there), NEVER))
            after.append(contents)
        net = np.column_stack((gained, *beside)) * THOUSANDTHS
        net -= np.where(places == home[:, None], 0, self._cost[who, None])
        best = np.argmax(net, axis=1)
        row = np.where(someone, places[each, best], -1)
        # So that there is no sum beyond int64.
        most = np.where(someone, np.maximum(net[each, best], NEVER * THOUSANDTHS // MEMBERS), 0)
        _, contents = board.beside(row, board.contents(row), kinds, np.where(row == home, who, nobody))
        for at, one in enumerate(after):
            joined = best == len(board.rows) + 1 + at
            contents = Contents(*(np.where(joined if new.ndim == 1 else joined[:, None], new, old) for new, old in zip(one, contents, strict=True)))
        return row, most, contents

    def together(self, pods: np.ndarray) -> np.ndarray:
        """`(pods, MEMBERS)`: each of these with all that share a device with it (the first that it has), the largest first; alone where these are more. `len(uids)` is nobody."""
        board, nobody = self._board, len(self._board.uids)
        if not board.used.shape[1]:
            return np.column_stack((pods, np.full((len(pods), MEMBERS - 1), nobody)))
        rows, each = board.row[pods], np.arange(len(pods))
        near = np.where(np.arange(board.on.shape[1]) < board.many[rows][:, None], board.on[rows], nobody)
        device = np.argmax(board.used[pods] > 0, axis=1)
        sharing = (near != pods[:, None]) & (board.used[near, device[:, None]] > 0) & (board.used[pods, device] > 0)[:, None]
        first = np.argsort(~sharing, axis=1, kind="stable")[:, : MEMBERS - 1]
        sets = np.full((len(pods), MEMBERS), nobody)
        sets[:, 0] = pods
        sets[:, 1 : 1 + first.shape[1]] = np.where(sharing[each[:, None], first] & (sharing.sum(axis=1) < MEMBERS)[:, None], near[each[:, None], first], nobody)
        small = np.append(-board.size[board.kind], 1)
        return np.take_along_axis(sets, np.argsort(small[sets], axis=1, kind="stable"), axis=1)
