"""Nodes that a plan empties wholly, for somebody to take away (policy `emptied`).

From the first eviction on nobody else is placed there (`cordon`). What comes of it is said: `node_emptied` when nobody but DaemonSets' and static
pods is left, `node_returned` where that cannot be any more, somebody is there again, or nobody has taken the node away in `emptied_for`. Plans on
demand free capacity for a job that waits: their nodes are nobody else's.

Nodes to which moves are under way are protected from autoscalers meanwhile (policy `protect_targets`).

What a node has of ours is a fact (`NodeObserved.marks`), what it is to have follows from the state: the difference is owed, also after a restart.
As long as it is to have it, the end of what it has is put off (`wanted`).
"""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.events import NodeObserved
from restow.contracts.ids import Millis, NodeName, PlanId
from restow.domain.autoscalers import CORDONED, PROTECTED, cordoned_for, is_free_to_mark, is_protected
from restow.domain.effects import MarkNode
from restow.domain.fragmentation.packing import is_load
from restow.domain.migration.whole_nodes import has_stayed, sources
from restow.domain.records import FINAL, Emptied, Migration
from restow.domain.state import OVER, ClusterState, Touched
from restow.domain.verdicts import NOT_EMPTIED, NOT_TAKEN, OFF, REFILLED, UNCORDONED


def decided(state: ClusterState, now: Millis) -> list[e.Event]:
    found: list[e.Event] = []
    for node, known in sorted(state.emptied.items()):
        if why := _returned(state, node, known, now):
            found.append(e.NodeReturned(node, known.plan, why))
        elif not known.at and _is_done(state, node, known.plan):
            found.append(e.NodeEmptied(node, known.plan))
    return found


def deadline(state: ClusterState) -> Millis | None:
    """When the next node is nobody's to take any more."""
    times = [Millis(known.at + state.migration_config.emptied_for) for known in state.emptied.values() if known.at]
    return min(times, default=None)


def _returned(state: ClusterState, node: NodeName, known: Emptied, now: Millis) -> str:
    """Why the node is anybody's again; empty where it is not."""
    if state.migration_config.emptied == "none":
        return OFF
    fact = state.nodes[node]
    if cordoned_for(fact, state.log) and not fact.unschedulable:
        return UNCORDONED
    if not known.at:
        moves = _moves(state, node, known.plan)
        stay = not moves or any(one.back or has_stayed(state, one) for one in moves)
        return NOT_EMPTIED if stay or (_are_over(moves) and _is_used(state, node)) else ""
    if _is_used(state, node):
        return REFILLED
    return NOT_TAKEN if now >= known.at + state.migration_config.emptied_for else ""


def _is_done(state: ClusterState, node: NodeName, plan: PlanId) -> bool:
    """Whether all of its moves are over, and nobody is there any more: also not those that terminate."""
    return _are_over(_moves(state, node, plan)) and not any(is_load(state, pod) for pod in state.on_node.get(node, ()))


def _are_over(moves: list[Migration]) -> bool:
    return all(one.step in FINAL for one in moves)


def _moves(state: ClusterState, node: NodeName, plan: PlanId) -> list[Migration]:
    """None where the plan is forgotten."""
    ids = sources(state, plan).get(node, ()) if plan in state.plans else ()
    return [state.migrations[id] for id in ids if id in state.migrations]


def _is_used(state: ClusterState, node: NodeName) -> bool:
    """Whether somebody is there to stay, or has capacity held there."""
    if state.held_on.get(node):
        return True
    for pod in state.on_node.get(node, ()):
        live = state.live_of(pod)
        if live is not None and not live.deleting and live.phase not in OVER and is_load(state, pod):
            return True
    return False


# -- what the nodes are to have ----------------------------------------------------------------------------------------------


def pending(state: ClusterState, touched: Touched | None) -> Iterator[MarkNode]:
    for node in _nodes(state) if touched is None else _touched(state, touched):
        fact = state.nodes.get(node)
        if fact is not None and (effect := _owed(state, fact)) is not None:
            yield effect


def owed(state: ClusterState, effect: MarkNode) -> bool:
    fact = state.nodes.get(effect.node)
    return fact is not None and _owed(state, fact) == effect


def wanted(state: ClusterState) -> Iterator[tuple[NodeObserved, tuple[str, ...]]]:
    """Nodes with what they have of this log, and are to have still."""
    for node in list(state.nodes.values()):
        if not node.marks:
            continue
        keeps = {
            PROTECTED: is_protected(node, state.log) and _is_target(state, node.name),
            CORDONED: bool(cordoned_for(node, state.log)) and bool(_to_cordon(state, node.name)),
        }
        if marks := tuple(mark for mark, wants in keeps.items() if wants):
            yield node, marks


def _nodes(state: ClusterState) -> dict[NodeName, None]:
    found = dict.fromkeys(name for name, node in state.nodes.items() if node.marks)
    found.update(dict.fromkeys(state.emptied))
    found.update(dict.fromkeys(_lands_on(state.migrations[id]) for id in state.active))
    return found


def _touched(state: ClusterState, touched: Touched) -> dict[NodeName, None]:
    found = dict(touched.nodes)
    config = state.migration_config
    if config.protect_targets or config.emptied != "none":
        for migration in filter(None, map(state.migrations.get, touched.migrations)):
            found.update(dict.fromkeys((migration.move.target, migration.move.source)))
    return found


def _owed(state: ClusterState, node: NodeObserved) -> MarkNode | None:
    """The first that differs; what another log has marked is left alone until that is gone."""
    protect, plan = _is_target(state, node.name), _to_cordon(state, node.name)
    had = is_protected(node, state.log), cordoned_for(node, state.log)
    protects = protect != had[0] and is_free_to_mark(node, PROTECTED, state.log)
    # Somebody else's cordon is as good, and stays his.
    cordons = bool(plan) != bool(had[1]) and is_free_to_mark(node, CORDONED, state.log) and not (plan and node.unschedulable)
    return MarkNode(node.name, protect, plan) if protects or cordons else None


def _is_target(state: ClusterState, node: NodeName) -> bool:
    return state.migration_config.protect_targets and any(_lands_on(state.migrations[id]) == node for id in state.active)


def _to_cordon(state: ClusterState, node: NodeName) -> str:
    """The plan for which it is to be cordoned. Not where somebody is to land on it: a pod on its way elsewhere may stay there in between."""
    known = state.emptied.get(node)
    if known is None or state.migration_config.emptied != "cordon" or state.held_on.get(node) or state.promised.get(node):
        return ""
    return "" if any(_lands_on(state.migrations[id]) == node for id in state.active) else known.plan


def _lands_on(migration: Migration) -> NodeName:
    return migration.move.source if migration.back else migration.move.target
