"""Plugin `drf`: between jobs, whoever uses the least dominant share of the cluster comes first (dominant resource fairness), and
a job may take from another one that still has as large a share after the loss.

A job's share counts what its pods are charged, terminating ones not, and what this session has placed. A pod on its own that
waits uses nothing."""

from collections.abc import Sequence

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.accounts import Amounts, charge
from restow.domain.session.jobs import Job
from restow.domain.session.plugins.drf.args import Args
from restow.domain.session.quotas import share
from restow.domain.session.run import Session
from restow.domain.session.sums import ledger, totals


def open(session: Session, args: Args) -> None:
    jobs = Shares(session)
    add = session.extensions.add
    add("jobOrder", jobs.order)
    add("preemptable", jobs.preemptable)
    add("allocated", jobs.allocated)
    add("deallocated", jobs.deallocated)


class Shares:
    """One session's, of groups only: a single pod's share is its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state = session.state
        self._whole: Amounts = dict(enumerate(totals(session.state).allocatable))
        self._used: dict[str, Amounts] = {}
        self._orders: dict[str, int] = {}

    def order(self, job: Job) -> int:
        """The job's share in billionths."""
        if job.group is None:
            return 0
        known = self._orders.get(job.key)
        if known is None:
            known = self._orders[job.key] = share(self._of(job), self._whole)
        return known

    def _of(self, job: Job) -> Amounts:
        used = self._used.get(job.key)
        if used is None:
            use = ledger(self._state).groups.get(job.group) if job.group is not None else None
            used = self._used[job.key] = dict(use.used) if use is not None else {}
        return used

    def allocated(self, job: Job, pod: PodObserved, row: int) -> None:
        self._charge(job, pod, 1)

    def deallocated(self, job: Job, pod: PodObserved, row: int) -> None:
        self._charge(job, pod, -1)

    def _charge(self, job: Job, pod: PodObserved, sign: int) -> None:
        if job.group is None:
            return
        charge(self._of(job), self._state.vectors[pod.shape].items, sign)
        self._orders.pop(job.key, None)

    def preemptable(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Pods whose job, without them and the ones chosen before, has no smaller share than the claimer's job with the
        claimer. (Volcano counts a job's loss also of pods that it does not choose.)"""
        state = self._state
        mine = self._session.job_for(claimer)
        wanted = dict(self._left(claimer, mine))
        charge(wanted, state.vectors[state.pods[claimer].shape].items, 1)
        target = share(wanted, self._whole)
        left: dict[str, Amounts] = {}
        allowed: list[PodUid] = []
        for uid in candidates:
            job = self._session.job_for(uid)
            if job.key not in left:
                left[job.key] = self._left(uid, job)
            rest = dict(left[job.key])
            charge(rest, state.vectors[state.pods[uid].shape].items, -1)
            if target <= share(rest, self._whole):
                left[job.key] = rest
                allowed.append(uid)
        return allowed

    def _left(self, uid: PodUid, job: Job) -> Amounts:
        """What the pod's job uses, without those of its pods that are victims already."""
        state = self._state
        if job.group is None:
            used: Amounts = {}
            if uid in state.charges or uid in self._session.placements:
                charge(used, state.vectors[state.pods[uid].shape].items, 1)
            return used
        used = dict(self._of(job))
        for going in self._session.going(job.group):
            if going in state.charges:
                charge(used, state.vectors[state.charges[going].shape].items, -1)
        return used
