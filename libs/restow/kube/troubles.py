"""Pod status → what is not as it is with a pod that runs well. Restarts, waiting and ended containers, and conditions.

Nothing comes of a pod that has no node: what its scheduler says of it is no trouble of the pod's own. An init container that has
done its work is none either. Much of it every pod says for a while: that it starts, is not ready, has succeeded. Such a status is
*plain*: the moving part of the pod (`PodChanged`) has capacity for it, and no fact of its own is needed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from restow.contracts import times
from restow.contracts import values as v
from restow.contracts.ids import Millis
from restow.domain.descheduling.pods import EVICT
from restow.domain.descheduling.troubles import COMPLETED, INIT, NOT_INITIALIZED, NOT_READY, SUCCEEDED, Said
from restow.kube import wire

_USUAL = frozenset({"PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that every pod has that runs well, with status True and no reason."""
_SUCCESS = ("", "Completed")
_STARTING = ("ContainerCreating", "PodInitializing")
_UNDER_WAY = ("Pending", "Running")
_NO_SPEC, _NO_STATUS = wire.PodSpec(), wire.PodStatus()

NONE: Said = ((), ())


class Plain(NamedTuple):
    """The fields of `PodChanged` of the same names."""

    unready: Millis = Millis(0)
    initialized: Millis = Millis(0)
    sandboxless: Millis = Millis(0)
    waiting: str = ""


NOTHING = Plain()


class Told(NamedTuple):
    """What is to be logged of a status. `plain` None: it is not plain, or nothing is said of it. `troubles` None: what was said last
    stands."""

    plain: Plain | None
    troubles: Said | None


_WELL = Told(NOTHING, NONE)
_ENDING = Told(None, None)


def tell(pod: wire.Pod) -> Told:
    """Nobody looks at how a pod ends that is being deleted: descheduling leaves it alone, unless its annotation says that it
    is to be evicted whatever else is said."""
    meta = pod.metadata
    if meta.deletion_timestamp is not None and EVICT not in (meta.annotations or ()):
        return _ENDING
    status = pod.status or _NO_STATUS
    said = troubles(pod.spec or _NO_SPEC, status)
    if said is NONE:
        return _WELL
    fields = plain(status.phase or "Pending", said)
    return Told(None, said) if fields is None else Told(fields, NONE)


def troubles(spec: wire.PodSpec, status: wire.PodStatus) -> Said:
    """All of it, plain or not. In the order in which the pod has them; containers, init containers, ephemeral ones."""
    if not spec.node_name:
        return NONE
    containers = tuple(_containers(status))
    conditions = tuple(
        v.PodCondition(c.type, c.status, c.reason, _millis(c)) for c in status.conditions or () if not _well(c)
    )
    if containers and all(c.kind == INIT and _done(c) for c in containers):
        containers = ()
    if not containers and not conditions:
        return NONE
    return containers, conditions


def plain(phase: str, said: Said) -> Plain | None:
    """The fields from which `descheduling.troubles.said_plainly` says the same again, but for init containers that have done
    their work; None where there are none."""
    containers, conditions = said
    since = {c.type: c.since for c in conditions}
    if len(since) < len(conditions) or not all(since.values()):
        return None
    over = phase == SUCCEEDED
    if not over and phase not in _UNDER_WAY:
        return None
    unready = since.get("Ready", Millis(0))
    if unready != since.get("ContainersReady", 0) or not all(_plain(c, over) for c in conditions):
        return None
    waiting = "" if over else _waiting(containers)
    if waiting is None or (over and _succeeded(containers) != (unready > 0)):
        return None
    return Plain(unready, since.get("Initialized", Millis(0)), since.get("PodReadyToStartContainers", Millis(0)), waiting)


def _plain(condition: v.PodCondition, over: bool) -> bool:
    match condition.type:
        case "Ready" | "ContainersReady":
            return condition.status == "False" and condition.reason == (COMPLETED if over else NOT_READY)
        case "Initialized":
            wanted = ("True", COMPLETED) if over else ("False", NOT_INITIALIZED)
            return (condition.status, condition.reason) == wanted
        case "PodReadyToStartContainers":
            return condition.status == "False" and not condition.reason
        case _:
            return False


def _waiting(containers: tuple[v.ContainerTrouble, ...]) -> str | None:
    """The one plain reason for which containers wait, an ordinary one among them; "" if none waits, None if there is more."""
    reasons = set()
    ordinary = False
    for one in containers:
        if one.kind == INIT and _done(one):
            continue
        if one.restarts or one.exit_code is not None or one.waiting not in _STARTING or one.kind not in ("", INIT):
            return None
        reasons.add(one.waiting)
        ordinary = ordinary or not one.kind
    if len(reasons) > 1 or (reasons and not ordinary):
        return None
    return reasons.pop() if reasons else ""


def _succeeded(containers: tuple[v.ContainerTrouble, ...]) -> bool | None:
    """Whether all have ended well, and say so; False where there are none, None where one says anything else."""
    for one in containers:
        if not _done(one) or one.kind not in ("", INIT) or (not one.kind and one.terminated != "Completed"):
            return None
    return any(not one.kind for one in containers)


def _containers(status: wire.PodStatus) -> Iterator[v.ContainerTrouble]:
    for kind, statuses in (
        ("", status.container_statuses),
        ("init", status.init_container_statuses),
        ("ephemeral", status.ephemeral_container_statuses),
    ):
        for one in statuses or ():
            state = one.state
            waiting = state.waiting.reason if state is not None and state.waiting is not None else ""
            ended = state.terminated if state is not None else None
            if one.restart_count or waiting or ended is not None:
                yield v.ContainerTrouble(
                    one.name,
                    kind,
                    one.restart_count,
                    waiting,
                    "" if ended is None else ended.reason,
                    None if ended is None else ended.exit_code,
                )


def _done(container: v.ContainerTrouble) -> bool:
    """Some runtimes give no reason with success. Any other reason is told, whatever the exit code beside it."""
    return not container.restarts and not container.waiting and container.exit_code == 0 and container.terminated in _SUCCESS


def _well(condition: wire.PodCondition) -> bool:
    return condition.status == "True" and not condition.reason and condition.type in _USUAL


def _millis(condition: wire.PodCondition) -> Millis:
    time = condition.last_transition_time
    return Millis(0) if time is None else times.of(time)
