"""get, state, why and log on an exported log."""

import errno
import json
import os
import re

import pytest
from cli.conftest import export
from msgspec.structs import replace
from replay.handmade import SHAPE, Handmade, fragmented, migration, node, pod, shape, time_at

from restow.cli.chosen import Chosen
from restow.cli.failures import failure_of
from restow.cli.output import table
from restow.cli.views import COLUMNS
from restow.cli.watched import changes
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.envelope import Envelope
from restow.contracts.reader import READER
from restow.contracts.times import millis
from restow.contracts.values import PodShape
from restow.domain.too_old import TOO_OLD
from restow.eventlog.port import Record, Truncated
from restow.replay.find import Ambiguous, Subject
from restow.replay.state_at import state_at


def test_pods_now(restow, moved):
    assert restow("get", "pods", "--log", moved).output == (
        "NAMESPACE  NAME     STATUS   NODE  CPU  MEMORY  GPU  DEVICES\n"
        "shop       web-new  Running  b       1     1Gi    -  -\n"
    )


def test_pods_then(restow, moved):
    output = restow("state", "pod", "--at", "2026-01-01T00:00:10.500Z", "--log", moved).output
    assert "web-old  Terminating,Moving  a" in output
    assert "web-new  Pending             -" in output
    assert restow("state", "pods", "--at", "10", "--log", moved).output == output
    assert restow("state", "pods", "--at", "-5s", "--log", moved).output == output


def test_the_other_kinds(restow, moved):
    assert "shop/restow-p1-1  Succeeded          0/1/1  b      1/1  1Gi/1Gi  -     10s" in restow("get", "reservations", "--log", moved).output
    assert "p1-1  landed  shop/web-old  a       b" in restow("get", "migrations", "--log", moved).output
    assert "b     Ready      1      0  1/4  1Gi/8Gi" in restow("get", "nodes", "--log", moved).output


def test_kinds_are_understood_in_the_singular_and_short(restow, moved):
    for name in ("pods", "pod", "po", "PODS"):
        assert restow("get", name, "--log", moved).exit_code == 0
    refused = restow("get", "weather", "--log", moved)
    assert refused.exit_code == 2
    assert "'nodes', 'pods', 'podgroups', 'queues', 'reservations', 'plans', 'migrations'" in refused.output


@pytest.mark.parametrize("name", ["web-new", "shop/web-new", "pod/shop/web-new", "uid-web-new"])
def test_a_pod_is_got_by_its_name(as_json, moved, name):
    assert [one["name"] for one in as_json("get", "pods", name, "--log", moved)["items"]] == ["web-new"]


def test_a_kind_and_a_name_are_taken_as_get_prints_them(restow, as_json, moved):
    (path,) = restow("get", "pods", "-o", "name", "--log", moved).output.split()
    assert [one["name"] for one in as_json("get", path, path, "--log", moved)["items"]] == ["web-new"]
    assert "there is no pod none" in restow("get", "pod/none", "--log", moved).said
    assert "'weather' is not one of 'nodes'" in restow("get", "weather/web-new", "--log", moved).output


def test_who_is_not_there_is_said_with_the_way_on(restow, moved):
    result = restow("get", "pods", "web-new", "web-old", "--log", moved)
    assert result.exit_code == 2
    assert "there is no pod web-old at sequence 15; `restow why pod/web-old` tells what became of it" in result.said


def test_names_of_the_other_kinds(restow, moved):
    assert restow("get", "migrations", "p1-1", "-o", "name", "--log", moved).output == "migration/p1-1\n"
    assert restow("get", "plans", "p1", "-o", "name", "--log", moved).output == "plan/p1\n"
    assert restow("get", "nodes", "-o", "name", "--log", moved).output == "node/a\nnode/b\n"


