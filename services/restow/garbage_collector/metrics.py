"""How far snapshot and archive are behind the log, and whether there is capacity for them."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from restow.eventlog.folder import Folder
from restow.garbage_collector.snapshot_keeper import place_for
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled


class CollectorMetrics:
    """`failing`: whether the last snapshot or archive could not be stored. `damaged`: whether the broker shows other records than were read of it."""

    def __init__(self, context: Context, failing: Callable[[], bool], damaged: Callable[[], bool]) -> None:
        self._context, self._failing, self._damaged = context, failing, damaged
        context.metrics.labelled(self.read)

    def read(self) -> Iterable[Labelled]:
        state, place = self._context.state, place_for(self._context)
        yield Labelled.one("log_kept", "Commits that the log holds and that were not truncated", state.seq - state.truncated)
        yield Labelled.one("snapshot_behind", "Commits since the last snapshot that is on record", state.seq - state.snapshot_seq)
        yield Labelled.one("snapshot_every", "Commits after which one is to be stored (snapshotEvery)", state.gc_config.snapshot_every)
        yield Labelled.one("keeper_failing", "1 while no snapshot or archive can be stored", self._failing())
        yield Labelled.one("log_damaged", "1 while the log holds records that have changed on a broker's disk since they were read", self._damaged())
        if place is not None:
            yield Labelled.one("archive_behind", "Commits since the last one that is in the archive", state.seq - state.archived)
            if isinstance(place, Folder) and (disk := _disk(place.path)) is not None:
                yield Labelled.one("archive_disk_free_bytes", "What the archive's disk has left for us", disk[0])
                yield Labelled.one("archive_disk_size_bytes", "What the archive's disk holds in all", disk[1])


def _disk(folder: Path) -> tuple[int, int] | None:
    """Of the nearest folder that is there: the archive's own is made with its first file."""
    for there in (folder, *folder.parents):
        try:
            usage = shutil.disk_usage(there)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return usage.free, usage.total
    return None
