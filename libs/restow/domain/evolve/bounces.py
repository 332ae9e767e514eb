"""Pods that were moved off a node and come back to it: packing and something else pull in two directions. That may be another scheduler, a
person, or another plugin of the same policy (RemoveDuplicates takes apart what HighNodeUtilization brings together): where a plan brings a pod
back to where one before it has taken it from, it has come back, too. What a person asks for by name is no such thing.

A moved pod is remembered until its own successor has been given a node. If that is the node that it was moved off, the lineage
has come back there; twice in a row, for the same line of successors, is a finding (`migration.bounced`).
"""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PlanId, PodUid, ShapeId
from restow.contracts.times import rfc3339
from restow.domain.beside import is_beside
from restow.domain.movable import busy
from restow.domain.records import EVERYWHERE, Disturbed, Left, LeftAlone, Migration
from restow.domain.state import OVER, ClusterState

TIMES = 2
"""So often in a row is no accident."""
BY_HAND = "move"
"""Trigger of a plan for one pod."""
KEEP = 11_000
"""Most lineages that are followed, and most findings that are kept; the oldest are forgotten first."""
MOST = 1_000
"""Most moved pods of one lineage that are followed: the last ones."""
LONGEST = 4
"""Nodes that one goes round in a circle, at most: between two of them plans need not agree with each other, nor among three. A circle that takes
longer than `LONGEST_ALONE` is none."""
LEFT_ALONE, LONGEST_ALONE = 24 * 3600 * 1000, 16 * 24 * 3600 * 1000
"""Milliseconds that a lineage is left alone on a node, after the first finding and at most: the first plan after that forgets it. Its pod still knows
how often it has come back, so that once more is a finding again, and it is left alone for twice as long: where plans are made once a day, or less
often, a day would be over when the next one is made, and two plugins would move it to and fro for ever."""


SUCCESSOR_GONE = "SuccessorGone"
INTERFERENCE = frozenset({"HoldStolen", SUCCESSOR_GONE, "TargetLost"})
"""Why moves end that somebody else has disturbed: a hold was preempted or deleted, a successor was deleted, or a target was cordoned or taken away."""
POD_GONE = "PodGone"
TAKEN_AWAY = "TakenAway"
"""In which way a move was disturbed whose pod was ended by somebody else soon after it had landed, and made again."""
SOON, ONE_INCIDENT = 600_000, 60_000
"""Milliseconds: what is soon after a landing, and for how long workloads are left alone that somebody else disturbs, after the first finding; and what
counts once, however many moves it disturbs."""


def disturbed(state: ClusterState, lineage: str, shape: ShapeId, reason: str) -> None:
    """Another installation, Koordinator's descheduler, an autoscaler or a person works on the same pods or nodes. Twice in a row is a finding, and the workload
    is left alone, for twice as long each time; after an hour of peace it begins anew. Only for pods of other schedulers: what happens to ours is refused by the session."""
    if not lineage or not is_beside(state, shape):
        return
    before, times = state.disturbed.get(lineage), 1
    if before is not None:
        if state.time < before.at + ONE_INCIDENT:
            return
        if state.time < before.at + _how_long(before.times, EVERYWHERE) + 6 * SOON:
            times = before.times + 1
    state.put(state.disturbed, lineage, Disturbed(times, Millis(state.time), reason))
    if len(state.disturbed) > KEEP:
        state.drop(state.disturbed, next(iter(state.disturbed)))
    if times >= TIMES and (lineage, EVERYWHERE) not in state.left_alone:
        state.put(state.found, (lineage, EVERYWHERE), times)


def interfered(state: ClusterState, record: Migration) -> bool:
    """Whether somebody else has ended a move that failed. Of one whose pod was deleted before Restow evicted it, or whose successor was: where its controller did not
    ask for that."""
    if record.done:
        # Its owner has ended, or was deleted, and its pods with it.
        return False
    if record.reason != POD_GONE:
        by_controller = record.reason == SUCCESSOR_GONE and busy(state, record.lineage.partition("/")[0]) is not None
        return record.reason in INTERFERENCE and not by_controller
    live = state.live_of(record.move.pod)
    by_itself = live is not None and (not live.deleting or live.phase in OVER)
    return not by_itself and busy(state, record.lineage.partition("/")[0]) is None