@pytest.mark.parametrize(("selector", "found"), [("app=web", ["web"]), ("app!=web", ["db"]), ("app in (web,db)", ["db", "web"]), ("app,tier", ["web"]), ("!tier", ["db"]), ("app=web,tier=x", [])])
def test_labels_choose_pods(as_json, tmp_path, selector, found):
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(replace(pod("web"), labels={"app": "web", "tier": "front"}), replace(pod("db"), labels={"app": "db"}))
    assert [one["name"] for one in as_json("get", "pods", "-l", selector, "--log", export(tmp_path / "log.jsonl", log))["items"]] == found


def test_labels_that_cannot_be_read_or_asked_for_are_refused(restow, moved):
    assert "'a in (' is no label selector; allowed: a=b" in restow("get", "pods", "-l", "a in (", "--log", moved).said
    assert "the log knows no labels of plans; allowed for: nodes, pods" in restow("get", "plans", "-l", "a=b", "--log", moved).said
    assert "no pods with labels a=b at sequence 15" in restow("get", "pods", "-l", "a=b", "--log", moved).output


def test_yaml_says_what_json_says(restow, as_json, tmp_path):
    import yaml

    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(replace(pod("web"), labels={"a": "\x1b[31m", "b": "no", "c": "é"}))
    file = export(tmp_path / "log.jsonl", log)
    output = restow("get", "pods", "-o", "yaml", "--log", file).output
    assert "\x1b" not in output
    assert yaml.safe_load(output) == as_json("get", "pods", "--log", file)


def test_a_file_does_not_change(restow, moved):
    result = restow("get", "pods", "-w", "--log", moved)
    assert (result.exit_code, "-w needs a running log" in result.said) == (2, True)


def test_what_has_come_and_gone_since_is_told():
    log = migration()
    known = {}
    pods = Chosen("pods", (), None, None)
    for seq in range(1, log.seq + 1):
        told = list(changes(known, pods, state_at(log.source(), seq=seq)))
        assert list(known.values()) == pods.now(state_at(log.source(), seq=seq))
        if seq == 1:
            assert told == []
    last = [what for what, _ in changes({"x": {"name": "x"}, **known}, pods, state_at(log.source()))]
    assert last == ["DELETED"]


def test_what_cannot_be_read_of_a_request_is_shown_as_no_amount(restow, tmp_path):
    log = Handmade()
    asked = PodShape({"cpu": 1 << 48, "memory": 1 << 48, "pods": 1}, "restow", unreadable="spec.containers[0].resources.requests.memory: 7Zi")
    log.facts(e.ShapeDeclared("odd", asked), pod("web", shape="odd"))
    file = export(tmp_path / "log.jsonl", log)
    said = restow("get", "pods", "--log", file).output
    assert re.search(r"web +Pending,Unreadable +- +\? +\? +\?", said), said


def test_a_namespace_filters(restow, as_json, moved):
    assert restow("get", "pods", "-n", "none", "--log", moved).output == "no pods in namespace none at sequence 15\n"
    assert as_json("get", "pods", "-n", "none", "--log", moved)["items"] == []


def test_json_has_stable_keys(as_json, moved):
    answer = as_json("get", "pods", "--log", moved)
    assert list(answer) == ["sequence", "time", "items"]
    assert answer["items"] == [
        {
            "namespace": "shop",
            "name": "web-new",
            "uid": "uid-web-new",
            "labels": {},
            "status": "Running",
            "ready": True,
            "node": "b",
            "shape": SHAPE,
            "requests": {"cpu": 1000, "memory": 1 << 30, "pods": 1},
            "unreadable": "",
            "devices": [],
            "created": "2026-01-01T00:00:00.000Z",
            "reason": "",
            "migration": "",
            "ours": True,
        }
    ]
    for kind in ("nodes", "reservations", "migrations"):
        assert len(as_json("get", kind, "--log", moved)["items"]) in (1, 2)


def test_the_summary(restow, as_json, moved):
    text = restow("state", "--log", moved).output
    assert "sequence 15, 2026-01-01T00:00:15.000Z, 18 events" in text
    assert "1: 1 landed; 1 plan\n" in text
    assert as_json("state", "--log", moved)["migrationsByStep"] == {"landed": 1}


