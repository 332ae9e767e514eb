"""Numbers about a log."""

from __future__ import annotations

from collections import Counter

import msgspec

from restow.contracts.codec import name_of
from restow.contracts.ids import Millis
from restow.replay.source import Source
from restow.replay.state_at import Progress, examine_record, no_progress, time_of


class FamilyStats(msgspec.Struct, rename="camel"):
    """One family, or all. `bytes` are of bodies; times in milliseconds since the epoch."""

    family: str
    commits: int = 0
    decisions: int = 0
    events: int = 0
    bytes: int = 0
    began: Millis = Millis(0)
    ended: Millis = Millis(0)
    per_second: float = 0.0

    def add(self, decisions: int, events: int, size: int, time: Millis) -> None:
        self.commits += 1
        self.decisions += decisions
        self.events += events
        self.bytes += size
        self.began = self.began or time
        self.ended = time

    def close(self) -> None:
        """Events a second, over the time that there were any."""
        span = self.ended - self.began
        self.per_second = round(self.events * 1000 / span, 3) if span > 0 else 0.0


class Stats(msgspec.Struct, rename="camel"):
    log_id: str
    cluster: str
    first: int
    last: int
    families: dict[str, FamilyStats]
    all: FamilyStats
    types: dict[str, int]
    foreign: dict[str, int] = {}
    """Records that are not ours, by what they are; they are void."""


def collect(source: Source, progress: Progress = no_progress) -> Stats:
    """Count everything."""
    families: dict[str, FamilyStats] = {}
    total = FamilyStats("all")
    types: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    for batch in source.batches():
        for record in batch:
            found = examine_record(record, source.log_id)
            decisions, events = found.decisions, 0
            if found.kind:
                foreign[found.kind] += 1
            for decision in decisions:
                events += len(decision.events)
                types.update(name_of(event) for event in decision.events)
            numbers = (len(decisions), events, len(record.body), time_of(record))
            families.setdefault(record.family, FamilyStats(record.family)).add(*numbers)
            total.add(*numbers)
        progress(batch[-1].seq - source.first + 1, source.last - source.first + 1)
    for family in (*families.values(), total):
        family.close()
    return Stats(source.log_id, source.cluster, source.first, source.last, dict(sorted(families.items())), total, dict(types), dict(foreign))
