"""The Reservation object that holds a migration's landing place: seed 000's tasks form, rendered from the pod's shape.

What it asks for must be read back exactly as the pod's own shape says: requests as one container's, GPUs under names that
decode to the same devices, CPUs of its own by the labels and the annotation that ask for them (a test reads it back through
`restow.kube`).
"""


import msgspec

from restow.contracts.values import CoreRequest, DeviceRequest, PodShape
from restow.domain.quantity import format_resource
from restow.domain.records import Migration
from restow.domain.resources import ALIBABA_GPU_COUNT, ALIBABA_GPU_MILLI, GPU_MILLI, NVIDIA_GPU, PODS
from restow.domain.state import ClusterState
from restow.domain.table import WHOLE

API_VERSION = "batch.volcano.sh/v1alpha1"
MIGRATION = "restow.dev/migration"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "restow"
OWN_CPUS = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
TASK = "hold"
"""So the place is called `hold-0`."""


class _Json(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the parts. Defaults are left out, as kubectl would."""


class Metadata(_Json, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str]


class Toleration(_Json, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(_Json, frozen=True):
    requests: dict[str, str] = {}


class Container(_Json, frozen=True):
    name: str
    image: str
    resources: Resources


class PodSpec(_Json, frozen=True):
    scheduler_name: str
    node_name: str
    containers: tuple[Container, ...]
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""


class TemplateMetadata(_Json, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Template(_Json, frozen=True):
    spec: PodSpec
    metadata: TemplateMetadata | None = None


class Task(_Json, frozen=True):
    name: str
    replicas: int
    template: Template


class Controller(_Json, frozen=True):
    kind: str
    name: str
    uid: str
    api_version: str = ""


class Owner(_Json, frozen=True):
    controller: Controller


class Spec(_Json, frozen=True):
    scheduler_name: str
    min_available: int
    match_policy: str
    ttl: str
    owners: tuple[Owner, ...]
    tasks: tuple[Task, ...]


class HoldManifest(_Json, frozen=True):
    """`msgspec.json.encode` gives the body of the request, `msgspec.to_builtins` the object."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: Spec


def hold_name(migration: str) -> str:
    return f"restow-{migration}"


def hold_manifest(state: ClusterState, migration: Migration) -> HoldManifest | None:
    """None where the victim is gone: then there is nobody to hold a place for, and the effect is not owed any more."""
    pod = state.pods.get(migration.move.pod)
    if pod is None or pod.owner is None:
        return None
    shape = state.shapes[migration.shape]
    owner = pod.owner
    above = state.workloads.get(owner.uid)
    # The Deployment, too: any of its ReplicaSets may make the successor.
    owners = (owner,) if above is None else (owner, above.owner)
    return HoldManifest(
        api_version=API_VERSION,
        kind="Reservation",
        metadata=Metadata(
            name=hold_name(migration.id),
            namespace=migration.move.namespace,
            labels={MIGRATION: migration.id, MANAGED_BY: MANAGER},
        ),
        spec=Spec(
            scheduler_name=shape.scheduler,
            min_available=1,
            match_policy="Owner",
            ttl="0s",
            owners=tuple(Owner(Controller(o.kind, o.name, o.uid, o.api_version)) for o in owners),
            tasks=(Task(TASK, 1, Template(_pod_spec(shape, migration.move.target), _own_cpus(shape.cores))),),
        ),
    )


def _pod_spec(shape: PodShape, node: str) -> PodSpec:
    return PodSpec(
        scheduler_name=shape.scheduler,
        node_name=node,
        containers=(Container("hold", "restow.dev/hold", Resources(quantities(shape.requests, shape.devices))),),
        node_selector=shape.node_selector,
        tolerations=tuple(
            Toleration(t.key, "" if t.operator == "Equal" else t.operator, t.value, t.effect, t.seconds)
            for t in shape.tolerations
        ),
        priority=shape.priority,
        priority_class_name=shape.priority_class,
        preemption_policy="" if shape.preemption == "PreemptLowerPriority" else shape.preemption,
    )


def _own_cpus(cores: CoreRequest | None) -> TemplateMetadata | None:
    """What makes Koordinator give a pod CPUs of its own, whatever range its priority is in."""
    if cores is None:
        return None
    said = {"requiredCPUBindPolicy" if cores.required else "preferredCPUBindPolicy": cores.policy}
    if cores.exclusive:
        said["preferredCPUExclusivePolicy"] = cores.exclusive
    return TemplateMetadata(OWN_CPUS, {RESOURCE_SPEC: msgspec.json.encode(said).decode()})


def quantities(requests: dict[str, int], devices: DeviceRequest | None) -> dict[str, str]:
    """Canonical requests as the strings that mean exactly them."""
    said: dict[str, str] = {
        name: format_resource(name, amount) for name, amount in requests.items() if name not in (PODS, GPU_MILLI)
    }
    if devices is not None and devices.milli == WHOLE:
        said[NVIDIA_GPU] = str(devices.count)
    elif devices is not None:
        said |= {ALIBABA_GPU_MILLI: str(devices.milli), ALIBABA_GPU_COUNT: str(devices.count)}
    return said
