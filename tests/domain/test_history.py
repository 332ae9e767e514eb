"""The log is a chain: a record that follows from another history is void, and breaks the log until somebody repairs it."""

import hashlib
import json

import pytest
from domain.test_trust import LOG, body, envelope
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.domain import record_trust, snapshot
from restow.domain.decider import Rejected
from restow.domain.fold import fold_record
from restow.domain.gc import decider
from restow.domain.history import KEPT, SIZE, History, Mark, digest_of
from restow.domain.state import ClusterState


def node(name):
    return e.NodeObserved(name, "u", {"cpu": 1000, "pods": 10})


class Writer:
    """Folds what it has written, as every service does."""

    def __init__(self, state=None):
        self.state, self.records = state or ClusterState(), []

    def record(self, *events, family="cluster", said=None, command=None):
        digest = self.state.history.said() if said is None else said
        return family, envelope(family, read=self.state.seq, digest=digest, id=f"id-{self.state.seq}"), body(*events, command=command)

    def write(self, *events, **how):
        return self.take(self.record(*events, **how))

    def take(self, record, seq=0):
        self.records.append(record)
        return fold_record(self.state, seq or self.state.seq + 1, *record, LOG)

    def copy(self, upto):
        """Who has read the first records."""
        other = Writer()
        for record in self.records[:upto]:
            other.take(record)
        return other


@pytest.fixture
def log():
    log = Writer()
    for number in range(10):
        assert not log.write(node(f"n{number}")).kind
    assert (log.state.broken, log.state.repairs) == (0, 0)
    return log


def test_the_digest_is_of_every_byte_that_is_folded(log):
    state = log.copy(9).state
    family, given, content = log.records[9]
    seen = {digest_of(state.history.digest, 10, family, given, content)}
    for name in Envelope.__struct_fields__:
        if name not in ("given", "read", "reader"):
            headers = {**{n: getattr(given, n) for n in Envelope.__struct_fields__}, name: "another"}
            seen.add(digest_of(state.history.digest, 10, family, Envelope(**headers), content))
    seen.add(digest_of(state.history.digest, 10, family, envelope(read=3), content))
    seen.add(digest_of(state.history.digest, 10, family, replace(given, reader=2), content))
    seen.add(digest_of(state.history.digest, 11, family, given, content))
    seen.add(digest_of(bytes(SIZE), 10, family, given, content))
    seen.add(digest_of(state.history.digest, 10, "gc", given, content))
    seen.add(digest_of(state.history.digest, 10, family, given, content + b" "))
    assert len(seen) == 7 + len(Envelope.__struct_fields__) - 3
    assert log.state.history.digest in seen


def test_the_digest_of_a_known_history_never_changes():
    """Every release works it out in the same way, or takes the log of another one for broken."""
    history = History()
    history.add(1, "cluster", envelope("cluster", digest="0:" + "0" * 32, release="ü", traceparent="t"), b'{"decisions":[]}')
    history.add(2, "session", Envelope.of({"some": "headers"}), b"stranger")
    time, kind = "2026-01-01T00:00:00.000Z", "dev.restow.commit.v1"
    first = said(bytes(16), [1, "cluster", "id-1", "/restow/main/cluster/x", time, kind, 0, "cluster@1", "t", LOG, "ü", "0:" + "0" * 32], b'{"decisions":[]}')
    second = said(first, [2, "session", "", "", "", "", 0, "", "", "", "", ""], b"stranger")
    assert history.said() == f"2:{second.hex()}" == "2:5b2e4f1b8735a8a7eb8f9f06276d44dc"


def said(before, headers, content):
    return hashlib.sha256(before + json.dumps(headers, separators=(",", ":"), ensure_ascii=False).encode() + content).digest()[:16]


def test_a_commit_of_one_who_has_read_what_the_log_has_lost_is_void_and_nothing_but_a_repair_makes_it_whole(log):
    stale, log = log, log.copy(7)
    log.write(node("other"))
    log.write(node("another"))
    late = stale.record(e.NodeGone("n1"))
    found = log.take(late)  # its writer had read 10 records; here it is the tenth
    assert found.kind == record_trust.OTHER_HISTORY
    assert "its writer had read up to 10, which in this log comes later" in found.why
    assert "n1" in log.state.nodes
    assert log.state.broken == 10
    log.write(node("more"))
    assert log.state.broken == 10, "who has read the same agrees, and yet something is lost"
    (repaired,) = decider.decide(log.state, c.RepairLog(1, 10, "ann", "power cut"))
    assert repaired == e.LogRepaired(10, 10, "ann", "power cut")
    log.write(repaired, family="gc")
    assert (log.state.broken, log.state.repairs) == (0, 1)
    assert log.state.void == {record_trust.OTHER_HISTORY: 1}


def test_a_commit_that_follows_from_another_record_is_void(log):
    stale, log = log.copy(7), log.copy(6)
    log.write(node("in its place"))
    log.write(node("more"))
    found = log.take(stale.record(e.NodeGone("n1")))
    assert found.kind == record_trust.OTHER_HISTORY
    assert "its writer had read another record 7, or another one before it" in found.why
    assert log.state.broken == 9


