"""Help reads like a manual, fits, and is there at once."""

import re
import resource

import click
import pytest

from restow.cli.main import SECTIONS, cli

COMMANDS = [name for section in SECTIONS.values() for name in section if name not in SECTIONS["Run"]]


@pytest.mark.parametrize("command", ["", "log", *SECTIONS["Run"], *COMMANDS])
def test_help_fits_100_columns(restow, command):
    result = restow(*command.split(), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 100


def test_help_names_every_command_that_is_there(restow):
    text = restow("--help").output
    names = cli.list_commands(click.Context(cli))
    assert {"get", "state", "why", "log", "verify", "defrag", "version"} <= set(names)
    assert all(f"  {name}" in text for name in names if name != "log")
    for title in ("Examples", "Where the log is", "Exit codes"):
        assert title in text


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "version"])
def test_every_command_shows_an_example(restow, command):
    if command == "log stats":
        return
    assert f"restow {command}" in restow(*command.split(), "--help").output.split("Example", 1)[1]


def test_every_command_but_exports_speaks_json(restow):
    for command in COMMANDS:
        if command in ("completion", "console", "replay", "top"):  # a script, a page whose API speaks JSON, and a picture of what `state` says
            continue
        assert re.search(r"--output \[[a-z|]*json", restow(*command.split(), "--help").output), command


def test_help_imports_no_heavy_module(process):
    began = _spent()
    assert process("--help").returncode == 0
    assert _spent() - began < 2, "help is there at once (0.07 s)"


def _spent():
    """Seconds of processor time of all children that have ended: not of what else keeps the machine busy."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_does_not_import_the_domain():
    import subprocess
    import sys

    code = "import sys, restow.cli.main; print([m for m in ('numpy', 'aiohttp', 'nats', 'rich', 'msgspec') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_an_unknown_command_is_refused(restow):
    result = restow("fly")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: No such command 'fly'."


@pytest.mark.parametrize(("typed", "meant"), [(["gett"], "get"), (["desribe", "plan/p1"], "describe"), (["log", "exprot"], "export")])
def test_of_a_command_that_is_mistyped_the_one_that_was_meant_is_named(restow, typed, meant):
    result = restow(*typed)
    assert result.exit_code == 2
    assert f"'{meant}'" in result.output.splitlines()[-1]


def test_who_asks_get_for_another_time_is_told_the_command_that_does_it(restow):
    """`--at` was unknown, and `--nats` suggested in its place."""
    result = restow("get", "node", "--at", "-5m")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == "Error: get lists what exists now; for another time: restow state nodes --at -5m"
