"""The session: releases, hand-overs, holds, pods. One command, one pass over what waits, all on a draft of the state."""

from collections.abc import Iterator, Sequence
from typing import Any

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis
from restow.domain.effects import Bind, Effect, TellUnschedulable
from restow.domain.predicates import NO_NODE, reasons
from restow.domain.session.holds import hold_units, place_gang
from restow.domain.session.run import Session
from restow.domain.state import ClusterState, Touched

REFRESH = 10_000
"""Milliseconds after which the counts of a shape that still does not fit are logged anew, if capacity has moved."""

REFRESHES = 8
"""At most so many of those a session."""


class SessionDecider:
    family: Family = "session"
    logic = "session@1"

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        match command:
            case c.Schedule(time=now, limit=limit):
                return schedule(state, now, limit)
            case c.RefuseBind(pod=pod, node=node, reason=reason):
                placement = state.placed.get(pod)
                if placement is None or placement.node != node:
                    return ()
                return (e.PodReleased(pod, reason),)
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        if state.to_release or state.queue:
            return c.Schedule(now, LIMIT)
        # Only a hint when to run: what a session decides never depends on it.
        moved = state.memo.get("session-epoch") != state.capacity_epoch
        if (state.slot_queue or state.parked) and moved:
            return c.Schedule(now, LIMIT)
        return None

    def deadline(self, state: ClusterState) -> Millis | None:
        return None

    def pending(self, state: ClusterState, touched: Touched | None) -> list[Effect]:
        pods = state.placed.keys() | state.parked.keys() if touched is None else touched.pods
        effects: list[Effect] = []
        for pod in pods:
            placement, live = state.placed.get(pod), state.live.get(pod)
            if placement is not None and live is not None and live.node is None:
                effects.append(Bind(pod, placement.node, placement.devices))
            elif pod in state.parked:
                effects.append(TellUnschedulable(pod, state.parked[pod]))
        return effects

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        match effect:
            case Bind(pod=pod, node=node):
                placement, live = state.placed.get(pod), state.live.get(pod)
                return placement is not None and placement.node == node and live is not None and live.node is None
            case TellUnschedulable(pod=pod, shape=shape):
                return state.parked.get(pod) == shape
        return False


LIMIT = 1_000
"""Pods considered in one session: what keeps a decision under about 50 ms. The rest follows in the next one."""


def schedule(state: ClusterState, now: Millis, limit: int) -> list[e.Event]:
    """Releases first (they make room), then in one order (RULES G-7: migration holds, then by priority, then by arrival)
    holds and pods; a pod that owns a hold takes it, the others go the normal way. What fits nowhere is said so once."""
    epoch = state.capacity_epoch
    with state.draft():
        run = Session(state, now)
        for (uid, slot), reason in sorted(state.to_release.items()):
            run.emit(e.HoldReleased(uid, slot, reason))
        run.offers.refresh()
        unfit: dict[Any, list[Any]] = {}
        units = [*_pod_units(run, unfit), *hold_units(state)]
        units.sort(key=lambda unit: unit[0])
        for _, kind, item in units[:limit]:
            if kind == "hold":
                place_gang(run, item)
                run.offers.refresh()
            else:
                _place_pod(run, item, unfit)
        _say_unfit(run, unfit)
        events = run.events
    if not events and len(units) <= limit:
        state.memo["session-epoch"] = epoch
    return events


def _pod_units(run: Session, unfit: dict[Any, list[Any]]) -> Iterator[tuple[tuple, str, Any]]:
    """Pods to be considered: the queue, and of those that wait only what fits now or might own a hold."""
    state = run.state
    for pod in state.queue:
        yield _order(state, pod), "pod", pod
    for shape in sorted(state.parked_shapes):
        fits = run.placer.best(shape) is not None
        if not fits:
            unfit[shape] = []
        for pod in state.parked_shapes[shape]:
            if fits or run.offers.concern(state.pods[pod]):
                yield _order(state, pod), "pod", pod


def _order(state: ClusterState, pod: Any) -> tuple:
    return (1, -state.shapes[state.pods[pod].shape].priority, state.order[pod])


def _place_pod(run: Session, pod: Any, unfit: dict[Any, list[Any]]) -> None:
    state = run.state
    observed = state.pods[pod]
    if run.offers.concern(observed):
        handed = run.offers.hand_over(observed)
        if handed is not None:
            return run.emit(handed)
    if run.offers.awaited(observed):
        return None
    shape = observed.shape
    if observed.pinned_node:
        row = state.table.rows.get(observed.pinned_node)
        row = row if row is not None and run.placer.fits(shape, row) else None
    elif shape in unfit:
        row = None
    else:
        row = run.placer.best(shape)
    if row is None:
        unfit.setdefault(shape, []).append(pod)
        return None
    devices = state.table.choose_devices(row, state.shapes[shape].devices) or ()
    return run.emit(e.PodPlaced(pod, state.table.names[row], devices))


def _say_unfit(run: Session, unfit: dict[Any, list[Any]]) -> None:
    """One event a shape where pods begin to wait; a few refreshed where the counts are old."""
    state = run.state
    refreshed = 0
    for shape, pods in unfit.items():
        began = tuple(p for p in pods if p in state.queue)
        said = state.waiting.get(shape)
        stale = said is not None and run.now - said.at >= REFRESH and said.epoch != state.capacity_epoch
        if not began and not (stale and refreshed < REFRESHES):
            continue
        refreshed += not began
        pinned = state.pods[pods[0]].pinned_node if pods else NO_NODE
        nodes, counts = reasons(state, shape, pinned)
        run.emit(e.Unfit(shape, nodes, counts, began))
