"""PodGroups and queues at an instant, as values with stable keys."""

from __future__ import annotations

from typing import Any

from restow.domain.accounts import DEFAULT_QUEUE, Amounts
from restow.domain.session.jobs import gang
from restow.domain.session.plugins.proportion.plugin import Shares
from restow.domain.session.registry import open_session
from restow.domain.session.statuses import podgroup_status, queue_status
from restow.domain.state import ClusterState

Rows = list[dict[str, Any]]


def podgroups(state: ClusterState, namespace: str | None = None) -> Rows:
    """By namespace and name. `ready` members have their node, or have succeeded; `waiting` ones are to be placed."""
    found = []
    for group, fact in sorted(state.pod_groups.items()):
        if namespace is not None and fact.namespace != namespace:
            continue
        status, job = podgroup_status.status(state, group), gang(state, group)
        waits = status.holds is not None and status.holds.type == podgroup_status.UNSCHEDULABLE
        found.append(
            {
                "namespace": fact.namespace,
                "name": fact.name,
                "phase": status.phase,
                "minMember": fact.min_member,
                "ready": job.ready,
                "waiting": len(job.tasks),
                "running": status.running,
                "succeeded": status.succeeded,
                "failed": status.failed,
                "queue": job.queue,
                "priority": job.priority,
                "reason": status.holds.reason if waits and status.holds else "",
                "message": status.holds.message if waits and status.holds else "",
            }
        )
    return found


def queue_names(state: ClusterState) -> set[str]:
    """Those that have an object, and those that somebody uses without one."""
    return {*state.queues, *state.accounts.queues(), *(fact.queue or DEFAULT_QUEUE for fact in state.pod_groups.values())}


def queues(state: ClusterState, namespace: str | None = None) -> Rows:
    """By name. Amounts in canonical units; `deserved` is what the plugins make of it where they do: proportion's shares."""
    counted, shares = queue_status.Tally(state), _shares(state)
    found = []
    for name in sorted(queue_names(state)):
        fact, counts = state.queues.get(name), counted.counts(state, name)
        found.append(
            {
                "name": name,
                "exists": fact is not None,
                "state": fact.state if fact is not None else "",
                "parent": fact.parent if fact is not None else "",
                "weight": fact.weight if fact is not None else 1,
                "invalid": fact.invalid if fact is not None else "",
                "podGroups": {phase: counts[phase] for phase in queue_status.PHASES if counts[phase]},
                "allocated": _named(state, queue_status.used(state, name)),
                "guarantee": fact.guarantee if fact is not None else {},
                "deserved": _named(state, shares[name]) if name in shares else fact.deserved if fact is not None else {},
                "capability": fact.capability if fact is not None else {},
            }
        )
    return found


def works_out_shares(state: ClusterState) -> bool:
    """Whether what a queue deserves follows from who asks for what, and not from the queue alone."""
    return any(plugin.name == "proportion" for tier in state.session_config.tiers for plugin in tier)


def _shares(state: ClusterState) -> dict[str, Amounts]:
    """What proportion gives to each queue; empty where it is not in the configuration."""
    if not works_out_shares(state):
        return {}
    session = open_session(state, state.time, 1)
    try:
        return Shares(session).deserved
    finally:
        session.close()


def _named(state: ClusterState, amounts: Amounts) -> dict[str, int]:
    return {name: amounts[column] for name, column in state.table.columns.items() if amounts.get(column)}
