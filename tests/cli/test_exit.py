"""Exit codes are promises: 0 done, 1 a difference, 2 unusable, 3 cannot connect. And never a traceback."""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import click
import pytest
from cli.conftest import RESTOW, export
from replay.handmade import DECIDERS, migration, placements

from restow.cli import main


@pytest.fixture(autouse=True)
def small_deciders(monkeypatch):
    """The handmade logs were decided by handmade deciders."""
    monkeypatch.setitem(sys.modules, "restow.domain.deciders", SimpleNamespace(DECIDERS=DECIDERS))


def test_verify_of_an_honest_log(restow, tmp_path):
    result = restow("verify", export(tmp_path / "a.jsonl", placements()))
    assert result.exit_code == 0
    assert result.output.endswith("4 of 4 decisions re-decided identically\n")
    assert "session  session@1        3       7          4          4          0        0" in result.output


def test_an_import_of_what_is_damaged_stores_nothing_and_says_what_helps(restow, tmp_path):
    """Before any broker is asked."""
    whole, folder = Path(export(tmp_path / "a.jsonl.zst", placements())), tmp_path / "archive"
    folder.mkdir()
    (folder / "00000000000000000001-00000000000000000007.jsonl.zst").write_bytes(whole.read_bytes()[:-9])
    whole.write_bytes(whole.read_bytes()[:-9])
    for place, helps in (
        (folder, "nothing is stored; put back what is missing, damaged or renamed, from another copy of the archive. Without one, move this segment and all after it elsewhere"),
        (whole, "nothing is stored; take it from another copy, or export it again"),
        (tmp_path / "none", "allowed: an export (*.jsonl.zst, *.jsonl), or the folder or bucket of an archive"),
        (tmp_path, "allowed: an export"),
    ):
        if place == tmp_path:
            whole.unlink()
        result = restow("log", "import", str(place), "--server", "nats://127.0.0.1:9")
        assert (result.exit_code, helps in result.said) == (2, True), result.said


def test_verify_of_a_tampered_log(restow, tmp_path):
    log = placements()
    log.tamper(4, b'"uid-web-2","node":"a"', b'"uid-web-2","node":"b"')
    result = restow("verify", export(tmp_path / "a.jsonl", log))
    assert result.exit_code == 1
    assert "sequence 4, decision 0 (session)" in result.output
    assert '  - {"type":"session.pod_placed","pod":"uid-web-2","node":"b"}' in result.output
    assert '  + {"type":"session.pod_placed","pod":"uid-web-2","node":"a"}' in result.output
    assert result.output.endswith("2 of 4 decisions re-decided identically, 2 differ\n")


def test_verify_as_json(restow, tmp_path):
    log = placements()
    log.tamper(4, b'"uid-web-2","node":"a"', b'"uid-web-2","node":"b"')
    result = restow("verify", export(tmp_path / "a.jsonl", log), "-o", "json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert (answer["ok"], answer["decisions"], answer["identical"]) == (False, 4, 2)


def test_verify_says_what_it_skipped(restow, tmp_path):
    result = restow("verify", export(tmp_path / "a.jsonl", migration()))
    assert "skipped: 5 no decider of family migration here" in result.output


@pytest.mark.parametrize("command", [("verify",), ("state", "--log"), ("why", "x", "--log"), ("log", "stats", "--log")])
def test_damaged_and_foreign_files(restow, moved, tmp_path, command):
    whole = (tmp_path / "moved.jsonl.zst").read_bytes()
    for content in (whole[:-9], whole[:200] + b"x" + whole[201:], b"hello", b""):
        (tmp_path / "bad.jsonl.zst").write_bytes(content)
        result = restow(*command, str(tmp_path / "bad.jsonl.zst"))
        assert result.exit_code == 2, result.output
        assert "bad.jsonl.zst" in result.said
    assert restow(*command, str(tmp_path / "none")).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "pods"),
        ("log", "tail"),
        ("verify",),
        ("defrag", "--dry-run"),
        ("get", "pods", "--server", "nats://127.0.0.1:1"),
        ("defrag", "--now", "--descheduler", "http://127.0.0.1:1"),
    ],
)
def test_nothing_to_connect_to(restow, arguments, monkeypatch):
    monkeypatch.setattr("restow.cli.log_location.CONNECT", 0.5)
    result = restow(*arguments)
    assert result.exit_code == 3, result.output
    assert "restow:" in result.output


