"""Who runs where, as one session sees it: the index that rules and preferences about other pods ask."""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.domain.groups import Group, group_of
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology
from restow.domain.topology.domains import Count, Counted, Domains, Eligible
from restow.domain.topology.label_classes import Matching
from restow.domain.topology.topology import Failing

_Party = Group | PodUid
"""Nominees that come together or not at all: those of a gang, or one pod alone."""


class OtherPods:
    """`subject` is made once a pod."""

    def __init__(self, state: ClusterState) -> None:
        self.topology = Topology.of(state)
        self._pods = state.pods
        self._subjects: dict[PodUid, Subject] = {}
        self.nominees: dict[PodUid, tuple[PodObserved, int]] = {}
        """Who waits for victims to go, and the row where rules see it. It may never come."""
        self._parties: dict[_Party, dict[PodUid, None]] = {}
        self._on: dict[int, dict[PodUid, None]] = {}
        """The same pods by row."""
        self._promised: dict[Matching, _Promised] = {}
        """Of what somebody relied on so far: how much of it is nominees."""

    def subject(self, pod: PodObserved) -> Subject:
        known = self._subjects.get(pod.pod)
        if known is None:
            # A DaemonSet's node is a part of its pods' node affinity; where a slot is held is not, and all domains count.
            pinned = pod.pinned_node if pod.pod in self._pods else NodeName("")
            known = self._subjects[pod.pod] = Subject(pod.namespace, pod.labels, pod.shape, pinned)
        return known

    # What a rule removes: as if all nominees were there, and, since nobody may rely on one, as if others were not, as kube-scheduler
    # filters. Those of its own gang come with it or not at all.

    def spread(self, pod: PodObserved) -> Failing:
        """Nodes that its DoNotSchedule constraints remove."""
        subject = self.subject(pod)
        found = self.topology.spread(subject)
        if self.nominees and self._relies(constraint.count for constraint in self.topology.asks(subject).hard):
            found = [*found, *self.topology.spread(subject, self._without_others(pod))]
        return found

    def affinity(self, pod: PodObserved) -> Failing:
        """Nodes that required terms remove, its own and those of occupants."""
        subject = self.subject(pod)
        found = self.topology.affinity(subject)
        if self.nominees and (near := self.topology.asks(subject).affinity) is not None and self._relies([near]):
            found = [*found, *self.topology.unmet(subject, self._without_others(pod))]
        return found

    def nominate(self, pod: PodObserved, row: int) -> None:
        self.nominees[pod.pod] = pod, row
        self._parties.setdefault(_party(pod), {})[pod.pod] = None
        self._on.setdefault(row, {})[pod.pod] = None
        self._promise(pod, row, 1)

    def forget(self, pod: PodObserved) -> None:
        """It is no nominee (any more)."""
        known = self.nominees.pop(pod.pod, None)
        if known is None:
            return
        pod, row = known
        for pods in (self._parties[_party(pod)], self._on[row]):
            del pods[pod.pod]
        self._promise(pod, row, -1)

    def mates(self, pod: PodObserved) -> dict[PodUid, None]:
        """Nominees of its own gang: they come with it, or it does not come either."""
        return {uid: None for uid in self._parties.get(_party(pod), ()) if uid != pod.pod}

    def _promise(self, pod: PodObserved, row: int, n: int) -> None:
        if self._promised:
            for count in self.topology.label_class(self.subject(pod)).matched:
                if (promised := self._promised.get(count)) is not None:
                    promised.change(_party(pod), row, n)

    def _of(self, count: Matching) -> "_Promised":
        """Rows that it does not count on need no look, once what was added and removed is counted."""
        promised = self._promised.get(count)
        if promised is None:
            promised = self._promised[count] = _Promised()
            for row in count.rows:
                for uid in self._on.get(row, ()):
                    pod = self.nominees[uid][0]
                    if count in self.topology.label_class(self.subject(pod)).matched:
                        promised.change(_party(pod), row, 1)
        return promised

    def _relies(self, counts: Iterable[Matching]) -> bool:
        """Whether any nominee is among these."""
        return any(self._of(count).all.rows for count in counts)

    def _without_others(self, pod: PodObserved) -> Counted:
        party = _party(pod)

        def counted(count: Count, domains: Domains, among: Eligible | None = None) -> np.ndarray:
            assert isinstance(count, Matching), "nobody relies on what others ask"
            found, promised = count.per_domain(domains, among), self._of(count)
            if promised.all.rows:
                found = found - promised.all.per_domain(domains, among)
                if (own := promised.by_party.get(party)) is not None:
                    found += own.per_domain(domains, among)
            return found

        return counted


class _Promised:
    """How many of those that one count is about are nominees, by row: of `all`, and by party."""

    def __init__(self) -> None:
        self.all = Count(0)
        self.by_party: dict[_Party, Count] = {}

    def change(self, party: _Party, row: int, n: int) -> None:
        self.all.change(row, n)
        own = self.by_party.setdefault(party, Count(0))
        own.change(row, n)
        if not own.rows:
            del self.by_party[party]


def _party(pod: PodObserved) -> _Party:
    return group_of(pod) or pod.pod
