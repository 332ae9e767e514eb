"""Runs of events of one type, folded together: pods that come, are placed, change and go are most of every log.

`RUNS` has the form of an event type that folds many of them. It goes through plain pods quickly, and writes what they charge to nodes
and queues at once, when the run ends. Whatever else an event may mean (its pod is moved, nominated, reserved or held for, its node keeps
capacity for somebody) is left to the rule for one event (`restow.domain.evolve`): before that everything is written, so it sees what it would
see otherwise. The result is the same state, also in the order of its maps; a property test holds both forms equal.

Not in a draft: what is written here is written at once (`restow.domain.draft_writes`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from restow.contracts.events import PodChanged, PodGone, PodObserved, PodPlaced
from restow.contracts.ids import PodUid, ShapeId
from restow.domain import groups
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.beside import SLOT
from restow.domain.draft_writes import AtOnce
from restow.domain.evolve import evolve_one
from restow.domain.evolve.objects import takes_from_others
from restow.domain.pods import Pod
from restow.domain.records import Charge, Placement
from restow.domain.state import OVER, ClusterState, turn


class _Shape(NamedTuple):
    """Of a shape: whether its pods are ours, the queue of those that name none, whether they ask for devices, whether something of them cannot
    be read, and their turn but for the order in which they came."""

    ours: bool
    queue: str
    devices: bool
    unreadable: bool
    turn: int


class _Shapes(dict[ShapeId, "_Shape | None"]):
    """Those that a run has named; None where one was never declared. No event of a run declares a shape again."""

    def __init__(self, state: ClusterState) -> None:
        self._shapes, self._schedulers = state.shapes, state.session_config.scheduler_names

    def __missing__(self, id: ShapeId) -> _Shape | None:
        shape = self._shapes.get(id)
        if shape is None:
            return None
        ours = shape.scheduler in self._schedulers
        found = self[id] = _Shape(ours, DEFAULT_QUEUE if ours else "", shape.devices is not None, bool(shape.unreadable), turn(shape.priority, 0))
        return found


class _Run:
    """What a run is still to write. `special` are its pods that are more than plain ones, by the maps that name them: no event of a run
    makes another pod than its own special."""

    __slots__ = ("added", "removed", "seen", "special", "state")

    def __init__(self, state: ClusterState, events: Iterable[Any], maps: Iterable[Mapping[PodUid, Any]]) -> None:
        self.state = state
        self.special: set[PodUid] = set()
        if named := [pods for pods in maps if pods]:
            mine = {event.pod for event in events}
            self.special.update(*(pods.keys() & mine for pods in named))
        self.seen: list[PodUid] = []
        self.added: list[Charge] = []
        self.removed: list[Charge] = []

    def write(self) -> None:
        """All that has been folded so far."""
        state, seen = self.state, self.seen
        if not seen:
            return
        state.events += len(seen)
        state.moved.extend(seen)
        state.touched.pods.update(dict.fromkeys(seen))
        if self.removed:
            state.charge_many(self.removed, -1)
            state.capacity_epoch += len(self.removed)
            self.removed.clear()
        if self.added:
            state.charge_many(self.added, 1)
            if state.sociable:
                state.capacity_epoch += len(self.added)
            self.added.clear()
        seen.clear()

    def one(self, event: Any) -> None:
        """Fold this one by its rule."""
        self.write()
        evolve_one(self.state, event)
        self.special.add(event.pod)


def observed(state: ClusterState, events: Sequence[PodObserved]) -> None:
    """Pods that nobody has seen before: they wait, or run on a node."""
    run = _Run(state, events, (state.victims, state.successors))
    shapes, rows, special, groups_touched = _Shapes(state), state.table.rows, run.special, state.touched.groups
    pods, queue, owned = state.pods, state.queue, state.owned
    charges, on_node, held_on, nominated_on = state.charges, state.on_node, state.held_on, state.nominated_on
    left, armed, rejections, refusing = state.left, state.armed, state.rejections, state.refusing
    seen, added = run.seen.append, run.added.append
    for event in events:
        pod, node, shape, moving = event.pod, event.node, shapes[event.shape], event.moving()
        if (
            shape is None
            or pod in pods
            or pod in special
            or moving.deleting
            or moving.phase in OVER
            or event.landing
            or event.nominated
            or (not shape.ours and SLOT in event.annotations)
            or (armed and state.lineage(event) in armed)
            or (
                node is not None
                and (
                    node not in rows
                    or node in refusing
                    or (rejections and state.lineage(event) in rejections)
                    or node in held_on
                    or node in nominated_on
                    or moving.cores
                    or (shape.devices and not moving.devices)
                    or (left and state.lineage(event) in left)
                )
            )
        ):
            run.one(event)
            continue
        seen(pod)
        state.clock += 1
        if event.annotations:
            state.regroup(None, event)
            if (group := groups.group_of(event)) is not None:
                groups_touched[group] = None
        elif event.owner is not None and (owner := event.owner.uid):
            AtOnce.put_in(owned, owner, pod)
        pods[pod] = Pod(event, moving, state.clock)
        if node is not None:
            charge = Charge(node, event.shape, moving.devices, False, state.queue_of(event) if event.annotations else shape.queue)
            added(charge)
            charges[pod] = charge
            if (there := on_node.get(node)) is None:
                on_node[node] = {pod: None}
            else:
                there[pod] = None
        elif shape.ours and moving.phase == "Pending" and not event.gated:
            queue[pod] = shape.turn + state.clock
    run.write()


def placed(state: ClusterState, events: Sequence[PodPlaced]) -> None:
    """Pods of the queue, so ours, and nothing is charged or held for them; the event alone says what is charged."""
    run = _Run(state, events, (state.reserved_tasks,))
    shapes, rows, special, now = _Shapes(state), state.table.rows, run.special, state.time
    pods, queue, placements = state.pods, state.queue, state.placed
    charges, on_node, held_on, nominated_on = state.charges, state.on_node, state.held_on, state.nominated_on
    seen, added = run.seen.append, run.added.append
    for event in events:
        pod, node, devices = event.pod, event.node, event.devices
        if (
            pod not in queue
            or pod in special
            or event.volumes
            or event.cores
            or node not in rows
            or node in held_on
            or node in nominated_on
            or (live := (known := pods[pod]).live).devices
            or live.cores
            or (shape := shapes[(fact := known.fact).shape]) is None
            or (shape.devices and not devices)
        ):
            run.one(event)
            continue
        seen(pod)
        del queue[pod]
        placements[pod] = Placement(node, devices, None, now)
        charge = Charge(node, fact.shape, devices, False, state.queue_of(fact) if fact.annotations else DEFAULT_QUEUE)
        added(charge)
        charges[pod] = charge
        if (there := on_node.get(node)) is None:
            on_node[node] = {pod: None}
        else:
            there[pod] = None
    run.write()


def changed(state: ClusterState, events: Sequence[PodChanged]) -> None:
    """Pods that wait, and pods that start, run, terminate and end on their node."""
    maps = (
        state.victims, state.successors, state.victims_of, state.allocations, state.homeless, state.binding, state.parked, state.nominations,
        state.reserved_tasks, state.gated, state.to_land, state.placeholders, state.nominees,
    )  # fmt: skip
    run = _Run(state, events, maps)
    shapes, rows, special, groups_touched = _Shapes(state), state.table.rows, run.special, state.touched.groups
    pods, queue, placements, charges, on_node = state.pods, state.queue, state.placed, state.charges, state.on_node
    held_on, nominated_on, waiting_on = state.held_on, state.nominated_on, state.waiting_on
    left, unready = state.left, any(budget.unready for budget in state.budgets.values())
    takes, rejections, refusing = takes_from_others(state), state.rejections, state.refusing
    seen, added, removed = run.seen.append, run.added.append, run.removed.append
    for event in events:
        pod, node, devices = event.pod, event.node, event.devices
        known = pods.get(pod)
        if (
            known is None
            or pod in special
            or event.cores
            or (shape := shapes[(fact := known.fact).shape]) is None
            or shape.unreadable
            or (event.reason and event.phase == "Failed")
            or (refusing and (event.node in refusing or ((old := charges.get(pod)) is not None and old.node in refusing)))
            or (rejections and state.lineage(fact) in rejections)
            or ((before := known.live).ready and unready and not event.ready)
            or (left and before.node is None and state.lineage(fact) in left)
        ):
            run.one(event)
            continue
        old, placement = charges.get(pod), placements.get(pod)
        if node is None:
            if pod not in queue or event.phase != "Pending" or event.deleting:
                run.one(event)
                continue
        else:
            if placement is not None and placement.node == node:
                if placement.cores:
                    run.one(event)
                    continue
                if shape.ours:
                    devices = devices or placement.devices
            if shape.devices and not devices:
                if old is None or old.node != node or (placement is not None and placement.node == node) or (old.devices and not shape.ours):
                    run.one(event)
                    continue
                devices = old.devices
            if event.phase in OVER:
                wanted = None
            elif event.deleting > 0:
                wanted = Charge(node, fact.shape, devices, True)
            else:
                wanted = Charge(node, fact.shape, devices, False, state.queue_of(fact) if fact.annotations else shape.queue)
            if old != wanted:
                if (old is not None and (old.node in nominated_on or old.node in waiting_on)) or (
                    wanted is not None and (node not in rows or node in held_on or node in nominated_on)
                ):
                    run.one(event)
                    continue
                if old is not None:
                    removed(old)
                    del charges[pod]
                    AtOnce.drop_in(on_node, old.node, pod)
                if wanted is not None:
                    added(wanted)
                    charges[pod] = wanted
                    AtOnce.put_in(on_node, node, pod)
            if pod in queue:
                del queue[pod]
        seen(pod)
        if takes and node is not None and before.node is None:
            state.capacity_epoch += 1
        known.live = event
        if fact.annotations and (group := groups.group_of(fact)) is not None:
            groups_touched[group] = None
    run.write()


def gone(state: ClusterState, events: Sequence[PodGone]) -> None:
    """Pods that waited in the queue, and pods that were on a node."""
    maps = (
        state.victims, state.successors, state.victims_of, state.allocations, state.homeless, state.binding, state.parked, state.nominations,
        state.reserved_tasks, state.stuck, state.troubles, state.returned, state.refused, state.resized,
        state.gated, state.to_land, state.placeholders, state.nominees,
    )  # fmt: skip
    run = _Run(state, events, maps)
    special, groups_touched, nominated_on, waiting_on = run.special, state.touched.groups, state.nominated_on, state.waiting_on
    pods, queue, owned = state.pods, state.queue, state.owned
    placements, charges, on_node, refusing = state.placed, state.charges, state.on_node, state.refusing
    seen, removed = run.seen.append, run.removed.append
    for event in events:
        pod = event.pod
        known, old = pods.get(pod), charges.get(pod)
        if known is None or pod in special or (old is not None and (old.node in nominated_on or old.node in waiting_on or old.node in refusing)):
            run.one(event)
            continue
        seen(pod)
        if old is not None:
            removed(old)
            del charges[pod]
            AtOnce.drop_in(on_node, old.node, pod)
        placements.pop(pod, None)
        queue.pop(pod, None)
        fact = known.fact
        if fact.annotations:
            state.regroup(fact, None)
            if (group := groups.group_of(fact)) is not None:
                groups_touched[group] = None
        elif fact.owner is not None and (owner := fact.owner.uid):
            AtOnce.drop_in(owned, owner, pod)
        del pods[pod]
    run.write()


RUNS: Mapping[type, Callable[[ClusterState, Sequence[Any]], None]] = {
    PodObserved: observed,
    PodPlaced: placed,
    PodChanged: changed,
    PodGone: gone,
}
"""Event type → its form for a run."""
