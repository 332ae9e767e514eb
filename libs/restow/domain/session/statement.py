"""Placements that are made together or not at all."""

from collections import Counter
from collections.abc import Callable

from restow.contracts import events as e
from restow.domain.groups import task_of
from restow.domain.session.jobs import Job
from restow.domain.session.run import Session
from restow.domain.session.view import Fit


class Statement:
    """What is placed through it is on the session's board at once; `commit` makes it events, `discard` takes it back."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session = session
        self._job = job
        self._placed: list[tuple[e.PodObserved, e.HandedOver | None]] = []
        self.by_task: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._placed)

    def place(self, pod: e.PodObserved, fit: Fit) -> None:
        self._session.place(self._job, pod, fit)
        self._note(pod, None)

    def hand_over(self, pod: e.PodObserved) -> e.HandedOver | None:
        """Give the pod the hold that it owns, if there is one."""
        handed = self._session.hand_over(self._job, pod)
        if handed is not None:
            self._note(pod, handed)
        return handed

    def _note(self, pod: e.PodObserved, handed: e.HandedOver | None) -> None:
        self._placed.append((pod, handed))
        self.by_task[task_of(pod)] += 1

    def commit(self, events: Callable[[e.PodObserved, Fit], list[e.Event]] | None = None) -> None:
        """`events` says what is logged of each placement; that it is placed, where nothing is said."""
        session, job = self._session, self._job
        say = events or session.placed_events
        for pod, handed in self._placed:
            session.events += [handed] if handed else say(pod, session.placements[pod.pod])
        job.ready += len(self._placed)
        for task, times in self.by_task.items():
            job.tell(task, times)
        placed = {pod.pod for pod, _ in self._placed}
        job.tasks = [uid for uid in job.tasks if uid not in placed]
        self._forget()

    def discard(self) -> None:
        for pod, handed in reversed(self._placed):
            if handed is None:
                self._session.unplace(self._job, pod)
            else:
                self._session.take_back(self._job, pod, handed)
        self._forget()

    def _forget(self) -> None:
        self._placed, self.by_task = [], Counter()
