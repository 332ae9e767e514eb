"""LeaveMarkedNodes: pods leave nodes that somebody has marked, for nodes that nobody has."""

from restow.domain.descheduling.pods import PodArgs, Subjects, evict_until_full

NAME = "LeaveMarkedNodes"
POINTS = ("deschedule",)


class Args(PodArgs, frozen=True):
    """Pods leave nodes that have the label `nodeLabel`."""

    node_label: str = "example.com/leave"

    def check(self) -> str:
        return super().check() if self.node_label else "nodeLabel: nothing; allowed: the key of a label"


def run(handle, args):
    about, nodes = Subjects.from_args(handle, args), handle.state.nodes
    marked = [node for node in handle.nodes if args.node_label in nodes[node].labels]
    others = [node for node in handle.nodes if node not in marked]
    for node in marked:
        evict_until_full(handle, node, ((pod, "its node is marked") for pod in about.pods_on(node)), lambda pod: others)
    about.warn()
