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
    Packing,
    RoomFor,
)


class Planned(Event, tag="migration.planned"):
    """A plan: moves in order, what it does to packing, and why candidates stayed (counts per verdict). `trigger`: interval,
    cron, api, demand, move. `planner` made it in so many `steps` of search; `rooms` are for pods that wait, `reason` says for
    what, and `demand` is the job (a pod's uid, or `namespace/name` of a PodGroup), also where no plan was found.

    Of a policy that is carried out as a whole there is one a plugin's run: `plugin` of `profile`; `planner` is `policy` then, and
    `reason` says what the plugin warns of, such as why it did nothing. `whole`: each of the sources is emptied, or left."""

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
    rooms: tuple[RoomFor, ...] = ()
    reason: str = ""
    demand: str = ""
    profile: str = ""
    whole: bool = False


class PlanCancelled(Event, tag="migration.plan_cancelled"):
    """What has not begun of a plan does not begin any more; what was not evicted yet is rolled back."""

    plan: PlanId
    reason: str


class SearchBegun(Event, tag="migration.search_begun"):
    """From here on a decision about plan `plan` is made on a copy of the process, which takes long, with at most so many `steps` of
    search (0: as configured). Its plan ends it, or `search_ended`. Where neither follows, the process ended with it."""

    plan: PlanId
    trigger: str
    steps: Int = 0


class SearchEnded(Event, tag="migration.search_ended"):
    """It led to no plan. `reason`: CopyFailed (over its time, or killed for its memory), Died (the service ended before it did), TooLarge (more than one commit
    can carry), NotStored, Rejected, Stopped. `failed`: what is asked for by nobody is put off, and searched with fewer steps, because of it."""

    plan: PlanId
    reason: str
    message: str = ""
    failed: bool = True


class CameBack(Event, tag="migration.came_back"):
    """A finding: pods of this lineage (`lineage`: their controller's uid, or with `/name`) were moved off this node and came
    back, `times` in a row. They are left alone there."""

    lineage: str
    node: NodeName
    times: Int


class Holding(Event, tag="migration.holding"):
    """Intent: create the Reservation `restow-<migration>` that holds the landing place."""

    migration: MigrationId
    deadline: Millis


class Held(Event, tag="migration.held"):
    migration: MigrationId


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
    """The pod has left, and its landing place is lost. Intent: create the Reservation `restow-<migration>-back`, that holds its room at
    the source again; what was held at the target is released."""

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
    """The pod was evicted and its controller made no successor in time; the hold is released."""

    migration: MigrationId


class Removed(Event, tag="migration.removed"):
    """A pod that nothing was held for was evicted: it had ended, or nobody makes it again."""

    migration: MigrationId
