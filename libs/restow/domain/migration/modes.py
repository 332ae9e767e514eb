"""What becomes of plans, by the mode: they are carried out, wait for a person, or are only observed. Of observed ones it is looked later what would have become of their moves."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PlanId, PodUid
from restow.contracts.values import Move, MoveSeen
from restow.domain.config import MigrationConfig
from restow.domain.decider import Rejected
from restow.domain.defragmentation.simulation import Simulation, simulated
from restow.domain.evolve.bounces import BY_HAND
from restow.domain.evolve.observed import ENDED, FREE, GONE, TAKEN, THERE
from restow.domain.migration.targets import stand_in
from restow.domain.predicates import AND
from restow.domain.records import AUTOMATIC, MODES, OBSERVE, PROPOSE
from restow.domain.state import OVER, ClusterState

SOON = 3_600_000
"""Milliseconds after a plan within which a pod that ends has been moved for nothing, or nearly."""


LATE = 600_000
"""Milliseconds after which a look says nothing any more of its time: nobody was there."""


def stamped(state: ClusterState, plans: Sequence[e.Planned]) -> list[e.Planned]:
    """Plans as the mode has them made."""
    mode = state.mode.name
    return list(plans) if mode == AUTOMATIC else [replace(plan, mode=mode) for plan in plans]


def heed(state: ClusterState) -> None:
    """Raises Rejected where no pod may be moved at all. A pod that a person names is moved in all other modes: that is what the person decides."""
    if state.mode.name == OBSERVE:
        raise Rejected(f"move: nothing is moved here, for the mode is observe{_by(state)}; allowed: a dry run, or another mode (`restow mode`)")


def said(state: ClusterState) -> str:
    """The mode, where it is not automatic: for people."""
    what = {OBSERVE: "plans are recorded and nothing is moved", PROPOSE: "plans wait for `restow approve`"}.get(state.mode.name, "")
    return f"the mode is {state.mode.name}{_by(state)}: {what}" if what else ""


def _by(state: ClusterState) -> str:
    return f" (set by {state.mode.by})" if state.mode.by else " (the policy's)"


def set_mode(state: ClusterState, command: c.SetMode) -> list[e.Event]:
    """Raises Rejected."""
    if command.mode not in MODES:
        raise Rejected(f"mode: {command.mode!r}; allowed: {', '.join(MODES)}")
    if command.mode == state.mode.name:
        raise Rejected(f"mode: it is {command.mode} already{_by(state)}")
    return [e.ModeSet(command.mode, command.by, command.reason)]


def stops(state: ClusterState, now: Millis, under_way: Callable[[ClusterState], list[PlanId]]) -> c.CancelPlan | None:
    """Of the plans that are under way, or wait for a person, the first that the mode does not allow any more."""
    mode = state.mode.name
    open = list(state.proposals) if mode != PROPOSE else []
    if mode != AUTOMATIC and (state.backlog or state.active or state.demand_slots):
        open += [plan for plan in under_way(state) if mode == OBSERVE or _is_nobodys(state, plan)]
    return c.CancelPlan(now, open[0], f"ModeChanged: the mode is {mode}{_by(state)}") if open else None


def _is_nobodys(state: ClusterState, plan: PlanId) -> bool:
    """Whether no person has asked for its moves or approved them."""
    known = state.plans.get(plan)
    return known is not None and not known.planned.mode and known.planned.trigger != BY_HAND


def is_new_here(state: ClusterState) -> bool:
    """Whether who observes has never said anything, and the cluster is known by now: nobody waits for an interval to see the first plan."""
    return state.mode.name == OBSERVE and state.migration_config.interval > 0 and not state.plans and "pods" in state.synced


def takes(config: MigrationConfig) -> int:
    """Milliseconds in which a move is over, by its deadlines."""
    return config.hold_deadline + config.evicts_for + config.land_deadline


def next_look(state: ClusterState) -> tuple[Millis, PlanId] | None:
    """When a plan is looked at again, and which."""
    times = ((_look_at(state, plan, looks), plan) for plan, looks in state.observed.items() if plan in state.plans)
    return min(times, default=None)


def _look_at(state: ClusterState, plan: PlanId, looks: int) -> Millis:
    first = takes(state.migration_config)
    return Millis(state.plans[plan].at + (first, max(first, SOON))[looks])


def look_back(state: ClusterState, command: c.LookBack) -> tuple[e.Event, ...]:
    looks, plan = state.observed.get(command.plan), state.plans.get(command.plan)
    if looks is None or plan is None:
        return ()
    moves = plan.planned.moves
    if command.time > _look_at(state, command.plan, looks) + LATE:
        return (e.LookedBack(command.plan, looks + 1),)
    if looks:
        return (e.LookedBack(command.plan, looks + 1, tuple(MoveSeen(move.migration, _pod(state, uid)) for move, uid, last in _whole(moves) if last.target)),)
    with simulated(state, command.time, stand_in(state, command.time)) as simulation:
        seen = [_seen(simulation, *one) for one in _whole(moves)]
        return (e.LookedBack(command.plan, 1, tuple(one for one in seen if one is not None)),)


def _whole(moves: Sequence[Move]) -> Iterator[tuple[Move, PodUid, Move]]:
    """Of each pod its first move, and the last one: it may go by way of another node."""
    onward: dict[MigrationId, Move] = {move.follows: move for move in moves if move.follows}
    for move in moves:
        if move.pod:
            yield move, move.pod, onward.get(move.migration, move)


def _pod(state: ClusterState, uid: PodUid) -> str:
    known = state.pods.get(uid)
    return THERE if known is not None and not known.live.deleting and known.live.phase not in OVER and uid in state.charges else ENDED


def _seen(simulation: Simulation, move: Move, uid: PodUid, last: Move) -> MoveSeen | None:
    """By the scheduler's rules as they are now, each move as if those before it had been made. None of one that goes nowhere: it has no slot to be free, and may have ended before the plan."""
    state, nodes = simulation.state, simulation.session.nodes
    if _pod(state, uid) == ENDED:
        return MoveSeen(move.migration, ENDED) if last.target else None
    if not last.target:
        nodes.give(state.table.rows[state.charges[uid].node], state.vectors[state.pods[uid].fact.shape], state.devices_of(uid))
        simulation.vacate(uid)
        return None
    if last.target not in state.table.rows:
        return MoveSeen(move.migration, THERE, GONE)
    spot = simulation.best(uid, target=last.target)
    if spot is None:
        _, reasons = simulation.reasons(uid, last.target)
        why = ", ".join(sorted(reason.replace(AND, ", ") for reason in reasons))
        return MoveSeen(move.migration, THERE, TAKEN, why)
    vector = state.vectors[state.pods[uid].fact.shape]
    nodes.give(state.table.rows[state.charges[uid].node], vector, state.devices_of(uid))
    nodes.take(spot.row, vector, spot.devices)
    simulation.vacate(uid)
    simulation.enter(uid, spot)
    return MoveSeen(move.migration, THERE, FREE)
