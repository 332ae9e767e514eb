"""One supervised child process: its log is a file, its end is noticed, and it never outlives us."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from restow.eventlog.server import die_with_parent

QUICK, QUICKLY = 20, 5.0
"""So many ends in a row, each within this many seconds of its start, and a child is not started again."""

STOP_TIMEOUT = 15.0
"""Seconds until a child that was asked to stop is killed."""


REFUSED = 2
"""Exit code of a service that refuses its settings or its configuration: it would refuse them again."""


class ChildFailed(Exception):
    """A child ended although nobody asked it to. Says what it said last; `refused` where it was its configuration."""

    def __init__(self, name: str, code: int, words: str, log: Path) -> None:
        self.refused = code == REFUSED
        super().__init__(f"{name}: {words}" if self.refused else f"{name} ended with {code}: {words} (log: {log})")


class Child:
    """`restart` brings it back when it ends by itself, as a cluster would, which `on_restart` is told; otherwise its end is reported to `on_failure`."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        restart: bool = False,
        on_failure: Callable[[ChildFailed], None] | None = None,
        on_restart: Callable[[str], None] = lambda said: None,
    ) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._argv = list(argv)
        self._environment = dict(environment)
        self._restart = restart
        self._on_failure, self._on_restart = on_failure, on_restart
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = self._killed = False

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        await self._spawn()
        self._watch = asyncio.create_task(self._supervise(), name=f"supervise {self.name}")

    async def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    async def _supervise(self) -> None:
        quick = 0
        while True:
            assert self._process is not None
            began = asyncio.get_running_loop().time()
            code = await self._process.wait()
            if self._stopping:
                return
            if self._killed:
                # Somebody wanted that; it says nothing about the child.
                wanted, self._killed, quick = True, False, 0
            else:
                wanted, quick = False, quick + 1 if asyncio.get_running_loop().time() - began < QUICKLY else 0
            if not self._restart or code == REFUSED or quick > QUICK:
                if self._on_failure is not None:
                    self._on_failure(ChildFailed(self.name, code, self.reason(), self.log))
                return
            self.restarts += 1
            if not wanted and quick <= 1:
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code} ({self.reason()})"
                self._on_restart(f"{self.name} {how}, and is started again")
            await asyncio.sleep(min(0.05 * 2**quick, 2.0))
            if self._stopping:
                return
            await self._spawn()
            if self._stopping:
                # Asked to stop while it was being started: `stop` knows the process before this one only.
                self._process.kill()

    def kill(self) -> None:
        """SIGKILL, as a crash; a supervised child comes back."""
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            self._process.kill()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after STOP_TIMEOUT. May be called again."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)
            try:
                async with asyncio.timeout(STOP_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._watch is not None:
            await self._watch

    def reason(self) -> str:
        """Why it ended, as far as its last line says."""
        line = self.last_words(1)
        try:
            said = json.loads(line)
            return str(said.get("reason") or said.get("event") or line)
        except (ValueError, AttributeError):
            return line.removeprefix(f"restow-{self.name}: ")

    def last_words(self, lines: int = 8) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"
