"""Placeholders: pods that hold a place for a pod of another scheduler, and their PriorityClass (manifests only).

A placeholder asks for what the pod asks for, and is placed by the pod's own scheduler, which may choose one node only. It has none
of the pod's labels: the pod's controller would adopt it, budgets and endpoints would count it. It never preempts, and has the pod's
priority itself: whoever may not take the pod's place may not take this one.

With claims to devices it is where the pod is, and has claims of its own from the same templates: they are handed over (`restow.kube.handover`). All others are in
namespaces of ours.

What is left out, because it would keep the placeholder away from where the pod itself may go: affinity to other pods and hard spread (they count by labels),
volumes (a ReadWriteOncePod claim admits no second pod), and what the pod itself blocks while it is still there.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from restow.contracts import values as v
from restow.contracts.ids import MigrationId, Millis, ReservationUid
from restow.domain.beside import GUARD, HOLD_CLASS, NAMESPACES, SLOT, VIRTUAL
from restow.domain.migration import gating
from restow.domain.nomination_checks import hold_priority
from restow.domain.other_schedulers import LOG
from restow.domain.records import Migration, Reservation, Step
from restow.domain.selectors import selects
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.kube.annotations import MIGRATION
from restow.kube.pod_template import (
    Affinity,
    Expression,
    Json,
    NodeAffinity,
    NodeSelector,
    NodeTerm,
    PodAffinity,
    PodClaim,
    PodTerm,
    Port,
    Toleration,
    claims,
    expressions,
    ports,
    quantities,
    selector,
    tolerations,
)

NAMESPACE, WITH_HOST_PORTS = NAMESPACES
"""Pod Security's `restricted` refuses host ports."""
IMAGE = "registry.k8s.io/pause:3.10"
MOST_PRIORITY = 10**9
"""Of a PriorityClass that is not the cluster's own. Pods above it cannot be held for."""
LEFT_OVER = 3_600_000
"""Milliseconds after which a placeholder ends by itself whose move should be over: nobody of ours is there to delete it."""
LONGEST = 2**31 - 1
"""Seconds for which a pod may say that it lives (the API refuses more): one without an end would be nobody's after a day (`restow.domain.leftovers`)."""
_NOTES = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
_MANAGED = {"app.kubernetes.io/managed-by": "restow"}
_NO_PROXY = {"sidecar.istio.io/inject": "false"}, {"linkerd.io/inject": "disabled"}
"""By label and by annotation. What the pod asks for has its proxy in it: with another one the placeholder would not fit where the pod does. Its guard lets it have none."""
_NONE: Mapping[str, str] = MappingProxyType({})


class Hold(msgspec.Struct, frozen=True):
    """What a placeholder is for. `slot`: any text that names the slot, once in the log. `namespace`, `labels`: the pod's. `shared`: topology
    keys of which source and target have the same value. `lifetime`: seconds after which its kubelet ends it, whatever became of us; 0: none.
    `below`: its priority is one below the pod's, which is to preempt it. A `virtual` one is gated, and never bound: it holds while it is nominated."""

    log: str
    slot: str
    node: str
    namespace: str
    labels: Mapping[str, str] = _NONE
    migration: str = ""
    shared: frozenset[str] = frozenset()
    lifetime: int = 0
    below: bool = False
    virtual: bool = False
    image: str = IMAGE


