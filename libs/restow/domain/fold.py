"""The fold: one commit after another into the `ClusterState`. The same for all services and for replay.

A record that is not ours is void as a whole (`restow.domain.record_trust`). `evolve` is total: an event about something that has vanished changes nothing and is counted as void; a type that is not
known is counted as unknown. Runs of events of one type in one decision are folded together (`restow.domain.event_runs`), which a property
test holds equal to one by one.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from restow.contracts.codec import Decision
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.domain import record_trust
from restow.domain.event_runs import RUNS
from restow.domain.evolve import evolve_one
from restow.domain.evolve.reservation_slots import note_review
from restow.domain.evolve.shapes import forget_shapes
from restow.domain.record_trust import Examined
from restow.domain.records import Needs
from restow.domain.state import ClusterState

FOLD_VERSION = 10
"""Changes when the fold changes its meaning; snapshots of another version are folded anew."""

BULK = 16
"""From this many events of one type in a row on, their form for a run is the faster one."""


def fold_record(state: ClusterState, seq: int, family: str, envelope: Envelope, body: bytes, log_id: str = "") -> Examined:
    """Fold one record of the log `log_id`, or pass over it where it is not ours; says which. For every reader the same."""
    return fold_examined(state, seq, family, envelope, body, record_trust.examine(family, envelope, body, log_id), log_id)


def fold_examined(state: ClusterState, seq: int, family: str, envelope: Envelope, body: bytes, found: Examined, log_id: str = "") -> Examined:
    """`fold_record` of one that was looked at already."""
    history = state.history
    if seq > state.seq + 1 and state.seq:
        # Records are missing. What follows from them is void, as in a log that ends before them.
        state.broken = state.broken or state.seq + 1
    found = record_trust.in_history(history, seq, envelope, found)
    history.add(seq, family, envelope, body)
    if envelope.reader > state.reader.oldest and record_trust.may_be_later(found, envelope, log_id):
        state.reader = Needs(envelope.reader, seq, envelope.release)
    if found.kind:
        if found.kind == record_trust.OTHER_HISTORY:
            state.broken = state.broken or seq
        pass_over(state, seq, family, found.kind)
    else:
        _is_of(state, envelope.log or log_id)
        _fold(state, seq, family, found.time, found.decisions)
    return found


def _is_of(state: ClusterState, log: str) -> None:
    """The record is of this log: what was made for another is not ours."""
    if log and state.log != log:
        state.log = log
        for uid in state.reservations:
            note_review(state, uid)
            state.reviewed.append(uid)


def pass_over(state: ClusterState, seq: int, family: str, kind: str) -> None:
    """A record that is not ours: void, and counted as `kind`. It stands in its family's order all the same, and the family's
    next append has to name it. Time stays: nobody of ours has said this one."""
    state.seq = seq
    if family in state.last:
        state.last[family] = seq
    state.void[kind] += 1


def fold(state: ClusterState, seq: int, family: str, time: Millis, decisions: Sequence[Decision]) -> None:
    """Fold one decoded commit, unless it says what is not its family's to say. `time` is the envelope's, in milliseconds."""
    if record_trust.foreign_event(family, decisions):
        pass_over(state, seq, family, record_trust.OTHER_FAMILY)
    else:
        _fold(state, seq, family, time, decisions)


def _fold(state: ClusterState, seq: int, family: str, time: Millis, decisions: Sequence[Decision]) -> None:
    state.seq = seq
    state.time = time
    state.last[family] = seq
    state.overtaken.clear()
    for decision in decisions:
        apply(state, decision.events)
    if family == "cluster":
        forget_shapes(state)
    for changes in (state.moved, state.changed_rows, state.objects, state.reviewed, state.parkings, state.table.dirty):
        changes.trim()


def apply(state: ClusterState, events: Sequence[Any]) -> None:
    """Fold events in order."""
    if len(events) < BULK or state.drafting:
        for event in events:
            evolve_one(state, event)
        return
    for kind, same in groupby(events, type):
        run, form = list(same), RUNS.get(kind)
        if form is not None and len(run) >= BULK:
            form(state, run)
        else:
            for event in run:
                evolve_one(state, event)
