"""CPUs as Koordinator's annotations tell them: what a node has, what a pod asks for, what it was given (RULES 004-5)."""

from collections.abc import Iterable, Mapping

import msgspec

from restow.contracts.values import CoreRequest, Cpu
from restow.domain.cores import FULL, SPREAD, cpuset
from restow.kube.annotations import RESOURCE_SPEC, RESOURCE_STATUS
from restow.kube.requests import FactError

QOS = "koordinator.sh/qosClass"
PRIORITY_CLASS = "koordinator.sh/priority-class"
TOPOLOGY = "node.koordinator.sh/cpu-topology"
MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"

_BOUND = ("LSE", "LSR")
_PROD = "koord-prod"
_NOT_PROD = ("koord-mid", "koord-batch", "koord-free")
_LESS = (range(3000, 4000), range(5000, 6000), range(7000, 8000))
"""The priorities of Koordinator's classes free, batch and mid: pods of these get no CPUs of their own."""
_POLICIES = {"": FULL, "Default": FULL, FULL: FULL, SPREAD: SPREAD}
_EXCLUSIVE = ("PCPULevel", "NUMANodeLevel")
_CORE = 1000
_MOST = 1 << 16
"""Numbers of CPUs end here. Far beyond any machine, and a cpuset of a few characters can name billions."""
_BAD = (msgspec.DecodeError, UnicodeError, RecursionError)


class _Spec(msgspec.Struct, rename="camel"):
    preferred: str | None = msgspec.field(default=None, name="preferredCPUBindPolicy")
    required: str | None = msgspec.field(default=None, name="requiredCPUBindPolicy")
    exclusive: str | None = msgspec.field(default=None, name="preferredCPUExclusivePolicy")


class _Status(msgspec.Struct):
    cpuset: str | None = None


class _Detail(msgspec.Struct):
    id: int
    core: int = 0
    socket: int = 0
    node: int = 0


class _Topology(msgspec.Struct):
    detail: list[_Detail] | None = None


class _Manager(msgspec.Struct):
    reserved: str | None = msgspec.field(default=None, name="reservedCPUs")


_spec = msgspec.json.Decoder(_Spec | None)
_status = msgspec.json.Decoder(_Status | None)
_topology = msgspec.json.Decoder(_Topology | None)
_manager = msgspec.json.Decoder(_Manager | None)


def read(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, str, str] | None:
    """All that a pod's labels and annotations say of CPUs of its own; None where it wants none."""
    if not labels or labels.get(QOS) not in _BOUND:
        return None
    return labels[QOS], labels.get(PRIORITY_CLASS, ""), annotations.get(RESOURCE_SPEC, "")


def request(said: tuple[str, str, str] | None, priority: int | None, cpu: int) -> CoreRequest | None:
    """What a pod asks for with `cpu` thousandths of a core (Koordinator: `AllowUseCPUSet` and its PreFilter). None where it
    shares CPUs with others; `count` 0 where it asks for no whole number of them, and fits nowhere. Raises FactError."""
    if said is None or cpu <= 0 or not _is_prod(said[1], priority):
        return None
    try:
        spec = (_spec.decode(said[2]) if said[2] else None) or _Spec()
    except _BAD as error:
        allowed = 'JSON such as {"preferredCPUBindPolicy": "FullPCPUs"}'
        raise FactError(f"metadata.annotations[{RESOURCE_SPEC}]: {error}; allowed: {allowed}") from error
    policy = _POLICIES.get(spec.required or spec.preferred or "")
    if policy is None:
        return None
    count = 0 if cpu % _CORE else cpu // _CORE
    exclusive = spec.exclusive if spec.exclusive in _EXCLUSIVE else ""
    return CoreRequest(count, policy, bool(spec.required), exclusive or "")


def _is_prod(named: str, priority: int | None) -> bool:
    """By label, else by the range that its priority is in; a pod of LSE or LSR in no range is one of class prod."""
    if named in (_PROD, *_NOT_PROD):
        return named == _PROD
    return not any((priority or 0) in values for values in _LESS)


def read_status(text: str) -> tuple[int, ...]:
    """The CPUs of Koordinator's `resource-status`, in order. Raises FactError."""
    try:
        status = _status.decode(text)
        return parse_list(status.cpuset or "") if status is not None else ()
    except (*_BAD, ValueError) as error:
        allowed = 'JSON such as {"cpuset": "0-3,8"}'
        raise FactError(f"metadata.annotations[{RESOURCE_STATUS}]: {error}; allowed: {allowed}") from error


def write_status(cpus: Iterable[int]) -> str:
    """As Koordinator writes it."""
    return msgspec.json.encode({"cpuset": cpuset(cpus)}).decode()


def read_topology(annotations: Mapping[str, str] | None) -> tuple[Cpu, ...]:
    """The CPUs of a node by number, without those that the kubelet keeps for the system. Empty where there is no annotation, or
    none that can be read: such a node gives nobody CPUs of its own, and that is said of it."""
    if not annotations or TOPOLOGY not in annotations:
        return ()
    try:
        topology = _topology.decode(annotations[TOPOLOGY])
    except _BAD:
        return ()
    kept = _reserved(annotations.get(MANAGER_POLICY, ""))
    found = {
        d.id: Cpu(d.id, d.core, d.socket, d.node)
        for d in (topology.detail if topology is not None else None) or ()
        if 0 <= d.id < _MOST and d.id not in kept
    }
    return tuple(found[id] for id in sorted(found))


def _reserved(policy: str) -> frozenset[int]:
    try:
        said = _manager.decode(policy) if policy else None
        return frozenset(parse_list((said.reserved if said is not None else None) or ""))
    except (*_BAD, ValueError):
        return frozenset()


def parse_list(text: str) -> tuple[int, ...]:
    """The numbers of a Linux CPU list such as `0-3,8`, in order. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        first, dash, last = (side.strip() for side in part.partition("-"))
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdecimal() and len(end) < 9 for end in ends):
            raise ValueError(f"{part.strip()!r} is no CPU, and no range of CPUs")
        low, high = int(ends[0]), int(ends[-1])
        if not low <= high < _MOST:
            raise ValueError(f"{part.strip()!r}: not in order, or beyond {_MOST - 1}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))
