"""What pods of one job take from others, together or not at all (RULES 004-6)."""

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.contracts.values import DeviceShare
from restow.domain.evolve.session import PREEMPTED
from restow.domain.groups import task_of
from restow.domain.records import PATIENCE as PATIENCE
from restow.domain.session.jobs import Job
from restow.domain.session.preemption import coming
from restow.domain.session.preemption.units import Choice, Unit
from restow.domain.session.run import Session
from restow.domain.table import less, vector_of

Taken = tuple[e.PodObserved, Choice, list[tuple[int, int]], list[DeviceShare]]
"""A pod, where it goes, and what of that was free at once."""


class Claim:
    """On the session's board and on what it knows to be coming at once; `commit` makes it events, `discard` takes it back."""

    def __init__(self, session: Session, job: Job, action: str) -> None:
        self._session, self._job, self._action = session, job, action
        self._coming = coming.of(session)
        self._taken: list[Taken] = []

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def waits(self) -> bool:
        """Whether any of its pods needs more than what is free now."""
        return any(choice.victims or not _all_of(self._session, pod, choice, now, d) for pod, choice, now, d in self._taken)

    def take(self, pod: e.PodObserved, choice: Choice) -> None:
        session, state, row = self._session, self._session.state, choice.fit.row
        for unit in choice.victims:
            self._evict(pod, row, unit)
        now, devices = self._free_now(pod, choice)
        missing = less(state.vectors[pod.shape].items, now)
        session.board.take(row, vector_of(now), devices)
        self._coming.add(row, missing, [d for d in choice.fit.devices if d not in devices], -1)
        self._coming.touched.append(row)
        session.charge_queue(self._job.queue, pod.shape, 1)
        session.nominated[pod.pod] = choice.fit
        for rule in session.extensions.filters:
            rule.placed(pod, row, choice.fit.volumes)
        for heard in session.extensions.at("allocated"):
            heard(self._job, pod, row)
        self._taken.append((pod, choice, now, devices))
        self._job.ready += 1
        self._job.tell(task_of(pod))

    def _evict(self, pod: e.PodObserved, row: int, unit: Unit) -> None:
        """A pod's room is coming; a hold's is there at once."""
        session, state = self._session, self._session.state
        if isinstance(unit.who, str):
            uid = PodUid(unit.who)
            session.victims[uid] = pod.pod
            session.charge_queue(unit.queue, unit.shape, -1)
            for heard in session.extensions.at("deallocated"):
                heard(session.job_for(uid), state.pods[uid], row)
            self._coming.add(row, state.vectors[unit.shape].items, unit.devices, 1)
        else:
            session.vacate(row, unit.who, session.offers.lost(unit.who))

    def _free_now(self, pod: e.PodObserved, choice: Choice) -> tuple[list[tuple[int, int]], list[DeviceShare]]:
        """What is held at once, as the fold does it (`ClusterState.top_up`)."""
        free, shares = self._session.board.row(choice.fit.row)
        wanted = self._session.state.vectors[pod.shape].items
        now = [(c, taken) for c, amount in wanted if (taken := min(amount, max(free[c], 0)))]
        return now, [d for d in choice.fit.devices if d.index < len(shares) and shares[d.index] >= d.milli]

    def discard(self) -> None:
        session, state = self._session, self._session.state
        for pod, choice, now, devices in reversed(self._taken):
            row = choice.fit.row
            self._job.ready -= 1
            self._job.tell(task_of(pod), -1)
            del session.nominated[pod.pod]
            for heard in session.extensions.at("deallocated"):
                heard(self._job, pod, row)
            for rule in session.extensions.filters:
                rule.removed(pod, row)
            session.charge_queue(self._job.queue, pod.shape, -1)
            self._coming.touched.append(row)
            missing = less(state.vectors[pod.shape].items, now)
            self._coming.add(row, missing, [d for d in choice.fit.devices if d not in devices], 1)
            session.board.give(row, vector_of(now), devices)
            for unit in reversed(choice.victims):
                self._spare(row, unit)
        self._taken = []

    def _spare(self, row: int, unit: Unit) -> None:
        session, state = self._session, self._session.state
        if isinstance(unit.who, str):
            uid = PodUid(unit.who)
            self._coming.add(row, state.vectors[unit.shape].items, unit.devices, -1)
            for heard in session.extensions.at("allocated"):
                heard(session.job_for(uid), state.pods[uid], row)
            session.charge_queue(unit.queue, unit.shape, 1)
            del session.victims[uid]
        else:
            was = state.slots[unit.who[0]][unit.who[1]]
            session.offers.held_again(unit.who, was)
            session.reoccupy(row, unit.who, was)

    def commit(self) -> None:
        session = self._session
        for pod, choice, _, _ in self._taken:
            why = f"for pod {pod.namespace}/{pod.name} of queue {self._job.queue}"
            session.events += [e.HoldReleased(uid, slot, PREEMPTED) for uid, slot in choice.holds]
            session.events += [e.Preempted(uid, pod.pod, self._action, why) for uid in choice.pods]
            deadline = Millis(session.now + PATIENCE)
            node = session.name(choice.fit.row)
            fit = choice.fit
            session.events.append(e.Nominated(pod.pod, node, deadline, fit.devices, choice.pods, fit.cores))
        nominated = {pod.pod for pod, *_ in self._taken}
        self._job.tasks = [uid for uid in self._job.tasks if uid not in nominated]
        # They wait for somebody's end now, and nothing is wrong with them.
        for unfit in session.unfit.values():
            unfit.pods = [uid for uid in unfit.pods if uid not in nominated]
        for withheld in session.withheld.values():
            withheld.pods = [uid for uid in withheld.pods if uid not in nominated]
        self._taken = []


def _all_of(session: Session, pod: e.PodObserved, choice: Choice, now: list[tuple[int, int]], devices: list[DeviceShare]) -> bool:
    return tuple(now) == session.state.vectors[pod.shape].items and tuple(devices) == choice.fit.devices
