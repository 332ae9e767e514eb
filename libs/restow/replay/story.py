"""What a story is made of: the entries that concern one thing, and what that thing is tied to."""

from __future__ import annotations

from typing import Any

import msgspec

from restow.contracts import events as e
from restow.contracts.codec import Decision, name_of
from restow.contracts.ids import Millis
from restow.eventlog.port import Record
from restow.replay.find import Subject
from restow.replay.sentences import command_text, sentence
from restow.replay.state_at import time_of

OF_MEMBERS = (e.PodObserved, e.PodGone, e.PodPlaced, e.PodReleased, e.HandedOver, e.Nominated, e.NominationEnded, e.Preempted,
               e.TaskReserved, e.TaskUnreserved)  # fmt: skip
"""What the story of a PodGroup tells of its pods."""


class Entry(msgspec.Struct, frozen=True):
    """One event of a story. `own` is about the subject itself, the others about what it is tied to. `by` is the command."""

    seq: int
    decision: int
    time: Millis
    family: str
    event: str
    text: str
    by: str
    read: int
    cause: str = ""
    correlation: str = ""
    own: bool = True
    detail: Any = None


class Story(msgspec.Struct):
    """`pods`, `reservations` and `migrations` are what the subject is tied to, itself included; `nameless` are pods that are
    mentioned, and whose names are wanted. Of a PodGroup `pods` are its members, and what is told of several of them in one
    decision is one entry."""

    subject: Subject
    entries: list[Entry] = []
    pods: dict[str, int] = {}
    reservations: dict[str, int] = {}
    migrations: dict[str, int] = {}
    names: dict[str, str] = {}
    nameless: dict[str, None] = {}

    def last(self, *types: type, before: int | None = None, **fields: str) -> Entry | None:
        """The latest entry of these types, before a sequence, whose event has these fields."""
        for entry in reversed(self.entries):
            if before is not None and entry.seq >= before:
                continue
            if isinstance(entry.detail, types) and all(getattr(entry.detail, k) == v for k, v in fields.items()):
                return entry
        return None


def entry_of(story: Story, record: Record, index: int, decision: Decision, event: Any, *more: Any) -> Entry:
    """One entry for an event of a decision, and for `more` that are alike."""
    text = sentence(event, story.names)
    if more:
        text += f", and {len(more)} more {'of its pods ' if story.subject.kind == 'podgroup' else ''}alike"
    if isinstance(event, e.Planned):
        mine = [m for m in event.moves if m.migration in story.migrations]
        text += "; " + ", ".join(f"{m.migration} moves {m.namespace}/{m.name} from {m.source} to {m.target}" for m in mine)
    return Entry(
        record.seq,
        index,
        time_of(record),
        record.family,
        name_of(event),
        text,
        command_text(decision.command),
        record.envelope.read,
        decision.cause,
        decision.correlation,
        _own(story.subject, event),
        event,
    )


def _own(subject: Subject, event: Any) -> bool:
    """Whether it is about the subject itself."""
    match subject.kind:
        case "node":
            return isinstance(event, e.NodeObserved | e.NodeGone)
        case "queue":
            return isinstance(event, e.QueueObserved | e.QueueGone)
        case "podgroup" if not isinstance(event, OF_MEMBERS):
            return True
    return subject.id in _ids_of(event)


def _ids_of(event: Any) -> set[str]:
    ids = {getattr(event, name, "") for name in ("pod", "reservation", "migration")}
    if isinstance(event, e.Unfit | e.Withheld):
        ids |= set(event.pods)
    if isinstance(event, e.Preempted):
        ids.add(event.by)
    if isinstance(event, e.Planned):
        ids |= {move.migration for move in event.moves} | {move.pod for move in event.moves}
    return ids
