"""The time index: a fold over the states of a log that keeps what the map showed at every instant.

After each commit it looks at what the commit has touched, and keeps the rows that are others now. What it shows at any sequence is what
`view` shows of the state there; a property test holds both equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from restow.console.tracks import Grown, Track
from restow.console.view import Shares, hold_row, move_row, node_row, pod_row
from restow.contracts import events as e
from restow.contracts.ids import FAMILIES, NodeName
from restow.contracts.values import Move
from restow.domain.records import Plan, SlotPhase, Step
from restow.domain.resources import GPU_MILLI, MEMORY
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState, Touched
from restow.replay.batch import works_out_shares
from restow.replay.pod_status import STATUSES
from restow.replay.sentences import sentence

KINDS = ("nodes", "pods", "holds", "moves")
STEPS = tuple(str(step) for step in Step)
PHASES = tuple(str(phase) for phase in SlotPhase)
WAITS = [STATUSES.index(status) for status in ("Pending", "Waiting", "Gated", "Nominated")]
LEFT = [STATUSES.index(status) for status in ("Terminating", "Succeeded", "Failed")]
"""Statuses of pods that want a node and have none, and of those that have ended or are on their way out."""
READY, CLOSED = 1, 2
NOWHERE = -1
"""The slot of a node, pod or move that is none."""
_MOST = (1 << 31) - 1
USED = {"devices": GPU_MILLI, "cpu": "cpu", "memory": MEMORY}
"""What is followed of what queues use: the resource of each."""
_NOTHING = (0,) * len(USED)
_MOST_USED = 1 << 50
"""Of one queue: sums of them stay whole numbers in a page, too."""

_SHARES = [("first", "<u4"), ("count", "<u2")]
"""Where the device shares of a row are in `Index.shares`."""
DTYPES: dict[str, list[tuple[str, str]]] = {
    "nodes": [("slot", "<u4"), ("flags", "u1"), ("cpu", "<f8"), ("memory", "<f8"), ("kind", "<u4"), ("rack", "<u4"), ("zone", "<u4"), *_SHARES],
    "pods": [
        ("slot", "<u4"), ("status", "u1"), ("ready", "u1"), ("node", "<i4"), ("cpu", "<f8"), ("memory", "<f8"), ("unsaid", "<u2"), ("asked", "<f8"),
        ("queue", "<u4"), ("priority", "<i4"), ("workload", "<u4"), ("podgroup", "<u4"), *_SHARES,
    ],
    "holds": [("slot", "<u4"), ("node", "<i4"), ("phase", "u1"), ("cpu", "<f8"), ("memory", "<f8"), ("move", "<i4"), *_SHARES],
    "moves": [
        ("slot", "<u4"), ("plan", "<u4"), ("pod", "<i4"), ("successor", "<i4"), ("source", "<i4"), ("target", "<i4"), ("step", "u1"),
        ("since", "<f8"), ("reason", "<u4"), ("message", "<u4"),
    ],
}  # fmt: skip
"""The record of each kind. Words are indices of `Index.words`; nodes, pods and moves are slots."""

MARKS: dict[type, str] = {
    e.Planned: "plan", e.PlanCancelled: "cancelled", e.PlanApproved: "approved", e.PlanRejected: "rejected", e.ModeSet: "mode", e.MovesPaused: "paused", e.MovesResumed: "resumed", e.NodeGone: "node gone",
    e.MigrationFailed: "move failed", e.NotRecreated: "not recreated", e.Preempted: "preempted", e.LogRepaired: "repaired",
}  # fmt: skip
"""What one may want to jump to."""


class Mark(msgspec.Struct, frozen=True):
    """Something worth jumping to. `what` is one of `MARKS`."""

    seq: int
    time: int
    what: str
    text: str


class Lead(msgspec.Struct, frozen=True):
    """Somebody leads a family from this commit on (`time` in ms)."""

    seq: int
    time: int
    family: str
    holder: str
    epoch: int


class Level(msgspec.Struct, frozen=True):
    """What a queue is guaranteed, deserves and may have at most, by resource, and below which one it is, from this sequence on; all empty where it is gone."""

    seq: int
    queue: str
    parent: str = ""
    guarantee: dict[str, int] = {}
    deserved: dict[str, int] = {}
    capability: dict[str, int] = {}


class Kept(msgspec.Struct):
    """What the garbage collector has said last: up to which sequence the log is archived and truncated, and what the newest snapshot has. Times in ms; 0 for never, or before what is known of the log."""

    archived: int = 0
    archived_at: int = 0
    truncated: int = 0
    truncated_at: int = 0
    snapshot: int = 0
    snapshot_at: int = 0
    snapshot_size: int = 0


class PlanNote(msgspec.Struct):
    """A plan as it was made, and when (in ms). `cancelled` since that sequence, 0 for never. `until`: for how long it waits for a person, in ms; 0 where it does not. `looks`: what was seen later of one that was only observed, with its sequence. `answers`: what a
    person has said of one that was proposed, with sequence and time; the first counts."""

    seq: int
    time: int
    planned: e.Planned
    cancelled: int = 0
    why: str = ""
    until: int = 0
    looks: list[tuple[int, e.LookedBack]] = []
    answers: list[tuple[int, int, e.PlanApproved | e.PlanRejected]] = []

    def answer(self, at: int) -> tuple[int, int, e.PlanApproved | e.PlanRejected] | None:
        """The one that counts, if it had come by that sequence."""
        return next((one for one in self.answers if one[0] <= at), None)

    def approved(self, at: int) -> list[Move]:
        """Its moves that a person had approved by then: all where the approval names none, for nobody can approve a move without those that it needs."""
        said = self.answer(at)
        if said is None or not isinstance(said[2], e.PlanApproved):
            return []
        chosen = said[2].moves
        return [move for move in self.planned.moves if not chosen or move.migration in chosen]


class Index:
    """Grows with the log. Reading it while it grows needs a lock (`follow.Follower.lock`)."""

    def __init__(self) -> None:
        self.first = self.last = 0
        """Sequences that it knows; 0 and 0 for none."""
        self.began = self.latest = 0
        """When `first` and `last` were committed, in ms. These may be read without the lock, as the two above."""
        self.tracks = {kind: Track(np.dtype(DTYPES[kind])) for kind in KINDS}
        self.words: list[str] = [""]
        self.labels: dict[str, str] = {}
        """`namespace/name` of pods by uid, and of Reservations by theirs."""
        self.marks: list[Mark] = []
        self.plans: dict[str, PlanNote] = {}
        self.leads: list[Lead] = []
        self._epochs: dict[str, int] = {}
        """Who led before what is known of the log: an older one says nothing any more."""
        self.levels: list[Level] = []
        """As they were said of each queue, in the order of the log."""
        self.worked_out: list[tuple[int, bool]] = []
        """Since which sequence a plugin works out what queues deserve, or none does."""
        self.kept = Kept()
        self.from_snapshot = False
        """Whether the first commit is none, but what a snapshot had."""
        self.events = self.bytes = 0
        self._commits = Grown([("time", "<i8"), ("family", "u1"), ("events", "<u4")])
        self._shares = Grown([("index", "u1"), ("milli", "<i4")])
        self._used = Grown([("seq", "<i8"), ("queue", "<u4"), *((name, "<i8") for name in USED)])
        self._using: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[str, int] = {"": 0}
        self._moved = self._parked = self._rows = 0
        self._shapes: set[str] = set()

    @property
    def commits(self) -> np.ndarray:
        """`(last - first + 1,)`: `time` in ms, which never goes back; `family` as in `FAMILIES`; how many events."""
        return self._commits.array

    @property
    def shares(self) -> np.ndarray:
        """The device shares that rows point to: `index`, `milli`."""
        return self._shares.array

    @property
    def used(self) -> np.ndarray:
        """What is accounted to a queue itself (`domain.accounts`) from which sequence on (`seq`), in the log's order: `queue` is a word, `devices` and `cpu` are in thousandths, `memory` in bytes."""
        return self._used.array

    # -- fold --------------------------------------------------------------------------------------------------------

    def begin(self, state: ClusterState) -> None:
        """Where the log has let its beginning go: all that is there as of a snapshot, which counts as a commit without events."""
        self.first = self.last = state.seq
        self.began = self.latest = int(state.time)
        self._commits.add((self.latest, 0, 0))
        self.from_snapshot = True
        self._epochs = {str(family): leader.epoch for family, leader in state.leaders.items()}
        self.kept = Kept(archived=state.archived, truncated=state.truncated, snapshot=max(state.snapshot_seq, state.seq))
        # Of pods that have been moved only their moves know the names.
        named: list[tuple[str, Any]] = [(one.move.pod, one.move) for one in state.migrations.values()]
        named += [(uid, known.fact) for known_by in (state.pods, state.reservations) for uid, known in known_by.items()]
        self.labels = {uid: f"{one.namespace}/{one.name}".removeprefix("/") for uid, one in named}
        self._shapes = set(state.shapes)
        for plan in sorted(state.plans.values(), key=lambda one: one.at):
            self._remember(state, plan)
        for queue in state.queues:
            self._level(state, queue)
        self.worked_out.append((state.seq, works_out_shares(state)))
        self._use(state, state.accounts.queues())
        self._follow(state)
        found = _Found()
        found.moves |= dict.fromkeys(state.migrations)
        self._all(state, found)
        self._rows_of(state, found)

    def _remember(self, state: ClusterState, plan: Plan) -> None:
        """A plan that was made before the log begins. What a person has said of it counts from the beginning on; how it looked later, nobody knows any more."""
        id, said = plan.planned.plan, list[tuple[int, int, e.PlanApproved | e.PlanRejected]]()
        if plan.answer == "approved":
            said.append((state.seq, plan.answered, e.PlanApproved(id, plan.by, plan.why, plan.chosen)))
        elif plan.answer:
            said.append((state.seq, plan.answered, e.PlanRejected(id, plan.by, plan.why)))
        why = state.cancelled.get(id)
        self.plans[id] = PlanNote(state.seq, plan.at, plan.planned, state.seq if why is not None else 0, why or "", state.proposals.get(id, 0), answers=said)

    def note(self, state: ClusterState, family: str, size: int, told: list[Any]) -> None:
        """A commit of `size` bytes was folded; the events that it `told`, none where it is void."""
        seq, time = state.seq, max(int(state.time), self.latest)
        if not self.first:
            self.first, self.began = seq, time
            self.worked_out.append((seq, works_out_shares(state)))
        self.last, self.latest = seq, time
        self.events, self.bytes = self.events + len(told), self.bytes + size
        self._commits.add((time, FAMILIES.index(family) if family in FAMILIES else 0, min(len(told), _MOST)))
        found = _Found()
        for event in told:
            self._hear(state, event, found)
            self._keep(seq, time, family, event)
            if type(event) in MARKS:
                self._mark(seq, time, event)
        self._use(state, state.touched.queues)
        self._gather(state, found)
        self._rows_of(state, found)

    def _use(self, state: ClusterState, queues: Iterable[str]) -> None:
        """Keep what these use, where it is something else now."""
        for queue in queues:
            amounts = state.accounts.of(queue)
            now = tuple(min(amounts.get(state.table.columns.get(resource, -1), 0), _MOST_USED) for resource in USED.values())
            if self._using.get(queue, _NOTHING) != now:
                self._using[queue] = now
                self._used.add((state.seq, self.word(queue), *now))

    def _rows_of(self, state: ClusterState, found: _Found) -> None:
        """Keep the rows that are others now."""
        seq = state.seq
        for name in found.nodes:
            self._put("nodes", seq, name, node_row(state, name))
        for uid in found.pods:
            self._put("pods", seq, uid, pod_row(state, uid))
        for key in found.holds:
            self._put("holds", seq, key, hold_row(state, key))
        for id in found.moves:
            self._put("moves", seq, id, move_row(state, id))  # type: ignore[arg-type]
        state.touched = Touched()

    def _hear(self, state: ClusterState, event: Any, found: _Found) -> None:
        """What an event may have changed beyond what the state says was touched."""
        match event:
            case e.PodObserved(pod=uid, namespace=namespace, name=name):
                self.labels[uid] = f"{namespace}/{name}"
                found.pods[uid] = None
            case e.ReservationObserved(reservation=uid, namespace=namespace, name=name):
                self.labels[uid] = f"{namespace}/{name}".removeprefix("/")
                self._all_of(state, uid, found)
            case e.NodeObserved(name=name) | e.NodeGone(name=name):
                found.nodes[name] = None
                found.pods |= dict.fromkeys(state.on_node.get(name, ()))
            case e.WorkloadObserved(uid=uid) | e.WorkloadGone(uid=uid):
                found.pods |= dict.fromkeys(state.owned.get(uid, ()))
            case e.PodGroupObserved(namespace=namespace, name=name) | e.PodGroupGone(namespace=namespace, name=name):
                found.pods |= dict.fromkeys(state.groups.get((namespace, name), ()))
            case e.ShapeDeclared(shape=shape):
                if shape in self._shapes:
                    found.pods |= {uid: None for uid, pod in state.pods.items() if pod.fact.shape == shape}
                self._shapes.add(shape)
            case e.Planned(plan=plan):
                self.plans.setdefault(plan, PlanNote(state.seq, self.latest, event, until=state.proposals.get(plan, 0)))
                # Plans of long ago are forgotten with their moves when a new one is made.
                found.moves |= {id: None for id in self.tracks["moves"].present() if id not in state.migrations}
            case e.QueueObserved(name=name) | e.QueueGone(name=name):
                self._level(state, name)
            case e.SessionConfigured():
                self.worked_out.append((state.seq, works_out_shares(state)))
            case e.PlanCancelled(plan=plan, reason=reason) if (note := self.plans.get(plan)) is not None and not note.cancelled:
                note.cancelled, note.why = state.seq, reason
            case e.LookedBack(plan=plan) if (note := self.plans.get(plan)) is not None:
                note.looks.append((state.seq, event))
            case (e.PlanApproved(plan=plan) | e.PlanRejected(plan=plan)) if (note := self.plans.get(plan)) is not None:
                note.answers.append((state.seq, self.latest, event))
        if isinstance(pod := getattr(event, "pod", None), str):
            found.pods[pod] = None
        if isinstance(move := getattr(event, "migration", None), str):
            found.moves[move] = None
        if isinstance(reservation := getattr(event, "reservation", None), str):
            self._all_of(state, reservation, found)

    def _level(self, state: ClusterState, name: str) -> None:
        fact = state.queues.get(name)
        self.levels.append(Level(state.seq, name) if fact is None else Level(state.seq, name, fact.parent, fact.guarantee, fact.deserved, fact.capability))

    def _keep(self, seq: int, time: int, family: str, event: Any) -> None:
        """Who leads, and what is kept of the log."""
        kept = self.kept
        match event:
            case e.Led(epoch=epoch, holder=holder) if epoch > max((lead.epoch for lead in self.leads if lead.family == family), default=self._epochs.get(family, 0)):
                self.leads.append(Lead(seq, time, family, holder, epoch))
            case e.Archived(last=last):
                # An archive that was lost begins again, and may end before the old one did.
                kept.archived, kept.archived_at = last, time
            case e.Truncated(upto=upto):
                kept.truncated, kept.truncated_at = max(kept.truncated, upto), time
            case e.SnapshotTaken(seq=of, size=size):
                kept.snapshot, kept.snapshot_at, kept.snapshot_size = of, time, size

    def _all_of(self, state: ClusterState, uid: Any, found: _Found) -> None:
        found.holds |= {(uid, slot): None for slot in state.slots.get(uid, ())}

    def _gather(self, state: ClusterState, found: _Found) -> None:
        """What the state says has changed, and what follows from it on the same nodes."""
        moved, parked, rows = state.moved.since(self._moved), state.parkings.since(self._parked), state.changed_rows.since(self._rows)
        self._follow(state)
        if moved is None or parked is None or rows is None:
            # More than is remembered.
            return self._all(state, found)
        for who in moved:
            if isinstance(who, str):
                found.pods[who] = None
            else:
                found.holds[who] = None
        found.pods |= dict.fromkeys(parked)
        names = state.table.names
        found.nodes |= {name: None for row in rows if (name := names[row]) in state.nodes}
        found.moves |= dict.fromkeys(state.touched.migrations)
        for uid in state.touched.reservations:
            self._all_of(state, uid, found)
        # What is held on a node follows from who else is there.
        if state.held_on:
            there = [*found.nodes, *(state.node_of(uid) or "" for uid in found.pods), *self._nodes_of(found.pods)]
            for node in dict.fromkeys(there):
                found.holds |= dict.fromkeys(state.held_on.get(NodeName(node), ()))

    def _follow(self, state: ClusterState) -> None:
        self._moved, self._parked, self._rows = state.moved.position, state.parkings.position, state.changed_rows.position

    def _all(self, state: ClusterState, found: _Found) -> None:
        """Everything is looked at anew."""
        found.nodes |= dict.fromkeys([*self.tracks["nodes"].present(), *state.nodes])
        found.pods |= dict.fromkeys([*self.tracks["pods"].present(), *state.pods])
        found.holds |= dict.fromkeys([*self.tracks["holds"].present(), *(key for held in state.held_on.values() for key in held)])

    def _nodes_of(self, pods: Iterable[str]) -> list[str]:
        """Where they were until now."""
        track = self.tracks["pods"]
        rows = [track.row(uid) for uid in pods]
        return [row.node for row in rows if row is not None]

    def _put(self, kind: str, seq: int, key: Any, row: Any) -> None:
        track = self.tracks[kind]
        if track.row(key) != row:
            track.put(seq, key, row, None if row is None else _RECORDS[kind](self, track.slot(key), row))

    def _mark(self, seq: int, time: int, event: Any) -> None:
        if isinstance(event, e.Planned) and not event.moves and not event.slots:
            return
        self.marks.append(Mark(seq, time, MARKS[type(event)], sentence(event, self.labels)))

    # -- rows as records ---------------------------------------------------------------------------------------------

    def word(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.words)
            self.words.append(text)
        return found

    def number(self, text: str) -> int:
        """Of a word that is known; 0, as of none, where it is not."""
        return self._numbers.get(text, 0)

    def _slot(self, kind: str, key: str) -> int:
        return self.tracks[kind].slot(key) if key else NOWHERE

    def _kept(self, shares: Shares) -> tuple[int, int]:
        first = len(self._shares)
        for index, milli in shares:
            self._shares.add((index, max(-_MOST, min(milli, _MOST))))
        return first, len(shares)

    def _node(self, slot: int, row: Any) -> tuple:
        flags = READY * row.ready + CLOSED * row.closed
        words = self.word(row.kind), self.word(row.rack), self.word(row.zone)
        return (slot, flags, row.cpu, row.memory, *words, *self._kept(tuple((index, 1000) for index in row.devices)))

    def _pod(self, slot: int, row: Any) -> tuple:
        return (
            slot, STATUSES.index(row.status), row.ready, self._slot("nodes", row.node), row.cpu, row.memory, max(0, min(row.unsaid, 65_535)),
            row.asked, self.word(row.queue), max(-_MOST, min(row.priority, _MOST)), self.word(row.workload), self.word(row.podgroup),
            *self._kept(row.devices),
        )  # fmt: skip

    def _hold(self, slot: int, row: Any) -> tuple:
        return (
            slot, self._slot("nodes", row.node), PHASES.index(row.phase), row.cpu, row.memory, self._slot("moves", row.migration),
            *self._kept(row.devices),
        )  # fmt: skip

    def _move(self, slot: int, row: Any) -> tuple:
        return (
            slot, self.word(row.plan), self._slot("pods", row.pod), self._slot("pods", row.successor), self._slot("nodes", row.source),
            self._slot("nodes", row.target), STEPS.index(row.step), row.since, self.word(row.reason), self.word(row.message),
        )  # fmt: skip


_RECORDS = {"nodes": Index._node, "pods": Index._pod, "holds": Index._hold, "moves": Index._move}


class _Found:
    """Keys whose rows may be others now."""

    __slots__ = ("holds", "moves", "nodes", "pods")

    def __init__(self) -> None:
        self.nodes: dict[Any, None] = {}
        self.pods: dict[Any, None] = {}
        self.holds: dict[SlotKey, None] = {}
        self.moves: dict[str, None] = {}
