"""States from a running log's snapshots, for who has no archive of what was truncated from it."""

from __future__ import annotations

from collections.abc import Callable

from restow.contracts.ids import Millis
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.domain.history import BROKEN
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import JetStreamLog, open_snapshots
from restow.eventlog.port import LogError
from restow.eventlog.snapshots import SnapshotError
from restow.replay import breaks
from restow.replay.source import LiveSource, Source, Until
from restow.replay.state_at import Progress, ReplayError, no_progress, state_at
from restow.runtime.other_history import of_another_history


def oldest(source: LiveSource, behind: int = 0) -> ClusterState | None:
    """The state as of the oldest snapshot of this fold that the log continues, and that has record `behind`; None where there is none. Raises what the broker raises."""
    return source.run(_first(source, newest_first=False, fits=lambda state: state.seq >= behind and not state.broken), timeout=None)


def beginning(source: Source) -> ClusterState | None:
    """None where the log is there from its beginning, or is no running one; otherwise `oldest`. Raises ReplayError where there is none."""
    if not isinstance(source, LiveSource) or source.first <= 1:
        return None
    state = oldest(source)
    if state is None:
        raise ReplayError(f"{source.name} begins at sequence {source.first}, and no snapshot continues it: name the archive of what was truncated away (--archive DIR)")
    return state


def passed(source: Source, broken: int) -> int:
    """The last record of a snapshot by which services go on, of a running log that is broken at a record; 0 where there is none, where the log is broken behind it, too, or nobody says."""
    running = source.source if isinstance(source, Until) else source
    if not isinstance(running, LiveSource):
        return 0
    try:
        begin = running.run(_first(running, newest_first=True, fits=lambda state: state.seq >= broken and not state.broken), timeout=None)
        if begin is None:
            return 0
        seq = begin.seq
        return 0 if seq < running.last and state_at(running, begin=begin).broken else seq
    except (LogError, ReplayError):
        return 0


def trouble(source: Source, state: ClusterState) -> str:
    """That the log is broken as of this state, and what to do (`breaks.said`); empty while it is whole. Of one by which services go on all the same, how they do."""
    told = breaks.said(state)
    if not told or not (seq := passed(source, state.broken)):
        return told
    return (
        f"{BROKEN} at record {state.broken} as its broker shows it now, so this is as of before that; services go on from a snapshot up to {seq} by who had read it, "
        "and no repair is needed: `restow state` and `restow top` show the present"
    )


def newest(source: LiveSource) -> ClusterState | None:
    """The same of the newest one, for who wants to know the present only."""
    return source.run(_first(source, newest_first=True), timeout=None)


def state_by_snapshot(source: Source, *, seq: int | None = None, time: Millis | None = None, progress: Progress = no_progress) -> ClusterState:
    """`state_at`; of a running log that was truncated, or that its broker has damaged since others have read it, from the newest snapshot before that point which the log
    follows from, as services do; and without one from its archive. Raises what that and the broker raise."""
    if not isinstance(source, LiveSource):
        return state_at(source, seq=seq, time=time, progress=progress)
    broken: ClusterState | None = None
    if source.run(source.log.first()) <= 1:
        broken = state_at(source, seq=seq, time=time, progress=progress)
        if not broken.broken:
            return broken

    def before(state: ClusterState) -> bool:
        return state.seq <= min(at_most, source.last if seq is None else seq) and (time is None or state.time <= time)

    at_most = source.last
    while (begin := source.run(_first(source, newest_first=True, fits=before), timeout=None)) is not None:
        at_most = begin.seq - 1
        state = state_at(source, seq=seq, time=time, progress=progress, begin=begin)
        if not state.broken:
            return state
        # As services do: what is broken later has more of what they know.
        if broken is None or state.broken > broken.broken:
            broken = state
    return broken or state_at(source, seq=seq, time=time, progress=progress)


async def _first(source: LiveSource, newest_first: bool, fits: Callable[[ClusterState], bool] = lambda state: True) -> ClusterState | None:
    assert isinstance(source.log, JetStreamLog)
    stored, first = await open_snapshots(source.log, create=False), await source.log.first()
    for seq in sorted(await stored.sequences(), reverse=newest_first):
        try:
            found = await stored.latest(at_most=seq) if seq >= first - 1 else None
            if found is not None and found.seq >= first - 1 and found.fold_version == FOLD_VERSION:
                state = snapshot.load(found.body)
                if fits(state) and not await of_another_history(source.log, state):
                    return state
        except (SnapshotError, snapshot.SnapshotError):
            continue
    return None
