"""The session: what a command leads to, and which effects are owed for what was decided."""

from collections.abc import Iterable, Sequence

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Family, Millis, PodUid
from restow.domain import beside, nomination_checks, volumes
from restow.domain.binding import bind
from restow.domain.effects import (
    Bind,
    BindClaim,
    CreatePlaceholder,
    DeletePlaceholder,
    Effect,
    EvictVictim,
    Land,
    LetGo,
    ListOwners,
    NominateAgain,
    TellNominated,
    TellUnschedulable,
)
from restow.domain.memo import kept
from restow.domain.reservation import beside as reserved
from restow.domain.session import opening, statuses
from restow.domain.session.beside import land, may_run
from restow.domain.session.hold_releases import rejections, releases
from restow.domain.session.nominations import elsewhere, refuse, settle_nominations
from restow.domain.session.reasons import condition_message, say_who_waits, still_says
from restow.domain.session.registry import open_session, run_actions
from restow.domain.session.session import Session
from restow.domain.state import ClusterState, Touched

LIMIT = 2_000
"""New pods considered in one session, and about the most events that it makes: what keeps a decision under about 50 ms. The
rest follows in the next one. A gang is never cut, and of those that wait nobody is (RULES G-17)."""


GAP = 250
"""Milliseconds between sessions that look at one part each, so that whatever else happens has its turn between them."""

PUT_BACK = 2_000
"""Milliseconds by which the log's clock may go back without a session. By more, and the last one may have looked into a window, or at a
deadline, that is not there yet: who was refused for it would wait for its end."""


SAID = (e.Unfit, e.Withheld, e.HoldUnfit)
"""Why somebody waits. After a session that decides anything else another one follows, until one decides nothing: only then it rests."""


