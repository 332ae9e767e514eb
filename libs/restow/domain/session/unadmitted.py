"""PodGroups that are not let in yet, by queue in their turns: kept across sessions, for most of them are refused again for what they
were refused for before, however many there are."""

from bisect import insort
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import NamedTuple

from restow.contracts.events import PodGroupObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import Group, group_of
from restow.domain.session.jobs import Job, gang
from restow.domain.session.queue_lines import QueueLines
from restow.domain.session.sums import ledger, still_to_come
from restow.domain.state import ClusterState


class Turn(NamedTuple):
    """When it is asked for, the group's job, and what it asks for (`Admission.asks`). Must not be changed."""

    when: tuple
    job: Job
    asks: Mapping[str, int]


_when = attrgetter("when")


class Unadmitted:
    """Of a group of which nothing runs the turn is kept (`framework.POINTS`, jobOrder), of the others it is asked in every session."""

    def __init__(self, state: ClusterState) -> None:
        self._config = state.session_config
        self._specs: dict[Group, PodGroupObserved] = {}
        self._members: dict[PodUid, Group] = {}
        self._lines = QueueLines[Turn](_when)
        self._others: dict[Group, None] = {}
        self._moved = self._objects = -1

    @staticmethod
    def of(state: ClusterState, turn: Callable[[Job], tuple]) -> dict[str, list[Turn]]:
        """All of them as they are now, the first one first. The lists are the caller's."""
        kept: Unadmitted | None = state.memo.get("unadmitted")
        if kept is None or kept._config is not state.session_config:
            kept = state.memo["unadmitted"] = Unadmitted(state)
        kept._refresh(state, turn)
        lines = {queue: list(line) for queue, line in kept._lines.by_queue.items()}
        for group in kept._others:
            job = gang(state, group)
            insort(lines.setdefault(job.queue, []), _entry(state, group, job, turn), key=_when)
        return lines

    def _refresh(self, state: ClusterState, turn: Callable[[Job], tuple]) -> None:
        for group in self._stirred(state):
            self._others.pop(group, None)
            self._lines.drop(group)
            if group not in state.unqueued:
                self._specs.pop(group, None)
                continue
            self._specs[group] = state.pod_groups[group]
            if group in ledger(state).groups:
                self._others[group] = None
                continue
            job = gang(state, group)
            self._members.update(dict.fromkeys(job.tasks, group))
            self._lines.put(group, job.queue, _entry(state, group, job, turn))

    def _stirred(self, state: ClusterState) -> dict[Group, None]:
        """Those that came, went, or have other pods than before."""
        moved, objects = state.moved.since(self._moved), state.objects.since(self._objects)
        self._moved, self._objects = state.moved.position, state.objects.position
        groups, specs = state.pod_groups, self._specs
        if moved is None or objects is None or any(kind == "priority_classes" for kind, _ in objects):
            self._members.clear()
            return dict.fromkeys([*specs, *state.unqueued])
        found = dict.fromkeys(group for group in specs if group not in state.unqueued)
        found.update(dict.fromkeys(group for group in state.unqueued if specs.get(group) is not groups[group]))
        for who in moved:
            if isinstance(who, tuple):
                continue
            pod = state.pods.get(who)
            group = group_of(pod) if pod is not None and pod.annotations else None
            for about in (group, self._members.pop(who, None)):
                if about is not None and (about in state.unqueued or about in specs):
                    found[about] = None
        return found


def _entry(state: ClusterState, group: Group, job: Job, turn: Callable[[Job], tuple]) -> Turn:
    return Turn(turn(job), job, still_to_come(state, state.pod_groups[group], ledger(state).groups.get(group)))
