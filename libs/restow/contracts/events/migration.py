"""Plans, and the saga of each migration."""

import msgspec

from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Int,
    MigrationId,
    Millis,
    NodeName,
    PlanId,
    PodUid,
)
from restow.contracts.values import (
    Move,
    MoveSeen,
    Packing,
    SlotFor,
    Worth,
)


class Planned(Event, tag="migration.planned"):
    """A plan: moves in order, their effect on packing, and why candidates stayed (counts per verdict). `trigger`: interval,
    cron, api, demand, move. `planner` made it in `steps` steps of search. `slots` are for waiting pods, `reason` says for
    what, and `demand` is the job (a pod's uid, or `namespace/name` of a PodGroup), even if no plan was found. When a whole
    policy runs, there is one plan per plugin's run: `plugin` of `profile`; then `planner` is `policy`, and `reason` has the
    plugin's warnings, such as why it did nothing. `whole`: each source is emptied completely or left alone. `gang`: the PodGroup (`namespace/name`) that was to be
    moved as one, where somebody has asked for that; which moves are of it they say themselves. `worth`: what it wins and costs in one unit, that of its moves' `cost`, too. `mode` is the policy's where
    it is not automatic: `observe`, nothing of it is ever carried out; `propose`, nothing before a person has approved it (`migration.plan_approved`). `fault`: it could not be made,
    by a fault of Restow's own; `reason` says which."""

    plan: PlanId
    plugin: str
    moves: tuple[Move, ...]
    before: Packing
    after: Packing
    sources: tuple[NodeName, ...] = ()
    kept: dict[str, Int] = msgspec.field(default_factory=dict)
    trigger: str = ""
    planner: str = "greedy"
    steps: Int = 0
    slots: tuple[SlotFor, ...] = ()
    reason: str = ""
    demand: str = ""
    profile: str = ""
    whole: bool = False
    gang: str = ""
    worth: Worth | None = None
    mode: str = ""
    fault: bool = False


class LookedBack(Event, tag="migration.looked_back"):
    """What has become of a plan that was only observed: of each move that goes to another node, in the plan's order, whether its pod was still there and its slot still free. `look` 1 is when
    the moves would have been over by the policy's deadlines at the latest, 2 an hour after the plan; without moves where none goes anywhere, or nobody was there at that time."""

    plan: PlanId
    look: Int
    moves: tuple[MoveSeen, ...] = ()


class PlanCancelled(Event, tag="migration.plan_cancelled"):
    """Moves of a plan that have not begun do not begin any more; those not evicted yet are rolled back."""

    plan: PlanId
    reason: str


class PlanApproved(Event, tag="migration.plan_approved"):
    """A person lets a proposed plan be carried out: all of it, or only these `moves`; the others are declined. `by`: who, as they say."""

    plan: PlanId
    by: str
    reason: str = ""
    moves: tuple[MigrationId, ...] = ()


class PlanRejected(Event, tag="migration.plan_rejected"):
    """A person does not let a proposed plan be carried out. Its pods are left alone for a while."""

    plan: PlanId
    by: str
    reason: str


class ModeSet(Event, tag="migration.mode_set"):
    """What becomes of plans from here on: observe, propose or automatic. It holds until another one is set, or the policy's `mode` changes. `by`: who has asked for it, as they say."""

    mode: str
    by: str
    reason: str = ""


class MovesPaused(Event, tag="migration.paused"):
    """From here on no plan is made and nobody is evicted by one, until `migration.resumed`. What was evicted before still lands. `by`: who has
    asked for it, as they say; empty where it was Restow itself, by the policy's `autoPause`."""

    by: str
    reason: str


class MovesResumed(Event, tag="migration.resumed"):
    """Plans are made again. `by` as in `migration.paused`."""

    by: str
    reason: str = ""


class SearchBegun(Event, tag="migration.search_begun"):
    """From here on, a decision about plan `plan` is made in a copy of the process, with at most `steps` steps of
    search (0: as configured). Its plan or `search_ended` ends it. If neither follows, the process died with it."""

    plan: PlanId
    trigger: str
    steps: Int = 0


class SearchEnded(Event, tag="migration.search_ended"):
    """A search led to no plan. `reason`: CopyFailed (out of time, or killed for its memory), Failed (a fault of Restow's own), Died (the service ended
    first), TooLarge (more than one commit can carry), NotStored, Rejected, Stopped. `failed`: plans that nobody asked for
    are put off because of it, and searched with fewer steps unless it was Failed."""

    plan: PlanId
    reason: str
    message: str = ""
    failed: bool = True


