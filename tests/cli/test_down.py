"""`restow up` and `down`: what stays is the log."""

import asyncio
import json
import os
import signal
import subprocess
import time

import pytest
from cli.conftest import RESTOW

from restow.eventlog.jetstream import connect
from restow.eventlog.port import BrokerRefused
from restow.eventlog.testing import envelope
from restow.replay.source import open_path


def restow(folder, *arguments):
    done = subprocess.run([RESTOW, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def kept(folder):
    return sorted(path.name for path in (folder / ".restow").iterdir()) if (folder / ".restow").exists() else []


def test_down_keeps_the_log_of_the_stack_of_a_folder_above_in_one_file_and_says_where_and_a_second_stack_is_refused_before_it_starts(tmp_path):
    folder = tmp_path / "a folder"
    (folder / "below").mkdir(parents=True)
    assert restow(folder, "up", "--detach", "--nodes", "2")[0] == 0
    try:
        code, said = restow(folder, "up")
        assert (code, "a stack is running in" in " ".join(said.split()), "stopping" in said) == (2, True, False), said
    finally:
        code, said = restow(folder / "below", "down")
    (file,) = kept(folder)
    assert (code, file.startswith("log-"), file.endswith(".jsonl.zst")) == (0, True, True)
    assert "restow log stats --log '" in said
    assert f"a folder/.restow/{file}'" in said, said
    code, said = restow(folder, "get", "nodes", "--log", f".restow/{file}")
    assert (code, said.count("Ready")) == (0, 2), said
    code, said = restow(folder, "get", "nodes")
    assert (code, f".restow/{file}" in "".join(said.split("\n"))) == (3, True), said


def test_of_several_at_once_in_one_folder_one_is_up_and_the_others_say_why_they_are_not(tmp_path):
    command = [RESTOW, "up", "--detach", "--nodes", "0"]
    all_ = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
    ended = sorted((one.wait(120), *one.communicate()) for one in all_)
    # Before anything is asserted: whichever is up is to be ended.
    stopped = restow(tmp_path, "down", "--delete-log")
    assert [code for code, *_ in ended] == [0, 2, 2], ended
    assert all("a stack is running" in said for _, said, _ in ended[1:]), ended
    assert stopped[0] == 0, stopped
    assert kept(tmp_path) == []


def test_ctrl_c_while_a_detached_stack_starts_stops_it(tmp_path):
    """It is in a session of its own, where no Ctrl-C of this terminal reaches it: it came up all the same, and nobody was told."""
    command = [RESTOW, "up", "--detach", "--nodes", "0"]
    starting = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / ".restow" / "nats").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(starting.pid, signal.SIGINT)
    said, _ = starting.communicate(timeout=120)
    stopped = restow(tmp_path, "down", "--delete-log")
    assert (starting.returncode, "stopping" in said) == (130, True), said
    assert (stopped[0], "no stack is running" in stopped[1]) == (2, True), stopped
    assert kept(tmp_path) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_the_log_of_a_stack_that_was_killed_is_saved_by_the_next(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "3")[0] == 0
    pid = json.loads((tmp_path / ".restow" / "stack.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)
    code, said = restow(tmp_path, "up", "--detach", "--nodes", "0")
    assert code == 0
    assert restow(tmp_path, "down", "--delete-log")[0] == 0
    (file,) = kept(tmp_path)
    assert f"the log of the stack before is kept: restow log stats --log .restow/{file}" in said
    source = open_path(tmp_path / ".restow" / file)
    assert source.last >= 1
    source.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_stack_whose_processes_were_all_killed_leaves_its_log_and_theirs_and_the_next_commands_say_so(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "2")[0] == 0
    pid = json.loads((tmp_path / ".restow" / "stack.json").read_text())["pid"]
    # It is halted meanwhile, for it would end the rest once it has seen that one of them has ended.
    os.kill(pid, signal.SIGSTOP)
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for child in children.read().split():
            os.kill(int(child), signal.SIGKILL)
    os.kill(pid, signal.SIGCONT)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)
    log, logs, said = kept(tmp_path)
    assert (log.startswith("log-"), logs, said) == (True, "logs", "up.log")
    why = "".join((tmp_path / ".restow" / said).read_text().split("\n"))
    assert f"restow log stats --log .restow/{log}" in why
    assert "kubesim ended with -9" in why
    assert (tmp_path / ".restow" / "logs" / "kubesim.log").exists(), why
    code, printed = restow(tmp_path, "get", "nodes", "--log", f".restow/{log}")
    assert (code, printed.count("Ready")) == (0, 2), printed
    for command, exit_code in (("down",), 2), (("get", "nodes"), 3):
        code, printed = restow(tmp_path, *command)
        assert (code, "see .restow/up.log" in " ".join(printed.split())) == (exit_code, True), printed


def test_a_stack_in_a_folder_of_another_name_says_how_commands_find_it(tmp_path):
    code, said = restow(tmp_path, "up", "--detach", "--nodes", "1", "--data", "an other")
    assert code == 0
    try:
        (shown,) = [line.split(None, 1)[1] for line in said.splitlines() if line.startswith("  Restow ")]
        done = subprocess.run(["bash", "-c", shown.replace("restow", str(RESTOW), 1)], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout.count("Ready")) == (0, 1), shown + done.stderr
        assert "`restow down --data 'an other'` stops it." in said
    finally:
        assert restow(tmp_path, "down", "--data", "an other")[0] == 0


def test_down_stops_no_other_process_that_has_the_number_of_a_stack_that_was_killed(tmp_path):
    (tmp_path / ".restow").mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        (tmp_path / ".restow" / "stack.json").write_text(json.dumps({"pid": other.pid}))
        code, printed = restow(tmp_path, "down")
        alive = other.poll() is None
        other.kill()
    assert (code, "no stack is running in .restow" in printed, alive) == (2, True, True), printed


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_detached_stack_in_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    tmp_path.chmod(0o555)
    code, printed = restow(tmp_path, "up", "--detach")
    assert (code, "allowed: --data with a folder that can be written" in " ".join(printed.split())) == (2, True), printed


def test_a_stack_in_place_of_a_file_says_what_to_do(tmp_path):
    (tmp_path / ".restow").write_text("")
    code, printed = restow(tmp_path, "up", "--detach")
    assert (code, "allowed: --data with a folder that can be written" in " ".join(printed.split())) == (2, True), printed


def test_a_stacks_broker_knows_its_users_only_the_owner_of_the_folder_may_read_the_log_and_down_deletes_it_where_that_is_asked_for(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "1")[0] == 0
    try:
        said = json.loads((tmp_path / ".restow" / "stack.json").read_text())
        secret = (tmp_path / ".restow" / "run" / "nats.url").read_text().strip()
        password = secret.rpartition("@")[0].rpartition(":")[2]
        assert oct(os.stat(said["nats_file"]).st_mode & 0o777) == "0o600"
        assert restow(tmp_path, "get", "nodes")[0] == 0
        code, printed = restow(tmp_path, "log", "stats")
        assert code == 0
        assert password not in printed
        code, printed = restow(tmp_path, "log", "stats", "--server", said["nats"], "--cluster", "embedded")
        assert (code, "does not accept this user or password" in printed) == (3, True), printed
        with pytest.raises(BrokerRefused, match="is another service's"):
            asyncio.run(write(secret))
        shown = [path for path in (tmp_path / ".restow").rglob("*") if path.is_file() and path.name != "nats.url" and password.encode() in path.read_bytes()]
        assert shown == []
    finally:
        stopped = restow(tmp_path, "down", "--delete-log")
    assert stopped == (0, "stopped; nothing is left running\n")
    assert not (tmp_path / ".restow").exists()


async def write(url):
    log = await connect(url, "embedded", create=False)
    try:
        await log.append("session", b'{"decisions":[]}', envelope(), expected_last=await log.last_of("session"))
    finally:
        await log.close()
