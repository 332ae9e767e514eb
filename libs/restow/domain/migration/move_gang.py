"""`MoveGang`: all pods of a PodGroup as one, each to the best node beside the others (RULES G-11: a gang at its minimum spares nobody, but all of them).

Who made the gang must start it again when all of it is gone; nobody knows that but who says so (`movable.starts_again`). Nobody of it leaves before all
have their slots and every disruption budget lets all of them go (`whole_nodes`, `limits`): how many of a workload or of a gang may be away is no
question then. All places are free beside those that the gang has now.
"""

from collections import Counter

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move
from restow.domain.beside import is_beside
from restow.domain.decider import Rejected
from restow.domain.disruption import not_admitted
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.groups import UPSTREAM, Group, named
from restow.domain.migration.move import PLANNER, TRIGGER
from restow.domain.migration.targets import Landings, stays
from restow.domain.movable import starts_again
from restow.domain.pod_controllers import GANG, MOVABLE
from restow.domain.protection import Budgets
from restow.domain.session.jobs import Job
from restow.domain.state import OVER, ClusterState
from restow.domain.verdicts import stay

PLUGIN = "MoveGang"


def move_gang(state: ClusterState, now: Millis, plan: PlanId, said: str) -> Planned:
    """A plan of one move for each pod of the gang. Raises Rejected with the reason where not all of them can be promised a slot."""
    if plan in state.plans:
        raise Rejected(f"move: plan {plan!r} exists already; allowed: a fresh id")
    group = named(said)
    name = f"PodGroup {group[0]}/{group[1].removeprefix(UPSTREAM)}"
    members = _members(state, group, name)
    for uid in members:
        if why := _stays(state, uid):
            raise Rejected(f"move: {name} cannot be moved as one: pod {state.pods[uid].fact.name}: {why}")
    if why := _over_budget(state, members):
        raise Rejected(f"move: {name} cannot be moved as one: {why}")
    landings, targets = Landings(state, now), _targets(state, members)
    try:
        whole = Job(said, "", 0, 0, now)
        whole.group, whole.need = group, len(members)
        if (refused := landings.choose_all(whole, members, targets)) is not None:
            uid, why = refused
            raise Rejected(f"move: {name} cannot be moved as one: pod {state.pods[uid].fact.name}: {stay(why).sentence}")
        return _planned(state, plan, said, name, members, landings)
    finally:
        landings.close()


def _targets(state: ClusterState, members: list[PodUid]) -> list[NodeName] | None:
    """None for all. What another scheduler places goes to no node that one of them leaves: a guard keeps that (`beside.meets_guard`)."""
    if not any(is_beside(state, state.pods[uid].fact.shape) for uid in members):
        return None
    left = {state.charges[uid].node for uid in members}
    return [name for name in state.nodes if name not in left]


def _members(state: ClusterState, group: Group, name: str) -> list[PodUid]:
    """In the order in which the log saw them."""
    found = [uid for uid in state.groups.get(group, ()) if not state.pods[uid].live.deleting and state.pods[uid].live.phase not in OVER]
    if not found:
        raise Rejected(f"move: {name} has no pods; allowed: NAMESPACE/NAME of a PodGroup whose pods run")
    if waiting := [uid for uid in found if state.pods[uid].live.phase != "Running"]:
        raise Rejected(f"move: {name} cannot be moved as one: {len(waiting)} of its {len(found)} pods do not run")
    return sorted(found, key=state.order_of)


def _stays(state: ClusterState, uid: PodUid) -> str:
    """Why the pod stays, and all others with it."""
    pod = state.pods[uid].fact
    if pod.owner is None:
        return "no controller would create it again"
    if why := stays(state, uid, as_gang=True) or not_admitted(state, uid):
        return stay(why).sentence
    if not starts_again(state, pod):
        return f'nobody says that its gang starts again when all of it is evicted; allowed: {MOVABLE}: "{GANG}" on the PodGroup, or on each of its pods'
    return ""


def _over_budget(state: ClusterState, members: list[PodUid]) -> str:
    """Whether a disruption budget does not let all of them go."""
    budgets, asked = Budgets(state), Counter[str]()
    for uid in members if state.budgets else ():
        paths = budgets.bind(uid)
        if len(paths) > 1:
            return f"pod {state.pods[uid].fact.name}: {budgets.refusal(uid)}"
        asked.update(paths)
    for path, many in asked.items():
        if (left := budgets.evictions_left(path)) < many:
            return f"the disruption budget {path} allows {max(left, 0)} evictions now, and {many} pods of the gang would need one"
    return ""


def _planned(state: ClusterState, plan: PlanId, said: str, name: str, members: list[PodUid], landings: Landings) -> Planned:
    table, asked, capacity = state.table, asked_for(state), FreeCapacity(state.table)
    moves: list[Move] = []
    sources: dict[NodeName, None] = {}
    pods = Counter[NodeName]()
    for number, uid in enumerate(members, 1):
        pod, spot = state.pods[uid].fact, landings.spots[uid]
        source, to = state.charges[uid].node, NodeName(table.names[spot.row])
        moves.append(Move(MigrationId(f"{plan}-{number}"), uid, pod.namespace, pod.name, source, to, spot.devices, spot.cores, cost=1))
        sources[source] = None
        capacity.take(table.rows[source], state.vectors[pod.shape], state.charges[uid].devices, -1)
        capacity.take(spot.row, state.vectors[pod.shape], spot.devices)
        pods.update({source: -1, to: 1})
    return Planned(
        plan, PLUGIN, tuple(moves), packing(state, asked=asked), packing(state, capacity, pods, asked), tuple(sources),
        trigger=TRIGGER, planner=PLANNER, reason=f"{name} was to be moved as one", gang=said,
    )  # fmt: skip
