"""The state at a point of a log: `state = fold(log)`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from restow.contracts.codec import Decision
from restow.contracts.ids import Millis
from restow.contracts.times import rfc3339, stamped
from restow.domain import fold, record_trust
from restow.domain.record_trust import Examined
from restow.domain.state import ClusterState, Touched
from restow.eventlog.port import Record
from restow.replay.source import Source

Progress = Callable[[int, int], None]
"""Called with work done and work in all, in records."""


Watch = Callable[[ClusterState, Record, Examined], object]
"""Hears of every record once it is folded, and what it was taken for."""


class ReplayError(ValueError):
    """A log, or a part of one, from which the answer cannot be had. Says where, why and what to do."""


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


def nobody(state: ClusterState, record: Record, found: Examined) -> None:
    """Watches."""


def check_whole(source: Source) -> None:
    """Raise ReplayError unless the log is there from its beginning: a fold needs all of it."""
    if source.first > 1 and source.last >= source.first:
        raise ReplayError(
            f"{source.name} begins at sequence {source.first}, and a state needs the log from 1. "
            "Name the archive of what was truncated away (--archive DIR; the garbage collector's container knows its own), or the whole export"
        )


def examine_record(record: Record, log_id: str = "") -> Examined:
    """Whether it is a record of ours, and what it says. `log_id`: of the log that it is in."""
    return record_trust.examine(record.family, record.envelope, record.body, log_id)


def examine_next(state: ClusterState, record: Record, log_id: str = "") -> Examined:
    """The same of the record that is to be folded next: also whether it follows from another history."""
    return record_trust.in_history(state.history, record.seq, record.envelope, examine_record(record, log_id))


def decode_record(record: Record, log_id: str = "") -> tuple[Decision, ...]:
    """The record's decisions; none where it is not ours, for then it is void (RULES G-16)."""
    return examine_record(record, log_id).decisions


def time_of(record: Record) -> Millis:
    """The time of its envelope, which is the one that is folded. Of a record that has none: when it was stored."""
    try:
        return stamped(record.envelope.time)
    except (ValueError, OverflowError):
        return Millis(record.time // 1_000_000)


def fold_record(state: ClusterState, record: Record, log_id: str = "") -> None:
    """Fold one record as every service does. Raises ReplayError."""
    fold_examined(state, record, examine_record(record, log_id), log_id)


def fold_examined(state: ClusterState, record: Record, found: Examined, log_id: str = "") -> Examined:
    """Fold one that was looked at already; says what it was taken for. Raises ReplayError."""
    try:
        return fold.fold_examined(state, record.seq, record.family, record.envelope, record.body, found, log_id)
    except (msgspec.ValidationError, KeyError, IndexError, TypeError) as error:
        raise ReplayError(
            f"sequence {record.seq} ({record.family}) cannot be folded: {type(error).__name__}: {error}"
        ) from error


def state_at(
    source: Source, *, seq: int | None = None, time: Millis | None = None, progress: Progress = no_progress, watch: Watch = nobody, begin: ClusterState | None = None
) -> ClusterState:
    """The state after sequence `seq`; or after the last commit before the first one whose time is later than `time`; or at
    the end of the log. `begin`: a state before that to go on from, which becomes this one. Raises ReplayError."""
    if begin is None:
        check_whole(source)
    if seq is not None and not 0 <= seq <= source.last:
        raise ReplayError(f"{source.name} holds sequences {source.first} to {source.last}; {seq} is not one of them")
    stop = source.last if seq is None else seq
    state = ClusterState() if begin is None else begin
    for batch in source.batches(state.seq + 1, stop):
        for record in batch:
            if time is not None and time_of(record) > time:
                if not state.seq:
                    raise ReplayError(f"{source.name} begins at {rfc3339(time_of(record))}; {rfc3339(time)} is before that")
                return state
            watch(state, record, fold_examined(state, record, examine_record(record, source.log_id), source.log_id))
        # Nobody looks at what was touched here, and it would grow with the log.
        state.touched = Touched()
        progress(batch[-1].seq, stop)
    return state