def moved(state: ClusterState, record: Migration, pod: PodUid) -> None:
    """The migration has landed as this pod."""
    if not record.lineage:
        return
    known = state.left.get(record.lineage, ())
    others = tuple(one for one in known if one.pod != record.move.pod)
    before, times = next((one for one in known if one.pod == record.move.pod), None), record.returned
    target = NodeName(record.move.target)
    earlier = before.earlier if before is not None else ()
    lately = {node for node, at in earlier if at > state.time - LONGEST_ALONE}
    if before is not None and (before.node == target or target in lately) and not _by_hand(state, record):
        times = before.times + 1
        _returned(state, record.lineage, pod, target, times)
    source = NodeName(record.move.source)
    earlier = ((source, Millis(state.time)), *earlier)[:LONGEST]
    state.put(state.left, record.lineage, (*others, Left(source, pod, times, earlier))[-MOST:])
    if len(state.left) > KEEP:
        state.drop(state.left, next(iter(state.left)))


def not_landed(state: ClusterState, record: Migration) -> None:
    """It was evicted, and whoever followed it did not take its hold: on its old node, or another one that its like were moved off, that one has
    come back, and the next plan would evict it for nothing again. (One that turned back was brought there by us.)"""
    if record.back or not record.evicted or not record.lineage or _by_hand(state, record):
        return
    moved_ones = state.left.get(record.lineage, ())
    landed, nodes = {one.pod for one in moved_ones}, {one.node: one.times for one in moved_ones}
    source = NodeName(record.move.source)
    nodes[source] = max(nodes.get(source, 0), record.returned)
    others = [uid for uid in _later(state, record) if uid not in landed and uid not in state.successors and state.node_of(uid) in nodes]
    if others:
        uid = min(others, key=state.order_of)
        node = NodeName(state.node_of(uid) or source)
        _returned(state, record.lineage, uid, node, nodes[node] + 1)


def _later(state: ClusterState, record: Migration) -> Iterator[PodUid]:
    """Pods of its lineage that came after it, whatever they ask for."""
    alive = state.alive_under(record.lineage.partition("/")[0])
    return (uid for uid in alive if state.pods[uid].order > record.came_before and state.lineage(state.pods[uid].fact) == record.lineage)


def seen_on(state: ClusterState, uid: PodUid, node: NodeName) -> None:
    """A pod was given a node: it follows one of its lineage that was moved and has ended, if there is one."""
    lineage = state.lineage(state.pods[uid].fact)
    known = state.left.get(lineage)
    if not known or uid in state.successors:
        return
    ended = [one for one in known if one.pod != uid and _has_ended(state, one.pod)]
    if not ended:
        return
    before = next((one for one in ended if one.node == node), ended[0])
    if before.earlier and state.time < before.earlier[0][1] + SOON:
        disturbed(state, lineage, state.pods[uid].fact.shape, TAKEN_AWAY)
    rest = tuple(one for one in known if one is not before)
    if rest:
        state.put(state.left, lineage, rest)
    else:
        state.drop(state.left, lineage)
    if before.node != node:
        return
    _returned(state, lineage, uid, node, before.times + 1)


def _returned(state: ClusterState, lineage: str, uid: PodUid, node: NodeName, times: int) -> None:
    """It is on the node again that its like were moved off, so often in a row."""
    state.put(state.returned, uid, times)
    if times >= TIMES and (lineage, node) not in state.left_alone:
        state.put(state.found, (lineage, node), times)


def _by_hand(state: ClusterState, record: Migration) -> bool:
    known = state.plans.get(PlanId(record.plan))
    return known is not None and known.planned.trigger == BY_HAND


def _has_ended(state: ClusterState, pod: PodUid) -> bool:
    live = state.live_of(pod)
    return live is None or live.deleting > 0 or live.phase in OVER


def bounced(state: ClusterState, event: e.Bounced) -> None:
    key = (event.lineage, event.node)
    state.drop(state.found, key)
    state.put(state.left_alone, key, LeftAlone(event.times, state.time))
    state.touched.findings[key] = None
    forget(state)


def forget(state: ClusterState) -> None:
    """Findings of nodes that are gone, those that are old, and the oldest of too many."""
    alone = state.left_alone
    for key in [key for key, known in alone.items() if (key[1] and key[1] not in state.nodes) or state.time >= known.since + _how_long(known.times, key[1])]:
        state.drop(alone, key)
    while len(alone) > KEEP:
        state.drop(alone, next(iter(alone)))


def disturbance(state: ClusterState, lineage: str) -> str:
    """That a workload is left alone because somebody else disturbs its moves, and until when; empty where it is not."""
    known, why = state.left_alone.get((lineage, EVERYWHERE)), state.disturbed.get(lineage)
    if known is None:
        return ""
    until = rfc3339(Millis(known.since + _how_long(known.times, EVERYWHERE)))
    return f"somebody else has disturbed the moves of its workload {known.times} times in a row{f' ({why.reason})' if why else ''}: it is left alone at least until {until}"


def _how_long(times: int, node: NodeName) -> int:
    """Milliseconds; whatever the number is that an event names."""
    return min((LEFT_ALONE if node else SOON) << min(max(times - TIMES, 0), 8), LONGEST_ALONE)
