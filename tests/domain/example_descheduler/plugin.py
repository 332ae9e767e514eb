"""LeaveMarkedNodes: pods leave nodes that somebody has marked, for nodes that nobody has."""

from restow.domain.descheduling.subjects import Subjects, evict_until_full


def run(handle, args):
    about, nodes = Subjects.of(handle, args), handle.state.nodes
    marked = [node for node in handle.nodes if args.node_label in nodes[node].labels]
    others = [node for node in handle.nodes if node not in marked]
    for node in marked:
        evict_until_full(handle, node, ((pod, "its node is marked") for pod in about.on(node)), lambda pod: others)
    about.tell()
