"""The plugin's arguments: which of kube-scheduler's rules count."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.session import args

RESOURCES = "predicate.resources"


def _switch(name: str, default: bool = True) -> Any:
    return msgspec.field(name="predicate." + name, default=default)


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one unit of the resource keeps of cpu (cores) and memory (10⁹ bytes, as Volcano has it), as text such as `1.5`."""

    cpu: str = "1"
    memory: str = "1"


class Args(args.Arguments, frozen=True):
    """`predicate.…Enable`: rules that are off let every node pass. `CacheEnable` and the GPU switches are Volcano's and
    change nothing: what was computed is always kept, GPU shares are always scheduled (RULES 004-5).

    With `ProportionalEnable`, pods that do not ask for a resource of `predicate.resources` leave cpu and memory for it:
    `predicate.resources.<resource>.cpu` cores and `.memory` gigabytes (10⁹ bytes) for each unit that is idle."""

    node_affinity: bool = _switch("NodeAffinityEnable")
    node_ports: bool = _switch("NodePortsEnable")
    taint_toleration: bool = _switch("TaintTolerationEnable")
    pod_affinity: bool = _switch("PodAffinityEnable")
    node_volume_limits: bool = _switch("NodeVolumeLimitsEnable")
    volume_zone: bool = _switch("VolumeZoneEnable")
    pod_topology_spread: bool = _switch("PodTopologySpreadEnable")
    volume_binding: bool = _switch("VolumeBindingEnable")
    dynamic_resources: bool = _switch("DynamicResourceAllocationEnable", False)
    cache: bool = _switch("CacheEnable", False)
    gpu_sharing: bool = _switch("GPUSharingEnable", False)
    gpu_number: bool = _switch("GPUNumberEnable", False)
    proportional: bool = _switch("ProportionalEnable", False)
    resources: dict[str, Rate] = msgspec.field(name=RESOURCES, default_factory=dict)

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        prefix = RESOURCES + "."
        own, rates = args.without_prefix(said, prefix), args.with_prefix(said, prefix)
        if not isinstance(own.get(RESOURCES), dict):
            own[RESOURCES] = {name: {} for name in args.listed(RESOURCES, own.get(RESOURCES, ""))}
        read = {name: args.mapped(f"{prefix}{name}", rate) for name, rate in args.mapped(RESOURCES, own[RESOURCES]).items()}
        for key, value in rates.items():
            name, _, of = key.rpartition(".")
            if of not in ("cpu", "memory") or name not in read:
                allowed = ", ".join(f"{prefix}{n}.cpu, {prefix}{n}.memory" for n in read) or f"none without {RESOURCES}"
                raise args.ArgsError(f"{prefix}{key}: unknown; allowed: {allowed}")
            read[name][of] = value
        own[RESOURCES] = {
            name: {of: args.decimal(args.thousandths(f"{prefix}{name}.{of}", value)) for of, value in rate.items()}
            for name, rate in read.items()
        }
        return super().read(own)

    def check(self) -> str:
        if self.dynamic_resources:
            return "predicate.DynamicResourceAllocationEnable: true; allowed: false (ResourceClaims are not read)"
        return ""
