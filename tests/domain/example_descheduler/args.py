"""The arguments: what marks a node."""

from restow.domain.descheduling.subjects import PodArgs


class Args(PodArgs, frozen=True):
    """Pods leave nodes that have the label `nodeLabel`."""

    node_label: str = "example.com/leave"

    def check(self) -> str:
        return super().check() if self.node_label else "nodeLabel: nothing; allowed: the key of a label"
