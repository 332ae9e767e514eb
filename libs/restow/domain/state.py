"""`ClusterState`: everything that follows from the log, and the few ways in which it may change.

Layers: `maps` holds what there is and takes drafts back, `slots` counts the slots of Reservations, `held_capacity`, `allocations` and
`charges` keep the node table and the accounts right for what is kept and what runs, and this module knows who waits. `evolve`
holds the rules of the fold.
"""

from collections.abc import Iterator

from restow.contracts.events import PodObserved, WorkloadObserved
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.values import OwnerRef, PodShape
from restow.domain import groups
from restow.domain.charges import Charges
from restow.domain.pod_controllers import FAMILY, family_of, role_of
from restow.domain.record_trust import KINDS
from restow.domain.state_maps import NODE_LOST as NODE_LOST
from restow.domain.state_maps import OVER as OVER
from restow.domain.state_maps import Parked as Parked
from restow.domain.state_maps import Touched as Touched
from restow.domain.state_maps import Under as Under


def turn(priority: int, order: int) -> int:
    """When it is considered: the higher priority first, then what came first. One integer, for it is compared a lot."""
    return ((1 << 31) - priority << 40) + order


def is_sociable(shape: PodShape) -> bool:
    """Whether a pod of this shape may fit because another pod has come: required affinity, or a hard spread."""
    return any(not t.weight for t in shape.pod_affinity) or any(s.is_hard for s in shape.spread)


