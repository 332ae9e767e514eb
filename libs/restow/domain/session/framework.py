"""The framework: a session opens, plugins register functions at extension points, actions run, a session closes.

A *plugin* is a module with `Args` and `open(session, args)`, which registers what it has to say. An *action* is a module with
`run(session, args)`. Both are named in one line of a table. Of an extension point the functions are kept tier by
tier, in the order of the configuration; a plugin's `enable…` switch leaves its function out.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.contracts.values import ClaimChoice
from restow.domain.occupants import Who
from restow.domain.protection import Allowance

POINTS = {
    "jobOrder": "enableJobOrder",
    "taskOrder": "enableTaskOrder",
    "queueOrder": "enableQueueOrder",
    "jobValid": "",
    "jobReady": "enableJobReady",
    "jobPipelined": "enableJobPipelined",
    "jobHeld": "enableJobEnqueued",
    "jobEnqueueable": "enableJobEnqueued",
    "jobOverdue": "enableJobEnqueued",
    "jobEnqueued": "",
    "jobStarving": "enableJobStarving",
    "overused": "enableOverused",
    "allocatable": "enableAllocatable",
    "podWaits": "enablePredicate",
    "predicate": "enablePredicate",
    "nodeOrder": "enableNodeOrder",
    "resourceNodeOrder": "enableResourceNodeOrder",
    "protects": "",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "allocated": "",
    "deallocated": "",
    "charged": "",
}
"""Extension point → the switch that turns a plugin off there; events have none, and protections neither. At `jobValid` lone pods without annotations
that are in the same queue are told apart by nothing. `charged` hears (queue, amounts by column, sign)
whatever changes what a queue uses; what is said at `queueOrder` must not fall when a queue is charged (`turns.py`). What is said at `jobOrder` of a job of which nothing runs
depends on what the job says of itself: it is asked once (`standing.py`)."""


class Protection(Protocol):
    """What keeps pods from being victims; registered at `protects` (RULES G-11). It is a veto and no vote: it does not know for
    whom a pod is to go, it is asked in every tier and every action, and no switch turns it off."""

    def __call__(self, uid: PodUid) -> Iterable[Allowance]:
        """For each thing that the pod belongs to and that is to keep some of its pods: its name, and how many may still go; none
        where that is 0. Pods that were chosen as victims already, in this session, too, are counted as gone."""
        ...


class Filter(Protocol):
    """A rule about nodes that depends on what runs now; registered at `predicate`. Its place in the chain is `stage`
    (`STAGES`). `shrinks`: placements can only make it remove more. `concerns` is asked for every pod and must be cheap. A rule
    about room has a method `never`, too: as `failing`, but only rows that would not do if nothing else ran there (seed 002)."""

    stage: str
    shrinks: bool
    active: bool
    """False where it can concern no pod as long as the session lasts: then it is never asked, nor told anything."""

    def concerns(self, pod: PodObserved) -> bool:
        """Whether it can remove any node for this pod now."""
        ...

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        """(reason, `(nodes,) bool` rows that it removes), in the order in which they are counted."""
        ...

    def key(self, pod: PodObserved) -> Hashable:
        """Equal for pods that the rule treats alike."""
        ...

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        """The session has put this pod there; `removed` takes it back."""
        ...

    def removed(self, pod: PodObserved, row: int) -> None: ...

    def vacated(self, who: Who) -> None:
        """What the state has somewhere, a hold or a victim, does not count any more; `restored` takes it back."""
        ...

    def restored(self, who: Who) -> None: ...

    def close(self) -> None:
        """The session ends: whatever it has put anywhere is taken back."""
        ...


class DynamicScorer(Protocol):
    """A preference that depends on what runs now; registered at `nodeOrder`. `active` as of a Filter."""

    active: bool

    def concerns(self, pod: PodObserved) -> bool: ...

    def scores(self, pod: PodObserved, among: Any) -> Any:
        """`(nodes,) int64` weighted scores, over the rows in `among` `(nodes,) bool`; None where there is no preference."""
        ...


class VolumeChooser(Protocol):
    """Registered by the plugin that knows volumes."""

    def waits(self, pod: PodObserved) -> str:
        """Why no node will do before something else happens; empty where that is not so."""
        ...

    def choose(self, pod: PodObserved, row: int) -> tuple[ClaimChoice, ...]: ...


class CoreChooser(Protocol):
    """Registered by the plugin that knows CPUs."""

    def choose(self, pod: PodObserved, row: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """CPUs for a pod on a row, in order: of those that a hold has (`preferred`) first. () for pods that want none of
        their own, None where they cannot be had."""
        ...


STAGES = ("reserved", "window", "reusable", "ports", "room", "proportional", "cores", "numa", "volumes", "spread", "affinity")
"""The order in which rules are asked and reasons are counted: a node counts for the first that removes it."""
LOOSENED = frozenset({"window", "proportional"})
"""Rules that a placement may loosen for others: the last reserve task of a window, a pod that takes an idle GPU."""


class Plugin(Protocol):
    """`open` registers with `session.extensions`; the session is otherwise only read. `version`, if a plugin has it, names
    what its static scores depend on besides nodes and shapes. `deadline`, if it has it, is when a session is due although
    nothing happens. `turns_away(state, args, pod)`, if it has it, says of its refusals at `jobValid` those that no room helps against: nobody
    is moved whose successor would meet one (`successors.py`)."""

    def open(self, session: Any, args: Any) -> None: ...


class Action(Protocol):
    def run(self, session: Any, args: Any) -> None: ...


class Short(str):
    """A veto at `jobEnqueueable`, and why: so much of a resource is not to be had. The same is said to every job of the queue that asks
    for as much of it, for the rest of the session."""

    resource: str
    amount: int

    def __new__(cls, sentence: str, resource: str, amount: int) -> "Short":
        self = super().__new__(cls, sentence)
        self.resource, self.amount = resource, amount
        return self


class Refusal(Exception):
    """Why a job is not valid: one CamelCase word and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message