def test_why_in_three_parts(restow, as_json, moved):
    text = restow("why", "pod/web-new", "--log", moved).output
    assert text.startswith("pod shop/web-new  uid-web-new\n  Running, ready, on b\n")
    assert text.index("BECAUSE") < text.index("trigger: api") < text.index("STORY")
    assert max(map(len, text.splitlines())) <= 100
    assert restow("why", "pod", "shop/web-new", "--log", moved).output == text
    answer = as_json("why", "p1-1", "--log", moved)
    assert list(answer)[:5] == ["subject", "seq", "verdict", "chain", "story"]
    assert answer["story"][0]["detail"]["plan"] == "p1"


def test_why_of_a_kind_lists_what_waits(restow, as_json, tmp_path):
    log = Handmade()
    log.facts(node("a"), shape(8000), pod("big"))
    log.decide("session", c.Schedule(time_at(2)), e.Unfit(SHAPE, 1, {"Insufficient cpu": 1}, ("uid-big",)))
    file = export(tmp_path / "w.jsonl", log)
    assert as_json("why", "pod", "--log", file) == [
        {"name": "shop/big", "status": "Waiting", "why": "0/1 nodes are available: 1 Insufficient cpu."}
    ]
    assert "shop/big  Waiting  0/1 nodes" in restow("why", "pods", "--log", file).output
    text = restow("why", "big", "--log", file).output
    assert "would fit with a cpu request of at most 4: 1 node" in text
    assert "no migration needs an explanation" in restow("why", "migration", "--log", file).output


def test_why_of_an_ambiguous_name_lists_candidates(restow, tmp_path):
    log = Handmade()
    log.facts(node("a"), shape(), pod("x"), pod("x", namespace="other", uid="uid-other"))
    result = restow("why", "x", "--log", export(tmp_path / "a.jsonl", log))
    assert result.exit_code == 2
    assert "pod/shop/x" in result.said
    assert "pod/other/x" in result.said


def test_tail_shows_the_latest(restow, moved):
    lines = restow("log", "tail", "-n", "2", "--log", moved).output.splitlines()
    assert lines[0].split() == ["SEQ", "TIME", "FAMILY", "COMMAND", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == ["14", "15"]
    assert "landed as uid-web-new on b" in lines[2]
    every = restow("log", "tail", "--log", moved).output.splitlines()
    assert len(every) == 16
    assert max(map(len, every)) <= 100


def test_tail_by_family_and_from_a_sequence(restow, moved):
    def sequences(*arguments):
        return [json.loads(line)["seq"] for line in restow("log", "tail", "-o", "json", "--log", moved, *arguments).output.splitlines()]

    assert sequences("--family", "session") == [7, 12]
    assert sequences("--family", "session", "-n", "1") == [12]
    assert sequences("--from", "9", "-n", "2") == [9, 10]
    assert sequences("-n", "0") == []


def test_a_tail_from_before_the_log_or_behind_it_is_no_empty_answer(restow, moved, tmp_path):
    part = str(tmp_path / "part.jsonl")
    assert restow("log", "export", part, "--from", "4", "--log", moved).exit_code == 0
    for start in ("3", "16"):
        result = restow("log", "tail", "--from", start, "--log", part)
        assert result.exit_code == 2
        assert f"holds 4 to 15; {start} is not one of them" in result.said
    assert restow("log", "tail", "--from", "15", "--log", part).exit_code == 0


def test_a_commit_as_json_is_all_of_it(restow, moved):
    commit = json.loads(restow("log", "tail", "--from", "15", "-n", "1", "-o", "json", "--log", moved).output)
    assert commit["decisions"][0]["events"] == [
        {"type": "migration.landed", "migration": "p1-1", "pod": "uid-web-new", "node": "b"}
    ]
    assert (commit["read"], commit["logic"], commit["time"]) == (14, "migration@1", "2026-01-01T00:00:15.000Z")


def test_a_record_that_is_not_ours_is_shown_as_void_everywhere(restow, as_json, tmp_path):
    """The answer of a broker's API that somebody sent into the log (RULES G-16)."""
    log = migration()
    before = len(log.records)
    answer = b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}'
    log.records.append(Record(before + 1, "session", Envelope.of({"Nats-X": "1"}), answer, 1_767_225_700_000_000_000))
    file = export(tmp_path / "log.jsonl.zst", log)
    shown = restow("log", "tail", "--log", file, "-n", "1").said
    assert "not ours" in shown
    assert "'ce-id' is missing" in shown
    row = json.loads(restow("log", "tail", "--log", file, "-n", "1", "-o", "json").output)
    assert (row["void"], row["headers"], row["bytes"]) == ("record.no_envelope", {"Nats-X": "1"}, len(answer))
    assert "not ours, void: 1 record.no_envelope" in restow("log", "stats", "--log", file).said
    assert as_json("state", "--log", file)["void"]["record.no_envelope"] == 1
    assert "1 record is not ours, and void" in restow("verify", file).said
    assert restow("why", "p1-1", "--log", file).exit_code == 0


