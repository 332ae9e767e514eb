"""PodGroups (Volcano's and those of `scheduling.k8s.io`), Volcano's Queues, PriorityClasses and Namespaces → facts: pure functions, one a kind.

PodGroups and Queues never raise for what the object says: `invalid` says, with path, value and what is allowed, why it cannot
be read, and then the fact has its identity and little else. Whether queues fit together (parents, cycles, sums) is the
session's to judge.
"""

from typing import TypeVar

import msgspec

from restow.contracts import events as e
from restow.contracts.values import NetworkTopology
from restow.domain.groups import QUEUE_ANNOTATIONS, UPSTREAM
from restow.domain.pod_controllers import MOVABLE
from restow.domain.resources import amount as shown
from restow.domain.resources import title
from restow.kube import wire_objects as w
from restow.kube.annotations import PREEMPTABLE, kept_of_group
from restow.kube.decode import BAD_JSON
from restow.kube.describe import millis
from restow.kube.explain import explained
from restow.kube.quotas import quota
from restow.kube.requests import FactError

OPEN = "Open"
TOGETHER = "PodGroup"
"""The disruptionMode of v1alpha2 by which pods are disrupted together."""
INQUEUE = "Inqueue"
"""The phase of a group that is let in."""
_MOST = 2**31 - 1

F = TypeVar("F")
_group_spec = msgspec.json.Decoder(w.PodGroupSpec)
_upstream_spec = msgspec.json.Decoder(w.UpstreamPodGroupSpec)
_group_status = msgspec.json.Decoder(w.PodGroupStatus)
_queue_spec = msgspec.json.Decoder(w.QueueSpec)
_queue_status = msgspec.json.Decoder(w.QueueStatus)


def pod_group_fact(group: w.Custom) -> e.PodGroupObserved:
    """Of its status only the phase: counts and conditions are mostly our own."""
    meta = group.metadata
    fact = e.PodGroupObserved(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=millis(meta.creation_timestamp),
        annotations=kept_of_group(meta.annotations),
        phase=_status(_group_status, group.status, w.PodGroupStatus()).phase or "",
        deleting=millis(meta.deletion_timestamp),
    )
    try:
        spec = _spec(_group_spec, group.spec, w.PodGroupSpec())
        fact = msgspec.structs.replace(fact, queue=spec.queue or "", priority_class=spec.priority_class_name or "")
        if spec.preemptable is False:
            raise FactError(f"spec.preemptable: false is not kept; allowed: the annotation {PREEMPTABLE}: \"false\" on its pods")
        fact = msgspec.structs.replace(fact, topology=_topology(spec.network_topology), unheeded=_parts(spec.sub_group_policy))
        return msgspec.structs.replace(
            fact,
            min_member=_within(spec.min_member or 0, "spec.minMember"),
            min_task_member={
                task: _within(count, f'spec.minTaskMember["{task}"]')
                for task, count in sorted((spec.min_task_member or {}).items())
            },
            min_resources=quota(spec.min_resources, "spec.minResources"),
        )
    except FactError as error:
        return msgspec.structs.replace(fact, invalid=str(error))


def upstream_group_fact(group: w.Custom) -> e.PodGroupObserved:
    """Of `scheduling.k8s.io`, in whatever version it is served. It has no phase, for nobody lets it in, and its queue is an annotation, as of a pod on its own. A group without the gang policy asks
    for nobody."""
    meta = group.metadata
    fact = e.PodGroupObserved(
        namespace=meta.namespace, name=UPSTREAM + meta.name, uid=meta.uid, created=millis(meta.creation_timestamp), queue=_queue(meta.annotations), min_member=0, phase=INQUEUE,
        deleting=millis(meta.deletion_timestamp), annotations=_movable(meta.annotations),
    )  # fmt: skip
    try:
        spec = _spec(_upstream_spec, group.spec, w.UpstreamPodGroupSpec(w.SchedulingPolicy()))
        gang, mode = spec.scheduling_policy.gang, spec.disruption_mode
        together = mode == TOGETHER or (isinstance(mode, w.DisruptionModes) and mode.all is not None)
        fact = msgspec.structs.replace(fact, priority_class=spec.priority_class_name or "", together=together)
        if gang is not None:
            fact = msgspec.structs.replace(fact, min_member=_within(gang.min_count, "spec.schedulingPolicy.gang.minCount"))
        if spec.parent_composite_pod_group_name:
            raise FactError("spec.parentCompositePodGroupName: is not kept; allowed: none")
        return msgspec.structs.replace(fact, topology=_upstream_topology(spec.scheduling_constraints))
    except FactError as error:
        return msgspec.structs.replace(fact, invalid=str(error))


