"""Every command, one Struct each, logged with the events that it led to.

A command carries everything a decision used that is not in the state: time, trigger, reported outcomes. That is what lets
`restow verify` decide again.
"""

import msgspec

from restow.contracts.ids import Int, MigrationId, Millis, NodeName, PlanId, PodUid, ReservationUid, SlotName
from restow.contracts.samples import Samples


class Command(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """Base of all commands."""


class Lead(Command, tag="lead"):
    """Take over the family; the decider answers with the next epoch."""

    holder: str


class Configure(Command, tag="configure"):
    """Use this configuration from now on."""

    text: str


class Observe(Command, tag="observe"):
    """Facts from a list or a watch. There is nothing to decide: the events are the observation. `how` is `list`, `watch` or
    `reset`: a list from an API whose history is behind what the log knows (it was restored from a backup, or rebuilt)."""

    kind: str
    how: str


class Schedule(Command, tag="schedule"):
    """Run a scheduling session: releases, hand-overs, holds, pods, in that order. `limit` bounds the placements. If a
    session looks only at a part of what waits, `turn` says which part; the next session takes the next one."""

    time: Millis
    limit: Int = 5_000
    turn: Int = 0


class RefuseBind(Command, tag="refuse_bind"):
    """The API will never bind this pod to that node."""

    time: Millis
    pod: PodUid
    node: NodeName
    reason: str


class RefusePreemption(Command, tag="refuse_preemption"):
    """The API will never evict this victim, or not in time."""

    time: Millis
    pod: PodUid
    reason: str


class Review(Command, tag="review"):
    """Validate the Reservations whose current generation has not been reviewed."""

    time: Millis


class Defragment(Command, tag="defragment"):
    """Make a plan and carry it out. `trigger`: interval, cron, api, demand. `plan` is a fresh id. `demand`: free capacity for
    this waiting pod (its uid) or PodGroup (`namespace/name`). `steps`: bound of the search, 0 for as configured. `failed`: the plan,
    if it could not be made for a fault of Restow's own, and what that was; it has no moves then."""

    time: Millis
    trigger: str
    plan: PlanId
    demand: str = ""
    steps: Int = 0
    failed: dict[PlanId, str] = msgspec.field(default_factory=dict)


class Deschedule(Command, tag="deschedule"):
    """Run the whole policy: every profile's deschedule plugins, then every profile's balance plugins. Each makes a plan,
    called `<plan>-p<n>`. `samples` are the metrics read just before, None if the policy needs none. `steps`: as in
    `Defragment`; `failed`, too: plans by their names."""

    time: Millis
    trigger: str
    plan: PlanId
    samples: Samples | None = None
    steps: Int = 0
    failed: dict[PlanId, str] = msgspec.field(default_factory=dict)


class BeginSearch(Command, tag="begin_search"):
    """A decision that may take long is about to be made in a copy of the process."""

    time: Millis
    plan: PlanId
    trigger: str
    steps: Int = 0


class EndSearch(Command, tag="end_search"):
    """A search led to no plan. See `events.SearchEnded`."""

    time: Millis
    plan: PlanId
    reason: str
    message: str = ""
    failed: bool = True


class MovePod(Command, tag="move_pod"):
    """Move one pod, to `target` or to the best node. Rejected with the reason if no node can be promised."""

    time: Millis
    plan: PlanId
    pod: PodUid
    target: NodeName = NodeName("")


class MoveGang(Command, tag="move_gang"):
    """Move all pods of a PodGroup (`namespace/name`) as one, each to the best node. Rejected with the reason if not all of them can be
    promised one."""

    time: Millis
    plan: PlanId
    group: str


class CancelPlan(Command, tag="cancel_plan"):
    """Cancel this plan, or all plans if it is empty."""

    time: Millis
    plan: PlanId = PlanId("")
    reason: str = ""


class Approve(Command, tag="approve"):
    """Let a proposed plan be carried out: all of it, or only these moves. `by`: who asks, as they say."""

    time: Millis
    plan: PlanId
    by: str
    reason: str = ""
    moves: tuple[MigrationId, ...] = ()


class Reject(Command, tag="reject"):
    """Do not let a proposed plan be carried out."""

    time: Millis
    plan: PlanId
    by: str
    reason: str


class SetMode(Command, tag="set_mode"):
    """What becomes of plans from here on: observe, propose or automatic."""

    time: Millis
    mode: str
    by: str
    reason: str = ""


class Pause(Command, tag="pause"):
    """Stop every move that has not evicted its pod yet, and begin none until `Resume`. `by`: who asks, as they say; empty: Restow itself."""

    time: Millis
    by: str = ""
    reason: str = ""


class Resume(Command, tag="resume"):
    """End a pause."""

    time: Millis
    by: str = ""
    reason: str = ""


class Advance(Command, tag="advance"):
    """Advance every migration as far as facts and deadlines allow."""

    time: Millis


class ReportHold(Command, tag="report_hold"):
    """The Reservation of a migration could not be created; or, with `landing`, the entry of its controller in the Landing."""

    time: Millis
    migration: MigrationId
    message: str
    landing: bool = False


class ReportOwners(Command, tag="report_owners"):
    """The API has let go of the entry of a Reservation's owners in the Landing."""

    time: Millis
    reservation: ReservationUid


class ReportLanding(Command, tag="report_landing"):
    """The API has taken the entry of a migration's controller in the Landing, or has let go of it (`until` is 0)."""

    time: Millis
    migration: MigrationId
    controller: str = ""
    until: Millis = Millis(0)


class ReportConsent(Command, tag="report_consent"):
    """What a workload has answered that was asked whether its pod may go. `word`: agreed, refused (to be left alone until `again`, if
    that is given), or silent (nothing within its time; `message`: what was answered instead)."""

    time: Millis
    migration: MigrationId
    word: str
    message: str = ""
    again: Millis = Millis(0)


class ReportTold(Command, tag="report_told"):
    """A workload was told what has become of a move; or `message` says why it was not."""

    time: Millis
    migration: MigrationId
    message: str = ""


class RefusePlaceholder(Command, tag="refuse_placeholder"):
    """The API will not make the placeholder of this slot."""

    time: Millis
    reservation: ReservationUid
    slot: SlotName
    reason: str


class RefuseLetGo(Command, tag="refuse_let_go"):
    """The API will not let our gate be taken off this pod."""

    time: Millis
    pod: PodUid
    reason: str


class ReportNominations(Command, tag="report_nominations"):
    """What two canary pods have found out. See `events.NominationsChecked`."""

    time: Millis
    scheduler: str
    said: str
    why: str = ""
    leader: str = ""


class LookBack(Command, tag="look_back"):
    """See what has become of the moves of a plan that was only observed."""

    time: Millis
    plan: PlanId


class ReportSlot(Command, tag="report_slot"):
    """The Reservation `name` of a plan's capacity could not be created."""

    time: Millis
    plan: PlanId
    name: str
    message: str


class ReportEviction(Command, tag="report_eviction"):
    """The API refused the eviction. `reason`: Budget (a PDB), Changed (a precondition), Gone, Refused, Aborted (the
    annotation that makes a late eviction fail is set), NotMarked (it could not be set), NotGated (it was not asked to: the pod's
    successor would not be gated)."""

    time: Millis
    migration: MigrationId
    reason: str
    message: str = ""


class Collect(Command, tag="collect"):
    """Find what is due: expired, orphaned, past retention."""

    time: Millis


class ReportSnapshot(Command, tag="report_snapshot"):
    time: Millis
    seq: Int
    fold: Int
    size: Int


class ReportArchive(Command, tag="report_archive"):
    """log_first: the first sequence that the log itself held then; 0 where that was not looked at."""

    time: Millis
    first: Int
    last: Int
    file: str
    digest: str
    log_first: Int = 0


class Truncate(Command, tag="truncate"):
    """Truncate up to `upto`. The decider refuses to go beyond what snapshot and archive cover."""

    time: Millis
    upto: Int


class RepairLog(Command, tag="repair_log"):
    """Go on with the log as it is now. `lost`: the last sequence that is known to be lost, 0 where none is. `person`: who has decided that, and
    `reason`: why. `repairs`: how often it had been repaired where somebody had read what is lost, 0 where nobody knows."""

    time: Millis
    lost: Int = 0
    person: str = ""
    reason: str = ""
    repairs: Int = 0


COMMANDS: tuple[type[Command], ...] = (
    Lead,
    Configure,
    Observe,
    Schedule,
    RefuseBind,
    RefusePreemption,
    Review,
    Defragment,
    Deschedule,
    MovePod,
    MoveGang,
    BeginSearch,
    EndSearch,
    CancelPlan,
    Approve,
    Reject,
    SetMode,
    Pause,
    Resume,
    Advance,
    LookBack,
    ReportHold,
    ReportSlot,
    ReportLanding,
    ReportOwners,
    RefusePlaceholder,
    RefuseLetGo,
    ReportNominations,
    ReportConsent,
    ReportTold,
    ReportEviction,
    Collect,
    ReportSnapshot,
    ReportArchive,
    Truncate,
    RepairLog,
)
