"""Plugin `reservation`: jobs that name the Reservation which they are to use (seed 000, `validJobFn`; RULES 000-2).

Such a job takes slots of that Reservation and nothing else. Until it can, it waits and says why, in the seed's order: the
Reservation is not Available, the job does not own it, or the job's pods are not those that it was made for. A job that names
none, and matches as an owner, takes what it can get and otherwise goes the normal way.

Holds are placed by `allocate` and handed over by the action `reserve`, with this plugin or without: migrations rely on both.
Without it nobody reads the annotation, and who owns a hold takes it as if nothing was named.
"""

from collections import Counter

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid
from restow.domain.groups import group_of
from restow.domain.other_schedulers import other_scheduler
from restow.domain.records import Reservation, ReservationPhase, SlotPhase
from restow.domain.reservation.owner_matching import (
    NOBODY,
    TARGET,
    Names,
    by_spec,
    counts_match,
    is_migration_hold,
    owned,
    target_of,
)
from restow.domain.reservation.reservation_affinity import wish_of
from restow.domain.session.admission import admission
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.framework import Answer, Refusal
from restow.domain.session.jobs import Job
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

INVALID = "InvalidReservation"
NOT_OWNER = "ReservationOwnerNotMatch"
OTHER_SPEC = "ReservationSpecNotMatch"

SAID = {
    INVALID: "is not Available",
    NOT_OWNER: "is not owned by the job (ownership mismatch by ownerObject  or label selectors)",
    OTHER_SPEC: "does not match job task spec: task count or PodSpec does not match",
}
"""How seed 000 ends its sentences, to the letter (RULES G-9)."""


def refused(reason: str, namespace: str, name: str, why: str) -> Refusal:
    """The seed's sentence about the job, and what it is in this case."""
    return Refusal(reason, f"Reservation specified by job <{namespace}/{name}> {SAID[reason]}: {why}")


def open(session: Session, args: Args) -> None:
    targets = Targets(session)
    session.offers.target = targets.of
    session.extensions.veto("jobHeld", targets.held)
    session.extensions.veto("jobValid", targets.check)
    session.extensions.veto("podWaits", targets.waits)