def _movable(annotations: dict[str, str] | None) -> dict[str, str]:
    """The one annotation of Volcano's that is nobody's in particular."""
    return {MOVABLE: said} if (said := (annotations or {}).get(MOVABLE)) else {}


def _queue(annotations: dict[str, str] | None) -> str:
    return next((annotations[name] for name in QUEUE_ANNOTATIONS if annotations.get(name)), "") if annotations else ""


def _upstream_topology(said: w.SchedulingConstraints | None) -> NetworkTopology | None:
    """All pods of the group on nodes with one value of the label."""
    constraints = said.topology if said is not None else None
    if not constraints:
        return None
    path = "spec.schedulingConstraints.topology"
    if len(constraints) > 1:
        raise FactError(f"{path}: {len(constraints)} constraints; allowed: one")
    if not constraints[0].key:
        raise FactError(f"{path}[0].key: ''; allowed: the key of a node label")
    return NetworkTopology("hard", label=constraints[0].key)


def queue_fact(queue: w.Custom) -> e.QueueObserved:
    """A queue is closed through its status (Volcano's queue controller, `vcctl queue operate`); v1alpha2 had the state in
    the spec, and status wins. Bounds are those of Volcano's admission: weight above 0, guarantee ≤ deserved ≤
    capability."""
    meta = queue.metadata
    status = _status(_queue_status, queue.status, w.QueueStatus()).state
    fact = e.QueueObserved(
        name=meta.name, uid=meta.uid, created=millis(meta.creation_timestamp), state=status or OPEN
    )
    try:
        spec = _spec(_queue_spec, queue.spec, w.QueueSpec())
        fact = msgspec.structs.replace(fact, parent=spec.parent or "", state=status or spec.state or OPEN)
        fact = msgspec.structs.replace(fact, unheeded=_queue_kept(spec))
        capability = quota(spec.capability, "spec.capability")
        guarantee = quota(spec.guarantee.resource if spec.guarantee else None, "spec.guarantee.resource")
        deserved = quota(spec.deserved, "spec.deserved")
        _below(guarantee, "spec.guarantee.resource", capability, "spec.capability")
        _below(deserved, "spec.deserved", capability, "spec.capability")
        _below(guarantee, "spec.guarantee.resource", deserved, "spec.deserved")
        return msgspec.structs.replace(
            fact,
            weight=_within(1 if spec.weight is None else spec.weight, "spec.weight", least=1),
            capability=capability,
            guarantee=guarantee,
            deserved=deserved,
            reclaimable=spec.reclaimable is not False,
            priority=_within(spec.priority or 0, "spec.priority", least=-_MOST - 1),
        )
    except FactError as error:
        return msgspec.structs.replace(fact, invalid=str(error))


def _parts(said: list[w.SubGroup] | None) -> str:
    """What is said of parts of a group, by path: a preference at most."""
    for i, part in enumerate(said or ()):
        if part.network_topology is not None and part.network_topology.mode != "soft":
            raise FactError(f"spec.subGroupPolicy[{i}].networkTopology.mode: {part.network_topology.mode or 'hard'} is not kept; allowed: soft (not honoured), or none")
    return "spec.subGroupPolicy" if said else ""


