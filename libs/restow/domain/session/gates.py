"""The gates between a pod and a node, by name: actions ask at each as they come to it, verdicts and plans walk all of them. So the reason
that is given is the reason that there was.

Of the job: `admitted`, `valid`, `queue`. Of the pod: `quota`, `rules`. Who is through waits for a node alone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from restow.contracts.events import PodObserved
from restow.contracts.ids import ShapeId
from restow.domain.groups import group_of, only_belongs
from restow.domain.records import Items
from restow.domain.session import queues
from restow.domain.session.extensions import Extensions
from restow.domain.session.framework import PERMITTED, Refusal
from restow.domain.session.jobs import NOT_ENQUEUED, OVERUSED, QUOTA, UNSCHEDULABLE, Job
from restow.domain.state import ClusterState

ENQUEUE = "enqueue"
UNREADABLE = "what it asks for cannot be read"


class Gates:
    """Of one session."""

    def __init__(
        self, state: ClusterState, extensions: Extensions, pledged: Mapping[str, object], as_used: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._state, self._extensions, self._pledged, self._as_used = state, extensions, pledged, as_used
        self._allocatable, self._overused = extensions.at("allocatable"), extensions.at("overused")
        self._lone: dict[str, Refusal | None] = {}
        """What was said of lone pods without annotations, by queue."""
        self._plain: dict[ShapeId, Refusal | None] = {}
        """What was said of plain pods, by shape."""

    def awaits_enqueue(self, job: Job) -> bool:
        """Whether it is a group's that is not let in yet, and there is an action for that."""
        return job.group in self._state.unqueued and any(action.name == ENQUEUE for action in self._state.session_config.actions)

    def admitted(self, job: Job) -> Refusal | None:
        """Why its PodGroup is not let in. The action `enqueue` asks here, and nobody else decides it."""
        if job.group is None or job.spec is None:
            return None
        why = queues.refused(self._state, job.queue) or self._extensions.answer("jobHeld", job)
        if isinstance(why, Refusal):
            return why
        asks = bool(job.spec.min_resources) and why is not PERMITTED
        said = job.spec.invalid or (self._extensions.refusal("jobEnqueueable", job) if asks else "")
        return _refusal(NOT_ENQUEUED, said) if said else None

    def valid(self, job: Job) -> Refusal | None:
        """Why its queue or a plugin does not let the job be looked at. Of lone pods without annotations in one queue it is asked once."""
        lone = job.group is None and job.hold is None and bool(job.tasks) and not self._state.pods[job.tasks[0]].fact.annotations
        if lone and job.queue in self._lone:
            return self._lone[job.queue]
        why = next(self._invalid(job), None)
        if lone:
            self._lone[job.queue] = why
        return why

    def _invalid(self, job: Job) -> Iterator[Refusal]:
        if (shut := queues.refused(self._state, job.queue)) is not None:
            yield shut
        for why in self._extensions.refusals("jobValid", job):
            assert isinstance(why, Refusal), "a veto at jobValid has a reason"
            yield why

    def queue(self, name: str) -> Refusal | None:
        """Why a queue gets nothing more; a migration's hold is in none."""
        said = self._extensions.refusal("overused", name) if name and self._overused else ""
        return _refusal(OVERUSED, said) if said else None

    def quota(self, job: Job, pod: PodObserved, more: Items | None = None) -> Refusal | None:
        """Why its queue has nothing left for the pod, or for so `more` of it as is not held for it already. Asked with queues as they will be
        when victims have left and nominees are placed, and as they are: the API may still refuse an eviction."""
        if not self._allocatable:
            return None
        why = self.later_quota(job, pod, more)
        if why is None and self._pledged:
            with self._as_used():
                return self.later_quota(job, pod, more)
        return why

    def later_quota(self, job: Job, pod: PodObserved, more: Items | None = None) -> Refusal | None:
        """The same of a pod that waits for victims itself: only as queues will be."""
        items = self._state.vectors[pod.shape].items if more is None else more
        said = self._extensions.refusal("allocatable", job, pod, items)
        return _refusal(QUOTA, said) if said else None

    def rules(self, pod: PodObserved) -> Refusal | None:
        """Why no node will do before something else happens. Of plain pods of one shape it is asked once (`framework.VETOES`)."""
        if pod.claims or self._state.shapes[pod.shape].resource_claims or (pod.annotations and not self._is_plain(pod)):
            return self._rules(pod)
        if pod.shape not in self._plain:
            self._plain[pod.shape] = self._rules(pod)
        return self._plain[pod.shape]

    def _is_plain(self, pod: PodObserved) -> bool:
        """Whether its annotations, and its PodGroup's, say nothing but where it belongs."""
        if not only_belongs(pod):
            return False
        group = self._state.pod_groups.get(named) if (named := group_of(pod)) is not None else None
        return group is None or not group.annotations

    def _rules(self, pod: PodObserved) -> Refusal | None:
        if why := self._state.shapes[pod.shape].unreadable:
            return Refusal(UNSCHEDULABLE, f"{UNREADABLE}: {why}")
        said = self._extensions.refusal("podWaits", pod)
        return _refusal(UNSCHEDULABLE, said) if said else None

    def of_pod(self, job: Job, pod: PodObserved, later: bool = False) -> Refusal | None:
        """The first that is shut for a pod whose job is through; `later`: that waits for victims itself."""
        why = (self.later_quota(job, pod) if later else self.quota(job, pod)) if self._allocatable else None
        if why is None and (why := self.rules(pod)) is not None:
            why = self._of_whom(job, pod, why)
        return why

    def of_member(self, job: Job, pod: PodObserved) -> Refusal | None:
        """`rules`; where a gang that is not complete waits for one that is never placed as it is, all are told which of them that is."""
        why = self.rules(pod)
        return why if why is None else self._of_whom(job, pod, why)

    def _of_whom(self, job: Job, pod: PodObserved, why: Refusal) -> Refusal:
        if job.group is None or not self._state.shapes[pod.shape].is_beyond_us or not job.short():
            return why
        return Refusal(why.reason, f"pod {pod.namespace}/{pod.name} of its group: {why.message}")

    def walk(self, job: Job, pod: PodObserved) -> Iterator[Refusal]:
        """All that are shut, in the order in which a session comes to them."""
        if self.awaits_enqueue(job) and (why := self.admitted(job)) is not None:
            yield why
        yield from self._invalid(job)
        for why in (self.queue(job.queue), self.quota(job, pod), self.of_member(job, pod)):
            if why is not None:
                yield why


def _refusal(reason: str, said: str) -> Refusal:
    """With the gate's reason, where it has none of its own."""
    return said if isinstance(said, Refusal) else Refusal(reason, said)
