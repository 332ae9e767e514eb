"""What waits and was not looked at in this session, because of its limits: whether some of it could be scheduled now.

Everything else that waits was found unfit here, or is withheld (quota, gang, queue); what is parked under a shape that fits
nowhere cannot be scheduled, whoever it is. So the question costs little unless the limits have cut something off.
"""

from collections.abc import Hashable, Iterable, Iterator

from restow.contracts.ids import PodUid
from restow.domain.session.backlog import Backlog
from restow.domain.session.requests import is_best_effort
from restow.domain.session.run import Session
from restow.domain.session.starving.members import Members
from restow.domain.session.starving.reserved import Reserved
from restow.domain.session.statement import Statement


class Ahead:
    """Asked for one session."""

    def __init__(self, session: Session, rule: Reserved) -> None:
        self._session, self._rule = session, rule
        self._known: dict[Hashable, bool] = {}

    def jobs(self, besides: Iterable[str]) -> Iterator[Members]:
        """Jobs with pods that were not looked at, BestEffort ones aside; not those with these keys."""
        found: dict[str, None] = dict.fromkeys(besides)
        for uid in self._unseen():
            members = Members.of(self._session, self._rule, uid)
            if members.job.key not in found:
                found[members.job.key] = None
                yield members

    def _unseen(self) -> Iterator[PodUid]:
        session, state = self._session, self._session.state
        seen = set(session.placements)
        for unfit in session.unfit.values():
            seen.update(unfit.pods)
        for withheld in session.withheld.values():
            seen.update(withheld.pods)
        for uid in state.queue:
            if uid not in seen and not is_best_effort(state.shapes[state.pods[uid].shape]):
                yield uid
        backlog = Backlog.of(state, session.board)
        for under in backlog.hopeful():
            for line in backlog.lines(under):
                waiting = [uid for _, uid in line if uid not in session.placements]
                if waiting and waiting[0] in seen:
                    continue  # and so are those that are like it
                yield from (uid for uid in waiting if not is_best_effort(state.shapes[state.pods[uid].shape]))

    def schedulable(self, members: Members) -> bool:
        """Whether the session could place what makes the job ready, or one more of a job that is. Nothing stays placed."""
        if not members.may_run():
            return False
        if members.job.group is None:
            return self._one(members, members.waiting[0]) if members.waiting else False
        if members.ready():
            return any(self._one(members, uid) for uid in members.waiting)
        return self._gang(members)

    def _one(self, members: Members, uid: PodUid) -> bool:
        """Asked once for pods that every rule treats alike."""
        session = self._session
        pod = session.state.pods[uid]
        if session.handing_over and session.offers and session.offers.hand_over(pod) is not None:
            return True
        if session.offers.awaited(pod):
            return False
        kind = (members.job.queue, session.kind(pod, session.concerned(pod)))
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = members.may_place(pod) and session.find(pod) is not None
        return known

    def _gang(self, members: Members) -> bool:
        session = self._session
        statement = Statement(session, members.job)
        placed: list[PodUid] = []
        for uid in members.waiting:
            if members.ready(placed):
                break
            pod = session.state.pods[uid]
            if not members.helps(uid, placed):
                continue
            if session.handing_over and session.offers and statement.hand_over(pod):
                placed.append(uid)
            elif members.may_place(pod) and (fit := session.find(pod)) is not None:
                statement.place(pod, fit)
                placed.append(uid)
        statement.discard()
        return members.ready(placed)
