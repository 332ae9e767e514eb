"""`CancelPlan`: nothing more of a plan; what was not evicted yet is rolled back."""

from restow.contracts import events as e
from restow.contracts.ids import PlanId
from restow.domain.decider import Rejected
from restow.domain.migration import rooms
from restow.domain.state import ClusterState

BY_HAND = "cancelled by hand"


def cancel(state: ClusterState, plan: PlanId, reason: str) -> list[e.Event]:
    """Of all plans where none is named. Raises Rejected where there is nothing to cancel."""
    if plan and plan not in state.plans:
        raise Rejected(f"cancel: there is no plan {plan!r}; allowed: {_some(state)}")
    if plan and plan in state.cancelled:
        raise Rejected(f"cancel: plan {plan!r} is cancelled already: {state.cancelled[plan]}")
    open_plans = under_way(state)
    wanted = [one for one in open_plans if not plan or one == plan]
    if not wanted:
        raise Rejected(f"cancel: plan {plan!r} is over; allowed: {_some(state)}" if plan else "cancel: no plan is under way")
    return [e.PlanCancelled(one, reason or BY_HAND) for one in wanted]


def under_way(state: ClusterState) -> list[PlanId]:
    """Plans of which something is still to be done, in their order."""
    plans = {PlanId(state.migrations[id].plan) for id in (*state.backlog, *state.active)}
    plans.update(room.plan for room in state.plan_rooms.values() if not rooms.is_used(state, room) and not room.gone)
    known = [plan for plan in plans if plan in state.plans and plan not in state.cancelled]
    return sorted(known, key=lambda plan: (state.plans[plan].at, plan))


def _some(state: ClusterState) -> str:
    names = [str(plan) for plan in under_way(state)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"one of {', '.join(names[:5])}{more}" if names else "none, for no plan is under way"
