"""Records are trusted by what they are (RULES G-16): what is not ours is void and counted, and stops nobody."""

import pytest
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.domain import record_trust, snapshot
from restow.domain.fold import fold, fold_record
from restow.domain.state import ClusterState

LOG = "a" * 32
ANSWER = b'{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"restow-main"}}'


def envelope(family="session", **changed):
    usual = Envelope("id-1", f"/restow/main/{family}/x", "2026-01-01T00:00:00.000Z", 0, f"{family}@1", log=LOG)
    return replace(usual, **changed)


def body(*events, command=None):
    return encode([Decision(command or c.Observe("nodes", "list"), events)])


NODE = e.NodeObserved("n1", "u", {"cpu": 1000, "pods": 10})


@pytest.fixture
def state():
    state = ClusterState()
    fold_record(state, 1, "cluster", envelope("cluster"), body(NODE), LOG)
    assert list(state.nodes) == ["n1"]
    return state


def test_the_password_of_one_service_removes_no_node_and_takes_no_other_leadership(state):
    stolen = Decision(c.Review(1), (e.SessionLed(99, "thief"), e.NodeGone("n1"), e.PodGone("x")))
    fold(state, 2, "reservation", 1, [stolen])
    assert list(state.nodes) == ["n1"]
    assert state.leaders["session"].holder == ""
    assert state.void == {record_trust.OTHER_FAMILY: 1}
    assert state.last["reservation"] == 2


def test_one_event_of_another_family_makes_the_whole_commit_void(state):
    mixed = body(e.ReservationLed(1, "cache"), e.NodeGone("n1"))
    found = fold_record(state, 2, "reservation", envelope("reservation"), mixed, LOG)
    assert (found.kind, found.decisions) == (record_trust.OTHER_FAMILY, ())
    assert "cluster.node_gone in a commit of family reservation" in found.why
    assert state.leaders["reservation"].epoch == 0


@pytest.mark.parametrize(
    ("family", "given", "content", "kind"),
    [
        ("session", Envelope.of({}), ANSWER, record_trust.NO_ENVELOPE),
        ("session", Envelope.of({"ce-id": "x", "restow-read": "many"}), b"", record_trust.NO_ENVELOPE),
        ("session", Envelope.of(envelope().headers() | {"restow-read": "-1"}), body(), record_trust.NO_ENVELOPE),
        ("session", Envelope.of(envelope().headers() | {"restow-read": "9" * 1_000}), body(), record_trust.NO_ENVELOPE),
        ("session", envelope(type="dev.other.v1"), body(), record_trust.NO_ENVELOPE),
        ("session", envelope(time="yesterday"), body(), record_trust.NO_ENVELOPE),
        ("session", envelope(time="2026-01-01T00:00:00.000"), body(), record_trust.NO_ENVELOPE),
        ("session", envelope(log="b" * 32), body(), record_trust.OTHER_LOG),
        ("session", envelope(logic="gc@1"), body(), record_trust.OTHER_FAMILY),
        ("session", envelope(), body(e.NodeGone("n1")), record_trust.OTHER_FAMILY),
        ("session", envelope(), b'{"decisions":[{"command":{"type":"schedule","time":1},"events":[{"type":"cluster.moon"}]}]}', record_trust.OTHER_FAMILY),
        ("session", envelope(), ANSWER, record_trust.UNREADABLE),
        ("session", envelope(), b"\xff\x00", record_trust.UNREADABLE),
        ("session", envelope(), b"[" * 100_000, record_trust.UNREADABLE),
        ("cluster", envelope("cluster"), b'{"decisions":[{"command":{"type":"observe","kind":"a","how":"b"},"events":[{"type":"cluster.node_gone","node":7}]}]}', record_trust.UNREADABLE),
        ("audit", envelope("audit"), body(), record_trust.NO_FAMILY),
    ],
)
def test_a_record_that_is_not_ours_is_void_and_counted_and_what_follows_is_folded(state, family, given, content, kind):
    before = snapshot.dump(state)
    found = fold_record(state, 2, family, given, content, LOG)
    assert (found.kind, found.decisions) == (kind, ())
    assert found.why.isprintable()
    assert state.void == {kind: 1}
    assert state.counts()["foreign_records"] == 1
    assert state.time == 1_767_225_600_000  # nobody of ours has said another
    if family != "audit":
        assert state.last[family] == 2  # the next append of the family must name it
    fold_record(state, 3, "cluster", envelope("cluster"), body(e.NodeGone("n1")), LOG)
    assert not state.nodes
    # It changed nothing else: the same without it, but for where the log stands and what was counted.
    other = snapshot.load(before)
    fold_record(other, 3, "cluster", envelope("cluster"), body(e.NodeGone("n1")), LOG)
    other.void, other.last, other.history, other.broken = state.void, state.last, state.history, state.broken
    assert snapshot.dump(other) == snapshot.dump(state)
    assert snapshot.load(snapshot.dump(state)).void == state.void


@pytest.mark.parametrize("text", ["", "{}x", '{"scheduler_names":7}', "[" * 100_000, '{"actions":[{"name":{}}]}'])
@pytest.mark.parametrize("family", ["session", "reservation", "migration", "gc"])
def test_a_configuration_that_cannot_be_read_stops_nobody_and_leaves_the_last_one(state, family, text):
    text = text or "no JSON"
    before = getattr(state, f"{family}_config")
    event = e.CONFIGURED[family](text, "d" * 64)
    found = fold_record(state, 2, family, envelope(family), body(event, command=c.Configure(text=text)), LOG)
    assert not found.kind
    if getattr(state, f"{family}_config") is before:
        assert state.void == {f"{family}.configured": 1}
        assert family not in state.configured
    else:
        assert state.configured[family] == "d" * 64


def test_a_log_of_before_the_header_is_still_ours(state):
    assert not fold_record(state, 2, "session", envelope(log=""), body(e.SessionLed(1, "s"), command=c.Lead("s")), LOG).kind
    assert state.leaders["session"].epoch == 1


def test_what_a_stranger_wrote_is_shown_short_and_printable(state):
    found = record_trust.examine("session", envelope(type="\x1b[31m" * 200), b"", LOG)
    assert found.why.isprintable()
    assert len(found.why) <= record_trust.LONGEST + 1


def test_every_event_belongs_to_exactly_one_family():
    for cls in e.EVENTS:
        assert sum(cls in types for types in record_trust._TYPES.values()) == 1, cls