class Targets:
    """For one session: what pods name, and whether they may use it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state = session.state
        self._names = Names(session.state)

    def of(self, pod: e.PodObserved) -> ReservationUid | None:
        """The Reservation that a pod names; NOBODY where there is none of that name, None where it names none."""
        target = target_of(self._state, pod)
        return self._names.find(pod.namespace, target) if target else None

    def check(self, job: Job) -> Refusal | None:
        """Where the job names a Reservation that it cannot use, now or ever."""
        pods = [pod for uid in job.tasks if (pod := self._state.pods[uid].fact).annotations and self._bound(pod)]
        records: list[tuple[e.PodObserved, Reservation]] = []
        for pod in pods:
            record = self._available(*_job(pod), target_of(self._state, pod))
            if isinstance(record, Refusal):
                return record
            records.append((pod, record))
        for pod, record in records:
            if not owned(self._state, record, pod):
                return refused(NOT_OWNER, *_job(pod), f"pod {pod.name} matches no owner of Reservation {_path(record)}")
        counted: set[ReservationUid] = set()
        for pod, record in records:
            if by_spec(record) and (why := _differs(self._state, pod, record, counted)) is not None:
                return why
        return None

    def waits(self, pod: e.PodObserved) -> str:
        """Why a pod that can take no slot goes nowhere else: it names a Reservation, or asks for one by affinity."""
        if not pod.annotations:
            return ""
        handing_over, offers = self._session.handing_over, self._session.offers
        wish = wish_of(pod)
        if wish is not None and (wish.affinity or wish.wrong) and not offers.left_to(pod):
            if not handing_over:
                return "a Reservation is asked for, and no action reserve before allocate hands any over"
            if wish.wrong or offers.hand_over(pod) is None:
                return offers.why_none(pod)
        if not self._bound(pod) or (handing_over and offers.hand_over(pod) is not None):
            return ""
        target = target_of(self._state, pod)
        if not handing_over:
            return f"Reservation {target} is named, and no action reserve before allocate hands it over"
        return f"Reservation {target} has no slot left that this pod can take"

    def _bound(self, pod: e.PodObserved) -> bool:
        """Whether it depends on the Reservation that it names: the successor of a pod that was moved has a slot already."""
        return bool(target_of(self._state, pod)) and not self._session.offers.left_to(pod)

    def held(self, job: Job) -> Answer:
        """Permitted where what a PodGroup needs is held for it already, in its own queue: then nothing more must be free to let it
        in. Refused where the group names a Reservation that is not Available; its pods may not exist yet."""
        assert job.group is not None, "a PodGroup's job"
        assert job.spec is not None, "a PodGroup's job"
        target = job.spec.annotations.get(TARGET, "")
        if not target:
            return bool(self._session.offers) and self._own_enough(job)
        record = self._available(*job.group, target)
        if isinstance(record, Refusal):
            return record
        uid, table = record.fact.reservation, self._state.table
        slots = [s for s in self._state.slots[uid].values() if s.phase is SlotPhase.HELD and s.queue == job.queue]
        have: Counter[int] = Counter()
        for slot in slots:
            for column, amount in slot.capacity.held:
                have[column] += amount
        asked = admission(self._session).asks(job)
        return all(amount <= have[table.columns.get(resource, -1)] for resource, amount in asked.items())

    def _own_enough(self, job: Job) -> bool:
        """Whether the pods that there are make the gang complete with holds that they own; tried, and taken back."""
        session, queues = self._session, set()
        with session.attempt():
            for uid in job.tasks:
                pod = self._state.pods[uid].fact
                if handed := session.hand_over(job, pod):
                    session.count(job, pod)
                    queues.add(self._state.slots[handed.reservation][handed.slot].queue)
            return queues == {job.queue} and not job.short()

    def _available(self, namespace: str, job: str, target: str) -> Reservation | Refusal:
        uid = self._names.find(namespace, target)
        if uid == NOBODY:
            said = target.rpartition("/")[0]
            if said not in ("", namespace):
                return refused(INVALID, namespace, job, f"Reservation {target} serves only pods of namespace {said}")
            return refused(INVALID, namespace, job, f"there is no Reservation {target} in namespace {namespace}")
        record = self._state.reservations[uid]
        if why := self._unusable(record):
            return refused(INVALID, namespace, job, f"Reservation {_path(record)} {why}")
        return record

    def _unusable(self, record: Reservation) -> str:
        """The second half of a sentence; empty where the Reservation is Available. Without counts, which change often."""
        if is_migration_hold(self._state, record):
            return "is held for a pod that is being moved"
        if other := other_scheduler(self._state, record):
            return f"is for scheduler {other}, which has to hold it"
        if record.expired:
            return "has expired"
        if record.fact.deleting or record.collected:
            return "is being deleted"
        known = self._state.phases.get(record.fact.reservation)
        match known.phase if known is not None else ReservationPhase.PENDING:
            case ReservationPhase.AVAILABLE:
                return ""
            case ReservationPhase.SUCCEEDED:
                return "is used up: it hands over nothing more"
            case ReservationPhase.WAITING:
                return "is not Available: it waits for capacity on its nodes, or has lost a part of what it held"
            case ReservationPhase.FAILED:
                return f"has failed: {known.reason}" if known is not None else "has failed"
        return "is not Available yet"


def _differs(state: ClusterState, pod: e.PodObserved, record: Reservation, counted: set[ReservationUid]) -> Refusal | None:
    """`CheckReservationMatch`: the pod's spec is that of a task, and its group has as many of each as there are slots."""
    spec, uid = record.spec, record.fact.reservation
    assert spec is not None, "an Available Reservation has a spec"
    digest = state.shapes[pod.shape].spec_digest
    if all(state.shapes[task.shape].spec_digest != digest for task in spec.tasks):
        return refused(OTHER_SPEC, *_job(pod), f"pod {pod.name} has not the spec of any task of Reservation {_path(record)}")
    group = group_of(pod)
    if group is None or uid in counted:
        return None
    counted.add(uid)
    if counts_match(state, spec, group):
        return None
    return refused(OTHER_SPEC, *group, f"group {'/'.join(group)} has not as many pods of each spec as Reservation {_path(record)} has slots")


def _job(pod: e.PodObserved) -> tuple[str, str]:
    """Namespace and name of what the seed calls the job: a pod's group, or the pod alone."""
    return group_of(pod) or (pod.namespace, pod.name)


def _path(record: Reservation) -> str:
    fact = record.fact
    return f"{fact.namespace}/{fact.name}" if fact.namespace else fact.name
