"""Pod status → what is not as it is with a pod that runs well. Restarts, waiting and ended containers, and conditions.

Nothing comes of a pod that has no node: what its scheduler says of it is no trouble of the pod's own. An init container that has
done its work is none either.
"""

from collections.abc import Iterator

from restow.contracts import times
from restow.contracts import values as v
from restow.contracts.ids import Millis
from restow.kube import wire

_USUAL = frozenset({"PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that every pod has that runs well, with status True and no reason."""
_SUCCESS = ("", "Completed")

Troubles = tuple[tuple[v.ContainerTrouble, ...], tuple[v.PodCondition, ...]]
NONE: Troubles = ((), ())


def troubles(spec: wire.PodSpec, status: wire.PodStatus) -> Troubles:
    """In the order in which the pod has them; containers, init containers, ephemeral ones."""
    if not spec.node_name:
        return NONE
    containers = tuple(_containers(status))
    conditions = tuple(
        v.PodCondition(c.type, c.status, c.reason, _millis(c)) for c in status.conditions or () if not _well(c)
    )
    if not containers and not conditions:
        return NONE
    if containers and all(c.kind == "init" and _done(c) for c in containers):
        containers = ()
    return containers, conditions


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
