"""Every decision of a log decided again: folded to its `restow-read`, by its decider, compared byte for byte (DESIGN 2).

One pass finds out what every commit had read. The next one checks the rules of the log, tells records that are not ours, which are void
(RULES G-16), and folds forward, one state for all families: to a commit's `read`, never beyond, there decides each of its commands again,
each on the state that includes the commit's earlier decisions as they were logged, and goes on. Only records between a `read` and its commit
are kept in memory.
"""

from __future__ import annotations

import heapq
import re
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode, encode_event, name_of
from restow.contracts.ids import FAMILIES, Millis
from restow.contracts.times import rfc3339
from restow.contracts.upcasters import is_old
from restow.domain import record_trust
from restow.domain.decider import Decider, Rejected, decide
from restow.domain.fold import apply
from restow.domain.history import History
from restow.domain.record_trust import Examined
from restow.domain.state import ClusterState, Touched
from restow.domain.too_old import TOO_OLD, too_old
from restow.eventlog.port import Record
from restow.replay.report import Difference, FamilyReport, Report
from restow.replay.source import Source
from restow.replay.state_at import Progress, check_whole, examine_record, fold_examined, no_progress

AHEAD = 3_600_000
"""Milliseconds that a commit may say to be later than it was stored: of an hour no clock of ours is ahead (`runtime.clock.LogClock`)."""
_LOGIC = re.compile(r"[a-z]+@[0-9]{1,9}")

FACTS = "cluster"
"""The family that decides nothing: its commits are facts."""


class _RawDecision(msgspec.Struct):
    command: msgspec.Raw
    events: list[msgspec.Raw]


class _RawCommit(msgspec.Struct):
    decisions: list[_RawDecision]


_raw = msgspec.json.Decoder(_RawCommit).decode
_KNOWN = frozenset(e.EVENTS)


def verify(source: Source, deciders: Mapping[str, Decider], *, progress: Progress = no_progress) -> Report:
    """Check the whole log. Raises ReplayError and LogError where it cannot be read or folded."""
    started = time.perf_counter()
    check_whole(source)
    report = Report(source.name, source.log_id, source.cluster, source.first, source.last)
    total = 2 * source.last
    reads = _reads(source, deciders, partial(_shifted, progress, 0, total))
    again = _Again(source, deciders, report, partial(_shifted, progress, source.last, total))
    again.run(reads)
    report.void = dict(sorted(again.state.void.items()))
    progress(total, total)
    report.seconds = time.perf_counter() - started
    return report


def _shifted(progress: Progress, base: int, total: int, done: int) -> None:
    progress(base + done, total)


# -- what is in the log ----------------------------------------------------------------------------------------------


class _Reads(NamedTuple):
    """Of one family's commits that can be decided again, in their order: what each had read, and which record of the log it is."""

    targets: array
    numbers: array


def _reads(source: Source, deciders: Mapping[str, Decider], progress: Callable[[int], None]) -> list[_Reads]:
    found: dict[str, _Reads] = {family: _Reads(array("q"), array("q")) for family in FAMILIES if family != FACTS and family in deciders}
    number, history = 0, History()
    for batch in source.batches():
        for record in batch:
            number += 1
            own, of_another = found.get(record.family), history.differs(record.seq, record.envelope)
            history.add(record.seq, record.family, record.envelope, record.body)
            if own is not None and not of_another and _is_decided_again(record, deciders) and not examine_record(record, source.log_id).kind:
                own.targets.append(_target(own.targets, record))
                own.numbers.append(number)
        progress(batch[-1].seq)
    return list(found.values())


def _is_decided_again(record: Record, deciders: Mapping[str, Decider]) -> bool:
    decider = deciders.get(record.family)
    return decider is not None and record.family != FACTS and record.envelope.logic == decider.logic


def _target(reads: array, record: Record) -> int:
    """How far may be folded for this commit. A `read` that cannot be is replaced, and the commit will differ."""
    return max(reads[-1] if reads else 0, min(record.envelope.read, record.seq - 1))


def _count(report: Report, record: Record, decisions: Sequence[Decision], deciders: Mapping[str, Decider]) -> None:
    family = record.family
    own = report.families.setdefault(family, FamilyReport(family))
    events = sum(len(decision.events) for decision in decisions)
    report.commits += 1
    report.events += events
    own.commits += 1
    own.events += events
    own.logic = record.envelope.logic
    if family == FACTS:
        report.fact_commits += 1
        report.facts += events
        return
    own.decisions += len(decisions)
    report.decisions += len(decisions)
    decider = deciders.get(family)
    if decider is None:
        report.skips(family, f"no decider of family {family} here", len(decisions))
    elif decider.logic != record.envelope.logic:
        report.skips(family, f"{record.envelope.logic}, this Restow is {decider.logic}", len(decisions))
        if decisions:
            releases = report.elsewhere.setdefault(record.envelope.logic, {})
            releases[record.envelope.release] = releases.get(record.envelope.release, 0) + len(decisions)


