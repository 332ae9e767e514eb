"""Plugin `overcommit`: how much may be admitted to all queues together: the cluster times a factor, less what is used and held
and what admitted groups do not use yet. Groups beyond that stay Pending, and their controllers do not flood the cluster with
pods that cannot run."""

from restow.domain.session.admission import admission
from restow.domain.session.framework import Short
from restow.domain.session.jobs import Job
from restow.domain.session.plugins.overcommit.args import Args
from restow.domain.session.run import Session
from restow.domain.session.sums import totals


def open(session: Session, args: Args) -> None:
    kept = admission(session)

    def enqueueable(job: Job) -> str | bool:
        """As the log has the nodes at open: `enqueue` is the first action. Only what the group asks for is compared."""
        nodes, columns, promised = totals(session.state), session.state.table.columns, kept.promised_in_all()
        for resource, amount in kept.asks(job).items():
            column = columns.get(resource)
            there, charged = (nodes.allocatable[column], nodes.charged[column]) if column is not None else (0, 0)
            if amount and charged + promised.get(resource, 0) + amount > there * args.milli(resource) // 1000:
                factor = args.factors.get(resource, args.factor)
                return Short(f"the cluster has no {resource} left for the group's minimum, of {factor} times what there is", resource, amount)
        return True

    session.extensions.add("jobEnqueueable", enqueueable)
