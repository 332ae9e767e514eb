"""A gang that is moved as one or not at all: who is of it, and whether disruption budgets let all of it go. Asked by whoever plans such moves."""

from collections import Counter
from collections.abc import Sequence

from restow.contracts.ids import PlanId, PodUid
from restow.domain.groups import UPSTREAM, Group, min_field, task_of
from restow.domain.protection import Budgets
from restow.domain.records import Migration
from restow.domain.state import OVER, ClusterState


def moved_as_one(state: ClusterState, migration: Migration) -> str:
    """The PodGroup (`namespace/name`) with all of whose pods it is moved, empty where it moves alone. Plans of releases up to 0.2 say it of all of their moves at once."""
    if migration.move.gang:
        return migration.move.gang
    known = state.plans.get(PlanId(migration.plan))
    return "" if known is None else known.planned.gang


def said(group: Group) -> str:
    """As people know it."""
    return f"PodGroup {group[0]}/{group[1].removeprefix(UPSTREAM)}"


def members(state: ClusterState, group: Group) -> tuple[list[PodUid], str]:
    """Its pods, in the order in which the log saw them, and why they cannot go as one now; empty where they can. Whether each of them may go is not asked."""
    found = [uid for uid in state.groups.get(group, ()) if not state.pods[uid].live.deleting and state.pods[uid].live.phase not in OVER]
    if waiting := [uid for uid in found if state.pods[uid].live.phase != "Running"]:
        return found, f"{len(waiting)} of its {len(found)} pods do not run"
    return sorted(found, key=state.order_of), _too_few(state, group, found) if found else ""


def _too_few(state: ClusterState, group: Group, pods: Sequence[PodUid]) -> str:
    """Whether it would not start again with the slots of those that run: the scheduler waits for all that it needs, and nothing is held for the others."""
    known = state.pod_groups.get(group)
    if known is None:
        return ""
    if len(pods) < known.min_member:
        return f"{len(pods)} of its pods run, and its {min_field(group)} is {known.min_member}"
    tasks = Counter(task_of(state.pods[uid].fact) for uid in pods)
    return next((f"{tasks[task]} of its pods of task {task} run, and its minTaskMember is {need}" for task, need in known.min_task_member.items() if tasks[task] < need), "")


def over_budget(state: ClusterState, pods: Sequence[PodUid]) -> str:
    """Whether a disruption budget does not let all of them go."""
    budgets, asked = Budgets(state), Counter[str]()
    for uid in pods if state.budgets else ():
        paths = budgets.bind(uid)
        if len(paths) > 1:
            return f"pod {state.pods[uid].fact.name}: {budgets.refusal(uid)}"
        asked.update(paths)
    for path, many in asked.items():
        if (left := budgets.evictions_left(path)) < many:
            return f"the disruption budget {path} allows {max(left, 0)} evictions now, and {many} pods of the gang would need one"
    return ""
