"""The framework: a session opens, plugins register functions at extension points, actions run, a session closes.

A *plugin* is a module with `Args` and `open(session, args)`, which registers what it has to say. An *action* is a module with
`run(session, args)`. Both are named in one line of a table. An extension point is of one of three kinds, and each kind has one
convention (`Extensions`): an *order* says what comes first, a *veto* why not, a *score* how good a node is. Rules about nodes are filters.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.contracts.values import ClaimChoice
from restow.domain.groups import Group
from restow.domain.occupants import Who
from restow.domain.protection import Allowance

ORDERS = {
    "queueOrder": "enableQueueOrder",
    "jobOrder": "enableJobOrder",
    "taskOrder": "enableTaskOrder",
}
"""Extension point → the switch that turns a plugin off there. What is said at `queueOrder` must not fall when a queue is charged
(`job_turns.py`). What is said at `jobOrder` of a job of which nothing runs depends on what the job says of itself: it is asked once
(`standing_jobs.py`)."""

VETOES = {
    "jobValid": "",
    "jobHeld": "enableJobEnqueued",
    "jobEnqueueable": "enableJobEnqueued",
    "jobOverdue": "enableJobEnqueued",
    "overused": "enableOverused",
    "allocatable": "enableAllocatable",
    "podWaits": "enablePredicate",
    "jobReady": "enableJobReady",
    "jobPipelined": "enableJobPipelined",
    "jobStarving": "enableJobStarving",
    "preemptive": "enablePreemptive",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "protects": "",
}
"""Where there is no switch nothing turns a plugin off. At `jobValid` lone pods without annotations that are in the same queue are told
apart by nothing, at `podWaits` plain pods of one shape: what is said of one holds for all, as long as the session lasts. A pod is plain that
has no claims of any kind, and no annotations but those of its group, queue and task, if its PodGroup has none. Three are about victims, and answer otherwise: `preemptable` and `reclaimable` (`Victims`), `protects` (`Protection`)."""

SCORES = {
    "nodeOrder": "enableNodeOrder",
    "resourceNodeOrder": "enableResourceNodeOrder",
}

FILTER = {"predicate": "enablePredicate"}

NEWS = {"allocated": "", "charged": ""}
"""What plugins are told, with a sign: 1 where it is so now, -1 where it is so no more. `allocated` hears (job, pod, sign) of a pod that is
placed or is a victim; `charged` (queue, amounts by column, sign) whatever changes what a queue uses."""

POINTS = ORDERS | VETOES | SCORES | FILTER | NEWS


class Refusal(str):
    """A veto: a sentence, with a reason of one CamelCase word. Where it is a lack of capacity, also which resource is short and how much of it
    was asked for: whoever asks for as much of it in the same queue is refused like that for the rest of the session (action `enqueue`)."""

    reason: str
    resource: str
    amount: int

    def __new__(cls, reason: str, sentence: str, resource: str = "", amount: int = 0) -> "Refusal":
        self = super().__new__(cls, sentence)
        self.reason, self.resource, self.amount = reason, resource, amount
        return self

    @property
    def message(self) -> str:
        return str(self)


Answer = str | bool | None
"""What a veto answers: a sentence (or a Refusal) against it, nothing where it has no objection, and PERMITTED where later tiers need not
be asked."""
PERMITTED = True


class Victims(Protocol):
    """Registered at `preemptable` or `reclaimable`."""

    def __call__(self, claimer: PodUid, candidates: Sequence[PodUid]) -> Iterable[PodUid]:
        """Those that may go together for the claimer. They are asked about the least important first."""
        ...


class Protection(Protocol):
    """What keeps pods from being victims; registered at `protects` (RULES G-11). It is a veto and no vote: it does not know for
    whom a pod is to go, it is asked in every tier and every action, and no switch turns it off."""

    def __call__(self, uid: PodUid) -> Iterable[Allowance]:
        """For each thing that the pod belongs to and that is to keep some of its pods: its name, and how many may still go; none
        where that is 0. Pods that were chosen as victims already, in this session, too, are counted as gone."""
        ...


class Filter:
    """A rule about nodes that depends on what runs now; the base of those registered as filters. What it says of itself:

    `stage`: its place in the chain (`STAGES`). `shrinks`: placements can only make it remove more. `of_pods`: it is about which other
    pods run where. `of_capacity`: it is about amounts; a pod takes the place of the one hold that it takes from, and of all others that it
    owns it is judged as if they were not there. `borrowable`: of these a hold gives up, when its capacity is borrowed, what this rule counts.
    `for_others`: it keeps capacity for somebody; hand-overs of existing holds are exempt (RULES G-8), for what is held already takes
    no more, and new nodes would not be kept. `lasting`: nobody's leaving opens what it removes. `active`: False where it can concern no pod as long as the session lasts; then it is never
    asked, nor told anything."""

    stage: str
    shrinks = True
    of_pods = False
    of_capacity = False
    borrowable = False
    for_others = False
    lasting = False
    active = True

    def concerns(self, pod: PodObserved) -> bool:
        """Whether it can remove any node for this pod now. Asked for every pod: must be cheap."""
        raise NotImplementedError

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        """(reason, `(nodes,) bool` rows that it removes), in the order in which they are counted."""
        raise NotImplementedError

    def never(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        """As `failing`, but where the rule is about amounts only rows that would not do if nothing else ran there (seed 002)."""
        return self.failing(pod)

    def key(self, pod: PodObserved) -> Hashable:
        """Equal for pods that the rule treats alike."""
        return self.stage

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        """The session has put this pod there; `removed` takes it back."""

    def removed(self, pod: PodObserved, row: int) -> None: ...

    def vacated(self, who: Who) -> None:
        """What the state has somewhere, a hold or a victim, does not count any more; `restored` takes it back."""

    def restored(self, who: Who) -> None: ...

    def close(self) -> None:
        """The session ends: whatever it has put anywhere is taken back."""


class VolumeChooser(Protocol):
    """Named by the plugin that knows volumes."""

    def waits(self, pod: PodObserved) -> str:
        """Why no node will do before something else happens; empty where that is not so."""
        ...

    def choose(self, pod: PodObserved, row: int) -> tuple[ClaimChoice, ...]: ...


class CoreChooser(Protocol):
    """Named by the plugin that knows CPUs."""

    def choose(self, pod: PodObserved, row: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """CPUs for a pod on a row, in order: of those that a hold has (`preferred`) first. () for pods that want none of
        their own, None where they cannot be had."""
        ...

    def free(self, row: int) -> tuple[int, ...]:
        """CPUs of the row that are nobody's, in order."""
        ...


