"""What the fold keeps, as immutable records. A change is a new record in place of the old one."""

from enum import StrEnum

import msgspec

from restow.contracts.events import Planned, ReservationObserved
from restow.contracts.ids import (
    MigrationId,
    Millis,
    NodeName,
    PlanId,
    PodUid,
    ReservationUid,
    ShapeId,
    SlotName,
)
from restow.contracts.values import ClaimChoice, DeviceShare, Move, ReservationSpec, SlotFor


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of the fold's records."""


class Leader(Record):
    epoch: int = 0
    holder: str = ""


class Charge(Record):
    """What a pod is charged in the node table, and to which queue, so that exactly that can be taken back."""

    node: NodeName
    shape: ShapeId
    devices: tuple[DeviceShare, ...]
    releasing: bool
    queue: str = ""
    cores: tuple[int, ...] = ()


class Placement(Record):
    """The session's intent for a pod, until facts say where it is. `hold` is where its capacity came from, `at` when it was
    decided, `volumes` what its claims get."""

    node: NodeName
    devices: tuple[DeviceShare, ...]
    hold: tuple[ReservationUid, SlotName] | None = None
    at: Millis = Millis(0)
    volumes: tuple[ClaimChoice, ...] = ()
    cores: tuple[int, ...] = ()


Items = tuple[tuple[int, int], ...]
"""Amounts by column of the node table, in the order of the columns."""


class Capacity(Record):
    """Capacity on a node that somebody is to have: what is `held` of the `wanted` amounts, and `held_devices` of the
    `devices`, is charged as reserved; the rest is taken as soon as it is free there. `cores` are kept from all others at once."""

    wanted: Items
    held: Items = ()
    devices: tuple[DeviceShare, ...] = ()
    held_devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()

    @staticmethod
    def full(wanted: Items, devices: tuple[DeviceShare, ...], cores: tuple[int, ...] = ()) -> "Capacity":
        return Capacity(wanted, wanted, devices, devices, cores)

    @property
    def complete(self) -> bool:
        """Whether all of it is held."""
        return self.held == self.wanted and self.held_devices == self.devices


NO_CAPACITY = Capacity(())

PATIENCE = 90_000
"""Milliseconds that freed capacity is held for a pod after the last of it has come: three times the usual grace period. A budget
that lets nobody go is given up on then; who is on the way out already may take longer (RULES G-14)."""


class Nomination(Record):
    """Capacity for a preemptor (RULES 004-6), until the `deadline`."""

    node: NodeName
    deadline: Millis
    capacity: Capacity
    victims: tuple[PodUid, ...] = ()

    @property
    def complete(self) -> bool:
        return self.capacity.complete


class Allocation(Record):
    """What a pod has taken of a hold: amounts, device shares and CPUs. `bound`: it was seen on the hold's node. Of a hold that
    serves many it comes back when the pod is gone; one that is allocated once is whole again only if the pod was never bound
    there."""

    reservation: ReservationUid
    slot: SlotName
    node: NodeName
    items: Items
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()
    bound: bool = False


class Victim(Record):
    """A pod that is to be evicted in favour of another."""

    by: PodUid
    action: str
    reason: str
    since: Millis


class SlotPhase(StrEnum):
    """WAITING: a node is chosen, but some of the capacity is not free (any more): nobody can take it."""

    PENDING = "Pending"
    HELD = "Available"
    WAITING = "Waiting"
    USED = "Succeeded"
    FAILED = "Failed"


ON_NODE = (SlotPhase.HELD, SlotPhase.WAITING)
"""Slots that occupy their node."""


