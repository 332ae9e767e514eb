"""What a session sees: where pods fit now, by every rule, on nodes as the session has charged them."""

from collections.abc import Hashable, Mapping

import msgspec
import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import ClaimChoice, DeviceShare
from restow.domain import predicates
from restow.domain.records import Slot
from restow.domain.session.extensions import Extensions
from restow.domain.session.framework import CAPACITY, STAGES, Filter, Within
from restow.domain.session.hold_offers import Offers
from restow.domain.session.jobs import is_best_effort
from restow.domain.session.journal import Journal
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.session.one_reusable_per_node import OneReusablePerNode
from restow.domain.session.placer import Placer
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState

EquivalenceClass = Hashable
"""What pods have in common that every rule treats alike: they fit on the same nodes."""


NOWHERE: Mapping[PodUid, int] = {}
"""No pod is meant for a row: each goes to its best one."""

NOBODYS = (-1,)
"""In place of the classes of holds that a pod owns: looked at anew for the next one."""


class Fit(msgspec.Struct, gc=False):
    """Where a pod goes: `row`, with these devices, volumes and CPUs. `borrows` are holds whose capacity it gets; a slot
    that is `waiting` takes only what is free."""

    row: int
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[int, ...] = ()
    borrows: tuple[SlotKey, ...] = ()
    waiting: bool = False


