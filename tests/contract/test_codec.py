"""The codec: what was written is read back, what is newer is kept, what is old is lifted, and what is broken is named."""

import json
from pathlib import Path

import msgspec
import pytest

from restow.contracts import codec, times, upcasters
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import CodecError, Decision, decode, encode
from restow.contracts.ids import EARLIEST, LATEST
from restow.domain.fold import fold
from restow.domain.state import ClusterState

GOLDEN = Path(__file__).parents[2] / "proto" / "golden"
EVENTS = sorted(GOLDEN.glob("*.json"))
EARLIER = sorted((GOLDEN / "earlier").glob("*.json"))
COMMANDS = sorted((GOLDEN / "commands").glob("*.json"))
OBSERVE = {"type": "observe", "kind": "pods", "how": "watch"}


def body(*events, command=OBSERVE, **more) -> bytes:
    return json.dumps({"decisions": [{"command": command, "events": list(events), **more}]}).encode()


def test_there_are_golden_samples_of_everything():
    assert len(EVENTS) == len(e.EVENTS)
    assert len(COMMANDS) == len(c.COMMANDS)


def test_every_event_and_every_command_is_in_its_list():
    """What is written and in neither is unknown to every reader, and no decision of it can be made again."""
    assert {kind for kind in _leaves(e.Event) if kind is not e.Unknown} == set(e.EVENTS)
    assert _leaves(c.Command) == set(c.COMMANDS)


def _leaves(kind):
    known = [one for one in kind.__subclasses__() if one.__module__.startswith("restow.contracts")]
    return {leaf for one in known for leaf in _leaves(one)} if known else {kind}


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_a_commit_of_each_golden_event_is_read_and_written_back_alike(path):
    said = json.loads(path.read_bytes())
    event = codec.decode_event(path.read_bytes())
    decisions = decode(body(said, said, cause="7/0", correlation="x"))
    assert decisions == (Decision(c.Observe("pods", "watch"), (event, event), "7/0", "x"),)
    assert json.loads(encode(decisions)) == json.loads(body(said, said, cause="7/0", correlation="x"))
    assert decode(encode(decisions)) == decisions


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_a_commit_of_each_golden_command_is_read_and_written_back_alike(path):
    said = json.loads(path.read_bytes())
    (decision,) = decode(body(command=said))
    assert decision.command == codec.decode_command(path.read_bytes())
    assert json.loads(encode([decision])) == json.loads(body(command=said))


def test_all_golden_events_in_one_commit_keep_their_order():
    all_of_them = [codec.decode_event(path.read_bytes()) for path in EVENTS]
    (decision,) = decode(encode([Decision(c.Observe("test", "all"), tuple(all_of_them))]))
    assert list(decision.events) == all_of_them


# -- newer than this version -----------------------------------------------------------------------------------------

GONE = {"type": "cluster.pod_gone", "pod": "p"}


def test_an_event_of_an_unknown_type_is_kept_as_it_came_and_its_neighbours_are_read():
    new = {"type": "session.pod_teleported", "pod": "p", "how": {"deep": [1, 2]}}
    (decision,) = decode(body(GONE, new, GONE))
    first, unknown, last = decision.events
    assert first == last == e.PodGone("p")
    assert isinstance(unknown, e.Unknown)
    assert unknown.name == codec.name_of(unknown) == "session.pod_teleported"
    assert json.loads(unknown.raw) == new


def test_it_is_counted_and_skipped_by_the_fold_and_by_a_draft_not_at_all():
    state = ClusterState()
    decisions = decode(body({"type": "cluster.pod_teleported"}, {"type": "cluster.pod_teleported"}, GONE))
    fold(state, 1, "cluster", 5, decisions)
    assert state.unknown == {"cluster.pod_teleported": 2}
    assert (state.seq, state.events, sum(state.void.values())) == (1, 3, 1)
    with state.draft():
        fold(state, 2, "cluster", 6, decisions)
    assert state.unknown == {"cluster.pod_teleported": 2}


def test_an_unknown_command_is_kept_too():
    (decision,) = decode(body(GONE, command={"type": "teleport", "time": 5}))
    assert isinstance(decision.command, e.Unknown)
    assert codec.name_of(decision.command) == "teleport"
    assert decision.events == (e.PodGone("p"),)


def test_fields_that_are_not_known_are_skipped():
    (decision,) = decode(body({**GONE, "why": {"nobody": "knows"}}, later="x"))
    assert decision.events == (e.PodGone("p"),)


# -- older -----------------------------------------------------------------------------------------------------------