class Within(NamedTuple):
    """A block of nodes that a gang is tried in: whose gang, the place of the block's tier among those of the session, and its number there."""

    group: Group
    tier: int
    number: int


class BlockChooser(Protocol):
    """Named by the plugin that knows which nodes are near to each other."""

    def choices(self, job: Any, pods: Sequence[PodObserved], evicting: bool = False) -> Iterable[Within | None]:
        """Blocks to try for a gang, in order; None for all nodes: the only choice where nothing is asked for it. `evicting`: others give way for it, in a few blocks a session."""
        ...

    def freeable(self, job: Any, pods: Sequence[PodObserved], most: Any = None) -> Iterable[Within | None]:
        """All of the widest blocks that it may be in, in order, in which it would fit with `most` free, `(nodes, resources)` (without: if they were empty); None for all nodes."""
        ...

    def narrower(self, job: Any, pods: Sequence[PodObserved], most: Any) -> Iterable[Sequence[Within]]:
        """The same of each tier below these, the narrowest first."""
        ...

    def inside(self, within: Within) -> Any:
        """`(nodes,) bool`: which nodes are in the block."""
        ...

    def sentence(self, job: Any, pods: Sequence[PodObserved]) -> str:
        """Why it does not fit; empty where it may be anywhere."""
        ...

    def concerns(self, pod: PodObserved) -> bool:
        """Whether it is to be near to others."""
        ...

    def near(self, pod: PodObserved, now: bool = False) -> Any:
        """`(nodes,) int64`: the more, the nearer each node is to the others of the pod's gang, where those would be, or are `now`; None where nothing is asked for it, or nobody else is there. `pod`
        may stand for one that would move."""
        ...

    def leave(self, pods: Iterable[PodUid]) -> None:
        """Members of a gang that are to be moved as one: where they run does not count."""
        ...


STAGES = ("reserved", "window", "reusable", "rejected", "network", "ports", "capacity", "nominated", "proportional", "devices", "cores", "numa", "volumes", "spread", "affinity")
"""The order in which rules are asked and reasons are counted: a node counts for the first that removes it."""
CAPACITY = STAGES.index("capacity")
"""Where amounts stand in it, which are no filter."""


class Plugin(Protocol):
    """A module. `Args` is its arguments' type; `open` registers with `session.extensions`, and the session is otherwise only read.

    It may have three more functions. `deadline(state, args, after)`: when a session is due although nothing happens. `turns_away(state, args,
    pod)`: of its refusals at `jobValid` those that no capacity helps against; nobody is moved whose successor would meet one
    (`successors.py`). `keeps(state, args, uid)`: whether a pod whose eviction was decided stays for now, for what has come since (RULES G-11); asked
    before every attempt."""

    def open(self, session: Any, args: Any) -> None: ...


class Action(Protocol):
    def run(self, session: Any, args: Any) -> None: ...
