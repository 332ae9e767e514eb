"""One session: what it works with, and the only ways in which it changes that."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ShapeId
from restow.contracts.values import DeviceShare
from restow.domain.accounts import charge
from restow.domain.groups import Group
from restow.domain.places import Place
from restow.domain.records import Items, Room, Slot
from restow.domain.session import queues
from restow.domain.session.framework import Filter, Refusal
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.quotas import Refused
from restow.domain.session.standing import Feed
from restow.domain.session.view import NOBODYS, Fit, Kind, Rest, View
from restow.domain.state import ClusterState
from restow.domain.table import less, vector_of


class Unfit:
    """Pods of a kind that fit nowhere. `plain`: their shape and pinned node say all that counts."""

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
    """Works on the board; nothing in the state changes. `events` are what was decided, in order. `unfit` are the kinds of
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
        self.events: list[e.Event] = []
        self.used: dict[str, dict[int, int]] = {}
        self.unfit: dict[Kind, Unfit] = {}
        self.withheld: dict[tuple[str, str], Withheld] = {}
        self.jobs: list[Job] = []
        self.backlog: Any = None
        """What waits, by what it lacks (`backlog.Backlog`)."""
        self.beyond: dict[str, Refused] = {}
        """By queue, what it has no room for."""
        self.feeds: dict[str, Feed] = {}
        """By queue, jobs that wait and are made when their turn comes (`standing`)."""
        self.best_effort: list[tuple[Job, PodUid]] = []
        """Pods that ask for nothing, put aside by `allocate` for `backfill`."""
        self.company: Any = None
        """The index of who is where, shared by the plugins that ask it."""
        self.victims: dict[PodUid, PodUid] = {}
        """Pods that this session evicts, and for whom."""
        self.nominated: dict[PodUid, Fit] = {}
        """Pods that this session holds freed capacity for."""
        self.ended: set[PodUid] = set()
        """Pods whose nomination this session has ended."""
        self.coming: Any = None
        """What rows will have free besides, once somebody has asked (`coming.of`)."""
        self.lowered = 0
        """How often something was taken back from what a queue uses."""
        self.shared: dict[str, Any] = {}
        """What several plugins of this session use."""
        self._jobs: dict[PodUid, Job] = {}
        self.handing_over = False
        """Whether the action `reserve` has come before `allocate`."""
        self.admitting = False
        """Whether the action `enqueue` has come."""
        self.valid_queues: dict[str, Refusal | None] = {}
        """What was said of lone pods without annotations, by queue."""
        self._awaited: set[int] = set()
        """Rows where a place waits for room since this session."""
        self._taken_from: dict[PodUid, tuple[Slot, Rest | None]] = {}
        """What the place was that a pod of this session has been handed, and what of it was left to others."""

    def refusal(self, job: Job) -> Refusal | None:
        """Why its queue or a plugin does not let the job be looked at."""
        why = queues.refused(self.state, job.queue) or self.extensions.refusal("jobValid", job)
        return why if isinstance(why, Refusal) else None

    # -- changes, and back -------------------------------------------------------------------------------------------

    def place(self, job: Job, pod: e.PodObserved, fit: Fit) -> None:
        """Charge a pod to its node and its queue."""
        lent = self._lend(fit) if fit.lent else ()
        v, row, extensions = self.state.vectors[pod.shape], fit.row, self.extensions
        if fit.waiting:
            self._awaited.add(row)
            fit.taken = self._free_of(row, v.items, fit.devices)
            self.board.take(row, *fit.taken)
        else:
            self.board.take(row, v, fit.devices)
        for room in lent:
            # What the pod leaves of it is the hold's again (`Rooms.lend`).
            rest = self._free_of(row, room.wanted, room.devices)
            fit.left = (*fit.left, rest)
            self.board.take(row, *rest)
        self._account(job.queue, v.items, 1)
        self.placements[pod.pod] = fit
        for rule in extensions.filters:
            rule.placed(pod, row, fit.volumes)
        self._tell_company(pod, row, fit.waiting)
        for heard in extensions.allocated:
            heard(job, pod, row)

    def expect(self, pod: e.PodObserved, row: int) -> None:
        """Rules see it there already, where victims make room for it, so that nobody comes who could not stay beside it."""
        for rule in self.extensions.filters:
            rule.placed(pod, row, ())
        self._tell_company(pod, row, True)

    def expect_no_more(self, pod: e.PodObserved, row: int) -> None:
        for rule in self.extensions.filters:
            rule.removed(pod, row)
        self._tell_company(pod, row, False)

    def _tell_company(self, pod: e.PodObserved, row: int, nominee: bool) -> None:
        if self.company is None:
            return
        self.company.nominees.pop(pod.pod, None)
        if nominee and pod.pod in self.state.pods:
            self.company.nominees[pod.pod] = pod, row

    def _lend(self, fit: Fit) -> list[Room]:
        """The holds give up their room for what is placed next. They stay where they are, with their ports, labels and CPUs, and
        rules see them again. Returns what they had."""
        fit.left, rooms = (), []
        self._awaited.add(fit.row)
        for place in fit.lent:
            slot = self.offers.lost(place)
            rooms.append(slot.room)
            self.vacate(fit.row, place, slot)
            for rule in self.extensions.filters:
                if not rule.lends:
                    rule.restored(place)
        return rooms

    def _free_of(self, row: int, wanted: Items, devices: tuple[DeviceShare, ...]) -> Rest:
        """What is held at once of a place whose room is still in use, as the fold does it (`Rooms.top_up`)."""
        free, shares = self.board.row(row)
        items = [(c, least) for c, amount in wanted if (least := min(amount, max(free[c], 0)))]
        return vector_of(items), tuple(d for d in devices if d.index < len(shares) and shares[d.index] >= d.milli)

    def unplace(self, job: Job, pod: e.PodObserved) -> None:
        """Take `place` back."""
        fit = self.placements[pod.pod]
        self.expect_no_more(pod, fit.row)
        del self.placements[pod.pod]
        v = self.state.vectors[pod.shape]
        for left in fit.left:
            self.board.give(fit.row, *left)
        self.board.give(fit.row, *(fit.taken or (v, fit.devices)))
        self._account(job.queue, v.items, -1)
        for heard in self.extensions.at("deallocated"):
            heard(job, pod, fit.row)
        for place in reversed(fit.lent):
            for rule in self.extensions.filters:
                if not rule.lends:
                    rule.vacated(place)
            was = self.state.slots[place[0]][place[1]]
            self.offers.held_again(place, was)
            self.reoccupy(fit.row, place, was)

    def placed_events(self, pod: e.PodObserved, fit: Fit) -> list[e.Event]:
        """What is logged of a placement."""
        return [*[e.HoldLent(*place, pod.pod) for place in fit.lent], self.placed_event(pod, fit)]

    def placed_event(self, pod: e.PodObserved, fit: Fit) -> e.PodPlaced:
        """The last of them."""
        return e.PodPlaced(pod.pod, self.state.table.names[fit.row], fit.devices, fit.volumes, fit.cores)

    def hand_over(self, job: Job, pod: e.PodObserved) -> e.HandedOver | None:
        """Give the pod the hold that it owns, if there is one: released and allocated in one step (RULES G-5)."""
        handed = self.offers.hand_over(pod)
        if handed is None or self._over_quota(job, pod, handed):
            return None
        slot, drawn = self.offers.take(handed)
        place, row = (handed.reservation, handed.slot), self.state.table.rows[slot.node]
        if drawn is None:
            self.vacate(row, place, slot)
        else:
            self.board.give(row, vector_of(drawn[0]), drawn[1])
            self._account(slot.queue, drawn[0], -1)
        chooser = self.extensions.volumes
        volumes = chooser.choose(pod, row) if pod.claims and chooser is not None else ()
        if volumes:
            handed = replace(handed, volumes=volumes)
        self.place(job, pod, Fit(row, handed.devices, volumes, handed.cores))
        self._taken_from[pod.pod] = slot, None
        if not self.offers.is_held(place) and self.awaited(row):
            self._taken_from[pod.pod] = slot, self._leave_the_rest(row, pod, slot)
        return handed

    def _over_quota(self, job: Job, pod: e.PodObserved, handed: e.HandedOver) -> bool:
        """Whether the pod's queue has no room for what the pod takes beyond the hold (RULES G-12): for all of it, where the hold
        counts for another queue, which has its own back by that. (A migration's counts for none: its queue had the pod before.)"""
        place, wanted = (handed.reservation, handed.slot), self.state.vectors[pod.shape].items
        slot = self.offers.slot(place)
        back = slot.room.held if self.offers.is_once(place) else self.offers.drawn(slot, pod, handed)[0]
        if slot.queue in ("", job.queue):
            more = tuple(less(wanted, back))
            return bool(more) and bool(self.quota(job, pod, more))
        self._account(slot.queue, back, -1)
        over = self.quota(job, pod, wanted)
        self._account(slot.queue, back, 1)
        return bool(over)

    def quota(self, job: Job, pod: e.PodObserved, more: Items | None = None) -> str:
        """Why its queue has no room for the pod, or for so `more` of it as is not held for it already; empty where it has."""
        items = self.state.vectors[pod.shape].items if more is None else more
        return self.extensions.refusal("allocatable", job, pod, items)

    def take_back(self, job: Job, pod: e.PodObserved, handed: e.HandedOver) -> None:
        """Undo `hand_over`."""
        self.unplace(job, pod)
        place, (slot, rest) = (handed.reservation, handed.slot), self._taken_from.pop(pod.pod)
        row = self.state.table.rows[slot.node]
        if rest is not None:
            self.board.give(row, *rest)
        if self.offers.is_held(place):
            items, devices, _ = self.offers.drawn(slot, pod, handed)
            self.board.take(row, vector_of(items), devices)
            self._account(slot.queue, items, 1)
        else:
            self.reoccupy(row, place, slot)
        self.offers.give_back(handed, slot)

    def vacate(self, row: int, place: Place, slot: Slot) -> None:
        """A hold that the state has charged does not count any more."""
        room = slot.room
        self.board.give(row, vector_of(room.held), room.held_devices)
        self._account(slot.queue, room.held, -1)
        self.left.add(place)
        for rule in self.extensions.filters:
            if place not in self._aside or rule.of_capacity:
                rule.vacated(place)
        self._aside.pop(place, None)

    def reoccupy(self, row: int, place: Place, slot: Slot) -> None:
        """Undo `vacate`."""
        room = slot.room
        self.board.take(row, vector_of(room.held), room.held_devices)
        self._account(slot.queue, room.held, 1)
        self.left.discard(place)
        self._owned = NOBODYS
        for rule in self.extensions.filters:
            rule.restored(place)

    def awaited(self, row: int) -> bool:
        """Whether somebody waits for room there, and gets what comes free before this session can give it away."""
        node = self.name(row)
        return row in self._awaited or node in self.state.nominated_on or node in self.state.waiting_on

    def relieve(self, row: int, queue: str, items: Iterable[tuple[int, int]], devices: tuple[DeviceShare, ...]) -> None:
        """What owners have drawn of a place that was just placed is theirs, and counts already."""
        drawn = tuple(items)
        self.board.give(row, vector_of(drawn), devices)
        self._account(queue, drawn, -1)

    def _leave_the_rest(self, row: int, pod: e.PodObserved, slot: Slot) -> Rest:
        """What a smaller pod leaves of a hold goes to those who are nominated or wait on its node, not to this session."""
        state = self.state
        rest = less(slot.room.held, state.vectors[pod.shape].items)
        taken = set(self.placements[pod.pod].devices)
        left = vector_of(rest), tuple(d for d in slot.room.held_devices if d not in taken)
        self.board.take(row, *left)
        return left

    def usage(self, queue: str) -> dict[int, int]:
        """What a queue uses now, by column. Must not be changed."""
        known = self.used.get(queue)
        if known is None:
            known = self.used[queue] = dict(self.state.accounts.of(queue))
        return known

    def _account(self, queue: str, items: tuple[tuple[int, int], ...], sign: int) -> None:
        if not queue:
            return
        charge(self.usage(queue), items, sign)
        if sign < 0:
            self.lowered += 1
        for heard in self.extensions.charged:
            heard(queue, items, sign)

    def charge_queue(self, queue: str, shape: ShapeId, sign: int) -> None:
        """For what is charged otherwise than by `place`: holds, victims."""
        self._account(queue, self.state.vectors[shape].items, sign)

    def promise(self, queue: str, items: Items, sign: int) -> None:
        """For what a queue is promised and does not use yet."""
        self._account(queue, items, sign)

    # -- whose pod it is ---------------------------------------------------------------------------------------------

    def job_for(self, uid: PodUid) -> Job:
        """The job of any pod, running ones included."""
        known = self._jobs.get(uid)
        if known is None:
            state = self.state
            pod = state.pods[uid]
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
            if (uid in state.victims_of or uid in self.victims) and not state.live[uid].deleting
        ]

    # -- what is said of those that wait -----------------------------------------------------------------------------

    def say_unfit(self, pod: e.PodObserved, concerned: list[Filter]) -> None:
        """The pod fits nowhere now. The counts are those of the moment when the first of its kind was found unfit."""
        kind = self.kind(pod, concerned)
        known = self.unfit.get(kind)
        if known is None:
            known = self.unfit[kind] = Unfit(pod, *self.reasons(pod), plain=not concerned)
        known.pods.append(pod.pod)

    def known_unfit(self, pod: e.PodObserved, concerned: list[Filter]) -> bool:
        """Whether its kind was found unfit before, and nothing that a session does can have changed that."""
        if not self.unfit or any(not rule.shrinks for rule in concerned):
            return False
        return self.kind(pod, concerned) in self.unfit

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
