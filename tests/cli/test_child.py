"""A process of the embedded stack that ends by itself is started again, and whoever looks at `restow up` is told."""

import asyncio
import os
import signal
import sys

import pytest

from restow.cli.embedded.child import Child

WAITS = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("first", "number", "says"),
    [(WAITS, signal.SIGKILL, "watcher was ended by SIGKILL, and is started again"), ("import sys; print('no log', flush=True); sys.exit(3)", None, "watcher ended with 3 (no log), and is started again")],
)
async def test_who_ended_and_how_is_said_once(tmp_path, first, number, says):
    said, program = [], tmp_path / "program.py"
    program.write_text(first)
    child = Child("watcher", [sys.executable, str(program)], tmp_path / "log", {}, restart=True, on_restart=said.append)
    await child.start()
    async with asyncio.timeout(30):
        if number is not None:
            while (pid := child.pid) is None:
                await asyncio.sleep(0.01)
            os.kill(pid, number)
        while child.restarts < (1 if number else 3):
            await asyncio.sleep(0.01)
    await child.stop()
    assert said == [says]


async def test_nothing_is_said_of_one_that_was_killed_on_purpose(tmp_path):
    said = []
    child = Child("watcher", [sys.executable, "-c", WAITS], tmp_path / "log", {}, restart=True, on_restart=said.append)
    await child.start()
    child.kill()
    async with asyncio.timeout(30):
        while child.restarts < 1:
            await asyncio.sleep(0.01)
    await child.stop()
    assert said == []
