"""ResourceSlices, ResourceClaims and DeviceClasses → facts: pure functions, one a kind. All raise FactError where an amount cannot be read."""

from collections.abc import Iterable, Mapping

from restow.contracts import dynamic_resources as v
from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid
from restow.domain import quantity as q
from restow.kube import selectors, shapes, wire
from restow.kube import wire_dynamic_resources as w
from restow.kube.describe import millis
from restow.kube.requests import FactError

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""On a claim that was made from a template: how its pod calls it (`pkg/controller/resourceclaim`)."""
ALL = "All"


def slice_fact(published: w.ResourceSlice) -> e.ResourceSliceObserved:
    spec = published.spec
    devices = [_device(device, spec.driver, f"spec.devices[{i}]") for i, device in enumerate(spec.devices or ())]
    common = _common([device.attributes for device in devices])
    return e.ResourceSliceObserved(
        name=published.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        node=NodeName(spec.node_name or ""),
        nodes=selectors.node_terms(spec.node_selector),
        everywhere=bool(spec.all_nodes),
        common=common,
        devices=tuple(_without(device, common) for device in devices),
        counters=tuple(v.CounterSet(one.name, _amounts(one.counters, f"spec.sharedCounters[{i}].counters")) for i, one in enumerate(spec.shared_counters or ())),
    )


def claim_fact(claim: w.ResourceClaim) -> e.ResourceClaimObserved:
    meta, asked, status = claim.metadata, claim.spec.devices, claim.status or w.ClaimStatus()
    results = status.allocation.devices.results if status.allocation is not None and status.allocation.devices is not None else None
    pods = [one for one in status.reserved_for or () if (one.api_group, one.resource) == ("", "pods")]
    return e.ResourceClaimObserved(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner=next((PodUid(owner.uid) for owner in meta.owner_references or () if owner.controller and (owner.kind, owner.api_version) == ("Pod", "v1")), PodUid("")),
        pod_claim=(meta.annotations or {}).get(POD_CLAIM, ""),
        requests=requests(asked),
        constraints=constraints(asked),
        allocated=tuple(
            v.AllocatedDevice(one.request, one.driver, one.pool, one.device, bool(one.admin_access), one.share_id or "") for one in results or ()
        ),
        reserved=tuple(sorted(PodUid(one.uid) for one in pods)),
        reserved_otherwise=len(pods) < len(status.reserved_for or ()),
        deleting=millis(meta.deletion_timestamp),
    )


def class_fact(known: w.DeviceClass) -> e.DeviceClassObserved:
    return e.DeviceClassObserved(known.metadata.name, _expressions(known.spec.selectors), known.spec.extended_resource_name or "")


def requests(asked: w.ClaimDevices) -> tuple[v.ClaimRequest, ...]:
    """In their order: a constraint and a result name them."""
    return tuple(_request(one, f"spec.devices.requests[{i}]") for i, one in enumerate(asked.requests or ()))


def constraints(asked: w.ClaimDevices) -> tuple[v.ClaimConstraint, ...]:
    return tuple(
        v.ClaimConstraint(one.match_attribute or one.distinct_attribute or "", tuple(one.requests or ()), distinct=one.match_attribute is None)
        for one in asked.constraints or ()
    )


def _request(said: w.Request, path: str) -> v.ClaimRequest:
    if said.first_available:
        return v.ClaimRequest(said.name, tuple(_sub_request(one, one.name, f"{path}.firstAvailable[{i}]") for i, one in enumerate(said.first_available)))
    return v.ClaimRequest(said.name, (_sub_request(said.exactly or said, "", f"{path}.exactly" if said.exactly else path),))


def _sub_request(said: w.Request, name: str, path: str) -> v.SubRequest:
    capacity = (said.capacity.requests if said.capacity else None) or {}
    return v.SubRequest(
        name,
        said.device_class_name,
        _expressions(said.selectors),
        0 if said.allocation_mode == ALL else said.count or 1,
        bool(said.admin_access),
        {what: _milli(value, f"{path}.capacity.requests.{what}") for what, value in sorted(capacity.items())},
        tuple(shapes.toleration(one) for one in said.tolerations or ()),
    )


def _expressions(said: Iterable[w.Selector] | None) -> tuple[str, ...]:
    """All of them have to be met: their order means nothing."""
    return tuple(sorted(one.cel.expression for one in said or () if one.cel is not None))


def _device(said: w.Device, driver: str, path: str) -> v.PublishedDevice:
    body = said.basic or said
    return v.PublishedDevice(
        said.name,
        {_name(name, driver): _text(value) for name, value in sorted((body.attributes or {}).items())},
        {_name(name, driver): _milli(amount.value, f"{path}.capacity.{name}") for name, amount in sorted((body.capacity or {}).items())},
        tuple(v.CounterSet(one.counter_set, _amounts(one.counters, f"{path}.consumesCounters[{i}].counters")) for i, one in enumerate(body.consumes_counters or ())),
        tuple(sorted((v.DeviceTaint(taint.key, taint.effect, taint.value) for taint in body.taints or ()), key=lambda taint: (taint.key, taint.effect))),
        NodeName(body.node_name or ""),
        selectors.node_terms(body.node_selector),
        bool(body.all_nodes),
        bool(body.allow_multiple_allocations),
        bool(body.binding_conditions),
    )


def _name(said: str, driver: str) -> str:
    """The driver's own names have its domain, or none."""
    return said.removeprefix(f"{driver}/")


def _text(said: w.Attribute) -> str:
    for one in (said.text, said.version, said.number, said.truth):
        if one is not None:
            return _word(one)
    for some in (said.texts, said.versions, said.numbers, said.truths):
        if some is not None:
            return f"[{', '.join(map(_word, some))}]"
    return ""


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _common(said: list[dict[str, str]]) -> dict[str, str]:
    """Attributes that all have alike."""
    if not said:
        return {}
    first, *others = said
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}


def _without(device: v.PublishedDevice, common: Mapping[str, str]) -> v.PublishedDevice:
    own = {name: value for name, value in device.attributes.items() if name not in common}
    return v.PublishedDevice(
        device.name, own, device.capacity, device.consumes, device.taints, device.node, device.nodes, device.everywhere, device.shared, device.waits
    )


def _amounts(said: Mapping[str, w.Amount] | None, path: str) -> dict[str, int]:
    return {name: _milli(amount.value, f"{path}.{name}") for name, amount in sorted((said or {}).items())}


def _milli(value: wire.Quantity, path: str) -> int:
    try:
        return q.milli(value)
    except q.QuantityError as error:
        raise FactError(f"{path}: {error}") from None
