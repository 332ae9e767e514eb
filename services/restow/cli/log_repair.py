"""Finding where a running log is broken, and writing that it goes on (`restow log repair`)."""

from __future__ import annotations

import msgspec

from restow import machine
from restow.cli.failures import UNUSABLE, Failure
from restow.contracts import commands as c
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.contracts.reader import needed
from restow.contracts.times import rfc3339
from restow.domain import record_trust
from restow.domain.gc import decider
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.eventlog.port import Conflict, EventLog
from restow.eventlog.snapshots import Snapshots
from restow.runtime import logs, release
from restow.runtime.loading import Loading

ATTEMPTS = 5
"""Commits of the collector's may come first."""


class Found(msgspec.Struct, kw_only=True):
    """`what` is not as it should be, empty for nothing. `lost`: the last record that somebody has read and the log lacks. `repairs`: how often it had
    been repaired by then. `seq`: of the repair."""

    state: ClusterState
    what: str = ""
    lost: int = 0
    repairs: int = 0
    seq: int = 0

    @property
    def void(self) -> int:
        return self.state.void[record_trust.OTHER_HISTORY]


async def look(log: EventLog, snapshots: Snapshots | None, archive: str | None, lost: int = 0) -> Found:
    """Fold the log as a service does that starts. Raises what the log raises, and LogMismatch where it was truncated, no snapshot is of what it holds now, and
    `archive` is None."""
    loading = Loading(log, snapshots, archive, lambda phase: None, logs.silent(), waits=False)
    state = await loading.state()
    await loading.follow(state)
    mark, repairs = loading.mark, 0
    known = "The log shows no break, but you say (--lost) that it has lost records"
    if mark is not None and mark.repairs >= state.repairs:
        lost, repairs = max(lost, mark.seq), mark.repairs
        known = "The log has lost records"
    what = f"The log is broken at record {state.broken}" if state.broken else ""
    if lost:
        there = f"it ends at {state.seq}, and {lost} was read of it before" if lost > state.seq else f"record {lost} was another one before"
        what = f"{what or known}: {there}"
    return Found(state=state, what=what, lost=lost, repairs=repairs)


async def in_archive(log: EventLog, archive: str | None, found: Found) -> bool:
    """Whether the archive holds what is missing: the collector takes it from there by itself. Raises Unavailable."""
    if archive is None or not found.state.broken:
        return False
    return await Loading(log, None, archive, lambda phase: None, logs.silent()).by_archive(archive, found.state.broken) is not None


async def write(log: EventLog, found: Found, person: str, reason: str) -> Found:
    """Put the repair on record, behind what was folded, and return it; `seq` is 0 where somebody else was faster. Raises Conflict where the log does not come
    to rest, and what the log raises."""
    state, repairs = found.state, found.state.repairs
    reading = Loading(log, None, None, lambda phase: None, logs.silent())
    for attempt in range(ATTEMPTS):
        # What comes behind it is refused; what came before it is folded.
        expected = await log.last_of("gc")
        await reading.follow(state)
        if state.repairs != repairs:
            return found
        if why := too_old(state):
            raise Failure(why, UNUSABLE)
        now = Millis(await log.time() // 1_000_000)
        command = c.RepairLog(now, found.lost, person, reason, found.repairs)
        events = tuple(decider.decide(state, command))
        decisions = [Decision(command, events, "restow log repair")]
        envelope = Envelope(
            id=machine.token(16), source=f"/restow/{log.cluster}/cli/{person}", time=rfc3339(now), read=state.seq, logic=decider.logic,
            log=log.log_id, release=release.name(""), digest=state.history.said(), reader=needed(decisions),
        )  # fmt: skip
        try:
            found.seq = await log.append("gc", encode(decisions), envelope, expected_last=expected)
            return found
        except Conflict:
            if attempt + 1 == ATTEMPTS:
                raise
    raise AssertionError
