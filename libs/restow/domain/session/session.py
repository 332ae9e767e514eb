"""One session: what it works with, and the only ways in which it changes that."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ShapeId
from restow.contracts.values import ClaimChoice, DeviceShare
from restow.domain import accounts
from restow.domain.groups import Group
from restow.domain.memo import Memo
from restow.domain.node_table import WHOLE, Vector, available, fewer, less, vector_of
from restow.domain.occupants import Who
from restow.domain.records import Capacity, Items, Slot
from restow.domain.resources import GPU_MILLI
from restow.domain.session.backlog import Backlog
from restow.domain.session.fitting import NOBODYS, NOWHERE, EquivalenceClass, Fit, View
from restow.domain.session.framework import Filter, Within
from restow.domain.session.gates import Gates
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.journal import Attempt
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.queues import Refused
from restow.domain.session.standing_jobs import Feed, Standing
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.domain.unsaid_devices import said

K = TypeVar("K")
V = TypeVar("V")

ENQUEUE = "enqueue"


class Unfit:
    """Pods of a class that fit nowhere. `plain`: their shape and pinned node say all that counts."""

    __slots__ = ("nodes", "plain", "pod", "pods", "reasons")

    def __init__(self, pod: e.PodObserved, nodes: int, reasons: dict[str, int], plain: bool) -> None:
        self.pod, self.nodes, self.reasons, self.plain = pod, nodes, reasons, plain
        self.pods: list[PodUid] = []


class Withheld:
    """Pods that wait for something that is not a node."""

    __slots__ = ("group", "message", "nodes", "pods", "reason", "reasons")

    def __init__(self, reason: str, message: str, group: str, nodes: int, reasons: dict[str, int]) -> None:
        self.reason, self.message, self.group, self.nodes, self.reasons = reason, message, group, nodes, reasons
        self.pods: list[PodUid] = []


class Session(View):
    """Works on the node snapshot; nothing in the state changes. `events` are what was decided, in order. `unfit` are the classes of
    pods that were found to fit nowhere. `used` is what each queue uses, by column, as far
    as this session has looked at it."""

    def __init__(self, state: ClusterState, now: Millis, limit: int, turn: int = 0) -> None:
        super().__init__(state)
        self.now = now
        self.limit = limit
        self.turn = turn
        """Which part is looked at of what is too much for one session."""
        self.parts = 1
        """Sessions of so many turns in a row look at everything (RULES G-17)."""
        self.config = state.session_config
        self._pledged: dict[str, dict[int, int]] = {}
        """By queue, what its victims are to leave, less what its nominees are to have, by column."""
        self.gates = Gates(state, self.extensions, self._pledged, self.as_used)
        self.events: list[e.Event] = []
        self.used: dict[str, dict[int, int]] = {}
        self.unfit: dict[EquivalenceClass, Unfit] = {}
        self.withheld: dict[tuple[str, str], Withheld] = {}
        self.jobs: list[Job] = []
        self.backlog: Backlog
        """What waits, by what it lacks; from when the session opens."""
        self.standing: Standing
        """Jobs of which nothing runs, in their turns; from when the session opens."""
        self.beyond: dict[str, Refused] = {}
        """By queue, what it has no capacity for."""
        self.feeds: dict[str, Feed] = {}
        """By queue, those of them that are made when their turn comes."""
        self.borrowed_nothing: dict[EquivalenceClass, int] = {}
        """Classes of pods that found no hold to give them capacity, and at which of the session's `moves`."""
        self.best_effort: list[tuple[Job, PodUid]] = []
        """Pods that ask for nothing, put aside by `allocate` for `backfill`."""
        self.other_pods: OtherPods | None = None
        """Shared by the plugins that ask it."""
        self.victims: dict[PodUid, PodUid] = {}
        """Pods that this session evicts, and for whom."""
        self.nominated: dict[PodUid, Fit] = {}
        """Pods that this session holds freed capacity for."""
        self.ended: set[PodUid] = set()
        """Pods whose nomination this session has ended."""
        self.coming: Any = None
        """What rows will have free besides, once somebody has asked (`preemption.future_idle`)."""
        self.granted: dict[str, int] = {}
        """How often an account of jobs has got something, if only to try."""
        self.lowered = 0
        """How often something was taken back from what a queue uses."""
        self.searched = 0
        """What searches for how gangs fit together have cost (`gangs.ALL_STEPS`)."""
        self.shared = Memo()
        """What several plugins of this session use, one of each type."""
        self._jobs: dict[PodUid, Job] = {}
        self.handing_over = False
        """Whether the action `reserve` has come before `allocate`."""
        self.admitting = False
        """Whether the action `enqueue` has come."""
        self._undone = 0
        """Of the charges of nodes so many that were taken back, and those that took them back."""
        self._awaited: set[int] = set()
        """Rows where a slot waits for capacity since this session, if only to try."""

    # -- what a session changes; each notes how it is taken back --------------------------------------------------------

    @contextmanager
    def attempt(self, rows: Mapping[PodUid, int] = NOWHERE, within: Within | None = None) -> Iterator[Attempt]:
        """What is changed and decided within is taken back at the end, unless it is kept. They nest. Within, a pod that fits on its row of `rows` goes
        there, and pods of a gang that are to be near to each other fit in that block only."""
        journal, events, attempt = self.journal, len(self.events), Attempt()
        outermost = journal.undo is None
        mark, outer = journal.mark(), (self.meant, self.within)
        charges, undone = len(self.nodes.changes), self._undone
        self.meant, self.within = rows or self.meant, within or self.within
        try:
            yield attempt
        finally:
            self.meant, self.within = outer
            if not attempt.kept:
                journal.rollback(mark)
                del self.events[events:]
                self._undone = undone + len(self.nodes.changes) - charges
            if outermost:
                journal.undo = None

    @property
    def charged(self) -> int | None:
        """As long as it is the same number, nodes have the same free: what was tried and taken back counts as if it had not been. None within an attempt."""
        return len(self.nodes.changes) - self._undone if self.journal.undo is None else None

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """For what is not there yet."""
        mapping[key] = value
        self.journal.note(mapping.pop, key)

    def allocate(self, job: Job, pod: e.PodObserved, fit: Fit) -> None:
        """`key`, as a decision."""
        self.place(job, pod, fit)
        if fit.borrows:
            self.events += [e.HoldBorrowed(*key, pod.pod) for key in fit.borrows]
        devices = said(self.state, pod.shape, fit.row, fit.devices) if fit.devices else ()
        self.events.append(e.PodPlaced(pod.pod, self.state.table.names[fit.row], devices, fit.volumes, fit.cores))

    def place(self, job: Job, pod: e.PodObserved, fit: Fit) -> None:
        """The pod is there from now on: it is charged to its node and its queue, and rules see it."""
        uid, v, row = pod.pod, self.state.vectors[pod.shape], fit.row
        borrowed = self._borrow(fit) if fit.borrows else ()
        if fit.waiting:
            self._awaited.add(row)
            self.nodes.take(row, *self.free_of(row, v.items, fit.devices))
        else:
            self.nodes.take(row, v, fit.devices)
        for capacity in borrowed:
            # What the pod leaves of it is the hold's again (`HeldCapacity.borrow_from`).
            self.nodes.take(row, *self.free_of(row, capacity.wanted, capacity.devices))
        self.charge(job.queue, v.items, 1)
        self.placements[uid] = fit
        if (undo := self.journal.undo) is not None:
            undo.append((self.placements.pop, uid))
        self.enter(pod, row, fit.volumes, fit.waiting)
        self.hear(job, pod, 1)
        if account := job.account:
            self.granted[account] = self.granted.get(account, 0) + 1

    def count(self, job: Job, pod: e.PodObserved, more: int = 1) -> None:
        """One more member of a job has what it needs."""
        job.tell(pod, more)
        if (undo := self.journal.undo) is not None:
            undo.append((self.count, job, pod, -more))

    def enter(self, pod: e.PodObserved, row: int, volumes: tuple[ClaimChoice, ...] = (), nominee: bool = True) -> None:
        """Rules see it there; of a nominee already, where victims free capacity for it, so that nobody comes who could not stay beside it."""
        self.told += 1
        for rule in self.extensions.filters:
            rule.placed(pod, row, volumes)
        if self.other_pods is not None and (nominee or self.other_pods.nominees):
            self._meet(self.other_pods, pod, row, nominee)
        if (undo := self.journal.undo) is not None:
            undo.append((self.leave, pod, row))

    def leave(self, pod: e.PodObserved, row: int) -> None:
        """Rules do not see it there any more."""
        self.told += 1
        for rule in self.extensions.filters:
            rule.removed(pod, row)
        if self.other_pods is not None:
            self._meet(self.other_pods, pod, row, False)
        self.journal.note(self.enter, pod, row)

    def _meet(self, others: OtherPods, pod: e.PodObserved, row: int, nominee: bool) -> None:
        others.forget(pod)
        if nominee and pod.pod in self.state.pods:
            others.nominate(pod, row)

    def hear(self, job: Job, pod: e.PodObserved, sign: int) -> None:
        """Plugins are told that the pod is allocated, or is not any more."""
        for heard in self.extensions.allocated:
            heard(job, pod, sign)
        if (undo := self.journal.undo) is not None:
            undo.append((self.hear, job, pod, -sign))

    def _borrow(self, fit: Fit) -> list[Capacity]:
        """The holds give up their capacity for what is placed next. They stay where they are, with their ports, labels and CPUs, and
        rules see them again. Returns what they had."""
        self._awaited.add(fit.row)
        borrowed = []
        for key in fit.borrows:
            borrowed.append(self.vacate(fit.row, key).capacity)
            self.see(key, [rule for rule in self.extensions.filters if not rule.borrowable])
        return borrowed

    def free_of(self, row: int, wanted: Items, devices: tuple[DeviceShare, ...]) -> tuple[Vector, tuple[DeviceShare, ...]]:
        """What is held at once of a slot whose capacity is still in use, as the fold does it (`HeldCapacity.top_up`)."""
        free, shares = self.nodes.row(row)
        for i in self.state.table.taken_unsaid(row) if devices else ():
            shares = [*shares[:i], shares[i] + WHOLE, *shares[i + 1 :]]
        items, had = available(wanted, devices, free, shares, self.state.table.columns.get(GPU_MILLI))
        return vector_of(items), had

    def hand_over(self, job: Job, pod: e.PodObserved) -> e.HandedOver | None:
        """Give the pod the hold that it owns, if there is one: released and allocated in one step (RULES G-5)."""
        handed = self.offers.hand_over(pod)
        if handed is None or self._over_quota(job, pod, handed):
            return None
        key, row = (handed.reservation, handed.slot), self.state.table.rows[handed.node]
        slot, taken = self.offers.take(handed)
        if taken is None:
            self._vacate(row, key, slot)
        else:
            self.relieve(row, slot.queue, taken[0], taken[1])
        chooser = self.extensions.volumes
        volumes = chooser.choose(pod, row) if pod.claims and chooser is not None else ()
        if volumes:
            handed = replace(handed, volumes=volumes)
        self.place(job, pod, Fit(row, handed.devices, volumes, handed.cores))
        if not self.offers.is_held(key) and self.awaited(row):
            # What a smaller pod leaves of a hold goes to those who are nominated or wait on its node, not to this session.
            rest = vector_of(less(slot.capacity.held, self.state.vectors[pod.shape].items))
            self.nodes.take(row, rest, fewer(slot.capacity.held_devices, handed.devices))
        if handed.devices:
            handed = replace(handed, devices=said(self.state, pod.shape, row, handed.devices))
        self.events.append(handed)
        return handed

    def _over_quota(self, job: Job, pod: e.PodObserved, handed: e.HandedOver) -> bool:
        """Whether the pod's queue has no capacity for what the pod takes beyond the hold (RULES G-12): for all of it, where the hold
        counts for another queue, which has its own back by that. (A migration's counts for none: its queue had the pod before.)"""
        key, wanted = (handed.reservation, handed.slot), self.state.vectors[pod.shape].items
        slot = self.offers.slot(key)
        back = slot.capacity.held if self.offers.is_once(key) else self.offers.taken(slot, pod, handed)[0]
        if slot.queue in ("", job.queue):
            more = tuple(less(wanted, back))
            return bool(more) and self.gates.quota(job, pod, more) is not None
        self.charge(slot.queue, back, -1)
        over = self.gates.quota(job, pod, wanted)
        self.charge(slot.queue, back, 1)
        return over is not None

    def vacate(self, row: int, key: SlotKey) -> Slot:
        """A hold of the state is given up, and does not count any more. Returns what it was."""
        was = self.offers.give_up(key)
        self._vacate(row, key, was)
        return was

    def _vacate(self, row: int, key: SlotKey, slot: Slot) -> None:
        capacity = slot.capacity
        self.relieve(row, slot.queue, capacity.held, capacity.held_devices)
        self.left.add(key)
        self.told += 1
        for rule in self.extensions.filters:
            if key not in self._aside or rule.of_capacity:
                rule.vacated(key)
        self._aside.pop(key, None)
        self.journal.note(self._occupy, key)

    def _occupy(self, key: SlotKey) -> None:
        """The inverse of that, whoever has been looked at meanwhile."""
        self.left.discard(key)
        self.told += 1
        self._owned = NOBODYS
        for rule in self.extensions.filters:
            rule.restored(key)

    def see(self, who: Who, rules: list[Filter]) -> None:
        """These rules see a pod or a hold of the state again."""
        self.told += 1
        for rule in rules:
            rule.restored(who)
        self.journal.note(self.overlook, who, rules)

    def overlook(self, who: Who, rules: list[Filter]) -> None:
        """These rules do not see a pod or a hold of the state any more."""
        self.told += 1
        for rule in rules:
            rule.vacated(who)
        self.journal.note(self.see, who, rules)

    def awaited(self, row: int) -> bool:
        """Whether somebody waits for capacity there, and gets what comes free before this session can give it away."""
        node = self.name(row)
        return row in self._awaited or node in self.state.nominated_on or node in self.state.waiting_on

    def relieve(self, row: int, queue: str, items: Items, devices: tuple[DeviceShare, ...]) -> None:
        """A node and a queue have this back of what is held."""
        self.nodes.give(row, vector_of(items), devices)
        self.charge(queue, items, -1)

    def usage(self, queue: str) -> dict[int, int]:
        """What a queue uses now, by column. Must not be changed."""
        known = self.used.get(queue)
        if known is None:
            known = self.used[queue] = dict(self.state.accounts.of(queue))
        return known

    def charge(self, queue: str, items: Items, sign: int) -> None:
        """A queue uses so much more, or less. The empty name is no queue's."""
        if not queue:
            return
        accounts.charge(self.used.get(queue) or self.usage(queue), items, sign)
        if sign < 0:
            self.lowered += 1
        for heard in self.extensions.charged:
            heard(queue, items, sign)
        if (undo := self.journal.undo) is not None:
            undo.append((self.charge, queue, items, -sign))

    def charge_queue(self, queue: str, shape: ShapeId, sign: int) -> None:
        """For what is charged otherwise than by `key`: promises, victims."""
        self.charge(queue, self.state.vectors[shape].items, sign)

    def pledge(self, queue: str, shape: ShapeId, sign: int) -> None:
        """For what a nominee is to have (`sign` 1), and what a victim is to leave (-1): both are still to come (`quota`)."""
        self.charge_queue(queue, shape, sign)
        if queue:
            self._pledge(queue, self.state.vectors[shape].items, sign)

    def _pledge(self, queue: str, items: Items, sign: int) -> None:
        accounts.charge(self._pledged.setdefault(queue, {}), items, -sign)
        self.journal.note(self._pledge, queue, items, -sign)

    @contextmanager
    def as_used(self) -> Iterator[None]:
        """Within, queues use what they use now: victims are there, nominees are not."""
        lowered = self.lowered
        with self.attempt():
            for queue, amounts in self._pledged.items():
                self.charge(queue, tuple(amounts.items()), 1)
            yield
        self.lowered = lowered

    # -- whose pod it is ---------------------------------------------------------------------------------------------

    def job_for(self, uid: PodUid) -> Job:
        """The job of any pod, running ones included."""
        known = self._jobs.get(uid)
        if known is None:
            state = self.state
            pod = state.pods[uid].fact
            group = job_of(state, pod)
            job = single(state, pod) if group is None or group not in state.pod_groups else gang(state, group)
            for member in state.groups.get(group, ()) if job.group is not None and group is not None else (uid,):
                self._jobs[member] = job
            known = self._jobs[uid]
        return known

    def job_key(self, uid: PodUid) -> str:
        return self.job_for(uid).key

    def job_priority(self, uid: PodUid) -> int:
        return self.job_for(uid).priority

    def going(self, group: Group) -> list[PodUid]:
        """Members of a gang that were chosen as victims and are not gone yet, of this session included."""
        return self.leaving(self.state.groups.get(group, ()))

    def leaving(self, pods: Iterable[PodUid]) -> list[PodUid]:
        """Of these pods those that were chosen as victims and are not gone yet."""
        state = self.state
        return [
            uid
            for uid in pods
            if (uid in state.victims_of or uid in self.victims) and not state.pods[uid].live.deleting
        ]

    # -- what is said of those that wait -----------------------------------------------------------------------------

    @property
    def said(self) -> list[Unfit | Withheld]:
        return [*self.unfit.values(), *self.withheld.values()]

    def say_unfit(self, pod: e.PodObserved, concerned: list[Filter]) -> None:
        """The pod fits nowhere now. The counts are those of the moment when the first of its class was found unfit."""
        equivalence_class = self.equivalence_class(pod, concerned)
        known = self.unfit.get(equivalence_class)
        if known is None:
            known = self.unfit[equivalence_class] = Unfit(pod, *self.reasons(pod), plain=not concerned)
        known.pods.append(pod.pod)

    def known_unfit(self, pod: e.PodObserved, concerned: list[Filter]) -> bool:
        """Whether its class was found unfit before, and nothing that a session does can have changed that."""
        if not self.unfit or any(not rule.shrinks for rule in concerned):
            return False
        return self.equivalence_class(pod, concerned) in self.unfit

    def withhold_pod(self, job: Job, pod: PodUid, reason: str, message: str) -> None:
        """One pod of a job waits for something that is not a node."""
        known = self.withheld.get((reason, message))
        if known is None:
            known = self.withheld[reason, message] = Withheld(reason, message, "", 0, {})
        known.pods.append(pod)

    def withhold(self, job: Job, reason: str, message: str, nodes: int = 0, reasons: dict[str, int] | None = None) -> None:
        """The pods of this job wait for something that is not a node."""
        key = (reason, job.key if job.group is not None else message)
        known = self.withheld.get(key)
        if known is None:
            group = "/".join(job.group) if job.group is not None else ""
            known = self.withheld[key] = Withheld(reason, message, group, nodes, reasons or {})
        known.pods += job.tasks
