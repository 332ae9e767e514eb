"""Classes of Reservations by what their owners must have, so that a pod meets only those that it may own, however many others
there are."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from restow.contracts.events import PodObserved
from restow.contracts.values import OwnerRule
from restow.domain.records import Reservation
from restow.domain.state import ClusterState

What = tuple[str, ...]
"""Labels' keys, in order, or one of the following."""
Key = tuple[str, What, tuple[str, ...]]
"""Namespace of the Reservation (empty for all), what of a pod is asked for, and the answers that make it an owner."""

ANY: What = ("",)
UID: What = ("uid of",)
NAME: What = ("name of",)
"""Of the pod itself, or of what controls it. No label's key has a blank."""

K = TypeVar("K")


class ByOwner(Generic[K]):
    """All labels of a selector are one key: most apps share some of them with others. What is asked for of pods is kept by its
    first label, so that questions which a pod cannot answer cost it nothing."""

    def __init__(self) -> None:
        self._by_key: dict[Key, list[K]] = {}
        self._asked: dict[str, dict[What, int]] = {}

    def add(self, record: Reservation, owned: K) -> None:
        for key in _keys(record):
            self._by_key.setdefault(key, []).append(owned)
            asked = self._asked.setdefault(key[1][0], {})
            asked[key[1]] = asked.get(key[1], 0) + 1

    def remove(self, record: Reservation, owned: K) -> None:
        for key in _keys(record):
            self._by_key[key].remove(owned)
            if not self._by_key[key]:
                del self._by_key[key]
            what = key[1]
            asked = self._asked[what[0]]
            asked[what] -= 1
            if not asked[what]:
                del asked[what]
                if not asked:
                    del self._asked[what[0]]

    def find(self, state: ClusterState, pod: PodObserved) -> list[K]:
        """Those that the pod may own: it has one thing, or all labels, that each of their rules asks for. Some come twice."""
        if not self._by_key:
            return []
        found: list[K] = []
        for what, said in self._answers(state, pod):
            for namespace in (pod.namespace, ""):
                if (some := self._by_key.get((namespace, what, said))) is not None:
                    found += some
        return found

    def _answers(self, state: ClusterState, pod: PodObserved) -> Iterator[tuple[What, tuple[str, ...]]]:
        asked, labels = self._asked, pod.labels
        for label, value in labels.items():
            for what in asked.get(label, ()):
                if len(what) == 1:
                    yield what, (value,)
                elif None not in (said := tuple([labels.get(key) for key in what])):
                    yield what, said  # type: ignore[misc]
        by_uid, by_name = UID[0] in asked, NAME[0] in asked
        if by_uid:
            yield UID, (pod.pod,)
        if by_name:
            yield NAME, (pod.name,)
        if pod.owner is not None and (by_uid or by_name):
            above = state.above(pod.owner)
            for owner in (pod.owner,) if above is None else (pod.owner, above):
                yield UID, (owner.uid,)
                yield NAME, (owner.name,)
        if ANY[0] in asked:
            yield ANY, ()


def _keys(record: Reservation) -> Iterator[Key]:
    assert record.spec is not None, "an accepted Reservation"
    yield from dict.fromkeys((record.fact.namespace, *_needed(rule)) for rule in record.spec.owners)


def _needed(rule: OwnerRule) -> tuple[What, tuple[str, ...]]:
    """What every owner by this rule has, the most telling one."""
    for ref in (rule.controller, rule.object):
        if ref is not None and ref.uid:
            return UID, (ref.uid,)
    for ref in (rule.controller, rule.object):
        if ref is not None and ref.name:
            return NAME, (ref.name,)
    if rule.selector is not None and rule.selector.labels:
        labels = sorted(rule.selector.labels.items())
        return tuple(key for key, _ in labels), tuple(value for _, value in labels)
    return ANY, ()