class Bounced(Event, tag="migration.bounced"):
    """A finding: pods of this lineage (`lineage`: their controller's uid, or with `/name`) bounced off this node, `times`
    in a row. They are left alone there. With an empty `node`: somebody else disturbs their moves (`reason`), and they are left alone everywhere."""

    lineage: str
    node: NodeName
    times: Int
    reason: str = ""


class Holding(Event, tag="migration.holding"):
    """Intent: create the Reservation `restow-<migration>` that holds the slot on the target."""

    migration: MigrationId
    deadline: Millis


class LandingOpened(Event, tag="migration.landing_opened"):
    """The API has been asked to gate what this controller (its uid) makes, so that its scheduler does not look at the pod's successor before its slot is
    handed over to it: at first until `until`, which is put off while that is needed, and no event says so. Only for pods that another scheduler places."""

    migration: MigrationId
    controller: str
    until: Millis


class LandingClosed(Event, tag="migration.landing_closed"):
    """What its controller makes is gated no more on behalf of this migration."""

    migration: MigrationId


class NodeEmptied(Event, tag="migration.node_emptied"):
    """A plan has emptied the node wholly: nobody but DaemonSets' and static pods is on it. Only where the policy says that somebody is to
    take such nodes away (`emptied`)."""

    node: NodeName
    plan: PlanId


class NodeReturned(Event, tag="migration.node_returned"):
    """A node that a plan was to empty, or has emptied, is anybody's again. `reason`: NotEmptied, Refilled (somebody is on it again, or capacity is
    held there), NotTaken (nobody took it away in time), Uncordoned (by somebody else), Off (by the policy)."""

    node: NodeName
    plan: PlanId
    reason: str


class Held(Event, tag="migration.held"):
    migration: MigrationId


class ConsentAsked(Event, tag="migration.consent_asked"):
    """Intent: ask the pod's workload whether it may go, by this way (`annotation`, `:port/path` of the pod, or a URL; `hook` is the
    policy's entry, empty if an annotation of the pod declares the way). Its word counts until `deadline`. `evicts_on_silence`: if it says nothing, that is assent."""

    migration: MigrationId
    deadline: Millis
    way: str
    hook: str = ""
    evicts_on_silence: bool = False


class ConsentGiven(Event, tag="migration.consent_given"):
    """The workload has agreed. `silent`: it has said nothing in time, and its hook takes that for assent."""

    migration: MigrationId
    silent: bool = False
    message: str = ""


class ConsentRefused(Event, tag="migration.consent_refused"):
    """The workload has refused; its move fails. The pod is left alone until `again`, if that is given."""

    migration: MigrationId
    message: str = ""
    again: Millis = Millis(0)


class WorkloadToTell(Event, tag="migration.workload_to_tell"):
    """Intent: tell the workload what has become of the move, until `deadline` at most. `what`: `moved` (of pod `pod`, the successor), or `stays` (of `pod`, which was
    asked for)."""

    migration: MigrationId
    what: str
    way: str
    pod: PodUid
    deadline: Millis
    hook: str = ""


class WorkloadTold(Event, tag="migration.workload_told"):
    """It was told; or `message` says why it was not."""

    migration: MigrationId
    message: str = ""


class Evicting(Event, tag="migration.evicting"):
    """Intent: evict the pod, with its uid and resourceVersion as preconditions."""

    migration: MigrationId
    deadline: Millis


class Evicted(Event, tag="migration.evicted"):
    """The pod's deletionTimestamp, or its end, is a fact. Arms the hold."""

    migration: MigrationId
    deadline: Millis


class Aborting(Event, tag="migration.aborting"):
    """Intent: mark the pod `restow.dev/migration: aborted`, so that no late eviction can succeed, then roll back."""

    migration: MigrationId
    reason: str
    message: str = ""


class TurningBack(Event, tag="migration.turning_back"):
    """The pod has left, and its slot on the target is lost. Intent: create the Reservation `restow-<migration>-back`, which
    holds its capacity on the source again. What was held on the target is released."""

    migration: MigrationId
    deadline: Millis
    reason: str
    message: str = ""


class Landed(Event, tag="migration.landed"):
    """The successor is ready on the target."""

    migration: MigrationId
    pod: PodUid
    node: NodeName


class MigrationFailed(Event, tag="migration.failed"):
    """Rolled back: the pod stays, the hold is released. `reason` is one CamelCase word."""

    migration: MigrationId
    reason: str
    message: str = ""


class NotRecreated(Event, tag="migration.not_recreated"):
    """The pod was evicted, and its controller created no successor in time. The hold is released."""

    migration: MigrationId


class Removed(Event, tag="migration.removed"):
    """A pod without a hold was evicted: it had ended, or nobody recreates it."""

    migration: MigrationId
