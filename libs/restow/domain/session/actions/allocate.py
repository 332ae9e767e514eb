"""Action `allocate`: queue by queue, job by job, pod by pod onto the best node. A gang is placed as a whole or not at all;
once it is complete its other pods follow one by one, each in its job's turn."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.evolve.session import withheld_key
from restow.domain.groups import task_of
from restow.domain.reservation.wishes import ignores
from restow.domain.session import holds
from restow.domain.session.gangs import orders
from restow.domain.session.jobs import OVERUSED, QUOTA, UNSCHEDULABLE, Job
from restow.domain.session.lending import lending
from restow.domain.session.line import Entry, Line
from restow.domain.session.quotas import Refused
from restow.domain.session.requests import is_best_effort
from restow.domain.session.resize import resize
from restow.domain.session.run import Session
from restow.domain.session.standing import Name
from restow.domain.session.statement import Statement
from restow.domain.session.turns import Turns
from restow.domain.state import Under, is_sociable

FOLLOWS = "a pod of the gang is being moved, and its place is held for the one that follows it"
"""Why a gang waits that would be complete with such a pod, or without it elsewhere."""


def run(session: Session, args: Any) -> None:
    resize(session)
    lines = _by_queue(session)
    turns = Turns(session, lines)
    while lines and len(session.events) < session.limit:
        name = turns.first()
        if reason := session.extensions.refusal("overused", name) if name else None:
            for job in lines.pop(name).untold(OVERUSED, reason):
                if job.hold is None:
                    session.withhold(job, OVERUSED, reason)
                else:
                    holds.withhold(session, job, OVERUSED, reason)
            continue
        line = lines[name]
        following = line.pop(lambda job: _key(session, job))
        if following is not None and _place(session, following):
            line.push(_key(session, following), following)
        elif not line:
            del lines[name]


def _key(session: Session, job: Job) -> tuple:
    """Unique: no two jobs are compared themselves."""
    return (*session.extensions.turn(job), job.key)


def _by_queue(session: Session) -> dict[str, Line]:
    """Migration holds are in no queue (DESIGN 5); their line is the first to be served."""
    entries: dict[str, list[Entry]] = {}
    for job in (*holds.jobs(session), *session.jobs):
        if job.hold is not None or (job.tasks and admitted(session, job) and valid(session, job)):
            entries.setdefault(job.queue, []).append((_key(session, job), job))
    for queue, feed in session.feeds.items():
        feed.valid = lambda job: valid(session, job)
        feed.refused = partial(_beyond, session, session.beyond.setdefault(queue, Refused()))
    waiting = {queue: Line(entries.get(queue, ()), session.feeds.get(queue)) for queue in sorted({*entries, *session.feeds})}
    return {queue: line for queue, line in waiting.items() if line}


def _beyond(session: Session, refused: Refused, name: Name) -> bool:
    """Whether the job waits for its queue, and this session has said that again of one that asks for no more."""
    if session.offers:
        return False
    (under, kind), *_ = session.backlog.jobs[name]
    if under[0] != "reason":
        return False
    state, backlog = session.state, session.backlog
    shape = state.pods[backlog.line((under, kind))[0][1]].shape
    return refused.covers(under, state.vectors[shape].items, session.lowered)


def _under(reason: str) -> Under:
    """What pods on their own wait under that are told this."""
    return "reason", withheld_key(QUOTA, "", reason)


def admitted(session: Session, job: Job) -> bool:
    """Whether the job does not wait for an action `enqueue` that comes later: it says why the job waits, if it does."""
    if session.admitting or job.group not in session.state.unqueued:
        return True
    return all(action.name != "enqueue" for action in session.config.actions)


def valid(session: Session, job: Job) -> bool:
    """Whether its queue and plugins let the job be looked at; otherwise its pods wait with the reason. Of lone pods without
    annotations in one queue it is asked once."""
    lone = job.group is None and not session.state.pods[job.tasks[0]].annotations
    if not lone:
        why = session.refusal(job)
    elif job.queue in session.valid_queues:
        why = session.valid_queues[job.queue]
    else:
        why = session.valid_queues[job.queue] = session.refusal(job)
    if why is not None:
        session.withhold(job, why.reason, why.message)
    return why is None


def _place(session: Session, job: Job) -> bool:
    """Whether the job has pods left that are to be considered."""
    if job.hold is not None:
        holds.place_gang(session, job)
        return False
    if job.group is not None and not _has_room(session, job):
        # They wait already, and nothing is to be said that is new: what came free has been given to others.
        job.tasks = []
        return False
    if incomplete(session, job):
        _place_gang(session, job)
        return bool(job.tasks) and not incomplete(session, job)
    state = session.state
    uid = job.next(state) if job.group is None else job.tasks.pop(0)
    if uid is None:
        return False
    pod = state.pods[uid]
    if is_best_effort(state.shapes[pod.shape]):
        session.best_effort.append((job, uid))
        return bool(job.tasks)
    kind = job.alike.get(uid)
    if kind is None:
        if job.group is None or _may_go(session, uid):
            place_one(session, job, pod)
    elif not session.backlog.still(uid, session.board) or (not place_one(session, job, pod) and not session.offers.awaited(pod)):
        # Nothing has come that would let the others in; what this session places is looked at in the next one.
        job.refused.add(kind)
    return bool(job.tasks)


def _has_room(session: Session, job: Job) -> bool:
    """Of a gang that waits: whether there is room yet for one of its shapes, each taken alone. It may take holds, too."""
    parked = session.state.parked
    if session.offers or not all(uid in parked for uid in job.tasks):
        return True
    return any(session.backlog.still(uid, session.board) for uid in {parked[uid][1]: uid for uid in job.tasks}.values())


def _may_go(session: Session, uid: PodUid) -> bool:
    """Of one that follows its gang: whether there is room for it yet, if it has waited for that. What keeps one of them does not
    keep those of another shape."""
    return bool(session.offers) or uid not in session.state.parked or bool(session.backlog.still(uid, session.board))


def incomplete(session: Session, job: Job, placed: int = 0, by_task: Counter[str] | None = None) -> bool:
    """Whether, with so many more members placed, the job is a gang that is not ready."""
    if job.group is None:
        return False
    return bool(session.extensions.refusal("jobReady", job, placed, by_task))


def place_one(session: Session, job: Job, pod: e.PodObserved) -> bool:
    """Onto the best node, or into the hold that it owns; otherwise it waits, and why is said."""
    if session.handing_over and session.offers and (handed := session.hand_over(job, pod)) is not None:
        session.events.append(handed)
        job.ready += 1
        return True
    if session.offers.awaited(pod):
        return False
    if reason := session.quota(job, pod):
        session.withhold_pod(job, pod.pod, QUOTA, reason)
        if job.queue in session.beyond:
            session.beyond[job.queue].add(_under(reason), session.state.vectors[pod.shape].items, session.lowered)
        return False
    if reason := session.extensions.refusal("podWaits", pod):
        session.withhold_pod(job, pod.pod, UNSCHEDULABLE, reason)
        return False
    concerned = session.concerned(pod)
    if session.unfit and not ignores(pod) and session.known_unfit(pod, concerned):
        session.say_unfit(pod, concerned)
        return False
    row = session.best_row(pod, concerned)
    fit = session.fit_at(pod, row) if row is not None else lending(session, pod, concerned)
    if fit is None:
        session.say_unfit(pod, concerned)
        return False
    session.place(job, pod, fit)
    if fit.lent:
        session.events += session.placed_events(pod, fit)
    else:
        session.events.append(session.placed_event(pod, fit))
    job.ready += 1
    return True


def _place_gang(session: Session, job: Job) -> None:
    """As many pods as make the job ready."""
    said = []
    for tasks in orders(session, job, job.tasks):
        why = _place_all(session, job, tasks)
        if why is None:
            return
        said.append(why)
    session.withhold(job, *said[0])
    job.tasks = []


def _place_all(session: Session, job: Job, tasks: Sequence[PodUid]) -> tuple[str, str, int, dict[str, int]] | None:
    """As many as make the job ready, in this order: what does not fit is passed over while enough others are left, and tried again where it may fit because
    others of the gang have come (affinity, spread). Returns why it was to no avail; None where the gang is complete."""
    state, extensions = session.state, session.extensions
    statement = Statement(session, job)
    first_unfit: tuple[int, dict[str, int]] | None = None
    said: tuple[str, str] | None = None
    follows = False
    left, again, before = list(tasks), list[PodUid](), 0
    while incomplete(session, job, len(statement), statement.by_task):
        if not left:
            if not again or len(statement) == before:
                break
            left, again, before = again, [], len(statement)
        uid = left.pop(0)
        pod = state.pods[uid]
        if not job.helps(task_of(pod), len(statement), statement.by_task):
            continue
        if session.handing_over and session.offers and statement.hand_over(pod):
            continue
        if session.offers.awaited(pod):
            # Its place is kept for it; wherever else it went, the place would wait for nobody.
            follows = True
            if job.ready + len(statement) + len(left) + len(again) < job.need:
                break
            continue
        quota = session.quota(job, pod)
        reason = quota or extensions.refusal("podWaits", pod)
        fit = None if reason else session.find(pod) or lending(session, pod, session.concerned(pod))
        if fit is not None:
            statement.place(pod, fit)
            continue
        if reason:
            said = said or (QUOTA if quota else UNSCHEDULABLE, reason)
        else:
            # Counted with the rest of the gang in place: that is what it does not fit beside.
            first_unfit = first_unfit or session.reasons(pod)
            if is_sociable(state.shapes[pod.shape]):
                again.append(uid)
        if job.ready + len(statement) + len(left) + len(again) < job.need:
            break
    if not incomplete(session, job, len(statement), statement.by_task):
        statement.commit()
        return None
    statement.discard()
    nodes, reasons = first_unfit or (0, {})
    message = FOLLOWS if follows and first_unfit is None else _message(job)
    return *(said or (UNSCHEDULABLE, message)), nodes, reasons


def _message(job: Job) -> str:
    return f"the gang needs {job.need} pods together; {job.ready} run, {len(job.tasks)} wait and do not fit as a whole"
