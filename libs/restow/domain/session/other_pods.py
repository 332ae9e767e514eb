"""Who runs where, as one session sees it: the index that rules and preferences about other pods ask."""

from collections.abc import Callable

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.domain.groups import group_of
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology
from restow.domain.topology.topology import Failing


class OtherPods:
    """`subject` is made once a pod."""

    def __init__(self, state: ClusterState) -> None:
        self.topology = Topology.of(state)
        self._pods = state.pods
        self._subjects: dict[PodUid, Subject] = {}
        self.nominees: dict[PodUid, tuple[PodObserved, int]] = {}
        """Who waits for victims to go, and the row where rules see it. It may never come."""

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

    def mates(self, pod: PodObserved) -> list[PodUid]:
        """Nominees of its own gang: they come with it, or it does not come either."""
        group = group_of(pod) if self.nominees else None
        return [] if group is None else [who.pod for who, _ in self.nominees.values() if who.pod != pod.pod and group_of(who) == group]

    def _leant_on(self, pod: PodObserved, subject: Subject) -> list[tuple[PodObserved, int]]:
        mates = self.mates(pod)
        return [
            (who, row)
            for who, row in self.nominees.values()
            if who.pod != pod.pod and who.pod not in mates and self.topology.leans_on(subject, self.subject(who))
        ]
