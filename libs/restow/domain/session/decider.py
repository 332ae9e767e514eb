"""The session: releases, hand-overs, holds, pods. One command, one pass over what waits, all on a draft of the state."""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import itemgetter

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis, NodeName, PodUid, ShapeId
from restow.domain.effects import Bind, Effect, TellUnschedulable
from restow.domain.predicates import NO_NODE
from restow.domain.session.holds import hold_units, place_gang
from restow.domain.session.run import Session, Unit
from restow.domain.state import NODE_LOST, ClusterState, Touched

REFRESH = 10_000
"""Milliseconds after which the counts of a shape that still does not fit are logged anew, if capacity has moved."""

REFRESHES = 8
"""At most so many of those a session."""

Unfitting = dict[tuple[ShapeId, NodeName], list[PodUid]]
"""What was found to fit nowhere in this session (shape, and the one node it may run on), and the pods that it was said of."""


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
        if state.to_release or state.queue or state.stranded():
            return c.Schedule(now, LIMIT)
        # Only a hint when to run: what a session decides never depends on it.
        epoch = state.capacity_epoch
        if (state.slot_queue or state.parked) and state.memo.get("session-epoch") != epoch:
            state.memo["session-asked"] = epoch
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
"""New pods considered in one session, as many of those that wait, and about the most events that it makes: what keeps a
decision under about 50 ms. The rest follows in the next one."""


def schedule(state: ClusterState, now: Millis, limit: int) -> list[e.Event]:
    """Releases first (they make room), then in one order (RULES G-7: migration holds, then by priority, then by arrival)
    holds and pods; a pod that owns a hold takes it, the others go the normal way. What fits nowhere is said so once.

    New pods and waiting ones each have the limit to themselves, so that however many wait, new ones get their turn."""
    epoch = state.capacity_epoch
    with state.draft():
        run = Session(state, now)
        _release(run, limit)
        unfit: Unfitting = {}
        units = [*_queued(run, limit), *_waiting(run, unfit, limit), *hold_units(state)]
        units.sort(key=itemgetter(0))
        for _, kind, item in units:
            if len(run.events) >= limit:
                break
            if kind == "hold":
                place_gang(run, item)
            else:
                _place_pod(run, item, unfit)
        _say_unfit(run, unfit)
        events = run.events
    if not events and state.memo.get("session-asked") == epoch:
        state.memo["session-epoch"] = epoch
    return events


def _release(run: Session, limit: int) -> None:
    """What is asked back, and what was placed on nodes that have vanished since and was not bound there."""
    state = run.state
    for (uid, slot), reason in nsmallest(limit, state.to_release.items()):
        run.emit(e.HoldReleased(uid, slot, reason))
    for pod in sorted(state.stranded(), key=state.order.__getitem__):
        run.emit(e.PodReleased(pod, NODE_LOST))


def _queued(run: Session, limit: int) -> list[Unit]:
    state = run.state
    queue: Iterable[tuple[PodUid, int]] = state.queue.items()
    if state.expecting:
        # However many pods of its lineage wait for a victim's end, nobody else waits with them.
        queue = [item for item in queue if not _must_wait(run, state.pods[item[0]])]
    first = nsmallest(limit, queue, key=itemgetter(1))
    return [((1, turn), "pod", pod) for pod, turn in first]


def _must_wait(run: Session, pod: e.PodObserved) -> bool:
    return run.offers.awaited(pod) and run.offers.hand_over(pod) is None


def _waiting(run: Session, unfit: Unfitting, limit: int) -> list[Unit]:
    """Of the pods that wait, those that fit now, and those that can take a hold now."""
    state, hopeful = run.state, []
    order = state.order.__getitem__
    for key in sorted(state.parked_shapes):
        shape, pin = key
        pods = state.parked_shapes[key]
        if run.fit(shape, pin) is not None:
            hopeful += nsmallest(limit, pods, key=order)
            continue
        if not pin:
            unfit[key] = []
        if run.offers:
            hopeful += [pod for pod in pods if run.offers.hand_over(state.pods[pod]) is not None]
    turns = nsmallest(limit, ((state.turn(pod), pod) for pod in hopeful))
    return [((1, turn), "pod", pod) for turn, pod in turns]


def _place_pod(run: Session, pod: PodUid, unfit: Unfitting) -> None:
    state = run.state
    observed = state.pods[pod]
    handed = run.offers.hand_over(observed) if run.offers else None
    if handed is not None:
        return run.emit(handed)
    if run.offers.awaited(observed):
        return None
    key = (observed.shape, observed.pinned_node)
    row = None if key in unfit else run.fit(*key)
    if row is None:
        unfit.setdefault(key, []).append(pod)
        return None
    devices = state.table.choose_devices(row, state.shapes[observed.shape].devices) or ()
    return run.emit(e.PodPlaced(pod, state.table.names[row], devices))


def _say_unfit(run: Session, unfit: Unfitting) -> None:
    """One event where pods of a shape begin to wait; a few refreshed where the counts are old."""
    state = run.state
    refreshed = 0
    for (shape, pin), pods in unfit.items():
        began = tuple(p for p in pods if p in state.queue)
        said = state.waiting.get(shape)
        stale = said is not None and run.now - said.at >= REFRESH and said.epoch != state.capacity_epoch
        if not began and (pin != NO_NODE or not stale or refreshed >= REFRESHES):
            continue
        refreshed += not began
        nodes, counts = run.reasons(shape, pin)
        run.emit(e.Unfit(shape, nodes, counts, began))
