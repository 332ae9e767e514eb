"""One node as the stock scheduler counts it: whatever is bound counts, even if it is too much.

Written apart from the kubelets' `ledger`, which refuses instead: they judge what a scheduler decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from restow.kubesim.amounts import Amounts, amounts_of, host_ports, pod_requests
from restow.kubesim.devices import (
    COUNT,
    GPU_NAMES,
    NVIDIA,
    DeviceError,
    Devices,
    GpuRequest,
    chosen_minors,
    gpu_request,
)
from restow.kubesim.objects import Obj
from restow.kubesim.podstate import uid_of

Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod takes of a node. `impossible` says that no device can serve it."""

    amounts: Amounts
    ports: list[Port]
    gpus: GpuRequest | None
    impossible: bool = False

    @classmethod
    def of(cls, pod: Obj) -> Ask:
        spec = pod["spec"]
        requests = pod_requests(spec)
        try:
            gpus = gpu_request(requests)
        except DeviceError:
            return cls(requests, host_ports(spec), None, impossible=True)
        plain = {n: v for n, v in requests.items() if n not in GPU_NAMES} if gpus else requests
        return cls(plain, host_ports(spec), gpus)


@dataclass(slots=True, eq=False)
class Held:
    """A pod on a node, and the devices that it got; None where there were none left for it."""

    pod: Obj
    ask: Ask
    shares: dict[int, int] | None


@dataclass(slots=True)
class NodeUsage:
    """A node and what its pods take of it."""

    node: Obj
    allocatable: Amounts
    devices: Devices
    used: Amounts = field(default_factory=dict)
    ports: Counter[Port] = field(default_factory=Counter)
    pods: dict[str, Held] = field(default_factory=dict)
    homeless: int = 0
    """Pods that want devices and got none: while there are some, nobody else gets one."""

    @classmethod
    def of(cls, node: Obj) -> NodeUsage:
        allocatable, devices = _capacity(node)
        return cls(node, allocatable, Devices(devices))

    def refresh(self, node: Obj) -> None:
        """Take the node as it now is; its pods stay."""
        self.node = node
        self.allocatable, devices = _capacity(node)
        if devices != len(self.devices.free):
            self.devices.resize(devices)

    def copy(self) -> NodeUsage:
        devices = Devices(0)
        devices.free = list(self.devices.free)
        return NodeUsage(self.node, self.allocatable, devices, dict(self.used), Counter(self.ports), dict(self.pods), self.homeless)

    def hold(self, pod: Obj) -> None:
        """Count the pod, or take note of what it now looks like."""
        uid = uid_of(pod)
        there = self.pods.get(uid)
        if there is not None:
            self.pods[uid] = Held(pod, there.ask, there.shares)
            return
        ask = Ask.of(pod)
        shares: dict[int, int] | None = {}
        if ask.gpus is not None:
            try:
                shares = chosen_minors(pod, ask.gpus) or self.devices.pick(ask.gpus)
                self.devices.take(shares)
            except DeviceError:
                shares = None
        self._put(Held(pod, ask, shares))

    def give_back(self, held: Held) -> None:
        """What `drop` returned is there again, on the same devices."""
        if held.shares:
            self.devices.take(held.shares)
        self._put(held)

    def _put(self, held: Held) -> None:
        for name, value in held.ask.amounts.items():
            self.used[name] = self.used.get(name, 0) + value
        self.ports.update(held.ask.ports)
        self.homeless += held.shares is None
        self.pods[uid_of(held.pod)] = held

    def drop(self, uid: str) -> Held | None:
        """Count the pod no longer; None if it was not counted."""
        held = self.pods.pop(uid, None)
        if held is None:
            return None
        for name, value in held.ask.amounts.items():
            self.used[name] -= value
        for port in held.ask.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        if held.shares is None:
            self.homeless -= 1
        else:
            self.devices.give_back(held.shares)
        return held

    def lacks(self, ask: Ask) -> list[str]:
        """Names of the resources of which too little is left."""
        lacking = [n for n, v in ask.amounts.items() if v > 0 and self.used.get(n, 0) + v > self.allocatable.get(n, 0)]
        if ask.impossible or (ask.gpus is not None and self.homeless):
            return [*lacking, NVIDIA]
        if ask.gpus is not None:
            try:
                self.devices.pick(ask.gpus)
            except DeviceError:
                lacking.append(NVIDIA)
        return lacking

    def never(self, ask: Ask) -> bool:
        """Whether the node would be too small for it if it were empty."""
        if ask.impossible or (ask.gpus is not None and ask.gpus.count > len(self.devices.free)):
            return True
        return any(v > self.allocatable.get(n, 0) for n, v in ask.amounts.items())

    def port_taken(self, ask: Ask) -> bool:
        for ip, protocol, number in ask.ports if self.ports else ():
            for other_ip, other_protocol, other_number in self.ports:
                if (other_protocol, other_number) == (protocol, number) and (other_ip == ip or "0.0.0.0" in (ip, other_ip)):
                    return True
        return False

    def score(self, ask: Ask) -> int:
        """Least allocated, 0 to 100: the mean of what stays free of cpu and memory."""
        total = 0
        for name in ("cpu", "memory"):
            capacity = self.allocatable.get(name, 0)
            free = capacity - self.used.get(name, 0) - ask.amounts.get(name, 0)
            total += 100 * free // capacity if capacity > 0 and free > 0 else 0
        return total // 2


def _capacity(node: Obj) -> tuple[Amounts, int]:
    status = node.get("status") or {}
    allocatable = amounts_of(status.get("allocatable") or status.get("capacity"))
    return allocatable, allocatable.get(NVIDIA) or allocatable.get(COUNT, 0)
