"""Why each candidate moves or stays: the plan decided again, with every verdict in full (DESIGN 4)."""

from collections import Counter

import msgspec

from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation import optimizing
from restow.domain.defragmentation.evictable import MEANING
from restow.domain.defragmentation.greedy import LIMIT, NO_TARGET, TOO_FEW_SOURCES, walk
from restow.domain.defragmentation.optimizing.plan import SENTENCES
from restow.domain.defragmentation.plan import MAX_MOVES
from restow.domain.defragmentation.scope import EVERYTHING, Scope, word
from restow.domain.defragmentation.scope import MEANING as OF_SCOPE
from restow.domain.defragmentation.targets import NO_TARGETS, NODE_RULES, Targets
from restow.domain.fragmentation import alike
from restow.domain.predicates import static_reasons
from restow.domain.state import ClusterState

PLANNED = "Planned"


class Candidate(msgspec.Struct, frozen=True):
    """One pod on a source (optimizing: on any node). `verdict` is the plan's: `Planned`, or why it stays, as a sentence in `message`. Where no
    target took it: how many there were, and how many each rule `removed` (the first that applies counts)."""

    pod: PodUid
    namespace: str
    name: str
    source: NodeName
    verdict: str
    message: str
    target: NodeName = NodeName("")
    targets: int = 0
    removed: dict[str, int] = {}


def explain(
    state: ClusterState, args: DefragmentationArgs, time: Millis, max_moves: int = MAX_MOVES, scope: Scope = EVERYTHING
) -> tuple[Candidate, ...]:
    """All candidates, by source and pod in the order of their names. Decides exactly as `plan`."""
    explained = _optimizing if args.planner == "optimizing" else _greedy
    found = explained(state, args, time, max_moves, scope)
    return tuple(sorted(found, key=lambda c: (c.source, c.namespace, c.name, c.pod)))


def _optimizing(state: ClusterState, args: DefragmentationArgs, time: Millis, max_moves: int, scope: Scope) -> list[Candidate]:
    """Every pod on a node is a candidate."""
    found: list[Candidate] = []

    def stays(uid: PodUid, source: NodeName, verdict: str, more: str) -> None:
        pod = state.pods[uid]
        message = _message(verdict, args, {}) if verdict == LIMIT else more or SENTENCES[verdict]
        found.append(Candidate(uid, pod.namespace, pod.name, source, verdict, message))

    made = optimizing.plan(state, args, time, PlanId("explain"), max_moves, stays, scope)
    last = {move.migration: move.target for move in made.moves if not move.follows}
    last |= {move.follows: move.target for move in made.moves if move.follows}
    for move in made.moves:
        if not move.follows:
            target = last[move.migration]
            way = f"moves to {target}" + (f" by way of {move.target}" if target != move.target else "")
            found.append(Candidate(move.pod, move.namespace, move.name, move.source, PLANNED, way, target))
    return found


def _greedy(state: ClusterState, args: DefragmentationArgs, time: Millis, max_moves: int, scope: Scope) -> list[Candidate]:
    """Those on sources."""
    found: list[Candidate] = []

    def kept(uid: PodUid, source: NodeName, verdict: str, targets: Targets | None) -> None:
        pod = state.pods[uid]
        count, removed = 0, {}
        if targets is not None and verdict.startswith(NO_TARGET):
            count, removed = len(targets), _removed(state, targets, uid)
        message = _message(verdict, args, removed)
        found.append(Candidate(uid, pod.namespace, pod.name, source, word(verdict), message, targets=count, removed=removed))

    for move in walk(state, args, time, PlanId("explain"), max_moves, kept, scope):
        found.append(
            Candidate(move.pod, move.namespace, move.name, move.source, PLANNED, f"moves to {move.target}", move.target)
        )
    return found


def _removed(state: ClusterState, targets: Targets, uid: PodUid) -> dict[str, int]:
    """With the rules about nodes by their own names."""
    shape = state.pods[uid].shape
    counts = Counter(targets.removed(uid))
    if counts.pop(NODE_RULES, 0):
        reasons = static_reasons(state, alike(state, shape))
        counts.update(reasons[row] for row in targets.rows_removed_by_node_rules(shape))
    return dict(sorted(counts.items()))


def _message(verdict: str, args: DefragmentationArgs, removed: dict[str, int]) -> str:
    if verdict in MEANING:
        return MEANING[verdict]
    if verdict in OF_SCOPE:
        return OF_SCOPE[verdict]
    if word(verdict) != verdict:
        return verdict.partition(": ")[2]
    if verdict == LIMIT:
        return "the plan is full; a later one may move it"
    if verdict == TOO_FEW_SOURCES:
        return f"no more than numberOfNodes ({args.numberOfNodes}) nodes are below lowThresholds"
    if not removed:
        return NO_TARGETS
    return "no target fits: " + ", ".join(f"{count} {rule}" for rule, count in removed.items())
