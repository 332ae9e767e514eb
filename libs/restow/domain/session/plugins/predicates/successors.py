"""What is held for the successor of a moved pod is of no use where another pod comes so that rules about other pods keep the
successor out: its pod has gone, or is about to, and would wait for nothing. So from the eviction on, and until the successor is there, such
pods are kept off (RULES G-8). Before that nobody is: a move that would not end well does not evict (`migration.other_pods`)."""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.occupants import Who, held_as_pod
from restow.domain.records import Step
from restow.domain.session.framework import Filter
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.session import Session
from restow.domain.slots import SlotKey
from restow.domain.state import is_sociable
from restow.domain.topology import awaited
from restow.domain.topology.asker import Asker
from restow.domain.topology.kinds import Matching

KEPT = "node(s) were kept from such pods for the successor of an evicted pod"
SENT = frozenset({Step.EVICTING, Step.ABORTING, Step.EVICTED})
"""An eviction may have been sent."""


class _Awaited(NamedTuple):
    """`victim`: whose successor is to come to the place."""

    key: SlotKey
    victim: PodUid
    asker: Asker
    counts: tuple[Matching, ...]


class KeptForSuccessors(Filter):
    stage, of_pods, for_others = "spread", True, True
    shrinks = False
    """A successor that takes its place lets others come."""

    def __init__(self, session: Session, others: OtherPods, of_spread: bool, of_affinity: bool) -> None:
        self._session, self._state = session, session.state
        self._others, self._topology = others, others.topology
        self._awaited = [] if self._topology.idle else list(self._find(of_spread, of_affinity))
        self._counts = {count for one in self._awaited for count in one.counts}
        self._leaving = [self._state.migrations[id].move.pod for id in self._state.active if self._state.migrations[id].step in SENT]
        self._overlooked: dict[PodUid, None] = {}
        """Pods that are there, and that the session looks away from, or has chosen as victims."""
        self.active = bool(self._counts)

    def _find(self, of_spread: bool, of_affinity: bool) -> Iterator[_Awaited]:
        state = self._state
        for migration in map(state.migrations.__getitem__, state.active):
            if migration.step not in SENT or migration.successor or not migration.reservation:
                continue
            for name in state.slots.get(migration.reservation, {}):
                key = migration.reservation, name
                pod = held_as_pod(state, key)
                if pod is not None and key not in state.to_release and is_sociable(state.shapes[pod.shape]):
                    asker = self._topology.asks(self._others.subject(pod))
                    yield _Awaited(key, migration.move.pod, asker, tuple(awaited.counts(asker, of_spread, of_affinity)))

    def _about(self, pod: PodObserved) -> list[tuple[_Awaited, tuple[Matching, ...]]]:
        """By whom the pod could be kept off, and for which rules. Whose hold is left to it comes in its place."""
        matched = self._topology.kind(self._others.subject(pod)).matched
        if self._counts.isdisjoint(matched):
            return []
        own = self._session.offers.left(pod) if pod.pod in self._state.pods else []
        about = [(one, tuple(count for count in one.counts if count in matched)) for one in self._awaited if one.key[0] not in own]
        return [(one, counts) for one, counts in about if counts]

    def concerns(self, pod: PodObserved) -> bool:
        return bool(self._about(pod))

    def key(self, pod: PodObserved) -> Hashable:
        return tuple((one.key, *[count.serial for count in counts]) for one, counts in self._about(pod))

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, np.ndarray]]:
        topology, found = self._topology, dict[Hashable, list[np.ndarray]]()
        about = self._about(pod)
        uncertain = dict.fromkeys(uid for uid in (*self._leaving, *self._others.nominees) if uid != pod.pod)
        leaving = {uid: who for uid in uncertain if (who := topology.occupant(uid)) is not None}
        overlooked = {uid: who for uid in self._overlooked if (who := topology.by_the_state(uid)) is not None}
        for one, counts in about:
            held, victim = topology.occupant(one.key), topology.occupant(one.victim)
            if held is None:
                # It is handed over, or set aside.
                continue
            # Many are moved alike: from the same domains into the same.
            kind = (id(one.asker), counts, awaited.like(one.asker, held), victim and awaited.like(one.asker, victim), one.victim if one.victim in overlooked else "")
            if kind not in found:
                away = [who for uid, who in overlooked.items() if uid != one.victim]
                going = [who for uid, who in leaving.items() if uid != one.victim]
                around = awaited.Around([held] if victim is None else [held, victim], away, going + away)
                found[kind] = list(awaited.closed(one.asker, around, counts))
        return [(KEPT, rows) for closed in found.values() for rows in closed]

    def vacated(self, who: Who) -> None:
        if isinstance(who, str):
            self._overlooked[who] = None

    def restored(self, who: Who) -> None:
        if isinstance(who, str):
            self._overlooked.pop(who, None)
