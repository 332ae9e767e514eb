"""Which statuses of PodGroups and Queues are owed. O(what was touched); a restart writes all of them anew, where they differ."""

from collections.abc import Iterator

from restow.domain.effects import Effect, WritePodGroupStatus, WriteQueueStatus
from restow.domain.groups import Group, group_of
from restow.domain.session.statuses import podgroup_status
from restow.domain.session.statuses.queue_status import above, group_queue, tally
from restow.domain.state import ClusterState, Touched


def pending(state: ClusterState, touched: Touched | None) -> Iterator[Effect]:
    """Of a group that was touched, and of its queue and the queues above it."""
    counted = tally(state, anew=touched is None)
    groups: dict[Group, None] = dict.fromkeys(state.pod_groups) if touched is None else _groups(state, touched)
    queues: dict[str, None] = dict.fromkeys(state.queues) if touched is None else dict(touched.queues)
    counted.mark(groups)
    for group in groups:
        queues[counted.queue_of(group)] = None
        if group in state.pod_groups:
            queues[group_queue(state, group)] = None
        if podgroup_status.is_ours(state, group):
            yield WritePodGroupStatus(*group, state.seq)
    for queue in list(queues):
        queues.update(dict.fromkeys(above(state, queue)))
    for queue in queues:
        if queue in state.queues:
            yield WriteQueueStatus(queue, state.seq)


def _groups(state: ClusterState, touched: Touched) -> dict[Group, None]:
    groups = dict(touched.groups)
    for uid in touched.pods:
        pod = state.fact_of(uid)
        if pod is not None and pod.annotations and (group := group_of(pod)) is not None:
            groups[group] = None
    return groups


def owed(state: ClusterState, effect: Effect) -> bool:
    match effect:
        case WritePodGroupStatus(namespace=namespace, group=group):
            return podgroup_status.is_ours(state, (namespace, group))
        case WriteQueueStatus(queue=queue):
            return queue in state.queues
    return False
