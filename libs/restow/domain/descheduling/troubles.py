"""What a pod's status says beyond its phase: container states and conditions. Pods of which nothing is known have none."""

from collections.abc import Iterator

from restow.contracts.ids import PodUid
from restow.contracts.values import ContainerTrouble, PodCondition
from restow.domain.state import ClusterState

INIT, EPHEMERAL = "init", "ephemeral"


def containers(state: ClusterState, uid: PodUid, init: bool = False, ephemeral: bool = False) -> Iterator[ContainerTrouble]:
    """The ordinary ones, and init and ephemeral ones where asked for."""
    kept = state.troubles.get(uid)
    for one in () if kept is None else kept.containers:
        if not one.kind or (one.kind == INIT and init) or (one.kind == EPHEMERAL and ephemeral):
            yield one


WELL = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
"""Of a pod that is ready they are true, and no facts."""


def conditions(state: ClusterState, uid: PodUid) -> tuple[PodCondition, ...]:
    """Those that a ready pod must have are there, too; since when is not known of them."""
    kept = state.troubles.get(uid)
    said = () if kept is None else kept.conditions
    if not state.live[uid].ready:
        return said
    types = {condition.type for condition in said}
    return (*said, *(PodCondition(type, "True") for type in WELL if type not in types))


def reasons(one: ContainerTrouble) -> tuple[str, ...]:
    """Why it waits, and how it ended."""
    return tuple(reason for reason in (one.waiting, one.terminated) if reason)
