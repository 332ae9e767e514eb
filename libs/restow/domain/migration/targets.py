"""Targets for a policy's plugins, hold first: by the scheduler's own rules, as if the pod were not there, and as if whoever was
promised a slot before had it already (`descheduling.framework.Port`)."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain import verdicts as rule
from restow.domain.autoscalers import may_go
from restow.domain.beside import another_scheduler
from restow.domain.defragmentation.simulation import Simulation, Spot, simulated
from restow.domain.disruption import Spare
from restow.domain.groups import GROUP_ANNOTATIONS, group_of
from restow.domain.held_by_claim import why_it_stays
from restow.domain.migration import holds
from restow.domain.movable import protected, unmovable
from restow.domain.network.reach import of_pod
from restow.domain.predicates import AND
from restow.domain.protection import is_revocable
from restow.domain.session.framework import Filter
from restow.domain.session.jobs import Job
from restow.domain.state import OVER, ClusterState

NO_SLOT = Spot(-1)
"""Of a pod that needs none."""


class Landings:
    """Of one plugin's run. The simulation is opened when the first slot is asked for; `close` gives everything back."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self._state, self._now = state, now
        self._stack = ExitStack()
        self._simulation: Simulation | None = None
        self._usable: np.ndarray | None = None
        self._spare: Spare | None = None
        self.spots: dict[PodUid, Spot] = {}

    def close(self) -> None:
        self._stack.close()
        self._simulation = None

    def lands_on(self, pod: PodUid) -> NodeName | None:
        spot = self.spots.get(pod, NO_SLOT)
        return None if spot is NO_SLOT else NodeName(self._state.table.names[spot.row])

    def unmovable(self, pod: PodUid) -> str:
        why = rule.stay(stays(self._state, pod) or self._unspared(pod))
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
            self.spots[pod] = NO_SLOT
            return ""
        return self.choose(pod, to)

    def choose(self, pod: PodUid, to: Sequence[NodeName] | None = None) -> str:
        """Its slot, whatever else is asked about it; or why there is none."""
        state = self._state
        simulation, among = self._open(), self._among(pod, to)
        spot = simulation.best(pod, among)
        if spot is None:
            return _nowhere(simulation, pod, among)
        self.spots[pod] = spot
        # Queues do not count it: a migration's hold is neutral to them (DESIGN 5).
        simulation.session.nodes.take(spot.row, state.vectors[state.pods[pod].fact.shape], spot.devices)
        simulation.enter(pod, spot)
        return ""

    def choose_all(self, gang: Job, pods: Sequence[PodUid], to: Sequence[NodeName] | None = None) -> tuple[PodUid, str] | None:
        """Slots for all of a gang that leave together, in one block where they are to be near to each other; or for whom there is none, and why."""
        simulation = self._open()
        session, chooser = simulation.session, simulation.session.extensions.blocks
        if chooser is not None:
            chooser.leave(pods)
        refused: tuple[PodUid, str] | None = pods[0], f"{rule.NO_TARGET}: no block of nodes may take it"
        for within in chooser.choices(gang, [simulation.twin(uid) for uid in pods]) if chooser is not None else (None,):
            session.within = within
            refused = next(((uid, why) for uid in pods if (why := self.choose(uid, to))), None)
            session.within = None
            if refused is None:
                return None
            for uid in pods:
                self._give_back(uid)
        return refused

    def _give_back(self, pod: PodUid) -> None:
        """Undo `choose`."""
        if (spot := self.spots.pop(pod, None)) is not None:
            simulation, state = self._open(), self._state
            simulation.leave(pod, spot.row)
            simulation.session.nodes.give(spot.row, state.vectors[state.pods[pod].fact.shape], spot.devices)

    def _open(self) -> Simulation:
        if self._simulation is None:
            state = self._state
            self._simulation = self._stack.enter_context(simulated(state, self._now, stand_in(state, self._now)))
        return self._simulation

    def _among(self, pod: PodUid, to: Sequence[NodeName] | None) -> "_Among":
        """Not its own node, none that would be lost before it is held, and none that is there at times only."""
        state, table = self._state, self._state.table
        if self._usable is None:
            self._usable = table.mask(name for name, node in state.nodes.items() if not (may_go(node) or is_revocable(node)) and holds.target_lost(state, name) is None)
        mask = self._usable.copy() if to is None else self._usable & table.mask(to)
        mask[table.rows[state.charges[pod].node]] = False
        return _Among(mask)


def _nowhere(simulation: Simulation, pod: PodUid, among: "_Among") -> str:
    _, reasons = simulation.reasons(pod)
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
    return state.pods[uid].fact.owner is not None and state.pods[uid].live.phase not in OVER


def stays(state: ClusterState, uid: PodUid, as_gang: bool = False) -> str:
    """The rule's name, or with its sentence. Who may go is the policy's business; this is about what a hold cannot promise."""
    pod, live = state.pods[uid].fact, state.pods[uid].live
    if pod.static:
        return rule.STATIC
    if pod.owner is not None and pod.owner.kind == "DaemonSet":
        return rule.DAEMON_SET
    if uid in state.victims or uid in state.successors:
        return rule.MIGRATING
    if not needs_hold(state, uid):
        return protected(state, uid) if live.phase not in OVER else ""
    shape = state.shapes[pod.shape]
    if live.node is None or uid not in state.charges:
        return rule.BINDING
    if state.owes(uid):
        return rule.USES_RESERVATION
    if pod.pinned_node:
        return rule.PINNED
    if why := another_scheduler(state, pod.shape):
        return why
    if shape.unreadable:
        return rule.UNSUPPORTED
    if shape.resource_claims and (why := why_it_stays(state, uid)):
        return why
    if state.left_alone and (state.lineage(pod), live.node) in state.left_alone:
        return rule.BOUNCED
    return unmovable(state, uid, as_gang)


def stand_in(state: ClusterState, now: Millis) -> Callable[[PodObserved], PodObserved]:
    """The successor as the scheduler will see its slot: made now, and nobody's, but near to its group where that is asked."""

    def twin(pod: PodObserved) -> PodObserved:
        group = group_of(pod) if of_pod(state, pod) is not None else None
        said = {} if group is None else {GROUP_ANNOTATIONS[0]: group[1]}
        return PodObserved(PodUid(f"move/{pod.pod}"), pod.namespace, pod.name, pod.shape, now, pod.labels, said, claims=pod.claims)

    return twin
