"""Who occupies nodes, as far as the state says: for the indexes that follow `state.moved`, which names the same."""

from collections.abc import Iterator

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid, ShapeId, SlotName
from restow.contracts.values import ReservationTask
from restow.domain.records import Reservation, Slot
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState

Who = PodUid | SlotKey
"""An occupant of a node: a pod, or a slot that is held."""


def stands_for(uid: PodUid) -> PodUid:
    """Whose successor the twin of a pod is (`migration.targets.stand_in`, `defragmentation.simulation.equal`); a pod stands for itself."""
    return PodUid(uid.removeprefix("move/").removesuffix("~"))


def everybody(state: ClusterState) -> Iterator[Who]:
    """All that are charged to a node: pods, then what is held."""
    yield from state.charges
    for held in state.held_on.values():
        yield from held


NO_TASK = ReservationTask("", 1, ShapeId(""))


def task_of(record: Reservation, slot: Slot) -> ReservationTask:
    """What is said of a slot; nothing of one that a later generation has no task for (it is being released)."""
    spec = record.spec or record.fact.spec
    return next((task for task in spec.tasks if task.name == slot.task), NO_TASK) if spec is not None else NO_TASK


def as_pod(record: Reservation, name: SlotName, slot: Slot, shape: ShapeId) -> PodObserved:
    """A slot as the pod that it is held for: rules see its template's labels and claims in its namespace."""
    fact, task = record.fact, task_of(record, slot)
    return PodObserved(
        PodUid(f"{fact.reservation}/{name}"),
        fact.namespace or task.namespace,
        f"{fact.name}-{name}",
        shape,
        fact.created,
        task.labels,
        claims=task.claims,
        pinned_node=task.node,
    )


def held_as_pod(state: ClusterState, key: SlotKey) -> PodObserved | None:
    """A slot as a pod, as long as it is on its node."""
    slot = held_slot(state, key)
    return None if slot is None else as_pod(state.reservations[key[0]], key[1], slot, slot.shape)


def held_slot(state: ClusterState, key: SlotKey) -> Slot | None:
    """The slot of a Reservation as long as it holds a node, None before and after."""
    slot = state.slots.get(key[0], {}).get(key[1])
    return slot if slot is not None and key in state.held_on.get(slot.node, ()) else None
