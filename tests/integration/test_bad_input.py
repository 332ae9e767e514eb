"""What a user can get wrong when starting something: one sentence with file, place, value and what is allowed; exit code 2;
never a traceback; nothing left running and nothing left behind."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from restow.runtime import policy_file as policy
from restow.runtime import scheduler_conf as conf
from restow.runtime.config_source import BadConfig, parse

NODES, PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
NODE_LIST = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,64000,262144,2,P100\nnode-b,64000,262144,2,P100\n"
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
LINE = "pod-{},12000,16384,1,1000,,LS,Running,{},900,0\n"
POD_LIST = HEADER + "".join(LINE.format(i, i) for i in range(5))
POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: p
    pluginConfig:
      - name: Defragmentation
        args:
          ResourceType: cpu
          lowThresholds: {cpu: LOW}
          defragmentThresholds: {cpu: 40}
          protectionThresholds: {cpu: 90}
    plugins: {balance: {enabled: [Defragmentation]}}
"""


def restow(*arguments, folder, timeout=180):
    command = [sys.executable, "-m", "restow.cli.main", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=timeout, env=None)
    done.said = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
    assert "Traceback" not in done.said, done.said
    return done


def changed(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


TRACES = {
    "a missing column": (PODS, changed(POD_LIST, "gpu_milli", "milli"), f"{PODS}:1: columns gpu_milli are missing; allowed: a header with name,"),
    "a bad number": (PODS, changed(POD_LIST, "12000", "12k"), f"{PODS}:2: cpu_milli is '12k'; allowed: a whole number, 0 to"),
    "a fraction": (PODS, changed(POD_LIST, "16384", "16384.5"), f"{PODS}:2: memory_mib is '16384.5'; allowed: a whole number"),
    "a number that is too large": (PODS, changed(POD_LIST, "16384", "9" * 17), f"{PODS}:2: memory_mib is '{'9' * 17}'; allowed: 0 to"),
    "a negative number": (NODES, changed(NODE_LIST, "64000", "-1"), f"{NODES}:2: cpu_milli is '-1'; allowed: 1 to"),
    "more than a device": (PODS, changed(POD_LIST, "1,1000", "1,1001"), f"{PODS}:2: gpu_milli is '1001'; allowed: 1 to 1000"),
    "an empty value": (PODS, changed(POD_LIST, "12000", ""), f"{PODS}:2: cpu_milli is ''; allowed: a value"),
    "a cut line": (PODS, POD_LIST[:-20], f"{PODS}:6: the line has more or fewer fields than the header; allowed: 11"),
    "a name that occurs twice": (PODS, POD_LIST + LINE.format(1, 9), f"{PODS}:7: name is 'pod-1'; allowed: each name once; line 3 has it, too"),
    "a node that occurs twice": (NODES, changed(NODE_LIST, "node-b", "node-a"), f"{NODES}:3: sn is 'node-a'; allowed: each name once; line 2 has it, too"),
    "a name that is none": (PODS, changed(POD_LIST, "pod-1", "Pod 1!"), f"{PODS}:3: name is 'Pod 1!'; allowed: "),
    "an end before its beginning": (PODS, changed(POD_LIST, ",4,900", ",4,3"), f"{PODS}:6: deletion_time is '3'; allowed: creation_time (4) or later"),
    "bytes that are no text": (PODS, POD_LIST.encode() + b"\xff\xfe\x00\x9b" * 30, f"{PODS}:"),
    "random bytes": (NODES, bytes(range(256)) * 9, f"{NODES}:1: not a csv file from here on"),
    "zeros": (PODS, POD_LIST.encode() + b"\0" * 100, f"{PODS}:"),
    "an open quote": (PODS, changed(POD_LIST, "pod-2", '"pod-2'), f"{PODS}:"),
    "an empty file": (PODS, "", f"{PODS}:1: columns name, cpu_milli, memory_mib, num_gpu, gpu_milli are missing"),
    "a header alone": (PODS, HEADER, f"{PODS}:2: the file ends after its header; allowed: a line for each pod"),
    "no file": (PODS, None, f"{PODS}: cannot be read: No such file or directory; allowed: a csv file"),
}


@pytest.mark.parametrize("case", TRACES)
def test_a_malformed_trace_is_refused(case, tmp_path, capsys):
    """Through the command itself, in this process: a process for each would only be slower."""
    from click.testing import CliRunner

    from restow.cli.main import cli

    file, content, said = TRACES[case]
    for name, text in ((NODES, NODE_LIST), (PODS, POD_LIST)):
        (tmp_path / name).write_text(text)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = CliRunner().invoke(cli, ["demo", "--trace", str(tmp_path), "--data", str(tmp_path / "data")])
    shown = "".join(result.output.splitlines()).replace("restow: ", "")
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert said.replace(" ", "") in shown.replace(" ", ""), result.output
    assert not (tmp_path / "data").exists()


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    from restow.cli.demo import trace

    (tmp_path / NODES).write_text(NODE_LIST, encoding="utf-8-sig")
    (tmp_path / PODS).write_text(POD_LIST)
    assert [node.name for node in trace.load(tmp_path).nodes] == ["node-a", "node-b"]


def test_what_is_no_folder_is_refused(tmp_path):
    done = restow("demo", "--trace", "nowhere", folder=tmp_path)
    assert done.returncode == 2
    assert f"nowhere: not a folder; allowed: a folder with {NODES} and {PODS}" in done.said


CONFIGS = {
    "policy: thresholds that contradict each other": ("--policy", changed(POLICY, "LOW", "60"), "args.lowThresholds['cpu']: 60; allowed: at most defragmentThresholds, 40"),
    "scheduler: a key that is there twice": ("--scheduler-config", "tiers: []\ntiers: []", "bad.yaml: line 2: key 'tiers' is there twice"),
    "objects: no YAML": ("--apply", "kind: [", "bad.yaml: not YAML:"),
    "nodes: a list": ("--nodes-from", "[1]", "bad.yaml: every document must be an object with a kind"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_that_cannot_be_used_is_refused_at_start(case, tmp_path):
    option, text, said = CONFIGS[case]
    (tmp_path / "bad.yaml").write_text(text)
    done = restow("up", "--nodes", 0, option, "bad.yaml", folder=tmp_path)
    assert done.returncode == 2, done.said
    assert said in done.said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.yaml"]


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (policy.read, "profiles: [", "not YAML:"),
        (policy.read, changed(POLICY, "profiles:", "profilez:"), "$.profilez: unknown; allowed: apiVersion, kind, profiles, nodeSelector, maxNoOfPodsToEvictTotal, "),
        (conf.read, "[1]", "$: [1]; allowed: a mapping"),
        (conf.read, "actions: alocate", "$.actions: 'alocate'; allowed: enqueue, reserve, allocate"),
    ],
    ids=["policy: no YAML", "policy: an unknown key", "scheduler: a list", "scheduler: an unknown action"],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_the_place(read, text, said):
    with pytest.raises(BadConfig) as refused:
        read(parse(text))
    assert said in str(refused.value)


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = restow("up", "--nodes", 0, "--port", port, folder=tmp_path)
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1: address already in use; allowed: a free port, or 0 for any" in done.said


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = restow("up", "--data", "file", folder=tmp_path)
    assert done.returncode == 2
    assert "file cannot be used: File exists; allowed: --data with a folder that can be written" in done.said


def test_a_second_stack_in_a_folder_is_refused_and_the_first_goes_on(tmp_path):
    first = subprocess.Popen([sys.executable, "-m", "restow.cli.main", "up", "--nodes", "0"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        announced = tmp_path / ".restow" / "stack.json"
        deadline = time.monotonic() + 60
        while not announced.exists():
            assert time.monotonic() < deadline
            assert first.poll() is None
            time.sleep(0.05)
        done = restow("up", "--nodes", 0, folder=tmp_path)
        assert done.returncode == 2
        assert f"a stack is running in {tmp_path / '.restow'} (process {first.pid}); stop it (`restow down --data .restow`), or use another --data folder" in done.said
        assert announced.exists()
        assert restow("get", "nodes", folder=tmp_path).returncode == 0
    finally:
        first.terminate()
        assert first.wait(30) == 0
    assert not announced.exists()


def test_a_stack_that_was_killed_does_not_block_its_folder(tmp_path):
    command = [sys.executable, "-m", "restow.cli.main", "up", "--nodes", "0"]
    killed = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    announced = tmp_path / ".restow" / "stack.json"
    deadline = time.monotonic() + 60
    while not announced.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    done = restow("up", "--nodes", 0, "--port", 0, "--policy", _bad(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert "is running" not in done.said


def _bad(folder):
    (folder / "bad.yaml").write_text("x: 1")
    return "bad.yaml"


def test_without_a_broker_to_start_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("RESTOW_NATS_SERVER", "/nowhere/nats-server")
    for command in (("up",), ("demo", "--nodes", 4)):
        done = restow(*command, folder=tmp_path)
        assert done.returncode == 1
        assert "RESTOW_NATS_SERVER names /nowhere/nats-server, which is not an executable file" in done.said


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty", "random"])
def test_a_damaged_log_is_refused_by_every_command(damage, tmp_path):
    from replay.handmade import migration

    from restow.replay import exported

    source = migration().source()
    file = tmp_path / "log.jsonl.zst"
    exported.write(file, migration().records, first=1, last=source.last, log_id=source.log_id, cluster="test")
    good = file.read_bytes()
    middle = len(good) // 2
    file.write_bytes({
        "cut": good[:middle],
        "flipped": good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :],
        "foreign": b"PK\x03\x04 something else",
        "empty": b"",
        "random": bytes(range(256)) * 5,
    }[damage])
    for command in (("verify", "log.jsonl.zst"), ("state", "--log", "log.jsonl.zst"), ("why", "x", "--log", "log.jsonl.zst")):
        done = restow(*command, folder=tmp_path)
        assert done.returncode == 2, done.said
        assert "log.jsonl.zst: " in done.said


def test_help_needs_nothing(tmp_path):
    assert restow("demo", "--help", folder=tmp_path).returncode == 0
    assert not list(Path(tmp_path).iterdir())
