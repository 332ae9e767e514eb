"""Who holds and uses capacity."""

import msgspec

from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Int,
    Millis,
    NodeName,
    PodUid,
    ReservationUid,
    ShapeId,
    SlotName,
)
from restow.contracts.values import (
    ClaimChoice,
    DeviceShare,
)


class PodPlaced(Event, tag="session.pod_placed"):
    """A node is chosen for a pod. `volumes`: what its unbound claims get there; the pod is bound when they are bound.
    `cores`: CPUs of its own."""

    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[Int, ...] = ()


class PodReleased(Event, tag="session.pod_released"):
    """A placement is withdrawn before it became a fact: the bind was refused for good."""

    pod: PodUid
    reason: str


class HoldPlaced(Event, tag="session.hold_placed"):
    """Capacity is held for a place of a Reservation, as much as pods of `shape` ask for. This *is* availability,
    but where it is `waiting`: then the room is still in use (preAllocation), and is held as it becomes free."""

    reservation: ReservationUid
    slot: SlotName
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    shape: ShapeId = ShapeId("")
    waiting: bool = False
    cores: tuple[Int, ...] = ()


class HoldReady(Event, tag="session.hold_ready"):
    """All the room of a hold that was waiting for it is held: it is available (again)."""

    reservation: ReservationUid
    slot: SlotName


class HoldLent(Event, tag="session.hold_lent"):
    """A pod that ignores Reservations gets room of this hold, which waits until it has it back."""

    reservation: ReservationUid
    slot: SlotName
    pod: PodUid


class HoldResized(Event, tag="session.hold_resized"):
    """A hold is as large as pods of `shape` now, on the node that it is on: a later generation asks for that."""

    reservation: ReservationUid
    slot: SlotName
    shape: ShapeId
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[Int, ...] = ()


class HandedOver(Event, tag="session.handed_over"):
    """A hold's capacity is given to a pod, in one step: all of it is released where the Reservation is allocated
    once, what the pod asks for where it is not. `volumes` and `cores` as in `PodPlaced`."""

    reservation: ReservationUid
    slot: SlotName
    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[Int, ...] = ()


class HoldReleased(Event, tag="session.hold_released"):
    """A hold ends without an owner. Reasons: Expired, NodeLost, Deleted, Superseded, Preempted, Unavailable (its node cannot
    have so much any more)."""

    reservation: ReservationUid
    slot: SlotName
    reason: str


class Unfit(Event, tag="session.unfit"):
    """Nothing fits pods of this shape now. `reasons` counts nodes per rule, of `nodes` in all; `pods` are those that
    began to wait. `key` is set where more than the shape counts (labels, namespace, claims): equal for pods alike. Logged when pods begin to wait, and anew at most every ten seconds a shape when capacity has moved."""

    shape: ShapeId
    nodes: Int
    reasons: dict[str, Int]
    pods: tuple[PodUid, ...] = ()
    key: str = ""


class Withheld(Event, tag="session.withheld"):
    """These pods wait for something that is not a node: their group, their queue, a named Reservation. `reason` is one
    CamelCase word, `message` a sentence; `group` (`namespace/name`) where a whole gang waits."""

    reason: str
    message: str
    pods: tuple[PodUid, ...]
    group: str = ""
    nodes: Int = 0
    reasons: dict[str, Int] = msgspec.field(default_factory=dict)


class Enqueued(Event, tag="session.enqueued"):
    """The pods of this PodGroup may be scheduled: phase Inqueue (action enqueue)."""

    namespace: str
    group: str


class Preempted(Event, tag="session.preempted"):
    """Intent: evict a pod in favour of another. `action`: preempt or reclaim. Its capacity goes to `by`."""

    pod: PodUid
    by: PodUid
    action: str
    reason: str = ""


class PreemptionEnded(Event, tag="session.preemption_ended"):
    """The pod is no longer to be evicted: its eviction was refused for good, or nobody needs its room any more."""

    pod: PodUid
    reason: str


class Nominated(Event, tag="session.nominated"):
    """Capacity on this node is held for a pod: what is free now at once, the rest as the victims leave.
    After `deadline` it is given up."""

    pod: PodUid
    node: NodeName
    deadline: Millis
    devices: tuple[DeviceShare, ...] = ()
    victims: tuple[PodUid, ...] = ()
    cores: tuple[Int, ...] = ()


class NominationEnded(Event, tag="session.nomination_ended"):
    """Nothing is held for the pod any more."""

    pod: PodUid
    reason: str


class TaskReserved(Event, tag="session.task_reserved"):
    """A task of a starving job waits for this node: it uses nothing, and no other task that
    is not BestEffort comes to the node meanwhile."""

    pod: PodUid
    node: NodeName


class TaskUnreserved(Event, tag="session.task_unreserved"):
    """Reasons: Ready, Deleted (too few pods are left), NodeLost, Preempted (by a starving job of higher priority), Discarded
    (its job cannot become ready with what is reserved, or such jobs are not served any more)."""

    pod: PodUid
    reason: str


class HoldUnfit(Event, tag="session.hold_unfit"):
    """Nothing fits this place of a Reservation now; or, with `reason` (one CamelCase word) and `message`, it waits for
    something that is not a node, such as a queue."""

    reservation: ReservationUid
    slot: SlotName
    nodes: Int
    reasons: dict[str, Int]
    reason: str = ""
    message: str = ""
