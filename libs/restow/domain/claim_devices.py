"""Devices that drivers publish for claims (`resource.k8s.io`), who has them, and which of them somebody can still get.

A pool is what the slices of its newest generation say; while some of these are missing, none of its devices is given to anybody
(`k8s.io/dynamic-resource-allocation/structured`). A device that is a part of another one uses counters that all parts share (KEP-4815): it
can be had as long as what is left of them does for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from restow.contracts.dynamic_resources import AllocatedDevice, CounterSet, DeviceTaint, PublishedDevice
from restow.contracts.events import ResourceClaimObserved, ResourceSliceObserved
from restow.contracts.ids import NodeName, PodUid
from restow.domain.changes import Seen
from restow.domain.memo import kept
from restow.domain.state import ClusterState

PoolName = tuple[str, str]
"""Driver and pool."""
TAKEN, PARTS_TAKEN, TAINTED, INCOMPLETE, OUTDATED = "allocated", "parts allocated", "tainted", "pool incomplete", "not published any more"
"""Why a device cannot be had; a free one says nothing."""
CLOSED = ("NoSchedule", "NoExecute")
PARENT = "parentUUID"
"""Of NVIDIA's MIG devices that are made by hand: the GPU that they are a part of."""


class ClaimDevice(NamedTuple):
    """A device of a pool. `node`: the only one that has it, empty where several do. `claims`: who has it, by `namespace/name`. `state`: why it
    cannot be had. `wholes`: what it is, or is a part of: a device that shares nothing with others is one itself. `common`: attributes that it has in common with others."""

    driver: str
    pool: str
    name: str
    node: NodeName
    common: dict[str, str]
    published: PublishedDevice | None
    claims: tuple[str, ...]
    state: str
    wholes: tuple[str, ...]

    @property
    def free(self) -> bool:
        return not self.state

    @property
    def closed_by(self) -> tuple[DeviceTaint, ...]:
        """Taints that keep it from whoever does not tolerate them."""
        return () if self.published is None else tuple(taint for taint in self.published.taints if taint.effect in CLOSED)

    @property
    def uses(self) -> dict[tuple[str, str], int]:
        """Of the counters that it shares with others of its pool, by set and name."""
        return {} if self.published is None else _uses(self.published.consumes)

    @property
    def attributes(self) -> dict[str, str]:
        return self.common if self.published is None else {**self.common, **self.published.attributes}


class Count(NamedTuple):
    """`devices` are all that are published, `allocated` those that claims have, `free` those that a claim can have, each by itself. Of `wholes` (devices with all
    of their parts) nobody has any part of `free_wholes`, and they can be had."""

    devices: int = 0
    allocated: int = 0
    free: int = 0
    wholes: int = 0
    free_wholes: int = 0

    def __add__(self, other: Any) -> "Count":
        return Count(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Any) -> "Count":
        return Count(*(a - b for a, b in zip(self, other, strict=True)))


