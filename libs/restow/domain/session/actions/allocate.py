"""Action `allocate`: queue by queue, job by job, pod by pod onto the best node. A gang is placed as a whole or not at all;
once it is complete its other pods follow one by one, each in its job's turn."""

from functools import partial
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.evolve.session import withheld_key
from restow.domain.reservation.reservation_affinity import ignores
from restow.domain.session import holds
from restow.domain.session.backlog import Name
from restow.domain.session.borrowing import borrowed
from restow.domain.session.fitting import Fit
from restow.domain.session.gangs import is_complete, place_together, ways
from restow.domain.session.holds import resize
from restow.domain.session.job_turns import Line, Made, Turns
from restow.domain.session.jobs import QUOTA, TOGETHER, UNSCHEDULABLE, Job
from restow.domain.session.queues import Refused
from restow.domain.session.reasons import refusal_of
from restow.domain.session.session import Session
from restow.domain.state import Under

FOLLOWS = "a pod of the gang is being moved, and a slot is held for its successor"
"""Why a gang waits that would be complete with such a pod, or without it elsewhere."""


def run(session: Session, args: Any) -> None:
    resize(session)
    lines = _by_queue(session)
    turns, key = Turns(session, lines), partial(_key, session)
    while lines and len(session.events) < session.limit:
        name = turns.first()
        if (why := session.gates.queue(name)) is not None:
            for job in lines.pop(name).untold(why.reason, why.message):
                if job.hold is None:
                    session.withhold(job, why.reason, why.message)
                else:
                    holds.withhold(session, job, why.reason, why.message)
            continue
        line = lines[name]
        following = line.pop(key)
        if following is not None and _place(session, following):
            line.push(key(following), following)
        elif not line:
            del lines[name]


def _key(session: Session, job: Job) -> tuple:
    """Unique: no two jobs are compared themselves."""
    job.granted = session.granted.get(job.account, 0)
    return (*session.extensions.turn(job), job.key)


def _by_queue(session: Session) -> dict[str, Line]:
    """Migration holds are in no queue (DESIGN 5); their line is the first to be served."""
    entries: dict[str, list[Made]] = {}
    for job in (*holds.jobs(session), *session.jobs):
        if job.hold is not None or (job.tasks and admitted(session, job) and valid(session, job)):
            entries.setdefault(job.queue, []).append((_key(session, job), job))
    for queue, feed in session.feeds.items():
        feed.valid = lambda job: valid(session, job)
        feed.refused = partial(_beyond, session, session.beyond.setdefault(queue, Refused()))
    waiting = {queue: Line(entries.get(queue, ()), session.granted, session.feeds.get(queue)) for queue in sorted({*entries, *session.feeds})}
    return {queue: line for queue, line in waiting.items() if line}


def _beyond(session: Session, refused: Refused, name: Name) -> bool:
    """Whether the job waits for its queue, and this session has said that again of one that asks for no more."""
    if session.offers:
        return False
    (under, equivalence_class), *_ = session.backlog.jobs[name]
    if under[0] != "reason":
        return False
    state, backlog = session.state, session.backlog
    shape = state.pods[backlog.line((under, equivalence_class))[0][1]].fact.shape
    return refused.covers(under, state.vectors[shape].items, session.lowered)


def _under(reason: str) -> Under:
    """What pods on their own wait under that are told this."""
    return "reason", withheld_key(QUOTA, "", reason)


def admitted(session: Session, job: Job) -> bool:
    """Whether the job does not wait for an action `enqueue` that comes later: it says why the job waits, if it does."""
    return session.admitting or not session.gates.awaits_enqueue(job)


def valid(session: Session, job: Job) -> bool:
    """Whether its queue and plugins let the job be looked at; otherwise its pods wait with the reason."""
    why = session.gates.valid(job)
    if why is not None:
        session.withhold(job, why.reason, why.message)
    return why is None


