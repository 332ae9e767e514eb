"""`MovePod`: one pod, to a node that is named or to the best, by the scheduler's own rules, as if the pod were not there."""

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move
from restow.domain import predicates
from restow.domain.config import DefragmentationArgs
from restow.domain.decider import Rejected
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.simulation import Simulation, Spot, simulated
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.migration import holds
from restow.domain.migration.targets import stand_in
from restow.domain.node_table import vector_of
from restow.domain.resources import canonical_resource
from restow.domain.session.session import Session
from restow.domain.state import ClusterState
from restow.domain.verdicts import REFUSED, UNSUPPORTED, stay

PLUGIN = "MovePod"
TRIGGER = PLANNER = "move"


def move_pod(state: ClusterState, now: Millis, plan: PlanId, uid: PodUid, target: NodeName) -> Planned:
    """A plan with this one move. Raises Rejected with the reason where no landing slot can be promised."""
    if plan in state.plans:
        raise Rejected(f"move: plan {plan!r} exists already; allowed: a fresh id")
    pod = state.fact_of(uid)
    if pod is None:
        raise Rejected(f"move: there is no pod {uid!r}; allowed: the uid of a pod that runs")
    name = f"pod {pod.namespace}/{pod.name}"
    if why := _not_movable(state, uid):
        raise Rejected(f"move: {name} cannot be moved: {why}")
    source = state.pods[uid].live.node or NodeName("")
    if target:
        _check_target(state, name, source, target)
    spot, message = _landing(state, now, uid, source, target)
    if spot is None:
        raise Rejected(f"move: {name} cannot be moved{f' to {target}' if target else ''}: {message}")
    to = NodeName(state.table.names[spot.row])
    move = Move(MigrationId(f"{plan}-1"), uid, pod.namespace, pod.name, source, to, spot.devices, spot.cores, cost=1)
    asked = asked_for(state)
    capacity = FreeCapacity(state.table)
    v = state.vectors[pod.shape]
    capacity.take(state.table.rows[source], v, state.devices_of(uid), -1)
    capacity.take(spot.row, v, spot.devices)
    after = packing(state, capacity, {source: -1, to: 1}, asked)
    return Planned(
        plan, PLUGIN, (move,), packing(state, asked=asked), after, (source,), trigger=TRIGGER, planner=PLANNER,
        reason=f"{name} was to be moved",
    )


def _not_movable(state: ClusterState, uid: PodUid) -> str:
    """Why the pod stays, whoever asks: the rules of Defragmentation but for its thresholds. Constraints about other pods are
    no obstacle here: the session is asked itself."""
    args = state.migration_config.defragmentation or DefragmentationArgs()
    verdict = Evictable(state, args, canonical_resource(args.resourceType), by_rules=True).verdict(uid)
    if verdict.startswith(f"{REFUSED}:"):
        # Whoever asks for this pod by name may try again.
        verdict = ""
    if verdict == UNSUPPORTED:
        return f"what it asks for cannot be read ({state.shapes[state.pods[uid].fact.shape].unreadable}), so nothing can be held for it"
    if not verdict and state.charges.get(uid) is None:
        return "its node is not known"
    return stay(verdict).sentence or verdict


def _check_target(state: ClusterState, name: str, source: NodeName, target: NodeName) -> None:
    if target == source:
        raise Rejected(f"move: {name} is on {target} already; allowed: another node, or none to have the best chosen")
    if target not in state.nodes:
        raise Rejected(f"move: there is no node {target!r}; allowed: a node of the cluster, or none to have the best chosen")
    if why := holds.target_lost(state, target):
        raise Rejected(f"move: {why[1]}; allowed: a node that takes pods")


def _landing(
    state: ClusterState, now: Millis, pod: PodUid, source: NodeName, target: NodeName
) -> tuple[Spot | None, str]:
    """What it gets, and on which row; or why it gets nothing."""
    with simulated(state, now, stand_in(state, now)) as simulation:
        _close(simulation.session, source)
        spot = simulation.best(pod, target=target)
        return spot, "" if spot is not None else _why(simulation, pod, target)


def _close(session: Session, source: NodeName) -> None:
    """On the session's node snapshot, which is thrown away: nothing more fits where the pod is."""
    nodes, row = session.nodes, session.state.table.rows[source]
    free, _ = nodes.row(row)
    nodes.take(row, vector_of((c, amount) for c, amount in enumerate(free) if amount > 0), ())


def _why(simulation: Simulation, pod: PodUid, target: NodeName) -> str:
    nodes, reasons = simulation.reasons(pod, target)
    said = {reason: count for reason, count in reasons.items() if not (target and reason == predicates.PINNED)}
    if target:
        return ", ".join(sorted(said)) or "there is no capacity"
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(said.items()))
    return f"0 of {nodes} nodes would take it: {counts}".rstrip(": ")
