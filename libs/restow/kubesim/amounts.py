"""Quantities and what a pod asks for, in the kubelet's own arithmetic.

Written apart from `restow.domain` on purpose: the kubelet is the judge of the scheduler, so they share no code.
All amounts are Python ints in the resource's base unit: cpu in millicores, everything else in whole units
(bytes, devices, pods), rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from restow.kubesim.objects import Obj

Amounts = dict[str, int]

_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000 ** (i + 1)) for i, unit in enumerate("kMGTPE")},
    **{unit + "i": Fraction(1024 ** (i + 1)) for i, unit in enumerate("KMGTPE")},
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([a-zA-Z]{0,2}))$")


@lru_cache(maxsize=65_536)
def parse_quantity(text: str, scale: int = 1) -> int:
    """`text` times `scale`, rounded up (`1500m`, 1000 → 1500). ValueError for what is not a quantity."""
    match = _QUANTITY.match(text)
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity; write for example 100m, 2, 1.5Gi or 1e3")
    number = Fraction(match[1]) * _SUFFIXES[match[3] or ""]
    if match[2]:
        exponent = int(match[2][1:])
        if abs(exponent) > 40:
            raise ValueError(f"{text!r} is beyond what a quantity can say")
        number *= Fraction(10) ** exponent
    scaled = number * scale
    return -(-scaled.numerator // scaled.denominator)


def amount_of(resource: str, quantity: Any) -> int:
    """Base units of a resource's quantity."""
    return parse_quantity(str(quantity), 1000 if resource == "cpu" else 1)


def cpu_text(nano: int) -> str:
    """Nanocores in the largest unit that says them exactly, as Kubernetes writes them."""
    for unit, name in ((10**9, ""), (10**6, "m"), (1000, "u")):
        if nano % unit == 0:
            return f"{nano // unit}{name}"
    return f"{nano}n"


def memory_text(size: int) -> str:
    """The same of bytes."""
    units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"]
    while size and size % 1024 == 0 and len(units) > 1:
        size, units = size // 1024, units[1:]
    return f"{size}{units[0]}"


def amounts_of(quantities: Mapping[str, Any] | None) -> Amounts:
    return {name: amount_of(name, value) for name, value in (quantities or {}).items()}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _container_requests(container: Obj) -> Amounts:
    """Requests, with limits in the place of requests that are not given."""
    resources = container.get("resources") or {}
    return amounts_of({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def pod_requests(spec: Obj) -> Amounts:
    """What the pod takes of its node (`resourcehelper.PodRequests`), with `pods: 1`.

    Containers and sidecars add up, an init container counts with the sidecars started before it, overhead is
    added, spec.resources (pod-level) replaces the sum for the resources that it names.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _container_requests(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wants = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, wants)
            _add(sidecars, wants)
            wants = dict(sidecars)
        else:
            _add(wants, sidecars)
        for name, value in wants.items():
            peak[name] = max(peak.get(name, 0), value)
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    if spec.get("resources"):
        total.update(_container_requests(spec))
    _add(total, amounts_of(spec.get("overhead")))
    total["pods"] = 1
    return total


def host_ports(spec: Obj) -> list[tuple[str, str, int]]:
    """(ip, protocol, port) of every hostPort."""
    found = []
    containers = list(spec.get("containers") or ())
    containers += [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in containers:
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if number:
                found.append((port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(number)))
    return found