def lift_pod_left(raw: bytes) -> bytes:
    """`cluster.pod_left` named the pod `uid`."""
    old = msgspec.json.decode(raw)
    return msgspec.json.encode({"type": "cluster.pod_gone", "pod": old["uid"]})


def test_an_old_event_is_lifted_to_its_present_form(monkeypatch):
    monkeypatch.setitem(upcasters.UPCASTERS, "cluster.pod_left", lift_pod_left)
    (decision,) = decode(body({"type": "cluster.pod_left", "uid": "p"}, GONE))
    assert decision.events == (e.PodGone("p"), e.PodGone("p"))
    assert codec.decode_event(b'{"type":"cluster.pod_left","uid":"q"}') == e.PodGone("q")


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.stem)
def test_what_earlier_releases_wrote_is_read_as_the_present_form(path):
    """The samples say the same in both forms; one that goes by another name than its own is what the present form was at first."""
    raw = path.read_bytes()
    of_event = "." in json.loads(raw)["type"]
    lifted = codec.decode_event(raw) if of_event else codec.decode_command(raw)
    if path.stem == json.loads(raw)["type"]:
        golden = (GOLDEN / f"{codec.name_of(lifted)}.json" if of_event else GOLDEN / "commands" / f"{codec.name_of(lifted)}.json").read_bytes()
        assert lifted == (codec.decode_event(golden) if of_event else codec.decode_command(golden))
    if of_event:
        (decision,) = decode(body(GONE, json.loads(raw), GONE))
        assert decision.events == (e.PodGone("p"), lifted, e.PodGone("p"))
    else:
        (decision,) = decode(body(GONE, command=json.loads(raw)))
        assert decision.command == lifted


def test_each_upcaster_has_an_earlier_sample():
    assert {json.loads(path.read_bytes())["type"] for path in EARLIER} == set(upcasters.UPCASTERS)


def test_a_field_that_need_not_be_there_is_not_lost_under_its_old_name():
    old = json.loads((GOLDEN / "earlier" / "migration.planned.json").read_bytes())
    assert "slots" not in old
    (decision,) = decode(body(old, {k: v for k, v in old.items() if k != "rooms"}))
    assert [len(event.slots) for event in decision.events] == [1, 0]


def test_reasons_of_earlier_releases_are_read_as_the_present_ones():
    """In commits of their own, beside each other, and beside what is in the present form; names of objects stay."""

    def earlier(name):
        return json.loads((GOLDEN / "earlier" / f"{name}.json").read_bytes())

    failed, cancelled, planned = earlier("migration.failed.reason"), earlier("migration.plan_cancelled.reason"), earlier("migration.planned.kept")
    timed_out = cancelled | {"reason": "RoomTimeout"}
    (decision,) = decode(body(failed, cancelled, planned, timed_out, GONE))
    assert [decode(body(one))[0].events[0] for one in (failed, cancelled, planned, timed_out, GONE)] == list(decision.events)
    assert [one.reason for one in (*decision.events[:2], decision.events[3])] == ["NoCapacity", "SlotFailed: 403 Forbidden", "SlotTimeout"]
    assert decision.events[0].message == failed["message"]
    assert decision.events[2].kept == {"Bounced": 1, "UsesReservation: of a hold": 2, "NodeOwesCapacity": 3, "Capacity": 5, "Protected": 4}
    assert [slot.name for slot in decision.events[2].slots] == ["restow-room-p7k2m9-1"]
    assert codec.decode(codec.encode([decision])) == (decision,)
    assert not upcasters.may_be_old(codec.encode([decision]))


def test_a_message_that_quotes_an_old_reason_stays():
    said = 'the log says "reason":"NoRoom", "CameBack": and RoomFailed'
    (decision,) = decode(body({"type": "migration.failed", "migration": "m", "reason": "HoldFailed", "message": said}))
    assert decision.events == (e.MigrationFailed("m", "HoldFailed", said),)


def test_a_label_that_is_called_as_an_old_field_is_no_old_field():
    (decision,) = decode(body({"type": "cluster.namespace_observed", "name": "d", "labels": {"rooms": "many"}}))
    assert decision.events == (e.NamespaceObserved("d", {"rooms": "many"}),)


def test_bytes_of_neither_form_are_named():
    with pytest.raises(CodecError, match=r"events\[0\]: cluster.reservation_observed cannot be lifted"):
        decode(body({"type": "cluster.reservation_observed", "namespace": "d"}))


