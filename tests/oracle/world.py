"""A cluster as the oracle sees it: facts by name, and who is where. Nothing is derived and kept; every question is
answered by going through all pods again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, DeviceShare, PodShape

GPU = "restow.dev/gpu-milli"
FINISHED = ("Succeeded", "Failed")


@dataclass
class World:
    """`arrival` numbers pods (by uid) and groups (by `namespace/name`) as they came. `where[pod]` is the node whose capacity it takes; `shares[pod]` its devices there."""

    nodes: dict[str, e.NodeObserved] = field(default_factory=dict)
    shapes: dict[str, PodShape] = field(default_factory=dict)
    pods: dict[str, e.PodObserved] = field(default_factory=dict)
    arrival: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    shares: dict[str, tuple[DeviceShare, ...]] = field(default_factory=dict)
    groups: dict[str, e.PodGroupObserved] = field(default_factory=dict)
    queues: dict[str, e.QueueObserved] = field(default_factory=dict)
    priority_classes: dict[str, e.PriorityClassObserved] = field(default_factory=dict)
    namespaces: dict[str, e.NamespaceObserved] = field(default_factory=dict)
    claims: dict[str, e.ClaimObserved] = field(default_factory=dict)
    volumes: dict[str, e.VolumeObserved] = field(default_factory=dict)
    storage_classes: dict[str, e.StorageClassObserved] = field(default_factory=dict)
    csi_nodes: dict[str, e.CsiNodeObserved] = field(default_factory=dict)
    numa: dict[str, e.NumaObserved] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Iterable[e.Event]) -> "World":
        world = cls()
        for fact in facts:
            world.observe(fact)
        return world

    def observe(self, fact: e.Event) -> None:
        """What a watcher says. Facts that no rule of the oracle reads are passed over."""
        match fact:
            case e.NodeObserved():
                self.nodes[fact.name] = fact
            case e.NodeGone():
                self.nodes.pop(fact.name, None)
            case e.ShapeDeclared():
                self.shapes[fact.shape] = fact.spec
            case e.PodObserved():
                self.pods[fact.pod] = fact
                self.arrival.setdefault(fact.pod, len(self.arrival))
                self._settle(fact)
            case e.PodChanged() if fact.pod in self.pods:
                moving = {f: getattr(fact, f) for f in fact.__struct_fields__ if f != "pod"}
                self.pods[fact.pod] = msgspec.structs.replace(self.pods[fact.pod], **moving)
                self._settle(self.pods[fact.pod])
            case e.PodGone():
                for kept in (self.pods, self.where, self.shares):
                    kept.pop(fact.pod, None)
            case e.PodPlaced():
                self.place(fact.pod, fact.node, fact.devices, fact.volumes)
            case _:
                self._observe_object(fact)

    def _observe_object(self, fact: e.Event) -> None:
        match fact:
            case e.PodGroupObserved():
                self.groups[f"{fact.namespace}/{fact.name}"] = fact
                self.arrival.setdefault(f"{fact.namespace}/{fact.name}", len(self.arrival))
            case e.PodGroupGone():
                self.groups.pop(f"{fact.namespace}/{fact.name}", None)
            case e.QueueObserved():
                self.queues[fact.name] = fact
            case e.QueueGone():
                self.queues.pop(fact.name, None)
            case e.PriorityClassObserved():
                self.priority_classes[fact.name] = fact
            case e.PriorityClassGone():
                self.priority_classes.pop(fact.name, None)
            case e.NamespaceObserved():
                self.namespaces[fact.name] = fact
            case e.NamespaceGone():
                self.namespaces.pop(fact.name, None)
            case e.ClaimObserved():
                self.claims[f"{fact.namespace}/{fact.name}"] = fact
            case e.ClaimGone():
                self.claims.pop(f"{fact.namespace}/{fact.name}", None)
            case e.VolumeObserved():
                self.volumes[fact.name] = fact
            case e.VolumeGone():
                self.volumes.pop(fact.name, None)
            case e.StorageClassObserved():
                self.storage_classes[fact.name] = fact
            case e.StorageClassGone():
                self.storage_classes.pop(fact.name, None)
            case e.CsiNodeObserved():
                self.csi_nodes[fact.node] = fact
            case e.CsiNodeGone():
                self.csi_nodes.pop(fact.node, None)
            case e.NumaObserved():
                self.numa[fact.node] = fact
            case e.NumaGone():
                self.numa.pop(fact.node, None)

    def _settle(self, pod: e.PodObserved) -> None:
        """A finished pod uses nothing and matches nothing; a terminating one still does until it is gone."""
        if pod.node and pod.phase not in FINISHED:
            self.where[pod.pod] = pod.node
            self.shares[pod.pod] = pod.devices
        elif pod.node or pod.phase in FINISHED:
            self.where.pop(pod.pod, None)
            self.shares.pop(pod.pod, None)

    # -- questions ---------------------------------------------------------------------------------------------------

    def shape(self, pod: e.PodObserved) -> PodShape:
        return self.shapes[pod.shape]

    def running(self) -> list[tuple[e.PodObserved, e.NodeObserved]]:
        """Every pod that has a node which exists."""
        return [(self.pods[uid], self.nodes[name]) for uid, name in self.where.items() if name in self.nodes]

    def on(self, node: str) -> list[e.PodObserved]:
        return [pod for pod, home in self.running() if home.name == node]

    def used(self, node: str, resource: str) -> int:
        return sum(self.shape(pod).requests.get(resource, 0) for pod in self.on(node))

    def free(self, node: str, resource: str) -> int:
        return self.nodes[node].allocatable.get(resource, 0) - self.used(node, resource)

    def device_free(self, node: str) -> list[int]:
        """Thousandths that are free on each device."""
        free = [1000] * self.nodes[node].devices
        for pod in self.on(node):
            for share in self.shares.get(pod.pod, ()):
                if share.index < len(free):
                    free[share.index] -= share.milli
        return free

    # -- changes -----------------------------------------------------------------------------------------------------

    def place(
        self, pod: str, node: str, devices: tuple[DeviceShare, ...] = (), choices: tuple[ClaimChoice, ...] = ()
    ) -> None:
        """Put a pod on a node. Its unbound claims are promised to the chosen volumes, or to the node for provisioning."""
        self.where[pod] = node
        self.shares[pod] = devices
        for choice in choices:
            claim = self.claims[choice.claim]
            if choice.volume:
                volume = self.volumes[choice.volume]
                self.volumes[choice.volume] = msgspec.structs.replace(volume, claim=choice.claim, claim_uid=claim.uid)
            else:
                self.claims[choice.claim] = msgspec.structs.replace(claim, selected_node=node)

    def mark(self) -> tuple[dict, dict, dict, dict]:
        """All that `place` changes, to come back to."""
        return dict(self.where), dict(self.shares), dict(self.claims), dict(self.volumes)

    def back_to(self, mark: tuple[dict, dict, dict, dict]) -> None:
        self.where, self.shares, self.claims, self.volumes = (dict(kept) for kept in mark)
