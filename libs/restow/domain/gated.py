"""Gated pods beside another scheduler: for whom each of them was gated, and which of them moves wait for. Whoever else is gated is let go at once."""

from bisect import bisect_right
from collections.abc import Callable, Iterator

from restow.contracts.events import PodObserved
from restow.contracts.ids import MigrationId, Millis, NodeName, PodUid, ShapeId
from restow.domain.landing_gate import GATE, said_by
from restow.domain.other_schedulers import is_beside
from restow.domain.records import FINAL, Migration
from restow.domain.state_maps import Maps
from restow.domain.successors import may_follow

FORSAKEN = 300_000
"""Milliseconds after the end of its entry, after which a pod that another installation has gated is let go by whoever sees it."""
LONGEST = 172_800_000
"""Milliseconds for which an entry of another installation may be: who is asked before a move has a day at most, and the rest takes minutes. One that is
longer is nobody's: an account that was stolen may have written it, under any name."""
MayRun = Callable[[Maps, ShapeId, NodeName], bool]
"""Whether a pod of this shape may run on a node by the node's own rules (`restow.domain.session.beside`)."""


def expected(state: Maps, may_run: MayRun) -> set[PodUid]:
    """Of the gated pods those that a migration waits for: each waits for one, the first that may follow its pod and may run on its target. (Others may
    have bound it to other nodes since it was made, as Kueue does.)"""
    if state.drafting:
        return _expected(state, may_run)
    known, at = state.memo.make(_Expected), (state.seq, state.time)
    if known.at != at:
        known.at, known.found = at, _expected(state, may_run)
    return known.found


class _Expected:
    """At one place of the log: thousands may be gated at once, and it is asked about each of them."""

    at: tuple[int, Millis] | None = None
    found: set[PodUid]


def _expected(state: Maps, may_run: MayRun) -> set[PodUid]:
    found: set[PodUid] = set()
    waiting = [state.migrations[id] for id in _waiting(state)]
    lines = _lines(state, {migration.lineage for migration in waiting})
    for migration in waiting:
        # All of a line are alike but for when they came.
        first: tuple[int, PodUid] | None = None
        for line in lines.get(migration.lineage, {}).values():
            at = bisect_right(line, migration.came_before, key=lambda one: one[0])
            if at < len(line) and (first is None or line[at] < first) and _may_land(state, state.pods[line[at][1]].fact, migration, may_run):
                first = line[at]
        if first is not None:
            lines[migration.lineage][state.pods[first[1]].fact.shape].remove(first)
            found.add(first[1])
    return found


def _lines(state: Maps, lineages: set[str]) -> dict[str, dict[ShapeId, list[tuple[int, PodUid]]]]:
    """The gated pods that are of these lineages, and ours to decide about, by what they ask for, in the order in which they came."""
    lines: dict[str, dict[ShapeId, list[tuple[int, PodUid]]]] = {}
    for uid in state.gated if lineages else ():
        pod = state.pods[uid].fact
        lineage = state.lineage(pod)  # type: ignore[attr-defined]
        if lineage in lineages and may_get_slot(state, pod):
            lines.setdefault(lineage, {}).setdefault(pod.shape, []).append((state.order_of(uid), uid))
    for by_shape in lines.values():
        for line in by_shape.values():
            line.sort()
    return lines


def gated_by(pod: PodObserved) -> tuple[str, Millis]:
    """`landing_gate.said_by` of a pod."""
    return said_by(pod.annotations.get(GATE, ""))


def may_get_slot(state: Maps, pod: PodObserved) -> bool:
    """Whether a slot may be left to it by this way: it is another scheduler's, and another installation has no claim to it."""
    return not state.ours(pod) and not is_others(state, pod)  # type: ignore[attr-defined]


def is_others(state: Maps, pod: PodObserved) -> bool:
    """Whether another installation on this cluster has it gated, and may still want it. It will not when its entry has been over for a while: either
    it is away, or its log is lost."""
    return state.time < forsaken_at(state, pod)


def forsaken_at(state: Maps, pod: PodObserved) -> Millis:
    """From when on nobody else wants it; 0 where nobody else has it gated."""
    if pod.annotations.get(GATE, "").partition(" ")[0] in ("", state.log):
        return Millis(0)
    log, until = gated_by(pod)
    return Millis(until + FORSAKEN if log and until <= pod.created + LONGEST else 0)


def _may_land(state: Maps, pod: PodObserved, migration: Migration, may_run: MayRun) -> bool:
    """What becomes of a move whose target takes nobody any more is the move's to say: its successor is not let go before."""
    if not may_follow(state, pod, migration):
        return False
    target = migration.move.target
    return may_run(state, pod.shape, target) or not may_run(state, migration.shape, target)


def _waiting(state: Maps) -> Iterator[MigrationId]:
    """Moves whose pod has gone and whose slot may still be handed over."""
    armed = [state.migrations[id] for ids in state.armed.values() for id in ids]
    for migration in sorted(armed, key=lambda m: (m.armed, m.id)):
        if migration.step not in FINAL and not migration.successor and is_beside(state, migration.shape):
            yield migration.id
