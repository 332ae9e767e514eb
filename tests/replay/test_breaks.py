"""Whether a log is whole, told to people: breaks, repairs, and what somebody else has written."""

import pytest
from domain.test_history import LOG, Writer, node

from restow.contracts import commands as c
from restow.contracts.envelope import Envelope
from restow.domain.gc import decider
from restow.eventlog.port import Record
from restow.replay.breaks import KEPT, check
from restow.replay.source import ListSource


def source(log):
    records = [Record(seq, family, given, content, 0) for seq, (family, given, content) in enumerate(log.records, 1)]
    return ListSource(records, log_id=LOG)


def broken_anew(log):
    """Somebody appends who has read another history."""
    stale = log.copy(len(log.records))
    stale.write(node("lost"))
    log.write(node("in its place"))
    log.take(stale.record(node("late")))
    assert log.state.broken


def repaired(log):
    log.write(*decider.decide(log.state, c.RepairLog(1, 0, "ann", "a test")), family="gc")
    assert not log.state.broken


@pytest.mark.parametrize("before", [0, 1, KEPT - 1, KEPT, KEPT + 3])
def test_a_break_after_many_that_were_repaired_is_a_break(before):
    log = Writer()
    for _ in range(before):
        broken_anew(log)
        repaired(log)
    found = check(source(log))
    assert (found.broken, found.count, len(found.repairs)) == (0, before, before)
    broken_anew(log)
    found = check(source(log))
    assert found.broken == log.state.broken
    assert found.count == before + 1
    assert found.sentence.endswith(f"at record {log.state.broken}")
    assert [one.repaired for one in found.breaks if not one.repaired] == [0]
    assert next(one.seq for one in found.breaks if not one.repaired) == log.state.broken
    repaired(log)
    found = check(source(log))
    assert (found.broken, found.count) == (0, before + 1)
    if found.count > len(found.breaks):
        assert f" and {found.count - len(found.breaks)} more, and was repaired" in found.sentence


def test_records_of_others_are_named_and_break_nothing():
    log = Writer()
    for number in range(3):
        log.write(node(f"n{number}"))
    for _ in range(KEPT + 2):
        log.take(("session", Envelope.of({}), b"hello"))
    log.write(node("more"))
    found = check(source(log))
    assert (found.broken, found.void, len(found.strangers)) == (0, KEPT + 2, KEPT)
    assert (found.strangers[0].seq, found.strangers[0].family) == (4, "session")
    assert "was not written by Restow" in found.strangers[0].what


def test_records_of_others_are_named_of_part_of_a_log_also():
    """In front of the first record that says what it follows from."""
    log = Writer()
    log.write(node("n0"))
    log.take(("nobody", Envelope.of({}), b""))
    log.write(node("n1"))
    whole = source(log)
    part = ListSource([record for batch in whole.batches(2) for record in batch], log_id=LOG)
    assert [one.seq for one in check(part).strangers] == [2]
