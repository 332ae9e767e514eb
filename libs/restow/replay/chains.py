"""The chain of causes: from the latest step of a story back to what started it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from restow.contracts import events as e
from restow.replay.sentences import command_text, sentence
from restow.replay.source import Source
from restow.replay.state_at import decode_record
from restow.replay.story import Entry, Story

_CAUSE = re.compile(r"(\d+)/(\d+)")
_DEPTH = 8


class Link(msgspec.Struct, frozen=True):
    """One cause. `seq` 0 is a trigger from outside the log."""

    text: str
    seq: int = 0
    decision: int = 0
    family: str = ""
    by: str = ""


def chain(source: Source, story: Story) -> list[Link]:
    """From the latest step back to what started it. A node or a queue has no one history, and no chain."""
    told = _CHAINS.get(story.subject.kind)
    steps = list(told(story)) if told else []
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
        decisions = decode_record(record, source.log_id) if record is not None else ()
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
    if preempted := story.last(e.Preempted, pod=pod):
        if gone := story.last(e.PodGone, pod=pod):
            yield gone
        yield preempted
    reached = story.last(*_REACHED)
    if reached is not None:
        yield reached
        if nominated := story.last(e.Nominated, before=reached.seq, pod=pod):
            yield nominated
    if reached is not None and isinstance(reached.detail, e.PodReleased):
        reached = story.last(e.PodPlaced, e.HandedOver, before=reached.seq + 1, pod=pod)
        if reached is not None:
            yield reached
    if reached is not None and isinstance(reached.detail, e.HandedOver):
        yield from _hold_chain(story, reached.detail.reservation, reached.detail.slot, reached.seq)
    elif (seen := story.last(e.PodObserved, pod=pod)) is not None:
        yield seen


_REACHED = (e.PodPlaced, e.HandedOver, e.PodReleased, e.Unfit, e.Withheld, e.Nominated)


def _group_chain(story: Story) -> Iterator[Entry]:
    """What the session said last of the gang, that it was let in, that it was seen."""
    before = 1 << 62
    for types in ((e.PodPlaced, e.Withheld, e.PodReleased), (e.Enqueued,), (e.PodGroupObserved,)):
        if entry := story.last(*types, before=before):
            yield entry
            before = entry.seq


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


_ENDS: tuple[type, ...] = (e.Landed, e.Removed, e.MigrationFailed, e.NotRecreated, e.HandedOver)


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


_CHAINS = {"pod": _pod_chain, "reservation": _reservation_chain, "migration": _migration_chain, "podgroup": _group_chain}
