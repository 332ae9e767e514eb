"""Reservation objects that the descheduler makes: the hold of a migration's landing slot (seed 000's tasks form), and capacity for a
pod that waits (seed 003's template form), rendered from the pod's shape."""

from restow.contracts.events import PodObserved
from restow.domain.evolve.demand_slots import PLAN
from restow.domain.migration import successor
from restow.domain.other_schedulers import LOG
from restow.domain.pod_controllers import family_of
from restow.domain.records import DemandSlot, Migration, hold_name
from restow.domain.state import ClusterState
from restow.kube.pod_template import Json, Template, template

API_VERSION = "batch.volcano.sh/v1alpha1"
KIND = "Reservation"
MIGRATION = "restow.dev/migration"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "restow"
TASK = "hold"
"""So the slot is called `hold-0`."""
SHORTEST_TTL = 600_000
"""Milliseconds that a slot is kept at least, once its moves have landed."""


class Metadata(Json, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str]


class Task(Json, frozen=True):
    name: str
    replicas: int
    template: Template


class Reference(Json, frozen=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    namespace: str = ""


class Owner(Json, frozen=True):
    controller: Reference | None = None
    object: Reference | None = None


class Spec(Json, frozen=True):
    scheduler_name: str
    match_policy: str
    ttl: str
    owners: tuple[Owner, ...]
    min_available: int = 0
    tasks: tuple[Task, ...] = ()
    template: Template | None = None
    allocate_once: bool | None = None
    pre_allocation: bool = False


class Manifest(Json, frozen=True):
    """`msgspec.json.encode` gives the body of the request, `msgspec.to_builtins` the object."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: Spec


def hold_manifest(state: ClusterState, migration: Migration) -> Manifest | None:
    """None where the victim is gone: then there is nobody to hold a slot for, and the effect is not owed any more. One that turns
    back waits for capacity that is still in use: its own."""
    uid = successor.pattern(state, migration) if migration.back else migration.move.pod
    pod = state.fact_of(uid) if uid is not None else None
    if pod is None or pod.owner is None:
        return None
    shape = state.shapes[migration.shape]
    labels = {MIGRATION: migration.id, **_made_here(state)}
    return Manifest(
        api_version=API_VERSION,
        kind=KIND,
        metadata=Metadata(hold_name(migration), migration.move.namespace, labels),
        spec=Spec(
            scheduler_name=shape.scheduler,
            min_available=1,
            match_policy="Owner",
            ttl="0s",
            owners=_controllers(state, pod),
            tasks=(Task(TASK, 1, template(pod, shape, migration.move.target)),),
            pre_allocation=migration.back > 0,
        ),
    )


def _made_here(state: ClusterState) -> dict[str, str]:
    """Whose object it is: another installation's collector leaves it alone, and this one knows it again."""
    return {MANAGED_BY: MANAGER} | ({LOG: state.log} if state.log else {})


def _controllers(state: ClusterState, pod: PodObserved) -> tuple[Owner, ...]:
    """The Deployment, too: any of its ReplicaSets may make the successor. A LeaderWorkerSet's group has another StatefulSet of that name then."""
    assert pod.owner is not None, "a bare pod is never moved"
    if family_of(pod):
        return (Owner(Reference(pod.owner.kind, pod.owner.name, "", pod.owner.api_version)),)
    above = state.above(pod.owner)
    owners = (pod.owner,) if above is None else (pod.owner, above)
    return tuple(Owner(Reference(o.kind, o.name, o.uid, o.api_version)) for o in owners)


def demand_slot_manifest(state: ClusterState, demand_slot: DemandSlot) -> Manifest | None:
    """None where the pod is gone: then there is nobody to free capacity for."""
    pod = state.fact_of(demand_slot.spec.pod)
    if pod is None:
        return None
    shape = state.shapes[pod.shape]
    ttl = max(2 * state.migration_config.land_deadline, SHORTEST_TTL)
    owner = Reference("Pod", pod.name, pod.pod, "v1", pod.namespace)
    return Manifest(
        api_version=API_VERSION,
        kind=KIND,
        metadata=Metadata(demand_slot.spec.name, demand_slot.spec.namespace, {PLAN: demand_slot.plan, **_made_here(state)}),
        spec=Spec(
            scheduler_name=shape.scheduler,
            match_policy="Owner",
            ttl=f"{-(-ttl // 1000)}s",
            owners=(Owner(object=owner),),
            template=template(pod, shape, demand_slot.spec.node),
            allocate_once=True,
            pre_allocation=True,
        ),
    )
