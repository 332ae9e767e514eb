"""What an event says, as one sentence for people. `names` turns uids into names where they are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import name_of
from restow.contracts.times import seconds
from restow.contracts.values import DeviceShare
from restow.domain.evolve.reservation_slots import fit_message
from restow.domain.movable import BUSY
from restow.domain.pod_controllers import MOVABLE
from restow.domain.verdicts import explained

Names = Mapping[str, str]


def devices_text(devices: tuple[DeviceShare, ...]) -> str:
    """`gpu 0,1`, or `gpu 0 (500/1000)` for shares; empty without devices."""
    if not devices:
        return ""
    parts = [str(d.index) if d.milli == 1000 else f"{d.index} ({d.milli}/1000)" for d in devices]
    return "gpu " + ",".join(parts)


def worth_text(thousandths: int, sign: bool = False) -> str:
    """`1 234`, `12.3`, `0.05`, `0.002`: as much as matters, so that only nothing is 0."""
    value = abs(thousandths) / 1000
    text = f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.1f}" if value >= 1 or not thousandths else f"{value:.2f}" if value >= 0.01 else f"{value:.3f}"
    return ("-" if thousandths < 0 else "+" if sign else "") + text


def _on(node: str, devices: tuple[DeviceShare, ...] = ()) -> str:
    return f"on {node}" + (f", {devices_text(devices)}" if devices else "")


def _named(names: Names, uid: str) -> str:
    return names.get(uid, uid)


def _pod_live(v: Any, names: Names) -> str:
    parts = [v.phase if not v.deleting else f"{v.phase}, terminating since {seconds(v.deleting)}"]
    if v.ready:
        parts.append("ready")
    elif v.unready and v.phase == "Running":
        parts.append("not ready")
    if v.node:
        parts.append(_on(v.node, v.devices))
    if v.waiting:
        parts.append(f"{'not initialized' if v.initialized else 'starts'}: {v.waiting}")
    if v.reason:
        parts.append(v.reason)
    return ", ".join(parts)


def _workload(said: e.WorkloadObserved) -> str:
    """Whose it is, and what an eviction would mean to it."""
    parts = [f"belongs to {said.owner.kind} {said.owner.name}"] if said.owner is not None else []
    if said.movable:
        parts.append(f"says {MOVABLE}: {said.movable}")
    if said.busy:
        parts.append(BUSY[said.busy].partition(":")[0])
    if said.wanted is not None:
        parts.append(f"makes no pods from ordinal {said.wanted} on" if said.kind == "StatefulSet" else f"wants {said.wanted} pod{'s' * (said.wanted != 1)}")
    if said.evicted == "counted" and said.per_index is not None:
        parts.append(f"may have {said.per_index} pods of each index fail, evicted ones among them")
    elif said.evicted == "counted":
        parts.append(f"may have {said.retries} more pods fail, evicted ones among them")
    elif said.evicted:
        parts.append({"ignored": "does not count pods that are evicted", "fatal": "fails when a pod is evicted"}.get(
            said.evicted, "does not tell what an eviction means to it"
        ))
    return f"{said.kind} {said.namespace}/{said.name} {', '.join(parts) or 'is seen'}"


def _reservation(v: e.ReservationObserved, names: Names) -> str:
    name = f"{v.namespace}/{v.name}".removeprefix("/")
    if v.invalid:
        return f"reservation {name} is seen, and cannot be read: {v.invalid}"
    slots = sum(t.replicas for t in v.spec.tasks) if v.spec else 0
    more = f", holds for migration {v.migration}" if v.migration else ""
    more += f", terminating since {seconds(v.deleting)}" if v.deleting else ""
    more += f"; fields without a meaning: {', '.join(v.unknown)}" if v.unknown else ""
    return f"reservation {name} is seen: {slots} slot{'s' * (slots != 1)}{more}"


_MODES = {"observe": ", only observed", "propose": ", which wait for a person"}


def _claimed(v: e.ResourceClaimObserved, names: Names) -> str:
    """What it has, and for whom."""
    got = ", ".join(f"{one.device} of {one.driver}" + f" (pool {one.pool})" * bool(one.pool) for one in v.allocated)
    users = ", ".join(_named(names, pod) for pod in v.reserved)
    return (f"it has {got}" if got else "it has no device") + f", reserved for {users}" * bool(users) + "; it is being deleted" * bool(v.deleting)


def _planned(v: e.Planned, names: Names) -> str:
    by = f"{v.plugin} (profile {v.profile})" if v.profile else v.plugin
    what = f"plan {v.plan} by {by}: {len(v.moves)} move{'s' * (len(v.moves) != 1)}{_MODES.get(v.mode, '') if v.moves or v.slots else ''}"
    return f"{what}, {v.reason}" if v.reason else what


def _some(moves: Sized) -> str:
    return f"{len(moves)} move{'s' * (len(moves) != 1)} of " if len(moves) else ""


def _looked_back(v: e.LookedBack, names: Names) -> str:
    if not v.moves:
        return f"looked back at plan {v.plan}: there was nothing to see, or nobody in time"
    there = sum(move.pod == "there" for move in v.moves)
    free = sum(move.slot == "free" for move in v.moves)
    slots = f", and {free} of these have their slot free still" if v.look == 1 and there else ""
    return f"looked back at plan {v.plan}: of {len(v.moves)} pods that it would have moved {there} are there still{slots}"


def _wait(pods: tuple[str, ...], names: Names, others: str) -> str:
    """`others`: where nobody begins to wait."""
    if len(pods) == 1:
        return f"{_named(names, pods[0])} waits"
    return f"{len(pods)} pods wait" if pods else others


def _withheld(v: e.Withheld, names: Names) -> str:
    who = f"gang {v.group} waits" if v.group else _wait(v.pods, names, "others wait on")
    return f"{who}: {v.message}" + (f"; {fit_message(v.nodes, v.reasons)}" if v.reasons else "")


def _group(v: e.PodGroupObserved, names: Names) -> str:
    parts = [f"minMember {v.min_member}", f"queue {v.queue or 'default'}"]
    parts += [v.phase] if v.phase else []
    parts += [f"cannot be read: {v.invalid}"] if v.invalid else []
    return f"podgroup {v.namespace}/{v.name} is seen: {', '.join(parts)}"


def _nominated(v: e.Nominated, names: Names) -> str:
    victims = f", once {', '.join(_named(names, uid) for uid in v.victims)} {'has' if len(v.victims) == 1 else 'have'} gone" if v.victims else ""
    return f"{_named(names, v.pod)} is to run {_on(v.node, v.devices)}{victims}; held until {seconds(v.deadline)}"


def _troubled(v: e.PodTroubled, names: Names) -> str:
    parts = []
    for one in v.containers:
        ended = "" if one.exit_code is None else f"ended with {one.exit_code}" + (f" ({one.terminated})" if one.terminated else "")
        said = [f"waits: {one.waiting}" if one.waiting else "", ended, f"{one.restarts} restarts" if one.restarts else ""]
        parts.append(f"{one.kind or 'container'} {one.name} {', '.join(filter(None, said))}")
    parts += [f"{one.type} is {one.status or 'unknown'}" + (f" ({one.reason})" if one.reason else "") for one in v.conditions]
    return f"{_named(names, v.pod)}: {'; '.join(parts) or 'nothing out of the ordinary'}"


_COLLECTED = {"Orphaned": "the move or plan that it was for is over", "Retention": "it has ended long enough ago"}

_TEXT: dict[type, Callable[[Any, Names], str]] = {
    e.PodObserved: lambda v, n: f"pod {v.namespace}/{v.name} is seen: {_pod_live(v, n)}",
    e.PodChanged: lambda v, n: f"{_named(n, v.pod)} is {_pod_live(v, n)}",
    e.PodGone: lambda v, n: f"pod {_named(n, v.pod)} is gone",
    e.NodeObserved: lambda v, n: f"node {v.name} is seen: {'ready' if v.ready else 'not ready'}{', cordoned' * v.unschedulable}" + (f", cannot be read: {v.unreadable}" if v.unreadable else ""),
    e.NodeGone: lambda v, n: f"node {v.name} is gone",
    e.ShapeDeclared: lambda v, n: f"pod shape {v.shape} is declared",
    e.Synced: lambda v, n: f"{v.kind} are known as of resourceVersion {v.version}",
    e.WorkloadObserved: lambda v, n: _workload(v),
    e.WorkloadGone: lambda v, n: f"workload {v.uid} is gone",
    e.ReservationObserved: _reservation,
    e.ReservationGone: lambda v, n: f"reservation {_named(n, v.reservation)} is gone",
    e.PodPlaced: lambda v, n: f"{_named(n, v.pod)} is placed {_on(v.node, v.devices)}",
    e.PodReleased: lambda v, n: f"the placement of {_named(n, v.pod)} is withdrawn: {explained(v.reason)}",
    e.HoldPlaced: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} {'waits for its capacity' if v.waiting else 'is placed'} {_on(v.node, v.devices)}",
    e.HoldReady: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} has all its capacity and is held",
    e.HoldBorrowed: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} waits: {_named(n, v.pod)}, which ignores Reservations, has borrowed its capacity",
    e.HoldResized: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} is resized on its node",
    e.HandedOver: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} is handed over to {_named(n, v.pod)} {_on(v.node, v.devices)}",
    e.HoldReleased: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} is released: {explained(v.reason)}",
    e.TaskReserved: lambda v, n: f"{v.node} is reserved for {_named(n, v.pod)}, whose job starves",
    e.TaskUnreserved: lambda v, n: f"nothing is reserved for {_named(n, v.pod)} any more: {v.reason}",
    e.Withheld: _withheld,
    e.Enqueued: lambda v, n: f"podgroup {v.namespace}/{v.group} is let in: its pods may be scheduled",
    e.Preempted: lambda v, n: f"{_named(n, v.pod)} is to be evicted for {_named(n, v.by)} ({v.action})" + (f": {v.reason}" if v.reason else ""),
    e.PreemptionEnded: lambda v, n: f"{_named(n, v.pod)} is not to be evicted any more: {v.reason}",
    e.Nominated: _nominated,
    e.NominationEnded: lambda v, n: f"nothing is held for {_named(n, v.pod)} any more: {v.reason}",
    e.PodGroupObserved: _group,
    e.PodGroupGone: lambda v, n: f"podgroup {v.namespace}/{v.name} is gone",
    e.QueueObserved: lambda v, n: f"queue {v.name} is seen: {v.state}, weight {v.weight}" + (f", cannot be read: {v.invalid}" if v.invalid else ""),
    e.QueueGone: lambda v, n: f"queue {v.name} is gone",
    e.PriorityClassObserved: lambda v, n: f"priority class {v.name} is seen: {v.value}",
    e.PriorityClassGone: lambda v, n: f"priority class {v.name} is gone",
    e.NamespaceObserved: lambda v, n: f"namespace {v.name} is seen",
    e.NamespaceGone: lambda v, n: f"namespace {v.name} is gone",
    e.ClaimObserved: lambda v, n: f"claim {v.namespace}/{v.name} is seen: {v.phase or 'Pending'}" + (f", volume {v.volume}" if v.volume else ""),
    e.ClaimGone: lambda v, n: f"claim {v.namespace}/{v.name} is gone",
    e.VolumeObserved: lambda v, n: f"volume {v.name} is seen: {v.phase or 'Pending'}" + (f", of claim {v.claim}" if v.claim else ""),
    e.VolumeGone: lambda v, n: f"volume {v.name} is gone",
    e.StorageClassObserved: lambda v, n: f"storage class {v.name} is seen",
    e.StorageClassGone: lambda v, n: f"storage class {v.name} is gone",
    e.CsiNodeObserved: lambda v, n: f"limits of CSI drivers on {v.node} are seen",
    e.CsiNodeGone: lambda v, n: f"limits of CSI drivers on {v.node} are gone",
    e.NumaObserved: lambda v, n: f"NUMA zones of {v.node} are seen",
    e.NumaGone: lambda v, n: f"NUMA zones of {v.node} are gone",
    e.DeviceObserved: lambda v, n: f"devices of {v.node} are seen: {len(v.gpus)} gpu{'s' * (len(v.gpus) != 1)}",
    e.DeviceGone: lambda v, n: f"devices of {v.node} are gone",
    e.HyperNodeObserved: lambda v, n: f"HyperNode {v.name} of tier {v.tier} is seen" + (f"; it cannot be read: {v.invalid}" if v.invalid else ""),
    e.HyperNodeGone: lambda v, n: f"HyperNode {v.name} is gone",
    e.ResourceSliceObserved: lambda v, n: f"ResourceSlice {v.name} is seen: {len(v.devices)} device{'s' * (len(v.devices) != 1)} of {v.driver}" + f" on {v.node}" * bool(v.node),
    e.ResourceSliceGone: lambda v, n: f"ResourceSlice {v.name} is gone",
    e.ResourceClaimObserved: lambda v, n: f"ResourceClaim {v.namespace}/{v.name} is seen: " + _claimed(v, n),
    e.ResourceClaimGone: lambda v, n: f"ResourceClaim {v.namespace}/{v.name} is gone",
    e.DeviceClassObserved: lambda v, n: f"DeviceClass {v.name} is seen",
    e.DeviceClassGone: lambda v, n: f"DeviceClass {v.name} is gone",
    e.BudgetObserved: lambda v, n: f"disruption budget {v.namespace}/{v.name} is seen: {v.allowed} may go",
    e.BudgetGone: lambda v, n: f"disruption budget {v.namespace}/{v.name} is gone",
    e.QuotaObserved: lambda v, n: f"resource quota {v.namespace}/{v.name} is seen" + (f": more than it allows is in use of {', '.join(v.exceeded)}" if v.exceeded else ""),
    e.QuotaGone: lambda v, n: f"resource quota {v.namespace}/{v.name} is gone",
    e.PodTroubled: _troubled,
    e.Unfit: lambda v, n: f"{_wait(v.pods, n, 'equal pods wait on')}: {fit_message(v.nodes, v.reasons)}",
    e.HoldUnfit: lambda v, n: f"slot {v.slot} of {_named(n, v.reservation)} waits: {v.message or fit_message(v.nodes, v.reasons)}",
    e.ReservationAccepted: lambda v, n: f"reservation {_named(n, v.reservation)} is accepted: {v.min_available} needed, expires {seconds(v.expires) or 'never'}",
    e.ReservationRefused: lambda v, n: f"reservation {_named(n, v.reservation)} is refused: {v.reason}: {v.message}",
    e.Planned: _planned,
    e.SearchBegun: lambda v, n: f"plan {v.plan} ({v.trigger}) is being made" + (f", with at most {v.steps} steps of search" if v.steps else ""),
    e.SearchEnded: lambda v, n: f"plan {v.plan} came to no end: {v.reason}{': ' * bool(v.message)}{v.message}",
    e.Bounced: lambda v, n: (
        f"pods of controller {v.lineage} bounced off {v.node} {v.times} times in a row: they are left alone there" if v.node
        else f"somebody else disturbed moves of controller {v.lineage} {v.times} times in a row ({v.reason}): its pods are left alone for a while"
    ),
    e.Holding: lambda v, n: f"{v.migration}: asks for a hold, until {seconds(v.deadline)}",
    e.LandingOpened: lambda v, n: f"{v.migration}: what its controller makes is gated, at first until {seconds(v.until)}",
    e.LandingClosed: lambda v, n: f"{v.migration}: what its controller makes is gated no more",
    e.OwnersGated: lambda v, n: f"pods that {_named(n, v.reservation)} is for are gated, at first until {seconds(v.until)}" if v.until else f"pods that {_named(n, v.reservation)} is for are gated no more",
    e.OwnersUnlisted: lambda v, n: f"pods that {_named(n, v.reservation)} is for are not listed any more",
    e.LetGoRefused: lambda v, n: f"Restow's gate cannot be taken off {_named(n, v.pod)}: {v.reason}",
    e.PodLetGo: lambda v, n: f"{_named(n, v.pod)} owns a reservation and gets nothing of it: it is let go",
    e.NodeEmptied: lambda v, n: f"node {v.node} is emptied by plan {v.plan}: it may be taken away",
    e.NodeReturned: lambda v, n: f"node {v.node}, which plan {v.plan} was to empty, is anybody's again: {v.reason}",
    e.NominationsChecked: lambda v, n: f"nominations to {v.scheduler}: {v.said}" + (f": {v.why}" if v.why else ""),
    e.Held: lambda v, n: f"{v.migration}: its landing slot is held",
    e.ConsentAsked: lambda v, n: f"{v.migration}: its workload is asked ({v.way}), and has until {seconds(v.deadline)}",
    e.ConsentGiven: lambda v, n: f"{v.migration}: its workload {'has not answered, which is assent' if v.silent else 'agrees'}{': ' * bool(v.message)}{v.message}",
    e.LookedBack: _looked_back,
    e.PlanApproved: lambda v, n: f"{v.by} approves {_some(v.moves)}plan {v.plan}" + (f": {v.reason}" if v.reason else ""),
    e.PlanRejected: lambda v, n: f"{v.by} rejects plan {v.plan}" + (f": {v.reason}" if v.reason else ""),
    e.ModeSet: lambda v, n: f"{v.by} sets the mode to {v.mode}" + (f": {v.reason}" if v.reason else ""),
    e.MovesPaused: lambda v, n: f"{v.by or 'Restow itself'} pauses all moves" + (f": {v.reason}" if v.reason else ""),
    e.MovesResumed: lambda v, n: f"{v.by or 'Restow itself'} resumes moves" + (f": {v.reason}" if v.reason else ""),
    e.ConsentRefused: lambda v, n: f"{v.migration}: its workload refuses" + (f", and wants no question before {seconds(v.again)}" if v.again else "") + (f": {v.message}" if v.message else ""),
    e.WorkloadToTell: lambda v, n: f"{v.migration}: its workload is to be told ({v.way}) that {_named(n, v.pod)} {'has moved' if v.what == 'moved' else 'stays'}",
    e.WorkloadTold: lambda v, n: f"{v.migration}: its workload was {f'not told: {v.message}' if v.message else 'told'}",
    e.Evicting: lambda v, n: f"{v.migration}: evicts the pod, until {seconds(v.deadline)}",
    e.Evicted: lambda v, n: f"{v.migration}: the pod is evicted, its successor has until {seconds(v.deadline)}",
    e.Aborting: lambda v, n: f"{v.migration}: gives up: {v.reason}{': ' * bool(v.message)}{v.message}",
    e.Landed: lambda v, n: f"{v.migration}: landed as {_named(n, v.pod)} {_on(v.node)}",
    e.MigrationFailed: lambda v, n: f"{v.migration}: failed, rolled back: {v.reason}{': ' * bool(v.message)}{v.message}",
    e.NotRecreated: lambda v, n: f"{v.migration}: the pod was evicted and no successor came",
    e.TurningBack: lambda v, n: f"{v.migration}: goes back to where it was, capacity is held there again: {v.reason}: {v.message}".rstrip(": "),
    e.Removed: lambda v, n: f"{v.migration}: the pod is evicted; nothing was held for it",
    e.Expired: lambda v, n: f"reservation {_named(n, v.reservation)} is past its time",
    e.Collected: lambda v, n: f"reservation {_named(n, v.reservation)} is to be deleted: {_COLLECTED.get(v.reason, v.reason)}",
    e.SnapshotTaken: lambda v, n: f"a snapshot as of {v.seq} is stored, {v.size} bytes",
    e.Archived: lambda v, n: f"{v.first} to {v.last} are archived in {v.file}",
    e.Truncated: lambda v, n: f"everything up to {v.upto} may be dropped from the log",
    e.LogRepaired: lambda v, n: _repaired(v),
}


def _repaired(event: e.LogRepaired) -> str:
    what = f"what followed from another history, from {event.first} on, is void" if event.first else "it shows no break"
    lost = f"; records up to {event.lost} are lost" if event.lost else ""
    return f"{event.person or 'somebody'} goes on with the log as it is: {what}{lost}" + (f" ({event.reason})" if event.reason else "")


def sentence(event: Any, names: Names) -> str:
    """One line, without the event's name where the sentence says it."""
    if isinstance(event, e.Unknown):
        return f"{event.name} (this Restow does not know it)"
    if isinstance(event, e.Led):
        return f"{event.holder} leads, epoch {event.epoch}"
    if isinstance(event, e.Configured):
        return f"configuration {event.digest[:12]} is in use"
    text = _TEXT.get(type(event))
    return name_of(event) if text is None else text(event, names)


def command_text(command: Any) -> str:
    """A command in a word or two: `schedule`, `defragment (api)`, `watch pods`."""
    match command:
        case c.Observe(kind=kind, how="reset"):
            return f"list {kind} anew (the API was restored or built anew)"
        case c.Observe(kind=kind, how=how):
            return f"{how} {kind}"
        case c.Defragment(trigger=trigger):
            return f"defragment ({trigger})"
        case c.ReportEviction(reason=reason):
            return f"report eviction ({reason})"
    return name_of(command).replace("_", " ")
