"""Which pods with ResourceClaims may be moved, and what a place for one is held with.

A nomination keeps cpu and memory of a node for a gated successor, and none of its devices. What keeps them is a claim of the placeholder's own, made from the same
template in the pod's namespace (`MigrationConfig.claim_namespaces`): another scheduler gives it a device, and before the placeholder goes the claim is handed over to the
successor as it is (`restow.kube.handover`). It is never free meanwhile (kube-scheduler 1.36, `tests/kubernetes/test_claim_handover.py`).

So a pod may go that has a device, or several that are alike, by one claim that was made for it. What other nodes have for it, without evaluating CEL: its claim's selectors have let its own
device pass, so they let every device pass that is equal in all that they can read by name (`Wanted.does`). Those of other devices may, too: these are no targets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from restow.contracts.dynamic_resources import SubRequest
from restow.contracts.events import PodObserved, ResourceClaimObserved
from restow.contracts.ids import NodeName, PodUid, ReservationUid
from restow.contracts.values import Taint, Toleration
from restow.domain.claim_devices import TAINTED, ClaimDevice, claim_devices
from restow.domain.other_schedulers import is_beside
from restow.domain.predicates import tolerates
from restow.domain.records import Slot
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.domain.verdicts import UNSUPPORTED

T = TypeVar("T")
MOST = 3
"""Devices that are named."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LITERAL = r"""("[^"\\]*"|'[^'\\]*'|-?[0-9]+|true|false)"""
_EQUAL = re.compile(rf"device\.(driver|(attributes|capacity)\[{_LITERAL}\]\.\w+) == {_LITERAL}")
"""What no device passes that has another value there."""


class Wanted(NamedTuple):
    """`number` devices like those that a pod has: of this driver, and with these values of all attributes and amounts that its claim's selectors read."""

    driver: str
    attributes: tuple[tuple[str, str], ...]
    capacity: tuple[tuple[str, int], ...]
    names: frozenset[str]
    """What the selectors name: also what this device does not have."""
    equal: bool = True
    """The selectors ask for values that are equal, and for nothing else: of a device that differs it is known that it does not pass."""
    tolerations: tuple[Toleration, ...] = ()
    number: int = 1

    def does(self, device: ClaimDevice) -> bool:
        published = device.published
        if published is None or device.driver != self.driver or published.shared or published.waits:
            return False
        return _read(device.attributes, self.names) == self.attributes and _read(published.capacity, self.names) == self.capacity

    def tolerates(self, device: ClaimDevice) -> bool:
        return all(tolerates(self.tolerations, Taint(taint.key, taint.effect, taint.value)) for taint in device.closed_by)


def why_it_stays(state: ClusterState, uid: PodUid) -> str:
    """The verdict with its sentence, of a pod whose shape has ResourceClaims. Empty where it may go."""
    known = claim_devices(state)
    claims = known.reserved_for(uid)
    named = [path for path in claims if state.resource_claims[path].owner != uid]
    if named:
        return f"{UNSUPPORTED}: ResourceClaim {named[0]} is not made for it alone, and its devices are where it is"
    devices = [f"{one.name} of {one.driver}" for path in claims for one in known.claim(path)]
    has = ", ".join(devices[:MOST]) + f" and {len(devices) - MOST} more" * (len(devices) > MOST)
    fact = state.pods[uid].fact
    if fact.namespace not in state.migration_config.claim_namespaces:
        return f"{UNSUPPORTED}: it has {has or 'devices'} by ResourceClaim, and claimNamespaces of the policy does not name {fact.namespace}"
    shape = state.shapes[fact.shape]
    if not is_beside(state, fact.shape):
        return f"{UNSUPPORTED}: it has {has or 'devices'} by ResourceClaim, and scheduler {shape.scheduler} gives no devices"
    if len(shape.resource_claims) > 1:
        return f"{UNSUPPORTED}: it has {has or 'devices'} by ResourceClaim, and a place is held for one claim only"
    return "" if wanted(state, uid) is not None else f"{UNSUPPORTED}: it has {has or 'devices'} by ResourceClaim, and what it asks for is more than a number of devices of its node that are alike"


def wanted(state: ClusterState, uid: PodUid) -> Wanted | None:
    """Of a pod that may go; None of any other, and of one whose claim is not known (any more)."""
    known, fact = claim_devices(state), state.fact_of(uid)
    claims = [claim for path in known.reserved_for(uid) if (claim := state.resource_claims[path]).owner == uid]
    if fact is None or len(claims) != 1 or state.shapes[fact.shape].claim_templates.keys() != {claims[0].pod_claim}:
        return None
    (claim,) = claims
    asked, devices = _asked(claim), known.claim(f"{claim.namespace}/{claim.name}")
    of = state.device_classes.get(asked.device_class) if asked is not None else None
    if asked is None or of is None or len(devices) != asked.count:
        return None
    names = frozenset(word for text in (*of.selectors, *asked.selectors) for word in _WORD.findall(text))
    equal = all(_EQUAL.fullmatch(one.strip()) for text in (*of.selectors, *asked.selectors) for one in text.split("&&"))
    found: set[Wanted] = set()
    for device in devices:
        published = device.published
        if published is None or not device.node or published.shared or published.waits:
            return None
        found.add(Wanted(device.driver, _read(device.attributes, names), _read(published.capacity, names), names, equal, asked.tolerations, asked.count))
    return found.pop() if len(found) == 1 else None


