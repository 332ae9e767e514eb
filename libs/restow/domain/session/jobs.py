"""Jobs of a session: what waits, grouped as it is to be placed. Made at open, in the order of what waits: a session costs
nothing for what runs.

A job is a PodGroup's pods, a single pod, or the slots of a Reservation (seed 000: holds are scheduled like jobs)."""

from collections.abc import Container

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ReservationUid
from restow.contracts.values import PodShape
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.groups import Group, group_of, is_upstream, task_of
from restow.domain.resources import PODS
from restow.domain.state import OVER, ClusterState

PODS_JOB, HOLD, MIGRATION = 1, 1, 0
"""The first part of a job's turn: migration holds come before everything (RULES G-7)."""


class Job:
    """`tasks` are the pods that wait, in task order; `ready` counts members that hold or use capacity (or have succeeded),
    `ready_by_task` the same by `volcano.sh/task-spec`, where anything is needed by task; `need` is minMember. `order` is its turn among equals: what the log
    saw first. `account` is whose use its own counts with: a controller's, where the pods are in no group; empty where only its own
    counts; `granted`: how often that had got something in the session when the job's turn was worked out. `hold` is set where it is a Reservation's. `alike`: by pod the class that it is of, of pods that no rule tells apart; those of
    the `refused` classes are passed over."""

    __slots__ = (
        "account", "alike", "created", "granted", "group", "hold", "key", "kind", "need", "need_by_task", "order", "priority", "queue", "ready",
        "ready_by_task", "refused", "spec", "tasks",
    )  # fmt: skip

    def __init__(self, key: str, queue: str, priority: int, order: int, created: Millis) -> None:
        self.key = key
        self.queue = queue
        self.priority = priority
        self.order = order
        self.created = created
        self.kind = PODS_JOB
        self.account = ""
        self.granted = 0
        self.alike: dict[PodUid, int] = {}
        self.refused: set[int] = set()
        self.group: Group | None = None
        self.spec: e.PodGroupObserved | None = None
        self.hold: ReservationUid | None = None
        self.tasks: list[PodUid] = []
        self.ready = 0
        self.ready_by_task: dict[str, int] = {}
        self.need = 1
        self.need_by_task: dict[str, int] = {}

    def short(self, more: int = 0) -> bool:
        """Whether the gang, with so many more members, is still not complete."""
        return self.ready + more < self.need or (bool(self.need_by_task) and any(n > 0 for n in self._lacking().values()))

    def _lacking(self) -> dict[str, int]:
        """Of how many members of each task it needs more (`minTaskMember`), or has too many."""
        have = self.ready_by_task
        return {task: n - have.get(task, 0) for task, n in self.need_by_task.items()}

    def helps(self, pod: e.PodObserved) -> bool:
        """Whether one more pod of its task brings a gang nearer to being complete: while as many nodes as it still needs are for tasks of
        which it needs more, those of another task take nothing."""
        if not self.need_by_task or not self.short():
            return True
        lacking = self._lacking()
        return lacking.get(task_of(pod), 0) > 0 or self.need - self.ready > sum(n for n in lacking.values() if n > 0)

    def tell(self, pod: e.PodObserved, more: int = 1) -> None:
        """So many more members of its task are ready."""
        self.ready += more
        if self.need_by_task:
            task = task_of(pod)
            self.ready_by_task[task] = self.ready_by_task.get(task, 0) + more

    def next(self, state: ClusterState) -> PodUid | None:
        """Of pods on their own the next one; the job's turn is then that of the one after it. None where all that are left are
        of refused classes."""
        while self.tasks:
            uid = self.tasks.pop(0)
            if self.refused and self.alike.get(uid) in self.refused:
                continue
            if self.tasks:
                self.order = state.pods[self.tasks[0]].order
            return uid
        return None

    def count(self, state: ClusterState, placed: Container[PodUid]) -> None:
        """Those of its tasks that have found a node meanwhile are ready now."""
        left: list[PodUid] = []
        for uid in self.tasks:
            if uid in placed:
                self.tell(state.pods[uid].fact)
            else:
                left.append(uid)
        self.tasks = left

    def __repr__(self) -> str:
        return f"<job {self.key} of {self.queue}: {len(self.tasks)} wait, {self.ready} ready of {self.need}>"


