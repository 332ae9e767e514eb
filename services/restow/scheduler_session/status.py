"""The status of PodGroups and Queues: written where it differs, soon after the first change and then once for many."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from restow.contracts.events import QueueObserved
from restow.contracts.ids import Millis
from restow.domain.effects import WritePodGroupStatus, WriteQueueStatus
from restow.domain.groups import Group
from restow.domain.session.statuses import podgroup_status, queue_status
from restow.domain.session.statuses.podgroup_status import Condition, GroupStatus
from restow.domain.session.statuses.queue_status import QueueStatus
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import effects as k
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.retry import Backoff
from restow.kube.statuses import Statuses
from restow.runtime.effector import Answer, Done, later
from restow.runtime.service import Context

API = "scheduling.volcano.sh/v1beta1"
PODGROUP_READY = "pod group is ready"


class StatusEffects:
    """Remembers what was written last, by uid: facts that change nothing of it cost no call."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = Statuses(context.client, Backoff(attempts=1))
        self._groups: dict[Group, tuple[str, GroupStatus]] = {}
        self._queues: dict[str, tuple[str, QueueStatus]] = {}
        self._warned: dict[str, tuple[str, str]] = {}
        """Of queues, by name: the uid, and what was said to have no effect."""

    async def write_group(self, effect: WritePodGroupStatus, state: ClusterState) -> Answer:
        group = effect.namespace, effect.group
        fact, status = state.pod_groups[group], podgroup_status.status(state, group)
        written = self._groups.get(group)
        if written == (fact.uid, status) and fact.phase == status.phase:
            return Done()
        now = self._context.clock.now()
        outcome = await self._kube.write(
            d.POD_GROUPS, *group, fact.uid, lambda there: group_fields(there, status, fact.uid, now)
        )
        if isinstance(outcome, k.Failed | k.Refused):
            return later(outcome)
        self._groups[group] = fact.uid, status
        if len(self._groups) > 2 * len(state.pod_groups) + 64:
            self._groups = {known: said for known, said in self._groups.items() if known in state.pod_groups}
        before = written[1].holds if written is not None and written[0] == fact.uid else None
        regarding = Regarding(API, "PodGroup", *group, fact.uid)
        self._tell(regarding, before, status.holds)
        known = written[1].unheeded if written is not None and written[0] == fact.uid else None
        if status.unheeded is not None and known != status.unheeded:
            self._warn(regarding, status.unheeded)
        return Done()

    def _warn(self, regarding: Regarding, unheeded: Condition) -> None:
        """A preference without effect is not passed over in silence."""
        self._context.recorder.record(Notice(regarding, unheeded.reason, "Reading", unheeded.message, "Warning"))

    def _tell(self, regarding: Regarding, before: Condition | None, holds: Condition | None) -> None:
        if holds is None or holds == before:
            return
        if holds.type == podgroup_status.UNSCHEDULABLE:
            notice = Notice(regarding, holds.type, "Scheduling", holds.message, "Warning")
        else:
            notice = Notice(regarding, holds.type, "Scheduling", PODGROUP_READY)
        self._context.recorder.record(notice)

    async def write_queue(self, effect: WriteQueueStatus, state: ClusterState) -> Answer:
        name = effect.queue
        fact, status = state.queues[name], queue_status.status(state, name, queue_status.tally(state))
        if len(self._queues) > 2 * len(state.queues) + 64:
            self._queues = {known: said for known, said in self._queues.items() if known in state.queues}
            self._warned = {known: said for known, said in self._warned.items() if known in state.queues}
        self._warn_of_queue(name, fact)
        if self._queues.get(name) == (fact.uid, status):
            return Done()
        outcome = await self._kube.write(d.QUEUES, "", name, fact.uid, lambda there: queue_fields(there, status))
        if isinstance(outcome, k.Failed | k.Refused):
            return later(outcome)
        self._queues[name] = fact.uid, status
        return Done()

    def _warn_of_queue(self, name: str, fact: QueueObserved) -> None:
        """When it is first seen, and whenever that is something else: of a queue there is no condition that says it."""
        said = fact.uid, fact.unheeded
        if self._warned.get(name, (fact.uid, "")) == said:
            return
        self._warned[name] = said
        if (unheeded := podgroup_status.not_honoured(fact.unheeded)) is not None:
            self._warn(Regarding(API, "Queue", "", name, fact.uid), unheeded)


def group_fields(there: Mapping[str, Any], status: GroupStatus, uid: str, now: Millis) -> dict[str, Any]:
    """Our fields of a PodGroup's status, beside those of migrations."""
    conditions = podgroup_status.conditions(_conditions(there.get("conditions")), status.holds, uid, now, status.unheeded)
    fields: dict[str, Any] = {"phase": status.phase}
    for name in ("running", "succeeded", "failed"):
        # As Volcano has it, no count is written for what has never been.
        if (count := getattr(status, name)) or name in there:
            fields[name] = count
    return fields | ({"conditions": msgspec.to_builtins(conditions)} if conditions else {})


def _conditions(there: Any) -> Sequence[Condition]:
    """A list that cannot be read is ours to replace."""
    try:
        return msgspec.convert(there or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()


def queue_fields(there: Mapping[str, Any], status: QueueStatus) -> dict[str, Any]:
    """Our fields of a Queue's status. Who closes or opens a queue does it there: a state that is there stays."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return fields if there.get("state") else {"state": queue_status.OPEN} | fields
