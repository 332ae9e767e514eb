"""The status of a PodGroup: phase, counts and conditions, as users of Volcano know them. A pure function of the fold, and of
the conditions that are there.

Phases are Volcano's (pkg/scheduler/framework/session.go, getPodGroupPhase), with one difference: a group that nothing runs for
is never Running or Completed, also where it asks for no members. Cost: O(pods of the group).
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from restow.contracts.events import PodGroupObserved
from restow.contracts.ids import Millis, PodUid
from restow.contracts.times import seconds
from restow.domain.groups import Group, is_upstream
from restow.domain.network.reach import levels
from restow.domain.session.jobs import UNSCHEDULABLE as NO_CAPACITY
from restow.domain.session.jobs import gang
from restow.domain.session.reasons import short_sentence
from restow.domain.state import OVER, ClusterState

VOLCANO = "volcano"
ENQUEUE = "enqueue"
UNSCHEDULABLE, SCHEDULED = "Unschedulable", "Scheduled"
NOT_HONOURED = "restow.dev/NotHonoured"
"""The condition of a PodGroup that asks for something which is accepted and has no effect."""
READY = "tasks in gang are ready to be scheduled"
NOT_ENOUGH_RESOURCES, NOT_ENOUGH_TASKS = "NotEnoughResources", "NotEnoughTasks"
_REASONS = {NO_CAPACITY: NOT_ENOUGH_RESOURCES, "NotEnoughPods": NOT_ENOUGH_TASKS, "NotEnoughPodsOfTask": NOT_ENOUGH_TASKS}
"""Where Volcano has a word of its own for a reason of ours."""


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition, with the fields and in the form of the API."""

    type: str
    status: str = ""
    transition_id: str = msgspec.field(name="transitionID", default="")
    last_transition_time: str = msgspec.field(name="lastTransitionTime", default="")
    reason: str = ""
    message: str = ""


class GroupStatus(msgspec.Struct, frozen=True):
    """`holds` is the condition that is true now, without its moment; None before any session has looked at the group."""

    phase: str
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    holds: Condition | None = None
    unheeded: Condition | None = None


def is_ours(state: ClusterState, group: Group) -> bool:
    """Whether its status is ours to write: a pod of it is, or it has none yet and Restow answers to Volcano's name."""
    if group not in state.pod_groups or is_upstream(group):
        return False
    pods = state.groups.get(group)
    if not pods:
        return VOLCANO in state.session_config.scheduler_names
    return any(state.ours(state.pods[uid].fact) for uid in pods)


def task_status(state: ClusterState, pod: PodUid) -> str:
    """What Volcano calls the state of a task."""
    live = state.pods[pod].live
    if live.phase in OVER:
        return live.phase
    if live.deleting:
        return "Releasing"
    if live.phase == "Unknown":
        return "Unknown"
    if live.node is not None:
        return "Running" if live.phase == "Running" else "Bound"
    if pod in state.placed:
        return "Binding"
    return "Pipelined" if pod in state.nominations else "Pending"


_SCHEDULED = ("Bound", "Binding", "Running", "Pipelined", *OVER)


def status(state: ClusterState, group: Group) -> GroupStatus:
    """What the status should be now. Raises KeyError for a PodGroup that does not exist."""
    spec = state.pod_groups[group]
    tasks = Counter(task_status(state, uid) for uid in state.groups.get(group, ()))
    short = gang(state, group).short()
    holds = _unschedulable(state, group, tasks) if short else _scheduled(tasks)
    phase = _phase(state, group, tasks, spec.min_member, short)
    return GroupStatus(phase, tasks["Running"], tasks["Succeeded"], tasks["Failed"], holds, not_honoured(_unheeded(state, spec)))


def _unheeded(state: ClusterState, spec: PodGroupObserved) -> str:
    """A soft topology is a preference that needs its plugin."""
    if spec.topology is None or spec.topology.mode != "soft" or levels(state) is not None:
        return spec.unheeded
    return ", ".join(part for part in ("spec.networkTopology", spec.unheeded) if part)


def not_honoured(what: str) -> Condition | None:
    return Condition(NOT_HONOURED, "True", reason="FieldNotHonoured", message=f"accepted, without effect: {what}") if what else None


