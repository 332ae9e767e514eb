"""What is held for the successor of a moved pod is of no use where another pod comes so that rules about other pods keep the
successor out: its pod has gone, or is about to, and would wait for nothing. So from the eviction on, and until the successor is there, such
pods are kept off (RULES G-8). Before that nobody is: a move that would not end well does not evict (`migration.other_pods`)."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import group_of
from restow.domain.occupants import Who, held_as_pod
from restow.domain.records import Step
from restow.domain.session.framework import Filter
from restow.domain.session.jobs import gang
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.session import Session
from restow.domain.slots import SlotKey
from restow.domain.state import is_sociable
from restow.domain.topology import awaited
from restow.domain.topology.asker import Asker
from restow.domain.topology.label_classes import Matching

KEPT = "node(s) were kept from such pods for the successor of an evicted pod"
SENT = frozenset({Step.EVICTING, Step.ABORTING, Step.EVICTED})
"""An eviction may have been sent."""


class _Awaited(NamedTuple):
    """`victim`: whose successor is to come to the slot."""

    key: SlotKey
    victim: PodUid
    asker: Asker
    counts: tuple[Matching, ...]


class KeptForSuccessors(Filter):
    stage, of_pods, for_others = "spread", True, True
    shrinks = False
    """A successor that takes its slot lets others come."""

    def __init__(self, session: Session, others: OtherPods, of_spread: bool, of_affinity: bool) -> None:
        self._session, self._state = session, session.state
        self._others, self._topology = others, others.topology
        self._awaited = [] if self._topology.idle else list(self._find(of_spread, of_affinity))
        self._counts = {count for one in self._awaited for count in one.counts}
        self._leaving = [self._state.migrations[id].move.pod for id in self._state.active if self._state.migrations[id].step in SENT]
        self._overlooked: dict[PodUid, None] = {}
        """Pods that are there, and that the session looks away from, or has chosen as victims."""
        self._found: dict[Hashable, list[tuple[str, np.ndarray]]] = {}
        """What was answered, by what the pod has in common with those of whom the same is said: as long as nobody comes or goes."""
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
        matched = self._topology.label_class(self._others.subject(pod)).matched
        if self._counts.isdisjoint(matched):
            return []
        own = self._session.offers.holds_left(pod) if pod.pod in self._state.pods else []
        about = [(one, tuple(count for count in one.counts if count in matched)) for one in self._awaited if one.key[0] not in own]
        return [(one, counts) for one, counts in about if counts]

    def concerns(self, pod: PodObserved) -> bool:
        return bool(self._about(pod))

    def key(self, pod: PodObserved) -> Hashable:
        key = tuple((one.key, *[count.serial for count in counts]) for one, counts in self._about(pod))
        return (key, group_of(pod)) if self._others.nominees else key

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, np.ndarray]]:
        about = self._about(pod)
        mates = self._mates(pod)
        uncertain = dict.fromkeys((*self._leaving, *(uid for uid in self._others.nominees if uid not in mates)))
        said = pod.pod if pod.pod in uncertain else "", *mates, *((one.key, counts) for one, counts in about)
        known = self._found.get(said)
        if known is None:
            uncertain.pop(pod.pod, None)
            known = self._found[said] = [(KEPT, rows) for rows in self._closed(about, uncertain)]
        return known

    def _mates(self, pod: PodObserved) -> Collection[PodUid]:
        """Nominees that come with it, or it does not come either: those of its gang, as long as that is not complete."""
        group = group_of(pod) if self._others.nominees else None
        incomplete = group in self._state.pod_groups and gang(self._state, group).short() if group is not None else False
        return self._others.mates(pod) if incomplete else ()

    def _closed(self, about: list[tuple[_Awaited, tuple[Matching, ...]]], uncertain: Iterable[PodUid]) -> Iterator[np.ndarray]:
        """`(nodes,) bool`. `uncertain`: who is there, and may not be when the successors come."""
        topology, found = self._topology, set[Hashable]()
        leaving = {uid: who for uid in uncertain if (who := topology.occupant(uid)) is not None}
        overlooked = {uid: who for uid in self._overlooked if (who := topology.by_the_state(uid)) is not None}
        for one, counts in about:
            held, victim = topology.occupant(one.key), topology.occupant(one.victim)
            if held is None:
                # It is handed over, or set aside.
                continue
            # Many are moved alike: from the same domains into the same.
            equivalence_class = (id(one.asker), counts, awaited.like(one.asker, held), victim and awaited.like(one.asker, victim), one.victim if one.victim in overlooked else "")
            if equivalence_class not in found:
                found.add(equivalence_class)
                away = [who for uid, who in overlooked.items() if uid != one.victim]
                going = [who for uid, who in leaving.items() if uid != one.victim]
                around = awaited.Around([held] if victim is None else [held, victim], away, going + away)
                yield from awaited.closed(one.asker, around, counts)

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        self._found.clear()

    def removed(self, pod: PodObserved, row: int) -> None:
        self._found.clear()

    def vacated(self, who: Who) -> None:
        self._found.clear()
        if isinstance(who, str):
            self._overlooked[who] = None

    def restored(self, who: Who) -> None:
        self._found.clear()
        if isinstance(who, str):
            self._overlooked.pop(who, None)
