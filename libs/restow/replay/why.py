"""Why something is as it is: its story, the chain of causes that led there, and the verdict on it now.

Verdicts are not stored: they are decided again, at the `read` of the commit that told of them and at the end of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.contracts.times import rfc3339
from restow.domain import defragmentation
from restow.domain.defragmentation.explain import PLANNED
from restow.domain.evolve.reservations import fit_message
from restow.domain.records import FINAL, SlotPhase
from restow.domain.session.verdict import Verdict, explain
from restow.domain.state import ClusterState
from restow.replay.at import Progress, ReplayError, check_whole, decode_record, fold_record, no_progress
from restow.replay.find import Subject, find
from restow.replay.sentences import command_text, devices_text, sentence
from restow.replay.source import Source
from restow.replay.story import Entry, Story, tell

_CAUSE = re.compile(r"(\d+)/(\d+)")
_DEPTH = 8


class Link(msgspec.Struct, frozen=True):
    """One cause. `seq` 0 is a trigger from outside the log."""

    text: str
    seq: int = 0
    decision: int = 0
    family: str = ""
    by: str = ""


class Stays(msgspec.Struct, frozen=True):
    """What the last plan, committed at `seq`, thought of a pod. `removed` counts targets per rule."""

    seq: int
    plan: str
    verdict: str
    message: str
    removed: dict[str, int] = {}

    @property
    def moves(self) -> bool:
        return self.verdict == PLANNED


class Why(msgspec.Struct):
    """`chain` begins with the latest step and ends with what started it all. `verdict` is the state now, in sentences;
    `unfit` the full verdict on a waiting pod at sequence `decided_at`, `present` the one at the end of the log."""

    subject: Subject
    seq: int
    verdict: list[str]
    chain: list[Link]
    story: list[Entry]
    unfit: Verdict | None = None
    decided_at: int = 0
    present: Verdict | None = None
    stays: Stays | None = None


def why(source: Source, text: str, progress: Progress = no_progress) -> Why:
    """Raises NotFound, Ambiguous, ReplayError."""
    check_whole(source)
    subject = find(source, text)
    story = tell(source, subject, lambda done, total: progress(done, 2 * total))
    answer = Why(subject, source.last, [], chain(source, story), story.entries)
    state = _fold(source, _questions(source, story, answer), lambda done, total: progress(total + done, 2 * total))
    _VERDICTS[subject.kind](state, story, answer)
    return answer


def _questions(source: Source, story: Story, answer: Why) -> dict[int, list[Callable[[ClusterState], None]]]:
    """What to ask on the way to the end: the verdict on a pod where it was last told to wait, and at the last plan."""
    asked: dict[int, list[Callable[[ClusterState], None]]] = {}
    pod = PodUid(story.subject.id)
    if story.subject.kind != "pod":
        return asked
    if told := story.last(e.Unfit):

        def wait(state: ClusterState) -> None:
            if pod in state.pods:
                answer.unfit, answer.decided_at = explain(state, pod), state.seq

        asked.setdefault(told.read, []).append(wait)
    if planned := _last_plan(source):
        seq, read, command = planned

        def stay(state: ClusterState) -> None:
            answer.stays = _why_it_stays(state, pod, seq, command)

        asked.setdefault(read, []).append(stay)
    return asked


def _last_plan(source: Source) -> tuple[int, int, c.Defragment] | None:
    """Sequence, read and command of the last plan that had any move or verdict."""
    found = None
    for batch in source.batches():
        for record in batch:
            if record.family == "migration" and b'"migration.planned"' in record.body:
                for decision in decode_record(record):
                    if isinstance(decision.command, c.Defragment) and decision.events:
                        found = record.seq, record.envelope.read, decision.command
    return found


def _why_it_stays(state: ClusterState, pod: PodUid, seq: int, command: c.Defragment) -> Stays | None:
    """What the plan of commit `seq` thought of a running pod, decided again in full; None where it was not there yet."""
    live, args = state.live.get(pod), state.migration_config.defragmentation
    if live is None or live.node is None or args is None:
        return None
    for candidate in defragmentation.explain(state, args, command.time, state.migration_config.max_moves):
        if candidate.pod == pod:
            return Stays(seq, command.plan, candidate.verdict, candidate.message, candidate.removed)
    return Stays(seq, command.plan, "NotOnSource", f"its node {live.node} was not a source")


def _fold(
    source: Source, asked: dict[int, list[Callable[[ClusterState], None]]], progress: Progress
) -> ClusterState:
    state = ClusterState()
    for batch in source.batches():
        for record in batch:
            fold_record(state, record)
            for question in asked.get(record.seq, ()):
                question(state)
        progress(batch[-1].seq, source.last)
    return state


# -- causes ----------------------------------------------------------------------------------------------------------


def chain(source: Source, story: Story) -> list[Link]:
    """From the latest step back to what started it."""
    steps = list(_CHAINS[story.subject.kind](story))
    if not steps:
        return []
    links = [_link(entry) for entry in steps]
    return links + list(_outside(source, steps[-1], {(s.seq, s.decision) for s in steps}))


def _link(entry: Entry) -> Link:
    return Link(entry.text, entry.seq, entry.decision, entry.family, entry.by)


def _outside(source: Source, last: Entry, seen: set[tuple[int, int]]) -> Iterator[Link]:
    """What the log names as cause of the last step: other decisions, and at the end a trigger."""
    cause = last.cause
    for _ in range(_DEPTH):
        match = _CAUSE.fullmatch(cause)
        if match is None:
            if cause:
                yield Link(f"trigger: {cause}")
            return
        at = int(match[1]), int(match[2])
        record = next((r for batch in source.batches(at[0], at[0]) for r in batch), None)
        decisions = decode_record(record) if record is not None else ()
        if record is None or at[1] >= len(decisions) or at in seen:
            return
        seen.add(at)
        decision = decisions[at[1]]
        first = sentence(decision.events[0], {}) if decision.events else command_text(decision.command)
        more = f", and {len(decision.events) - 1} more" if len(decision.events) > 1 else ""
        yield Link(first + more, *at, record.family, command_text(decision.command))
        cause = decision.cause


def _pod_chain(story: Story) -> Iterator[Entry]:
    pod = story.subject.id
    if evicted := _eviction(story, pod):
        if gone := story.last(e.PodGone, pod=pod):
            yield gone
        yield from _migration_chain(story, evicted, ends=())
        return
    reached = story.last(e.PodPlaced, e.HandedOver, e.PodReleased, e.Unfit)
    if reached is not None:
        yield reached
    if reached is not None and isinstance(reached.detail, e.PodReleased):
        reached = story.last(e.PodPlaced, e.HandedOver, before=reached.seq + 1, pod=pod)
        if reached is not None:
            yield reached
    if reached is not None and isinstance(reached.detail, e.HandedOver):
        yield from _hold_chain(story, reached.detail.reservation, reached.detail.slot, reached.seq)
    elif (seen := story.last(e.PodObserved, pod=pod)) is not None:
        yield seen


def _eviction(story: Story, pod: str) -> str:
    """The migration that evicted this pod, or empty."""
    for entry in reversed(story.entries):
        if isinstance(entry.detail, e.Planned):
            for move in entry.detail.moves:
                if move.pod == pod and story.last(e.Evicted, migration=move.migration):
                    return move.migration
    return ""


def _hold_chain(story: Story, reservation: str, slot: str, before: int) -> Iterator[Entry]:
    """held ← accepted ← observed ← asked for by a migration ← planned."""
    if slot and (held := story.last(e.HoldPlaced, reservation=reservation, slot=slot, before=before)):
        yield held
        before = held.seq
    if accepted := story.last(e.ReservationAccepted, e.ReservationRefused, reservation=reservation, before=before):
        yield accepted
        before = accepted.seq
    observed = story.last(e.ReservationObserved, reservation=reservation, before=before)
    if observed is None:
        return
    yield observed
    if observed.detail.migration:
        yield from _plan_chain(story, observed.detail.migration, observed.seq)


def _plan_chain(story: Story, migration: str, before: int) -> Iterator[Entry]:
    if holding := story.last(e.Holding, migration=migration, before=before):
        yield holding
    for entry in story.entries:
        if isinstance(entry.detail, e.Planned) and any(move.migration == migration for move in entry.detail.moves):
            yield entry
            return


def _reservation_chain(story: Story) -> Iterator[Entry]:
    uid = story.subject.id
    ends = (e.HandedOver, e.HoldReleased, e.HoldPlaced, e.HoldUnfit)
    reached = story.last(*ends, reservation=uid)
    if reached is None:
        yield from _hold_chain(story, uid, "", 1 << 62)
        return
    yield reached
    if isinstance(reached.detail, e.HoldReleased) and (expired := story.last(e.Expired, e.Collected, reservation=uid)):
        yield expired
    slot = "" if isinstance(reached.detail, e.HoldPlaced | e.HoldUnfit) else reached.detail.slot
    yield from _hold_chain(story, uid, slot, reached.seq)


_ENDS: tuple[type, ...] = (e.Landed, e.MigrationFailed, e.NotRecreated, e.HandedOver)


def _migration_chain(story: Story, id: str = "", ends: tuple[type, ...] = _ENDS) -> Iterator[Entry]:
    id, before = id or story.subject.id, 1 << 62
    for types in (ends[:-1], ends[-1:], (e.Evicted, e.Aborting), (e.Evicting,), (e.Held,)):
        fields = {} if types == (e.HandedOver,) else {"migration": id}
        if types and (entry := story.last(*types, before=before, **fields)):
            yield entry
            before = entry.seq + 1 if types == (e.Evicting,) else entry.seq
    if held := story.last(e.HoldPlaced, before=before):
        yield held
    yield from _plan_chain(story, id, before)


_CHAINS = {"pod": _pod_chain, "reservation": _reservation_chain, "migration": _migration_chain}


# -- verdicts --------------------------------------------------------------------------------------------------------


def _pod_verdict(state: ClusterState, story: Story, answer: Why) -> None:
    uid, say = story.subject.id, answer.verdict.append
    observed = state.pods.get(uid)  # type: ignore[call-overload]
    if observed is None:
        gone = story.last(e.PodGone, pod=uid)
        say(f"gone since sequence {gone.seq}, {rfc3339(gone.time)}" if gone else "gone")
    else:
        answer.present = explain(state, uid)  # type: ignore[arg-type]
        for line in verdict_lines(state, answer.present):
            say(line)
    for id in story.migrations:
        record = state.migrations.get(id)  # type: ignore[call-overload]
        if record is not None:
            role = "it is moved by" if record.move.pod == uid else "it is the successor in"
            say(f"{role} migration {id}, which is {record.step}{f' ({record.reason})' if record.reason else ''}")
    if answer.stays is not None and observed is not None:
        say(f"plan {answer.stays.plan} ({answer.stays.seq}) {'moves it' if answer.stays.moves else 'leaves it there'}: {answer.stays.message}")
    if story.subject.earlier:
        say(f"{len(story.subject.earlier)} former pods had this name: {', '.join(story.subject.earlier)}")


def verdict_lines(state: ClusterState, verdict: Verdict) -> list[str]:
    """A verdict in sentences."""
    live = state.live[verdict.pod]
    match verdict.status:
        case "waiting":
            lines = [f"waits: {fit_message(verdict.nodes, verdict.reasons)}"]
            if verdict.reserved:
                lines.append(verdict.reserved)
            if verdict.fits:
                lines.append(f"it fits on {verdict.fits} nodes now: the next session will place it")
            lines += [f"would fit with {relief.change}: {relief.nodes} nodes" for relief in verdict.reliefs]
            return lines
        case "bound":
            devices = f", {devices_text(live.devices)}" if live.devices else ""
            return [f"{live.phase}{', ready' if live.ready else ''}, on {verdict.node}{devices}"]
        case "placed":
            return [f"placed on {verdict.node}" + (f", out of hold {verdict.hold}" if verdict.hold else "") + ", not bound yet"]
        case "terminating":
            return [f"terminating since {rfc3339(live.deleting)}" + (f", on {verdict.node}" if verdict.node else "")]
        case "finished":
            return [live.phase + (f": {live.reason}" if live.reason else "")]
        case "gated":
            return ["waits for its scheduling gates to be removed"]
        case "foreign":
            return [f"another scheduler's ({state.shapes[state.pods[verdict.pod].shape].scheduler}): Restow never touches it"]
    return [verdict.status]


def _reservation_verdict(state: ClusterState, story: Story, answer: Why) -> None:
    uid, say = story.subject.id, answer.verdict.append
    phase = state.phases.get(uid)  # type: ignore[call-overload]
    if phase is None:
        gone = story.last(e.ReservationGone, reservation=uid)
        say(f"gone since sequence {gone.seq}, {rfc3339(gone.time)}" if gone else "gone")
        return
    why = f" ({phase.reason})" if phase.reason else ""
    say(f"{phase.phase}{why} since {rfc3339(phase.since)}{': ' if phase.message else ''}{phase.message}")
    record = state.reservations[uid]  # type: ignore[index]
    if not record.accepted and not record.refused:
        say("not reviewed yet")
    if record.expires and not record.expired:
        say(f"expires {rfc3339(record.expires)}")
    for name, slot in sorted(state.slots[uid].items()):  # type: ignore[index]
        match slot.phase:
            case SlotPhase.HELD:
                say(f"place {name}: held on {slot.node} {devices_text(slot.devices)}".rstrip())
            case SlotPhase.USED:
                say(f"place {name}: used by {story.names.get(slot.pod) or _pod_name(state, slot.pod)} on {slot.node}")
            case SlotPhase.FAILED:
                say(f"place {name}: ended: {slot.reason}")
            case SlotPhase.PENDING:
                say(f"place {name}: waits" + (f": {fit_message(slot.nodes, slot.reasons)}" if slot.reasons else ""))


def _pod_name(state: ClusterState, uid: Any) -> str:
    pod = state.pods.get(uid)
    return f"{pod.namespace}/{pod.name}" if pod else uid


def _migration_verdict(state: ClusterState, story: Story, answer: Why) -> None:
    say = answer.verdict.append
    record = state.migrations.get(story.subject.id)  # type: ignore[call-overload]
    if record is None:
        say("planned, but void: its pod was gone, or already in another migration")
        return
    move = record.move
    say(f"{record.step} since {rfc3339(record.since)}: {move.namespace}/{move.name} from {move.source} to {move.target}")
    if record.reason:
        say(f"{record.reason}{': ' if record.message else ''}{record.message}")
    if record.step not in FINAL and record.deadline:
        say(f"has until {rfc3339(record.deadline)}")
    if record.successor:
        say(f"its successor is {_pod_name(state, record.successor)}")


_VERDICTS = {"pod": _pod_verdict, "reservation": _reservation_verdict, "migration": _migration_verdict}

__all__ = ["Link", "ReplayError", "Why", "chain", "verdict_lines", "why"]
