"""What a pod spec asks for, as the scheduler counts it (`component-helpers/resource.PodRequests`, KEP-753, KEP-2837).

Amounts are added in nano and rounded once at the end: two containers of `100u` cpu are one thousandth, not two.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from restow.domain import quantity as q
from restow.domain import resources as r
from restow.kube import wire

Amounts = dict[str, int]
"""Resource → nano of its unit."""
_POD_LEVEL = (q.CPU, r.MEMORY)
_ABSURD = 1 << 48
"""In canonical units: more than any node has, and little enough that a pod's containers can be added up."""


class FactError(ValueError):
    """An object whose form is right and whose content is not. Says path, value and what is allowed."""


def effective(spec: wire.PodSpec) -> dict[str, int]:
    """The effective requests in canonical units, under the names of the spec. Raises FactError."""
    total: Amounts = {}
    for i, container in enumerate(spec.containers or ()):
        _add(total, requests_of(container, f"spec.containers[{i}]"))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for i, container in enumerate(spec.init_containers or ()):
        own = requests_of(container, f"spec.initContainers[{i}]")
        if container.restart_policy == "Always":
            _add(total, own)
            _add(sidecars, own)
            _max(peak, sidecars)
        else:
            # A sidecar that was started before this container runs beside it; one that comes later does not yet.
            _add(own, sidecars)
            _max(peak, own)
    _max(total, peak)
    for name, amount in _pod_level(spec.resources).items():
        total[name] = amount
    _add(total, amounts(spec.overhead, "spec.overhead"))
    return {name: _rounded(name, amount) for name, amount in total.items()}


def readable(spec: wire.PodSpec) -> wire.PodSpec:
    """The spec with quantities that can be read and added up: what is beyond all bounds is still more than any node has, and what is no amount is none."""

    def resources(said: wire.Resources | None) -> wire.Resources | None:
        return None if said is None else wire.Resources(_readable(said.requests), _readable(said.limits))

    def containers(listed: list[wire.Container] | None) -> list[wire.Container] | None:
        return None if listed is None else [replace(one, resources=resources(one.resources)) for one in listed]

    return replace(
        spec, containers=containers(spec.containers), init_containers=containers(spec.init_containers), overhead=_readable(spec.overhead),
        resources=resources(spec.resources),
    )  # fmt: skip


def _readable(quantities: Mapping[str, wire.Quantity] | None) -> dict[str, wire.Quantity] | None:
    return None if quantities is None else {name: said for name, value in quantities.items() if (said := _bounded(name, value)) is not None}


def _bounded(name: str, value: wire.Quantity) -> str | None:
    """None for no amount."""
    most = f"{_ABSURD}m" if name == q.CPU else str(_ABSURD)
    try:
        amount = q.nano(value)
    except q.QuantityError:
        return None
    return None if amount < 0 else most if amount > q.nano(most) else str(value)


def as_kept(spec: wire.PodSpec, status: wire.PodStatus) -> wire.PodSpec:
    """The spec of a running pod with what its kubelet keeps for it, where that is something else: a pod that was resized in place has its
    former size until the kubelet has let go of it, and the new one from when it is asked for, unless the node can never give it
    (`PodRequests` with UseStatusResources, KEP-1287). Raises FactError."""
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    kept = {one.name: one for one in statuses if one.resources is not None}
    if not kept:
        return spec
    pending = next((c for c in status.conditions or () if c.type == "PodResizePending"), None)
    infeasible = pending is not None and pending.reason == "Infeasible"
    lists = [
        [_as_kept(c, kept[c.name], infeasible) if c.name in kept and (sidecars or c.restart_policy == "Always") else c for c in listed or ()]
        for listed, sidecars in ((spec.containers, True), (spec.init_containers, False))
    ]
    if lists == [spec.containers or [], spec.init_containers or []]:
        return spec
    return replace(spec, containers=lists[0], init_containers=lists[1])


def _as_kept(container: wire.Container, status: wire.ContainerStatus, infeasible: bool) -> wire.Container:
    asked, kept = container.resources or wire.Resources(), status.resources or wire.Resources()
    if asked == kept and status.allocated_resources in (None, asked.requests):
        return container
    path = f"status.containerStatuses[{container.name!r}]"
    spec = wire.Resources() if infeasible else wire.Resources((asked.limits or {}) | (asked.requests or {}), asked.limits)
    requests = _most(path, spec.requests, kept.requests, status.allocated_resources)
    limits = _most(path, spec.limits, kept.limits)
    if not infeasible and _same(requests, spec.requests, path) and _same(limits, spec.limits, path):
        return container
    return replace(container, resources=wire.Resources(requests, limits))


def _most(path: str, *quantities: Mapping[str, wire.Quantity] | None) -> dict[str, wire.Quantity]:
    """Of each resource the largest."""
    most: dict[str, wire.Quantity] = {}
    for said in quantities:
        for name, value in (said or {}).items():
            if name not in most or _read(_nano, name, value, path) > _read(_nano, name, most[name], path):
                most[name] = value
    return most


def _same(most: Mapping[str, wire.Quantity], asked: Mapping[str, wire.Quantity] | None, path: str) -> bool:
    return amounts(most, path) == amounts(asked, path)


def requests_of(container: wire.Container, path: str) -> Amounts:
    """Requests, with limits in place of those that are missing: what the API server defaults and a template lacks."""
    if container.resources is None:
        return {}
    limits = amounts(container.resources.limits, f"{path}.resources.limits")
    return limits | amounts(container.resources.requests, f"{path}.resources.requests")


def limits_of(container: wire.Container, path: str) -> Amounts:
    return {} if container.resources is None else amounts(container.resources.limits, f"{path}.resources.limits")


def amounts(quantities: Mapping[str, wire.Quantity] | None, path: str) -> Amounts:
    """Raises FactError with the path of a value that is not a quantity, or is negative."""
    return {name: _read(_nano, name, value, path) for name, value in (quantities or {}).items()}


def canonical(quantities: Mapping[str, wire.Quantity] | None, path: str) -> dict[str, int]:
    """As `amounts`, in canonical units."""
    return {name: _read(q.canonical, name, value, path) for name, value in (quantities or {}).items()}


def _nano(_: str, value: wire.Quantity) -> int:
    return q.nano(value)


def _read(read: Callable[[str, wire.Quantity], int], name: str, value: wire.Quantity, path: str) -> int:
    try:
        amount = read(name, value)
    except q.QuantityError as error:
        raise FactError(f'{path}["{name}"]: {error}') from error
    if amount < 0:
        raise FactError(f'{path}["{name}"]: {value!r} is negative; allowed: 0 or more')
    return amount


def _rounded(name: str, amount: int) -> int:
    try:
        return q.from_nano(name, amount)
    except q.QuantityError as error:
        raise FactError(f"requests of {name} add up to more than fits: {error}") from error


def _pod_level(resources: wire.Resources | None) -> Amounts:
    if resources is None:
        return {}
    asked = amounts(resources.limits, "spec.resources.limits") | amounts(resources.requests, "spec.resources.requests")
    return {k: v for k, v in asked.items() if is_of_pods(k)}


def is_of_pods(resource: str) -> bool:
    """Whether a pod may ask for it as a whole, beside its containers (KEP-2837)."""
    return resource in _POD_LEVEL or resource.startswith(r.HUGEPAGES_PREFIX)


def _add(into: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def _max(into: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > into.get(name, 0):
            into[name] = amount
