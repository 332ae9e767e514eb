"""Who runs where, as one session sees it: the index that rules and preferences about other pods ask."""

from collections.abc import Callable

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.domain.groups import Group, group_of
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology
from restow.domain.topology.topology import Failing

_Key = tuple[Group | None, str, frozenset[tuple[str, str]]]
"""A group, a namespace and labels."""


class OtherPods:
    """`subject` is made once a pod."""

    def __init__(self, state: ClusterState) -> None:
        self.topology = Topology.of(state)
        self._pods = state.pods
        self._subjects: dict[PodUid, Subject] = {}
        self.nominees: dict[PodUid, tuple[PodObserved, int]] = {}
        """Who waits for victims to go, and the row where rules see it. It may never come."""
        self._alike: dict[_Key, dict[PodUid, None]] = {}
        """The same pods by what makes others rely on them, or on none of them."""

    def subject(self, pod: PodObserved) -> Subject:
        known = self._subjects.get(pod.pod)
        if known is None:
            # A DaemonSet's node is a part of its pods' node affinity; where a slot is held is not, and all domains count.
            pinned = pod.pinned_node if pod.pod in self._pods else NodeName("")
            known = self._subjects[pod.pod] = Subject(pod.namespace, pod.labels, pod.shape, pinned)
        return known

    def asked(self, ask: Callable[[Subject], Failing], pod: PodObserved) -> Failing:
        """What a rule removes: as if all nominees were there, and, since nobody may rely on one, as if others were not, as kube-scheduler
        filters. Those of its own gang come with it or not at all."""
        subject = self.subject(pod)
        found = ask(subject)
        if away := self._leant_on(pod, subject):
            for who, _ in away:
                self.topology.remove(who.pod)
            found = [*found, *ask(subject)]
            for who, row in away:
                self.topology.add(who.pod, row, self.subject(who))
        return found

    def nominate(self, pod: PodObserved, row: int) -> None:
        self.nominees[pod.pod] = pod, row
        self._alike.setdefault(self._key(pod), {})[pod.pod] = None

    def forget(self, pod: PodObserved) -> None:
        """It is no nominee (any more)."""
        if self.nominees.pop(pod.pod, None) is None:
            return
        key = self._key(pod)
        del self._alike[key][pod.pod]
        if not self._alike[key]:
            del self._alike[key]

    def _key(self, pod: PodObserved) -> _Key:
        return group_of(pod), pod.namespace, frozenset(pod.labels.items())

    def mates(self, pod: PodObserved) -> dict[PodUid, None]:
        """Nominees of its own gang: they come with it, or it does not come either."""
        group = group_of(pod) if self.nominees else None
        if group is None:
            return {}
        return {uid: None for key, pods in self._alike.items() if key[0] == group for uid in pods if uid != pod.pod}

    def _leant_on(self, pod: PodObserved, subject: Subject) -> list[tuple[PodObserved, int]]:
        """Asked once for those of one gang that have the same labels: there may be many."""
        if not self.nominees or not self.topology.leans(subject):
            return []
        group, found = group_of(pod), list[PodUid]()
        for key, pods in self._alike.items():
            if (group is None or key[0] != group) and self.topology.leans_on(subject, self.subject(self.nominees[next(iter(pods))][0])):
                found += (uid for uid in pods if uid != pod.pod)
        return [self.nominees[uid] for uid in found]
