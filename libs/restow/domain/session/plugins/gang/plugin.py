"""Plugin `gang`: a PodGroup's pods start together. At least `minMember`, and of each task `minTaskMember`, or none.

What is not complete comes first (a lone pod that waits is a gang of one): more pods of a gang that runs already can wait. A
complete gang may lose to preemption only what it has beyond its minimum.
"""

from collections import Counter
from collections.abc import Sequence

from restow.contracts.ids import PodUid
from restow.domain.groups import task_of
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job, job_of
from restow.domain.session.plugins.gang.args import Args
from restow.domain.session.run import Session

NOT_ENOUGH = "NotEnoughPods"
NOT_ENOUGH_OF_TASK = "NotEnoughPodsOfTask"
MISSING = "PodGroupNotFound"
INVALID = "InvalidPodGroup"


def open(session: Session, args: Args) -> None:
    add = session.extensions.add
    add("jobValid", lambda job: valid(session, job))
    add("jobReady", ready)
    add("jobPipelined", ready)
    add("jobOrder", lambda job: 0 if job.group is None or job.short() else 1)
    add("jobStarving", lambda job: job.short())
    spare = _Spare(session)
    add("preemptable", spare.of)
    add("reclaimable", spare.of)


def valid(session: Session, job: Job) -> None:
    """Raises Refusal where the gang can never be complete with the pods that there are."""
    if job.group is None:
        return
    if job.spec is None:
        raise Refusal(MISSING, f"PodGroup {job.key} does not exist")
    if job.spec.invalid:
        raise Refusal(INVALID, job.spec.invalid)
    if job.ready + len(job.tasks) < job.need:
        raise Refusal(NOT_ENOUGH, f"the gang needs {job.need} pods; {job.ready} run and {len(job.tasks)} wait")
    if job.need_by_task:
        pods = session.state.pods
        waiting = Counter(task_of(pods[uid]) for uid in job.tasks)
        for task, need in sorted(job.need_by_task.items()):
            ready = job.ready_by_task.get(task, 0)
            if ready + waiting[task] < need:
                raise Refusal(NOT_ENOUGH_OF_TASK, f"the gang needs {need} pods of task {task}; {ready} run and {waiting[task]} wait")


def ready(job: Job, placed: int = 0, by_task: Counter[str] | None = None) -> bool:
    return not job.short(placed, by_task)


class _Spare:
    """Which pods of gangs may go: as many as a gang has beyond its minimum, the last ones first."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        state = self._session.state
        left: dict[str, int] = {}
        tasks: dict[tuple[str, str], int] = {}
        allowed: list[PodUid] = []
        for uid in sorted(candidates, key=state.order.__getitem__, reverse=True):
            pod = state.pods[uid]
            group = job_of(state, pod)
            if group is None or group not in state.pod_groups:
                allowed.append(uid)
                continue
            job = self._session.job_for(uid)
            if job.key not in left:
                going = self._session.going(group)
                left[job.key] = job.ready - job.need - len(going)
                for name, need in job.need_by_task.items():
                    gone = sum(task_of(state.pods[p]) == name for p in going)
                    tasks[job.key, name] = job.ready_by_task.get(name, 0) - need - gone
            task = (job.key, task_of(pod))
            if left[job.key] > 0 and tasks.get(task, 1) > 0:
                left[job.key] -= 1
                if task in tasks:
                    tasks[task] -= 1
                allowed.append(uid)
        return allowed