class ClusterState(Charges):
    """The fold of the log. Read it freely; change it only by folding (`restow.domain.fold`)."""

    __slots__ = ()

    # -- questions that several deciders ask -------------------------------------------------------------------------

    def awaits_placement(self, pod: PodUid) -> bool:
        """Whether the session should find a node for it, or, for one of another scheduler that only our gate keeps from it, a slot."""
        known = self.pods.get(pod)
        return (
            known is not None
            and (live := known.live).node is None
            and live.phase == "Pending"
            and not live.deleting
            and pod not in self.placed
            and (not known.fact.gated if self.ours(known.fact) else known.fact.landing or self._follows_ungated(known.fact))
        )

    def _follows_ungated(self, pod: PodObserved) -> bool:
        """Whether a slot may be left to a pod of another scheduler that the API has not gated: its policy is away. It may come too late."""
        return bool(self.armed) and not pod.gated and self.lineage(pod) in self.armed

    def requeue(self, pod: PodUid) -> None:
        """Put a pod into the session's queue, or take it out, as facts and intents say."""
        awaits = self.awaits_placement(pod)
        known = self.pods.get(pod)
        ours = known is not None and self.ours(known.fact)
        self._regate(pod, awaits and not ours, ours and self._is_gated_in_vain(pod))
        self._note_nominee(pod, ours)
        if awaits and ours:
            if pod not in self.queue and pod not in self.parked and pod not in self.nominations:
                self.put(self.queue, pod, self.turn(pod))
        else:
            self.drop(self.queue, pod)
            self.unpark(pod)
            if pod in self.nominations:
                self.denominate(pod)
            if pod in self.reserved_tasks:
                self.unreserve(pod)

    def _note_nominee(self, pod: PodUid, ours: bool) -> None:
        """Whether another scheduler keeps capacity for it. (What a slot was handed over to is charged already.)"""
        known = self.pods.get(pod)
        node = known.fact.nominated if known is not None and not ours else NodeName("")
        if node and known is not None and known.live.node is None and known.live.phase == "Pending" and not known.live.deleting and pod not in self.placed:
            if self.nominees.get(pod) != node:
                self.put(self.nominees, pod, node)
                self.capacity_epoch += 1
        elif pod in self.nominees:
            self.drop(self.nominees, pod)
            self.capacity_epoch += 1

    def _is_gated_in_vain(self, pod: PodUid) -> bool:
        """Of ours: whether our gate, which is for pods of other schedulers, is on it. Who gates looks at its controller, or at its labels."""
        known = self.pods.get(pod)
        if known is None or not (known.fact.gated and known.fact.landing) or pod in self.placed:
            return False
        return known.live.node is None and known.live.phase == "Pending" and not known.live.deleting

    def _regate(self, pod: PodUid, awaits: bool, in_vain: bool) -> None:
        """One of another scheduler: whether it waits for a slot, or a slot was handed over to it and it is not bound. `in_vain`: it is ours, and to be let go."""
        known = self.pods.get(pod)
        ours_to_land = pod in self.to_land or pod in self.gated
        if awaits or in_vain:
            if pod not in self.gated:
                self.put(self.gated, pod, None)
                self.capacity_epoch += 1  # a slot may wait for it, or it is let go
        else:
            self.drop(self.gated, pod)
            self.drop(self.passed, pod)
        if pod in self.not_let_go and (pod not in self.gated or known is None or not known.fact.landing):
            self.drop(self.not_let_go, pod)
        if ours_to_land and pod in self.placed and known is not None and known.live.node is None and not known.live.deleting:
            since = Millis(0) if known.fact.landing else self.to_land.get(pod) or self.time
            if self.to_land.get(pod) != since:
                self.put(self.to_land, pod, since)
        else:
            self.drop(self.to_land, pod)

    def declare(self, id: ShapeId, spec: PodShape) -> None:
        """What pods of this shape ask for. Where that is another thing than before (only a shape that nobody had declared was taken for one that
        asks for nothing), they are charged anew and wait in another turn."""
        known = self.shapes.get(id)
        other = known is not None and known != spec
        charged = {pod: charge for pod, charge in self.charges.items() if charge.shape == id} if other else {}
        for pod, charge in charged.items():
            self._uncharge(pod, charge)
        self.put(self.shapes, id, spec)
        self.put(self.vectors, id, self.table.vector(spec.requests, spec.devices))
        for pod, charge in charged.items():
            self._recharge(pod, charge)
        for pod in [uid for uid, known in self.pods.items() if known.fact.shape == id] if other else ():
            self.drop(self.queue, pod)
            self.unpark(pod)
            self.settle(pod)
            self.requeue(pod)
        for node in dict.fromkeys(charge.node for charge in charged.values()):
            self.squeeze(node)
            self.top_up(node)

    def turn(self, pod: PodUid) -> int:
        known = self.pods[pod]
        return turn(self.shapes[known.fact.shape].priority, known.order)

    def park(self, pod: PodUid, key: str, under: Under) -> None:
        """It cannot be placed now: out of the queue until something changes that may let it. `key` leads to why."""
        self.drop(self.queue, pod)
        self.unpark(pod)
        self.put(self.parked, pod, (key, under))
        self.parkings.append(pod)
        self.put_in(self.parked_under, under, pod)
        self.put(self.waiters, key, self.waiters.get(key, 0) + 1)
        if is_sociable(self.shapes[self.pods[pod].fact.shape]):
            self.put(self.sociable, pod, None)

    def unpark(self, pod: PodUid) -> None:
        parked = self.drop(self.parked, pod)
        if parked is None:
            return
        key, under = parked
        self.parkings.append(pod)
        self.drop_in(self.parked_under, under, pod)
        self.drop(self.sociable, pod)
        left = self.waiters[key] - 1
        if left:
            self.put(self.waiters, key, left)
        else:
            self.drop(self.waiters, key)
            self.drop(self.waiting, key)

    def regroup(self, before: PodObserved | None, after: PodObserved | None) -> None:
        """Keep the indexes of groups and owners right when a pod is seen, changes or goes."""
        was = before.owner.uid if before is not None and before.owner is not None else ""
        now = after.owner.uid if after is not None and after.owner is not None else ""
        if was != now:
            if was and before is not None:
                self.drop_in(self.owned, was, before.pod)
            if now and after is not None:
                self.put_in(self.owned, now, after.pod)
        old, new = (None if pod is None else groups.group_of(pod) for pod in (before, after))
        if old == new:
            return
        if old is not None and before is not None:
            self.drop_in(self.groups, old, before.pod)
        if new is not None and after is not None:
            self.put_in(self.groups, new, after.pod)

    def late_nominations(self, now: Millis) -> bool:
        """Whether some nomination is to be given up."""
        return any(n.deadline <= now and not self.awaits_an_end(pod) for pod, n in self.nominations.items())

    def whole_nominations(self) -> tuple[tuple[PodUid, int], ...]:
        """Those that have all of their capacity, with how many pods their gangs have."""
        return tuple((pod, self._members(pod)) for pod, n in self.nominations.items() if n.complete)

    def _members(self, pod: PodUid) -> int:
        group = groups.group_of(self.pods[pod].fact)
        return 0 if group is None else len(self.groups.get(group, ()))

    def awaits_an_end(self, pod: PodUid) -> bool:
        """Whether somebody is on the way out whose capacity a nominated pod waits for, or another pod of its gang does: however long
        the grace period, its deadline has not come (RULES G-14). Who was chosen and has not been told to go yet, because a
        budget refuses, is not on the way out."""
        group = groups.group_of(self.pods[pod].fact)
        mates = [u for u in self.groups.get(group, ()) if u in self.nominations] if group is not None else [pod]
        waits = False
        for mate in mates:
            nomination = self.nominations[mate]
            if any(victim in self.victims_of for victim in nomination.victims):
                return False
            if not nomination.complete and not waits:
                waits = any(self.charges[uid].releasing for uid in self.on_node.get(nomination.node, ()))
        return waits

    def stranded(self) -> list[PodUid]:
        """Pods that were placed on a node that has vanished before they were bound to it."""
        return [pod for pod in self.homeless if pod in self.placed and self.pods[pod].live.node is None]

    def lineage(self, pod: PodObserved) -> str:
        """What a successor has in common with this pod: its top controller, and its name where that is part of its
        identity (StatefulSet), or its role where the controller has several (RULES G-12). Empty for a bare pod."""
        if pod.owner is None:
            return ""
        if pod.owner.kind == "StatefulSet":
            return f"{family_of(pod) or pod.owner.uid}/{pod.name}"
        above = self.above(pod.owner)
        top = pod.owner.uid if above is None else above.uid
        role = role_of(pod)
        return f"{top}/{role}" if role else top

    def above(self, owner: OwnerRef) -> OwnerRef | None:
        """What controls this controller, as far as it is known."""
        known = self.workloads.get(owner.uid)
        return None if known is None else known.owner

    def controllers(self, uid: str) -> Iterator[WorkloadObserved]:
        """The controller with this uid, and who controls that, as far as anything is known of them."""
        known = self.workloads.get(uid)
        if known is not None:
            yield known
            above = self.workloads.get(known.owner.uid) if known.owner is not None else None
            if above is not None:
                yield above

    def alive_under(self, top: str) -> Iterator[PodUid]:
        """Pods of this top controller, and of those that it controls, that neither terminate nor have ended. O(workloads)."""
        owners = [top, *(uid for uid, known in self.workloads.items() if known.owner is not None and known.owner.uid == top), *self.of_family(top)]
        for uid in (uid for owner in owners for uid in self.owned.get(owner, ())):
            live = self.pods[uid].live
            if not live.deleting and live.phase not in OVER:
                yield uid

    def of_family(self, top: str) -> list[str]:
        """The StatefulSets of a LeaderWorkerSet, if `top` is one's. O(controllers)."""
        if not top.startswith(FAMILY):
            return []
        return [uid for uid, pods in self.owned.items() if family_of(self.pods[next(iter(pods))].fact) == top]

    def counts(self) -> dict[str, int]:
        """Sizes, for logs and metrics."""
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "shapes": len(self.shapes),
            "queue": len(self.queue) + len(self.parked),
            "reservations": len(self.reservations),
            "holds": sum(len(v) for v in self.held_on.values()),
            "migrations": len(self.migrations),
            "active_migrations": len(self.backlog) + len(self.active),
            "void": sum(self.void.values()),
            "foreign_records": sum(self.void[kind] for kind in KINDS if kind in self.void),
            "unknown": sum(self.unknown.values()),
        }
