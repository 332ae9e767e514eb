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


def test_down_keeps_the_log_in_one_file_and_says_where(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "2")[0] == 0
    code, said = restow(tmp_path, "down")
    (file,) = kept(tmp_path)
    assert (code, file.startswith("log-"), file.endswith(".jsonl.zst")) == (0, True, True)
    assert f"restow log stats --log .restow/{file}" in said
    code, said = restow(tmp_path, "get", "nodes", "--log", f".restow/{file}")
    assert (code, said.count("Ready")) == (0, 2), said
    code, said = restow(tmp_path, "get", "nodes")
    assert (code, f".restow/{file}" in "".join(said.split("\n"))) == (3, True), said


def test_down_deletes_the_log_where_that_is_asked_for(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "0")[0] == 0
    assert restow(tmp_path, "down", "--delete-log") == (0, "stopped; nothing is left running\n")
    assert not (tmp_path / ".restow").exists()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_the_log_of_a_stack_that_was_killed_is_saved_by_the_next(tmp_path):
    assert restow(tmp_path, "up", "--detach", "--nodes", "3")[0] == 0
    pid = json.loads((tmp_path / ".restow" / "stack.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)
    assert restow(tmp_path, "up", "--detach", "--nodes", "0")[0] == 0
    assert restow(tmp_path, "down", "--delete-log")[0] == 0
    (file,) = kept(tmp_path)
    source = open_path(tmp_path / ".restow" / file)
    assert source.last >= 1
    source.close()


def test_a_stacks_broker_knows_its_users_and_only_the_owner_of_the_folder_may_read_the_log(tmp_path):
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
        assert restow(tmp_path, "down", "--delete-log")[0] == 0


async def write(url):
    log = await connect(url, "embedded", create=False)
    try:
        await log.append("session", b'{"decisions":[]}', envelope(), expected_last=await log.last_of("session"))
    finally:
        await log.close()
