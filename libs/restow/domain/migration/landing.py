"""Landing places for a policy's plugins, hold first: by the scheduler's own rules, as if the pod were not there, and as if whoever was
promised a place before had it already (`descheduling.framework.Port`)."""

from collections.abc import Sequence

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.contracts.values import DeviceShare
from restow.domain import verdicts as rule
from restow.domain.migration import holds
from restow.domain.movable import protected, unmovable
from restow.domain.predicates import AND
from restow.domain.promises import promised
from restow.domain.session.fitting import Fit
from restow.domain.session.framework import Filter
from restow.domain.session.holds import overlooking
from restow.domain.session.registry import open_session
from restow.domain.session.session import Session
from restow.domain.spare import Spare
from restow.domain.state import OVER, ClusterState


class Spot:
    """A place that was promised; `node` is empty for a pod that needs none."""

    __slots__ = ("cores", "devices", "node")

    def __init__(self, node: NodeName, devices: tuple[DeviceShare, ...] = (), cores: tuple[int, ...] = ()) -> None:
        self.node, self.devices, self.cores = node, devices, cores


class Landings:
    """Of one plugin's run. The session is opened when the first place is asked for; `close` gives everything back."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self._session: Session | None = None
        self._usable: np.ndarray | None = None
        self._spare: Spare | None = None
        self.spots: dict[PodUid, Spot] = {}

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def lands_on(self, pod: PodUid) -> NodeName | None:
        spot = self.spots.get(pod)
        return spot.node if spot is not None and spot.node else None

    def unmovable(self, pod: PodUid) -> str:
        why = rule.stay(_unmovable(self._state, pod) or self._unspared(pod))
        return f"{why.id}: {why.sentence}" if why.id else ""

    def _unspared(self, pod: PodUid) -> str:
        if self._spare is None:
            self._spare = Spare.planning(self._state)
        return self._spare.why_not(pod)

    def promise(self, pod: PodUid, to: Sequence[NodeName] | None) -> str:
        state = self._state
        if why := self.unmovable(pod):
            return why
        if not needs_hold(state, pod):
            self.spots[pod] = Spot(NodeName(""))
            return ""
        session = self._open()
        place = twin(state, pod, self._now)
        among = self._among(pod, to)
        with overlooking(session, pod):
            row = session.best_row(place, [*session.concerned(place), among])
            if row is None:
                return self._nowhere(session, place, among)
            fit = session.fit_at(place, row)
        self.spots[pod] = Spot(NodeName(state.table.names[row]), fit.devices, fit.cores)
        _enter(session, place, Fit(row, fit.devices, (), fit.cores))
        return ""

    def _open(self) -> Session:
        if self._session is None:
            self._session = session_with_promises(self._state, self._now)
        return self._session

    def _among(self, pod: PodUid, to: Sequence[NodeName] | None) -> "_Among":
        """Not its own node, and none that would be lost before it is held."""
        state, table = self._state, self._state.table
        if self._usable is None:
            self._usable = table.mask(node for node in state.nodes if holds.target_lost(state, node) is None)
        mask = self._usable.copy() if to is None else self._usable & table.mask(to)
        mask[table.rows[state.charges[pod].node]] = False
        return _Among(mask)

    def _nowhere(self, session: Session, place: PodObserved, among: "_Among") -> str:
        _, reasons = session.reasons(place)
        counts = ", ".join(f"{count} {reason.replace(AND, ', ')}" for reason, count in sorted(reasons.items()))
        said = f"{rule.NO_TARGET}: none of the {int(among.mask.sum())} nodes that it may go to takes it"
        return said + (f" (of all nodes: {counts})" if counts else "")


class _Among(Filter):
    """A rule like the session's: only these rows `(nodes,) bool`."""

    stage = "landing"

    def __init__(self, mask: np.ndarray) -> None:
        self.mask = mask

    def concerns(self, pod: PodObserved) -> bool:
        return True

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, np.ndarray]]:
        return (("node(s) where nothing may land", ~self.mask),)

    def key(self, pod: PodObserved) -> int:
        return id(self.mask)


def needs_hold(state: ClusterState, uid: PodUid) -> bool:
    """Whether somebody will make it again elsewhere: it has not ended, and has a controller."""
    return state.pods[uid].owner is not None and state.live[uid].phase not in OVER


def _unmovable(state: ClusterState, uid: PodUid) -> str:
    """The rule's name, or with its sentence. Who may go is the policy's business; this is about what a hold cannot promise."""
    pod, live = state.pods[uid], state.live[uid]
    if pod.static:
        return rule.STATIC
    if pod.owner is not None and pod.owner.kind == "DaemonSet":
        return rule.DAEMON_SET
    if uid in state.victims or uid in state.successors:
        return rule.MIGRATING
    if not needs_hold(state, uid):
        return protected(pod) if live.phase not in OVER else ""
    shape = state.shapes[pod.shape]
    if live.node is None or uid not in state.charges:
        return rule.BINDING
    if state.owes(uid):
        return rule.DRAWS
    if pod.pinned_node:
        return rule.PINNED
    if shape.scheduler not in state.session_config.scheduler_names:
        return rule.SCHEDULER
    if shape.resource_claims:
        return rule.UNSUPPORTED
    if state.left_alone and (state.lineage(pod), live.node) in state.left_alone:
        return rule.CAME_BACK
    return unmovable(state, uid)


def twin(state: ClusterState, uid: PodUid, now: Millis) -> PodObserved:
    """The successor, as rules see it."""
    pod = state.pods[uid]
    return PodObserved(PodUid(f"move/{uid}"), pod.namespace, pod.name, pod.shape, now, pod.labels, claims=pod.claims)


def session_with_promises(state: ClusterState, now: Millis) -> Session:
    """Whoever was promised a place by earlier plans, and is not held there yet, is there for it: with room, devices, CPUs and rules."""
    session = open_session(state, now, 1)
    for one in promised(state):
        if one.pod in state.pods:
            _enter(session, twin(state, one.pod, now), Fit(one.row, one.devices, (), one.cores))
        else:
            session.nodes.take(one.row, one.vector, one.devices)
    return session


def _enter(session: Session, place: PodObserved, fit: Fit) -> None:
    """It is there from now on. Queues do not count it: a migration's hold is neutral to them (DESIGN 5)."""
    session.nodes.take(fit.row, session.state.vectors[place.shape], fit.devices)
    session.placements[place.pod] = fit
    for one in session.extensions.filters:
        one.placed(place, fit.row, fit.volumes)
