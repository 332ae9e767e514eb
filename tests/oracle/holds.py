"""One pod and many holds, slowly: which hold a pod gets (RULES 004-3), from which devices, or that it goes the normal way.

Of the holds that a pod may use on nodes where it can run with what the hold keeps: those whose Reservation has a
`reservation-order` first, the lowest; then the one that keeps the pod's host ports, and of those that it would end the one that
keeps no others; then the one that gives it more of what it asks for (the mean of its resources, and of
the devices that it has of the hold alone); then the one that is used most, the pod included (the mean of the hold's resources,
one that is asked too much of counts nothing, as in Koordinator); then the earliest created; then the one seen first. Ratios are
of 10 000. Written from the rules, nothing of `restow.domain`.
"""

from collections import Counter
from dataclasses import dataclass, field

from checker_owners import owns, unwanted

from oracle.filters import pick_devices, ports, ready, schedulable, selector, taints
from oracle.world import GPU, World
from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, DeviceShare

ORDER = "scheduling.koordinator.sh/reservation-order"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
SCALE = 10_000


@dataclass
class Hold:
    """One place that is held: `devices` are its shares, `drawn` what pods have of it (amounts by resource, by device), `fact`
    and `spec` as plain values."""

    fact: dict
    slot: str
    node: str
    shape: str
    devices: dict[int, int]
    seen: int
    drawn: list[tuple[Counter, Counter]] = field(default_factory=list)

    @property
    def spec(self) -> dict:
        return self.fact["spec"]


@dataclass(frozen=True)
class Choice:
    reservation: str
    slot: str
    node: str
    devices: tuple[DeviceShare, ...]


