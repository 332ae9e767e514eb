"""What a pod's status says beyond its phase: container states and conditions. Pods of which nothing is known have none.

What is stored of a pod is all that it says. Where nothing is stored, it says what `PodChanged` has room for (`said_plainly`): what
every pod says while it starts, is not ready, or has succeeded.
"""

from collections.abc import Iterator

from restow.contracts.events import PodChanged
from restow.contracts.ids import PodUid
from restow.contracts.values import ContainerTrouble, PodCondition
from restow.domain.state import ClusterState

INIT, EPHEMERAL = "init", "ephemeral"
NOT_READY, NOT_INITIALIZED, COMPLETED = "ContainersNotReady", "ContainersNotInitialized", "PodCompleted"
SUCCEEDED = "Succeeded"
ENDED_WELL = ContainerTrouble("", terminated="Completed", exit_code=0)

Said = tuple[tuple[ContainerTrouble, ...], tuple[PodCondition, ...]]
"""Containers and conditions, as `PodTroubled` has them."""


def said(state: ClusterState, uid: PodUid) -> Said:
    kept = state.troubles.get(uid)
    return said_plainly(state.live[uid]) if kept is None else (kept.containers, kept.conditions)


def said_plainly(live: PodChanged) -> Said:
    """What the moving part says. One container stands for all that wait, or have ended, in the same way; its name is not known."""
    over = live.phase == SUCCEEDED
    containers = (ContainerTrouble("", waiting=live.waiting),) if live.waiting else ()
    conditions = []
    if live.initialized:
        conditions.append(_initialized(live, over))
    if live.unready:
        containers = (ENDED_WELL,) if over else containers
        reason = COMPLETED if over else NOT_READY
        conditions += [PodCondition(type, "False", reason, live.unready) for type in ("Ready", "ContainersReady")]
    if live.sandboxless:
        conditions.append(PodCondition("PodReadyToStartContainers", "False", "", live.sandboxless))
    return containers, tuple(conditions)


def _initialized(live: PodChanged, over: bool) -> PodCondition:
    return PodCondition("Initialized", "True" if over else "False", COMPLETED if over else NOT_INITIALIZED, live.initialized)


def containers(state: ClusterState, uid: PodUid, init: bool = False, ephemeral: bool = False) -> Iterator[ContainerTrouble]:
    """The ordinary ones, and init and ephemeral ones where asked for."""
    for one in said(state, uid)[0]:
        if not one.kind or (one.kind == INIT and init) or (one.kind == EPHEMERAL and ephemeral):
            yield one


WELL = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
"""Of a pod that is ready they are true, and no facts."""


def conditions(state: ClusterState, uid: PodUid) -> tuple[PodCondition, ...]:
    """Those that a ready pod must have are there, too; since when is not known of them."""
    known = said(state, uid)[1]
    if not state.live[uid].ready:
        return known
    types = {condition.type for condition in known}
    return (*known, *(PodCondition(type, "True") for type in WELL if type not in types))


def restarts(state: ClusterState, uid: PodUid) -> int:
    """Of all its containers. A pod that was restarted does not fare plainly, so what it says is stored."""
    kept = state.troubles.get(uid)
    return 0 if kept is None else sum(one.restarts for one in kept.containers)


def reasons(one: ContainerTrouble) -> tuple[str, ...]:
    """Why it waits, and how it ended."""
    return tuple(reason for reason in (one.waiting, one.terminated) if reason)
