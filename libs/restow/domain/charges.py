"""What is charged to nodes and queues, and what takes precedence over others when something is freed."""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter

from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import DeviceShare
from restow.domain import groups
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.allocations import Allocations
from restow.domain.beside import is_body
from restow.domain.node_table import WHOLE, ChargedAs
from restow.domain.records import Charge
from restow.domain.state_maps import OVER

FEW = 12
"""From so many charges on, arrays are faster than one by one."""
_ACCOUNT = attrgetter("queue", "shape")


class Charges(Allocations):
    """Keeps the node table, the accounts and their indexes what facts and intents say of pods."""

    __slots__ = ()

    # -- charges -----------------------------------------------------------------------------------------------------

    def node_of(self, pod: PodUid) -> NodeName | None:
        """Facts beat intents: a pod's node is its fact's, otherwise the session's (DESIGN 5)."""
        live = self.live_of(pod)
        if live is not None and live.node is not None:
            return live.node
        placement = self.placed.get(pod)
        return None if placement is None else placement.node

    def settle(self, pod: PodUid) -> None:
        """Make the charge of a pod what facts and intents say it is; what it drew of a hold and does not use comes back."""
        self.moved.append(pod)
        self._note_binding(pod)
        wanted = self._wanted_charge(pod)
        if wanted is not None and wanted.node not in self.table.rows:
            self.put(self.homeless, pod, wanted.node)
            wanted = None
        else:
            self.drop(self.homeless, pod)
        old = self.charges.get(pod)
        if old != wanted and old is not None:
            self._uncharge(pod, old)
        if pod in self.allocations:
            self._settle_allocation(pod, wanted)
        if old == wanted:
            return
        if wanted is not None:
            self._recharge(pod, wanted)
            self.squeeze(wanted.node)
            self.yield_cores(wanted.node, wanted.cores)
        if old is not None:
            self.top_up(old.node)

    def recharge_together(self, pods: Sequence[PodUid], change: Callable[[], None]) -> None:
        """This changes where pods are that ask for the same, and leaves as much of each node: no hold gives way, or is filled up, in between."""
        for pod in pods:
            if (old := self.charges.get(pod)) is not None:
                self._uncharge(pod, old)
        change()
        for pod in pods:
            wanted = self._wanted_charge(pod)
            if wanted is not None and wanted.node in self.table.rows:
                self._recharge(pod, wanted)

    def _settle_allocation(self, pod: PodUid, wanted: Charge | None) -> None:
        """What is allocated stays allocated as long as the pod is charged to the hold's node."""
        allocation, live = self.allocations[pod], self.live_of(pod)
        if not allocation.bound and live is not None and live.node == allocation.node:
            # Also where it is over when it is first seen there.
            self.put(self.allocations, pod, replace(allocation, bound=True))
        if wanted is None or wanted.node != allocation.node:
            self.deallocate(pod)
        else:
            self.allocate_less(pod, self.vectors[wanted.shape].items)

    def _note_binding(self, pod: PodUid) -> None:
        placement, live = self.placed.get(pod), self.live_of(pod)
        if placement is not None and placement.volumes and live is not None and live.node is None:
            self.put(self.binding, pod, None)
        else:
            self.drop(self.binding, pod)

    def _wanted_charge(self, pod: PodUid) -> Charge | None:
        known, node = self.pods.get(pod), self.node_of(pod)
        if known is None or node is None or known.live.phase in OVER or (pod in self.placeholders and is_body(self, pod)):
            return None
        observed, live = known.fact, known.live
        old = self.charges.get(pod)
        devices, cores = live.devices, live.cores
        placement = self.placed.get(pod)
        if placement is not None and placement.node == node and (live.node is None or self.ours(observed)):
            devices, cores = devices or placement.devices, cores or placement.cores
        shape, has = self.shapes[observed.shape], old if old is not None and old.node == node else None
        if has is not None and shape.unreadable:
            # What it was given is not said any more; it still has that.
            devices, cores = devices or has.devices, cores or has.cores
        if not devices and shape.devices is not None and not self._is_unsaid(pod, node):
            if has is not None and self.shapes[has.shape].devices == shape.devices:
                devices = has.devices
            else:
                row = self.table.rows.get(node)
                devices = () if row is None else self.table.choose_devices(row, shape.devices) or ()
        releasing = live.deleting > 0
        queue = "" if releasing else self.queue_of(observed)
        return Charge(node, observed.shape, devices, releasing, queue, cores)

    def _is_unsaid(self, pod: PodUid, node: NodeName) -> bool:
        """Whether nobody says which devices a pod has on its node: its scheduler knows their count only, or our session has left the choice to
        the node's device plugin. A guess would keep others from a device that is free, and send them to one that is not."""
        placement = self.placed.get(pod)
        if placement is not None and placement.node == node and not placement.devices:
            return True
        return self.live_of(pod).node == node and not self.ours(self.pods[pod].fact)  # type: ignore[union-attr]

    def devices_of(self, pod: PodUid) -> tuple[DeviceShare, ...]:
        """The devices that are free when a pod goes: its own, or, where nobody says which these are, as many of those that are taken for such
        pods on its node, for each pod other ones."""
        charge = self.charges[pod]
        request = self.vectors[charge.shape].devices
        if charge.devices or request is None:
            return charge.devices
        before = 0
        for uid in self.on_node[charge.node]:
            if uid == pod:
                break
            other = self.charges[uid]
            if not other.devices and (asked := self.vectors[other.shape].devices) is not None:
                before += asked.count
        taken = self.table.taken_unsaid(self.table.rows[charge.node])
        return tuple(DeviceShare(i, WHOLE) for i in sorted(taken[before : before + request.count]))

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
            self._charge(row, v, charge.devices, -1, ChargedAs.RELEASING if charge.releasing else ChargedAs.USED)
        self.account(charge.queue, v, -1)
        self.drop(self.charges, pod)
        self.drop_in(self.on_node, charge.node, pod)
        self.capacity_epoch += 1

    def _recharge(self, pod: PodUid, charge: Charge) -> None:
        row = self.table.rows[charge.node]
        v = self.vectors[charge.shape]
        self._charge(row, v, charge.devices, 1, ChargedAs.RELEASING if charge.releasing else ChargedAs.USED)
        self.account(charge.queue, v, 1)
        self.put(self.charges, pod, charge)
        self.put_in(self.on_node, charge.node, pod)
        if self.sociable:
            self.capacity_epoch += 1  # somebody may have waited for company

    def charge_many(self, charges: Sequence[Charge], sign: int) -> None:
        """Add (`sign` 1) or take back (-1) what these say, in the table and the accounts alone. Not in a draft."""
        table, vectors = self.table, self.vectors
        releasing = [c for c in charges if c.releasing]
        used = [c for c in charges if not c.releasing] if releasing else charges
        for charged_as, some in ((ChargedAs.USED, used), (ChargedAs.RELEASING, releasing)):
            if len(some) < FEW:
                for c in some:
                    table.charge(table.rows[c.node], vectors[c.shape], c.devices, sign, charged_as)
            else:
                table.charge_many([table.rows[c.node] for c in some], [vectors[c.shape] for c in some], [c.devices for c in some], sign, charged_as)
        for (queue, shape), times in Counter(map(_ACCOUNT, charges)).items():
            if queue:
                self.accounts.add(queue, self.vectors[shape], times * sign)
                self.touched.queues[queue] = None

    # -- nodes that starving jobs wait for --------------------------------------------------------------------------

    def reserve(self, pod: PodUid, node: NodeName) -> None:
        """A starving job's task waits for this node (seed 002)."""
        self.unreserve(pod)
        self.put(self.reserved_tasks, pod, node)
        self.put_in(self.reserved_on, node, pod)
        self.capacity_epoch += 1  # its node is open to it now, and what is idle there may do

    def unreserve(self, pod: PodUid) -> None:
        node = self.drop(self.reserved_tasks, pod)
        if node is not None:
            self.drop_in(self.reserved_on, node, pod)
            self.capacity_epoch += 1

    def ours(self, pod: PodObserved) -> bool:
        """Whether Restow schedules this pod."""
        return self.shapes[pod.shape].scheduler in self.session_config.scheduler_names
