"""`restow whatif --sweep`: a grid in YAML, one table."""

import json

import pytest
from cli.conftest import export
from click.testing import CliRunner
from replay.test_whatif import queue

from restow.cli.main import cli

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: all
  pluginConfig: [{name: Defragmentation, args: {planner: optimizing}}]
  plugins: {balance: {enabled: [Defragmentation]}}
"""
SCHEDULER = """
actions: allocate
schedulerNames: [restow]
tiers:
- plugins: [{name: predicates}, {name: binpack, arguments: {binpack.weight: 1}}]
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return export(tmp_path_factory.mktemp("sweep") / "log.jsonl.zst", queue().log)


@pytest.fixture
def run(log, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "scheduler.yaml").write_text(SCHEDULER)

    def call(grid, *arguments):
        (tmp_path / "grid.yaml").write_text(grid)
        return CliRunner().invoke(cli, ["whatif", log, "--sweep", "grid.yaml", "--jobs", "1", *arguments])

    return call


def test_every_combination_is_a_row_and_the_best_are_marked(run):
    found = run('nodes: [none, "-1:small"]\nwithout: [none, lab/job-c, [lab/job-b, lab/job-c]]\n')
    assert found.exit_code == 0, found.output
    assert "3 of 3 placements as recorded (100 %)" in found.output
    lines = found.output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("NODES"))
    assert lines[at].split()[:2] == ["NODES", "WITHOUT"]
    assert [line.split()[0] for line in lines[at + 1 : at + 9]] == ["recorded", "as", *["none"] * 3, *["-1:small"] * 3]
    assert [line.endswith("*") for line in lines[at + 3 : at + 9]] == [False, True, True, False, False, True]
    assert found.output.index("Settings") < found.output.index("What the model does not know")


def test_settings_of_the_policy_and_of_plugins_reach_the_deciders(run):
    grid = "restow: {mode: [observe, automatic], interval: [1h]}\nplugins:\n  Defragmentation: {objective: [devices, nodes]}\n  binpack: {binpack.weight: [1, 10]}\n"
    found = run(grid, "--policy", "policy.yaml", "--scheduler-config", "scheduler.yaml", "-o", "json")
    assert found.exit_code == 0, found.output
    tried = json.loads(found.output)["tried"]
    assert len(tried) == 8
    assert tried[0]["setting"] == {"restow mode": "observe", "restow interval": "1h", "Defragmentation objective": "devices", "binpack binpack.weight": "1"}
    assert all(one["measured"]["placements"] == 3 for one in tried)


def test_files_can_be_varied_too(run, tmp_path):
    (tmp_path / "other.yaml").write_text(SCHEDULER.replace("[restow]", "[other]"))
    found = run("schedulerConfig: [scheduler.yaml, other.yaml]\n", "-o", "json")
    assert [one["measured"]["placements"] for one in json.loads(found.output)["tried"]] == [3, 0]


@pytest.mark.parametrize(
    ("grid", "options", "said"),
    [
        ("speed: [1]", (), "$.speed: unknown; allowed: policy, schedulerConfig, nodes, without, restow, plugins"),
        ("{}", (), "no combinations; allowed: 1 to 500"),
        ("[1]", (), "$: [1]; allowed: a mapping"),
        ("nodes: none", (), "$.nodes: 'none'; allowed: a list of what is to be tried"),
        ("nodes: [3]", (), "$.nodes: 3; allowed: text"),
        ("nodes: ['8:small']", (), "with nodes: 8:small: '8:small'; allowed: +8:CLASS"),
        ("restow: {interval: [1h]}", (), "restow.interval: nothing to set it in; allowed: the block `restow` of the policy: name it with --policy"),
        ("plugins: {binpack: {x: [1]}}", ("--policy", "policy.yaml"), "binpack.x: nothing to set it in; allowed: a plugin that --policy or --scheduler-config names"),
        ("restow: {interval: [often]}", ("--policy", "policy.yaml"), "with restow interval: often: policy.yaml: $.restow.interval"),
        ("policy: [policy.yaml]", ("--policy", "policy.yaml"), "policy: given, and --policy too; allowed: one of them"),
        ("policy: [nowhere.yaml]", (), "nowhere.yaml: cannot be read"),
        (f"nodes: {[f'+{i}:small' for i in range(1, 502)]}", (), "501 combinations; allowed: 1 to 500"),
    ],
)
def test_what_cannot_be_is_said_with_what_can(run, grid, options, said):
    found = run(grid, *options)
    assert found.exit_code == 2, found.output
    assert said in " ".join(found.output.split())


def test_options_of_a_grid_without_one_are_refused(log):
    for option in (("--value", "waited"), ("--jobs", "2")):
        found = CliRunner().invoke(cli, ["whatif", log, *option])
        assert found.exit_code == 2
        assert "are for --sweep FILE" in found.output