class Holds:
    """All holds of a world whose pods, drawn from holds or not, are in `world`."""

    def __init__(self, world: World, holds: list[Hold]) -> None:
        self.world, self.holds = world, holds

    def left(self, hold: Hold) -> Counter:
        found = Counter(self.world.shapes[hold.shape].requests)
        for amounts, _ in hold.drawn:
            found -= amounts
        return found

    def device_left(self, hold: Hold) -> Counter:
        found = Counter(hold.devices)
        for _, devices in hold.drawn:
            found -= devices
        return found

    def free(self, node: str, resource: str) -> int:
        """What nobody has and nothing holds."""
        return self.world.free(node, resource) - sum(self.left(h)[resource] for h in self.holds if h.node == node)

    def device_free(self, node: str) -> list[int]:
        free = self.world.device_free(node)
        for hold in self.holds:
            for index, milli in self.device_left(hold).items() if hold.node == node else ():
                free[index] -= milli
        return free

    # -- the choice ----------------------------------------------------------------------------------------------------

    def choose(self, pod: e.PodObserved, plain: dict) -> Choice | None:
        """`plain`: the pod as plain values. None where it goes the normal way, or waits."""
        able = [(hold, devices) for hold in self.holds if (devices := self.can_have(hold, pod, plain)) is not None]
        if not able:
            return None
        hold, devices = min(able, key=lambda found: self.rank(found[0], pod))
        return Choice(hold.fact["reservation"], hold.slot, hold.node, devices)

    def rank(self, hold: Hold, pod: e.PodObserved) -> tuple:
        said = int(hold.fact.get("labels", {}).get(ORDER, "0"))
        asked, full, left = self.world.shape(pod).requests, self.world.shapes[hold.shape].requests, self.left(hold)
        counted = [r for r, amount in asked.items() if amount and r != "pods"]
        covers = [min(left[r], asked[r]) * SCALE // asked[r] for r in counted]
        if (ask := self.world.shape(pod).devices) is not None:
            whole = sum(milli >= ask.milli for milli in self.device_left(hold).values())
            covers.append(min(whole, ask.count) * SCALE // ask.count)
        covered = sum(covers) // max(len(covers), 1)
        used = 0
        held = [r for r, amount in full.items() if amount and r != "pods"]
        for r in held:
            then = full[r] - left[r] + asked.get(r, 0)
            used += then * SCALE // full[r] if then <= full[r] else 0
        used //= max(len(held), 1)
        mine, kept = ({(p.port, p.protocol) for p in self.world.shapes[s].host_ports} for s in (pod.shape, hold.shape))
        given_up = len(kept - mine) if hold.spec.get("allocate_once") else 0
        return said == 0, said, len(mine - kept), given_up, -covered, -used, hold.fact["created"], hold.seen

    def can_have(self, hold: Hold, pod: e.PodObserved, plain: dict) -> tuple[DeviceShare, ...] | None:
        """The devices that it gets with this hold, None where it cannot have it."""
        world, node = self.world, self.world.nodes[hold.node]
        if not owns(hold.fact, hold.spec, plain, {}):
            return None
        requests = {n: {"requests": world.shapes[n].requests} for n in (pod.shape, hold.shape)}
        if unwanted(hold.fact, hold.spec, {"labels": node.labels}, plain, requests[pod.shape], requests[hold.shape]):
            return None
        if any(rule(world, pod, node) for rule in (ready, schedulable, taints, selector, ports)) or self.port_is_held(node.name, pod, plain):
            return None
        policy = hold.spec.get("allocate_policy", "Aligned")
        left, full = self.left(hold), self.world.shapes[hold.shape].requests
        for resource, amount in world.shape(pod).requests.items():
            if resource == GPU:
                continue
            here = left[resource]
            if resource == "pods" or not self.bound_to(policy, hold, resource, full):
                here += self.free(node.name, resource)
            if amount > here:
                return None
        ask = world.shape(pod).devices
        devices = () if ask is None else self.pick(hold, ask, self.bound_to(policy, hold, GPU, full))
        return devices if devices is not None and self.gives(hold, pod, devices) else None

    def gives(self, hold: Hold, pod: e.PodObserved, devices: tuple[DeviceShare, ...]) -> bool:
        """Whether the pod has anything of it: of one that is empty nobody is an owner."""
        asked = {r for r, amount in self.world.shape(pod).requests.items() if amount and r not in ("pods", GPU)}
        amounts = any(self.left(hold)[r] for r in asked)
        return amounts or any(self.device_left(hold)[d.index] for d in devices) or not (asked or devices)

    @staticmethod
    def bound_to(policy: str, hold: Hold, resource: str, full: dict[str, int]) -> bool:
        """Whether the hold alone has to give all of a resource."""
        if policy == "Covering":
            return True
        own = {r for r, amount in full.items() if amount}
        return policy == "Restricted" and resource in own and resource in (hold.spec.get("restricted") or own)

    def pick(self, hold: Hold, ask: DeviceRequest, only_held: bool) -> tuple[DeviceShare, ...] | None:
        """Devices that have so much together with what the hold keeps of them: those of the hold first, as they have more of it,
        then the fullest of the others."""
        left, free = self.device_left(hold), self.device_free(hold.node)
        together = [left[i] if only_held else share + left[i] for i, share in enumerate(free)]
        able = sorted((-min(left[i], ask.milli), share, i) for i, share in enumerate(together) if share >= ask.milli)
        if len(able) < ask.count:
            return None
        return tuple(DeviceShare(i, ask.milli) for i in sorted(i for *_, i in able[: ask.count]))

    def port_is_held(self, node: str, pod: e.PodObserved, plain: dict) -> bool:
        """By a hold of others on the node; those that the pod owns do not count."""
        mine = {(p.port, p.protocol) for p in self.world.shape(pod).host_ports}
        return any(
            mine & {(p.port, p.protocol) for p in self.world.shapes[hold.shape].host_ports}
            for hold in self.holds
            if hold.node == node and not owns(hold.fact, hold.spec, plain, {})
        )

    # -- the normal way ------------------------------------------------------------------------------------------------

    def fits_beside(self, pod: e.PodObserved, plain: dict) -> set[str]:
        """Nodes where it can run without any hold."""
        if AFFINITY in pod.annotations:
            return set()
        return {name for name in self.world.nodes if self.fits_on(name, pod, plain)}

    def fits_on(self, name: str, pod: e.PodObserved, plain: dict) -> bool:
        world, shape = self.world, self.world.shape(pod)
        if any(rule(world, pod, world.nodes[name]) for rule in (ready, schedulable, taints, selector, ports)):
            return False
        if self.port_is_held(name, pod, plain):
            return False
        if any(amount > self.free(name, r) for r, amount in shape.requests.items() if amount and r != GPU):
            return False
        return shape.devices is None or pick_devices(self.device_free(name), shape.devices) is not None
