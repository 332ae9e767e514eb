"""The bound beside a plan that is only asked for: no decision has it, since none may depend on which solver is installed."""

from collections.abc import Sequence

from restow.contracts import commands as c
from restow.contracts.events import Event, Planned
from restow.domain.defragmentation.bound import Bound, countable, judged
from restow.domain.migration.deschedule import task_of
from restow.domain.state import ClusterState


def bound_of(state: ClusterState, command: c.Command, events: Sequence[Event]) -> Bound | None:
    """Of the optimizing planner's plan for the whole cluster, by an objective that is counted; None for any other. The state is the one that it was decided on."""
    if not isinstance(command, c.Defragment) or command.demand:
        return None
    task = task_of(state, command.time, command.plan, command.steps)
    if task.args.planner != "optimizing" or not countable(task):
        return None
    return next((judged(task, event) for event in events if isinstance(event, Planned)), None)
