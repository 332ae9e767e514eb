"""Pods that were moved off a node and come back to it: packing and something else pull in two directions.

A moved pod is remembered until its own successor has been given a node. If that is the node that it was moved off, the lineage
has come back there; twice in a row, for the same line of successors, is a finding (`migration.came_back`).
"""

from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid
from restow.domain.records import Left, Migration
from restow.domain.state import OVER, ClusterState

TIMES = 2
"""So often in a row is no accident."""
KEEP = 11_000
"""Most lineages that are followed; the oldest are forgotten first."""


def moved(state: ClusterState, record: Migration, pod: PodUid) -> None:
    """The migration has landed as this pod."""
    if not record.lineage:
        return
    known = state.left.get(record.lineage, ())
    others = tuple(one for one in known if one.pod != record.move.pod)
    state.put(state.left, record.lineage, (*others, Left(record.move.source, pod, record.returned)))
    if len(state.left) > KEEP:
        state.drop(state.left, next(iter(state.left)))


def seen_on(state: ClusterState, uid: PodUid, node: NodeName) -> None:
    """A pod was given a node: it follows one of its lineage that was moved and has ended, if there is one."""
    lineage = state.lineage(state.pods[uid])
    known = state.left.get(lineage)
    if not known or uid in state.successors:
        return
    ended = [one for one in known if one.pod != uid and _has_ended(state, one.pod)]
    if not ended:
        return
    before = next((one for one in ended if one.node == node), ended[0])
    rest = tuple(one for one in known if one is not before)
    if rest:
        state.put(state.left, lineage, rest)
    else:
        state.drop(state.left, lineage)
    if before.node != node:
        return
    times = before.times + 1
    state.put(state.returned, uid, times)
    if times >= TIMES and (lineage, node) not in state.left_alone:
        state.put(state.found, (lineage, node), times)


def _has_ended(state: ClusterState, pod: PodUid) -> bool:
    live = state.live.get(pod)
    return live is None or live.deleting > 0 or live.phase in OVER


def came_back(state: ClusterState, event: e.CameBack) -> None:
    key = (event.lineage, event.node)
    state.drop(state.found, key)
    state.put(state.left_alone, key, event.times)
    state.touched.findings[key] = None
    for known in [known for known in state.left_alone if known[1] not in state.nodes]:
        state.drop(state.left_alone, known)
