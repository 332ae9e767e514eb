"""The verdict on a thing at the end of the log, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId, PodUid
from restow.contracts.times import rfc3339
from restow.domain import migration
from restow.domain import resources as r
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.cores import cpuset
from restow.domain.evolve import bounces
from restow.domain.evolve.reservation_slots import fit_message
from restow.domain.other_schedulers import is_beside, other_scheduler
from restow.domain.planview import PlanView, migrations_of, plan_view
from restow.domain.records import FINAL, SlotPhase, Step
from restow.domain.session.statuses import podgroup_status, queue_status
from restow.domain.session.verdict import (
    Block,
    Choice,
    GangFit,
    Relief,
    SlotsFit,
    Verdict,
    explain,
    explain_group,
    explain_slots,
    takes,
)
from restow.domain.state import ClusterState
from restow.domain.verdicts import BESIDE, ENDED, NOBODY_FOLLOWED, PLACEHOLDER, explained
from restow.replay import by_claim
from restow.replay.beside import beside_view
from restow.replay.holds import Amounts, SlotView, by_name, reservation_name, slot_views
from restow.replay.moves import beside_lines, consent_lines, demand_line, move_lines, purpose, stranger_lines
from restow.replay.sentences import devices_text
from restow.replay.story import Entry, Story


def _pod_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    uid, say = story.subject.id, answer.verdict.append
    observed = state.fact_of(PodUid(uid))
    if observed is None:
        say(_gone(story.last(e.PodGone, pod=uid)))
    else:
        answer.present = explain(state, uid)  # type: ignore[arg-type]
        answer.verdict += verdict_lines(state, answer.present)
        if answer.present.status == "waiting" and not (answer.present.blocks or answer.present.fits):
            answer.verdict += takes(state, PodUid(uid))
        if answer.present.status == "waiting" and (tried := demand_line(state, uid)):  # type: ignore[arg-type]
            say(tried)
        answer.verdict += stranger_lines(state, PodUid(uid))
        answer.verdict += by_claim.pod_lines(state, PodUid(uid))
        if said := bounces.disturbance(state, state.lineage(observed)):
            say(said)
    if answer.choice is not None:
        say(choice_line(answer.choice))
    answer.verdict += move_lines(state, uid, story.migrations)  # type: ignore[arg-type]
    if answer.stays is not None and observed is not None:
        moves = _is_to_move(plan_view(state, PlanId(answer.stays.plan)))
        say(f"plan {answer.stays.plan} ({answer.stays.seq}) {moves if answer.stays.moves else 'leaves it there'}: {answer.stays.message}")
    said_already = answer.stays.plan if answer.stays is not None and answer.stays.moves and observed is not None else ""
    for plan in _that_wait(state, PodUid(uid)):
        if plan != said_already:
            say(f"plan {plan} {_is_to_move(plan_view(state, plan))}")
    if story.subject.earlier:
        say(f"{len(story.subject.earlier)} former pods had this name: {', '.join(story.subject.earlier)}")


def _gone(entry: Entry | None) -> str:
    return f"gone since sequence {entry.seq}, {rfc3339(entry.time)}" if entry else "gone"


def verdict_lines(state: ClusterState, verdict: Verdict) -> list[str]:
    """A verdict in sentences."""
    live = state.pods[verdict.pod].live
    victim = [f"is to be evicted for {verdict.evicted_for}"] if verdict.evicted_for else []
    match verdict.status:
        case "waiting":
            return waiting_lines(verdict)
        case "bound":
            devices = f", {devices_text(live.devices)}" if live.devices else ""
            return [f"{live.phase}{', ready' if live.ready else ''}, on {verdict.node}{devices}", *_allocation_lines(state, verdict), *victim]
        case "placed":
            return [f"placed on {verdict.node}, not bound yet", *_allocation_lines(state, verdict)]
        case "nominated":
            return _nominee_lines(state, verdict)
        case "terminating":
            return [f"terminating since {rfc3339(live.deleting)}" + (f", on {verdict.node}" if verdict.node else "")]
        case "finished":
            return [live.phase + (f": {live.reason}" if live.reason else "")]
        case "gated":
            return [_gated_line(state.pods[verdict.pod].fact)]
        case "foreign":
            return [_foreign_line(state, state.pods[verdict.pod].fact)]
    return [verdict.status]


def _gated_line(fact: e.PodObserved) -> str:
    return f"waits for its scheduling gates to be removed{': ' * bool(fact.gates)}{', '.join(fact.gates)}"


def _foreign_line(state: ClusterState, fact: e.PodObserved) -> str:
    """Of one without a node, which another scheduler places. Of schedulers that `beside` names Restow moves pods, and hands them Reservations."""
    scheduler = state.shapes[fact.shape].scheduler
    if not is_beside(state, fact.shape):
        return f"another scheduler's ({scheduler}): Restow never touches it"
    if fact.gated:
        return _gated_line(fact)
    return f"waits for {scheduler}, which places it (`kubectl describe pod` says what it lacks); Restow may move it once it runs"


def _allocation_lines(state: ClusterState, verdict: Verdict) -> list[str]:
    """What it has taken of a hold."""
    allocation = state.allocations.get(verdict.pod)
    if allocation is None or allocation.reservation not in state.reservations:
        return []
    what = amounts_text(by_name(state, allocation.items)) or "capacity"
    return [f"uses {what} of slot {allocation.slot} of reservation {reservation_name(state, allocation.reservation)}"]


def waiting_lines(verdict: Verdict, ending: str = "would fit with") -> list[str]:
    """What it waits for, first things first, and what would help."""
    lines = _block_lines(verdict.blocks)
    if verdict.beyond_us:
        lines.append("where it would fit cannot be said")
    elif not verdict.fits:
        # A volume that is not there blocks the pod, and takes each node from it as well.
        if not all(any(reason in block.message for block in verdict.blocks) for reason in verdict.reasons):
            lines.append(f"{'also ' if lines else ''}waits: {fit_message(verdict.nodes, verdict.reasons)}")
    elif verdict.blocks or (verdict.gang is not None and not verdict.gang.complete):
        removed = ", ".join(f"{count} {reason}" for reason, count in verdict.reasons.items())
        lines.append(f"alone it fits on {verdict.fits} of {counted(verdict.nodes, 'node')}" + (f": {removed}" if removed else ""))
    else:
        lines.append(f"waits for the next session, which will place it: it fits on {counted(verdict.fits, 'node')} now")
    if verdict.gang is not None:
        lines += gang_lines(verdict.gang)
    if verdict.reserved:
        lines.append(verdict.reserved)
    if verdict.takes:
        lines.append(f"may take {verdict.takes}")
    return lines + [relief_line(relief, ending) for relief in verdict.reliefs]


def _block_lines(blocks: Iterable[Block]) -> list[str]:
    return [f"{'also ' if i else ''}waits: {block.message}" for i, block in enumerate(blocks)]


def gang_lines(gang: GangFit, who: str = "") -> list[str]:
    who = who or f"its gang {gang.group}"
    lines = [f"{who} needs {gang.need} at the same time: {gang.ready} ready, {gang.waiting} wait, {gang.fit} of them fit now"]
    if gang.quota:
        lines.append(f"then: {gang.quota}")
    if gang.first:
        lines.append(f"the first that does not fit beside them, {gang.first}: {fit_message(gang.nodes, gang.reasons)}")
    return lines


def slots_lines(fit: SlotsFit) -> list[str]:
    """How far a Reservation gets now, what its slots wait for, and which single changes would be enough."""
    lines = _block_lines(fit.blocks)
    if fit.quota:
        lines.append(f"{'also ' if lines else ''}waits: {fit.quota}")
    if fit.complete:
        lines.append(f"the next session will hold {'it' if fit.waiting == 1 else f'all {fit.waiting}'}" if not lines else f"{counted(fit.waiting, 'slot')} would fit")
        return lines
    if fit.first:
        beside = f"{fit.fit} of {counted(fit.waiting, 'slot')} would fit; {fit.first} does not beside them" if fit.fit else f"slot {fit.first}"
        lines.append(f"{beside}: {fit_message(fit.nodes, fit.reasons)}")
    if fit.fit and fit.have + fit.fit < fit.need:
        lines.append(f"nothing is held with fewer than {fit.need} (minAvailable)")
    return lines + [relief_line(relief, "would be held with") for relief in fit.reliefs]


def relief_line(relief: Relief, ending: str = "would fit with") -> str:
    """`would fit with a cpu request of at most 2: 3 nodes`."""
    if relief.change.startswith("without "):
        ending = ending.removesuffix(" with")
    return f"{ending} {relief.change}" + (f": {counted(relief.nodes, 'node')}" if relief.nodes else "")


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def choice_line(choice: Choice) -> str:
    """How the node was chosen, as of the read of the commit."""
    if not choice.next:
        return f"{choice.node} was the only node that it fitted on"
    over = f"{choice.node} was chosen out of {counted(choice.fits, 'node')} with a score of {choice.score}"
    rest = f"{choice.next} had {choice.next_score}"
    if choice.score < choice.next_score:
        return f"{over}; {rest} before the same commit placed others there"
    return f"{over}; the next best, {rest}" + (", and comes later by name" if choice.score == choice.next_score else "")


def _nominee_lines(state: ClusterState, verdict: Verdict) -> list[str]:
    nominee = verdict.nominee
    assert nominee is not None, "of a nominated pod"
    missing = amounts_text(nominee.missing)
    what = f"waits for {missing or 'devices'} there" if missing or nominee.victims else "all of it is held"
    lines = [f"will run on {nominee.node}: {what}, until {rfc3339(nominee.deadline)}"]
    if nominee.victims:
        lines.append(f"evicted for it: {', '.join(_pod_name(state, uid) for uid in nominee.victims)}")
    return lines


def _group_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    group, say = (story.subject.namespace, story.subject.name), answer.verdict.append
    fact = state.pod_groups.get(group)
    if fact is None or fact.uid != story.subject.id:
        say(_gone(story.last(e.PodGroupGone)))
        return
    status = podgroup_status.status(state, group)
    say(
        f"{status.phase}: {counted(len(state.groups.get(group, ())), 'pod')}, {status.running} running, {status.succeeded} succeeded, "
        f"{status.failed} failed; minMember {fact.min_member}, queue {fact.queue or 'default'}"
    )
    answer.gang, blocks, answer.reliefs = explain_group(state, group)
    answer.verdict += _block_lines(blocks)
    if answer.gang is None:
        if status.holds is not None and status.holds.type == podgroup_status.UNSCHEDULABLE:
            say(f"waits: {status.holds.message}")
        return
    answer.verdict += gang_lines(answer.gang, "it")
    if answer.gang.complete and not blocks:
        say("the next session will place it")
    if answer.gang.first and not blocks:
        answer.verdict += takes(state, min((uid for uid in state.groups[group] if state.awaits_placement(uid)), key=state.order_of))
    answer.verdict += [relief_line(relief, "would start with") for relief in answer.reliefs]


def _reservation_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    uid, say = story.subject.id, answer.verdict.append
    phase = state.phases.get(uid)  # type: ignore[call-overload]
    if phase is None:
        say(_gone(story.last(e.ReservationGone, reservation=uid)))
        return
    record = state.reservations[uid]  # type: ignore[index]
    if other := other_scheduler(state, record):
        say(foreign_line(state, other))
    why = f" ({phase.reason})" if phase.reason else ""
    if other and not record.refused:
        return
    say(f"{phase.phase}{why} since {rfc3339(phase.since)}{': ' if phase.message else ''}{phase.message}")
    if not record.accepted and not record.refused:
        say("not reviewed yet")
    if record.expires and not record.expired:
        say(f"expires {rfc3339(record.expires)}")
    found = slot_views(state, uid)  # type: ignore[arg-type]
    for slot in found:
        if slot.phase != SlotPhase.PENDING:
            say(slot_line(slot))
    if pending := sum(slot.phase == SlotPhase.PENDING for slot in found):
        say(f"{counted(pending, 'slot')} of {len(found)} {'has' if pending == 1 else 'have'} no node yet")
        answer.slots = explain_slots(state, uid)  # type: ignore[arg-type]
        if answer.slots is not None:
            answer.verdict += slots_lines(answer.slots)


def foreign_line(state: ClusterState, scheduler: str) -> str:
    """Of a Reservation for another scheduler."""
    served = ", ".join(state.session_config.scheduler_names)
    return f"for scheduler {scheduler}: Restow (schedulerNames: {served}) never touches it"


def slot_line(slot: SlotView) -> str:
    """One slot in a sentence."""
    where = f"on {slot.node}" + (f", {devices_text(slot.devices)}" if slot.devices else "")
    where += f", CPUs {cpuset(slot.cores)}" if slot.cores else ""
    match slot.phase:
        case SlotPhase.HELD:
            allocated = f", {amounts_text(slot.allocated)} of it used" if slot.allocated else ""
            body = f", by placeholder {slot.placeholder.partition(' ')[0]}" if slot.placeholder else ""
            return f"slot {slot.name}: held {where}{allocated}{body}"
        case SlotPhase.WAITING:
            if slot.reason == PLACEHOLDER:
                return f"slot {slot.name}: waits {where}: {BESIDE[PLACEHOLDER]}" + (f" ({slot.placeholder})" if slot.placeholder else "")
            why = f" ({slot.reason})" if slot.reason else ""
            has = f", has {amounts_text(slot.held)}" if slot.held else ""
            return f"slot {slot.name}: waits {where} for {amounts_text(slot.missing) or 'its capacity'}{why}{has}"
        case SlotPhase.USED:
            return f"slot {slot.name}: {'was used' if slot.gone else 'used'} by {slot.pod} {where}"
        case SlotPhase.FAILED:
            return f"slot {slot.name}: ended: {explained(slot.reason)}"
    return f"slot {slot.name}: has no node yet"


def amounts_text(amounts: Amounts) -> str:
    """`2 cpu and 4Gi memory`; GPUs in devices, `0.5 nvidia.com/gpu`."""
    return " and ".join(f"{r.amount(name, amount)} {r.title(name)}" for name, amount in amounts.items())


def _pod_name(state: ClusterState, uid: Any) -> str:
    pod = state.fact_of(uid)
    return f"{pod.namespace}/{pod.name}" if pod else uid


def _that_wait(state: ClusterState, pod: PodUid) -> list[PlanId]:
    """Plans that wait for a person and are to move it; others may have been made since."""
    return [plan for plan in state.proposals if plan in state.plans and any(move.pod == pod for move in state.plans[plan].planned.moves)] if pod in state.pods else []


def _is_to_move(view: PlanView | None) -> str:
    match "" if view is None else view.phase:
        case "observed":
            return "would move it, and was only observed"
        case "proposed" if view is not None:
            return f"is to move it, and waits for a person since {view.at}, until {view.waits_until}"
        case "rejected" if view is not None:
            return f"was to move it, and was rejected by {view.by}"
    return "moves it"


def _not_begun(state: ClusterState, plan: PlanId, id: str) -> str:
    """Why a planned move is no migration."""
    view = plan_view(state, plan)
    step = next((one.step for one in migrations_of(state, plan) if one.id == id), "")
    if view is not None and step == "observed":
        return f"only observed: plan {plan} was made in mode observe, in which nothing is moved"
    if view is not None and step == "proposed":
        return f"waits for a person since {view.at}, until {view.waits_until}: `restow approve {plan}`, or `restow reject {plan} --reason ...`"
    if view is not None and step == "declined":
        said = f"{view.answer} by {view.by}, {view.answered}{': ' * bool(view.why)}{view.why}" if view.answer else view.cancelled
        return f"declined: plan {plan} was {'approved without it' if view.answer == 'approved' else 'not approved'} ({said})"
    return "planned, but void: its pod was gone, or already in another migration"


def _migration_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    say = answer.verdict.append
    record = state.migrations.get(story.subject.id)  # type: ignore[call-overload]
    if record is None:
        plan = next((id for id, known in state.plans.items() if any(move.migration == story.subject.id for move in known.planned.moves)), PlanId(""))
        say(_not_begun(state, plan, story.subject.id))
        return
    move = record.move
    where = f"from {move.source} to {move.target}" if move.target else f"from {move.source}, evicted alone"
    if record.back:
        where = f"back to {move.source}, since {rfc3339(record.back)}"
    say(f"{record.step} since {rfc3339(record.since)}: {move.namespace}/{move.name} {where}")
    say(f"it was planned {purpose(state, record)}")
    if record.reason:
        said = record.message or ENDED.get(record.reason, "")
        say(f"{record.reason}{': ' if said else ''}{said}")
    if record.step is Step.NOT_RECREATED:
        say(NOBODY_FOLLOWED)
    if record.step not in FINAL and record.deadline:
        say(f"has until {rfc3339(migration.until(state, record))}")
    if record.successor:
        say(f"its successor is {_pod_name(state, record.successor)}")
    if (beside := beside_view(state, record)) is not None and beside.message:
        say(f"{beside.stage}: {beside.message}")
    answer.verdict += consent_lines(state, record)
    answer.verdict += beside_lines(state, record)


def _node_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    name, say = story.subject.name, answer.verdict.append
    node = state.nodes.get(name)  # type: ignore[call-overload]
    if node is None:
        say(_gone(story.last(e.NodeGone)))
        return
    if node.unreadable:
        say(f"cannot be read, so it takes no new pods, and all else is as it was known last: {node.unreadable}")
    say(("ready" if node.ready else "not ready") + (", cordoned" if node.unschedulable and not node.unreadable else ""))
    for taint in node.taints:
        say(f"taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}")
    row, table = state.table.rows[node.name], state.table
    for resource, column in table.columns.items():
        of = int(table.allocatable[row, column])
        if not of:
            continue
        parts = [f"{r.amount(resource, int(table.used[row, column]))} used"]
        for amounts, what in ((table.reserved, "reserved"), (table.releasing, "being released")):
            if amount := int(amounts[row, column]):
                parts.append(f"{r.amount(resource, amount)} {what}")
        say(f"{r.title(resource)}: {', '.join(parts)} of {r.amount(resource, of)}")
    answer.verdict += by_claim.node_lines(state, node.name)
    held = len(state.held_on.get(node.name, ()))
    say(f"{counted(len(state.on_node.get(node.name, ())), 'pod')}, {counted(held, 'slot')} held for others")


def _queue_verdict(state: ClusterState, story: Story, answer: Any) -> None:
    name, say = story.subject.name, answer.verdict.append
    fact = state.queues.get(name)
    if fact is None and name == DEFAULT_QUEUE:
        say("it has no object: whatever names no queue is in it all the same")
        fact = e.QueueObserved(DEFAULT_QUEUE, "", Millis(0))
    if fact is None:
        say(_gone(story.last(e.QueueGone)))
        return
    if fact.invalid:
        say(f"cannot be read: {fact.invalid}")
    say(f"{fact.state}, weight {fact.weight}" + (f", below {fact.parent}" if fact.parent else "") + ("" if fact.reclaimable else ", not reclaimable"))
    counts = queue_status.Tally(state).counts(state, name)
    groups = ", ".join(f"{counts[phase]} {phase}" for phase in queue_status.PHASES if counts[phase])
    say(f"PodGroups: {groups or 'none'}")
    used = queue_status.used(state, name)
    say(f"allocated: {amounts_text({r: used[c] for r, c in state.table.columns.items() if used.get(c)}) or 'nothing'}")
    for field, amounts in (("capability", fact.capability), ("guarantee", fact.guarantee), ("deserved", fact.deserved)):
        if amounts:
            say(f"{field}: {amounts_text(amounts)}")


VERDICTS = {
    "pod": _pod_verdict,
    "reservation": _reservation_verdict,
    "migration": _migration_verdict,
    "podgroup": _group_verdict,
    "node": _node_verdict,
    "queue": _queue_verdict,
}
"""Kind → what fills the answer of `why` in."""