def test_a_stack_that_was_killed(restow, tmp_path):
    (tmp_path / ".restow").mkdir()
    (tmp_path / ".restow" / "stack.json").write_text('{"cluster":"c","nats":"nats://127.0.0.1:1","pid":4194304}')
    result = restow("get", "pods")
    assert result.exit_code == 3
    assert "has ended (process 4194304)" in result.said
    (tmp_path / ".restow" / "stack.json").write_text("{")
    assert restow("get", "pods").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("state", "--at", "yesterday"),
        ("state", "--at", "99"),
        ("why", "nobody"),
        ("log", "tail", "-f"),
        ("log", "tail", "--from", "99"),
        ("log", "export", "what.tar"),
        ("log", "export", "x.jsonl", "--from", "9", "--to", "3"),
        ("log", "export", "/proc/none/x.jsonl"),
        ("defrag", "--dry-run"),
        ("defrag", "--now"),
    ],
)
def test_bad_input_is_refused_without_a_traceback(restow, moved, arguments):
    result = restow(*arguments, "--log", moved)
    assert result.exit_code == 2, result.output


@pytest.fixture
def descheduler():
    """Answers what it is told to, and remembers the paths."""

    class Handler(BaseHTTPRequestHandler):
        answer, paths = (200, b"{}"), []

        def do_POST(self):
            self.paths.append(self.path)
            self.send_response(self.answer[0])
            self.end_headers()
            self.wfile.write(self.answer[1])

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    Handler.url = f"http://127.0.0.1:{server.server_port}"
    yield Handler
    server.shutdown()
    server.server_close()


def test_a_refusal_is_told_as_it_was_said(restow, descheduler):
    descheduler.answer = (409, b'{"error":"a plan is under way"}')
    result = restow("defrag", "--now", "--descheduler", descheduler.url)
    assert result.exit_code == 1
    assert "refuses (409): a plan is under way" in result.said


def test_what_is_no_descheduler_is_refused(restow, descheduler):
    descheduler.answer = (200, b"<html>")
    assert restow("defrag", "--now", "--descheduler", descheduler.url).exit_code == 2
    assert restow("defrag", "--now", "--descheduler", "ftp://x").exit_code == 2


def test_the_process_has_the_same_codes(process, moved, tmp_path):
    assert process("get", "pods", "--log", moved).returncode == 0
    assert process("get", "pods", "--log", str(tmp_path / "none")).returncode == 2
    unreachable = process("get", "pods")
    assert (unreachable.returncode, unreachable.stdout) == (3, "")
    assert "restow up" in unreachable.stderr


@click.command()
def endless():
    raise KeyboardInterrupt


def test_ctrl_c_is_neither_a_difference_nor_an_answer(restow, monkeypatch):
    monkeypatch.setitem(main._TARGETS, "endless", f"{__name__}:endless")
    ended = restow("endless")
    assert (ended.exit_code, ended.said.strip()) == (130, "")


