"""Plugin `overcommit`: how much may be admitted to all queues together: the cluster times a factor, less what is used and held
and what admitted groups do not use yet. Groups beyond that stay Pending, and their controllers do not flood the cluster with
pods that cannot run."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.resources import canonical_resource, title
from restow.domain.session.admission import admission
from restow.domain.session.args import Arguments, decimal, mapped, thousandths, with_prefix, without_prefix
from restow.domain.session.framework import PERMITTED, Answer, Refusal
from restow.domain.session.jobs import NOT_ENQUEUED, THE_CLUSTER, Job
from restow.domain.session.session import Session
from restow.domain.session.sums import totals

FACTOR, FACTORS = "overcommit-factor", "overcommit-factors"
LEAST = 1000


class Args(Arguments, frozen=True):
    """`overcommit-factor` (1.2), and `overcommit-factor.<resource>` where a resource has its own. Not below 1, and kept as
    text: a factor is read with `milli`, in thousandths."""

    factor: str = msgspec.field(name=FACTOR, default="1.2")
    factors: dict[str, str] = msgspec.field(name=FACTORS, default_factory=dict)

    def of(self, resource: str) -> str:
        """The factor of a resource of the node table, by whichever of its names it was said."""
        return next((factor for name, factor in self.factors.items() if canonical_resource(name) == resource), self.factor)

    def milli(self, resource: str) -> int:
        """The same in thousandths."""
        return thousandths(FACTOR, self.of(resource))

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        prefix = FACTOR + "."
        own = dict(said)
        factors = {**mapped(FACTORS, own.pop(FACTORS, None)), **with_prefix(said, prefix)}
        own = without_prefix(own, prefix)
        if FACTOR in own:
            own[FACTOR] = decimal(thousandths(FACTOR, own[FACTOR], LEAST))
        own[FACTORS] = {
            name: decimal(thousandths(prefix + name, value, LEAST)) for name, value in factors.items()
        }
        return super().read(own)


def open(session: Session, args: Args) -> None:
    kept = admission(session)

    def enqueueable(job: Job) -> Answer:
        """As the log has the nodes at open: `enqueue` is the first action. Only what the group asks for is compared."""
        nodes, columns, promised = totals(session.state), session.state.table.columns, kept.promised_in_all()
        for resource, amount in kept.asks(job).items():
            column = columns.get(resource)
            there, charged = (nodes.allocatable[column], nodes.charged[column]) if column is not None else (0, 0)
            if amount and charged + promised.get(resource, 0) + amount > there * args.milli(resource) // 1000:
                said = f"{THE_CLUSTER} {title(resource)} left for the group's minimum, of {args.of(resource)} times what there is"
                return Refusal(NOT_ENQUEUED, said, resource, amount)
        return PERMITTED

    session.extensions.veto("jobEnqueueable", enqueueable)
