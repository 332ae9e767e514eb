"""On demand for pods that wait: when a plan is made to free capacity for them (`demand: true` in the policy).

A job is a candidate where it waits for capacity, and the free capacity of all nodes together would do. It is tried once it has waited for
`PATIENCE`, one job at a time, not more often than every `PERIOD`, and again after a pause that doubles each time while it waits. All
of that follows from times in the log, so that a restart forgets nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from restow.contracts.ids import Millis, PodUid, ShapeId
from restow.contracts.times import doubled
from restow.domain.evolve.demands import job_of
from restow.domain.groups import Group
from restow.domain.records import Demand
from restow.domain.state import ClusterState, Under

PATIENCE = 10_000
"""Milliseconds that a pod waits at least: what it waits for may be on its way."""
PERIOD = 15_000
"""Milliseconds between plans on demand, for whatever job."""
PAUSE, LONGEST_PAUSE = 60_000, 3_600_000
"""Milliseconds until the same job is tried again: at first, and at most."""
LOOKED_AT = 500
"""Classes of pods that wait (equal pods, gangs), at most, which are looked at closely at a time; equal pods that ask for more than is free in all are passed over,
however many. Where more wait, others are looked at first after each `PERIOD` of the log's time, so that nobody is hidden behind those whom no plan can help
(RULES G-17)."""
PER_CLASS = 50
"""Of those who wait for the same, in the order in which they began to, so many are looked at for the first."""
CAPACITY = "Insufficient "
"""What reasons begin with that are about capacity."""


class Candidate(msgspec.Struct, frozen=True):
    """`job` as `Defragment.demand` says it: a pod's uid, or `namespace/name` of a PodGroup. `since`: from when it may be tried."""

    job: str
    turn: int
    since: Millis
    asked: dict[int, int]
    """By column of the node table, what its pods, or as many of a gang as it needs, ask for at least."""


def next_demand(state: ClusterState) -> tuple[Millis, str] | None:
    """When the next plan on demand is due, and for which job; None while nobody can be helped."""
    args = state.migration_config.defragmentation
    if args is None or not args.demand or not state.parked:
        return None
    free = _free(state)
    earliest = max((d.at for d in state.demands.values()), default=Millis(0)) + PERIOD
    best: tuple[Millis, int, int, str] | None = None
    for candidate in _candidates(state):
        if any(free.get(column, 0) < amount for column, amount in candidate.asked.items()):
            continue
        tried = state.demands.get(candidate.job)
        at = Millis(max(earliest, candidate.since, paused_until(tried)))
        # Who was not tried yet goes before who was: enough of those, each with a pause of an hour at most, would take every plan.
        turn = (at, 0 if tried is None else tried.at, candidate.turn, candidate.job)
        if best is None or turn < best:
            best = turn
    return None if best is None else (best[0], best[3])


def paused_until(tried: Demand | None) -> int:
    """From when on the job may be tried again."""
    return 0 if tried is None else tried.at + doubled(PAUSE, tried.tries, LONGEST_PAUSE)


class _Candidates(NamedTuple):
    key: tuple[int, int, int, int, frozenset[PodUid]]
    found: tuple[Candidate, ...]


def _candidates(state: ClusterState) -> Sequence[Candidate]:
    """Computed anew when pods begin or end to wait, or what they wait for, or are told that they wait for, may have changed."""
    helped = frozenset(demand_slot.spec.pod for demand_slot in state.demand_slots.values() if not demand_slot.gone and demand_slot.plan not in state.cancelled)
    key = (state.parkings.position, state.capacity_epoch, state.last["session"], _first(state), helped)
    known = state.memo.find(_Candidates)
    if known is None or known.key != key:
        known = state.memo.keep(_Candidates(key, tuple(_found(state, helped, _free(state)))))
    return known.found


def _found(state: ClusterState, helped: frozenset[PodUid], free: dict[int, int]) -> Iterator[Candidate]:
    """`helped`: those for whom a plan frees capacity already."""
    seen: set[str] = set()
    first, classes = _first(state), state.parked_under.items()
    in_turn = chain(islice(classes, first, None), islice(classes, first))
    for pods in islice((pods for under, pods in in_turn if _may_fit(state, under, free)), LOOKED_AT):
        pod = next((pod for pod in islice(pods, PER_CLASS) if pod not in helped and _waits_for_capacity(state, pod)), None)
        if pod is None:
            continue
        job, group = job_of(state, pod)
        if job in seen:
            continue
        seen.add(job)
        members = [pod] if group is None else [one for one in state.groups.get(group, {}) if state.awaits_placement(one)]
        if helped.isdisjoint(members):
            since = Millis(state.pods[pod].fact.created + PATIENCE)
            count = 1 if group is None else _needed(state, group)
            yield Candidate(job, state.turn(pod), since, _asked(state, members, count))


def _first(state: ClusterState) -> int:
    """With which of all classes looking begins."""
    classes = len(state.parked_under)
    return 0 if classes <= LOOKED_AT else state.time // PERIOD * LOOKED_AT % classes


def _may_fit(state: ClusterState, under: Under, free: dict[int, int]) -> bool:
    """Whether as much as pods on their own ask for is free in all. What they wait for that is no node no capacity helps against."""
    if under[0] != "shape":
        return under[0] == "group"
    v = state.vectors[ShapeId(under[1].partition("/")[0])]
    return all(free.get(column, 0) >= amount for column, amount in v.items)


def _waits_for_capacity(state: ClusterState, pod: PodUid) -> bool:
    """A rule about something else may remove nodes beside: what counts is whether capacity does."""
    if not state.awaits_placement(pod) or pod in state.nominations:
        return False
    waiting = state.waiting.get(state.parked[pod][0])
    return waiting is not None and any(reason.startswith(CAPACITY) for reason in waiting.reasons)


def _needed(state: ClusterState, group: Group) -> int:
    """How many more pods a gang needs to start; one, where it runs already."""
    have = sum(state.node_of(pod) is not None for pod in state.groups.get(group, {}))
    return max(state.pod_groups[group].min_member - have, 1)


def _asked(state: ClusterState, pods: Sequence[PodUid], count: int) -> dict[int, int]:
    """What so many of these ask for at least, whichever they are."""
    amounts: dict[int, list[int]] = {}
    for pod in pods:
        for column, amount in state.vectors[state.pods[pod].fact.shape].items:
            amounts.setdefault(column, []).append(amount)
    return {column: _least(of, len(pods) - len(of), count) for column, of in amounts.items()}


def _least(amounts: list[int], nothing: int, count: int) -> int:
    """The sum of the least ones, where so many beside ask for nothing."""
    return sum(sorted(amounts)[: max(count - nothing, 0)])


def _free(state: ClusterState) -> dict[int, int]:
    """Of nodes that take pods, in all, by column. Overcommitted nodes take nothing from the others."""
    table = state.table
    rows = [table.rows[name] for name, node in state.nodes.items() if node.ready and not node.unschedulable]
    sums = table.free[rows].clip(min=0).sum(axis=0).tolist() if rows else []
    return dict(enumerate(sums))
