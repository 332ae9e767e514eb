"""What a pod's status says beyond its phase: container states and conditions. Pods of which nothing is known have none.

What is stored of a pod is all that it says. Where nothing is stored, it says what `PodChanged` has capacity for (`said_plainly`): what
every pod says while it starts, is not ready, or has succeeded.
"""

from collections.abc import Iterator

from restow.contracts.events import WELL, PodChanged
from restow.contracts.ids import Millis, PodUid
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
    return said_plainly(state.pods[uid].live) if kept is None else (kept.containers, kept.conditions)


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
    """The ordinary ones, and init and ephemeral ones where asked for. Init containers that have done their work are no facts where the
    pod fares plainly: that it is past them says that they have."""
    for one in said(state, uid)[0]:
        if not one.kind or (one.kind == INIT and init) or (one.kind == EPHEMERAL and ephemeral):
            yield one
    if init and uid not in state.troubles and _past_init(state.pods[uid].live):
        for container in state.shapes[state.pods[uid].fact.shape].containers:
            if container.init:
                yield ContainerTrouble(container.name, INIT, terminated="Completed", exit_code=0)


def _past_init(live: PodChanged) -> bool:
    return live.phase in ("Running", SUCCEEDED) or bool(live.waiting and not live.initialized)


_READY = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
"""Of a pod that is ready they are true, whatever else is known."""


def conditions(state: ClusterState, uid: PodUid) -> tuple[PodCondition, ...]:
    """All of them, those that are as they should be, too. In old logs nobody said since when a ready pod has these."""
    known, live = said(state, uid)[1], state.pods[uid].live
    types = {condition.type for condition in known}
    created = state.pods[uid].fact.created
    if live.well:
        found = zip(WELL, live.well, strict=True)
        return (*known, *(PodCondition(type, "True", "", Millis(created + 1000 * since)) for type, since in found if since >= 0 and type not in types))
    return (*known, *(PodCondition(type, "True") for type in _READY if live.ready and type not in types))


def restarts(state: ClusterState, uid: PodUid) -> int:
    """Of all its containers. A pod that was restarted does not fare plainly, so what it says is stored."""
    kept = state.troubles.get(uid)
    return 0 if kept is None else sum(one.restarts for one in kept.containers)


def reasons(one: ContainerTrouble) -> tuple[str, ...]:
    """Why it waits, and how it ended."""
    return tuple(reason for reason in (one.waiting, one.terminated) if reason)
