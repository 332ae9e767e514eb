"""One session: what it works with, and the only ways in which it changes that."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.values import ClaimChoice, DeviceShare
from restow.domain import predicates
from restow.domain.groups import Group
from restow.domain.places import Place
from restow.domain.records import Items, Room, Slot
from restow.domain.session import queues
from restow.domain.session.board import Board
from restow.domain.session.extensions import Extensions
from restow.domain.session.framework import STAGES, Filter, Refusal
from restow.domain.session.handover import Offers
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.placer import Placer
from restow.domain.session.reusable import OneOfAKind
from restow.domain.state import ClusterState
from restow.domain.table import Vector, less, vector_of

Kind = Hashable
"""What pods have in common that every rule treats alike: they fit on the same nodes."""


HELD_ROOM = frozenset({"reserved", "window", "proportional"})
"""Rules that hand-overs of existing holds are exempt from (RULES G-8): what is held already takes no more room."""
Rest = tuple[Vector, tuple[DeviceShare, ...]]
"""What is left of something: amounts and shares of devices."""
NOBODYS = (-1,)
"""In place of the kinds of holds that a pod owns: looked at anew for the next one."""
OF_ROOM = frozenset({"numa", "cores"})
"""Rules about room in which a pod takes the place of the one hold that it draws from; of all others that it owns it is judged
as if they were not there."""


class Fit:
    """Where a pod goes: `row`, with these devices, volumes and CPUs. `lent` are holds that give their room up for it; a place
    that is `waiting` takes only what is free (`taken`, once it is placed); `left` is what the pod leaves of the lent ones."""

    __slots__ = ("cores", "devices", "left", "lent", "row", "taken", "volumes", "waiting")

    def __init__(
        self,
        row: int,
        devices: tuple[DeviceShare, ...] = (),
        volumes: tuple[ClaimChoice, ...] = (),
        cores: tuple[int, ...] = (),
        lent: tuple[Place, ...] = (),
        waiting: bool = False,
    ) -> None:
        self.row, self.devices, self.volumes, self.cores = row, devices, volumes, cores
        self.lent, self.waiting = lent, waiting
        self.taken: tuple[Vector, tuple[DeviceShare, ...]] | None = None
        self.left: tuple[Rest, ...] = ()


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


class Session:
    """Works on the board; nothing in the state changes. `events` are what was decided, in order. `unfit` are the kinds of
    pods that were found to fit nowhere. `used` is what each queue uses, by column, as far
    as this session has looked at it."""

    def __init__(self, state: ClusterState, now: Millis, limit: int) -> None:
        self.state = state
        self.now = now
        self.limit = limit
        self.config = state.session_config
        self.events: list[e.Event] = []
        self.board = Board(state.table)
        self.used: dict[str, dict[int, int]] = {}
        self.placements: dict[PodUid, Fit] = {}
        self.unfit: dict[Kind, Unfit] = {}
        self.withheld: dict[tuple[str, str], Withheld] = {}
        self.jobs: list[Job] = []
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
        self.extensions = Extensions()
        self._reasons: dict[Kind, tuple[int, tuple[int, dict[str, int]]]] = {}
        self.offers = Offers(state, self)
        self.left: set[Place] = set()
        """Holds that this session has taken from their nodes."""
        self._aside: dict[Place, None] = {}
        """Holds that rules do not see at present: those that the pod owns which was judged last."""
        self._owned: tuple[int, ...] = ()
        self._awaited: set[int] = set()
        """Rows where a place waits for room since this session."""
        self._taken_from: dict[PodUid, tuple[Slot, Rest | None]] = {}
        """What the place was that a pod of this session has been handed, and what of it was left to others."""

    def ready(self, version: Hashable = ()) -> None:
        """All plugins have registered. `version` names what their static scores depend on besides nodes and shapes."""
        self.extensions.filters = [rule for rule in self.extensions.filters if rule.active]
        if (alone := OneOfAKind(self.state)).active:
            self.extensions.filters.append(alone)
            self.extensions.filters.sort(key=lambda rule: STAGES.index(rule.stage))
        self.extensions.dynamic = [scorer for scorer in self.extensions.dynamic if scorer.active]
        scorers = tuple(self.extensions.content), tuple(self.extensions.static)
        self.placer = Placer(self.state, self.board, scorers, version)

    def close(self) -> None:
        """Nothing of the session is left on what outlives it."""
        for rule in self.extensions.filters:
            rule.close()
        self.board.close()

    def refusal(self, job: Job) -> Refusal | None:
        """Why its queue or a plugin does not let the job be looked at."""
        try:
            queues.check(self.state, job.queue)
            for function in self.extensions.at("jobValid"):
                function(job)
        except Refusal as why:
            return why
        return None

    # -- where a pod fits --------------------------------------------------------------------------------------------

    def concerned(self, pod: e.PodObserved) -> list[Filter]:
        """The rules that can remove nodes for this pod now, in their order."""
        return [rule for rule in self.extensions.filters if rule.concerns(pod)]

    def kind(self, pod: e.PodObserved, concerned: list[Filter]) -> Kind:
        if not concerned:
            return pod.shape, pod.pinned_node
        owned = tuple([kind.number for kind in self.offers.own(pod)])
        return pod.shape, pod.pinned_node, owned, *[rule.key(pod) for rule in concerned]

    def look_as(self, pod: e.PodObserved) -> None:
        """Rules about what runs do not see the holds that this pod owns: no hold is in its own owner's way."""
        if not self.offers.owned:
            return
        kinds = self.offers.own(pod)
        owned = tuple([kind.number for kind in kinds])
        if owned == self._owned:
            return
        wanted = {place: None for kind in kinds for place in kind.all if place not in self.left}
        for place in [place for place in self._aside if place not in wanted]:
            self._tell("restored", place)
        for place in wanted:
            if place not in self._aside:
                self._tell("vacated", place)
        self._aside, self._owned = wanted, owned

    def _tell(self, what: str, place: Place) -> None:
        for rule in self.extensions.filters:
            if rule.stage not in OF_ROOM:
                getattr(rule, what)(place)

    def find(self, pod: e.PodObserved) -> Fit | None:
        """The best node for a pod, with devices and volumes; None where it fits nowhere."""
        row = self.best_row(pod, self.concerned(pod))
        return None if row is None else self.fit_at(pod, row)

    def fit_at(self, pod: e.PodObserved, row: int) -> Fit:
        """What it gets on a node that it fits on."""
        shape = self.state.shapes[pod.shape]
        if not pod.claims and shape.devices is None and shape.cores is None:
            return Fit(row)
        devices = self.choose_devices(pod.shape, row)
        volumes = self.extensions.volumes.choose(pod, row) if pod.claims and self.extensions.volumes is not None else ()
        return Fit(row, devices, volumes, self.choose_cores(pod, row) or ())

    def choose_cores(self, pod: e.PodObserved, row: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...] | None:
        """CPUs of its own on a row, of `preferred` first; None where it does not get them."""
        if self.state.shapes[pod.shape].cores is None or self.extensions.cores is None:
            return ()
        return self.extensions.cores.choose(pod, row, preferred)

    def choose_devices(self, shape: ShapeId, row: int) -> tuple[DeviceShare, ...]:
        request = self.state.shapes[shape].devices
        if request is None:
            return ()
        if self.extensions.devices is not None:
            return self.extensions.devices(shape, row)
        return self.state.table.choose_devices(row, request) or ()

    def best_row(self, pod: e.PodObserved, concerned: list[Filter]) -> int | None:
        if pod.pinned_node:
            row = self.state.table.rows.get(pod.pinned_node)
            if row is None or not self.fits_at(pod, row, concerned):
                return None
            return row
        reserved = self.state.reserved_tasks.get(pod.pod)
        if reserved is not None and self.fits_at(pod, row := self.state.table.rows[reserved], concerned):
            return row
        dynamic = [scorer for scorer in self.extensions.dynamic if scorer.concerns(pod)] if self.extensions.dynamic else ()
        if not concerned and not dynamic:
            return self.placer.best(pod.shape)
        keys = self.placer.keys(pod.shape)
        room = keys >= 0
        self.look_as(pod)
        for rule in concerned:
            for _, failing in rule.failing(pod):
                room &= ~failing
        if not room.any():
            return None
        for scorer in dynamic:
            scores = scorer.scores(pod, room)
            if scores is not None:
                keys = keys + scores * self.placer.unit
        return int(np.where(room, keys, -1).argmax())

    def fits_at(self, pod: e.PodObserved, row: int, concerned: list[Filter]) -> bool:
        """Whether every rule lets the pod run on this row."""
        if not self.placer.fits(pod.shape, row):
            return False
        if concerned:
            self.look_as(pod)
        return not any(failing[row] for rule in concerned for _, failing in rule.failing(pod))

    def reasons(self, pod: e.PodObserved) -> tuple[int, dict[str, int]]:
        """How many nodes there are, and how many each rule removes; counted once for a kind while no row changes."""
        concerned = self.concerned(pod)
        kind, changes = self.kind(pod, concerned), len(self.board.changes)
        known = self._reasons.get(kind)
        if known is None or known[0] != changes:
            if concerned:
                self.look_as(pod)
            found = [(rule.stage, rule.failing(pod)) for rule in concerned]
            known = self._reasons[kind] = changes, predicates.reasons(self.state, pod.shape, pod.pinned_node, found)
        return known[1]

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
        for heard in extensions.allocated:
            heard(job, pod, row)

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
                if rule.stage != "numa":
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
        for rule in self.extensions.filters:
            rule.removed(pod, fit.row)
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
                if rule.stage != "numa":
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
        """Whether the hold counts for another queue than the pod's, and that has no room for the pod. (A migration's counts for
        none: its queue had the pod before.)"""
        queue = self.offers.slot((handed.reservation, handed.slot)).queue
        return bool(queue) and queue != job.queue and bool(self.extensions.first("allocatable", job, pod))

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
            if place not in self._aside or rule.stage in OF_ROOM:
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

    def admits(
        self, pod: e.PodObserved, row: int, hold: Place, slot: Slot, equal: bool
    ) -> tuple[int, ...] | None:
        """The CPUs that the pod gets there in place of the hold, None where rules that depend on what runs do not let it run
        there. Where specs are `equal` only volumes and CPUs count: a pod cannot start without them."""
        volumes = self.extensions.volumes
        if self.state.shapes[pod.shape].resource_claims:
            return None
        if pod.claims and volumes is not None and volumes.waits(pod):
            return None
        concerned = [rule for rule in self.concerned(pod) if rule.stage != "cores" and rule.stage not in HELD_ROOM]
        if equal:
            concerned = [rule for rule in concerned if rule.stage == "volumes"]
        if concerned and self._fails(pod, row, hold, concerned):
            return None
        return self.choose_cores(pod, row, slot.room.cores)

    def _fails(self, pod: e.PodObserved, row: int, hold: Place, concerned: list[Filter]) -> bool:
        self.look_as(pod)
        # All are told, for one that refuses nothing itself keeps the index of the others.
        told = [rule for rule in self.extensions.filters if hold not in self._aside or rule.stage == "numa"]
        for rule in told:
            rule.vacated(hold)
        failing = any(bool(rows[row]) for rule in concerned for _, rows in rule.failing(pod))
        for rule in told:
            rule.restored(hold)
        return failing

    def name(self, row: int) -> NodeName:
        return NodeName(self.state.table.names[row])

    def usage(self, queue: str) -> dict[int, int]:
        """What a queue uses now, by column. Must not be changed."""
        known = self.used.get(queue)
        if known is None:
            known = self.used[queue] = dict(self.state.accounts.of(queue))
        return known

    def _account(self, queue: str, items: tuple[tuple[int, int], ...], sign: int) -> None:
        if not queue:
            return
        used = self.used.get(queue) or self.usage(queue)
        for column, amount in items:
            used[column] = used.get(column, 0) + amount * sign
        if sign < 0:
            self.lowered += 1
        for heard in self.extensions.charged:
            heard(queue, items, sign)

    def charge_queue(self, queue: str, shape: ShapeId, sign: int) -> None:
        """For what is charged otherwise than by `place`: holds, victims."""
        self._account(queue, self.state.vectors[shape].items, sign)

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
        state = self.state
        return [
            uid
            for uid in state.groups.get(group, ())
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
