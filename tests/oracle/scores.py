"""Which of the nodes that will do is best: `(world, pod, node) -> int`, higher is better. Integers, as in the session."""

from collections.abc import Callable, Mapping

from oracle.matching import node_term, tolerated
from oracle.world import GPU, World
from restow.contracts import events as e

Score = Callable[[World, e.PodObserved, e.NodeObserved], int]

SCALE = 10_000
WEIGHTS = {"cpu": 1, "memory": 1, GPU: 2}


def free_share(
    world: World, pod: e.PodObserved, node: e.NodeObserved, weights: Mapping[str, int], packing: bool
) -> int:
    """The weighted mean of what would be free of each resource (or used, when packing), in ten-thousandths. Resources
    that the node does not have do not count, nor do devices for pods that want none."""
    shape = world.shape(pod)
    total = sum_of_weights = 0
    for resource, weight in weights.items():
        have = node.allocatable.get(resource, 0)
        if not have or (resource == GPU and not shape.devices):
            continue
        left = max(world.free(node.name, resource) - shape.requests.get(resource, 0), 0) * SCALE // have
        total += weight * (SCALE - left if packing else left)
        sum_of_weights += weight
    return total // max(sum_of_weights, 1)


def least_allocated(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
    return free_share(world, pod, node, WEIGHTS, packing=False)


def binpack(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
    return free_share(world, pod, node, WEIGHTS, packing=True)


def nodeorder(least: int, most: int, balanced: int) -> Score:
    """Plugin nodeorder's three scores by what is left: the mean share free (least), used (most), and full marks less half the
    distance between the emptiest and the fullest resource (balanced). Resources are cpu, memory and, for pods that want
    some, devices."""

    def score(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
        shape = world.shape(pod)
        left = []
        for resource in ("cpu", "memory", GPU):
            have = node.allocatable.get(resource, 0)
            if have and (resource != GPU or shape.devices):
                left.append(max(world.free(node.name, resource) - shape.requests.get(resource, 0), 0) * SCALE // have)
        if not left:
            return 0
        mean = sum(left) // len(left)
        return least * mean + most * (SCALE - mean) + balanced * (SCALE - (max(left) - min(left)) // 2)

    return score


def preferred(weight: int) -> Score:
    """Plugin nodeorder: the weights of the preferred terms that match, of all."""

    def score(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
        terms = [t for t in world.shape(pod).node_preferences if t.weight > 0]
        liked = sum(t.weight for t in terms if node_term(t.term, node))
        return liked * SCALE // sum(t.weight for t in terms) * weight if terms else 0

    return score


def untainted(weight: int) -> Score:
    """Plugin nodeorder: full marks without a soft taint that the pod does not tolerate, half with one, a third with two."""

    def score(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
        soft = [t for t in node.taints if t.effect == "PreferNoSchedule"]
        bad = sum(not tolerated(world.shape(pod).tolerations, t) for t in soft)
        return SCALE // (1 + bad) * weight

    return score


def best_fit(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
    """Plugin binpack as it is by default: the mean use of those of cpu and memory that the pod asks for, none where a
    resource would be overallocated. As in all scores it is what would be left that is rounded down."""
    shares = []
    for resource in ("cpu", "memory"):
        have, asked = node.allocatable.get(resource, 0), world.shape(pod).requests.get(resource, 0)
        if have and asked:
            used = world.used(node.name, resource) + asked
            shares.append(SCALE - (have - used) * SCALE // have if used <= have else 0)
    return sum(shares) // max(len(shares), 1)


def weighted(*parts: tuple[int, Score]) -> Score:
    """A sum of scores, each times its weight."""
    return lambda world, pod, node: sum(weight * score(world, pod, node) for weight, score in parts)