class Slot(Record):
    """One slot of a Reservation. `node`, `devices` and `cores` where held, waiting or used: all that the hold is of;
    `capacity` what is to be held now, without what owners have taken; of a used one what its pod took. `pod` and its name
    (`owner`, `namespace/name`) where used, `reason` where failed or waiting, `reasons` (nodes per rule) where nothing
    fits, `reason` and `message` where it waits for something that is no node. `asked`: the shape that a later
    generation asks for, where the hold cannot have it yet. `body`: of one that a pod of another scheduler has given back, its placeholder then: it may have been
    deleted for that pod."""

    shape: ShapeId
    task: str
    phase: SlotPhase = SlotPhase.PENDING
    node: NodeName = NodeName("")
    devices: tuple[DeviceShare, ...] = ()
    pod: PodUid = PodUid("")
    reason: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}
    queue: str = ""
    message: str = ""
    cores: tuple[int, ...] = ()
    capacity: Capacity = NO_CAPACITY
    owner: str = ""
    asked: ShapeId = ShapeId("")
    body: PodUid = PodUid("")


_PHASES = tuple(SlotPhase)


class Tally(Record):
    """How many slots of a Reservation are in each phase."""

    pending: int = 0
    held: int = 0
    waiting: int = 0
    used: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts)

    def moved(self, was: SlotPhase | None, now: SlotPhase | None) -> "Tally":
        """One slot has gone from one phase to another; None where it is not there."""
        return Tally(*(n + (p is now) - (p is was) for p, n in zip(_PHASES, self.counts, strict=True)))

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """In the order of `SlotPhase`."""
        return self.pending, self.held, self.waiting, self.used, self.failed


class ReservationPhase(StrEnum):
    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    WAITING = "Waiting"
    FAILED = "Failed"


class PhaseSince(Record):
    """A Reservation's phase, and why and since when. `history` has the latest transition into each phase (RULES G-9). `changed`:
    when phase, reason or message last changed. `scheduled`: since when nodes are chosen, 0 while they are not. `ready`: when it
    last became, or ceased to be, Available; 0 where it never was."""

    phase: ReservationPhase
    reason: str = ""
    message: str = ""
    since: Millis = Millis(0)
    history: tuple[tuple[ReservationPhase, Millis], ...] = ()
    changed: Millis = Millis(0)
    scheduled: Millis = Millis(0)
    ready: Millis = Millis(0)


class Reservation(Record):
    """A Reservation as far as the log knows. `accepted` is the accepted generation, 0 for none, and `spec` what that asked
    for: it stays in force while a later generation is not reviewed yet, or cannot even be read. `revision` counts how often that
    has changed within the generation (labels and annotations do not make a new one), `reviewed` is the one reviewed last."""

    fact: ReservationObserved
    order: int
    accepted: int = 0
    spec: ReservationSpec | None = None
    min_available: int = 0
    expires: Millis = Millis(0)
    refused: int = 0
    reason: str = ""
    message: str = ""
    expired: bool = False
    gone: bool = False
    collected: str = ""
    revision: int = 0
    reviewed: int = 0

    @property
    def over(self) -> bool:
        """Whether it has ended for good, whatever its later generations say."""
        return bool(self.gone or self.expired or self.fact.deleting or self.collected)

    @property
    def alive(self) -> bool:
        """Whether slots of it may be held and handed over."""
        return self.accepted > 0 and not self.over and not self.rejected

    @property
    def rejected(self) -> bool:
        """Whether what was reviewed last of it was refused: nothing is held for it until something else is accepted."""
        return self.refused > self.accepted

    @property
    def end(self) -> str:
        """Why nothing is held for it any more; empty where that is not so."""
        if self.gone or self.fact.deleting or self.collected:
            return "Deleted"
        return "Expired" if self.expired else self.reason if self.rejected else ""


class Step(StrEnum):
    """The saga of one migration. The last four are final; `removed` is the end of a pod that nothing was held for."""

    PLANNED = "planned"
    HOLDING = "holding"
    HELD = "held"
    EVICTING = "evicting"
    EVICTED = "evicted"
    ABORTING = "aborting"
    LANDED = "landed"
    FAILED = "failed"
    NOT_RECREATED = "not_recreated"
    REMOVED = "removed"


FINAL = frozenset({Step.LANDED, Step.FAILED, Step.NOT_RECREATED, Step.REMOVED})