def _check_envelope(report: Report, record: Record, last: dict[str, int]) -> None:
    read, seq, family = record.envelope.read, record.seq, record.family
    if read >= seq:
        report.breaks(seq, family, f"restow-read is {read}: nobody can have folded that before sequence {seq}")
    elif read < last[family]:
        report.breaks(seq, family, f"restow-read is {read}, before its family's previous commit {last[family]}")
    if not _LOGIC.fullmatch(record.envelope.logic):
        report.breaks(seq, family, f"restow-logic is {record.envelope.logic!r}, no version of a decider: nobody can decide it again")


def _check_times(report: Report, record: Record, found: Examined) -> None:
    """A command's time is an input that is decided again with: one ahead of its time expires what had not, and would be called identical.
    Who stored the record says when that was; one that was imported was stored later than it was decided, never earlier."""
    if not record.time:
        return
    stored = Millis(record.time // 1_000_000)
    said = [found.time, *(getattr(decision.command, "time", found.time) for decision in found.decisions)]
    if (latest := max(said)) > stored + AHEAD:
        report.breaks(record.seq, record.family, f"it says {rfc3339(latest)}, but was stored at {rfc3339(stored)}: nobody knows so early what is due then")


def _check_events(report: Report, record: Record, decisions: Sequence[Decision], epochs: dict[str, int]) -> None:
    family = record.family
    for decision in decisions:
        for event in decision.events:
            if isinstance(event, e.Unknown):
                name = name_of(event)
                report.unknown[name] = report.unknown.get(name, 0) + 1
                continue
            if isinstance(event, e.Led):
                if event.epoch <= epochs[family]:
                    report.breaks(record.seq, family, f"epoch {event.epoch} after epoch {epochs[family]}: epochs never go back")
                epochs[family] = max(epochs[family], event.epoch)


class _Checks:
    """The rules of the log, record by record in their order."""

    def __init__(self, source: Source, deciders: Mapping[str, Decider], report: Report) -> None:
        self._source, self._deciders, self._report = source, deciders, report
        self._last: dict[str, int] = dict.fromkeys(FAMILIES, 0)
        self._epochs: dict[str, int] = dict.fromkeys(FAMILIES, 0)
        self._expected = source.first
        self._history = History()

    def check(self, record: Record) -> Examined:
        """Count it, tell what is wrong with it, and return what it says."""
        report, family, expected = self._report, record.family, self._expected
        if record.seq != expected:
            report.breaks(record.seq, family, f"it follows sequence {expected - 1}: the order is broken")
        self._expected = record.seq + 1
        found = record_trust.in_history(self._history, record.seq, record.envelope, examine_record(record, self._source.log_id))
        self._history.add(record.seq, family, record.envelope, record.body)
        if found.kind:
            report.strange(record.seq, family, found.kind, found.why)
        else:
            _count(report, record, found.decisions, self._deciders)
            _check_envelope(report, record, self._last)
            _check_times(report, record, found)
            _check_events(report, record, found.decisions, self._epochs)
        if family in self._last:
            self._last[family] = record.seq
        return found

    def end(self) -> None:
        """There are no more records."""
        if self._expected <= self._source.last:
            self._report.breaks(self._expected, "", f"the log ends at {self._expected - 1}, but was said to end at {self._source.last}")


# -- deciding again --------------------------------------------------------------------------------------------------


class _Again:
    """One way through the log, for all families: deciders change nothing, so they may share a state."""

    def __init__(self, source: Source, deciders: Mapping[str, Decider], report: Report, progress: Callable[[int], None]) -> None:
        self.state = ClusterState()
        self._source, self._deciders, self._report, self._progress = source, deciders, report, progress
        self._checks = _Checks(source, deciders, report)
        self._records = self._checked()
        self._ahead: deque[tuple[Record, Examined]] = deque()
        """Read, and not folded yet."""
        self._commits: dict[int, tuple[Record, tuple[Decision, ...]]] = {}
        """What is to be decided again of them, by its number in the log."""

    def run(self, reads: Sequence[_Reads]) -> None:
        """Decide every commit again, in the order of what they had read, and fold the whole log."""
        for target, number in heapq.merge(*(zip(*own, strict=True) for own in reads)):
            self._fold_to(target)
            while number not in self._commits and self._read_on():
                pass
            record, decisions = self._commits.pop(number)
            began = time.perf_counter()
            self._visit(record, decisions)
            self._report.families[record.family].seconds += time.perf_counter() - began
        self._fold_to(self._source.last)
        self._checks.end()
        self._report.too_old = too_old(self.state)
        if broken := self.state.broken:
            self._report.breaks(broken, "", f"the log is broken at {broken}: `restow log verify` says how")

    def _checked(self) -> Iterator[tuple[Record, Examined]]:
        number = 0
        for batch in self._source.batches():
            for record in batch:
                number += 1
                found = self._checks.check(record)
                if not found.kind and _is_decided_again(record, self._deciders):
                    self._commits[number] = record, found.decisions
                yield record, found
            self._progress(batch[-1].seq)

    def _read_on(self) -> bool:
        """One more record, if there is one."""
        for one in self._records:
            self._ahead.append(one)
            return True
        return False

    def _fold_to(self, seq: int) -> None:
        """Fold what comes up to this sequence."""
        while self._ahead or self._read_on():
            record, found = self._ahead[0]
            if record.seq > seq:
                return
            self._ahead.popleft()
            fold_examined(self.state, record, found, self._source.log_id)

    def _visit(self, record: Record, logged: Sequence[Decision]) -> None:
        """Decide a commit's commands again, on the state at its `read`."""
        read, seq = record.envelope.read, record.seq
        if read >= seq or read < self.state.seq:
            note = f"restow-read {read} cannot be: the commit is {seq}, and its family had folded {self.state.seq}"
            for index, decision in enumerate(logged):
                self._report.differs(_difference(record, index, decision, (), note))
            return
        if too_old(self.state):
            # What was passed over may be what decides.
            self._report.skips(record.family, TOO_OLD, len(logged))
            return
        try:
            decided, notes = self._decide(record.family, logged)
        finally:
            # Nobody looks at what was touched here, and it would grow with the log.
            self.state.touched = Touched()
        if not any(notes) and encode(decided) == record.body:
            self._report.same(record.family, len(logged))
            return
        self._compare(record, logged, decided, notes)

    def _decide(self, family: str, logged: Sequence[Decision]) -> tuple[list[Decision], list[str]]:
        decided: list[Decision] = []
        notes: list[str] = []
        with self.state.draft():
            for index, decision in enumerate(logged):
                events, note = self._answer(family, decision.command)
                decided.append(Decision(decision.command, events, decision.cause, decision.correlation))
                notes.append(note)
                if index + 1 < len(logged):
                    apply(self.state, decision.events)
        return decided, notes

    def _answer(self, family: str, command: c.Command) -> tuple[tuple, str]:
        if isinstance(command, e.Unknown):
            return (), f"unknown command {name_of(command)}"
        try:
            return tuple(decide(self.state, self._deciders[family], command)), ""
        except Rejected as error:
            return (), f"the decider rejects this command: {error}"
        except Exception as error:
            # A decider that fails on a state that it once decided on is a finding about the decider, not about the log.
            return (), f"the decider fails: {type(error).__name__}: {error}"

    def _compare(self, record: Record, logged: Sequence[Decision], decided: Sequence[Decision], notes: Sequence[str]) -> None:
        raw = _raw(record.body).decisions
        for index, (old, new, note) in enumerate(zip(logged, decided, notes, strict=True)):
            if isinstance(old.command, e.Unknown):
                self._report.skips(record.family, note)
            elif not note and _texts(raw[index].events, old.events) == tuple(encode_event(event) for event in new.events):
                self._report.same(record.family)
            else:
                self._report.differs(_difference(record, index, old, new.events, note))


def _texts(raw: Sequence[msgspec.Raw], events: Sequence) -> tuple[bytes, ...]:
    """The logged bytes; of an event in an old version its present form."""
    return tuple(
        encode_event(event) if type(event) in _KNOWN and _is_old(text, event) else bytes(text)
        for text, event in zip(raw, events, strict=True)
    )


class _Tagged(msgspec.Struct):
    type: str


def _is_old(text: msgspec.Raw, event: e.Event) -> bool:
    name = name_of(event)
    return msgspec.json.decode(text, type=_Tagged).type != name or is_old(name, bytes(text))


def _difference(record: Record, index: int, old: Decision, decided: Sequence, note: str) -> Difference:
    raw = _raw(record.body).decisions[index]
    logged = tuple(text.decode(errors="replace") for text in _texts(raw.events, old.events))
    return Difference(
        seq=record.seq,
        decision=index,
        family=record.family,
        command=bytes(raw.command).decode(errors="replace"),
        logged=logged,
        decided=tuple(encode_event(event).decode() for event in decided),
        note=note,
    )