def test_a_log_that_is_broken_is_the_first_thing_that_is_said_of_what_waits(restow, as_json, tmp_path):
    """Nothing is decided then, whatever else speaks against a pod."""
    log = migration()
    lost = replace(log.records[-1], seq=len(log.records) + 1)
    lost = replace(lost, envelope=replace(lost.envelope, id="lost", digest=f"900:{'0' * 32}"))
    log.records.append(lost)
    file = export(tmp_path / "log.jsonl.zst", log)
    said = f"the log is broken at record {lost.seq}, so nothing is decided: `restow log verify` says what is wrong, `restow log repair` goes on without it"
    assert said in restow("state", "--log", file).said
    assert as_json("state", "--log", file)["broken"] == said
    assert as_json("why", "web-new", "--log", file)["verdict"][0] == said
    assert as_json("state", "--log", file, "--at", str(lost.seq - 1))["broken"] == ""


def test_a_log_that_a_later_release_must_read_is_said_to_be_one(restow, as_json, tmp_path):
    log = migration()
    log.facts(release="9.0.0+abc", reader=READER + 1)
    file = export(tmp_path / "log.jsonl.zst", log)
    said = f"{TOO_OLD}: record {log.seq}, written by 9.0.0+abc, needs reader {READER + 1}, and this is reader {READER}. Run that release, or a later one"
    assert said in restow("state", "--log", file).said
    assert as_json("state", "--log", file)["tooOld"] == said
    assert as_json("why", "web-new", "--log", file)["verdict"][0] == said


def test_stats(restow, as_json, moved):
    answer = as_json("log", "stats", "--log", moved)
    assert answer["families"]["session"]["events"] == 2
    assert answer["all"]["commits"] == 15
    assert "migration          5          5       6" in restow("log", "stats", "--log", moved).output


@pytest.mark.parametrize("name", ["part.jsonl", "part.jsonl.zst"])
def test_a_part_is_exported_and_read_again(restow, as_json, moved, tmp_path, name):
    file = str(tmp_path / name)
    assert as_json("log", "export", file, "--from", "3", "--to", "5", "--log", moved)["first"] == 3
    assert restow("log", "tail", "--log", file).output.count("\n") == 4
    again = restow("log", "export", file, "--log", moved)
    assert (again.exit_code, "--force replaces it" in again.said) == (2, True)
    assert restow("log", "export", file, "--force", "--log", moved).exit_code == 0
    refused = restow("state", "--log", str(tmp_path / name))
    assert refused.exit_code == 0