class ClaimDevices:
    """Kept beside a state (`restow.domain.memo`): a pool is looked at again when a slice of it, or a claim for a device of it, has changed."""

    def __init__(self, state: ClusterState) -> None:
        self._seen = Seen(state.objects)
        self._slices: dict[str, ResourceSliceObserved] = {}
        self._claims: dict[str, ResourceClaimObserved] = {}
        self._published: dict[PoolName, dict[str, None]] = {}
        self._taken: dict[PoolName, dict[tuple[str, str], AllocatedDevice]] = {}
        self._local: dict[NodeName, dict[PoolName, int]] = {}
        self._reserved: dict[PodUid, dict[str, None]] = {}
        self._pools: dict[PoolName, tuple[ClaimDevice, ...]] = {}
        self._counts: dict[str, dict[PoolName, Count]] = {}
        """By driver."""
        self._totals: dict[str, Count] = {}
        self._stale: dict[PoolName, None] = {}
        """Pools that are to be counted again."""

    def refresh(self, state: ClusterState) -> None:
        (news,) = self._seen.news()
        if news is None:
            for known in (
                self._slices, self._claims, self._published, self._taken, self._local, self._reserved, self._pools, self._counts, self._totals, self._stale,
            ):
                known.clear()
            news = [*(("resource_slices", name) for name in state.resource_slices), *(("resource_claims", name) for name in state.resource_claims)]
        for kind, name in dict.fromkeys(news):
            if kind == "resource_slices":
                self._publish(name, state.resource_slices.get(name))
            elif kind == "resource_claims":
                self._claim(name, state.resource_claims.get(name))

    def _forget(self, pool: PoolName) -> None:
        """It is looked at, and counted, again."""
        self._pools.pop(pool, None)
        self._stale[pool] = None

    def _publish(self, name: str, said: ResourceSliceObserved | None) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            self._forget(_pool(before))
            _drop(self._published, _pool(before), name)
            for node in _nodes(before):
                here = self._local[node]
                here[_pool(before)] -= 1
                if not here[_pool(before)]:
                    _drop(self._local, node, _pool(before))
        if said is not None:
            self._slices[name] = said
            self._forget(_pool(said))
            self._published.setdefault(_pool(said), {})[name] = None
            for node in _nodes(said):
                here = self._local.setdefault(node, {})
                here[_pool(said)] = here.get(_pool(said), 0) + 1

    def _claim(self, name: str, said: ResourceClaimObserved | None) -> None:
        before = self._claims.pop(name, None)
        for pool, one in _got(before):
            self._forget(pool)
            _drop(self._taken, pool, (one.device, name))
        for pod in before.reserved if before is not None else ():
            _drop(self._reserved, pod, name)
        if said is None:
            return
        self._claims[name] = said
        for pool, one in _got(said):
            self._forget(pool)
            self._taken.setdefault(pool, {})[one.device, name] = one
        for pod in said.reserved:
            self._reserved.setdefault(pod, {})[name] = None

    # -- what there is -------------------------------------------------------------------------------------------------

    def pools(self) -> list[PoolName]:
        return sorted({**self._published, **self._taken})

    def pool(self, name: PoolName) -> tuple[ClaimDevice, ...]:
        """By name; also devices that claims have and that are not published any more."""
        known = self._pools.get(name)
        if known is None:
            known = self._pools[name] = tuple(_devices(name, [self._slices[one] for one in self._published.get(name, ())], self._taken.get(name, {})))
        return known

    def is_complete(self, name: PoolName) -> bool:
        """Whether all slices of its newest generation are there: else nobody gets any of its devices."""
        current = _newest([self._slices[one] for one in self._published.get(name, ())])
        return _complete(current)

    def counters_left(self, name: PoolName) -> Counter[tuple[str, str]]:
        """Of the counters that devices of a pool share what nobody has, by set and name."""
        current = _newest([self._slices[one] for one in self._published.get(name, ())])
        taken = {device for device, _ in self._taken.get(name, {})}
        return _left(current, [device for one in current for device in one.devices if device.name in taken])

    def order(self, name: PoolName) -> dict[str, int]:
        """Of each device of a pool when kube-scheduler comes to it (1.36: `pools_incubating.go`, slices by their names), by name."""
        current = _newest([self._slices[one] for one in self._published.get(name, ())])
        return {device: i for i, device in enumerate(device.name for one in current for device in one.devices)}

    def on(self, node: NodeName) -> list[ClaimDevice]:
        """Devices that this node alone has, by driver, pool and name."""
        return [device for pool in sorted(self._local.get(node, ())) for device in self.pool(pool) if device.node == node]

    def by_driver_on(self, node: NodeName) -> dict[str, list[ClaimDevice]]:
        """The same by driver."""
        return {driver: list(devices) for driver, devices in groupby(self.on(node), key=lambda one: one.driver)}

    def claim(self, name: str) -> list[ClaimDevice]:
        """What a claim has, as far as it is known."""
        found: dict[PoolName, set[str]] = {}
        for pool, one in _got(self._claims.get(name)):
            found.setdefault(pool, set()).add(one.device)
        return [device for pool, names in found.items() for device in self.pool(pool) if device.name in names]

    def reserved_for(self, pod: PodUid) -> list[str]:
        """Claims that a pod may use, by `namespace/name`."""
        return sorted(self._reserved.get(pod, ()))

    def by_driver(self) -> dict[str, Count]:
        """O(what has changed since it was last asked)."""
        for pool in self._stale:
            driver = pool[0]
            counts = self._counts.setdefault(driver, {})
            before = counts.pop(pool, None)
            if before is not None:
                self._totals[driver] -= before
            if pool in self._published or pool in self._taken:
                counts[pool] = count(self.pool(pool))
                self._totals[driver] = self._totals.get(driver, Count()) + counts[pool]
            if not counts:
                del self._counts[driver]
                self._totals.pop(driver, None)
        self._stale.clear()
        return dict(sorted(self._totals.items()))


