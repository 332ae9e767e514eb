"""A process for each seed: forked, with a limit of time, so that a spin or a crash of the simulator is a finding, too."""

import contextlib
import faulthandler
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

# What a run needs is imported here, before processes are forked: each would spend a second on it.
import restow.kubesim.controllers  # noqa: F401
from simulation.judge import Judge, Limits
from simulation.plan import Plan
from simulation.world import Result, World

LIMIT = 120
"""Seconds of processor time. A seed takes a few, with many migrations some ten; what takes this long goes round in circles."""
PATIENCE = 20
"""So many times that in wall time, on a machine that others use, too."""

class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How plans are run. `until`: stop at this commit; `export`: the folder that the log is written to."""

    limit: int = LIMIT
    until: int = 0
    export: str = ""
    judged: bool = True
    ignore: tuple[str, ...] = ()
    """Promises that are known to break, while that is being mended."""


def run_here(plan: Plan, options: Options) -> Result:
    """In this process, which has to end afterwards: it is on virtual time from now on."""
    began, worked = time.perf_counter(), time.process_time()
    judge = Judge(cluster="sim", limits=Limits(lag=plan.lag)) if options.judged else None
    world = World(plan, judge, until=options.until, ignore=options.ignore)
    try:
        world.run()
    except Exception:
        world.fail("simulator", traceback.format_exc(limit=-6))
    result = world.result()
    if options.export:
        result.log = export(world, Path(options.export))
    result.wall, result.cpu = time.perf_counter() - began, time.process_time() - worked
    return result


def export(world: World, folder: Path) -> str:
    """The whole log of a run as one file, for `restow state --log` and the others."""
    from restow.replay.exported import write

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{world.plan.seed}.jsonl.zst"
    path.unlink(missing_ok=True)
    records = world.broker.records
    write(path, records, first=1, last=len(records), log_id=world.broker.log.log_id, cluster="sim")
    return str(path)


class _Running:
    """One forked run: its result comes through a pipe."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options = plan, options
        self.until = time.monotonic() + options.limit * PATIENCE
        self._stack = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - it lives as long as the child
        self.pipe, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(theirs)
        os.close(theirs)
        self._read = bytearray()

    def _child(self, pipe: int) -> None:
        code = 1
        try:
            os.close(self.pipe)
            # Ctrl-C is the parent's to act on: it ends its children by their ids.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for number in (signal.SIGXCPU, signal.SIGUSR1):
                faulthandler.register(number, self._stack, all_threads=False)
            resource.setrlimit(resource.RLIMIT_CPU, (self.options.limit, self.options.limit + 2))
            answer = memoryview(msgspec.json.encode(run_here(self.plan, self.options)))
            while answer:
                answer = answer[os.write(pipe, answer) :]
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def readable(self) -> Result | None:
        """The result, once all of it is there."""
        part = os.read(self.pipe, 1 << 20)
        if part:
            self._read += part
            return None
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if self._read:
            self._stack.close()
            return msgspec.json.decode(self._read, type=Result)
        if stack := self._told():
            return self._spun(stack)
        return Result(seed=self.plan.seed, broken=[(0.0, 0, "simulator", f"the process of this seed died, status {status}")])

    def _told(self) -> str:
        """Where it was when it was asked first."""
        self._stack.seek(0)
        stack = self._stack.read().decode(errors="replace").split("Stack (most recent call first):")
        self._stack.close()
        return stack[1] if len(stack) > 1 else ""

    def _spun(self, stack: str) -> Result:
        said = f"not over after {self.options.limit} s of processor time; it was in\n{stack[:2000].rstrip()}"
        return Result(seed=self.plan.seed, cpu=float(self.options.limit), broken=[(0.0, 0, "spin", said)])

    def too_long(self) -> Result:
        """End it, and say where it was."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.5)
        self.end()
        return self._spun(self._told())

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)


def run_all(plans: Iterable[Plan], options: Options, jobs: int = 1) -> Iterator[tuple[Plan, Result]]:
    """Each plan and its result, as they come. Ends what it has started, however it ends itself."""
    waiting, running = iter(plans), dict[int, _Running]()
    try:
        more = True
        while more or running:
            while more and len(running) < jobs:
                plan = next(waiting, None)
                if plan is None:
                    more = False
                else:
                    one = _Running(plan, options)
                    running[one.pipe] = one
            if not running:
                break
            ready, _, _ = select.select(list(running), [], [], 0.5)
            for pipe in ready:
                one = running[pipe]
                if (result := one.readable()) is not None:
                    del running[pipe]
                    yield one.plan, result
            for pipe, one in list(running.items()):
                if time.monotonic() > one.until:
                    del running[pipe]
                    yield one.plan, one.too_long()
    finally:
        for one in running.values():
            one.end()


def run_one(plan: Plan, options: Options | None = None) -> Result:
    """One plan, in a process of its own."""
    return next(result for _, result in run_all([plan], options or Options()))