@pytest.mark.parametrize("name", ["part.jsonl", "part.parquet"])
def test_an_export_to_a_full_disk_names_its_file(restow, moved, tmp_path, monkeypatch, name):
    """What the kernel says of a full disk names none."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("restow.replay.source.save", full)
    monkeypatch.setattr("restow.eventlog.parquet.write_parquet", full, raising=False)
    refused = restow("log", "export", str(tmp_path / name), "--log", moved)
    assert refused.exit_code == 2
    assert f"{name} cannot be written: No space left on device" in refused.said


def test_a_part_has_no_state(restow, moved, tmp_path):
    file = str(tmp_path / "part.jsonl")
    restow("log", "export", file, "--from", "3", "--log", moved)
    refused = restow("state", "--log", file)
    assert refused.exit_code == 2
    assert "begins at sequence 3" in refused.said


def test_parquet_has_a_row_an_event(as_json, moved, tmp_path):
    pytest.importorskip("pyarrow")
    file = str(tmp_path / "events.parquet")
    assert as_json("log", "export", file, "--log", moved)["rows"] == 18


def test_a_dry_run_offline_is_decided_on_the_log(restow, as_json, tmp_path):
    file = export(tmp_path / "f.jsonl", fragmented())
    text = restow("defrag", "--dry-run", "--log", file).output
    assert text.startswith("would move 1 pod off 1 node in 1 wave; planner greedy, decided at sequence 3\n")
    assert "shop/lone  a     b" in text
    assert "1  Bare     no controller would create it again" in text
    assert as_json("defrag", "--dry-run", "--log", file)["events"][0]["moves"][0]["target"] == "b"


def test_into_a_pipe_nothing_is_cut(restow, moved, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    text = restow("why", "web-new", "--log", moved).output
    assert "slot task-0 of shop/restow-p1-1 is handed over to shop/web-new on b" in text
    assert "…" not in text


@pytest.mark.parametrize("view", ["nodes", "pods", "migrations"])
def test_names_are_whole_however_narrow_the_terminal_is(restow, moved, monkeypatch, view):
    """They are copied into the next command."""
    names = {row["name"] for row in json.loads(restow("state", view, "--log", moved, "-o", "json").output)["items"] if "name" in row}
    monkeypatch.setenv("COLUMNS", "30")
    text = restow("state", view, "--log", moved).output
    assert all(name in text for name in names)


@pytest.mark.parametrize("columns", [80, 100])
def test_why_a_move_ended_is_whole_in_a_usual_terminal(columns, monkeypatch, capsys):
    """And how long ago; the moment is in -o wide and -o json."""
    monkeypatch.setenv("COLUMNS", str(columns))
    move = {
        "id": "p7k2m9-3", "step": "failed", "namespace": "shop", "name": "web-7d4b-x2x9p", "source": "node-a", "target": "node-b", "beside": None,
        "since": "2026-01-01T00:00:00.000Z", "reason": "HoldFailed", "asked": "", "message": "", "waits": "",
    }  # fmt: skip
    titles, row, right, flexible = COLUMNS["migrations"]
    table(titles, [row(move, millis("2026-01-01T00:04:00Z"))], right=right, flexible=flexible)
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[-2:] == ["4m", "HoldFailed"]
    assert len(line) <= columns


STEERS = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\n     9999  forged"


def test_what_stands_in_a_log_steers_no_terminal_and_makes_no_line_of_its_own(restow, tmp_path):
    """Whoever may write one family writes names and messages; a message of the API may come from anybody."""
    log = Handmade()
    log.facts(node("a" + STEERS), shape(), pod("p" + STEERS, uid="uid-p"))
    log.decide("session", c.Schedule(time_at(2)), e.PodReleased("uid-p", STEERS), logic="session@1" + STEERS, release=STEERS)
    file = export(tmp_path / "log.jsonl", log)
    commands = (["state", "pods"], ["state", "nodes"], ["why", "uid-p"], ["why", "pod"], ["log", "tail"], ["log", "stats"], ["verify"], ["why", "x" + STEERS])
    for command in commands:
        for form in ((), ("-o", "json")):
            said = restow(*command, *(["--log", file] if command != ["verify"] else [file]), *form)
            assert not set("\x1b\x07\x9b\u202e") & set(said.output), command
            assert not any(line.startswith("     9999") for line in said.output.splitlines()), command
    assert json.loads(restow("state", "nodes", "--log", file, "-o", "json").output)["items"][0]["name"] == "a" + STEERS


def test_the_default_queue_is_there_without_an_object(restow, moved):
    said = restow("why", "queue/default", "--log", moved)
    assert said.exit_code == 0
    assert "it has no object: whatever names no queue is in it all the same" in said.output
    assert "allocated: 1 cpu and 1Gi memory" in said.output
    assert json.loads(restow("why", "default", "--log", moved, "-o", "json").output)["subject"]["kind"] == "queue"


def test_a_queue_with_the_name_of_a_node_is_another_thing_and_does_not_end_with_it(restow, tmp_path):
    log = Handmade()
    log.facts(node("gpu"), e.QueueObserved("gpu", "uid-q", 1), kind="queues")
    log.facts(e.NodeGone("gpu"), kind="nodes")
    file = export(tmp_path / "log.jsonl", log)
    assert restow("why", "gpu", "--log", file).exit_code == 2, "either may be meant"
    assert json.loads(restow("why", "queue/gpu", "--log", file, "-o", "json").output)["subject"]["gone"] == 0
    assert json.loads(restow("why", "node/gpu", "--log", file, "-o", "json").output)["subject"]["gone"] == 2


def test_a_plan_is_named_as_a_kind_and_means_its_moves(restow, moved):
    said = restow("why", "plan/p1", "--log", moved)
    assert said.exit_code == 0
    assert said.output.startswith("migration p1-1")
    assert "migration 'p9'" in restow("why", "plan/p9", "--log", moved).output


@pytest.mark.parametrize(("count", "more"), [(2, []), (20, []), (23, ["  ... and 3 more"])])
def test_of_what_a_name_may_be_twenty_are_listed_and_a_plans_moves_name_their_plan(count, more):
    moves = [Subject("migration", f"p7-{i}", "", f"p7-{i}", i) for i in range(1, count + 1)]
    rows = failure_of(Ambiguous("p7", moves)).message.splitlines()
    assert rows[:2] == ["the plan itself, with its moves: restow describe plan/p7", f"'p7' may be any of {count}; or choose one:"]
    assert rows[2 + min(count, 20) :] == more
    of_two = failure_of(Ambiguous("p", [*moves, Subject("migration", "p8-1", "", "p8-1", 1)])).message
    assert "describe" not in of_two


@pytest.mark.parametrize(("columns", "gap"), [(85, 2), (82, 1), (78, 1)])
def test_no_line_of_a_table_breaks_where_columns_cannot_give_way(capsys, monkeypatch, columns, gap):
    """As the one of `restow verify` in a terminal of 80 columns: nothing but the last column may be cut, and it needs its name."""
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ("FAMILY", "LOGIC", "COMMITS", "EVENTS", "DECISIONS", "IDENTICAL", "DIFFERENT", "SKIPPED")
    table(names, [("reservation", "reservation@4", "3", "4", "4", "4", "0", "0")], right=names[2:])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(names)
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("FAMILY" + " " * (5 + gap) + "LOGIC")


def test_names_of_groups_are_whole_in_a_terminal_of_80_columns(capsys, monkeypatch):
    """Four groups of nodes were all "2 gpu…"."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ("NODES", "COUNT", "PODS", "FREE NODES", "FREE GPUS", "FRAGMENTED", "WORTH")
    rows = [(f"2 gpu, {cpu} cpu, 512Gi", "38", "-22 +17", "0", "117 → 120", "20.34 → 11.51", "80.9 → 148") for cpu in (64, 104)]
    table(names, rows, right=names[1:], flexible=("NODES",), wrap=("NODES",))
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    said = " ".join(" ".join(line[:18].strip() for line in printed[1:]).split())
    assert said == "2 gpu, 64 cpu, 512Gi 2 gpu, 104 cpu, 512Gi"


def test_a_log_that_is_truncated_while_a_command_reads_it_is_no_riddle():
    said = failure_of(Truncated(108, 121))
    assert said.exit_code == 2
    assert said.message == "the log was truncated while it was read: sequence 108 is gone, it begins at 121 now. Run the command again; --archive names the archive of what was before"
