"""What groups were promised when they were admitted (action `enqueue`) and do not use yet: one sum for all plugins that have a
say in that, made when a group first asks, and kept through the session."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from restow.domain.accounts import DEFAULT_QUEUE, by_column
from restow.domain.session.jobs import Job
from restow.domain.session.session import Session
from restow.domain.session.sums import inqueue, ledger, still_to_come

Promised = dict[str, int]
"""Amount by resource."""


class Admission:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._queues: dict[str, Promised] | None = None
        self._all: Promised = {}
        self._counted = False

    def asks(self, job: Job) -> Promised:
        """What a group's minimum needs beside what its pods use already; nothing where the job is no group's."""
        if job.spec is None or job.group is None:
            return {}
        return still_to_come(self._session.state, job.spec, ledger(self._session.state).groups.get(job.group))

    def promised(self, queue: str) -> Promised:
        """To the groups of one queue. O(groups) the first time."""
        return self._sums().get(queue, {})

    def promised_in_all(self) -> Promised:
        self._sums()
        return self._all

    def admitted(self, job: Job) -> None:
        """A group has been let in."""
        if job.spec is not None and job.spec.min_resources:
            asks = self.asks(job)
            self._add(self._sums(), job.queue, asks)
            if self._counted:
                self._charge(job.queue, asks, 1)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While groups are admitted, what a queue is promised counts as used: for its turn, too."""
        for queue, amounts in self._sums().items():
            self._charge(queue, amounts, 1)
        self._counted = True
        try:
            yield
        finally:
            self._counted = False
            for queue, amounts in self._sums().items():
                self._charge(queue, amounts, -1)

    def _charge(self, queue: str, amounts: Promised, sign: int) -> None:
        columns = self._session.state.table.columns
        self._session.charge(queue, tuple(by_column(amounts, columns).items()), sign)

    def lacking(self, job: Job, leaves: Iterable[str], limit: Mapping[int, int]) -> str:
        """The first resource of which these queues together would be promised and use more than the limit (by column) with
        this group; empty where there is capacity. Only what the group asks for is compared."""
        columns = self._session.state.table.columns
        leaves = tuple(leaves)
        for resource, amount in self.asks(job).items():
            most = limit.get(columns.get(resource, -1))
            if most is None or not amount:
                continue
            used = sum(self._session.usage(queue).get(columns[resource], 0) for queue in leaves)
            promised = 0 if self._counted else sum(self.promised(queue).get(resource, 0) for queue in leaves)
            if used + promised + amount > most:
                return resource
        return ""

    def _sums(self) -> dict[str, Promised]:
        if self._queues is None:
            self._queues = {}
            for group, amounts in inqueue(self._session.state).items():
                self._add(self._queues, self._session.state.pod_groups[group].queue or DEFAULT_QUEUE, amounts)
        return self._queues

    def _add(self, sums: dict[str, Promised], queue: str, amounts: Mapping[str, int]) -> None:
        for kept in (sums.setdefault(queue, {}), self._all):
            for resource, amount in amounts.items():
                kept[resource] = kept.get(resource, 0) + amount


def admission(session: Session) -> Admission:
    """The session's; the first plugin that asks makes it."""
    known = session.shared.find(Admission)
    return session.shared.keep(Admission(session)) if known is None else known