class Migration(Record):
    """`reservation` is the hold's uid once it was seen. `asked` is the pod counter when the eviction was decided, 0
    before: only pods that the log saw later may take the hold. `armed` is the pod counter when the victim's end was first
    seen, 0 before: only then may it be taken. `successor` took it. `planned` is the plan's time, `evicting` when the eviction was
    decided, 0 before. `group` is the victim's PodGroup, `returned` how often in a row pods before it were moved off the source
    and came back. `back`: since when it turns back to its source, 0 where it does not; `spent` is the hold's uid that it gave up for
    that. `vacated`: since when its pod is no more, 0 before.
    `arrived`: its successor has been ready at the target, whatever became of it since: the hold is used up (RULES G-12). `controller`: the uid of whoever
    has made its pod, empty of a bare one. `job`: the uid of
    the Job that its pod is of, empty of any other pod; `done`: why that, or the top of its lineage, makes no other pod (`verdicts.ENDED`), as far as a fact has said it.
    `told`: a fact about its controller came after the eviction was decided, or its pod's end seen."""

    id: MigrationId
    plan: str
    move: Move
    shape: ShapeId
    lineage: str
    step: Step = Step.PLANNED
    since: Millis = Millis(0)
    deadline: Millis = Millis(0)
    reservation: ReservationUid = ReservationUid("")
    asked: int = 0
    armed: int = 0
    successor: PodUid = PodUid("")
    reason: str = ""
    message: str = ""
    planned: Millis = Millis(0)
    evicting: Millis = Millis(0)
    group: str = ""
    returned: int = 0
    back: Millis = Millis(0)
    spent: ReservationUid = ReservationUid("")
    vacated: Millis = Millis(0)
    arrived: bool = False
    controller: str = ""
    job: str = ""
    done: str = ""
    told: bool = False

    @property
    def evicted(self) -> bool:
        """Whether its pod ended once the eviction was decided. One that somebody else ended before that was not evicted."""
        return bool(self.armed and self.evicting)

    @property
    def came_before(self) -> int:
        """The pod counter after which its successor comes."""
        return self.asked or self.armed


class Landing(Record):
    """Whose pods the API gates for a migration: those that this controller (its uid) makes before `until`."""

    controller: str
    until: Millis


class Emptied(Record):
    """A node that this plan empties wholly. `at`: since when nobody is on it any more, 0 while somebody is."""

    plan: PlanId
    at: Millis = Millis(0)



class NominationsChecked(Record):
    """Whether a scheduler honours nominations by us (honoured, ignored, unknown), why that is not known or not known anew, who held its Lease
    then, when it was asked last, and how often in a row that came to nothing."""

    said: str
    why: str
    leader: str
    at: Millis
    failed: int


class Consent(Record):
    """What the workload of a migration's pod was asked, by which way, until when its word counts, and when it was given; 0 before. `again`: until
    when it wants its pod to be left alone."""

    way: str
    deadline: Millis
    hook: str = ""
    evicts_on_silence: bool = False
    given: Millis = Millis(0)
    again: Millis = Millis(0)


class Telling(Record):
    """What a workload is to be told of a migration that has ended: `moved` or `stays`, of which pod, and until when it is tried."""

    what: str
    way: str
    pod: PodUid
    deadline: Millis
    hook: str = ""


def hold_names(id: MigrationId) -> tuple[str, str]:
    """Of the Reservations that hold its slot at the target, and at the source where it turns back."""
    return f"restow-{id}", f"restow-{id}-back"


def hold_name(migration: Migration) -> str:
    """Of the Reservation that holds its slot."""
    return hold_names(migration.id)[migration.back > 0]


class Refusal(Record):
    """A pod whose moves were refused, so many in a row, the last one for this `reason`: none is planned `until` then."""

    times: int
    until: Millis
    reason: str


class Plan(Record):
    """`answer`: what a person has said of it, where it was proposed: approved or rejected, `by` whom, when and why; `chosen`: of its moves, where these are not all."""

    planned: Planned
    at: Millis
    answer: str = ""
    by: str = ""
    answered: Millis = Millis(0)
    why: str = ""
    chosen: tuple[MigrationId, ...] = ()


OBSERVE, PROPOSE, AUTOMATIC = MODES = ("observe", "propose", "automatic")


