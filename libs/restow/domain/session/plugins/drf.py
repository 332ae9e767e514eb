"""Plugin `drf`: between jobs, whoever uses the least dominant share of the cluster comes first (dominant resource fairness), and
a job may take from another one that still has as large a share after the loss.

A job's share counts what its pods are charged, terminating ones not, and what this session has placed. Pods of one controller
that are in no group count together, as in Volcano, which makes one PodGroup for each controller. A bare pod that waits uses
nothing."""

from collections.abc import Mapping, Sequence

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.accounts import Amounts, charge
from restow.domain.session.args import Arguments
from restow.domain.session.jobs import Job
from restow.domain.session.queues import share
from restow.domain.session.session import Session
from restow.domain.session.sums import ledger, owners, totals


class Args(Arguments, frozen=True):
    """None."""

    @classmethod
    def switches_wrong(cls, enabled: Mapping[str, bool]) -> str:
        """Hierarchical DRF by annotations of queues is what Volcano has put the plugin `capacity` in place of."""
        if enabled.get("enableHierarchy"):
            return "enableHierarchy: true; allowed: false (for queues below queues use the plugin capacity)"
        return ""


def open(session: Session, args: Args) -> None:
    jobs = Shares(session)
    session.extensions.order("jobOrder", jobs.order)
    session.extensions.veto("preemptable", jobs.preemptable)
    session.extensions.hear("allocated", jobs.allocated)


class Shares:
    """One session's, of groups and of controllers: a bare pod's share is its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state, self._owners = session.state, owners(session.state)
        self._whole: Amounts = dict(enumerate(totals(session.state).allocatable))
        self._used: dict[str, Amounts] = {}
        self._orders: dict[str, int] = {}

    def order(self, job: Job) -> int:
        """The job's share in billionths."""
        name = _name(job)
        if not name:
            return 0
        known = self._orders.get(name)
        if known is None:
            known = self._orders[name] = share(self._of(job, name), self._whole)
        return known

    def _of(self, job: Job, name: str) -> Amounts:
        used = self._used.get(name)
        if used is None:
            if job.group is not None:
                use = ledger(self._state).groups.get(job.group)
            else:
                use = self._owners.of(self._state, name)
            used = self._used[name] = dict(use.used) if use is not None else {}
        return used

    def allocated(self, job: Job, pod: PodObserved, sign: int) -> None:
        if name := _name(job):
            charge(self._of(job, name), self._state.vectors[pod.shape].items, sign)
            self._orders.pop(name, None)

    def preemptable(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Pods whose job, without them and the ones chosen before, has no smaller share than the claimer's job with the
        claimer. (Volcano counts a job's loss also of pods that it does not choose.) Where both would have the same, only pods whose loss
        makes their job's share smaller: else two jobs with the same share of GPUs would take the same CPUs from each other for ever, and a
        job its own."""
        state = self._state
        mine = self._session.job_for(claimer)
        wanted = dict(self._left(claimer, mine))
        charge(wanted, state.vectors[state.pods[claimer].fact.shape].items, 1)
        target = share(wanted, self._whole)
        left: dict[str, Amounts] = {}
        allowed: list[PodUid] = []
        for uid in candidates:
            job = self._session.job_for(uid)
            name = _name(job) or job.key
            if name not in left:
                left[name] = self._left(uid, job)
            rest = dict(left[name])
            charge(rest, state.vectors[state.pods[uid].fact.shape].items, -1)
            after = share(rest, self._whole)
            if target < after or (target == after and after < share(left[name], self._whole)):
                left[name] = rest
                allowed.append(uid)
        return allowed

    def _left(self, uid: PodUid, job: Job) -> Amounts:
        """What the pod's job uses, without those of its pods that are victims already."""
        state = self._state
        name = _name(job)
        if not name:
            used: Amounts = {}
            if uid in state.charges or uid in self._session.placements:
                charge(used, state.vectors[state.pods[uid].fact.shape].items, 1)
            return used
        used = dict(self._of(job, name))
        for going in self._session.going(job.group) if job.group is not None else self._session.leaving(state.owned.get(job.account, ())):
            if going in state.charges:
                charge(used, state.vectors[state.charges[going].shape].items, -1)
        return used


def _name(job: Job) -> str:
    """With whom it shares its share; empty for a bare pod."""
    return job.key if job.group is not None else job.account