def _place(session: Session, job: Job) -> bool:
    """Whether the job has pods left that are to be considered."""
    if job.hold is not None:
        holds.place_gang(session, job)
        return False
    if job.group is None:
        uid = job.next(session.state)
        if uid is None:
            return False
    else:
        if not _has_capacity(session, job):
            # They wait already, and nothing is to be said that is new: what came free has been given to others.
            job.tasks = []
            return False
        if not is_complete(session, job):
            _place_gang(session, job)
            return bool(job.tasks) and is_complete(session, job)
        uid = job.tasks.pop(0)
    pod = session.state.pods[uid].fact
    if session.is_best_effort(pod.shape):
        session.best_effort.append((job, uid))
        return bool(job.tasks)
    equivalence_class = job.alike.get(uid) if job.alike else None
    if equivalence_class is None:
        if job.group is None or _may_go(session, uid):
            place_one(session, job, pod)
    elif not session.backlog.still(uid, session.nodes) or (not place_one(session, job, pod) and not session.offers.awaited(pod)):
        # Nothing has come that would let the others in; what this session places is looked at in the next one.
        job.refused.add(equivalence_class)
    return bool(job.tasks)


def _has_capacity(session: Session, job: Job) -> bool:
    """Of a gang that waits: whether there is capacity yet for one of its shapes, each taken alone. It may take holds, too."""
    parked = session.state.parked
    if session.offers or not all(uid in parked for uid in job.tasks):
        return True
    return any(session.backlog.still(uid, session.nodes) for uid in {parked[uid][1]: uid for uid in job.tasks}.values())


def _may_go(session: Session, uid: PodUid) -> bool:
    """Of one that follows its gang: whether there is capacity for it yet, if it has waited for that. What keeps one of them does not
    keep those of another shape."""
    return bool(session.offers) or uid not in session.state.parked or bool(session.backlog.still(uid, session.nodes))


def place_one(session: Session, job: Job, pod: e.PodObserved) -> bool:
    """Onto the best node, or into the hold that it owns; otherwise it waits, and why is said."""
    if session.handing_over and session.offers and session.hand_over(job, pod) is not None:
        session.count(job, pod)
        return True
    if session.offers.awaited(pod):
        return False
    if (why := session.gates.of_pod(job, pod)) is not None:
        session.withhold_pod(job, pod.pod, why.reason, why.message)
        if why.reason == QUOTA and job.queue in session.beyond:
            session.beyond[job.queue].add(_under(why.message), session.state.vectors[pod.shape].items, session.lowered)
        return False
    concerned = session.concerned(pod)
    if session.unfit and not ignores(pod) and session.known_unfit(pod, concerned):
        session.say_unfit(pod, concerned)
        return False
    row = session.best_row(pod, concerned)
    fit = session.fit_at(pod, row) if row is not None else borrowed(session, pod, concerned)
    if fit is None:
        session.say_unfit(pod, concerned)
        return False
    session.allocate(job, pod, fit)
    session.count(job, pod)
    return True


def _place_gang(session: Session, job: Job) -> None:
    """As many pods as make the job ready: what does not fit is passed over while enough others are left."""
    ready, said = job.ready, list[tuple[str, str, int, dict[str, int]]]()
    members, last = [session.state.pods[uid].fact for uid in job.tasks], None
    near = chooser.sentence(job, members) if (chooser := session.extensions.blocks) is not None else ""

    def find(pod: e.PodObserved) -> Fit | None:
        return session.find(pod) or borrowed(session, pod, session.concerned(pod))

    for pods, rows, within in ways(session, job, members):
        if within != last:
            # Of several blocks the widest counts: that none is wide enough is why it waits.
            last = within
            said.clear()
        with session.attempt(rows, within) as attempt:
            tried = place_together(session, job, pods, find, lambda: is_complete(session, job), lambda left: job.ready + left >= job.need)
            if is_complete(session, job):
                attempt.keep()
        if attempt.kept:
            job.tasks = [uid for uid in job.tasks if uid not in session.placements]
            return
        message = FOLLOWS if tried.follows and tried.first is None else near or _message(job, ready)
        why = next(iter(tried.kept_back.items()), (UNSCHEDULABLE, message))
        said.append((*why, *tried.first_counts))
    if not said:
        # Nothing was tried: no block has capacity enough, as before.
        known = refusal_of(session.state, job)
        said.append((UNSCHEDULABLE, near, *session.reasons(members[0])) if known is None else (UNSCHEDULABLE, known.message, known.nodes, known.reasons))
    session.withhold(job, *said[0])
    job.tasks = []


def _message(job: Job, ready: int) -> str:
    return f"{TOGETHER} {job.need} pods together; {ready} run, {len(job.tasks)} wait and do not fit as a whole"
