"""A Reservation in full: where it is held, who may use it, who does, what is left, when it ends, and why it waits."""

from __future__ import annotations

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import Millis, ReservationUid
from restow.domain.other_schedulers import other_scheduler
from restow.domain.records import SlotPhase
from restow.domain.session.verdict import SlotsFit, explain_slots
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import overallocated
from restow.replay import holds
from restow.replay.find import NotFound, Subject, find, parse
from restow.replay.source import Source
from restow.replay.state_at import Progress, check_whole, no_progress, state_at
from restow.replay.story import Entry, Story
from restow.replay.story_entries import tell
from restow.replay.verdicts import slots_lines

LATEST = 8
"""Transitions that are told."""
_TRANSITIONS = (
    e.ReservationObserved, e.ReservationAccepted, e.ReservationRefused, e.ReservationGone, e.HoldPlaced, e.HoldReady, e.HoldBorrowed,
    e.HoldResized, e.HoldUnfit, e.HandedOver, e.HoldReleased, e.Expired, e.Collected,
)  # fmt: skip


class Described(msgspec.Struct):
    """Amounts are in canonical units, by resource: `allocatable` is held or used, `allocated` what owners use of it, `left`
    what they may still take, `waiting` and `missing` what slots that wait have of their capacity and what not, `beyond` what is
    used beyond the present size. `foreign`: the scheduler that it is for, where that is not Restow. Times are in ms since the epoch, 0 for never. `fit` and `waits` say how it stands with slots
    that have no node yet; `because` why it `ends` then."""

    subject: Subject
    seq: int
    time: Millis
    api: str
    phase: str
    reason: str = ""
    message: str = ""
    since: Millis = Millis(0)
    created: Millis = Millis(0)
    generation: int = 0
    accepted: int = 0
    deleting: Millis = Millis(0)
    min_available: int = 0
    queue: str = ""
    migration: str = ""
    owners: list[str] = []
    policy: list[str] = []
    ends: Millis = Millis(0)
    expired: bool = False
    because: str = ""
    allocatable: holds.Amounts = {}
    allocated: holds.Amounts = {}
    left: holds.Amounts = {}
    waiting: holds.Amounts = {}
    missing: holds.Amounts = {}
    beyond: holds.Amounts = {}
    foreign: str = ""
    slots: list[holds.SlotView] = []
    allocations: list[holds.AllocatedPod] = []
    unknown: tuple[str, ...] = ()
    fit: SlotsFit | None = None
    waits: list[str] = []
    transitions: list[Entry] = []


def described(source: Source, text: str, progress: Progress = no_progress) -> Described:
    """`text` as in `restow why`, `reservation/` may be left out. Raises NotFound, Ambiguous, ReplayError."""
    check_whole(source)
    asked = parse(text)
    if asked.kind not in ("", "reservation"):
        raise NotFound(f"{text!r} is no reservation; `restow why {text}` tells about pods, podgroups and migrations")
    subject = find(source, "/".join(part for part in ("reservation", asked.namespace, asked.name) if part))
    story = tell(source, subject, lambda done, total: progress(done, 2 * total))
    state = state_at(source, progress=lambda done, total: progress(total + done, 2 * total))
    answer = Described(subject, source.last, state.time, "", "gone", transitions=_transitions(story))
    if ReservationUid(subject.id) in state.reservations:
        _fill(state, ReservationUid(subject.id), answer)
    return answer


def _fill(state: ClusterState, uid: ReservationUid, answer: Described) -> None:
    record = state.reservations[uid]
    fact, phase = record.fact, state.phases.get(uid)
    spec = record.spec or fact.spec
    answer.api, answer.created, answer.generation, answer.accepted = fact.api, fact.created, fact.generation, record.accepted
    answer.deleting, answer.migration, answer.unknown = fact.deleting, fact.migration, fact.unknown
    answer.phase = str(phase.phase) if phase is not None else "new"
    if phase is not None:
        answer.reason, answer.message, answer.since = phase.reason, phase.message, phase.since
    if fact.invalid and not answer.message:
        answer.reason, answer.message = "InvalidSpec", fact.invalid
    answer.min_available = record.min_available
    answer.queue = spec.queue if spec is not None else ""
    answer.owners, answer.policy = holds.owners(spec), holds.policy(spec)
    answer.ends, answer.expired, answer.because = record.expires, record.expired, holds.ends_because(state, record)
    answer.slots = holds.slot_views(state, uid)
    answer.allocations = holds.allocated_pods(state, uid)
    answer.allocatable, answer.allocated = holds.amounts(answer.slots)
    answer.left = holds.total(slot.held for slot in answer.slots if slot.phase == SlotPhase.HELD)
    waiting = [slot for slot in answer.slots if slot.phase == SlotPhase.WAITING]
    answer.waiting = holds.total(slot.held for slot in waiting)
    answer.missing = holds.total(slot.missing for slot in waiting)
    answer.beyond = overallocated(answer.allocatable, answer.allocated)
    answer.foreign = other_scheduler(state, record)
    if any(slot.phase == SlotPhase.PENDING for slot in answer.slots):
        answer.fit = explain_slots(state, uid)
        if answer.fit is not None:
            answer.waits = slots_lines(answer.fit)


def _transitions(story: Story) -> list[Entry]:
    """The latest: those of one decision that are alike as one, and of waits that are told one after the other the last."""
    found: list[list[Entry]] = []
    for entry in story.entries:
        if not entry.own or not isinstance(entry.detail, _TRANSITIONS):
            continue
        last = found[-1][0] if found else None
        if last is not None and isinstance(entry.detail, e.HoldUnfit) and isinstance(last.detail, e.HoldUnfit):
            found[-1] = [entry]
        elif last is not None and (last.seq, last.decision, last.event) == (entry.seq, entry.decision, entry.event):
            found[-1].append(entry)
        else:
            found.append([entry])
    return [_told(story, *entries) for entries in found[-LATEST:]]


def _told(story: Story, entry: Entry, *alike: Entry) -> Entry:
    """Of the subject, which need not be named again."""
    name = story.names[story.subject.id]
    text = entry.text.replace(f" of {name}", "", 1).replace(f"reservation {name}", "it", 1)
    more = f", and {len(alike)} more alike" if alike else ""
    return msgspec.structs.replace(entry, text=text + more)
