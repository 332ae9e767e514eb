"""`restow whatif` on exported logs."""

import asyncio
import json

import pytest
from cli.conftest import export
from click.testing import CliRunner
from replay.handmade import time_at
from replay.test_whatif import queue

from restow.cli.main import cli
from restow.cli.whatif import largest_first
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import running_server, unique_cluster
from restow.replay import exported
from restow.replay.restore import restore
from restow.replay.state_at import state_at


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return export(tmp_path_factory.mktemp("whatif") / "log.jsonl.zst", queue().log)


def run(*arguments):
    return CliRunner().invoke(cli, ["whatif", *arguments])


def test_the_error_comes_first_and_what_is_not_known_last(log):
    found = run(log)
    assert found.exit_code == 0
    assert "3 of 3 placements as recorded (100 %)" in found.output.splitlines()[2]
    assert "what if" not in found.output
    rows = [line.split() for line in found.output.splitlines() if line.startswith("default")]
    assert [row[:4] for row in rows] == [["default", "recorded", "3", "0"], ["default", "model", "3", "0"]]
    assert found.output.index("GPU-hours lost") < found.output.index("What the model does not know") < found.output.index("* users")


def test_what_is_changed_stands_beside_it_in_table_and_json(log):
    found = run(log, "--nodes", "-1:small", "--without", "lab/job-c", "-o", "json")
    said = json.loads(found.output)
    assert said["percentTheSame"] == 100.0
    assert [said[name]["waits"][0]["pods"] for name in ("recorded", "model", "changed")] == [3, 3, 2]
    assert [said[name]["waits"][0]["longest"] > 1_000 for name in ("recorded", "model", "changed")] == [True, True, True]
    assert run(log, "--nodes", "-1:small", "--without", "lab/job-c", "-o", "json").output == found.output
    assert "what if" in run(log, "--nodes", "+1:n0").output


def test_a_file_that_no_service_would_take_is_refused_with_its_path(log, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("actions: allocate, dance")
    for option in ("--policy", "--scheduler-config"):
        found = run(log, option, str(bad))
        assert found.exit_code == 2
        assert "bad.yaml: " in " ".join(found.output.split())
        assert "allowed" in found.output


def test_files_are_read_as_the_services_read_them(log, tmp_path):
    conf, policy = tmp_path / "conf.yaml", tmp_path / "policy.yaml"
    conf.write_text("schedulerNames: [restow]\nactions: allocate\n")
    policy.write_text("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nrestow: {mode: observe}\n")
    found = run(log, "--policy", str(policy), "--scheduler-config", str(conf), "-o", "json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["changed"]["placements"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "8:small"), "'8:small'; allowed: +8:CLASS or -8:CLASS"),
        (("--nodes", "+0:small"), "allowed: +8:CLASS"),
        (("--nodes", "+8:h100"), "no node is h100"),
        (("--without", "lab/x"), "no pod of lab/x came in this log"),
    ],
)
def test_what_cannot_be_is_said_with_what_can(log, arguments, said):
    found = run(log, *arguments)
    assert found.exit_code == 2
    assert said in found.output.replace("\n", " ")


def test_a_stretch_is_named_as_elsewhere(log):
    found = run(log, "--from", "8", "--to", "-5s", "-o", "json")
    assert found.exit_code == 0, found.output
    said = json.loads(found.output)
    assert (said["seq"], said["error"], said["first"]) == (7, {"placements": 1, "same": 1, "others": 0}, time_at(7))
    assert said["last"] == time_at(queue().source().last) - 5_000
    assert "from the state at sequence 7 on" in run(log, "--from", "8").output.splitlines()[0]
    assert "allowed: a sequence (4711), a time" in " ".join(run(log, "--from", "yesterday").output.split())
    late = run(log, "--from", "2030-01-01T00:00:00Z")
    assert late.exit_code == 2
    assert "nothing happened in this stretch" in late.output


def test_an_export_without_its_beginning_is_refused_with_what_to_do(tmp_path):
    source = queue().source()
    path = tmp_path / "rest.jsonl.zst"
    exported.write(path, next(iter(source.batches(9))), first=9, last=source.last, log_id=source.log_id, cluster="test")
    found = run(str(path))
    assert found.exit_code == 2
    assert "--archive DIR" in " ".join(found.output.split())


async def test_a_running_log_is_read_to_its_end_and_without_its_beginning_from_its_oldest_snapshot():
    source, cluster = queue().source(), unique_cluster()
    with running_server(sync=False) as broker:
        address = ("--server", broker.url, "--cluster", cluster)
        await asyncio.to_thread(restore, source, [broker.url], cluster)
        found = await asyncio.to_thread(run, *address, "-o", "json")
        assert (json.loads(found.output)["percentTheSame"], json.loads(found.output)["seq"]) == (100.0, 0)

        log = await connect([broker.url], cluster)
        try:
            await log.truncate(7)
            found = await asyncio.to_thread(run, *address)
            assert found.exit_code == 2
            assert "no snapshot continues it: name the archive" in " ".join(found.output.split())
            stored = await open_snapshots(log)
            await stored.put(Snapshot(log.log_id, 8, FOLD_VERSION, snapshot.dump(state_at(source, seq=8))))
        finally:
            await log.close()
        found = await asyncio.to_thread(run, *address, "-o", "json")
        assert (json.loads(found.output)["percentTheSame"], json.loads(found.output)["seq"]) == (100.0, 8)
        found = await asyncio.to_thread(run, *address, "--from", "8")
        assert found.exit_code == 2
        assert "oldest snapshot is of sequence 8" in " ".join(found.output.split())


def test_slots_are_listed_the_largest_first():
    sizes = ["1 device", "no device", "0.81 device", "8 devices", "2 x 0.6 device", "10 devices"]
    assert sorted(sizes, key=largest_first) == ["10 devices", "8 devices", "2 x 0.6 device", "1 device", "0.81 device", "no device"]
