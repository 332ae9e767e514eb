"""What would have to change about a group or a queue: supposed, and decided again, so that only what really helps is named."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.domain.accounts import Amounts, by_column, charge
from restow.domain.resources import shown, total_columns
from restow.domain.session import queues
from restow.domain.session.jobs import NOT_ENQUEUED, OVERUSED, QUOTA, Job
from restow.domain.session.plugins.gang import MISSING, NOT_ENOUGH
from restow.domain.session.session import Session
from restow.domain.session.statuses.queue_status import above, used
from restow.domain.session.verdict import gangs
from restow.domain.session.verdict.blocks import blocks
from restow.domain.session.verdict.suppose import supposed
from restow.domain.session.verdict.values import Block, Relief

_OF_QUEUES = (OVERUSED, QUOTA, NOT_ENQUEUED)


def reliefs(session: Session, job: Job, pod: PodObserved, found: Sequence[Block]) -> Iterator[Relief]:
    """For what is not about nodes. Where it waits for several such things no change is enough, unless one ends all of them."""
    reasons = {block.reason for block in found}
    if reasons == {queues.NOT_FOUND}:
        yield Relief(f"a queue named {job.queue}")
    if reasons == {queues.CLOSED}:
        yield Relief(f"queue {job.queue}: state Open")
    if reasons == {MISSING}:
        yield Relief(f"a PodGroup named {job.key.partition('/')[2]} in namespace {pod.namespace}")
    if reasons == {NOT_ENOUGH}:
        have = job.ready + len(job.tasks)
        yield Relief(f"{job.need - have} more pod{'s' * (job.need - have != 1)} of the gang")
        if have:
            yield Relief(f"a minMember of at most {have}")
    for reason in _OF_QUEUES:
        if reason in reasons:
            wanted = _wanted(session, job, pod, reason)
            yield from capability(session, job, wanted, lambda what_if: not list(blocks(what_if, job, pod)))


def for_gang(session: Session, job: Job) -> Iterator[Relief]:
    """Where each of its pods has its quota and all of them together have not."""

    def helps(what_if: Session) -> bool:
        with gangs.placed(what_if, job, []) as fit:
            return fit.complete

    yield from capability(session, job, _wanted(session, job, session.state.pods[job.tasks[0]].fact, QUOTA), helps)


def capability(session: Session, job: Job, wanted: Amounts, helps: Callable[[Session], bool]) -> Iterator[Relief]:
    """Of its queue, or of one above it: so much more, alone, and it helps."""
    state = session.state
    names = state.table.resources
    for name in (job.queue, *above(state, job.queue)):
        fact = state.queues.get(name)
        if fact is None or not fact.capability:
            continue
        have, more = used(state, name), {}
        for column, amount in wanted.items():
            most = fact.capability.get(names[column])
            if most is not None and have.get(column, 0) + amount > most:
                more[names[column]] = have.get(column, 0) + amount - most
        if not more:
            continue
        raised = replace(fact, capability={r: amount + more.get(r, 0) for r, amount in fact.capability.items()})
        with supposed(state, (state.queues, name, raised)) as what_if:
            if helps(what_if):
                said = " and ".join(f"{shown(r, amount)} more" for r, amount in more.items())
                yield Relief(f"queue {name}: capability {said}")


def _wanted(session: Session, job: Job, pod: PodObserved, reason: str) -> Amounts:
    """What is to be let in: what its group asks for at least, or as many pods as complete it, or the pod itself."""
    state = session.state
    if reason == NOT_ENQUEUED and job.spec is not None:
        return by_column(total_columns(job.spec.min_resources), state.table.columns)
    tasks = [state.pods[uid].fact for uid in job.tasks[: max(job.need - job.ready, 1)]] or [pod]
    total: Amounts = {}
    for task in tasks:
        charge(total, state.vectors[task.shape].items)
    return total
