"""Whether a log is whole: every record is there, and follows from those before it (`restow.domain.history`)."""

from __future__ import annotations

import msgspec

from restow.domain import record_trust
from restow.domain.history import BROKEN, History
from restow.domain.state import ClusterState
from restow.eventlog.port import Record, missing
from restow.replay.source import Source
from restow.replay.state_at import Progress, examine_record, no_progress

KEPT = 20
"""Breaks that are told in full, and records that are not ours."""


class Break(msgspec.Struct, frozen=True):
    """`seq` is the first record that is missing, or the one that follows from another history. `repaired`: the record that says that the log goes
    on from there, 0 for none."""

    seq: int
    family: str
    what: str
    repaired: int = 0


class Stranger(msgspec.Struct, frozen=True):
    """A record that is not ours, and void."""

    seq: int
    family: str
    what: str


class Wholeness(msgspec.Struct):
    """Of `records`, `said` name the digest of what their writer had read, and `compared` of these could be compared. `void` are not ours; `strangers`
    are the first of them."""

    source: str
    log_id: str
    cluster: str
    first: int
    last: int
    records: int = 0
    said: int = 0
    compared: int = 0
    digest: str = ""
    """Of the whole log, up to `last`; empty where it is not known (part of a log in which nobody has said it)."""
    broken: int = 0
    """The first record at which the log is broken and was not repaired; 0 where it is whole."""
    breaks: list[Break] = []
    """The first of them, and the first that was not repaired."""
    count: int = 0
    """Of all breaks."""
    repairs: list[int] = []
    shown_by: str = ""
    """Of a log that is broken: which of several brokers leads it. The others may have what this one lacks."""
    passed: int = 0
    """Of a running log that is broken: the last record of a snapshot behind that, by which services go on; 0 where there is none."""
    void: int = 0
    strangers: list[Stranger] = []

    @property
    def sentence(self) -> str:
        if self.broken:
            return f"{BROKEN} at record {self.broken}"
        if self.count:
            more = f" and {self.count - len(self.breaks)} more" if self.count > len(self.breaks) else ""
            return f"the log was broken at {'record' if self.count == 1 else 'records'} {', '.join(str(one.seq) for one in self.breaks)}{more}, and was repaired"
        return "the log is whole: no record is missing, and each follows from those before it" if self.compared else "no record is missing; none says what it follows from"


class Held(msgspec.Struct):
    """What an archive holds, beside the log that it was made of: records `first` to `last`, which are the log's up to `same` (0 for none). `more`: the first that
    the log has not, or has another one of; 0 for none."""

    archive: str
    first: int
    last: int
    same: int = 0
    more: int = 0

    @property
    def sentence(self) -> str:
        held = f"the archive in {self.archive} holds records {self.first} to {self.last}"
        if not self.more:
            return f"{held}: nothing that the log has not"
        return f"{held}: {self.more} to {self.last} are not in the log, or others are. To have them back, restore it (docs/install.md) instead of a repair"


def compare(log: Source, archive: Source, progress: Progress = no_progress) -> Held:
    """What the archive holds that the log, of which it is, does not. Raises what they raise."""
    held = Held(archive.name, archive.first, archive.last)
    theirs = (record for batch in log.batches(archive.first) for record in batch)
    there = next(theirs, None)
    for batch in archive.batches():
        for record in batch:
            if record.seq < log.first:
                # What was truncated is nowhere else.
                held.same = record.seq
                continue
            while there is not None and there.seq < record.seq:
                there = next(theirs, None)
            if there is None or (there.seq, there.family, there.envelope, there.body) != (record.seq, record.family, record.envelope, record.body):
                held.more = record.seq
                return held
            held.same = record.seq
        progress(batch[-1].seq - archive.first + 1, archive.last - archive.first + 1)
    return held


def said(state: ClusterState) -> str:
    """That nothing is decided as of this state, and what to do; empty while the log is whole, or repaired."""
    if not state.broken:
        return ""
    return f"{BROKEN} at record {state.broken}, so nothing is decided: `restow log verify` says what is wrong, `restow log repair` goes on without it"


def check(source: Source, progress: Progress = no_progress) -> Wholeness:
    """Read all of it. Raises what the source raises."""
    return _Check(source, progress).run()


class _Check:
    def __init__(self, source: Source, progress: Progress) -> None:
        self._source, self._progress = source, progress
        self._found = Wholeness(source.name, source.log_id, source.cluster, source.first, source.last)
        self._history: History | None = History() if source.first <= 1 else None
        self._before: list[Record] = []
        """Of part of a log, what comes before the first record that says a digest."""
        self._expected = source.first
        self._open: list[int] = []
        """Breaks that were not repaired: where they are in the list."""

    def run(self) -> Wholeness:
        found, source = self._found, self._source
        for batch in source.batches():
            for record in batch:
                self._take(record)
            self._progress(batch[-1].seq - source.first + 1, source.last - source.first + 1)
        if self._expected <= source.last:
            self._breaks(Break(self._expected, "", missing(self._expected, source.last)))
        elif source.claimed > source.last:
            self._breaks(Break(self._expected, "", f"the broker says that there are records up to {source.claimed}, and cannot show them"))
        if self._history is not None:
            found.digest = self._history.digest.hex()
        return found

    def _take(self, record: Record) -> None:
        found, envelope, expected = self._found, record.envelope, self._expected
        found.records += 1
        found.said += bool(envelope.digest)
        self._expected = record.seq + 1
        if record.seq != expected:
            self._breaks(Break(expected, "", missing(expected, record.seq - 1)))
        examined = examine_record(record, self._source.log_id)
        if examined.kind:
            found.void += 1
            if len(found.strangers) < KEPT:
                found.strangers.append(Stranger(record.seq, record.family, examined.why))
        history = self._history or self._begun(record)
        if history is None:
            self._before.append(record)
            return
        if not examined.kind:
            self._judge(record, history)
        history.add(record.seq, record.family, envelope, record.body)

    def _judge(self, record: Record, history: History) -> None:
        envelope = record.envelope
        if envelope.digest and history.at(int(envelope.digest.partition(":")[0])) is not None:
            self._found.compared += 1
        if why := history.differs(record.seq, envelope):
            self._breaks(Break(record.seq, record.family, f"it follows from another history: {why}"))
        elif record.family == "gc" and record_trust.repairs(record.family, record.body):
            self._found.repairs.append(record.seq)
            for number in self._open:
                self._found.breaks[number] = msgspec.structs.replace(self._found.breaks[number], repaired=record.seq)
            self._open.clear()
            self._found.broken = 0

    def _begun(self, record: Record) -> History | None:
        """The history of part of a log, from the first record on that says what comes before it."""
        known_to, _, digest = record.envelope.digest.partition(":")
        if not digest or not self._source.first - 1 <= int(known_to) < record.seq:
            return None
        self._history = history = History(int(known_to), bytes.fromhex(digest))
        for before in self._before:
            if before.seq > history.seq:
                history.add(before.seq, before.family, before.envelope, before.body)
        self._before.clear()
        return history

    def _breaks(self, one: Break) -> None:
        found = self._found
        found.count += 1
        if len(found.breaks) < KEPT or not found.broken:
            self._open.append(len(found.breaks))
            found.breaks.append(one)
        found.broken = found.broken or one.seq


