"""The plan: ⟨source, target, pod⟩ triplets, each with a concrete landing place (seed 000, 2.3), by the planner that is configured."""

from restow.contracts.events import Planned
from restow.contracts.ids import Millis, PlanId
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation import greedy, optimizing
from restow.domain.defragmentation.scope import EVERYTHING, Scope
from restow.domain.state import ClusterState

MAX_MOVES = 2_000


def plan(
    state: ClusterState,
    args: DefragmentationArgs,
    time: Millis,
    plan_id: PlanId,
    max_moves: int = MAX_MOVES,
    scope: Scope = EVERYTHING,
) -> Planned:
    """The plan as a value; the state stays as it is. `kept` counts, per verdict, the pods on sources that stay (optimizing: all
    pods), and `sources` are the nodes that something leaves. A plan may have no moves: then `kept` says why. Raises ArgsError."""
    if args.planner == "optimizing":
        return optimizing.plan(state, args, time, plan_id, max_moves, scope=scope)
    return greedy.plan(state, args, time, plan_id, max_moves, scope)


def make_room(
    state: ClusterState,
    args: DefragmentationArgs,
    time: Millis,
    plan_id: PlanId,
    demand: str,
    max_moves: int = MAX_MOVES,
    scope: Scope = EVERYTHING,
) -> Planned:
    """The cheapest moves that make room for the pod of this uid, or for all waiting pods of the PodGroup `namespace/name`; where
    that cannot be done there are none, and `reason` says why. Whichever planner is configured."""
    return optimizing.make_room(state, args, time, plan_id, demand, max_moves, scope)
