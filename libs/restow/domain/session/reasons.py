"""Why pods wait. What a session says of those that it could not place: one event where pods begin to wait, a few refreshed where what was said is
old; a pod has one answer a session, the first of what several actions say. And as a sentence: what a pod's condition, its PodGroup and Events say."""

from collections.abc import Iterable

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.evolve.reservation_slots import fit_message
from restow.domain.evolve.session import withheld_key
from restow.domain.records import Waiting
from restow.domain.session.jobs import (
    BESIDE_OTHERS,
    NOT_ENQUEUED,
    OVERUSED,
    QUOTA,
    THE_CLUSTER,
    TOGETHER,
    UNSCHEDULABLE,
    Job,
)
from restow.domain.session.session import Session, Unfit, Withheld
from restow.domain.session.starving import sentence
from restow.domain.state import ClusterState


def short_sentence(waiting: Waiting) -> str:
    """The sentence alone: for a gang that does not fit, what its first pod lacks beside the others."""
    if waiting.reasons or not waiting.message:
        return fit_message(waiting.nodes, waiting.reasons)
    return waiting.message


def pod_sentence(waiting: Waiting) -> str:
    """For one pod: with what it waits for together with others."""
    if waiting.reasons and waiting.message and waiting.reason == UNSCHEDULABLE:
        return f"{waiting.message}; {fit_message(waiting.nodes, waiting.reasons)}"
    return waiting.message or fit_message(waiting.nodes, waiting.reasons)


UNDETERMINED = "Undetermined"
"""Reason of the condition PodScheduled of a pod that no new node would help: Volcano's word for pods that it has not compared with nodes
(PodReasonUndetermined). cluster-autoscaler and Karpenter add nodes for every pod that says `Unschedulable`, and for no other."""


def lacks_node(waiting: Waiting) -> bool:
    """Whether a new node may help those who wait for this. All of a gang that does not fit as a whole: an autoscaler places those itself that fit on nodes which
    are there, and has to know how many come with them (Volcano said `Undetermined` of some of them once, and too few nodes were added, its #2602)."""
    if not waiting.reason:
        return True
    if waiting.reason == UNSCHEDULABLE:
        return waiting.message.startswith(TOGETHER)
    limited = waiting.reason in (NOT_ENQUEUED, OVERUSED, QUOTA)
    return limited and (waiting.message.startswith(THE_CLUSTER) or BESIDE_OTHERS in waiting.message)


def condition_reason(waiting: Waiting) -> str:
    """Of the pod's condition PodScheduled."""
    return UNSCHEDULABLE if lacks_node(waiting) else UNDETERMINED


def condition_message(state: ClusterState, pod: PodUid) -> str:
    """What a parked pod's condition says: why it waits, and for which node, if one is reserved for it."""
    waiting = state.waiting.get(state.parked[pod][0])
    parts = ("" if waiting is None else pod_sentence(waiting), sentence(state, pod) if pod in state.reserved_tasks else "")
    return "; ".join(part for part in parts if part)


def still_says(state: ClusterState, pod: PodUid, message: str) -> bool:
    """Whether the pod waits for what the message says. What is free on a reserved node may have changed meanwhile: that is
    said with the next news."""
    parked = state.parked.get(pod)
    waiting = state.waiting.get(parked[0]) if parked is not None else None
    return waiting is not None and message.startswith(pod_sentence(waiting))


REFRESH = 10_000
"""Milliseconds after which the counts of what still does not fit are logged anew, if capacity has moved."""

REFRESHES = 8
"""At most so many of those a session."""

NO_ACTION = "NoAction"
"""Why a pod waits that the configuration has no action for."""


def refusal_of(state: ClusterState, job: Job) -> Waiting | None:
    """What all of a gang's pods that wait have been told, where it does not fit as a whole; None where it begins to wait, or waits for something else."""
    parked = state.parked.get(job.tasks[0]) if job.tasks else None
    known = state.waiting.get(parked[0]) if parked is not None else None
    return known if known is not None and known.reason == UNSCHEDULABLE and all(state.parked.get(uid) == parked for uid in job.tasks) else None


