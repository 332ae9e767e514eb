"""kube-scheduler's filters, one after another: `(world, pod, node) -> reasons`, empty where the node will do.

Order as in the session's design: a node counts for its first failing rule; capacity counts each lacking resource, and
volumes each of the binder's reasons. `FILTERS` is the order.
"""

from collections import Counter
from collections.abc import Callable

from oracle.matching import node_terms, pod_term, selects, tolerated, untolerated, with_own_labels
from oracle.numa import numa
from oracle.volumes import volumes
from oracle.world import GPU, World
from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, DeviceShare, LabelSelector, PodShape, Spread, Taint

Filter = Callable[[World, e.PodObserved, e.NodeObserved], list[str]]

OTHER_NODE = "node(s) didn't match the requested node name"
NOT_READY = "node(s) were not ready"
UNSCHEDULABLE = "node(s) were unschedulable"
SELECTOR = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = SPREAD + " (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


# -- the node itself -------------------------------------------------------------------------------------------------


def pinned(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """A DaemonSet's pod is for one node; every other counts here, whatever else it lacks."""
    return [OTHER_NODE] if pod.pinned_node and pod.pinned_node != node.name else []


def ready(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    taint = Taint("node.kubernetes.io/not-ready", "NoSchedule")
    return [] if node.ready or tolerated(world.shape(pod).tolerations, taint) else [NOT_READY]


def schedulable(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    taint = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
    return [UNSCHEDULABLE] if node.unschedulable and not tolerated(world.shape(pod).tolerations, taint) else []


def taints(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    taint = untolerated(world.shape(pod).tolerations, node.taints)
    return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"] if taint else []


def wanted_by_selector(shape: PodShape, node: e.NodeObserved) -> bool:
    if any(node.labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    return node_terms(shape.node_affinity, node)


def selector(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    return [] if wanted_by_selector(world.shape(pod), node) else [SELECTOR]


OF_NODES = (pinned, ready, schedulable, taints, selector)


# -- ports and capacity --------------------------------------------------------------------------------------------------


def ports(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Two ports meet if number and protocol are equal and the addresses are, or either is every address."""
    for want in world.shape(pod).host_ports:
        for other in world.on(node.name):
            for taken in world.shape(other).host_ports:
                ips = {want.ip or "0.0.0.0", taken.ip or "0.0.0.0"}
                same = (want.port, want.protocol or "TCP") == (taken.port, taken.protocol or "TCP")
                if want.port > 0 and same and (len(ips) == 1 or "0.0.0.0" in ips):
                    return [PORTS]
    return []


def pick_devices(free: list[int], ask: DeviceRequest) -> tuple[DeviceShare, ...] | None:
    """The fullest devices that still have the share, the lower index among equals; None where there are too few."""
    able = sorted((share, index) for index, share in enumerate(free) if share >= ask.milli)
    if len(able) < ask.count:
        return None
    return tuple(DeviceShare(index, ask.milli) for index in sorted(index for _, index in able[: ask.count]))


def capacity(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Every resource that is lacking; what is not asked for may be overallocated."""
    shape, short = world.shape(pod), []
    for resource, amount in shape.requests.items():
        if amount > 0 and resource != GPU and world.free(node.name, resource) < amount:
            short.append("Too many pods" if resource == "pods" else f"Insufficient {resource}")
    if shape.devices and pick_devices(world.device_free(node.name), shape.devices) is None:
        short.append("Insufficient gpu")
    return short


# -- spread ----------------------------------------------------------------------------------------------------------


def counted_by(world: World, pod: e.PodObserved, constraint: Spread, hard: list[Spread], node: e.NodeObserved) -> bool:
    """Whether the node is part of the constraint's domains: it has the key of every hard constraint, and the policies
    let it in."""
    shape = world.shape(pod)
    if any(other.topology_key not in node.labels for other in hard):
        return False
    # A DaemonSet's controller pins by node affinity.
    elsewhere = bool(pod.pinned_node) and pod.pinned_node != node.name
    if constraint.node_affinity_policy == "Honor" and (elsewhere or not wanted_by_selector(shape, node)):
        return False
    return constraint.node_taints_policy != "Honor" or untolerated(shape.tolerations, node.taints) is None


def spread(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Pods that match in the node's domain, and this one, may not be more than maxSkew above the emptiest domain."""
    hard = [c for c in world.shape(pod).spread if c.when_unsatisfiable == "DoNotSchedule"]
    for constraint in hard:
        if constraint.topology_key not in node.labels:
            return [SPREAD_LABEL]
        wanted = with_own_labels(constraint.selector, pod.labels, constraint.match_label_keys)
        domains: dict[str, int] = {}
        for other in world.nodes.values():
            if counted_by(world, pod, constraint, hard, other):
                domains.setdefault(other.labels[constraint.topology_key], 0)
                for neighbour in world.on(other.name) if wanted != LabelSelector() else ():
                    if neighbour.namespace == pod.namespace and not neighbour.deleting and selects(wanted, neighbour.labels):
                        domains[other.labels[constraint.topology_key]] += 1
        least = min(domains.values(), default=0)
        if len(domains) < max(constraint.min_domains, 1):
            least = 0
        here = domains.get(node.labels[constraint.topology_key], 0)
        if here + selects(wanted, pod.labels) - least > constraint.max_skew:
            return [SPREAD]
    return []


# -- inter-pod affinity ----------------------------------------------------------------------------------------------


def affinity(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Required terms: all of the pod's affinity, none of its anti-affinity, none of the anti-affinity of pods that run."""
    shape = world.shape(pod)
    if not satisfies_affinity(world, pod, node):
        return [AFFINITY]
    for term in shape.pod_anti_affinity:
        key = term.topology_key
        for other, home in world.running():
            together = key in node.labels and node.labels[key] == home.labels.get(key)
            if term.weight == 0 and together and pod_term(world, term, pod, other):
                return [ANTI_AFFINITY]
    for other, home in world.running():
        for term in world.shape(other).pod_anti_affinity:
            key = term.topology_key
            together = key in node.labels and node.labels[key] == home.labels.get(key)
            if term.weight == 0 and together and pod_term(world, term, other, pod):
                return [EXISTING_ANTI_AFFINITY]
    return []


def satisfies_affinity(world: World, pod: e.PodObserved, node: e.NodeObserved) -> bool:
    """Only pods that match *all* terms count. The first pod of a series, which nobody matches anywhere and which matches
    itself, may go wherever the keys are."""
    terms = [term for term in world.shape(pod).pod_affinity if term.weight == 0]
    if not terms:
        return True
    found: Counter[tuple[str, str]] = Counter()
    for other, home in world.running():
        if all(pod_term(world, term, pod, other) for term in terms):
            found.update((t.topology_key, home.labels[t.topology_key]) for t in terms if t.topology_key in home.labels)
    if any(term.topology_key not in node.labels for term in terms):
        return False
    if all(found[term.topology_key, node.labels[term.topology_key]] for term in terms):
        return True
    return not found and all(pod_term(world, term, pod, pod) for term in terms)


FILTERS: tuple[Filter, ...] = (pinned, ready, schedulable, taints, selector, ports, capacity, numa, volumes, spread, affinity)


def why_not(world: World, pod: e.PodObserved, node: e.NodeObserved, filters: tuple[Filter, ...] = FILTERS) -> list[str]:
    """The reasons of the first rule that refuses the node."""
    for rule in filters:
        reasons = rule(world, pod, node)
        if reasons:
            return reasons
    return []


def reason_counts(world: World, pod: e.PodObserved, filters: tuple[Filter, ...] = FILTERS) -> dict[str, int]:
    """How many nodes each reason stands for, as the world is now."""
    counts: Counter[str] = Counter()
    for node in world.nodes.values():
        counts.update(why_not(world, pod, node, filters))
    return dict(counts)