class Metadata(Json, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Resources(Json, frozen=True):
    requests: dict[str, str]
    limits: dict[str, str] | None = None


class Capabilities(Json, frozen=True):
    drop: tuple[str, ...]


class ContainerSecurity(Json, frozen=True):
    allow_privilege_escalation: bool
    capabilities: Capabilities
    read_only_root_filesystem: bool


class Seccomp(Json, frozen=True):
    type: str


class PodSecurity(Json, frozen=True):
    run_as_non_root: bool
    run_as_user: int
    seccomp_profile: Seccomp


class Container(Json, frozen=True):
    name: str
    image: str
    resources: Resources
    security_context: ContainerSecurity
    ports: tuple[Port, ...] = ()


class Gate(Json, frozen=True):
    name: str


class Spec(Json, frozen=True):
    scheduler_name: str
    priority_class_name: str
    containers: tuple[Container, ...]
    security_context: PodSecurity
    termination_grace_period_seconds: int
    automount_service_account_token: bool
    enable_service_links: bool
    node_selector: dict[str, str]
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[Gate, ...] = ()
    active_deadline_seconds: int | None = None
    resource_claims: tuple[PodClaim, ...] = ()


class Placeholder(Json, frozen=True):
    """`msgspec.json.encode` gives the body of the request."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: Spec


class HoldClass(Json, frozen=True):
    """A PriorityClass of placeholders."""

    api_version: str
    kind: str
    metadata: "ClassMetadata"
    value: int
    preemption_policy: str
    description: str


class ClassMetadata(Json, frozen=True):
    name: str
    labels: dict[str, str]


def of_slot(state: ClusterState, key: SlotKey, now: Millis, image: str = IMAGE) -> Placeholder | None:
    """Of a slot, or the guard of its pod's old node. None where a pod to be moved is gone before it was evicted: then there is nobody to hold for. After that its
    Reservation says what labels it had, for a kubelet may reject its successor, and the next one needs the slot."""
    if key[0] == GUARD:
        return _guard(state, key, now, image)
    reservation, name = key
    slot = state.slots[reservation][name]
    record = state.reservations[reservation]
    if not _is_moved(state, reservation):
        return _reserved(state, key, record, now, image)
    migration = state.migrations[record.fact.migration]
    if (labels := _labels(state, migration, record, slot.task)) is None:
        return None
    source, target = state.nodes.get(migration.move.source), state.nodes.get(slot.node)
    here = {} if source is None else source.labels
    hold = Hold(
        log=state.log, slot=f"{reservation}/{name}", node=slot.node, namespace=migration.move.namespace, labels=labels, migration=migration.id,
        shared=frozenset() if target is None else frozenset(label for label, value in target.labels.items() if here.get(label) == value),
        below=hold_priority(state, slot.shape) < state.shapes[slot.shape].priority,
        lifetime=_lifetime(state, migration, now), image=image,
    )  # fmt: skip
    return placeholder(state.shapes[slot.shape], hold)


def _labels(state: ClusterState, migration: Migration, record: Reservation | None, task: str = "") -> dict[str, str] | None:
    """`task`: empty for the first one, for that of a migration has no other."""
    if (pod := state.fact_of(migration.move.pod)) is not None:
        return pod.labels
    if migration.step is not Step.EVICTED or record is None or record.spec is None:
        return None
    return next((one.labels for one in record.spec.tasks if task in ("", one.name)), None)


def _lifetime(state: ClusterState, migration: Migration, now: Millis) -> int:
    """Seconds: a while longer than its successor may take."""
    return _seconds(gating.needed_at_longest(state, migration), now)


def _seconds(needed: Millis, now: Millis) -> int:
    return min(max(needed + LEFT_OVER - now, LEFT_OVER) // 1000, LONGEST)


def _guard(state: ClusterState, key: SlotKey, now: Millis, image: str) -> Placeholder | None:
    """What the pod itself is in the way of is no rule here: nothing but its nomination counts, and that is not asked. No kubelet ends it: its lifetime
    tells another installation's collector from when on nobody needs it. It may be made, or nominated, anew after its pod has gone: its scheduler
    may take the nomination away."""
    migration = state.migrations[MigrationId(key[1])]
    record = state.reservations.get(migration.reservation or migration.spent)
    if (labels := _labels(state, migration, record)) is None:
        return None
    hold = Hold(
        log=state.log, slot="/".join(key), node=migration.move.source, namespace=migration.move.namespace, labels=labels, migration=migration.id, virtual=True,
        lifetime=_lifetime(state, migration, now), image=image,
    )  # fmt: skip
    return placeholder(state.shapes[migration.shape], hold)


def _reserved(state: ClusterState, key: SlotKey, record: Reservation, now: Millis, image: str) -> Placeholder | None:
    """Of a Reservation's own slot, for whoever comes: it ends by itself a while after the Reservation has, if that ends."""
    slot = state.slots[key[0]][key[1]]
    task = next((one for one in record.spec.tasks if one.name == slot.task), None) if record.spec is not None else None
    if task is None:
        return None
    lifetime = _seconds(record.expires, now) if record.expires else LONGEST
    shape = msgspec.structs.replace(state.shapes[slot.shape], priority=priority_of(state, key))
    return placeholder(shape, Hold(state.log, "/".join(key), slot.node, task.namespace, task.labels, lifetime=lifetime, image=image))


def priority_of(state: ClusterState, key: SlotKey) -> int:
    """Of a slot's placeholder. A Reservation's template may name a class, whose worth is said only when a pod is made. What number the template says itself counts
    for nothing: nobody has checked it, as the API would a pod's, and whoever makes Reservations would have a pod of any priority by it."""
    id = state.slots[key[0]][key[1]].shape
    shape, priority = state.shapes[id], hold_priority(state, id)
    if _is_moved(state, key[0]):
        return priority
    named = (one.value for one in state.priority_classes.values() if (one.name == shape.priority_class if shape.priority_class else one.default))
    return next(named, 0) + priority - shape.priority


def _is_moved(state: ClusterState, reservation: ReservationUid) -> bool:
    migration = state.migrations.get(state.reservations[reservation].fact.migration)
    return migration is not None and migration.reservation == reservation


def placeholder(shape: v.PodShape, hold: Hold) -> Placeholder:
    """Of the pod's shape. What a placeholder cannot hold is not asked here: shares of devices, CPUs of its own. With claims it is in the pod's namespace, where their
    templates are; one that is never bound has none."""
    labels = _MANAGED | _NO_PROXY[0] | {LOG: hold.log} | ({MIGRATION: hold.migration} if hold.migration else {})
    its_claims = () if hold.virtual else claims(shape)
    return Placeholder(
        api_version="v1",
        kind="Pod",
        metadata=Metadata(name_of(hold), hold.namespace if its_claims else namespace_of(shape), labels, _NOTES | _NO_PROXY[1] | {SLOT: hold.slot}),
        spec=Spec(
            scheduler_name=shape.scheduler,
            priority_class_name=class_name(shape.priority - hold.below),
            containers=(idle_container(hold.image, quantities(shape.requests, shape.devices), ports(shape)),),
            security_context=restricted(),
            termination_grace_period_seconds=0,
            automount_service_account_token=False,
            enable_service_links=False,
            node_selector=shape.node_selector,
            affinity=_affinity(shape, hold),
            tolerations=tolerations(shape),
            scheduling_gates=(Gate(VIRTUAL),) if hold.virtual else (),
            active_deadline_seconds=hold.lifetime or None,
            resource_claims=its_claims,
        ),
    )


def name_of(hold: Hold) -> str:
    """The same for the same slot on the same node, so that an answer that was lost does not make a second one."""
    said = "\0".join((hold.log, hold.slot, hold.node, "virtual" if hold.virtual else ""))
    return f"hold-{hashlib.sha256(said.encode()).hexdigest()[:20]}"


def namespace_of(shape: v.PodShape) -> str:
    return WITH_HOST_PORTS if shape.host_ports else NAMESPACE


def class_name(priority: int) -> str:
    return f"{HOLD_CLASS}{priority}"


def hold_class(priority: int, log: str) -> HoldClass:
    """The pod's own value: with one below, pods like it would preempt the placeholder."""
    return HoldClass(
        api_version="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata=ClassMetadata(class_name(priority), _MANAGED | {LOG: log}),
        value=priority,
        preemption_policy="Never",
        description="Restow's placeholders for pods of this priority.",
    )


def idle_container(image: str, requests: dict[str, str], host_ports: tuple[Port, ...] = ()) -> Container:
    """Does nothing, in what Pod Security's `restricted` asks for. Extended resources and huge pages need equal limits."""
    limits = {name: amount for name, amount in requests.items() if "/" in name or name.startswith("hugepages-")}
    security = ContainerSecurity(False, Capabilities(("ALL",)), True)
    return Container("hold", image, Resources(requests, limits or None), security, host_ports)


def restricted() -> PodSecurity:
    return PodSecurity(True, 65535, Seccomp("RuntimeDefault"))


# -- where it may be ---------------------------------------------------------------------------------------------------


def _affinity(shape: v.PodShape, hold: Hold) -> Affinity | None:
    apart = _anti_affinity(shape, hold)
    nodes = NodeAffinity(NodeSelector(_terms(shape, hold)))
    return Affinity(node_affinity=nodes, pod_anti_affinity=apart)


def _terms(shape: v.PodShape, hold: Hold) -> tuple[NodeTerm, ...]:
    """The pod's own, each for this node only: terms are alternatives."""
    pin = Expression("metadata.name", "In", (hold.node,))
    own = shape.node_affinity or (v.NodeTerm(),)
    return tuple(NodeTerm(expressions(term.labels), (*expressions(term.fields), pin)) for term in own)


def _anti_affinity(shape: v.PodShape, hold: Hold) -> PodAffinity | None:
    """The required terms, as they read in the pod's own namespace and with its labels. Left out is a term that the pod itself breaks while
    it is where it is."""
    found = []
    for term in shape.pod_anti_affinity:
        if term.weight or term.selector is None:
            continue
        chosen = _with_keys(term.selector, term, hold.labels)
        if term.topology_key in hold.shared and _reaches_home(term, hold) and selects(chosen, hold.labels):
            continue
        here = () if term.namespaces or term.namespace_selector is not None else (hold.namespace,)
        found.append(
            PodTerm(
                topology_key=term.topology_key,
                label_selector=selector(chosen),
                namespaces=term.namespaces or here,
                namespace_selector=selector(term.namespace_selector),
            )
        )
    return PodAffinity(tuple(found)) if found else None


def _reaches_home(term: v.PodTerm, hold: Hold) -> bool:
    """Whether it is about pods of the pod's own namespace; a selector of namespaces, whose labels are not known here, may be."""
    return not term.namespaces or hold.namespace in term.namespaces or term.namespace_selector is not None


def _with_keys(chosen: v.LabelSelector, term: v.PodTerm, labels: Mapping[str, str]) -> v.LabelSelector:
    """matchLabelKeys and mismatchLabelKeys mean labels of the pod that has the term: the placeholder has none of them."""
    keys = (*((key, "In") for key in term.match_label_keys), *((key, "NotIn") for key in term.mismatch_label_keys))
    added = tuple(v.Expression(key, operator, (labels[key],)) for key, operator in keys if key in labels)
    return msgspec.structs.replace(chosen, expressions=chosen.expressions + added)
