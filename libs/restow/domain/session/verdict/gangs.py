"""How many members of a gang fit at the same time, and what would let it be complete."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.domain.device_choice import fullest
from restow.domain.node_table import WHOLE, Vector
from restow.domain.predicates import static_mask
from restow.domain.quantity import format_resource
from restow.domain.resources import PODS
from restow.domain.session.actions.allocate import FOLLOWS
from restow.domain.session.framework import Within
from restow.domain.session.gangs import is_complete, place_together
from restow.domain.session.jobs import Job
from restow.domain.session.session import Session
from restow.domain.session.verdict.suppose import supposed
from restow.domain.session.verdict.values import GangFit, Relief
from restow.domain.state import ClusterState

MOST = 1_000
"""Members for whom more nodes are counted: beyond that the answer would take longer than anybody waits for it."""


@contextmanager
def placed(session: Session, job: Job, unfit: list[PodUid]) -> Iterator[GangFit]:
    """All of its pods that fit beside each other are placed, in task order, and taken back at the end. `unfit` gets the
    others."""
    state, ready = session.state, job.ready
    pods = [state.pods[uid].fact for uid in job.tasks]
    with session.attempt(within=_block(session, job, pods)):
        tried = place_together(session, job, pods, session.find)
        unfit += [uid for uid in job.tasks if uid not in session.placements]
        complete, first = is_complete(session, job), "" if tried.first is None else f"{tried.first.namespace}/{tried.first.name}"
        quota = next(iter(tried.kept_back.values()), FOLLOWS if tried.follows else "")
        yield GangFit(job.key, job.need, ready, len(job.tasks), len(tried.placed), complete, first, *tried.first_counts, quota)


def _block(session: Session, job: Job, pods: Sequence[PodObserved]) -> Within | None:
    """Where it is to be near to each other the first block that it is complete in, else the last one that is tried; None for all nodes."""
    within = None
    for within in session.extensions.blocks.choices(job, pods) if session.extensions.blocks is not None else ():
        with session.attempt(within=within):
            place_together(session, job, pods, session.find)
            if is_complete(session, job):
                return within
    return within


def more_nodes(session: Session, job: Job, fit: GangFit, unfit: Sequence[PodUid]) -> Iterator[Relief]:
    """How many empty nodes, like one that is there, would take what is missing; with the others in place."""
    missing = _missing(session, job, unfit)
    if missing and len(missing) <= MOST and not fit.quota and _free_to_go(session, job, missing):
        yield from more_empty(session, [session.state.pods[uid].fact for uid in missing])


def more_empty(session: Session, missing: Sequence[PodObserved]) -> Iterator[Relief]:
    """How many empty nodes, like one that is there, would take all of these. The fewest that one class of node allows, ties to
    the first name. Nothing but capacity is looked at."""
    state, table = session.state, session.state.table
    if not missing or len(missing) > MOST:
        return
    asked = [state.vectors[pod.shape] for pod in missing]
    able = table.alive.copy()
    for shape in {pod.shape for pod in missing}:
        able &= static_mask(state, shape)
    counts = table.device_counts.tolist()
    best: tuple[int, NodeName] | None = None
    seen: set[tuple[bytes, int]] = set()
    for row in sorted(np.flatnonzero(able).tolist(), key=lambda r: int(table.rank[r])):
        node_class = (table.allocatable[row].tobytes(), counts[row])
        if node_class in seen:
            continue
        seen.add(node_class)
        count = _bins(table.allocatable[row].tolist(), counts[row], asked)
        if count is not None and (best is None or count < best[0]):
            best = count, session.name(row)
    if best is not None:
        yield Relief(f"{best[0]} more empty node{'s' * (best[0] != 1)} like {best[1]}")


def _free_to_go(session: Session, job: Job, missing: Sequence[PodUid]) -> bool:
    """Whether nothing but capacity is between these pods and new nodes: no rule about what runs, and their queue lets all of them
    in."""
    pods = [session.state.pods[uid].fact for uid in missing]
    if any(not rule.for_others for pod in pods for rule in session.concerned(pod)):
        return False
    with session.attempt():
        for pod in pods:
            if session.gates.quota(job, pod) is not None:
                return False
            session.charge_queue(job.queue, pod.shape, 1)
    return True


def _missing(session: Session, job: Job, unfit: Sequence[PodUid]) -> list[PodUid]:
    """Which of those that do not fit would make it complete, first ones first; empty where not even all of them would."""
    state = session.state
    chosen: list[PodUid] = []
    with session.attempt():
        for uid in unfit:
            if not job.short():
                break
            chosen.append(uid)
            session.count(job, state.pods[uid].fact)
        return [] if job.short() else chosen


def _bins(capacity: list[int], devices: int, asked: Sequence[Vector]) -> int | None:
    """How many such nodes take all of these, each put where it fits first; None where one of them fits on none."""
    bins: list[tuple[list[int], list[int]]] = []
    for v in asked:
        for there in bins:
            if _take(there, v):
                break
        else:
            fresh = (list(capacity), [WHOLE] * devices)
            if not _take(fresh, v):
                return None
            bins.append(fresh)
    return len(bins)


def _take(there: tuple[list[int], list[int]], v: Vector) -> bool:
    free, shares = there
    if any(free[column] < amount for column, amount in v.items):
        return False
    if v.devices is not None:
        chosen = fullest(shares, v.devices)
        if chosen is None:
            return False
        for i in chosen:
            shares[i] -= v.devices.milli
    for column, amount in v.items:
        free[column] -= amount
    return True


def smaller(session: Session, job: Job, fit: GangFit) -> Iterator[Relief]:
    """A smaller gang, or smaller pods: the greatest that would do."""
    if 0 < job.ready + fit.fit < job.need and not job.need_by_task:
        yield Relief(f"a minMember of at most {job.ready + fit.fit}")
    state = session.state
    shapes = {state.pods[uid].fact.shape for uid in job.tasks}
    if len(shapes) != 1 or fit.quota or job.need_by_task or job.ready + len(job.tasks) < job.need:
        return

    def helps(what_if: Session) -> bool:
        with placed(what_if, job, []) as then:
            return then.complete

    yield from smaller_each(state, shapes.pop(), job.need - job.ready, helps)


def smaller_each(state: ClusterState, shape: ShapeId, wanted: int, helps: Callable[[Session], bool]) -> Iterator[Relief]:
    """For `wanted` pods of one shape: the greatest request of one resource that would do, alone, for each of them. Found by capacity
    alone, then decided again, with every rule."""
    v, spec, names = state.vectors[shape], state.shapes[shape], state.table.resources
    if v.devices is not None:
        return
    free = state.table.free[static_mask(state, shape) & state.table.alive]
    for column, amount in v.items:
        name, most = names[column], _greatest(free, v, column, amount, wanted)
        if not most or name == PODS:
            continue
        less = replace(spec, requests=spec.requests | {name: most})
        vector = state.table.vector(less.requests, less.devices)
        with supposed(state, (state.shapes, shape, less), (state.vectors, shape, vector)) as what_if:
            enough = helps(what_if)
        if enough:
            yield Relief(f"a {name} request of at most {format_resource(name, most)} each")


def _greatest(free: np.ndarray, v: Vector, column: int, amount: int, wanted: int) -> int:
    """The greatest request below `amount` with which `wanted` pods fit; 0 where none is small enough."""
    others = np.full(len(free), wanted, np.int64)
    for other, asked in v.items:
        if other != column:
            np.minimum(others, np.maximum(free[:, other], 0) // asked, out=others)
    mine = np.maximum(free[:, column], 0)

    def enough(request: int) -> bool:
        return int(np.minimum(others, mine // request).sum()) >= wanted

    low, high = 0, amount
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
