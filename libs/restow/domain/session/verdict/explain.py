"""The verdict itself: what a session would find if it opened now."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.groups import Group
from restow.domain.node_table import less
from restow.domain.records import Nomination
from restow.domain.session import starving
from restow.domain.session.actions import reserve_handover
from restow.domain.session.jobs import Job, job_of, single
from restow.domain.session.nominations import promise
from restow.domain.session.opening import whole
from restow.domain.session.registry import acting, open_session
from restow.domain.session.session import Session
from restow.domain.session.verdict import gangs, nodes
from restow.domain.session.verdict.blocks import blocks
from restow.domain.session.verdict.quota import for_gang
from restow.domain.session.verdict.quota import reliefs as quota_reliefs
from restow.domain.session.verdict.values import Block, GangFit, Nominee, Relief, Verdict
from restow.domain.state import OVER, ClusterState


@contextmanager
def opened(state: ClusterState) -> Iterator[Session]:
    """A session at the state's time that decides nothing."""
    session = open_session(state, state.time, 1)
    session.handing_over = any(module is reserve_handover for module, _ in acting(state))
    promise(session)
    try:
        yield session
    finally:
        session.close()


def explain(state: ClusterState, pod: PodUid) -> Verdict:
    """The verdict on a pod now. Raises KeyError for a pod that the state does not know."""
    observed, placement = state.pods[pod].fact, state.placed.get(pod)
    status = _status(state, pod)
    if status != "waiting":
        victim = state.victims_of.get(pod)
        nomination = state.nominations.get(pod)
        return Verdict(
            pod,
            status,
            state.node_of(pod),
            "/".join(placement.hold) if placement is not None and placement.hold else "",
            nominee=_nominee(state, nomination) if status == "nominated" and nomination is not None else None,
            evicted_for=_named(state, victim.by) if victim is not None else "",
        )
    with opened(state) as session:
        return _waiting(session, observed)


def explain_group(state: ClusterState, group: Group) -> tuple[GangFit | None, tuple[Block, ...], tuple[Relief, ...]]:
    """How far the gang gets now, what else it waits for, and what would let it start; nothing where nobody of it waits."""
    waits = [uid for uid in state.groups.get(group, ()) if state.awaits_placement(uid)]
    if not waits:
        return None, (), ()
    verdict = explain(state, min(waits, key=state.order_of))
    return verdict.gang, verdict.blocks, verdict.reliefs


def _status(state: ClusterState, pod: PodUid) -> str:
    observed, live = state.pods[pod].fact, state.pods[pod].live
    if live.phase in OVER:
        return "finished"
    if live.deleting:
        return "terminating"
    if live.node is not None:
        return "bound"
    if pod in state.placed:
        return "placed"
    if not state.ours(observed):
        return "foreign"
    if observed.gated:
        return "gated"
    return "nominated" if pod in state.nominations else "waiting"


def _waiting(session: Session, pod: e.PodObserved) -> Verdict:
    state = session.state
    job = job_for(session, pod)
    found = tuple(blocks(session, job, pod))
    beyond_us = state.shapes[pod.shape].is_beyond_us
    total, reasons = (0, dict[str, int]()) if beyond_us else session.reasons(pod)
    masks = nodes.Masks(session, pod)
    handed = session.offers.hand_over(pod) if session.handing_over and session.offers else None
    fit: GangFit | None = None
    reliefs: list[Relief] = []
    if job.group is not None and job.spec is not None:
        fit, reliefs = _of_gang(session, job, found)
    if beyond_us:
        reliefs = []
    elif masks.fits and (fit is None or not fit.first):
        reliefs = [*quota_reliefs(session, job, pod, found), *reliefs]
    elif not masks.fits and not found:
        reliefs = [*nodes.reliefs(session, pod, masks), *reliefs]
    return Verdict(
        pod.pod,
        "waiting",
        nodes=total,
        reasons=reasons,
        fits=0 if beyond_us else masks.fits,
        reliefs=tuple(dict.fromkeys(reliefs)),
        blocks=found,
        gang=fit,
        reserved=starving.sentence(state, pod.pod),
        takes=f"slot {handed.slot} of {_reservation(state, handed.reservation)} on {handed.node}" if handed is not None else "",
        beyond_us=beyond_us,
    )


def _of_gang(session: Session, job: Job, found: Sequence[Block]) -> tuple[GangFit, list[Relief]]:
    """How far it gets, and, where only capacity or quota are between it and its start, what would help."""
    reliefs: list[Relief] = []
    unfit: list[PodUid] = []
    with gangs.placed(session, job, unfit) as fit:
        if not fit.complete and not found:
            reliefs += gangs.more_nodes(session, job, fit, unfit)
    if not fit.complete and not found:
        if fit.quota:
            reliefs += for_gang(session, job)
        reliefs += gangs.smaller(session, job, fit)
    return fit, reliefs


def job_for(session: Session, pod: e.PodObserved) -> Job:
    """The job as the session would make it."""
    state = session.state
    group = job_of(state, pod)
    return single(state, pod) if group is None else whole(session, group)


def _nominee(state: ClusterState, nomination: Nomination) -> Nominee:
    names, capacity = state.table.resources, nomination.capacity
    missing = {names[column]: amount for column, amount in less(capacity.wanted, capacity.held)}
    return Nominee(nomination.node, nomination.deadline, missing, nomination.victims)


def _named(state: ClusterState, uid: PodUid) -> str:
    pod = state.fact_of(uid)
    return f"{pod.namespace}/{pod.name}" if pod is not None else uid


def _reservation(state: ClusterState, uid: str) -> str:
    fact = state.reservations[uid].fact  # type: ignore[index]
    return f"{fact.namespace}/{fact.name}".removeprefix("/")
