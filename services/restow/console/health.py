"""How a log and those who write to it are: who leads each family since when, its size, what is archived; and the verdict of `restow verify`, which runs beside the console."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from restow.console.index import Index
from restow.contracts.ids import FAMILIES
from restow.domain.state import ClusterState
from restow.eventlog.server import die_with_parent

AGAIN = 600.0
"""Seconds after which a verdict on a log that has grown since is made anew, once somebody asks."""
MOST_CHANGES = 20
"""Changes of leaders that are told: the latest ones."""
_LEAST = 19
"""Niceness of the process that verifies: whatever else there is comes first."""
_FOUND, _LETTERS = 20, 2_000
"""Differences that are told, and characters of what went wrong."""


class Found(msgspec.Struct):
    """What `restow verify -o json` says, as far as it is shown."""

    ok: bool
    sentence: str
    last: int
    seconds: float
    families: dict[str, Any] = {}
    advice: list[str] = []
    found: list[Any] = []
    differences: list[Any] = []
    different: int = 0


def families(index: Index, state: ClusterState) -> list[dict[str, Any]]:
    """Of each family that has written: who leads it and since when (ms; 0 where that was before the log begins), its commits and events, and its last commit."""
    commits = index.commits
    rows = []
    for number, family in enumerate(FAMILIES):
        of = np.flatnonzero(commits["family"] == number)
        # What a snapshot had stands where its commit would be.
        of = of[of >= index.from_snapshot]
        leader = state.leaders[family]
        if not len(of) and not leader.epoch:
            continue
        last = int(of[-1]) if len(of) else -1
        rows.append(
            {
                "family": family,
                "holder": leader.holder,
                "epoch": leader.epoch,
                "since": next((change.time for change in reversed(index.leads) if change.family == family), 0),
                "commits": len(of),
                "events": int(commits["events"][of].sum()),
                "last": index.first + last if last >= 0 else 0,
                "time": int(commits["time"][last]) if last >= 0 else 0,
            }
        )
    return rows


def health(index: Index, state: ClusterState) -> dict[str, Any]:
    """At the end of what is folded. Times in ms, sequences of the log; 0 for never. Needs the lock."""
    return {
        "families": families(index, state),
        "changes": [msgspec.to_builtins(change) for change in index.leads[-MOST_CHANGES:]],
        "kept": index.kept,
        "commits": len(index.commits) - index.from_snapshot,
        "rejected": dict(sorted(state.void.items())),
        "unknown": dict(sorted(state.unknown.items())),
        "broken": state.broken,
    }


class Verifier:
    """`restow verify` with these `arguments`, in a process of its own that everything else comes before: first when somebody asks, and again when the log has grown. None where the
    console does not know how to name its log."""

    def __init__(self, arguments: Sequence[str] | None) -> None:
        self._arguments = arguments
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._found: Found | None = None
        self._fault = ""
        self._began = self._ended = 0.0
        self._stopped = False

    def said(self, last: int) -> dict[str, Any]:
        """The verdict, and whether one is being made; `last`: how far the log goes. Begins one where none is as new as it may be."""
        if self._arguments is None:
            return {"state": "off"}
        old = self._found is None or (self._found.last < last and time.monotonic() - self._ended > AGAIN)
        if self._task is None and old and not self._stopped and not (self._fault and time.monotonic() - self._ended < AGAIN):
            self._began = time.monotonic()
            self._task = asyncio.create_task(self._run(list(self._arguments)))
        busy = self._task is not None
        return {
            "state": "running" if busy else "failed" if self._fault else "done",
            "seconds": round(time.monotonic() - self._began, 1) if busy else 0.0,
            "fault": self._fault,
            "verdict": None if self._found is None else msgspec.to_builtins(self._found),
        }

    async def _run(self, arguments: list[str]) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "restow.cli.main", "verify", *arguments, "-o", "json",
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=_last_of_all(),
            )  # fmt: skip
            if self._stopped:
                # While it was being started there was nothing yet to end.
                self._kill()
            out, err = await self._process.communicate()
            try:
                found = msgspec.json.decode(out, type=Found)
            except msgspec.DecodeError:
                said = err.decode(errors="replace").strip()[-_LETTERS:]
                self._fault = said or f"restow verify ended with {self._process.returncode}" + (": it was killed, by lack of memory perhaps" if self._process.returncode == -9 else "")
            else:
                found.found, found.differences = found.found[:_FOUND], found.differences[:_FOUND]
                self._found, self._fault = found, ""
        except OSError as error:
            self._fault = f"restow verify cannot be started: {error.strerror}"
        finally:
            self._ended = time.monotonic()
            self._process = self._task = None

    async def stop(self) -> None:
        """Ends what runs; nothing is begun after it."""
        self._stopped = True
        self._kill()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _last_of_all() -> Callable[[], None]:
    """For the new process: it is the last one to run, the first one to be killed where memory is short, before the console, and ends with it."""
    ends = die_with_parent()

    def prepare() -> None:
        os.nice(_LEAST)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        if ends is not None:
            ends()

    return prepare
