"""`restow describe podgroup/NAME` and `queue/NAME`: who is in it, what it may use and uses, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from restow.cli.describe_node import MOST, more
from restow.cli.log_location import Where
from restow.cli.output import Progress, emit, filled_table, heading, number, table

if TYPE_CHECKING:
    from restow.domain.groups import Group
    from restow.domain.state import ClusterState
    from restow.replay.find import Subject

_OF_QUEUE = ("allocated", "deserved", "guarantee", "capability")


def show(what: str, where: Where, output: str) -> None:
    """Of a PodGroup or a queue. Raises NotFound, Ambiguous, ReplayError."""
    from restow.replay.why import verdict_now

    with where.source() as source, Progress("reading the log") as progress:
        subject, state, verdict = verdict_now(source, what, progress)
    answer = {"subject": subject, "seq": source.last, "verdict": verdict} | (_group if subject.kind == "podgroup" else _queue)(state, subject)
    if output == "json":
        return emit(answer)
    click.echo(heading(subject.label))
    for line in verdict:
        click.echo(f"  {line}")
    everything = f"all of them: restow describe {subject.path} -o json"
    (_show_group if subject.kind == "podgroup" else _show_queue)(answer, everything)
    return click.echo(f"\nas of sequence {source.last}; how it came to this: restow why {subject.path}")


def _group(state: ClusterState, subject: Subject) -> dict[str, Any]:
    """`unready`: by task, how many more it needs (`minTaskMember`)."""
    from restow.domain.session.jobs import gang

    group: Group = (subject.namespace, subject.name)
    fact = state.pod_groups.get(group)
    if fact is None or fact.uid != subject.id:
        return {"members": []}
    job = gang(state, group)
    lacking = {task: need - job.ready_by_task.get(task, 0) for task, need in job.need_by_task.items()}
    return {
        "queue": job.queue,
        "priority": job.priority,
        "minMember": job.need,
        "ready": job.ready,
        "unready": {task: count for task, count in lacking.items() if count > 0},
        "members": [_pod(state, uid) for uid in sorted(state.groups.get(group, ()), key=lambda uid: (state.pods[uid].fact.name, uid))],
    }


def _queue(state: ClusterState, subject: Subject) -> dict[str, Any]:
    """`groups`: PodGroups that are not over; `waiting`: pods of no PodGroup that wait for a node."""
    from restow.domain.session.jobs import job_of
    from restow.replay.batch import podgroups, queues

    every = queues(state)
    row = next((one for one in every if one["name"] == subject.name), None)
    if row is None:
        return {"below": [], "groups": [], "waiting": []}
    waiting = [(state.order_of(uid), uid, pod.fact) for uid, pod in state.pods.items() if state.awaits_placement(uid)]
    alone = [uid for _, uid, pod in sorted(waiting, key=lambda one: one[0]) if state.queue_of(pod) == subject.name and job_of(state, pod) is None]
    return row | {
        "below": [one["name"] for one in every if one["parent"] == subject.name],
        "groups": [one for one in podgroups(state) if one["queue"] == subject.name and one["phase"] != "Completed"],
        "waiting": [_pod(state, uid) for uid in alone],
    }


def _pod(state: ClusterState, uid: Any) -> dict[str, Any]:
    from restow.domain.groups import task_of
    from restow.domain.resources import PODS
    from restow.replay.pod_status import pod_status, why_waits

    pod = state.pods[uid].fact
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "task": task_of(pod),
        "status": pod_status(state, uid),
        "node": state.node_of(uid) or "",
        "requests": {name: amount for name, amount in state.shapes[pod.shape].requests.items() if name != PODS},
        "why": why_waits(state, uid) if state.awaits_placement(uid) else "",
    }


def _show_group(answer: dict[str, Any], everything: str) -> None:
    if answer.get("unready"):
        click.echo(f"  needs more of {', '.join(f'{task} ({count})' for task, count in answer['unready'].items())}")
    _pods("MEMBERS", answer["members"], everything)


def _show_queue(answer: dict[str, Any], everything: str) -> None:
    from restow.cli.amounts import amount, title

    if answer["below"]:
        click.echo(f"  above {', '.join(answer['below'])}")
    names = dict.fromkeys(name for of in _OF_QUEUE for name in answer.get(of, ()))
    if names:
        click.echo(f"\n{heading('CAPACITY')}")
        columns = ("RESOURCE", *(of.upper() for of in _OF_QUEUE))
        rows = [(title(name), *(amount(name, answer[of][name]) if name in answer[of] else "-" for of in _OF_QUEUE)) for name in names]
        table(columns, rows, right=columns[1:])
    groups = answer["groups"]
    click.echo(f"\n{heading('PODGROUPS')} that are not over, {number(len(groups))}")
    if groups:
        rows = [(f"{one['namespace']}/{one['name']}", one["phase"], f"{one['ready']} of {one['minMember']}", one["waiting"], one["message"]) for one in groups[:MOST]]
        table(("NAME", "PHASE", "READY", "WAIT", "WHY"), rows, right=("WAIT",), flexible=("NAME", "WHY"), wrap=("WHY",))
        more(len(groups), everything)
    if answer["waiting"] or not groups:
        _pods("PODS of no PodGroup that wait", answer["waiting"], everything)


def _pods(what: str, pods: list[dict[str, Any]], everything: str) -> None:
    from restow.cli.amounts import listed

    click.echo(f"\n{heading(what)}, {number(len(pods))}")
    if not pods:
        return
    rows = [(f"{one['namespace']}/{one['name']}", one["task"], one["status"], one["node"], listed(one["requests"]), one["why"]) for one in pods[:MOST]]
    filled_table(("POD", "TASK", "STATUS", "NODE", "AMOUNTS", "WHY"), rows, ("POD", "NODE", "AMOUNTS", "WHY"), ("WHY",))
    more(len(pods), everything)
