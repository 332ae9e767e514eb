"""What is free on each node: plain resources, host ports and GPU devices. Refuses, never over-commits."""

from __future__ import annotations

from dataclasses import dataclass, field

from restow.kubesim.amounts import Amounts, amounts_of, host_ports, pod_requests
from restow.kubesim.devices import COUNT, GPU_NAMES, NVIDIA, DeviceError, Devices, chosen_minors, gpu_request
from restow.kubesim.podstate import Obj, uid_of

Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod was not taken, in the kubelet's words."""

    reason: str
    message: str


@dataclass(slots=True)
class _Taken:
    amounts: Amounts
    ports: list[Port]
    shares: dict[int, int]


@dataclass(slots=True)
class NodeAccount:
    """One node's allocatable and what its pods use of it."""

    allocatable: Amounts
    devices: Devices
    used: Amounts = field(default_factory=dict)
    pods: dict[str, _Taken] = field(default_factory=dict)
    ports: dict[Port, int] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Obj) -> NodeAccount:
        allocatable, devices = _capacity(node)
        return cls(allocatable, Devices(devices))

    def refresh(self, node: Obj) -> None:
        """Take the node's new allocatable; its pods stay."""
        self.allocatable, devices = _capacity(node)
        if devices != len(self.devices.free):
            self.devices.resize(devices)

    def take(self, pod: Obj, *, choose: bool = False) -> Refusal | None:
        """Count the pod, or say why it does not fit. With `choose`, its device annotation is not needed."""
        uid, spec = uid_of(pod), pod["spec"]
        if uid in self.pods:
            return None
        try:
            requests = pod_requests(spec)
            wanted = gpu_request(requests)
        except (ValueError, DeviceError) as error:
            return Refusal("UnexpectedAdmissionError", f"Pod was rejected: {error}")
        plain = {n: v for n, v in requests.items() if n not in GPU_NAMES} if wanted else requests
        refusal = self._short(plain)
        if refusal is not None:
            return refusal
        ports = host_ports(spec)
        if any(self._port_taken(port) for port in ports):
            return Refusal(
                "NodePorts",
                "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            )
        shares: dict[int, int] = {}
        if wanted is not None:
            try:
                shares = (None if choose else chosen_minors(pod, wanted)) or self.devices.pick(wanted)
                self.devices.take(shares)
            except DeviceError as error:
                return Refusal(
                    "UnexpectedAdmissionError", f"Pod was rejected: Allocate failed due to {error}"
                )
        for name, value in plain.items():
            self.used[name] = self.used.get(name, 0) + value
        for port in ports:
            self.ports[port] = self.ports.get(port, 0) + 1
        self.pods[uid] = _Taken(plain, ports, shares)
        return None

    def release(self, uid: str) -> bool:
        """Give back what the pod had; False if it had nothing."""
        taken = self.pods.pop(uid, None)
        if taken is None:
            return False
        for name, value in taken.amounts.items():
            self.used[name] -= value
        for port in taken.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        self.devices.give_back(taken.shares)
        return True

    def _short(self, requests: Amounts) -> Refusal | None:
        for name, value in requests.items():
            if value <= 0:
                continue
            capacity, used = self.allocatable.get(name, 0), self.used.get(name, 0)
            if used + value > capacity:
                text = (
                    f"Pod was rejected: Node didn't have enough resource: {name}, "
                    f"requested: {value}, used: {used}, capacity: {capacity}"
                )
                return Refusal(f"OutOf{name}", text)
        return None

    def _port_taken(self, port: Port) -> bool:
        ip, protocol, number = port
        if not self.ports:
            return False
        for other_ip, other_protocol, other_number in self.ports:
            if other_number != number or other_protocol != protocol:
                continue
            if other_ip == ip or "0.0.0.0" in (ip, other_ip):
                return True
        return False


def _capacity(node: Obj) -> tuple[Amounts, int]:
    status = node.get("status") or {}
    allocatable = amounts_of(status.get("allocatable") or status.get("capacity"))
    return allocatable, allocatable.get(NVIDIA) or allocatable.get(COUNT, 0)
