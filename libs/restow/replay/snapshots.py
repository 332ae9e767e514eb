"""States from a running log's snapshots, for who has no archive of what was truncated from it."""

from __future__ import annotations

from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import JetStreamLog, open_snapshots
from restow.eventlog.snapshots import SnapshotError
from restow.replay.source import LiveSource, Source
from restow.replay.state_at import ReplayError


def oldest(source: LiveSource) -> ClusterState | None:
    """The state as of the oldest snapshot of this fold that the log continues; None where there is none. Raises what the broker raises."""
    return source.run(_first(source, newest_first=False), timeout=None)


def beginning(source: Source) -> ClusterState | None:
    """None where the log is there from its beginning, or is no running one; otherwise `oldest`. Raises ReplayError where there is none."""
    if not isinstance(source, LiveSource) or source.first <= 1:
        return None
    state = oldest(source)
    if state is None:
        raise ReplayError(f"{source.name} begins at sequence {source.first}, and no snapshot continues it: name the archive of what was truncated away (--archive DIR)")
    return state


def newest(source: LiveSource) -> ClusterState | None:
    """The same of the newest one, for who wants to know the present only."""
    return source.run(_first(source, newest_first=True), timeout=None)


async def _first(source: LiveSource, newest_first: bool) -> ClusterState | None:
    assert isinstance(source.log, JetStreamLog)
    stored, first = await open_snapshots(source.log, create=False), await source.log.first()
    for seq in sorted(await stored.sequences(), reverse=newest_first):
        try:
            found = await stored.latest(at_most=seq) if seq >= first - 1 else None
            if found is not None and found.seq >= first - 1 and found.fold_version == FOLD_VERSION:
                return snapshot.load(found.body)
        except (SnapshotError, snapshot.SnapshotError):
            continue
    return None