class SessionDecider:
    family: Family = "session"
    logic = "session@9"

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[e.Event]:
        match command:
            case c.Schedule(time=now, limit=limit, turn=turn):
                return schedule(state, now, limit, turn)
            case c.RefuseBind(pod=pod, node=node, reason=reason):
                placement = state.placed.get(pod)
                if placement is None or placement.node != node:
                    return ()
                return (e.PodReleased(pod, reason),)
            case c.RefusePlaceholder(reservation=reservation, slot=slot, reason=reason):
                return beside.lost_to(state, reservation, slot, reason)
            case c.RefuseLetGo(pod=pod, reason=reason):
                return beside.let_go_refused(state, pod, reason, may_run, lambda one: reserved.owns(state, one))
            case c.ReportNominations():
                return nomination_checks.decide(command)
            case c.ReportOwners(reservation=reservation):
                return (e.OwnersUnlisted(reservation),) if state.owner_gates.get(reservation) == 0 else ()
            case c.RefusePreemption(pod=pod, reason=reason):
                return refuse(state, pod, reason)
        raise TypeError(f"{self.family} does not decide {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        pace = kept(state, Pace)
        if reserved.gates(state, now):
            return c.Schedule(now, LIMIT, pace.turn)
        if state.to_release or state.queue or state.whole or state.stranded() or beside.astray(state, now) or beside.in_vain(state, may_run) or rejections(state) or _to_settle(state, now):
            return c.Schedule(now, LIMIT, pace.turn)
        waiting = state.slot_queue or state.gated or state.parked or state.unqueued or state.resizes or state.waiting_on or state.nominations
        moved = pace.rested != state.capacity_epoch or pace.last(state) > now + PUT_BACK
        if (waiting and moved) or ((when := self.deadline(state)) is not None and when <= now):
            return c.Schedule(now, LIMIT, pace.turn)
        return None

    def deadline(self, state: ClusterState) -> Millis | None:
        # Not after the log's time: what has passed before a fact was written is still to be looked at.
        pace = kept(state, Pace)
        times = (opening.deadline(state, pace.last(state)), beside.astray_at(state))
        when = min((at for at in times if at is not None), default=None)
        if not pace.left:
            return when
        following = Millis(pace.last(state) + GAP)
        return following if when is None else min(when, following)

    def pending(self, state: ClusterState, touched: Touched | None) -> list[Effect]:
        pods: Iterable[PodUid] = touched.pods if touched is not None else (
            state.placed.keys() | state.parked.keys() | state.victims_of.keys() | state.nominations.keys()
        )
        effects: list[Effect] = []
        for pod in pods:
            placement, live = state.placed.get(pod), state.live_of(pod)
            if placement is not None and live is not None and live.node is None:
                if pod in state.to_land:
                    continue  # `beside.pending`
                effects += volumes.owed(state, pod) if placement.volumes else (bind(state, pod),)
            elif pod in state.parked:
                effects.append(TellUnschedulable(pod, condition_message(state, pod)))
            elif pod in state.nominations:
                effects.append(TellNominated(pod, state.nominations[pod].node))
            if pod in state.victims_of:
                effects.append(EvictVictim(pod))
        effects += statuses.pending(state, touched)
        if state.placeholders or state.gated or state.to_land or state.migration_config.beside:
            effects += beside.pending(state, touched, may_run, lambda pod: reserved.owns(state, pod))
        effects += (ListOwners(uid, until) for uid, until in state.owner_gates.items() if touched is None or uid in touched.reservations)
        return effects

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        match effect:
            case Bind(pod=pod):
                return effect in volumes.owed(state, pod)
            case BindClaim():
                return volumes.asks(state, effect)
            case TellUnschedulable(pod=pod, message=message):
                return still_says(state, pod, message)
            case TellNominated(pod=pod, node=node):
                nomination = state.nominations.get(pod)
                return nomination is not None and nomination.node == node
            case EvictVictim(pod=pod):
                return pod in state.victims_of
            case CreatePlaceholder() | DeletePlaceholder() | Land() | LetGo() | NominateAgain():
                return beside.owed(state, effect, may_run, lambda pod: reserved.owns(state, pod))
            case ListOwners(reservation=uid, until=until):
                return state.owner_gates.get(uid) == until
        return statuses.owed(state, effect)


class Pace:
    """Hints when to run. What a session decides never depends on them but for `turn`, which is a part of the command.

    `looked`: the time of the last session. `rested`: the epoch in which one found nothing to decide. `settled`: by what nominations were settled then. Of
    sessions that look at a part each `turn` is whose turn it is, and `left` how many are still to come without whom somebody was not looked at."""

    def __init__(self, state: ClusterState) -> None:
        self.looked: Millis | None = None
        self.rested = self._epoch = -1
        self.settled: tuple | None = None
        self.turn = self.left = 0

    def refresh(self, state: ClusterState) -> None: ...

    def last(self, state: ClusterState) -> Millis:
        """The time of the last session; the log's where there was none in this process: then one is due as long as anybody waits."""
        return Millis(state.time) if self.looked is None else self.looked

    def after(self, state: ClusterState, session: Session, epoch: int) -> None:
        """A session that began in this epoch is over."""
        self.looked = session.now
        if session.parts == 1:
            self.left = 0
        else:
            # After whatever has moved, all are looked at.
            self.turn += 1
            self.left = session.parts - 1 if session.events or not self.left or epoch != self._epoch else self.left - 1
            self._epoch = epoch
        if not session.events:
            self.rested, self.settled = epoch, _settled(state)
        elif not all(isinstance(event, SAID) for event in session.events):
            # Who was refused before may fit beside what was decided after him, or his queue may borrow more: all are looked at once more.
            self.rested = -1


def schedule(state: ClusterState, now: Millis, limit: int, turn: int = 0) -> list[e.Event]:
    """What is asked back comes first, alone: it frees capacity. Then the actions, in the order of the configuration."""
    if released := [*reserved.gates(state, now), *releases(state, now, limit, may_run)]:
        kept(state, Pace).rested = -1
        return released
    epoch = state.capacity_epoch
    session = open_session(state, now, limit, turn)
    try:
        settle_nominations(session)
        land(session)
        session.jobs = opening.jobs(session)
        run_actions(session)
        elsewhere(session)
        say_who_waits(session)
    finally:
        session.close()
    kept(state, Pace).after(state, session, epoch)
    return session.events


def _to_settle(state: ClusterState, now: Millis) -> bool:
    """Whether some nomination may be used now, or is to be given up. One that has all of its capacity may wait for long, for others of its gang
    or for its queue: it is not tried again before anything has changed that it may wait for."""
    if not state.nominations:
        return False
    if state.late_nominations(now):
        return True
    settled = _settled(state)
    return bool(settled[2]) and kept(state, Pace).settled != settled


def _settled(state: ClusterState) -> tuple[int, int, tuple[tuple[PodUid, int], ...]]:
    """What nominations were settled by: capacity, what sessions have decided, who has all of its capacity, and what there is of its gang."""
    return state.capacity_epoch, state.last["session"], state.whole_nominations()
