"""Who waits in which queue, since when, for what, and which single change would help; and what is reserved from when until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec

from restow.contracts.ids import Millis, PodUid
from restow.domain.groups import Group
from restow.domain.records import SlotPhase
from restow.domain.resources import PODS
from restow.domain.session.jobs import gang, job_of
from restow.domain.session.verdict import explain, explain_group
from restow.domain.state import ClusterState
from restow.replay.holds import reservation_name
from restow.replay.pod_status import why_waits
from restow.replay.verdicts import relief_line

MOST_RELIEVED = 20
"""Of so many that wait, first in turn, it is worked out what would help: each takes as long as a session's look at all nodes."""
MOST_WAITING, MOST_RESERVED = 500, 500
OVER_PHASES = ("Succeeded", "Failed")


class Waiting(msgspec.Struct, frozen=True):
    """A gang, or a pod of none, that waits in a queue. `pods` of it wait since `since` (ms; the first of them), `ready` have a node, `need` must be ready together. `requests`: of one that waits, in canonical
    units. `helps`: which single changes would be enough, in sentences; None where that was not worked out."""

    path: str
    queue: str
    priority: int
    since: Millis
    pods: int
    ready: int
    need: int
    requests: dict[str, int]
    why: str
    helps: tuple[str, ...] | None = None


class Reserved(msgspec.Struct, frozen=True):
    """A Reservation that no move made: from when it is held for, until when (ms; 0: as long as it is there). `slots` of it are held or used, of `asked`; `used` by owners now."""

    path: str
    phase: str
    reason: str
    since: Millis
    ends: Millis
    slots: int
    used: int
    asked: int


class Waits(msgspec.Struct, frozen=True, rename="camel"):
    """`waiting`: the first in turn first, and no more than `MOST_WAITING`, of `waiting_in_all`. `pods`: by queue all that wait, told or not."""

    waiting: tuple[Waiting, ...]
    waiting_in_all: int
    pods: dict[str, int]


def waiting(state: ClusterState) -> Waits:
    """Of pods that Restow places."""
    pods = Counter[str]()
    groups: dict[Group, None] = {}
    turns: list[tuple[tuple[int, int], Callable[[bool], Waiting]]] = []
    for uid, pod in state.pods.items():
        if not state.awaits_placement(uid) or not state.ours(pod.fact):
            continue
        pods[state.queue_of(pod.fact)] += 1
        if (group := job_of(state, pod.fact)) is None:
            turns.append(((-state.shapes[pod.fact.shape].priority, state.order_of(uid)), partial(_pod, state, uid)))
        else:
            groups[group] = None
    turns += [(_turn(state, group), partial(_gang, state, group)) for group in groups]
    told = tuple(made(at < MOST_RELIEVED) for at, (_, made) in enumerate(sorted(turns, key=lambda one: one[0])[:MOST_WAITING]))
    return Waits(told, len(turns), dict(sorted(pods.items())))


def _turn(state: ClusterState, group: Group) -> tuple[int, int]:
    first = min(state.order_of(uid) for uid in state.groups[group] if state.awaits_placement(uid))
    return (-gang(state, group).priority if group in state.pod_groups else 0), first


def _pod(state: ClusterState, uid: PodUid, relieved: bool) -> Waiting:
    pod = state.pods[uid].fact
    helps = tuple(relief_line(one) for one in explain(state, uid).reliefs) if relieved else None
    return Waiting(
        f"pod/{pod.namespace}/{pod.name}", state.queue_of(pod), state.shapes[pod.shape].priority, pod.created, 1, 0, 1, _requests(state, uid), why_waits(state, pod.pod), helps,
    )  # fmt: skip


def _gang(state: ClusterState, group: Group, relieved: bool) -> Waiting:
    uids = sorted((uid for uid in state.groups[group] if state.awaits_placement(uid)), key=state.order_of)
    first = state.pods[uids[0]].fact
    since = min(state.pods[uid].fact.created for uid in uids)
    path, why = f"podgroup/{'/'.join(group)}", why_waits(state, uids[0])
    if group not in state.pod_groups:
        return Waiting(path, state.queue_of(first), 0, since, len(uids), 0, 0, _requests(state, uids[0]), why)
    job = gang(state, group)
    helps = tuple(relief_line(one, "would start with") for one in explain_group(state, group)[2]) if relieved else None
    return Waiting(path, job.queue, job.priority, since, len(uids), job.ready, job.need, _requests(state, uids[0]), why, helps)


def _requests(state: ClusterState, uid: PodUid) -> dict[str, int]:
    requests = state.shapes[state.pods[uid].fact.shape].requests
    return {name: amount for name, amount in requests.items() if name != PODS}


def reserved(state: ClusterState) -> tuple[list[Reserved], int]:
    """Those that are held or are to be, the oldest first; then those that are over and not deleted yet. No more than `MOST_RESERVED`; and how many there are in all."""
    found = list[Reserved]()
    for uid, record in state.reservations.items():
        fact, phase = record.fact, state.phases.get(uid)
        if fact.migration or record.gone or phase is None:
            continue
        slots = state.slots.get(uid, {})
        held = sum(slot.phase in (SlotPhase.HELD, SlotPhase.USED) for slot in slots.values())
        used = sum(bool(state.slot_users.get((uid, name))) for name in slots)
        over = phase.phase in OVER_PHASES
        found.append(Reserved(f"reservation/{reservation_name(state, uid)}", phase.phase, phase.reason, fact.created, phase.since if over else record.expires, held, used, len(slots)))
    return sorted(found, key=lambda one: (one.phase in OVER_PHASES, one.since, one.path))[:MOST_RESERVED], len(found)
