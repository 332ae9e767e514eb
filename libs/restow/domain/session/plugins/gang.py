"""Plugin `gang`: a PodGroup's pods start together. At least `minMember`, and of each task `minTaskMember`, or none.

What is not complete comes first (pods of one controller are a gang of one): more pods of a gang that runs already can wait. A
complete gang may lose only what it has beyond its minimum, whoever asks (RULES G-11).
"""

from collections import Counter
from collections.abc import Iterable

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import Group, task_of
from restow.domain.network.reach import not_kept
from restow.domain.protection import Allowance, is_evicted
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.framework import PERMITTED, Refusal
from restow.domain.session.jobs import Job, gang, is_ready, job_of
from restow.domain.session.session import Session
from restow.domain.session.sums import owners
from restow.domain.state import ClusterState

NOT_ENOUGH = "NotEnoughPods"
NOT_ENOUGH_OF_TASK = "NotEnoughPodsOfTask"
MISSING = "PodGroupNotFound"
INVALID = "InvalidPodGroup"
INCOMPLETE, COMPLETE = "the gang is not complete", "the gang is complete"


def open(session: Session, args: Args) -> None:
    extensions, begun = session.extensions, _Begun(session)
    extensions.order("jobOrder", begun.order)
    extensions.hear("allocated", begun.allocated)
    extensions.veto("jobValid", lambda job: valid(session, job))
    extensions.veto("jobReady", lacks)
    extensions.veto("jobPipelined", lambda job: lacks(job) or PERMITTED)
    extensions.veto("jobStarving", lambda job: PERMITTED if job.short() else COMPLETE)
    extensions.veto("protects", _Kept(session).allowances)


def valid(session: Session, job: Job) -> Refusal | None:
    """Where the gang can never be complete with the pods that there are."""
    if job.group is None:
        return None
    if (why := _wrong(session.state, job.group)) is not None:
        return why
    if job.ready + len(job.tasks) < job.need:
        return Refusal(NOT_ENOUGH, f"the gang needs {job.need} pods; {job.ready} run and {len(job.tasks)} wait")
    if job.need_by_task:
        pods = session.state.pods
        waiting = Counter(task_of(pods[uid].fact) for uid in job.tasks)
        for task, need in sorted(job.need_by_task.items()):
            ready = job.ready_by_task.get(task, 0)
            if ready + waiting[task] < need:
                return Refusal(NOT_ENOUGH_OF_TASK, f"the gang needs {need} pods of task {task}; {ready} run and {waiting[task]} wait")
    return None


def _wrong(state: ClusterState, group: Group) -> Refusal | None:
    spec = state.pod_groups.get(group)
    if spec is None:
        return Refusal(MISSING, f"PodGroup {'/'.join(group)} does not exist")
    why = spec.invalid or not_kept(state, spec.topology)
    return Refusal(INVALID, why) if why else None


def turns_away(state: ClusterState, args: Args, pod: PodObserved) -> Refusal | None:
    """How many pods there are is no matter: who follows another makes them no fewer."""
    group = job_of(state, pod)
    return None if group is None else _wrong(state, group)


def lacks(job: Job) -> str:
    return INCOMPLETE if job.short() else ""


def keeps(state: ClusterState, args: Args, uid: PodUid) -> bool:
    """Where the gang would be less than it needs without all that are to go. A migration may have been decided at the same moment; it turns
    back by itself then."""
    group = job_of(state, state.pods[uid].fact)
    if group is None or group not in state.pod_groups:
        return False
    going = _going(state, group, [pod for pod in state.groups[group] if pod in state.victims_of])
    job = gang(state, group)
    for pod in going:
        job.tell(state.pods[pod].fact, -1)
    return job.short()


def _going(state: ClusterState, group: Group, victims: Iterable[PodUid]) -> dict[PodUid, None]:
    """Members that count as ready and are to go. Who is being moved is missing until its successor is there."""
    moved = [uid for uid in state.groups[group] if is_evicted(state, uid)]
    return {uid: None for uid in (*victims, *moved) if is_ready(state, uid, state.pods[uid].live)}


class _Kept:
    """How many pods of gangs may go: as many as a gang has beyond its minimum, in all and of each task."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def allowances(self, uid: PodUid) -> list[Allowance]:
        """Registered at `protects`."""
        state = self._session.state
        pod = state.pods[uid].fact
        group = job_of(state, pod)
        if group is None or group not in state.pod_groups:
            return []
        job = self._session.job_for(uid)
        if state.pod_groups[group].together:
            return [(("gang", job.key), 0)]
        going = _going(state, group, self._session.going(group))
        found: list[Allowance] = [(("gang", job.key), job.ready - job.need - len(going))]
        task = task_of(pod)
        if need := job.need_by_task.get(task):
            gone = sum(task_of(state.pods[p].fact) == task for p in going)
            found.append((("gang", job.key, task), job.ready_by_task.get(task, 0) - need - gone))
        return found


class _Begun:
    """What is not complete comes first. Pods of one controller are a gang of one (as Volcano makes one PodGroup for each
    controller): once one of them has its node, the others come after those who have nothing."""

    def __init__(self, session: Session) -> None:
        self._state, self._owners = session.state, owners(session.state)
        self._placed: dict[str, int] = {}

    def order(self, job: Job) -> int:
        if job.group is not None:
            return 0 if job.short() else 1
        account = job.account
        return 1 if account and (self._placed.get(account, 0) > 0 or self._owners.of(self._state, account).ready) else 0

    def allocated(self, job: Job, pod: PodObserved, sign: int) -> None:
        if job.account:
            self._placed[job.account] = self._placed.get(job.account, 0) + sign