def say_who_waits(session: Session) -> None:
    _unheard(session)
    refreshed = 0
    told: set[PodUid] = set()
    everything = session.said
    for said in everything:
        # Two answers would take turns for ever, each news to a pod that waits for the other; and pods of a gang that
        # something is held for wait already.
        said.pods = [uid for uid in dict.fromkeys(said.pods) if uid not in told and _waits(session, uid)]
        told.update(said.pods)
    for said in everything:
        may = refreshed < REFRESHES
        event, again = _unfit(session, said, may, told) if isinstance(said, Unfit) else _withheld(session, said, may, told)
        refreshed += again
        if event is not None:
            session.events.append(event)


def _waits(session: Session, uid: PodUid) -> bool:
    return uid not in session.state.nominations or uid in session.ended


def _unheard(session: Session) -> None:
    """Pods that no action of the configuration looks at."""
    for job, uid in session.best_effort:
        session.withhold_pod(job, uid, NO_ACTION, "it asks for nothing, and the configuration has no backfill after allocate")
    if all(action.name != "allocate" for action in session.config.actions):
        for job in session.jobs:
            session.withhold(job, NO_ACTION, "the configuration has no action allocate")


def _unfit(session: Session, unfit: Unfit, may_refresh: bool, told: set[PodUid]) -> tuple[e.Event | None, bool]:
    state = session.state
    key = unfit.pod.shape if unfit.plain else f"{unfit.pod.shape}/{_first(session, unfit)}"
    if (known := _told_the_same(state, unfit)) is not None:
        # Which rules concern a pod may change, as where a node is reserved for it: what it was told is no news under another key.
        key = known
    began = _with_mates(session, _begin(state, unfit.pods, key), key, told)
    again = not began and may_refresh and not unfit.pod.pinned_node and _stale(session, state.waiting.get(key))
    if not began and not again:
        return None, False
    event = e.Unfit(unfit.pod.shape, unfit.nodes, unfit.reasons, began, "" if key == unfit.pod.shape else key)
    return event, again


def _told_the_same(state: ClusterState, unfit: Unfit) -> str | None:
    """The key under which the first of those who wait already was told just this."""
    for uid in unfit.pods:
        if (parked := state.parked.get(uid)) is not None:
            said = state.waiting.get(parked[0])
            same = said is not None and not said.reason and (said.nodes, said.reasons) == (unfit.nodes, unfit.reasons)
            return parked[0] if same else None
    return None


def _first(session: Session, unfit: Unfit) -> PodUid:
    """Whose name pods of this class wait under: that of the first that is known to."""
    for uid in unfit.pods:
        parked = session.state.parked.get(uid)
        if parked is not None and parked[0].startswith(f"{unfit.pod.shape}/"):
            return PodUid(parked[0].partition("/")[2])
    return unfit.pod.pod


def _withheld(session: Session, said: Withheld, may_refresh: bool, told: set[PodUid]) -> tuple[e.Event | None, bool]:
    state = session.state
    key = withheld_key(said.reason, said.group, said.message)
    began = _with_mates(session, _begin(state, said.pods, key), key, told)
    known = state.waiting.get(key)
    changed = known is not None and (known.message, known.reasons) != (said.message, said.reasons)
    again = not began and may_refresh and changed and _stale(session, known)
    if not began and not again:
        return None, False
    return e.Withheld(said.reason, said.message, began, said.group, said.nodes, said.reasons), again


def _begin(state: ClusterState, pods: Iterable[PodUid], key: str) -> tuple[PodUid, ...]:
    """Those that do not wait under this key yet."""
    return tuple(uid for uid in pods if uid not in state.parked or state.parked[uid][0] != key)


def _with_mates(session: Session, began: tuple[PodUid, ...], key: str, told: set[PodUid]) -> tuple[PodUid, ...]:
    """Those that begin to wait for this, and who waits alike: only the first of a class is looked at, and all are told what it is told, but for
    those that have an answer of their own."""
    if not began:
        return began
    found = dict.fromkeys(mate for uid in began for mate in session.backlog.mates(uid) if mate not in told and _waits(session, mate))
    told.update(found)
    return (*began, *_begin(session.state, found, key))


def _stale(session: Session, said: Waiting | None) -> bool:
    return said is not None and session.now - said.at >= REFRESH and said.epoch != session.state.capacity_epoch
