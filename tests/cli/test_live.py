"""The same commands against a real broker: found by address, or by the stack's announcement."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest
from cli.conftest import RESTOW, export
from replay.handmade import migration, placements

from restow.eventlog.testing import running_server, unique_cluster


@pytest.fixture(scope="module")
def broker():
    with running_server(sync=False) as server:
        yield server


@pytest.fixture
def imported(broker, moved, restow):
    """A cluster at the broker that holds the log with the moved pod."""
    cluster = unique_cluster()
    result = restow("log", "import", moved, "--server", broker.url, "--cluster", cluster)
    assert result.output == f"15 records of log {'f' * 32} are restored as cluster {cluster}\n"
    return cluster


def test_an_imported_log_is_the_same_log(restow, as_json, broker, imported, moved, tmp_path):
    at = ("--server", broker.url, "--cluster", imported)
    assert restow("get", "pods", *at).output == restow("get", "pods", "--log", moved).output
    assert restow("why", "p1-1", *at).output == restow("why", "p1-1", "--log", moved).output
    assert restow("log", "tail", "-o", "json", *at).output == restow("log", "tail", "-o", "json", "--log", moved).output
    assert as_json("log", "export", str(tmp_path / "again.jsonl.zst"), *at)["last"] == 15
    again = restow("log", "tail", "-o", "json", "--log", str(tmp_path / "again.jsonl.zst")).output
    assert again == restow("log", "tail", "-o", "json", "--log", moved).output


def test_a_watch_tells_what_there_is_and_ends_quietly(broker, imported):
    command = [RESTOW, "get", "pods", "-w", "-o", "json", "--server", broker.url, "--cluster", imported]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        told = json.loads(process.stdout.readline())
        assert (told["type"], told["object"]["name"]) == ("ADDED", "web-new")
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate(timeout=60)
        assert (process.returncode, wrong) == (0, "")
    finally:
        process.kill()
        process.wait(30)


def test_an_import_never_overwrites(restow, broker, imported, moved, tmp_path):
    again = restow("log", "import", moved, "--server", broker.url, "--cluster", imported)
    assert again.exit_code == 2
    assert "has this log already, with sequences 1 to 15" in again.said
    log = placements()
    source = log.source()
    source.log_id = "e" * 32
    log.source = lambda: source
    other = restow("log", "import", export(tmp_path / "o.jsonl", log), "--server", broker.url, "--cluster", imported)
    assert other.exit_code == 2
    assert "has another log already" in other.said


def test_a_cluster_without_a_log_is_refused(restow, broker):
    result = restow("get", "pods", "--server", broker.url, "--cluster", "nobody")
    assert result.exit_code == 3
    assert "cluster 'nobody' has no log here" in result.said


def test_a_running_stack_is_found_from_a_folder_below(restow, broker, imported, tmp_path, monkeypatch):
    (tmp_path / ".restow").mkdir()
    stack = {"cluster": imported, "nats": broker.url, "pid": os.getpid(), "archive": str(tmp_path / "archive")}
    (tmp_path / ".restow" / "stack.json").write_text(json.dumps(stack))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert "web-new" in restow("get", "pods").output
    assert restow("state", "--at", "-5m").exit_code == 0


def test_the_environment_names_the_broker(restow, broker, imported, monkeypatch):
    monkeypatch.setenv("RESTOW_NATS_URL", broker.url)
    monkeypatch.setenv("RESTOW_CLUSTER", imported)
    assert "web-new" in restow("get", "pods").output


def test_a_tail_follows_and_ends_well(broker, imported):
    """Ctrl-C is how it ends: exit code 0, nothing on stderr."""
    import asyncio
    import signal

    from restow.eventlog.jetstream import connect

    arguments = [RESTOW, "log", "tail", "-f", "-n", "1", "-o", "json", "--server", broker.url, "--cluster", imported]
    tail = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(120, tail.kill)
    watchdog.start()
    try:
        assert json.loads(tail.stdout.readline())["seq"] == 15

        async def append():
            log = await connect(broker.url, imported, create=False)
            record = migration().records[-1]
            await log.append("migration", record.body, record.envelope, expected_last=15)
            await log.close()

        asyncio.run(append())
        assert json.loads(tail.stdout.readline())["seq"] == 16
        time.sleep(0.1)
        tail.send_signal(signal.SIGINT)
        _, errors = tail.communicate(timeout=60)
        assert (tail.returncode, errors) == (0, "")
    finally:
        watchdog.cancel()
        if tail.poll() is None:
            tail.kill()
            tail.wait()


def test_what_no_record_can_hold_repairs_nothing(restow, broker, imported):
    """It was written all the same, and nobody could read it."""
    at = ("--server", broker.url, "--cluster", imported, "--yes")
    before = restow("log", "tail", "-n", "1", *at[:4]).output
    assert restow("log", "repair", "--lost", str(2**63), *at).exit_code == 2
    refused = restow("log", "repair", "--lost", "99", "--reason", "not \udcff UTF-8", *at)
    assert refused.exit_code == 2
    assert "is not UTF-8" in refused.said
    assert restow("log", "tail", "-n", "1", *at[:4]).output == before
    said = restow("log", "repair", "--lost", str(2**63 - 1), *at).said
    assert "repaired by record 16" in said
    assert "a pause, a mode" in said
    assert restow("log", "verify", *at[:4]).exit_code == 0
