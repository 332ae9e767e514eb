"""What is charged to nodes and queues, and what takes precedence over others when something is freed."""

from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.contracts.ids import (
    NodeName,
    PodUid,
    ReservationUid,
    SlotName,
)
from restow.domain import groups
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.maps import NODE_LOST, OVER, Maps
from restow.domain.records import (
    Charge,
    Nomination,
    Slot,
)
from restow.domain.table import Kind, vector_of


class Charges(Maps):
    """Keeps the node table, the accounts and their indexes what facts and intents say."""

    # -- charges -----------------------------------------------------------------------------------------------------

    def node_of(self, pod: PodUid) -> NodeName | None:
        """Facts beat intents: a pod's node is its fact's, otherwise the session's (DESIGN 5)."""
        live = self.live.get(pod)
        if live is not None and live.node is not None:
            return live.node
        placement = self.placed.get(pod)
        return None if placement is None else placement.node

    def settle(self, pod: PodUid) -> None:
        """Make the charge of a pod what facts and intents say it is."""
        self.moved.append(pod)
        self._note_binding(pod)
        wanted = self._wanted_charge(pod)
        if wanted is not None and wanted.node not in self.table.rows:
            self.put(self.homeless, pod, wanted.node)
            wanted = None
        else:
            self.drop(self.homeless, pod)
        old = self.charges.get(pod)
        if old == wanted:
            return
        if old is not None:
            self._uncharge(pod, old)
        if wanted is not None:
            self._recharge(pod, wanted)
        if old is not None:
            self.top_up(old.node)

    def _note_binding(self, pod: PodUid) -> None:
        placement, live = self.placed.get(pod), self.live.get(pod)
        if placement is not None and placement.volumes and live is not None and live.node is None:
            self.put(self.binding, pod, None)
        else:
            self.drop(self.binding, pod)

    def _wanted_charge(self, pod: PodUid) -> Charge | None:
        observed, live = self.pods.get(pod), self.live.get(pod)
        node = self.node_of(pod)
        if observed is None or live is None or node is None or live.phase in OVER:
            return None
        old = self.charges.get(pod)
        devices = live.devices
        placement = self.placed.get(pod)
        if not devices and placement is not None and placement.node == node:
            devices = placement.devices
        request = self.shapes[observed.shape].devices
        if not devices and request is not None:
            if old is not None and old.node == node and old.shape == observed.shape:
                devices = old.devices
            else:
                row = self.table.rows.get(node)
                devices = () if row is None else self.table.choose_devices(row, request) or ()
        releasing = live.deleting > 0
        return Charge(node, observed.shape, devices, releasing, "" if releasing else self.queue_of(observed))

    def queue_of(self, pod: PodObserved) -> str:
        """The queue that a pod of ours is accounted to; empty for others."""
        if not self.ours(pod):
            return ""
        if not pod.annotations:
            return DEFAULT_QUEUE
        group = groups.group_of(pod)
        known = self.pod_groups.get(group) if group is not None else None
        said = known.queue if known is not None else groups.queue_annotation(pod)
        return said or DEFAULT_QUEUE

    def _uncharge(self, pod: PodUid, charge: Charge) -> None:
        row = self.table.rows.get(charge.node)
        v = self.vectors[charge.shape]
        if row is not None:
            self._charge(row, v, charge.devices, -1, Kind.RELEASING if charge.releasing else Kind.USED)
        self._account(charge.queue, v, -1)
        self.drop(self.charges, pod)
        self.drop_in(self.on_node, charge.node, pod)
        self.capacity_epoch += 1

    def _recharge(self, pod: PodUid, charge: Charge) -> None:
        row = self.table.rows[charge.node]
        v = self.vectors[charge.shape]
        self._charge(row, v, charge.devices, 1, Kind.RELEASING if charge.releasing else Kind.USED)
        self._account(charge.queue, v, 1)
        self.put(self.charges, pod, charge)
        self.put_in(self.on_node, charge.node, pod)
        if self.sociable:
            self.capacity_epoch += 1  # somebody may have waited for company

    def hold(self, reservation: ReservationUid, slot: SlotName, held: Slot) -> None:
        """Charge a held place. On a node that has vanished since the decision it is lost at once."""
        self.moved.append((reservation, slot))
        row = self.table.rows.get(held.node)
        if row is None:
            self.put(self.to_release, (reservation, slot), NODE_LOST)
            return
        v = self.vectors[held.shape]
        self._charge(row, v, held.devices, 1, Kind.HELD)
        self._account(held.queue, v, 1)
        self.put_in(self.held_on, held.node, (reservation, slot))

    def unhold(self, reservation: ReservationUid, slot: SlotName, held: Slot) -> None:
        """Take the charge of a held place back. The caller tops nominations up when what follows is charged."""
        self.moved.append((reservation, slot))
        self.drop(self.to_release, (reservation, slot))
        if (reservation, slot) in self.held_on.get(held.node, ()):
            v = self.vectors[held.shape]
            self._charge(self.table.rows[held.node], v, held.devices, -1, Kind.HELD)
            self._account(held.queue, v, -1)
            self.drop_in(self.held_on, held.node, (reservation, slot))
            self.capacity_epoch += 1

    # -- nominations -------------------------------------------------------------------------------------------------

    def nominate(self, pod: PodUid, nomination: Nomination) -> None:
        """Hold what is free on the node now; the rest as it is freed. Another nomination of the pod ends."""
        self.denominate(pod)
        if nomination.node not in self.table.rows:
            return
        self.put(self.nominations, pod, nomination)
        self.put_in(self.nominated_on, nomination.node, pod)
        self.top_up(nomination.node)

    def denominate(self, pod: PodUid, placing: bool = False) -> None:
        """Nothing is held for it any more. `placing`: the pod is charged next, and the caller tops up after that."""
        nomination = self.drop(self.nominations, pod)
        if nomination is None:
            return
        self.drop_in(self.nominated_on, nomination.node, pod)
        for victim in nomination.victims:
            # Who has not been told to go yet stays: nobody needs its room any more.
            chosen = self.victims_of.get(victim)
            if chosen is not None and chosen.by == pod:
                self.drop(self.victims_of, victim)
                self.touched.pods[victim] = None
        row = self.table.rows.get(nomination.node)
        if row is not None and (nomination.held or nomination.held_devices):
            self._charge(row, vector_of(nomination.held), nomination.held_devices, -1, Kind.HELD)
        self.capacity_epoch += 1
        if not placing:
            self.top_up(nomination.node)

    def top_up(self, node: NodeName) -> None:
        """What is free on a node goes to its nominations first, in their order."""
        nominated = self.nominated_on.get(node)
        row = self.table.rows.get(node)
        if not nominated or row is None:
            return
        for pod in list(nominated):
            nomination = self.nominations[pod]
            if nomination.complete:
                continue
            free, held = self.table.free[row].tolist(), dict(nomination.held)
            more = []
            for column, amount in nomination.wanted:
                take = min(amount - held.get(column, 0), max(free[column], 0))
                if take > 0:
                    more.append((column, take))
                    held[column] = held.get(column, 0) + take
            shares = self.table.device_free[row].tolist()
            devices = tuple(
                d for d in nomination.devices
                if d not in nomination.held_devices and d.index < len(shares) and shares[d.index] >= d.milli
            )
            if not more and not devices:
                continue
            self._charge(row, vector_of(more), devices, 1, Kind.HELD)
            topped = replace(
                nomination,
                held=tuple((c, held[c]) for c, _ in nomination.wanted if c in held),
                held_devices=tuple(d for d in nomination.devices if d in nomination.held_devices or d in devices),
            )
            self.put(self.nominations, pod, topped)

    def reserve(self, pod: PodUid, node: NodeName) -> None:
        """A starving job's task waits for this node (seed 002)."""
        self.unreserve(pod)
        self.put(self.reserved_tasks, pod, node)
        self.put_in(self.reserved_on, node, pod)

    def unreserve(self, pod: PodUid) -> None:
        node = self.drop(self.reserved_tasks, pod)
        if node is not None:
            self.drop_in(self.reserved_on, node, pod)
            self.capacity_epoch += 1

    def ours(self, pod: PodObserved) -> bool:
        """Whether Restow schedules this pod."""
        return self.shapes[pod.shape].scheduler in self.session_config.scheduler_names