class View:
    """The node snapshot, what plugins have registered, and the holds that may be handed over. Asking changes nothing."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.journal = Journal()
        self.nodes = NodeSnapshot(state.table, self.journal)
        self.extensions = Extensions()
        self.placements: dict[PodUid, Fit] = {}
        """Where this session has put pods, and slots of Reservations as pods."""
        self.offers = Offers(state, self, self.journal)
        self.meant = NOWHERE
        """By pod of a gang the row where it leaves capacity for the others."""
        self.within: Within | None = None
        """The block that a gang is tried in."""
        self.left: set[SlotKey] = set()
        """Holds that this session has taken from their nodes."""
        self.told = 0
        """How often rules were told that somebody has come or gone."""
        self._reasons: dict[EquivalenceClass, tuple[int, tuple[int, dict[str, int]]]] = {}
        self._aside: dict[SlotKey, None] = {}
        """Holds that rules do not see at present: those that the pod owns which was judged last."""
        self._owned: tuple[int, ...] = ()
        self._best_effort: dict[ShapeId, bool] = {}

    def ready(self) -> None:
        """All plugins have registered."""
        self.extensions.filters = [rule for rule in self.extensions.filters if rule.active]
        if (alone := OneReusablePerNode(self.state)).active:
            self.extensions.filters.append(alone)
            self.extensions.filters.sort(key=lambda rule: STAGES.index(rule.stage))
        self.extensions.dynamic = [scorer for scorer in self.extensions.dynamic if scorer.active]
        scorers = tuple(self.extensions.content), tuple(self.extensions.static)
        self.placer = Placer(self.state, self.nodes, scorers)

    def close(self) -> None:
        """Nothing of the session is left on what outlives it."""
        for rule in self.extensions.filters:
            rule.close()
        self.nodes.close()

    @property
    def moves(self) -> int:
        """Grows with whatever the session changes: as long as it does not, the same question has the same answer."""
        return self.told + len(self.nodes.changes) + self.offers.changes

    def concerned(self, pod: e.PodObserved) -> list[Filter]:
        """The rules that can remove nodes for this pod now, in their order."""
        if self.offers.owned:
            self.look_as(pod)
        return [rule for rule in self.extensions.filters if rule.concerns(pod)]

    def is_best_effort(self, shape: ShapeId) -> bool:
        known = self._best_effort.get(shape)
        if known is None:
            known = self._best_effort[shape] = is_best_effort(self.state.shapes[shape])
        return known

    def equivalence_class(self, pod: e.PodObserved, concerned: list[Filter]) -> EquivalenceClass:
        if not concerned:
            return pod.shape, pod.pinned_node
        owned = tuple([one.number for one in self.offers.own(pod)])
        return pod.shape, pod.pinned_node, owned, *[rule.key(pod) for rule in concerned]

    def alike(self, pod: e.PodObserved) -> EquivalenceClass:
        """What it has in common with pods that every rule treats as it."""
        return self.equivalence_class(pod, self.concerned(pod))

    def look_as(self, pod: e.PodObserved) -> None:
        """Rules about what runs do not see the holds that this pod owns: no hold is in its own owner's way."""
        if not self.offers.owned:
            return
        classes = self.offers.own(pod)
        owned = tuple([one.number for one in classes])
        if owned == self._owned:
            return
        wanted = {key: None for one in classes for key in one.all if key not in self.left}
        for key in [key for key in self._aside if key not in wanted]:
            self._tell("restored", key)
        for key in wanted:
            if key not in self._aside:
                self._tell("vacated", key)
        self._aside, self._owned = wanted, owned

    def _tell(self, what: str, key: SlotKey) -> None:
        for rule in self.extensions.filters:
            if not rule.of_capacity:
                getattr(rule, what)(key)

    def find(self, pod: e.PodObserved) -> Fit | None:
        """The best node for a pod, with devices and volumes; None where it fits nowhere."""
        row = self.best_row(pod, self.concerned(pod))
        return None if row is None else self.fit_at(pod, row)

    def fit_at(self, pod: e.PodObserved, row: int) -> Fit:
        """What it gets on a node that it fits on."""
        shape = self.state.shapes[pod.shape]
        if not pod.claims and shape.devices is None and shape.cores is None:
            return Fit(row)
        devices = self.choose_devices(pod.shape, row)
        volumes = self.extensions.volumes.choose(pod, row) if pod.claims and self.extensions.volumes is not None else ()
        return Fit(row, devices, volumes, self.choose_cores(pod, row) or ())

    def choose_cores(self, pod: e.PodObserved, row: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """CPUs of its own on a row, of `preferred` first; None where it does not get them."""
        if self.state.shapes[pod.shape].cores is None or self.extensions.cores is None:
            return ()
        return self.extensions.cores.choose(pod, row, preferred)

    def choose_devices(self, shape: ShapeId, row: int) -> tuple[DeviceShare, ...]:
        request = self.state.shapes[shape].devices
        if request is None:
            return ()
        if self.extensions.devices is not None:
            return self.extensions.devices(shape, row)
        return self.state.table.choose_devices(row, request) or ()

    def best_row(self, pod: e.PodObserved, concerned: list[Filter]) -> int | None:
        if pod.pinned_node:
            row = self.state.table.rows.get(pod.pinned_node)
            if row is None or not self.fits_at(pod, row, concerned):
                return None
            return row
        if self.meant and (meant := self.meant.get(pod.pod)) is not None and self.fits_at(pod, meant, concerned):
            return meant
        reserved = self.state.reserved_tasks.get(pod.pod)
        if reserved is not None and self.fits_at(pod, row := self.state.table.rows[reserved], concerned):
            return row
        if self.offers.owned:
            self.look_as(pod)
        dynamic = [scorer for scorer in self.extensions.dynamic if scorer.concerns(pod)] if self.extensions.dynamic else ()
        if not concerned and not dynamic:
            return self.placer.best(pod.shape)
        keys, fits = self.placer.keys(pod.shape), self._fitting(pod, concerned)
        if not fits.any():
            return None
        for scorer in dynamic:
            scores = scorer.scores(pod, fits)
            if scores is not None:
                keys = keys + scores * self.placer.unit
        return int(np.where(fits, keys, -1).argmax())

    def fitting(self, pod: e.PodObserved) -> np.ndarray:
        """`(nodes,) bool`: rows that every rule lets the pod run on now."""
        rows = self._fitting(pod, self.concerned(pod))
        return rows & predicates.only(self.state, pod.pinned_node) if pod.pinned_node else rows

    def _fitting(self, pod: e.PodObserved, concerned: list[Filter]) -> np.ndarray:
        rows = self.placer.keys(pod.shape) >= 0
        for rule in concerned:
            for _, failing in rule.failing(pod):
                rows &= ~failing
        return rows

    def fits_at(self, pod: e.PodObserved, row: int, concerned: list[Filter]) -> bool:
        """Whether every rule lets the pod run on this row."""
        if not self.placer.fits(pod.shape, row):
            return False
        if concerned:
            self.look_as(pod)
        return not any(failing[row] for rule in concerned for _, failing in rule.failing(pod))

    def reasons(self, pod: e.PodObserved) -> tuple[int, dict[str, int]]:
        """How many nodes there are, and how many each rule removes; counted once for a class while no row changes."""
        concerned = self.concerned(pod)
        equivalence_class, changes = self.equivalence_class(pod, concerned), len(self.nodes.changes)
        known = self._reasons.get(equivalence_class)
        if known is None or known[0] != changes:
            found = [(STAGES.index(rule.stage) < CAPACITY, rule.failing(pod)) for rule in concerned]
            known = self._reasons[equivalence_class] = changes, predicates.reasons(self.state, pod.shape, pod.pinned_node, found)
        return known[1]

    def admits(
        self, pod: e.PodObserved, row: int, hold: SlotKey, slot: Slot, equal: bool
    ) -> tuple[int, ...] | None:
        """The CPUs that the pod gets there in place of the hold, None where rules that depend on what runs do not let it run
        there. Where specs are `equal` only volumes and CPUs count: a pod cannot start without them."""
        volumes = self.extensions.volumes
        shape = self.state.shapes[pod.shape]
        if shape.unreadable or (shape.resource_claims and self.state.ours(pod)):
            return None
        if pod.claims and volumes is not None and volumes.waits(pod):
            return None
        concerned = [rule for rule in self.concerned(pod) if rule is not self.extensions.cores and not rule.for_others]
        if equal:
            concerned = [rule for rule in concerned if rule is volumes]
        if concerned and self._fails(pod, row, hold, concerned):
            return None
        return self.choose_cores(pod, row, slot.capacity.cores)

    def _fails(self, pod: e.PodObserved, row: int, hold: SlotKey, concerned: list[Filter]) -> bool:
        # All are told, for one that refuses nothing itself keeps the index of the others.
        told = [rule for rule in self.extensions.filters if hold not in self._aside or rule.of_capacity]
        for rule in told:
            rule.vacated(hold)
        failing = any(bool(rows[row]) for rule in concerned for _, rows in rule.failing(pod))
        for rule in told:
            rule.restored(hold)
        return failing

    def name(self, row: int) -> NodeName:
        return NodeName(self.state.table.names[row])