@pytest.mark.parametrize(("before", "code"), [("", -signal.SIGINT), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", 0)])
def test_ctrl_c_while_it_is_loaded_ends_it_silently_but_where_nobody_wants_to_hear_of_it(before, code):
    """It printed a traceback."""
    program = f"""
import os, signal, sys
{before}
class Finder:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["--version"]
from restow.cli.entry import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (code, "")


def piped(*arguments, program=(RESTOW,), env=None):
    """The code of a command whose output nobody reads any more, and what it says elsewhere."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*program, *map(str, arguments)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=180, env=env)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


def test_who_stops_reading_is_no_broken_promise(tmp_path):
    file = export(tmp_path / "a.jsonl", placements())
    for command in (("get", "nodes", "--log", file), ("log", "tail", "--log", file, "-o", "json"), ("why", "web-1", "--log", file)):
        assert piped(*command) == (141, ""), command


VERIFY = """
import sys, types
from replay.handmade import DECIDERS
sys.modules["restow.domain.deciders"] = types.SimpleNamespace(DECIDERS=DECIDERS)
from restow.cli.main import cli
cli(["verify", sys.argv[1]])
"""


def test_a_difference_is_a_difference_whoever_reads_it(tmp_path):
    log = placements()
    log.tamper(4, b'"uid-web-2","node":"a"', b'"uid-web-2","node":"b"')
    path = os.pathsep.join(sys.path)
    assert piped(VERIFY, export(tmp_path / "a.jsonl", log), program=[sys.executable, "-c"], env=os.environ | {"PYTHONPATH": path}) == (1, "")


def test_an_export_makes_no_folders(restow, moved, tmp_path):
    result = restow("log", "export", "--log", str(tmp_path / "moved.jsonl.zst"), str(tmp_path / "some" / "where" / "a.jsonl"))
    assert result.exit_code == 2
    assert "is not a folder" in result.said
    assert not (tmp_path / "some").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--server", "nats://127.0.0.1:99999"), ("--server", "nats://x:abc"), ("--server", "nats://x:0"), ("--server", "nats://[::1"), ("--server", "127.0.0.1:99999"),
        ("--server", "nats://127.0.0.1:4222,,"), ("--server", "nats://"), ("--server", "http://a:4222"),
        ("--server", "nats://127.0.0.1:1", "--cluster", "../x"), ("--server", "nats://127.0.0.1:1", "--cluster", "Prod"), ("--server", "nats://127.0.0.1:1", "--cluster", "x" * 64),
    ],
)
@pytest.mark.parametrize("command", [("get", "pods"), ("log", "tail"), ("log", "import", "FILE")])
def test_a_mistyped_address_or_cluster_is_input_that_cannot_be_used(restow, moved, command, options):
    result = restow(*(moved if word == "FILE" else word for word in command), *options)
    assert result.exit_code == 2, result.output
    assert "is not allowed: " in result.said
    assert "fault of Restow" not in result.said


def test_an_address_that_names_another_user_than_the_environment_is_input_that_cannot_be_used(restow, monkeypatch):
    monkeypatch.setenv("RESTOW_NATS_URL", "nats://cli:hunter2@127.0.0.1:1")
    monkeypatch.setenv("RESTOW_NATS_USER", "descheduler")
    monkeypatch.setenv("RESTOW_NATS_PASSWORD", "hunter3")
    result = restow("get", "pods")
    assert result.exit_code == 2, result.output
    assert "names a user or password, and RESTOW_NATS_USER=descheduler another one; allowed: one of them, or the same" in " ".join(result.said.split())
    assert "hunter" not in result.output


def test_a_password_in_a_mistyped_address_is_not_shown(restow):
    result = restow("get", "pods", "--server", "nats://me:hunter2@a:99999")
    assert result.exit_code == 2
    assert "hunter2" not in result.output


@pytest.mark.parametrize("point", ["9" * 5_000, "-" + "9" * 5_000 + "m", "0x1", "٣"])
def test_a_point_that_is_none_is_input_that_cannot_be_used(restow, moved, point):
    result = restow("state", f"--at={point}", "--log", moved)
    assert result.exit_code == 2, result.output
    assert "is no point in a log; allowed: a sequence" in result.said
    assert len(result.output) < 500


def test_a_file_that_is_not_there_is_no_empty_folder(restow, tmp_path):
    for name in ("none", "none.jsonl", "none.jsonl.zst"):
        result = restow("verify", str(tmp_path / name))
        assert (result.exit_code, "No such file or directory" in " ".join(result.output.split())) == (2, True), result.output


@pytest.mark.parametrize("name", ["web-new", "nobody"])
def test_whoever_has_closed_the_output_is_told_nothing(moved, name):
    """As cron jobs and supervisors start things; an error's own message raised another one."""
    for closed, code in ((">&-", 0 if name == "web-new" else 2), ("2>&-", 0 if name == "web-new" else 2)):
        ended = subprocess.run(["sh", "-c", f'"$0" why {name} --log "$1" {closed}', str(RESTOW), moved], capture_output=True, text=True)
        assert (ended.returncode, "Traceback" in ended.stderr + ended.stdout) == (code, False), ended


def test_colours_only_where_the_terminal_and_its_user_want_them(monkeypatch):
    from restow.cli import output

    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert (output.colored("a", "red"), output.heading("a")) == ("\x1b[31ma\x1b[0m", "\x1b[1ma\x1b[0m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert (output.colored("a", "red"), output.heading("a")) == ("a", "\x1b[1ma\x1b[0m")
    monkeypatch.setenv("TERM", "dumb")
    assert (output.heading("a"), output.faint("a")) == ("a", "a")
