"""`MoveGang`: all pods of a PodGroup as one, each to the best node beside the others (RULES G-11: a gang at its minimum spares nobody, but all of them).

Nobody of it leaves before all have their slots and every disruption budget lets all of them go (`whole_nodes`, `limits`): how many of a workload or of
a gang may be away is no question then.
"""

from collections import Counter

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Move
from restow.domain.decider import Rejected
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.groups import named
from restow.domain.migration import as_one
from restow.domain.migration.move import PLANNER, TRIGGER
from restow.domain.migration.targets import Landings
from restow.domain.state import ClusterState
from restow.domain.whole_gangs import members as members_of
from restow.domain.whole_gangs import said as known_as

PLUGIN = "MoveGang"


def move_gang(state: ClusterState, now: Millis, plan: PlanId, said: str) -> Planned:
    """A plan of one move for each pod of the gang. Raises Rejected with the reason where not all of them can be promised a slot."""
    if plan in state.plans:
        raise Rejected(f"move: plan {plan!r} exists already; allowed: a fresh id")
    group = named(said)
    name = known_as(group)
    members, why = members_of(state, group)
    if not members:
        raise Rejected(f"move: {name} has no pods; allowed: NAMESPACE/NAME of a PodGroup whose pods run")
    landings = Landings(state, now)
    try:
        if why := why or as_one.why_not(state, members) or as_one.choose(landings, state, now, group, members):
            raise Rejected(f"move: {name} cannot be moved as one: {why}")
        return _planned(state, plan, said, name, members, landings)
    finally:
        landings.close()


def _planned(state: ClusterState, plan: PlanId, said: str, name: str, members: list[PodUid], landings: Landings) -> Planned:
    table, asked, capacity = state.table, asked_for(state), FreeCapacity(state.table)
    moves: list[Move] = []
    sources: dict[NodeName, None] = {}
    pods = Counter[NodeName]()
    for number, uid in enumerate(members, 1):
        pod, spot = state.pods[uid].fact, landings.spots[uid]
        source, to = state.charges[uid].node, NodeName(table.names[spot.row])
        moves.append(Move(MigrationId(f"{plan}-{number}"), uid, pod.namespace, pod.name, source, to, spot.devices, spot.cores, cost=1, gang=said))
        sources[source] = None
        capacity.take(table.rows[source], state.vectors[pod.shape], state.charges[uid].devices, -1)
        capacity.take(spot.row, state.vectors[pod.shape], spot.devices)
        pods.update({source: -1, to: 1})
    return Planned(
        plan, PLUGIN, tuple(moves), packing(state, asked=asked), packing(state, capacity, pods, asked), tuple(sources),
        trigger=TRIGGER, planner=PLANNER, reason=f"{name} was to be moved as one", gang=said,
    )  # fmt: skip
