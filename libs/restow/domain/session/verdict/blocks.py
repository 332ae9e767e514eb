"""What a pod waits for that is not a node: each gate is asked, also behind one that is shut."""

from collections.abc import Iterator

from restow.contracts.events import PodObserved
from restow.domain.session.jobs import Job
from restow.domain.session.session import Session
from restow.domain.session.verdict.values import Block

AWAITED = "AwaitsHold"


def blocks(session: Session, job: Job, pod: PodObserved) -> Iterator[Block]:
    """In the order in which a session asks; each once."""
    found: dict[Block, None] = {}
    if session.offers.must_wait(pod):
        found[Block(AWAITED, "a pod of its controller is being moved; what is held for its successor may be for this one")] = None
    for why in session.gates.walk(job, pod):
        found[Block(why.reason, why.message)] = None
    return iter(found)