def _asked(claim: ResourceClaimObserved) -> SubRequest | None:
    """Its only request, where that is for a number of devices that nobody else has, whatever other devices are."""
    if len(claim.requests) != 1 or len(claim.requests[0].any_of) != 1 or claim.constraints or claim.reserved_otherwise or claim.deleting:
        return None
    (asked,) = claim.requests[0].any_of
    return asked if asked.count > 0 and not asked.admin and not asked.capacity else None


def _read(said: Mapping[str, T], names: frozenset[str]) -> tuple[tuple[str, T], ...]:
    """What selectors can read of it: a name may have a domain before it, which they write apart."""
    return tuple(sorted((name, value) for name, value in said.items() if name.rpartition("/")[2] in names))


def is_moves(state: ClusterState, pod: PodObserved) -> bool:
    """Whether it is the slot of a move (`occupants.as_pod`), or the successor whose slot that is: its placeholder gets the device from its own scheduler. Nothing else is held
    that has claims."""
    if not is_beside(state, pod.shape):
        return False
    record = state.reservations.get(ReservationUid(pod.pod.partition("/")[0]))
    return (record is not None and record.fact.migration in state.migrations) or (pod.pod in state.pods and state.pods[pod.pod].fact.landing)


def wanted_in(state: ClusterState, key: SlotKey) -> Wanted | None:
    """What a slot is to hold besides its capacity: devices like those of the pod that is to move to it. None where it is none, or has it already."""
    record = state.reservations.get(key[0])
    migration = state.migrations.get(record.fact.migration) if record is not None else None  # type: ignore[call-overload]
    if migration is None or migration.back or migration.reservation != key[0] or not state.shapes[migration.shape].resource_claims:
        return None
    placeholder = state.stand_ins.get(key)
    known = claim_devices(state)
    if placeholder is not None and any(known.claim(path) for path in known.reserved_for(placeholder)):
        return None
    return wanted(state, migration.move.pod)


class Free:
    """The devices of a node that nobody has (tainted ones for whoever tolerates that), and what is left of the counters that their parts share, while some of them are given away in thought: each time the first that
    does, as kube-scheduler gives them (1.36): by driver and pool, then as they are published."""

    def __init__(self, state: ClusterState, node: NodeName) -> None:
        known = claim_devices(state)
        devices = [device for device in known.on(node) if device.free or device.state == TAINTED]
        pools = {(one.driver, one.pool) for one in devices}
        order = {pool: known.order(pool) for pool in pools}
        self._devices = sorted(devices, key=lambda one: (one.driver, one.pool, order[one.driver, one.pool][one.name]))
        self._left = {pool: known.counters_left(pool) for pool in pools}

    def first(self, one: Wanted) -> ClaimDevice | None:
        """What it would get now."""
        return next((device for device in self._devices if one.does(device) and one.tolerates(device) and self._is_left(device)), None)

    def foreseen(self, one: Wanted) -> ClaimDevice | None:
        """The same; None also where a device comes before it of which nobody knows whether it would do."""
        for device in self._devices:
            if device.driver == one.driver and one.tolerates(device) and self._is_left(device):
                if one.does(device):
                    return device
                if not one.equal:
                    return None
        return None

    def take(self, one: Wanted) -> bool:
        """Whether there are as many as it asks for, one after the other; nobody else gets them then. Where there are fewer none is taken."""
        before, taken = list(self._devices), list[ClaimDevice]()
        while len(taken) < one.number:
            device = self.first(one)
            if device is None:
                self._devices = before
                for other in taken:
                    self._left[other.driver, other.pool].update(other.uses)
                return False
            taken.append(device)
            self._left[device.driver, device.pool].subtract(device.uses)
            self._devices.remove(device)
        return True

    def _is_left(self, device: ClaimDevice) -> bool:
        left = self._left[device.driver, device.pool]
        return all(left[counter] >= amount for counter, amount in device.uses.items())


def has_one(state: ClusterState, node: NodeName, one: Wanted, before: Iterable[Wanted]) -> bool:
    """Whether a node has such devices beside those that are to be given away `before`."""
    free = Free(state, node)
    for other in before:
        free.take(other)
    return free.take(one)


def owed_on(state: ClusterState, node: NodeName) -> Iterator[tuple[SlotKey, Wanted]]:
    """Slots on a node whose placeholders have no device yet, and what they are to get."""
    for key in state.held_on.get(node, ()):
        slot: Slot | None = state.slots.get(key[0], {}).get(key[1])
        if slot is not None and state.shapes[slot.shape].resource_claims and (one := wanted_in(state, key)) is not None:
            yield key, one
