"""A pod's template from its shape, its labels and its claims: what a hold asks for must be read back exactly as the pod's own shape
says, as far as rules that must be met read it. GPUs are asked for under names that decode to the same devices, CPUs of its own
by the labels and the annotation that ask for them (tests read it back through `restow.kube`)."""

import msgspec

from restow.contracts import values as v
from restow.contracts.events import PodObserved
from restow.domain.node_table import WHOLE
from restow.domain.numa import GUARANTEED
from restow.domain.quantity import CPU, format_resource
from restow.domain.resources import (
    ALIBABA_GPU_COUNT,
    ALIBABA_GPU_MILLI,
    GPU_MILLI,
    MEMORY,
    NVIDIA_GPU,
    PODS,
)
from restow.kube.requests import is_of_pods

QOS = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
"""What makes Koordinator give a pod CPUs of its own, whatever range its priority is in."""
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
EPHEMERAL = "ephemeral"
IMAGE = "restow.dev/hold"


class Json(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the parts of a manifest. Defaults are left out, as kubectl would."""


class Expression(Json, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Json, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class NodeTerm(Json, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Json, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...]


class PodTerm(Json, frozen=True):
    topology_key: str
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class NodeAffinity(Json, frozen=True):
    required: NodeSelector = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(Json, frozen=True):
    required: tuple[PodTerm, ...] = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Json, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Json, frozen=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: Selector | None = None
    min_domains: int = 0
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Toleration(Json, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(Json, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Port(Json, frozen=True):
    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="0.0.0.0", name="hostIP")


class Container(Json, frozen=True):
    name: str
    image: str
    resources: Resources
    ports: tuple[Port, ...] = ()


class Claim(Json, frozen=True):
    claim_name: str


class Volume(Json, frozen=True):
    name: str
    persistent_volume_claim: Claim


class PodClaim(Json, frozen=True):
    """Of dynamic resource allocation: one that is made from a template."""

    name: str
    resource_claim_template_name: str


class PodSpec(Json, frozen=True):
    scheduler_name: str
    node_name: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[Spread, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    resource_claims: tuple[PodClaim, ...] = ()


class TemplateMetadata(Json, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Template(Json, frozen=True):
    spec: PodSpec
    metadata: TemplateMetadata | None = None


def template(pod: PodObserved, shape: v.PodShape, node: str) -> Template:
    """Of a slot on this node that rules see as this pod. What is only preferred is left out: the node is chosen."""
    labels, annotations = _own_cpus(pod.labels, shape.cores)
    metadata = TemplateMetadata(labels, annotations) if labels or annotations else None
    lasting, initial, whole = _containers(shape)
    spec = PodSpec(
        scheduler_name=shape.scheduler,
        node_name=node,
        containers=lasting,
        init_containers=initial,
        resources=whole,
        node_selector=shape.node_selector,
        affinity=_affinity(shape),
        topology_spread_constraints=tuple(_spread(s) for s in shape.spread if s.is_hard),
        tolerations=tolerations(shape),
        volumes=tuple(Volume(f"claim-{i}", Claim(name)) for i, name in enumerate(_claims(pod, shape))),
        priority=shape.priority,
        priority_class_name=shape.priority_class,
        preemption_policy="" if shape.preemption == "PreemptLowerPriority" else shape.preemption,
        resource_claims=claims(shape),
    )
    return Template(spec, metadata)


def _containers(shape: v.PodShape) -> tuple[tuple[Container, ...], tuple[Container, ...], Resources | None]:
    """Those that run, those that end before these start, and what the pod asks for as a whole where they do not add up to it. One in place of all, but of a Guaranteed pod with
    limits, and each for itself where that comes to the same: kubelets that align pods with NUMA zones ask both, so what is held is held in zones as the pod will be."""
    guaranteed = shape.qos == GUARANTEED
    whole = _as_a_whole(shape) if guaranteed else None
    each = (v.Container("hold", requests=shape.requests),) if whole is None else shape.containers
    shared = _share_one(shape)
    found: tuple[list[Container], list[Container]] = ([], [])
    for one in each:
        asked = _asked(one, shape.devices, shared)
        found[one.init].append(Container(one.name, IMAGE, Resources(asked, asked if guaranteed else {}), () if found[0] or one.init else ports(shape)))
    said = quantities(whole or {}, None)
    return tuple(found[0]), tuple(found[1]), Resources(said, said) if said else None


def _as_a_whole(shape: v.PodShape) -> dict[str, int] | None:
    """Empty where its containers add up to what it asks for. None where what is missing is more than a pod can ask for beside them (KEP-2837), or some devices are several containers' in a
    way that only all of them together say."""
    milli, shares = shape.devices.milli if shape.devices is not None else 0, _shares(shape)
    if milli and not _share_one(shape) and (any(share % milli for share in shares) or (milli != WHOLE and len(shares) > 1)):
        return None
    lasting, initial = ([one.requests for one in shape.containers if one.init is init] for init in (False, True))
    added = {name: max(sum(one.get(name, 0) for one in lasting), *(one.get(name, 0) for one in initial), 0) for name in shape.requests if name != PODS}
    whole = {name: shape.requests[name] for name in added if is_of_pods(name)}
    differs = {name for name, amount in added.items() if amount != shape.requests[name]}
    if not lasting or differs - whole.keys():
        return None
    # Where a container does not say both, the pod is Guaranteed by what it asks for as a whole, even if they add up to that.
    all_said = all(one.requests.get(CPU) and one.requests.get(MEMORY) for one in shape.containers)
    return whole if differs or not all_said else {}


def _shares(shape: v.PodShape) -> list[int]:
    return [one.requests[GPU_MILLI] for one in shape.containers if one.requests.get(GPU_MILLI)]


def _share_one(shape: v.PodShape) -> bool:
    """Whether several containers have parts of one device: parts, without a number of devices, add up."""
    shares = _shares(shape)
    return shape.devices is not None and shape.devices.count == 1 and len(shares) > 1 and any(share != WHOLE for share in shares)


def _asked(container: v.Container, devices: v.DeviceRequest | None, shared: bool) -> dict[str, str]:
    share = container.requests.get(GPU_MILLI, 0)
    if not share or devices is None:
        return quantities(container.requests, None)
    if shared:
        return quantities(container.requests, None) | {ALIBABA_GPU_MILLI: str(share)}
    return quantities(container.requests, v.DeviceRequest(share // devices.milli, devices.milli))


def claims(shape: v.PodShape) -> tuple[PodClaim, ...]:
    return tuple(PodClaim(name, made_from) for name, made_from in sorted(shape.claim_templates.items()))


def ports(shape: v.PodShape) -> tuple[Port, ...]:
    return tuple(Port(p.port, p.port, p.protocol, p.ip) for p in shape.host_ports)


def tolerations(shape: v.PodShape) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(t.key, "" if t.operator == "Equal" else t.operator, t.value, t.effect, t.seconds) for t in shape.tolerations
    )


def _claims(pod: PodObserved, shape: v.PodShape) -> tuple[str, ...]:
    """Those that a successor will have, too: claims that were made for this pod alone go with it."""
    if EPHEMERAL not in shape.volumes:
        return pod.claims
    return tuple(claim for claim in pod.claims if not claim.startswith(f"{pod.name}-"))


def _own_cpus(labels: dict[str, str], cores: v.CoreRequest | None) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations. A pod that gets no CPUs of its own must not ask for them by a label alone."""
    if cores is None:
        return {key: value for key, value in labels.items() if key not in QOS}, {}
    said = {"requiredCPUBindPolicy" if cores.required else "preferredCPUBindPolicy": cores.policy}
    if cores.exclusive:
        said["preferredCPUExclusivePolicy"] = cores.exclusive
    return labels | QOS, {RESOURCE_SPEC: msgspec.json.encode(said).decode()}


def quantities(requests: dict[str, int], devices: v.DeviceRequest | None) -> dict[str, str]:
    """Canonical requests as the strings that mean exactly them."""
    said: dict[str, str] = {
        name: format_resource(name, amount) for name, amount in requests.items() if name not in (PODS, GPU_MILLI)
    }
    if devices is not None and devices.milli == WHOLE:
        said[NVIDIA_GPU] = str(devices.count)
    elif devices is not None:
        said |= {ALIBABA_GPU_MILLI: str(devices.milli), ALIBABA_GPU_COUNT: str(devices.count)}
    return said


# -- what must be met about nodes and other pods ---------------------------------------------------------------------


def _affinity(shape: v.PodShape) -> Affinity | None:
    nodes = None
    if shape.node_affinity is not None:
        terms = tuple(NodeTerm(expressions(t.labels), expressions(t.fields)) for t in shape.node_affinity)
        nodes = NodeAffinity(NodeSelector(terms))
    together, apart = _required(shape.pod_affinity), _required(shape.pod_anti_affinity)
    return Affinity(nodes, together, apart) if nodes or together or apart else None


def _required(terms: tuple[v.PodTerm, ...]) -> PodAffinity | None:
    found = tuple(
        PodTerm(
            t.topology_key, selector(t.selector), t.namespaces, selector(t.namespace_selector), t.match_label_keys,
            t.mismatch_label_keys,
        )
        for t in terms
        if not t.weight
    )  # fmt: skip
    return PodAffinity(found) if found else None


def _spread(s: v.Spread) -> Spread:
    return Spread(
        s.max_skew, s.topology_key, s.when_unsatisfiable, selector(s.selector), s.min_domains, s.node_affinity_policy,
        s.node_taints_policy, s.match_label_keys,
    )  # fmt: skip


def selector(selector: v.LabelSelector | None) -> Selector | None:
    return None if selector is None else Selector(selector.labels, expressions(selector.expressions))


def expressions(expressions: tuple[v.Expression, ...]) -> tuple[Expression, ...]:
    return tuple(Expression(e.key, e.operator, e.values) for e in expressions)
