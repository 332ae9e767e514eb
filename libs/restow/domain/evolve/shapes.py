"""Shapes that nobody names any more are forgotten, or a cluster whose images change every day would remember all that there ever were.

That happens at the end of a commit of facts, and nowhere else: shapes are named by facts first, and the watcher decides its next commit on
a state that includes its last. So it always knows which shapes it has to declare (again), and in a log each is declared before it is used.
"""

from collections.abc import Iterator

from restow.contracts.ids import ShapeId
from restow.domain.state import ClusterState

LEAST = 1_000
"""So many more shapes than twice those that were needed last are kept before anybody looks which are needed now: looking costs a pass over
all pods, and every commit would pay for it."""


def forget_shapes(state: ClusterState) -> None:
    """Drops those that no pod, charge, slot, Reservation or migration names. What deciders have worked out of shapes goes with them."""
    if len(state.shapes) <= 2 * state.shapes_kept + LEAST:
        return
    needed = set(_named(state))
    for shape in [shape for shape in state.shapes if shape not in needed]:
        del state.shapes[shape], state.vectors[shape]
    state.shapes_kept = len(state.shapes)
    state.memo.clear()


def _named(state: ClusterState) -> Iterator[ShapeId]:
    for pod in state.pods.values():
        yield pod.fact.shape
    for charge in state.charges.values():
        yield charge.shape
    for slots in state.slots.values():
        for slot in slots.values():
            yield slot.shape
            yield slot.asked
    for record in state.reservations.values():
        for spec in (record.spec, record.fact.spec):
            for task in spec.tasks if spec is not None else ():
                yield task.shape
    for migration in state.migrations.values():
        yield migration.shape
