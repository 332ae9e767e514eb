"""Whether a pod is Guaranteed (apis/core/v1/helper/qos, `ComputePodQOS`)."""

from restow.domain import quantity as q
from restow.domain import resources as r
from restow.kube import wire
from restow.kube.requests import Amounts, amounts, limits_of, requests_of

GUARANTEED = "Guaranteed"
_COUNTED = (q.CPU, r.MEMORY)


def is_guaranteed(spec: wire.PodSpec) -> bool:
    """Limits of CPU and memory for every container, init containers too, and requests equal to them; where the pod as a
    whole has resources, those alone count. Raises FactError."""
    whole = spec.resources
    if whole is not None and (whole.requests or whole.limits):
        limits = _counted(amounts(whole.limits, "spec.resources.limits"))
        requests = limits | _counted(amounts(whole.requests, "spec.resources.requests"))
        return len(limits) == len(_COUNTED) and requests == limits
    containers = [
        (container, f"spec.{field}[{i}]")
        for field, listed in (("containers", spec.containers), ("initContainers", spec.init_containers))
        for i, container in enumerate(listed or ())
    ]
    if any(not c.resources or not c.resources.limits for c, _ in containers):
        return False
    total: dict[str, list[int]] = {name: [0, 0] for name in _COUNTED}
    for container, path in containers:
        limits, requests = _counted(limits_of(container, path)), _counted(requests_of(container, path))
        if len(limits) < len(_COUNTED):
            return False
        for name in _COUNTED:
            total[name][0] += limits[name]
            total[name][1] += requests.get(name, 0)
    return bool(containers) and all(limit == request for limit, request in total.values())


def _counted(of: Amounts) -> Amounts:
    """CPU and memory, where there is some."""
    return {name: of[name] for name in _COUNTED if of.get(name)}
