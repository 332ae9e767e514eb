"""Completion in real shells: what may follow is offered."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.executable).parent
ASKED = """
source <(restow completion bash)
COMP_WORDS=({words}); COMP_CWORD={at}; _restow_completion restow; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def shell(script: str) -> list[str]:
    path = f"{FOLDER}:{os.environ['PATH']}"
    run = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, env=os.environ | {"PATH": path}, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered", "withheld"),
    [
        (["restow", "de"], {"defrag", "demo", "describe", "descheduler"}, {"why"}),
        (["restow", "get", "po"], {"pods", "podgroups"}, {"nodes"}),
        (["restow", "defrag", "--dry"], {"--dry-run"}, {"--now"}),
        (["restow", "log", "ex"], {"export"}, {"import"}),
    ],
)
def test_bash_offers_what_may_follow(words, offered, withheld):
    found = set(shell(ASKED.format(words=" ".join(words), at=len(words) - 1)))
    assert offered <= found
    assert not withheld & found


@pytest.mark.parametrize(("name", "sign"), [("zsh", "#compdef restow"), ("fish", "complete --no-files --command restow")])
def test_each_shell_has_its_own_script(restow, name, sign):
    assert sign in restow("completion", name).output


def test_another_shell_is_refused_with_those_that_there_are(restow):
    result = restow("completion", "tcsh")
    assert (result.exit_code, "'bash', 'zsh', 'fish'" in result.output) == (2, True)