def claim_devices(state: ClusterState) -> ClaimDevices:
    return kept(state, ClaimDevices)


def users(state: ClusterState, claims: Iterable[str]) -> tuple[str, ...]:
    """The pods that these claims are reserved for, by `namespace/name`; a pod that is not known by its uid."""
    pods = dict.fromkeys(pod for claim in claims if claim in state.resource_claims for pod in state.resource_claims[claim].reserved)
    return tuple(pod if fact is None else f"{fact.namespace}/{fact.name}" for pod in pods for fact in (state.fact_of(pod),))


def count(devices: Iterable[ClaimDevice]) -> Count:
    """Of one driver's devices: of whole pools, or of all that a node has."""
    many = allocated = free = 0
    wholes, busy, had = set(), set(), set()
    for device in devices:
        if device.published is None:
            continue
        of = [(device.pool, whole) for whole in device.wholes]
        many += 1
        wholes.update(of)
        if device.claims:
            allocated += 1
            busy.update(of)
        elif device.free:
            free += 1
            had.update(of)
    return Count(many, allocated, free, len(wholes), len(had - busy))


def _pool(said: ResourceSliceObserved) -> PoolName:
    return said.driver, said.pool


def _nodes(said: ResourceSliceObserved) -> set[NodeName]:
    return {name for name in (said.node, *(device.node for device in said.devices)) if name}


def _got(claim: ResourceClaimObserved | None) -> Iterator[tuple[PoolName, AllocatedDevice]]:
    """Access for monitoring takes nothing from anybody."""
    for one in claim.allocated if claim is not None else ():
        if not one.admin:
            yield (one.driver, one.pool), one


def _drop(index: dict[Any, dict[Any, Any]], key: Any, one: Any) -> None:
    of = index.get(key, {})
    of.pop(one, None)
    if not of:
        index.pop(key, None)


def _devices(pool: PoolName, slices: list[ResourceSliceObserved], taken: dict[tuple[str, str], AllocatedDevice]) -> Iterator[ClaimDevice]:
    current = _newest(slices)
    complete = _complete(current)
    holders: dict[str, list[str]] = {}
    for device, claim in sorted(taken):
        holders.setdefault(device, []).append(claim)
    listed = {device.name: (device, one) for one in current for device in one.devices}
    left = _left(current, [listed[name][0] for name in holders if name in listed])
    for name in sorted({*listed, *holders}):
        claims = tuple(holders.get(name, ()))
        if name not in listed:
            yield ClaimDevice(*pool, name, NodeName(""), {}, None, claims, OUTDATED, ())
            continue
        published, said = listed[name]
        state = _state(published, claims, left, complete)
        yield ClaimDevice(*pool, name, said.node or published.node, said.common, published, claims, state, _wholes(published, said.common))


def _newest(slices: list[ResourceSliceObserved]) -> list[ResourceSliceObserved]:
    newest = max((one.generation for one in slices), default=0)
    return sorted((one for one in slices if one.generation == newest), key=lambda one: one.name)


def _complete(current: list[ResourceSliceObserved]) -> bool:
    return bool(current) and len(current) >= current[0].slices


def _left(slices: list[ResourceSliceObserved], having: list[PublishedDevice]) -> Counter[tuple[str, str]]:
    """Of each counter of each set what nobody has."""
    left = Counter({(of.name, name): amount for one in slices for of in one.counters for name, amount in of.counters.items()})
    for device in having:
        left.subtract(_uses(device.consumes))
    return left


def _uses(consumes: tuple[CounterSet, ...]) -> dict[tuple[str, str], int]:
    return {(of.name, name): amount for of in consumes for name, amount in of.counters.items()}


def _state(device: PublishedDevice, claims: tuple[str, ...], left: Counter[tuple[str, str]], complete: bool) -> str:
    if claims:
        return TAKEN
    for of in device.consumes:
        for name, amount in of.counters.items():
            if left[of.name, name] < amount:
                return PARTS_TAKEN
    if not complete:
        return INCOMPLETE
    return TAINTED if any(taint.effect in CLOSED for taint in device.taints) else ""


def _wholes(device: PublishedDevice, common: dict[str, str]) -> tuple[str, ...]:
    if device.consumes:
        return tuple(of.name for of in device.consumes)
    return (device.attributes.get(PARENT) or common.get(PARENT) or device.name,)