def phase_of(state: ClusterState, group: Group) -> str:
    """The phase alone. Raises KeyError for a PodGroup that does not exist."""
    tasks = Counter(task_status(state, uid) for uid in state.groups.get(group, ()))
    return _phase(state, group, tasks, state.pod_groups[group].min_member, gang(state, group).short())


def _phase(state: ClusterState, group: Group, tasks: Counter[str], least: int, short: bool) -> str:
    if tasks["Running"] and short:
        return "Unknown"
    scheduled = sum(tasks[name] for name in _SCHEDULED)
    if scheduled and scheduled >= least:
        return "Completed" if scheduled == sum(tasks[name] for name in OVER) else "Running"
    enqueues = any(action.name == ENQUEUE for action in state.session_config.actions)
    return "Pending" if enqueues and group in state.unqueued else "Inqueue"


def _scheduled(tasks: Counter[str]) -> Condition | None:
    return Condition(SCHEDULED, "True", reason=READY) if sum(tasks[name] for name in _SCHEDULED) else None


def _unschedulable(state: ClusterState, group: Group, tasks: Counter[str]) -> Condition | None:
    """None where no session has looked at those that wait; they may fit."""
    spec = state.pod_groups[group]
    parked = state.parked_under.get(("group", "/".join(group)))
    told = state.waiting[state.parked[next(iter(parked))][0]] if parked else None
    if told is not None:
        return Condition(
            UNSCHEDULABLE, "True", reason=_REASONS.get(told.reason, told.reason), message=_message(tasks, spec.min_member, short_sentence(told))
        )
    waiting = tasks["Pending"] + tasks["Pipelined"] + tasks["Binding"]
    if waiting or not tasks:
        return None
    return Condition(UNSCHEDULABLE, "True", reason=NOT_ENOUGH_TASKS, message=_message(tasks, spec.min_member, ""))


def _message(tasks: Counter[str], least: int, more: str) -> str:
    """`3/5 tasks in gang unschedulable: pod group is not ready, 2 Running, 3 Pending, 5 minAvailable; 0/4 nodes …`."""
    counts = sorted(f"{count} {name}" for name, count in (*tasks.items(), ("minAvailable", least)) if count)
    what = f"{tasks['Pending']}/{sum(tasks.values())} tasks in gang unschedulable: pod group is not ready, {', '.join(counts)}"
    return f"{what}; {more}" if more else what


def conditions(
    there: Sequence[Condition], holds: Condition | None, uid: str, now: Millis, unheeded: Condition | None = None
) -> tuple[Condition, ...]:
    """The conditions that should be there instead of `there`: one of a type (RULES G-9). What becomes true makes the other of
    our two types false; a condition whose status and reason stay keeps its moment. Others' are kept."""
    found = {condition.type: condition for condition in there if unheeded is not None or condition.type != NOT_HONOURED}
    wanted = [condition for condition in (holds, unheeded) if condition is not None]
    if not wanted:
        return tuple(found.values())
    other = "" if holds is None else SCHEDULED if holds.type == UNSCHEDULABLE else UNSCHEDULABLE
    if holds is not None and other in found:
        wanted.append(Condition(other, "False", reason=holds.reason if other == SCHEDULED else "Ready"))
    for condition in wanted:
        known = found.get(condition.type)
        if known is not None and (known.status, known.reason) == (condition.status, condition.reason):
            found[condition.type] = msgspec.structs.replace(known, message=condition.message)
        else:
            found[condition.type] = msgspec.structs.replace(
                condition, last_transition_time=seconds(now), transition_id=_transition(uid, condition, now)
            )
    return tuple(_in_order(found.values()))


def _in_order(found: Iterable[Condition]) -> list[Condition]:
    """The latest of ours last, as Volcano's users read them."""
    own = (UNSCHEDULABLE, SCHEDULED)
    return sorted(found, key=lambda c: (c.type in own, c.status == "True" if c.type in own else False))


def _transition(uid: str, condition: Condition, now: Millis) -> str:
    """The same transition has the same id, whoever writes it; in the form of a uid, as Volcano's."""
    digest = hashlib.sha256(f"{uid}/{condition.type}/{condition.status}/{condition.reason}/{now}".encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
