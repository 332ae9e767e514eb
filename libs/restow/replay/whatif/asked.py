"""What people asked for in the record, as it is asked of the model: its pods and plans have other names, and its plans may move others."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts.ids import MigrationId, Millis, PlanId, PodUid
from restow.domain.migration import proposals
from restow.domain.state import ClusterState
from restow.replay.whatif.recorded import Ask

NowIs = Callable[[PodUid], PodUid]
"""The pod that stands in the model where that one stood in the record."""


def asked_of_model(asked: Ask, state: ClusterState, now: Millis, now_is: NowIs) -> c.Command:
    """The same command, at the model's time, of its pods and plans; as it was where the model has no such plan."""
    command = asked.command
    match command:
        case c.MovePod(pod=uid):
            return replace(command, time=now, pod=now_is(uid))
        case c.Approve(moves=some) if (plan := _like(asked, state, state.proposals, now_is)) is not None:
            moves = _those(state, plan, {now_is(uid) for uid in asked.chosen}) if some else ()
            if some and not moves:
                # Who approved some moves declined all others.
                return c.Reject(now, plan, command.by, command.reason)
            return replace(command, time=now, plan=plan, moves=moves)
        case c.Reject() if (plan := _like(asked, state, state.proposals, now_is)) is not None:
            return replace(command, time=now, plan=plan)
        case c.CancelPlan() if command.plan and (plan := _like(asked, state, _open(state), now_is)) is not None:
            return replace(command, time=now, plan=plan)
    return replace(command, time=now)  # type: ignore[type-var]


def _like(asked: Ask, state: ClusterState, among: Iterable[PlanId], now_is: NowIs) -> PlanId | None:
    """Of these plans that which the record calls so, or else the one of the same plugin that moves most of the same pods."""
    name, known = asked.command.plan, state.plans  # type: ignore[attr-defined]
    pods = {now_is(uid) for uid in asked.pods}
    alike = [plan for plan in among if plan == name or known[plan].planned.plugin == asked.plugin]
    return max(alike, key=lambda plan: (plan == name, sum(move.pod in pods for move in known[plan].planned.moves)), default=None)


def _open(state: ClusterState) -> list[PlanId]:
    """Plans that wait for a person, or of which something is to be done."""
    return list(dict.fromkeys([*state.proposals, *(PlanId(state.migrations[id].plan) for id in (*state.backlog, *state.active))]))


def _those(state: ClusterState, plan: PlanId, wanted: set[PodUid]) -> tuple[MigrationId, ...]:
    """The plan's moves of these pods, with those that take the same pod on; without those that need one that was declined, for whose sake all of them would be refused."""
    planned, found = state.plans[plan].planned, dict[MigrationId, None]()
    for move in planned.moves:
        if move.pod in wanted or move.follows in found:
            found[move.migration] = None
    while lacking := [move.migration for move in planned.moves if move.migration in found and any(needed not in found for needed, _ in proposals.needs(planned, move))]:
        for id in lacking:
            del found[id]
    return tuple(found)