def _topology(said: w.NetworkTopology | None) -> NetworkTopology | None:
    """Volcano's `networkTopology`. Where a hard one names no tier, tier 1 is meant: so said Volcano's CRD while it had a default."""
    if said is None:
        return None
    path, tier, name = "spec.networkTopology", said.highest_tier_allowed, said.highest_tier_name or ""
    if said.mode == "soft":
        return NetworkTopology("soft")
    if said.mode not in (None, "", "hard"):
        raise FactError(f"{path}.mode: {said.mode!r}; allowed: hard, soft")
    if tier is not None and name:
        raise FactError(f"{path}: highestTierAllowed {tier} and highestTierName {name}; allowed: one of them")
    if tier is None and not name:
        tier = 1
    return NetworkTopology("hard", None if tier is None else _within(tier, f"{path}.highestTierAllowed"), name)


def _queue_kept(spec: w.QueueSpec) -> str:
    """What is preferred and not honoured, by path. Raises FactError for what would have to be kept and is not."""
    if spec.dequeue_strategy not in (None, "", "traverse"):
        raise FactError(f"spec.dequeueStrategy: {spec.dequeue_strategy} is not kept; allowed: traverse")
    unheeded: list[str] = []
    affinity = spec.affinity or w.QueueAffinity()
    for name, groups in (("nodeGroupAffinity", affinity.node_group_affinity), ("nodeGroupAntiAffinity", affinity.node_group_anti_affinity)):
        path = f"spec.affinity.{name}"
        if groups is not None and groups.required:
            raise FactError(f"{path}.requiredDuringSchedulingIgnoredDuringExecution: is not kept; allowed: none")
        if groups is not None and groups.preferred:
            unheeded.append(f"{path}.preferredDuringSchedulingIgnoredDuringExecution")
    if bytes(spec.extend_clusters) not in (b"", b"null", b"[]"):
        unheeded.append("spec.extendClusters")  # other clusters that jobs of the queue may be sent to
    if spec.type:
        unheeded.append("spec.type")
    return ", ".join(unheeded)


def priority_class_fact(priority: w.PriorityClass) -> e.PriorityClassObserved:
    return e.PriorityClassObserved(
        name=priority.metadata.name,
        value=_within(priority.value, "value", least=-_MOST - 1),
        default=bool(priority.global_default),
        preemption=priority.preemption_policy or "PreemptLowerPriority",
    )


def namespace_fact(namespace: w.Named) -> e.NamespaceObserved:
    return e.NamespaceObserved(namespace.metadata.name, namespace.metadata.labels or {})


def _spec(decoder: msgspec.json.Decoder[F], raw: msgspec.Raw, nothing: F) -> F:
    if _absent(raw):
        return nothing
    try:
        return decoder.decode(raw)
    except BAD_JSON as error:
        raise FactError(explained(decoder, str(error), raw)) from error


def _status(decoder: msgspec.json.Decoder[F], raw: msgspec.Raw, nothing: F) -> F:
    """A status that cannot be read says nothing: it is ours to write, or nobody's."""
    if _absent(raw):
        return nothing
    try:
        return decoder.decode(raw)
    except BAD_JSON:
        return nothing


def _absent(raw: msgspec.Raw) -> bool:
    return bytes(raw) in (b"", b"null")


def _within(value: int, path: str, least: int = 0) -> int:
    if least <= value <= _MOST:
        return value
    raise FactError(f"{path}: {value}; allowed: {least} to {_MOST}")


def _below(amounts: dict[str, int], path: str, bounds: dict[str, int], bound: str) -> None:
    for name, amount in amounts.items():
        most = bounds.get(name)
        if most is not None and amount > most:
            raise FactError(f'{path}["{title(name)}"]: {shown(name, amount)} is above {bound}; allowed: up to {shown(name, most)}')
