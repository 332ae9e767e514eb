"""Action `reserve` after `allocate` (seed 002): nodes are reserved for the tasks of jobs that have waited for too long, and no
other task that is not BestEffort comes there until they have their capacity.

Jobs are walked in their order. Those ahead that this session has not looked at are asked first (`starving.ahead`): if one of
them can be scheduled now, the starving ones wait for the next session. A job gets what makes it condition-ready, or nothing.
"""

from collections.abc import Iterable

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.predicates import static_mask
from restow.domain.session.actions.args import ReserveArgs
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.fitting import EquivalenceClass
from restow.domain.session.jobs import is_best_effort, job_of
from restow.domain.session.session import Session
from restow.domain.session.starving.node_choice import Search, possible
from restow.domain.session.starving.readiness import Ahead, Members
from restow.domain.session.starving.reserved_nodes import Reserved, fits_empty, reserved_nodes
from restow.domain.session.starving.waiting_times import Waits
from restow.domain.state import NODE_LOST, ClusterState

READY, DELETED, DISCARDED = "Ready", "Deleted", "Discarded"
"""Why reservations end: the job is ready without them; it is gone, or too few of its pods are left; it can no longer become
ready with them."""
MOST = 32
"""Jobs that are looked at closely in one session, so that a decision stays short. What is reserved makes another one due, and where there
are more, sessions follow in which others are looked at (RULES G-17)."""


def run(session: Session, args: ReserveArgs) -> None:
    rule = reserved_nodes(session)
    _settle(session, rule)
    waits = Waits.of(session.state, args.starving_job_time_threshold * 1000)
    starving = _jobs(session, rule, _first(session, rule, waits))
    untried: set[str] = set()
    if any(not members.condition_ready() for members in starving.values()):
        untried = _walk(session, rule, starving, args.reserved_node_percent)
    _sweep(session, rule, untried)


def deadline(state: ClusterState, args: ReserveArgs, after: Millis) -> Millis | None:
    """When the next job that waits begins to starve."""
    return Waits.of(state, args.starving_job_time_threshold * 1000).next(after)


def _first(session: Session, rule: Reserved, waits: Waits) -> list[PodUid]:
    """As many as a session looks at, those that have nothing first. Of pods that are alike a few stand for all, and who will
    never fit anywhere is left out: however many they are, they do not keep others waiting."""
    state = session.state
    found: list[PodUid] = []
    for pods in waits.first(session.now, MOST, rule):
        pod = state.pods[pods[0]].fact
        if job_of(state, pod) is not None or possible(session, pod).any():
            found += pods
    found.sort(key=lambda uid: (uid in rule, state.turn(uid)))
    parts = -(-len(found) // session.limit)
    if parts > 1:
        session.parts = max(session.parts, parts)
        at = session.turn % parts * session.limit
        return found[at : at + session.limit]
    return found


def _jobs(session: Session, rule: Reserved, pods: Iterable[PodUid]) -> dict[str, Members]:
    """Starving jobs by key: not ready, and waiting for nodes."""
    shapes, known = session.state.shapes, session.state.pods
    found: dict[str, Members] = {}
    for uid in pods:
        members = Members.of(session, rule, uid)
        if members.job.key in found or members.ready():
            continue
        if members.job.group is None and is_best_effort(shapes[known[uid].fact.shape]):
            continue
        if members.may_run():
            found[members.job.key] = members
    return found


def _walk(session: Session, rule: Reserved, starving: dict[str, Members], percent: int) -> set[str]:
    """The keys of those that were not looked at."""
    ahead = Ahead(session, rule)
    everybody = starving | {members.job.key: members for members in ahead.jobs(starving.keys())}
    untried = set(starving)
    hopeless: dict[EquivalenceClass, int] = {}
    tried = 0
    wanting = sum(not members.condition_ready() for members in starving.values())
    parts = max(-(-wanting // MOST), 1)
    windows = session.parts
    session.parts *= parts
    passed = session.turn // windows % parts * MOST
    for job in jobs_in_order(session.extensions, [members.job for members in everybody.values()]):
        members = everybody[job.key]
        if tried >= MOST or len(session.events) >= session.limit:
            break
        if job.key not in starving:
            if ahead.schedulable(members):
                break
            continue
        untried.discard(job.key)
        if members.condition_ready():
            continue
        if passed:
            passed -= 1  # these had their turn, and could not be helped
            untried.add(job.key)
            continue
        equivalence_class = _equivalence_class(session, members)
        if equivalence_class is not None and hopeless.get(equivalence_class, job.priority - 1) >= job.priority:
            continue
        tried += 1
        if not Search(session, rule, members, percent).run() and equivalence_class is not None:
            hopeless[equivalence_class] = job.priority
    return untried


def _equivalence_class(session: Session, members: Members) -> EquivalenceClass | None:
    """What single pods have in common that are refused alike; None for gangs."""
    if members.job.group is not None:
        return None
    pod = session.state.pods[members.job.tasks[0]].fact
    return members.job.queue, session.equivalence_class(pod, session.concerned(pod))


# -- how reservations end --------------------------------------------------------------------------------------------


def _settle(session: Session, rule: Reserved) -> None:
    """Jobs that are ready or cannot be any more need nothing; a node that does not take the task any more, for another
    reason than others that run there, is lost for it."""
    for members in _reserved_jobs(session, rule):
        tasks = members.reserved()
        if not members.valid():
            _release(session, rule, tasks, DELETED)
        elif members.ready():
            _release(session, rule, tasks, READY)
        else:
            _release(session, rule, [uid for uid in tasks if _lost(session.state, uid, rule.row(uid))], NODE_LOST)


def _sweep(session: Session, rule: Reserved, untried: set[str]) -> None:
    """All or nothing: a part of what a job needs is not kept from others."""
    for members in _reserved_jobs(session, rule):
        if members.job.key not in untried and not members.condition_ready():
            _release(session, rule, members.reserved(), DISCARDED)


def end_all(session: Session) -> None:
    """The action is not configured any more."""
    rule = reserved_nodes(session)
    _release(session, rule, rule.tasks(), DISCARDED)


def _reserved_jobs(session: Session, rule: Reserved) -> list[Members]:
    found: dict[str, Members] = {}
    for uid in rule.tasks():
        members = Members.of(session, rule, uid)
        found.setdefault(members.job.key, members)
    return list(found.values())


def _release(session: Session, rule: Reserved, tasks: Iterable[PodUid], reason: str) -> None:
    for uid in tasks:
        rule.release(uid)
        session.events.append(e.TaskUnreserved(uid, reason))


def _lost(state: ClusterState, uid: PodUid, row: int) -> bool:
    shape = state.pods[uid].fact.shape
    return not static_mask(state, shape)[row] or not fits_empty(state, row, [state.vectors[shape]])
