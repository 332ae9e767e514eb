"""What people see with `kubectl describe` of pods and nodes: that a plan is about them, and what became of it."""

from collections import Counter

from restow.contracts.ids import NodeName, PlanId, PodUid
from restow.domain.duration import format_milliseconds
from restow.domain.migration.facts import NOT_MARKED
from restow.domain.records import Migration, Plan, Step
from restow.domain.state import ClusterState
from restow.kube.event_recorder import Notice, Recorder, Regarding

MOST_NODES = 200
"""Nodes of one plan that get Events: those with the most moves."""


def is_carried_out(plan: Plan) -> bool:
    """Neither only observed nor rejected, nor left without an answer."""
    return not plan.planned.mode or plan.answer == "approved"


class Told:
    """A `progress.Listener`. That a pod is evicted is said by the effect itself."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def planned(self, state: ClusterState, plan: Plan) -> None:
        planned = plan.planned
        if not is_carried_out(plan):
            # Nothing comes of it for the nodes.
            return
        moves = [move for move in planned.moves if not plan.chosen or move.migration in plan.chosen]
        leave, come = Counter(m.source for m in moves), Counter(m.target for m in moves if m.target)
        for node in _nodes(leave, come):
            what = _and(f"{_pods(leave[node])} off this node" if leave[node] else "", f"{_pods(come[node])} to it" if come[node] else "")
            self._of_node(state, node, "MigrationPlanned", "Plan", f"plan {planned.plan} ({planned.trigger}) is to move {what}")

    def evicted(self, state: ClusterState, migration: Migration) -> None:
        """Said by the effect."""

    def ended(self, state: ClusterState, migration: Migration, evicted: bool) -> None:
        move = migration.move
        if migration.step is Step.LANDED:
            note = f"migrated from {move.source} to {move.target}, as the successor of {move.name} (migration {migration.id})"
            self._of_pod(state, migration.successor, "Migrated", "Land", note)
        elif migration.step is Step.FAILED and not evicted:
            why = f"{migration.reason}: {migration.message}".strip(": ")
            wanted = f"move to {move.target}" if move.target else "be evicted"
            note = f"stays on {move.source}, was to {wanted}: {why} (migration {migration.id})"
            what = "MigrationNotMarked" if migration.reason == NOT_MARKED else "MigrationRolledBack"
            self._of_pod(state, move.pod, what, "RollBack", note, warning=True)
            if migration.reason == NOT_MARKED:
                note = f"pod {move.namespace}/{move.name} stays after all, and could not be marked (migration {migration.id})"
                self._of_node(state, move.source, what, "RollBack", note, warning=True)

    def over(self, state: ClusterState, plan: Plan) -> None:
        if not is_carried_out(plan):
            return
        left, came, stayed = Counter[NodeName](), Counter[NodeName](), Counter[NodeName]()
        for move in plan.planned.moves:
            record = state.migrations.get(move.migration)
            if record is not None and record.step in (Step.LANDED, Step.REMOVED):
                left[move.source] += 1
                came[move.target] += bool(move.target)
            else:
                stayed[move.source] += 1
        for node in _nodes(left + stayed, came):
            what = _and(
                f"{_pods(left[node])} moved off this node" if left[node] else "",
                f"{_pods(came[node])} moved to it" if came[node] else "",
                f"{_pods(stayed[node])} not moved" if stayed[node] else "",
            )
            self._of_node(state, node, "MigrationDone", "Plan", f"plan {plan.planned.plan} is over: {what}")

    def emptied(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        config = state.migration_config
        kept = f", and nobody is placed here for {format_milliseconds(config.emptied_for)}" if config.emptied == "cordon" else ""
        self._of_node(state, node, "NodeEmptied", "Plan", f"plan {plan} has emptied this node: it may be taken away{kept}")

    def returned(self, state: ClusterState, node: NodeName, plan: PlanId) -> None:
        self._of_node(state, node, "NodeReturned", "Plan", f"this node, which plan {plan} has emptied, was not taken away: it is anybody's again")

    def _of_node(self, state: ClusterState, node: NodeName, reason: str, action: str, note: str, warning: bool = False) -> None:
        known = state.nodes.get(node)
        if known is not None:
            about = Regarding("v1", "Node", "", node, known.uid)
            self._recorder.record(Notice(about, reason, action, note, "Warning" if warning else "Normal"))

    def _of_pod(self, state: ClusterState, uid: PodUid, reason: str, action: str, note: str, warning: bool = False) -> None:
        pod = state.fact_of(uid)
        if pod is not None:
            about = Regarding("v1", "Pod", pod.namespace, pod.name, uid)
            self._recorder.record(Notice(about, reason, action, note, "Warning" if warning else "Normal"))


def of_workload(state: ClusterState, lineage: str) -> Regarding | None:
    """Where a word about a whole workload is found: on a pod that lives; where none does just then, on what controls its controller; else on the pod
    that was to move last, gone or not (`kubectl get events` shows what is about it). None where nothing of it is known any more."""
    top = lineage.partition("/")[0]
    for uid in state.alive_under(top):
        pod = state.pods[uid].fact
        return Regarding("v1", "Pod", pod.namespace, pod.name, uid)
    for known in state.workloads.values():
        if known.owner is not None and known.owner.uid == top:
            return Regarding(known.owner.api_version, known.owner.kind, known.namespace, known.owner.name, top)
    moved = [m for m in state.migrations.values() if m.lineage == lineage and m.move.pod]
    if not moved:
        return None
    last = max(moved, key=lambda m: m.since).move
    return Regarding("v1", "Pod", last.namespace, last.name, last.pod)


def _nodes(leave: Counter[NodeName], come: Counter[NodeName]) -> list[NodeName]:
    total = leave + come
    return sorted(total, key=lambda node: (-total[node], node))[:MOST_NODES]


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"


def _and(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
