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
    """A node is chosen for a pod. `volumes` is what its unbound claims get there; the pod is bound once they are. `cores`
    are its exclusive CPUs."""

    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[Int, ...] = ()


class PodReleased(Event, tag="session.pod_released"):
    """A placement is withdrawn before it became a fact, because the bind was refused for good."""

    pod: PodUid
    reason: str


class HoldPlaced(Event, tag="session.hold_placed"):
    """Capacity is held for a slot of a Reservation, as much as pods of `shape` request. This *is* availability, unless it
    is `waiting`: then the capacity is still in use (preAllocation), and is held as it becomes free."""

    reservation: ReservationUid
    slot: SlotName
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    shape: ShapeId = ShapeId("")
    waiting: bool = False
    cores: tuple[Int, ...] = ()


class HoldReady(Event, tag="session.hold_ready"):
    """A hold that was waiting has all its capacity: it is available (again)."""

    reservation: ReservationUid
    slot: SlotName


class HoldBorrowed(Event, tag="session.hold_borrowed"):
    """A pod that ignores Reservations borrows capacity of this hold, which waits until it has it back."""

    reservation: ReservationUid
    slot: SlotName
    pod: PodUid


class HoldResized(Event, tag="session.hold_resized"):
    """A hold now has the size of pods of `shape`, on the same node, as a later generation requests."""

    reservation: ReservationUid
    slot: SlotName
    shape: ShapeId
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[Int, ...] = ()


class HandedOver(Event, tag="session.handed_over"):
    """A hold's capacity is given to a pod in one step. If the slot is used once, all of it is released; otherwise, what the
    pod requests. `volumes` and `cores` as in `PodPlaced`."""

    reservation: ReservationUid
    slot: SlotName
    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[Int, ...] = ()


class OwnersGated(Event, tag="session.owners_gated"):
    """Pods that a Reservation's owners match are gated by the API, so that their scheduler does not look at them before a slot is handed over to them: at first until
    then, which is put off while the Reservation holds anything, and no event says so. 0: they are gated no more. Only of Reservations for pods that another scheduler places."""

    reservation: ReservationUid
    until: Millis


class OwnersUnlisted(Event, tag="session.owners_unlisted"):
    """The API has let go of the entry of a Reservation's owners."""

    reservation: ReservationUid


class PodLetGo(Event, tag="session.pod_let_go"):
    """A gated pod owns a Reservation and gets nothing of it: its scheduler places it like any other."""

    pod: PodUid


class LetGoRefused(Event, tag="session.let_go_refused"):
    """The API refuses to take our gate off a pod for which nothing is held, so that its scheduler does not look at it."""

    pod: PodUid
    reason: str


class HoldReleased(Event, tag="session.hold_released"):
    """A hold ends without an owner. Reasons: Expired, NodeLost, Deleted, Superseded, Preempted, Unavailable (its node can
    no longer have that much), HoldStolen (its placeholder is gone), `PlaceholderRefused: …`."""

    reservation: ReservationUid
    slot: SlotName
    reason: str


class Unfit(Event, tag="session.unfit"):
    """No node fits pods of this shape now. `reasons` counts nodes per rule, out of `nodes`; `pods` are those that began to
    wait. `key` is set if more than the shape matters (labels, namespace, claims): equal for equal pods. Logged when pods
    begin to wait, and again at most every ten seconds per shape when capacity has changed."""

    shape: ShapeId
    nodes: Int
    reasons: dict[str, Int]
    pods: tuple[PodUid, ...] = ()
    key: str = ""


class Withheld(Event, tag="session.withheld"):
    """These pods wait for something other than a node: their group, their queue, a named Reservation. `reason` is one
    CamelCase word, `message` a sentence; `group` (`namespace/name`) is set if a whole gang waits."""

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
    """Intent: evict a pod in favour of another pod. `action`: preempt or reclaim. Its capacity goes to `by`."""

    pod: PodUid
    by: PodUid
    action: str
    reason: str = ""


class PreemptionEnded(Event, tag="session.preemption_ended"):
    """The pod is no longer to be evicted: its eviction was refused for good, or nobody needs its capacity any longer."""

    pod: PodUid
    reason: str


class Nominated(Event, tag="session.nominated"):
    """Capacity on this node is held for a pod: what is free now at once, the rest as the victims leave. It is released at
    `deadline`."""

    pod: PodUid
    node: NodeName
    deadline: Millis
    devices: tuple[DeviceShare, ...] = ()
    victims: tuple[PodUid, ...] = ()
    cores: tuple[Int, ...] = ()


class NominationEnded(Event, tag="session.nomination_ended"):
    """Nothing is held for the pod any longer."""

    pod: PodUid
    reason: str


class TaskReserved(Event, tag="session.task_reserved"):
    """A task of a starving job waits for this node. The task uses nothing, and meanwhile no other task except BestEffort
    ones goes to the node."""

    pod: PodUid
    node: NodeName


class TaskUnreserved(Event, tag="session.task_unreserved"):
    """Reasons: Ready, Deleted (too few pods are left), NodeLost, Preempted (by a starving job of higher priority),
    Discarded (its job cannot become ready with what is reserved, or such jobs are no longer served)."""

    pod: PodUid
    reason: str


class HoldUnfit(Event, tag="session.hold_unfit"):
    """No node fits this slot of a Reservation now; or, with `reason` (one CamelCase word) and `message`, it waits for
    something other than a node, such as a queue."""

    reservation: ReservationUid
    slot: SlotName
    nodes: Int
    reasons: dict[str, Int]
    reason: str = ""
    message: str = ""


class NominationsChecked(Event, tag="session.nominations_checked"):
    """Whether a scheduler that is not ours keeps a node's capacity for a pod that was nominated to it by us. `said`: honoured, ignored, or
    unknown and `why`: then what was known stays known. `leader`: who held its Lease then, empty where nobody says."""

    scheduler: str
    said: str
    why: str = ""
    leader: str = ""
