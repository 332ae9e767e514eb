"""Pods of ours that a kubelet has rejected: it knows more of its node than the API says (devices that somebody else has, a static pod).

A rejected pod fails, its controller makes another one at once, and would do so for ever: neither the kubelet, nor a ReplicaSet backs off
(kubernetes#108152). So from the second time in a row on the next ones of that workload are kept off that node for a while, longer each time, and, from the
fourth time on, wherever they might go. Where one was rejected that had been given devices, somebody has one of them whom nobody knows: no pod of ours that asks for devices comes
to that node until something changes there, or the while is over.
"""

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName
from restow.contracts.times import doubled
from restow.domain.records import Rejections, Times
from restow.domain.state import ClusterState

ENDED = frozenset({"Evicted", "DeadlineExceeded", "Terminated", "Shutdown", "Preempting", "NodeLost"})
"""Reasons of pods that have failed although their kubelet had taken them."""
DEVICES = "UnexpectedAdmissionError"
"""The reason where a device plugin does not give what was asked of it."""
FIRST, LONGEST = 5_000, 300_000
"""Milliseconds for which a node is left alone at first, and after many times in a row."""
FREE, PAUSE = 3, 1_000
"""So many rejections of a workload in a row on other nodes are nobody's fault; from then on it pauses, first for so many milliseconds."""
KEEP, MOST = 11_000, 1_000
"""Most workloads that are remembered, and nodes of each: the last ones."""


def closed_until(times: Times) -> Millis:
    """Until when a node is left alone by all that ask for devices."""
    return Millis(times.at + doubled(FIRST, times.times, LONGEST))


def node_until(times: Times) -> Millis:
    """Until when a node is left alone by a workload: once may have been chance, somebody else having come in between."""
    return closed_until(Times(times.times - 1, times.at)) if times.times > 1 else times.at


def pause_until(known: Rejections) -> Millis:
    """Until when the workload waits wherever it may go; 0 for not at all."""
    over = known.times - FREE
    return Millis(known.at + doubled(PAUSE, over, LONGEST)) if over > 0 else Millis(0)


def is_rejected(live: e.PodChanged) -> bool:
    return live.phase == "Failed" and live.node is not None and bool(live.reason) and live.reason not in ENDED


def seen(state: ClusterState, live: e.PodChanged, before: e.PodChanged | None) -> None:
    """A pod's moving part is this now, and what it is charged follows that already."""
    pod = state.pods[live.pod].fact
    if is_rejected(live) and (before is None or before.phase != "Failed") and state.ours(pod):
        _rejected(state, live, state.lineage(pod))
        if live.reason == DEVICES and state.shapes[pod.shape].devices is not None:
            known = state.refusing.get(NodeName(live.node or ""))
            state.put(state.refusing, live.node, _once_more(state, known))
    elif state.rejections and live.phase == "Running" and live.node is not None:
        _taken(state, live.node, state.lineage(pod))


def _once_more(state: ClusterState, known: Times | None) -> Times:
    """In a row, unless it was long ago."""
    again = known is not None and state.time < closed_until(known) + LONGEST
    return Times(known.times + 1 if known is not None and again else 1, state.time)


def _rejected(state: ClusterState, live: e.PodChanged, lineage: str) -> None:
    if not lineage or live.node is None:
        return
    _forget(state)
    known = state.drop(state.rejections, lineage) or Rejections(0, state.time, "", {})
    nodes = {node: times for node, times in known.nodes.items() if node != live.node}
    nodes[live.node] = _once_more(state, known.nodes.get(live.node))
    kept = dict(list(nodes.items())[-MOST:])
    state.put(state.rejections, lineage, Rejections(known.times + 1, state.time, live.reason, kept))
    state.capacity_epoch += 1  # who waits is told anew why


def _taken(state: ClusterState, node: NodeName, lineage: str) -> None:
    """A kubelet has taken one of that workload."""
    known = state.rejections.get(lineage)
    if known is None:
        return
    nodes = {name: times for name, times in known.nodes.items() if name != node}
    if nodes:
        state.put(state.rejections, lineage, Rejections(0, known.at, known.reason, nodes))
    else:
        state.drop(state.rejections, lineage)
    state.capacity_epoch += 1


def _forget(state: ClusterState) -> None:
    """What is long ago, and the oldest of too many."""
    old = [lineage for lineage, known in state.rejections.items() if state.time >= known.at + 2 * LONGEST]
    for lineage in (*old, *list(state.rejections)[: max(len(state.rejections) - KEEP, 0)]):
        state.drop(state.rejections, lineage)


def changed_on(state: ClusterState, node: NodeName) -> None:
    """Something has: whoever had that device may be gone."""
    if state.drop(state.refusing, node) is not None:
        state.capacity_epoch += 1
