"""Volumes as kube-scheduler filters them: VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, in this order.

What is wrong with a claim itself (missing, lost, being deleted, not bound though it should be) counts for every node that
got as far as its volumes.
"""

from oracle.matching import node_term, node_terms
from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import ClaimChoice, Disk

DISK = "node(s) had no available disk"
ONE_POD = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
LIMIT = "node(s) exceed max volume count"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ZONE = "node(s) had no available volume zone"

NO_PROVISIONER = "kubernetes.io/no-provisioner"
BETA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_LABELS = (*BETA, *BETA.values())


def volumes(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    return (
        claims_in_order(world, pod)
        or disks(world, pod, node)
        or one_pod(world, pod)
        or limits(world, pod, node)
        or binding(world, pod, node)
        or zones(world, pod, node)
    )


def claims_of(world: World, pod: e.PodObserved) -> list[tuple[str, e.ClaimObserved]]:
    keys = [f"{pod.namespace}/{name}" for name in pod.claims]
    return [(key, world.claims[key]) for key in keys if key in world.claims]


def bound(claim: e.ClaimObserved) -> bool:
    return bool(claim.volume) and claim.bound


def delayed(world: World, claim: e.ClaimObserved) -> bool:
    known = world.storage_classes.get(claim.storage_class)
    return known is not None and known.binding == "WaitForFirstConsumer"


def claims_in_order(world: World, pod: e.PodObserved) -> list[str]:
    """What no node can mend. The first claim that is missing, lost or going; then any that should have been bound."""
    for name in pod.claims:
        claim = world.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return [f'persistentvolumeclaim "{name}" not found']
        if claim.phase == "Lost":
            return [f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"']
        if claim.deleting:
            return [f'persistentvolumeclaim "{name}" is being deleted']
    for _, claim in claims_of(world, pod):
        if not bound(claim) and (claim.volume or not delayed(world, claim)):
            return [IMMEDIATE]
    return []


def clash(mine: Disk, theirs: Disk) -> bool:
    """Readers may share a disk, but not an EBS volume."""
    if (mine.kind, mine.id) != (theirs.kind, theirs.id):
        return False
    return mine.kind == "awsElasticBlockStore" or not (mine.read_only and theirs.read_only)


def disks(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    for mine in world.shape(pod).disks:
        for other in world.on(node.name):
            if any(clash(mine, theirs) for theirs in world.shape(other).disks):
                return [DISK]
    return []


def one_pod(world: World, pod: e.PodObserved) -> list[str]:
    """A ReadWriteOncePod claim that any pod on any node uses is taken everywhere."""
    mine = {key for key, claim in claims_of(world, pod) if "ReadWriteOncePod" in claim.modes}
    for other, _ in world.running():
        if mine & {f"{other.namespace}/{name}" for name in other.claims}:
            return [ONE_POD]
    return []


def attached(world: World, pod: e.PodObserved) -> set[tuple[str, str]]:
    """The pod's CSI volumes as (driver, handle). A claim without a volume stands for one of its class's driver."""
    found = set()
    for key, claim in claims_of(world, pod):
        volume = world.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            if volume.driver:
                found.add((volume.driver, volume.handle))
        elif claim.storage_class in world.storage_classes:
            found.add((world.storage_classes[claim.storage_class].provisioner, key))
    return found


def limits(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Only drivers of which the pod brings a volume that is not there yet can be over their limit."""
    if node.name not in world.csi_nodes:
        return []
    there = set().union(*(attached(world, other) for other in world.on(node.name)))
    new = attached(world, pod) - there
    for driver, most in world.csi_nodes[node.name].limits.items():
        added = sum(d == driver for d, _ in new)
        if added and added + sum(d == driver for d, _ in there) > most:
            return [LIMIT]
    return []


def binding(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Bound volumes must reach the node; for unbound claims there must be volumes, or somebody who makes them here."""
    reasons = []
    for _, claim in claims_of(world, pod):
        if bound(claim):
            volume = world.volumes.get(claim.volume)
            if volume is None:
                reasons.append(NO_VOLUME)
                break
            if not node_terms(volume.affinity, node):
                reasons.append(NODE_CONFLICT)
                break
    if choose_volumes(world, pod, node) is None:
        reasons.append(BIND_CONFLICT)
    return reasons


def choose_volumes(world: World, pod: e.PodObserved, node: e.NodeObserved) -> tuple[ClaimChoice, ...] | None:
    """What the pod's unbound claims get on this node; None where one of them gets nothing. Smaller claims choose first
    (in the pod's order among equals); each takes the smallest volume that will do, the first name among equals."""
    waiting = [(key, claim) for key, claim in claims_of(world, pod) if not bound(claim) and delayed(world, claim)]
    waiting = [pair for i, pair in enumerate(waiting) if pair not in waiting[:i]]
    if any(claim.selected_node not in ("", node.name) for _, claim in waiting):
        return None
    choices, taken = [], set()
    for key, claim in sorted(waiting, key=lambda pair: pair[1].request):
        volume = "" if claim.selected_node else smallest_volume(world, key, claim, node, taken)
        if not volume and not provisioned_here(world, claim, node):
            return None
        taken.add(volume)
        choices.append(ClaimChoice(key, volume))
    return tuple(choices)


def smallest_volume(world: World, key: str, claim: e.ClaimObserved, node: e.NodeObserved, taken: set[str]) -> str:
    able = []
    for volume in world.volumes.values():
        mine = volume.claim == key and volume.claim_uid in ("", claim.uid)
        if volume.name in taken or (volume.claim and not mine) or volume.storage_class != claim.storage_class:
            continue
        if volume.capacity < claim.request or volume.block != claim.block or volume.deleting:
            continue
        if mine:
            return volume.name if node_terms(volume.affinity, node) else ""
        if volume.phase == "Available" and node_terms(volume.affinity, node) and set(claim.modes) <= set(volume.modes):
            able.append((volume.capacity, volume.name))
    return min(able)[1] if able else ""


def provisioned_here(world: World, claim: e.ClaimObserved, node: e.NodeObserved) -> bool:
    known = world.storage_classes.get(claim.storage_class)
    if known is None or known.provisioner in ("", NO_PROVISIONER):
        return False
    return not known.topologies or any(node_term(term, node) for term in known.topologies)


def zones(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    """Zone and region labels of bound volumes (`a__b` is a or b). A node without any such label is in every zone."""
    if not any(label in node.labels for label in ZONE_LABELS):
        return []
    for _, claim in claims_of(world, pod):
        volume = world.volumes.get(claim.volume) if claim.volume else None
        for key, value in volume.zones.items() if volume else ():
            here = node.labels.get(key, node.labels.get(BETA.get(key, key)))
            if here is None or here not in value.split("__"):
                return [ZONE]
    return []
