"""Plans as they turned out: what each promised to win and to cost, and what was really won and lost."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal, as_if_without, waiting
from restow.domain.defragmentation.costs import PREFERRED, USUAL, Costs
from restow.domain.defragmentation.usable_worth import MILLI
from restow.domain.planview import carried_out
from restow.domain.records import FINAL, Step
from restow.domain.state import ClusterState, Touched
from restow.replay.source import Source
from restow.replay.state_at import (
    Progress,
    Watch,
    check_whole,
    examine_next,
    fold_examined,
    no_progress,
    nobody,
)


class Settled(msgspec.Struct, rename="camel"):
    """One plan that has moves and says its worth; amounts are in thousandths of `unit`, for `hours`. `won` is by how much what is free in the whole cluster is worth
    more since the plan was made, by the demands that there were then, when its last move has ended: what others did meanwhile counts, too, but what
    those have taken who waited when it was made (`started` of them by then), and what its old pods have while they end, counts as free, and so do nodes
    that it has emptied and closed (`emptied: cordon`). Where nodes have come or gone, of those alone that were
    there all the time, and, where they are emptied to be taken away, of what the plan has emptied. None where moves have not ended, or what pods asked for then is not known any more.
    `lost` is what the evictions cost that there were, by the time of each; `evicted` counts them."""

    plan: str
    at: Millis
    planner: str
    unit: str
    hours: int
    moves: int
    promised: int
    cost: int
    landed: int = 0
    evicted: int = 0
    failed: int = 0
    under_way: int = 0
    lost: int = 0
    won: int | None = None
    started: int = 0


class _Open:
    """A plan whose moves have not all ended."""

    def __init__(self, state: ClusterState, planned: e.Planned, time: Millis) -> None:
        assert planned.worth is not None, "asked for before"
        self.worth, self.args = planned.worth, state.migration_config.defragmentation or DefragmentationArgs()
        self.appraisal = Appraisal(state, self.args, time)
        self.before, self.blocks = self.appraisal.each(), self.appraisal.whole()  # The demands are those of now.
        self.nodes, self.columns, self.waited = list(state.table.names), list(state.table.columns), waiting(state)
        self.whole = {name: self.appraisal.prices.per_hour[row] for name, row in state.table.rows.items()}
        self.emptying = state.migration_config.emptied != "none"
        self.moves: dict[MigrationId, Move] = {move.migration: move for move in planned.moves}
        self.less = {move.migration: self._less(move) for move in planned.moves if move.pod in state.pods}
        self.settled = Settled(
            planned.plan, time, planned.planner, self.worth.unit, self.worth.hours, len(planned.moves), self.worth.after - self.worth.before, self.worth.cost
        )

    def evict(self, state: ClusterState, move: Move, time: Millis) -> None:
        """An eviction of one of its moves has become a fact."""
        same = state.table.names == self.nodes
        known = state.pods.get(move.pod)
        costs = Costs(state, USUAL | self.args.costs, time, self.appraisal.prices)
        self.settled.evicted += 1
        self.settled.lost += costs.cost(move.pod, as_one=bool(move.gang)) + self.less.get(move.migration, 0) if same and known is not None else move.cost

    def _less(self, move: Move) -> int:
        """What its pod prefers and has no more where it goes: its planner has found that out, and says it in the cost alone. So much for each of the kinds."""
        price = self.appraisal.costs.preferences
        if not price or not move.cost:
            return 0
        over = move.cost - self.appraisal.costs.cost(move.pod, as_one=bool(move.gang))
        return min(max((over + price // 2) // price, 0), PREFERRED) * price

    def settle(self, state: ClusterState) -> bool:
        """Whether all moves have ended; then also what was won."""
        steps = [state.migrations[id].step for id in self.moves if id in state.migrations]
        self.settled.landed = steps.count(Step.LANDED)
        self.settled.failed = sum(step in (Step.FAILED, Step.NOT_RECREATED) for step in steps)
        self.settled.under_way = len(steps) - sum(step in FINAL for step in steps)
        if self.settled.under_way:
            return False
        started = [uid for uid in self.waited if uid in state.charges]
        self.settled.started = len(started)
        capacity, loads = as_if_without(state, {*started, *self._ending(state)})
        plan = PlanId(self.settled.plan)
        if state.table.names == self.nodes:
            self.settled.won = self.appraisal.total(capacity, loads, emptied=plan) - self.worth.before
        elif (again := self._again(state)) is not None:
            stayed = [name for name in self.before if name in state.table.rows]
            now = again.total(capacity, loads, state.table.mask(stayed), plan)
            # What it has emptied, and somebody has taken away, was given back at its price.
            taken = {move.source for move in self.moves.values()} & self.before.keys() - state.table.rows.keys() if self.emptying else set[NodeName]()
            given = sum(self.whole[name] * self.worth.hours // MILLI for name in taken)
            blocks = self.blocks.only(np.isin(self.nodes, stayed))
            self.settled.won = now + given - blocks - sum(self.before[name] for name in [*stayed, *taken])
        return True

    def _again(self, state: ClusterState) -> Appraisal | None:
        """By the same demands and prices on the nodes of now; None where a demand, or what is counted, is not known any more."""
        wanted, gangs = self.appraisal.usable.wanted, self.appraisal.blocks.gangs
        if any(one.rules not in state.shapes for one in (*wanted, *(gang.one for gang in gangs))) or list(state.table.columns)[: len(self.columns)] != self.columns:
            return None
        again = Appraisal(state, self.args, Millis(state.time), wanted, gangs)
        for name, per_hour in self.whole.items():
            if name in state.table.rows:
                again.prices.per_hour[state.table.rows[name]] = per_hour
        return again

    def _ending(self, state: ClusterState) -> list[PodUid]:
        """Old pods of its moves that have not ended yet: they do by their own time, often later than their successors are ready."""
        moved = (state.migrations[id].move.pod for id in self.moves if id in state.migrations)
        return [uid for uid in moved if uid in state.pods and state.pods[uid].live.deleting]


def _approved(state: ClusterState, event: e.PlanApproved) -> e.Planned | None:
    """The plan as a person lets it be carried out. What others have changed while it waited is not its own; what some of its moves promise is worked out for these alone."""
    known = state.plans.get(event.plan)
    if event.plan not in state.proposals or known is None or known.planned.worth is None:
        return None
    planned, worth = known.planned, known.planned.worth
    moves = tuple(move for move in planned.moves if not event.moves or move.migration in event.moves)
    appraisal = Appraisal(state, state.migration_config.defragmentation or DefragmentationArgs(), Millis(state.time))
    now = appraisal.total()
    after = appraisal.total(*carried_out(state, moves)) if event.moves else now + worth.after - worth.before
    return replace(planned, moves=moves, worth=replace(worth, before=now, after=after, cost=sum(move.cost for move in moves))) if moves else None


def settle(source: Source, progress: Progress = no_progress, watch: Watch = nobody) -> list[Settled]:
    """All plans of a log that have moves, are to be carried out and say their worth, in order. Raises ReplayError."""
    check_whole(source)
    state, found, open = ClusterState(), list[Settled](), dict[str, _Open]()
    for batch in source.batches():
        for record in batch:
            examined = examine_next(state, record, source.log_id)
            told: list[e.Event] = [event for decision in examined.decisions for event in decision.events] if record.family == "migration" else []
            made = [event for event in told if isinstance(event, e.Planned) and event.moves and event.worth is not None and not event.mode]
            made += [planned for event in told if isinstance(event, e.PlanApproved) and (planned := _approved(state, event)) is not None]
            begun = [_Open(state, planned, examined.time) for planned in made]
            for event in told:
                if isinstance(event, e.Evicted):
                    for one in open.values():
                        if (move := one.moves.get(event.migration)) is not None:
                            one.evict(state, move, examined.time)
            watch(state, record, fold_examined(state, record, examined, source.log_id))
            for one in begun:
                open[one.settled.plan] = one
                found.append(one.settled)
            if told:
                for plan in [plan for plan, one in open.items() if one.settle(state)]:
                    del open[plan]
        state.touched = Touched()
        progress(batch[-1].seq, source.last)
    return found
