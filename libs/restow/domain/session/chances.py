"""Whether what is parked may fit now: cheap conditions that are necessary, asked for all that wait for the same."""

import numpy as np

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.domain.groups import Group
from restow.domain.session.jobs import POD_GROUPS, UNSCHEDULABLE, gang
from restow.domain.session.run import Session
from restow.domain.state import Under


def may_fit(session: Session, under: Under, pods: dict[PodUid, None]) -> bool:
    """A cheap necessary condition; whoever passes is looked at closely."""
    state = session.state
    what, key = under
    match what:
        case "shape":
            shape, _, pin = key.partition("/")
            if pin:
                row = state.table.rows.get(NodeName(pin))
                return row is not None and session.placer.fits(ShapeId(shape), row)
            return session.placer.best(ShapeId(shape)) is not None
        case "group":
            namespace, _, name = key.partition("/")
            return _gang_may_fit(session, (namespace, name))
    return True


def _gang_may_fit(session: Session, group: Group) -> bool:
    """Whether there is room for enough of its pods, each shape taken alone."""
    state = session.state
    if group not in state.pod_groups:
        return POD_GROUPS not in state.synced
    if any(state.waiting[state.parked[uid][0]].reason != UNSCHEDULABLE for uid in state.parked_under["group", "/".join(group)]):
        return True
    job = gang(state, group)
    missing = job.need - job.ready
    shapes: dict[ShapeId, int] = {}
    for uid in job.tasks:
        shape = state.pods[uid].shape
        shapes[shape] = shapes.get(shape, 0) + 1
    return sum(min(count, room_for(session, shape, count)) for shape, count in shapes.items()) >= max(missing, 1)


def room_for(session: Session, shape: ShapeId, count: int) -> int:
    """At most how many pods of a shape fit, of `count` asked for: devices are counted together on a node."""
    table, v = session.state.table, session.state.vectors[shape]
    rows = np.flatnonzero(session.placer.keys(shape) >= 0)
    if not len(rows):
        return 0
    times = np.full(len(rows), count, np.int64)
    for column, amount in v.items:
        np.minimum(times, table.free[rows, column] // amount, out=times)
    return int(times.sum())