class Mode(Record):
    """What becomes of plans, and since when: observe, propose or automatic. `by`: who has set it; empty for the policy."""

    name: str = "automatic"
    since: Millis = Millis(0)
    by: str = ""
    reason: str = ""


class Score(Record):
    """Of all plans that were only observed, and at which somebody looked back in time. At the first look: `moves` whose pods were there, and whose slots were still `free`, and those
    that were `early`, whose pods had gone before. At the last look: of so many moves (`aged`) the pods that had `ended`."""

    plans: int = 0
    moves: int = 0
    free: int = 0
    early: int = 0
    aged: int = 0
    ended: int = 0


class DemandSlot(Record):
    """Capacity that a plan makes for a pod that waits. `reservation` holds it once that was seen; `gone`: it is no more. `until`: how long it
    is kept at least, since a move of its plan has ended."""

    plan: PlanId
    spec: SlotFor
    at: Millis
    reservation: ReservationUid = ReservationUid("")
    gone: bool = False
    until: Millis = Millis(0)


class Demand(Record):
    """A job that waits for which plans were made: so many, the last one then."""

    tries: int
    at: Millis


class Search(Record):
    """Decisions that may take long (`migration.search_begun`). `plan` is the one under way, empty for none. `failures` in a row: the last one
    of `failed`, `at` then and because of `reason`, `message`; none is made by itself until `again`."""

    plan: PlanId = PlanId("")
    failures: int = 0
    failed: PlanId = PlanId("")
    at: Millis = Millis(0)
    again: Millis = Millis(0)
    reason: str = ""
    message: str = ""


class Pause(Record):
    """Since when nothing moves (`migration.paused`), 0 while it does. `by`: who asked for it; empty for Restow itself."""

    since: Millis = Millis(0)
    by: str = ""
    reason: str = ""


class Needs(Record):
    """The oldest reader that understands the log, and the first record that needs it: its sequence, and the release that wrote it."""

    oldest: int = 0
    seq: int = 0
    release: str = ""


class GroupMove(Record):
    """One entry of a PodGroup's `migrationInfo` (seed 003): identities alone (RULES 003-2), and how far it is."""

    migration: MigrationId
    pod: PodUid
    name: str
    source: NodeName
    target: NodeName
    reservation: ReservationUid
    step: Step


class GroupMoves(Record):
    """What a PodGroup's `migrationInfo` and `migrationState` are to say: the moves that are, or were last, under way at once, and
    their phase since then. `version` counts what has changed; `ran`: whether their phase was Running at any time."""

    moves: tuple[GroupMove, ...]
    phase: str
    since: Millis
    version: int = 1
    ran: bool = False


class Left(Record):
    """A pod that was moved off `node` and runs as `pod` elsewhere. `times`: how often in a row its predecessors had come back. `earlier`: the
    nodes that these were moved off, the last first, and when."""

    node: NodeName
    pod: PodUid
    times: int
    earlier: tuple[tuple[NodeName, Millis], ...] = ()


class LeftAlone(Record):
    """A lineage bounced off a node so often in a row, and is left alone there since then."""

    times: int
    since: Millis


class Times(Record):
    """So often in a row, the last time then."""

    times: int
    at: Millis


class Rejections(Record):
    """Kubelets rejected pods of a workload so often in a row, the last one then and for this `reason`; and by node."""

    times: int
    at: Millis
    reason: str
    nodes: dict[NodeName, Times]


EVERYWHERE = NodeName("")
"""Node of a finding that is about all nodes: somebody else disturbs the moves of a workload."""


class Disturbed(Record):
    """Somebody else has disturbed moves of a lineage, so often in a row, the last time `at`, in this way."""

    times: int
    at: Millis
    reason: str


class Waiting(Record):
    """Why pods wait: the last `session.unfit` of a shape (or of pods alike) and the capacity epoch then, or a
    `session.withheld` with its `reason` and `message`."""

    nodes: int
    reasons: dict[str, int]
    at: Millis
    epoch: int = 0
    reason: str = ""
    message: str = ""
