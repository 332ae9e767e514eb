"""`restow up --detach` and `restow down`: the stack as a background process."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import click

from restow.cli.console import Console
from restow.cli.failures import UNUSABLE, Failure, cannot_be_used
from restow.cli.log_location import UP_LOG

HERE = Path(".restow")
"""Where a stack is, unless --data says otherwise."""

READY_TIMEOUT = 90.0
"""Seconds until a detached stack must be up."""

STOP_TIMEOUT = 60.0
"""Seconds until a stack that was asked to stop must be gone."""

SAVED = "log-*.jsonl.zst"
"""What a stack calls the logs that it leaves."""


def say_saved(file: Path, console: Console, of: str = "") -> None:
    """Where the log is now, and how to look at it."""
    near = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    console.print(f"the log{of} is kept: restow log stats --log {shlex.quote(str(near))}", soft_wrap=True)


def detach(data: Path, console: Console) -> None:
    """Run this very command again without `--detach`, in a session of its own, and wait until it is up. Where it ends
    instead, show what it said."""
    # Its own file until it is up: of two at once one is refused, and is not to end the other's words.
    said = data / f"up-{os.getpid()}.log"
    try:
        data.mkdir(parents=True, exist_ok=True)
        log = said.open("wb")
    except OSError as error:
        raise Failure(cannot_be_used(data, error), UNUSABLE) from None
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "restow.cli.main", *(a for a in sys.argv[1:] if a not in ("-d", "--detach"))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"COLUMNS": str(console.width)},
        )
    try:
        _wait_until_up(process, said, data, console)
    except KeyboardInterrupt:
        # Nobody would know of it: it is in a session of its own, where a terminal's Ctrl-C does not reach it.
        console.print("stopping …")
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
        _forget(said, data)
        raise


def _wait_until_up(process: subprocess.Popen[bytes], said: Path, data: Path, console: Console) -> None:
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        text = said.read_text(errors="replace")
        if "is up" in text and "logs" in text:
            said.replace(data / UP_LOG)
            down = "restow down" if data == HERE else f"restow down --data {shlex.quote(str(data))}"
            console.print(text.replace("Ctrl-C stops it.", f"`{down}` stops it.").strip(), soft_wrap=True)
            return
        if ended:
            console.print(text.strip(), soft_wrap=True)
            _forget(said, data)
            sys.exit(process.returncode or 1)
        time.sleep(0.05)
    process.terminate()
    raise click.ClickException(f"the stack did not start within {READY_TIMEOUT:g} s; it said: {said}")


def _forget(said: Path, data: Path) -> None:
    """Remove what a stack said that did not come up, and its folder if nothing is in it."""
    said.unlink(missing_ok=True)
    with suppress(OSError):
        data.rmdir()


def refuse_second(data: Path) -> None:
    """Raises Failure where a stack runs in this folder already."""
    if (pid := running(data)) is not None:
        raise Failure(f"a stack is running in {data.resolve()} (process {pid}); stop it (`restow down --data {data}`), or use another --data folder", UNUSABLE)


def running(data: Path) -> int | None:
    """The process of the stack that this folder announces, if it lives: then it has the folder's lock. Its number alone says
    nothing: another process may have it by now."""
    try:
        pid = int(json.loads((data / "stack.json").read_text())["pid"])
        folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return pid
    finally:
        os.close(folder)
    return None


def _nearest() -> Path:
    """The folder of the stack that the other commands would find from here."""
    found = (place / ".restow" for place in Path.cwd().parents)
    return next((data for data in (HERE, *found) if running(data) is not None), HERE)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the stack; by default .restow here or in a folder above.")
@click.option("--delete-log", is_flag=True, help="Also delete the log, which is kept by default.")
def down(data: Path | None, delete_log: bool) -> None:
    """Stop the embedded stack that runs in this folder or one above. Its log stays there as one sealed file, log-<time>.jsonl.zst."""
    data = data or _nearest()
    pid = running(data)
    if pid is None:
        said = data / UP_LOG
        ended = f" (the last one ended by itself; see {said})" if said.exists() else ""
        raise click.UsageError(f"no stack is running in {data}{ended}; allowed: the --data folder of a running `restow up`")
    before = {*data.glob(SAVED)}
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    while _alive(pid):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {pid} did not stop within {STOP_TIMEOUT:g} s")
        time.sleep(0.05)
    (data / UP_LOG).unlink(missing_ok=True)
    for file in sorted({*data.glob(SAVED)} - before):
        if delete_log:
            file.unlink()
        else:
            say_saved(file, Console(highlight=False))
    if data.exists() and not any(data.iterdir()):
        data.rmdir()
    click.echo("stopped; nothing is left running")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return b") Z " not in stat.read()
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")
    except OSError:
        return False