def single(state: ClusterState, pod: e.PodObserved) -> Job:
    """A pod without a PodGroup is a job of its own; those of one controller share an account."""
    job = Job(pod.pod, state.queue_of(pod), state.shapes[pod.shape].priority, state.pods[pod.pod].order, pod.created)
    job.tasks = [pod.pod]
    job.account = "" if pod.owner is None else pod.owner.uid
    return job


def gang(state: ClusterState, group: Group) -> Job:
    """A PodGroup with all its pods. Its priority is its PriorityClass's, otherwise the highest of its pods'."""
    spec = state.pod_groups[group]
    job = Job("/".join(group), spec.queue or DEFAULT_QUEUE, 0, state.group_order[group], spec.created)
    job.group, job.spec = group, spec
    job.need, job.need_by_task = spec.min_member, spec.min_task_member
    priorities: list[int] = []
    for uid in state.groups.get(group, ()):
        pod, live = state.pods[uid].fact, state.pods[uid].live
        priorities.append(state.shapes[pod.shape].priority)
        if state.awaits_placement(uid):
            job.tasks.append(uid)
        elif is_ready(state, uid, live):
            job.tell(pod)
    named = state.priority_classes.get(spec.priority_class)
    job.priority = named.value if named is not None else max(priorities, default=0)
    return job


def missing(state: ClusterState, group: Group, now: Millis) -> Job:
    """Pods that name a PodGroup which does not exist wait for it."""
    job = Job("/".join(group), DEFAULT_QUEUE, 0, 0, now)
    job.group = group
    job.tasks = [uid for uid in state.groups.get(group, ()) if state.awaits_placement(uid)]
    return job


def is_ready(state: ClusterState, uid: PodUid, live: e.PodChanged) -> bool:
    """Whether a member is ready in the sense of a gang: it has its node, or has succeeded."""
    if live.phase == "Succeeded":
        return True
    return live.phase not in OVER and not live.deleting and (live.node is not None or uid in state.placed)


def job_of(state: ClusterState, pod: e.PodObserved) -> Group | None:
    """The group whose gang a pod belongs to; None for a pod on its own. Where the cluster has no PodGroups at all, the
    annotation only groups."""
    group = group_of(pod) if pod.annotations else None
    return group if group is not None and (group in state.pod_groups or has_groups(state, group)) else None


VOLCANO_GROUPS, UPSTREAM_GROUPS = "podgroups.scheduling.volcano.sh", "podgroups.scheduling.k8s.io"
"""The collections in `state.synced`."""


def has_groups(state: ClusterState, group: Group) -> bool:
    """Whether the cluster has PodGroups of this one's API, so that one that is missing is to be waited for."""
    return (UPSTREAM_GROUPS if is_upstream(group) else VOLCANO_GROUPS) in state.synced


def known_apis(state: ClusterState) -> tuple[bool, bool]:
    """Of which APIs it has: while this stays, `has_groups` gives the same answers."""
    return VOLCANO_GROUPS in state.synced, UPSTREAM_GROUPS in state.synced

UNSCHEDULABLE = "Unschedulable"
"""Why a gang waits that does not fit as a whole."""
NOT_ENQUEUED = "NotEnqueued"
"""Why pods of a PodGroup wait that is not let in yet."""
OVERUSED, QUOTA = "QueueOverused", "QueueQuota"
"""Why pods wait for their queue: it has had its share, or these would be more than it may have."""
TOGETHER, THE_CLUSTER, BESIDE_OTHERS = "the gang needs", "the cluster has no", "beside other queues"
"""Parts of what is said where more nodes may help (`reasons.lacks_node`): of a gang that does not fit as a whole, of a PodGroup for whose minimum the
cluster is too small, and of a queue that shares the cluster with others."""
GUARANTEED = f"{BESIDE_OTHERS}, which are guaranteed the rest"
"""Of what a queue has nothing left, where no capability says so."""


def is_best_effort(shape: PodShape) -> bool:
    """Asks for nothing but a node: what `backfill` serves, and what reserved nodes still admit (RULES 002-2)."""
    requests = shape.requests
    return shape.devices is None and sum(requests.values()) == requests.get(PODS, 0)
