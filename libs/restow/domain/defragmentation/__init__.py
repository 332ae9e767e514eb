"""The Defragmentation plugin (seed 000, 2.1 to 2.3; RULES 000-4): empty the least used nodes into well used ones, or, by the
optimizing planner, as much as can be gained for what it costs."""

from collections import Counter

from restow.contracts.events import Planned
from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation import claims, greedy, optimizing
from restow.domain.defragmentation.args import ArgsError, check
from restow.domain.defragmentation.plan import PLANNED, PLUGIN, Candidate, Task, candidates, summed_up
from restow.domain.defragmentation.scope import EVERYTHING, Scope
from restow.domain.state import ClusterState
from restow.domain.verdicts import Stay

__all__ = ["MAX_MOVES", "PLANNED", "PLUGIN", "ArgsError", "Candidate", "check", "explain", "explained", "plan", "plan_demand"]

MAX_MOVES = 2_000


_PLANNERS = {"greedy": greedy.plan, "optimizing": optimizing.plan, "claims": claims.plan}


def plan(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int = MAX_MOVES, scope: Scope = EVERYTHING
) -> Planned:
    """The plan as a value; the state stays as it is. `kept` counts, per verdict, the pods on sources that stay (optimizing: all
    pods), and `sources` are the nodes that something leaves. A plan may have no moves: then `kept` says why. Raises ArgsError."""
    return _made(Task(state, args, time, plan_id, max_moves, scope))[0]


def explain(
    state: ClusterState, args: DefragmentationArgs, time: Millis, max_moves: int = MAX_MOVES, scope: Scope = EVERYTHING
) -> tuple[Candidate, ...]:
    """All candidates, by source and pod in the order of their names: the plan decided again, with every verdict in full. Raises ArgsError."""
    return explained(state, args, time, PlanId("explain"), max_moves, scope)[1]


def explained(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int = MAX_MOVES, scope: Scope = EVERYTHING
) -> tuple[Planned, tuple[Candidate, ...]]:
    """The plan, and what it thinks of each candidate. Raises ArgsError."""
    planned, stays = _made(Task(state, args, time, plan_id, max_moves, scope, explains=True))
    return planned, candidates(state, planned.moves, stays)


def _made(task: Task) -> tuple[Planned, list[tuple[PodUid, NodeName, Stay]]]:
    kept, told = Counter[str](), list[tuple[PodUid, NodeName, Stay]]()

    def stays(uid: PodUid, node: NodeName, why: Stay) -> None:
        kept[why.id] += 1
        if task.explains:
            told.append((uid, node, why))

    args = task.args
    found = _PLANNERS[args.planner](task, stays)
    reason = claims.promise(task, found) if args.planner == "claims" else ""
    return summed_up(task, found, kept, args.planner, reason=reason, whole=args.wholeNodes and args.planner == "optimizing"), told


def plan_demand(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, demand: str, max_moves: int = MAX_MOVES,
    scope: Scope = EVERYTHING,
) -> Planned:  # fmt: skip
    """The cheapest moves that free capacity for the pod of this uid, or for all waiting pods of the PodGroup `namespace/name`; where
    that cannot be done there are none, and `reason` says why. Whichever planner is configured."""
    return optimizing.plan_demand(Task(state, args, time, plan_id, max_moves, scope), demand)
