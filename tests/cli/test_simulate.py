"""`restow simulate` finds the simulator in a checkout, and says plainly where there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from restow.cli import simulate
from restow.cli.main import cli

ROOT = Path(__file__).parents[2]


def test_help_of_the_command_names_every_option_of_the_simulator():
    from simulation.__main__ import parser

    said = CliRunner().invoke(cli, ["simulate", "--help"]).output
    for action in parser()._actions:
        assert any(option in said for option in action.option_strings), action.option_strings


def test_without_a_checkout_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulate, "__file__", str(tmp_path / "site-packages" / "restow" / "cli" / "simulate.py"))
    done = CliRunner().invoke(cli, ["simulate", "--seed", "1"])
    assert done.exit_code == 2
    assert "no checkout of Restow here" in done.output
    assert "clone the repository" in done.output


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--until", "5", "--count", "2"], ["--seed", "many"]])
def test_bad_usage_is_refused(arguments):
    run = subprocess.run([sys.executable, "-m", "restow.cli.main", "simulate", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    assert "rror:" in run.stderr


def test_a_seed_up_to_a_commit_can_be_looked_at_by_state_and_why(tmp_path):
    restow = [sys.executable, "-m", "restow.cli.main"]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT / 'libs'}:{ROOT / 'services'}", "HOME": str(tmp_path)}
    asked = ["simulate", "--seed", "1", "--nodes", "3", "--play", "0.2", "--until", "40"]
    run = subprocess.run([*restow, *asked], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    file = tmp_path / ".restow" / "simulation" / "seed-1.jsonl.zst"
    assert f"the log up to commit 40: {file.relative_to(tmp_path)}" in run.stdout
    state = subprocess.run([*restow, "state", "--log", str(file), "-o", "json"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert state.returncode == 0, state.stderr
    assert json.loads(state.stdout)["sequence"] == 40