def test_one_changed_bit_and_everything_after_it_is_void(log):
    for at in range(9):
        other = Writer()
        for number, (family, given, content) in enumerate(log.records):
            other.take((family, given, content.replace(b'"cpu":1000', b'"cpu":1001') if number == at else content))
        assert other.state.broken == at + 2
        assert len(other.state.nodes) == at + 1
        assert other.state.void == {record_trust.OTHER_HISTORY: 9 - at}


def test_a_missing_record_breaks_the_log_where_it_is_missing(log):
    other = log.copy(4)
    for seq, record in enumerate(log.records[6:], 7):
        other.take(record, seq)
    assert other.state.broken == 5
    assert set(other.state.nodes) == {"n0", "n1", "n2", "n3"}
    assert other.state.void == {record_trust.OTHER_HISTORY: 4}
    other.write(e.LogRepaired(5), family="gc")
    assert not other.write(node("goes on")).kind
    assert other.state.broken == 0


def test_who_does_not_say_what_he_has_read_is_folded_as_ever(log):
    """Logs of before have no digests, and may go on with some."""
    old = Writer()
    for number in range(5):
        assert not old.write(node(f"n{number}"), said="").kind
    assert not old.write(node("n6")).kind
    assert old.state.broken == 0
    other = old.copy(5)
    other.write(node("in its place"))
    assert other.take(old.record(e.NodeGone("n1"))).kind == record_trust.OTHER_HISTORY


def test_who_names_what_nobody_remembers_is_not_judged():
    log = Writer()
    early = log.copy(0).record(node("early"), said="1:" + "f" * 32)
    for _ in range(KEPT + 1):
        log.write()
    assert not log.take(early).kind
    assert log.state.broken == 0
    log = Writer()
    for _ in range(KEPT):
        log.write()
    assert log.take(early).kind == record_trust.OTHER_HISTORY


@pytest.mark.parametrize("said", ["1", "1:", "x:" + "0" * 32, "1:" + "0" * 31, "-1:" + "0" * 32, "1:" + "G" * 32, "٣:" + "0" * 32])
def test_a_header_that_is_no_digest_is_no_envelope(said):
    given = Envelope.of(envelope().headers() | {"restow-digest": said})
    found = record_trust.examine("session", given, body(), LOG)
    assert found.kind == record_trust.NO_ENVELOPE
    assert "restow-digest" in found.why


def test_a_snapshot_goes_on_as_the_fold_would(log):
    again = snapshot.load(snapshot.dump(log.state))
    assert again.history == log.state.history
    stale = log.copy(8)
    stale.write(node("other"))
    record = stale.record(node("x"))
    assert fold_record(again, 11, *record, LOG).kind == record_trust.OTHER_HISTORY
    assert again.broken == 11
    assert snapshot.load(snapshot.dump(again)).broken == 11


def test_there_is_nothing_to_repair_where_nothing_is_broken(log):
    with pytest.raises(Rejected, match="nothing to repair"):
        decider.decide(log.state, c.RepairLog(1))
    assert decider.decide(log.state, c.RepairLog(1, lost=12)) == (e.LogRepaired(0, 12),)


def test_a_mark_is_read_as_it_is_written(log):
    mark = Mark(3, 10, log.state.history.digest)
    assert Mark.read(str(mark)) == mark
    for text in ("", "1:2", "1:2:33", "a:2:" + "0" * 32, f"{mark}:1"):
        with pytest.raises(ValueError):
            Mark.read(text)


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(st.sampled_from(("write", "stale", "stranger", "repair")), max_size=40), st.integers(0, 39))
def test_every_reader_agrees_and_nothing_that_follows_from_what_is_lost_is_folded(acts, cut):
    log, lost = Writer(), Writer()
    lost.write(node("lost"))
    for number, act in enumerate(acts):
        match act:
            case "write":
                log.write(node(f"n{number}"))
            case "stale":
                lost.state.history.seq = log.state.seq  # as far as we are, with another history
                log.take(lost.record(node(f"lost{number}")))
            case "stranger":
                log.take(("session", Envelope.of({"x": "y"}), b"answer"))
            case "repair" if log.state.broken:
                log.take(("gc", envelope("gc", digest=log.state.history.said()), encode([Decision(c.RepairLog(1), (e.LogRepaired(log.state.broken),))])))
    again = log.copy(len(log.records))
    assert snapshot.dump(again.state) == snapshot.dump(log.state)
    half = snapshot.load(snapshot.dump(log.copy(cut).state))
    for seq, record in enumerate(log.records[cut:], cut + 1):
        fold_record(half, seq, *record, LOG)
    assert snapshot.dump(half) == snapshot.dump(log.state)
    assert not any(name.startswith("lost") for name in log.state.nodes)
    assert bool(log.state.broken) == ("stale" in acts[max((i for i, act in enumerate(acts) if act == "repair"), default=-1) + 1 :])
