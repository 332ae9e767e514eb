"""A stretch of a log read once: what came from outside is kept as it happened, what followed from a decision is left out, and what came of it is measured."""

from __future__ import annotations

import msgspec

from restow.contracts.ids import Millis, NodeName
from restow.contracts.times import rfc3339
from restow.domain import snapshot
from restow.domain.state import ClusterState, Touched
from restow.replay.source import Source
from restow.replay.state_at import (
    Progress,
    ReplayError,
    check_whole,
    examine_next,
    examine_record,
    fold_examined,
    no_progress,
)
from restow.replay.times import Point
from restow.replay.whatif.heard import Heard
from restow.replay.whatif.meter import Measured, Meter
from restow.replay.whatif.recorded import (
    Recorded,
)

NEAR = 100
"""Records before the end of a stretch among which there is one of ours, whose time is its end."""


class Stretch(msgspec.Struct, frozen=True):
    """Of a log: from the first record at or after `since` to the last one at or before `until`; None for its begin, a Point of nothing for its end."""

    since: Point | None = None
    until: Point = Point()


def read(source: Source, stretch: Stretch = Stretch(), begin: ClusterState | None = None, progress: Progress = no_progress) -> Recorded:
    """Fold the log once. `begin`: the state of a snapshot, where the log's beginning is not there any more. Raises ReplayError where the log is not whole, nothing is in the
    stretch, or pods of another scheduler were moved."""
    if begin is None:
        check_whole(source)
    if source.last < source.first:
        raise ReplayError(f"{source.name} is empty: there is nothing to be asked what if")
    return _Reader(source, stretch, begin).read(progress)


class _Reader:
    def __init__(self, source: Source, stretch: Stretch, begin: ClusterState | None) -> None:
        self._source, self._since, self._until = source, stretch.since, stretch.until
        self._state = begin if begin is not None else ClusterState()
        self._snapshot = begin is not None
        self._heard: Heard | None = None
        self._meter: Meter | None = None
        self._first, self._image, self._seq = Millis(0), b"", 0
        self._nodes: frozenset[NodeName] = frozenset()
        self._last = self._end()

    def read(self, progress: Progress) -> Recorded:
        source, state = self._source, self._state
        if self._since is not None and self._snapshot:
            self._check_reaches(self._since)
        for batch in source.batches(state.seq + 1):
            for record in batch:
                examined = examine_next(state, record, source.log_id)
                if not examined.kind:
                    if self._is_over(record.seq, examined.time):
                        return self._recorded()
                    self._go_on(record.seq, examined.time)
                fold_examined(state, record, examined, source.log_id)
                if self._heard is not None and self._meter is not None and not examined.kind:
                    self._meter.hear(state, (event for decision in examined.decisions for event in decision.events), Millis(state.time))
                    self._heard.hear(state, record, examined)
            # Nobody looks at what was touched here, and it would grow with the log.
            state.touched = Touched()
            progress(batch[-1].seq, source.last)
        return self._recorded()

    def _end(self) -> Millis:
        """When the stretch ends: it is asked for before it is read, because what is measured is measured at even steps up to there."""
        source, last = self._source, self._source.last if self._until.seq is None else min(self._until.seq, self._source.last)
        known = self._times(last - NEAR, last)
        if not known:
            raise ReplayError(f"the last records of {source.name} are none of ours: `restow log verify` says what they are")
        return known[-1] if self._until.time is None else min(known[-1], self._until.time)

    def _times(self, first: int, last: int) -> list[Millis]:
        """When our records of these sequences were written."""
        source = self._source
        near = [record for batch in source.batches(max(source.first, first), last) for record in batch]
        return [examined.time for record in near if not (examined := examine_record(record, source.log_id)).kind]

    def _check_reaches(self, since: Point) -> None:
        state = self._state
        if (since.time is not None and since.time < state.time) or (since.seq is not None and since.seq <= state.seq):
            raise ReplayError(
                f"{self._source.name} begins at sequence {self._source.first}, and its oldest snapshot is of sequence {state.seq} ({rfc3339(Millis(state.time))}): begin after that, "
                "or name the archive of what was truncated away (--archive DIR)"
            )

    def _is_over(self, seq: int, time: Millis) -> bool:
        until = self._until
        return (until.seq is not None and seq > until.seq) or (until.time is not None and time > until.time)

    def _go_on(self, seq: int, time: Millis) -> None:
        """This record comes next: the stretch begins, or what was to be looked at before is looked at."""
        since, state = self._since, self._state
        if self._meter is None:
            if since is not None and ((since.seq is not None and seq < since.seq) or (since.time is not None and time < since.time)):
                return
            self._first = time
            if state.seq:
                self._image, self._seq, self._nodes = snapshot.dump(state), state.seq, frozenset(state.nodes)
                self._first = max(Millis(state.time), since.time if since is not None and since.time is not None else Millis(0))
            self._meter, self._heard = Meter(self._first, self._last), Heard()
            self._meter.begin(state, self._first)
            self._heard.begin(state, self._first)
        self._meter.before(state, time)

    def _recorded(self) -> Recorded:
        state = self._state
        if state.migration_config.beside:
            raise ReplayError("pods of other schedulers are moved in this log (restow.beside of the policy): what their scheduler would have done is not known")
        if self._heard is None or self._meter is None:
            first, last = self._source.first, self._source.last
            held = self._times(first, min(first + NEAR, last))[:1] + self._times(last - NEAR, last)[-1:]
            raise ReplayError(f"nothing happened in this stretch of {self._source.name}: the log holds sequences {first} to {last}, of {' to '.join(map(rfc3339, held))}")
        lives, items, delays, own = self._heard.told(state)
        measured: Measured = self._meter.measured(state, {uid for life in lives for uid in life.pods[1:]})
        return Recorded(
            self._source.name, self._first, self._last, items, lives, delays, own, measured, self._heard.nodes, self._heard.others, self._image, self._seq, self._nodes, self._heard.shapes, self._heard.details,
            self._heard.of_nodes(state),
        )  # fmt: skip