def test_an_old_event_that_does_not_keep_its_own_form_is_named(monkeypatch):
    monkeypatch.setitem(upcasters.UPCASTERS, "cluster.pod_left", lift_pod_left)
    with pytest.raises(CodecError, match=r"decisions\[0\].events\[1\]: cluster.pod_left cannot be lifted"):
        decode(body(GONE, {"type": "cluster.pod_left"}))
    with pytest.raises(CodecError, match=r"events\[0\]: cluster.pod_left cannot be lifted.*Expected `str`"):
        decode(body({"type": "cluster.pod_left", "uid": 7}))


# -- broken ----------------------------------------------------------------------------------------------------------

DEEP = b'{"decisions":[{"command":{"type":"observe","kind":"x","how":"y"},"events":[' + b"[" * 100_000


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        (b"", "not a commit"),
        (b"null", "not a commit: Expected `object`, got `null`"),
        (b"[]", "not a commit"),
        (b"{}", "not a commit: Object missing required field `decisions`"),
        (b'{"decisions":[{}]}', r"required field `command` - at `\$.decisions\[0\]`"),
        (body(GONE)[:-5], "not a commit"),
        (body(GONE) + b"x", "not a commit"),
        (body(GONE).replace(b"watch", b"\xff\xfe"), r"decisions\[0\].command: "),
        (body(GONE).replace(b'"p"', b'"\xff"'), r"decisions\[0\].events\[0\]: "),
        (body(GONE, cause="c").replace(b'"c"', b'"\xff"'), "not a commit"),
        (body(GONE, {"type": "cluster.pod_gone", "pod": 5}), r"decisions\[0\].events\[1\]: Expected `str`, got `int` - at `\$.pod`"),
        (body({"pod": "p"}), r"decisions\[0\].events\[0\]: .*required field `type`"),
        (body({"type": 7}), r"decisions\[0\].events\[0\]: Expected `str`"),
        (body(5), r"decisions\[0\].events\[0\]: Expected `object`, got `int`"),
        (body(command={"type": "schedule", "time": "now"}), r"decisions\[0\].command: Expected `int`, got `str`"),
        (DEEP, "not a commit"),
    ],
)
def test_a_body_that_is_no_commit_is_refused_and_the_place_is_named(broken, place):
    with pytest.raises(CodecError, match=place):
        decode(broken)


BEYOND = [2**63, 2**64, 10**30, 10**400, -(2**63) - 1]


@pytest.mark.parametrize("value", BEYOND)
def test_a_number_that_no_snapshot_can_hold_is_refused_and_the_place_is_named(value):
    """It would be in the state for ever, and no snapshot could be written again."""
    node = {"type": "cluster.node_observed", "name": "n", "uid": "u", "allocatable": {"cpu": value}}
    move = {"type": "migration.holding", "migration": "x-1", "deadline": value}
    for event, where in ((node, "allocatable"), (move, "deadline")):
        with pytest.raises(CodecError, match=rf"decisions\[0\].events\[0\]: Expected `int` .*{where}"):
            decode(body(event))
    with pytest.raises(CodecError, match=r"decisions\[0\].command: Expected `int`"):
        decode(body(command={"type": "schedule", "time": 1, "limit": value}))


@pytest.mark.parametrize("value", [EARLIEST - 1, LATEST + 1])
def test_a_time_that_cannot_be_written_as_one_is_refused(value):
    with pytest.raises(CodecError, match="deadline"):
        decode(body({"type": "migration.holding", "migration": "x-1", "deadline": value}))
    assert times.rfc3339(value)  # a sum may be one, and is shown


def test_every_whole_number_of_the_contract_is_bounded():
    def unbounded(kind) -> list[str]:
        schema = msgspec.json.schema(kind)
        found = []

        def look(said, path):
            if isinstance(said, dict):
                if said.get("type") == "integer" and "maximum" not in said:
                    found.append(path)
                for key, value in said.items():
                    look(value, f"{path}.{key}")
            elif isinstance(said, list):
                for value in said:
                    look(value, path)

        look(schema, kind.__name__)
        return found

    assert [path for kind in (*e.EVENTS, *c.COMMANDS) for path in unbounded(kind)] == []


def test_an_event_that_is_nested_without_end_is_named_and_does_not_take_the_process_with_it():
    nested = b'{"type":"cluster.pod_gone","pod":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    with pytest.raises(CodecError):
        codec.decode_event(nested)
    with pytest.raises(CodecError):
        decode(body(5).replace(b"[5]", b"[" + nested + b"]"))


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"type":"cluster.pod_gone"}'])
def test_one_event_or_command_alone_is_refused_alike(raw):
    with pytest.raises(CodecError, match=r"^event: "):
        codec.decode_event(raw)
    if b"type" not in raw:
        with pytest.raises(CodecError, match=r"^command: "):
            codec.decode_command(raw)
