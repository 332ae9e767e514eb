"""One service as a process: everything wired, started in order, stopped in order, and loud when anything fails.

Exit codes: 0 stopped as asked, 1 failed, 2 bad settings or configuration, 3 another process leads the family, or must.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from restow import machine
from restow.contracts import times
from restow.contracts.ids import Millis
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.eventlog import jetstream
from restow.eventlog.port import EventLog, LogError, Record, Truncated, Unavailable, reached
from restow.eventlog.snapshots import Snapshots
from restow.kube.client import Client, ClientConfig, ClientConfigError, connect
from restow.kube.event_recorder import MOST_NOTICES, Recorder
from restow.runtime import logs, release, settings
from restow.runtime.bearer import Gate
from restow.runtime.candidate import Candidate
from restow.runtime.certificate_ends import of_broker
from restow.runtime.clock import Clock, LogClock, SystemClock
from restow.runtime.commander import Commander
from restow.runtime.config_source import BadConfig, ConfigSource
from restow.runtime.effector import Effector
from restow.runtime.follower import Follower
from restow.runtime.health import Health
from restow.runtime.http import Server
from restow.runtime.leadership import Deposed, Leadership, Phase
from restow.runtime.loading import Loading
from restow.runtime.log_opening import LogOpening
from restow.runtime.service import TO_REPAIR, Context, Service, Shaping
from restow.runtime.signals import unless
from restow.runtime.telemetry import Metrics
from restow.runtime.tracer import Tracer, collector_of, resource_of
from restow.tracing.collector import NoCollector
from restow.tracing.exporter import Exporter

TAIL_ASKED_EVERY = 5.0
"""Seconds between two questions of how far the log goes: a reader whom nobody sends anything does not know that it is behind."""

TAIL_ASKED_AGAIN = 1.0
"""The same after one without an answer."""

THREADS_END = 5.0
"""Seconds that threads have to end once everything else has stopped: a bucket that hangs answers after a minute, and an archive may be folded for longer. What they do they must
stand being killed in, as ever."""

GC_THRESHOLD = (20_000, 20, 100)
"""The state is large, lives for ever and has next to no cycles: Python's collector should rarely look at it."""


def run(service: Service, argv: Sequence[str] | None = None) -> None:
    """The process's whole life; never returns."""
    try:
        given = settings.read(service.name, sys.argv[1:] if argv is None else argv)
    except settings.BadSetting as error:
        sys.exit(_said(2, str(error)))
    logger = logs.configure(given.log_level, given.log_format, service=service.name, identity=given.identity)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = _lived(runner, Process(service, given, logger), logger)
        # Its end waits for all threads of the loop, and so does Python's.
        last = threading.Timer(THREADS_END, _leave, (code,))
        last.daemon = True
        last.start()
    sys.exit(code)


def _lived(runner: asyncio.Runner, process: "Process", logger: logs.Logger) -> int:
    """The exit code of what it has come to, which is logged."""
    try:
        return runner.run(process.life())
    except (BadConfig, NoCollector) as error:
        logger.error("bad configuration", reason=str(error))
        return 2
    except Deposed as error:
        logger.warning("deposed", reason=str(error))
        return 3
    except Truncated as error:
        # It stood still while the collector did not, and its snapshots go on from there: nothing is wrong.
        logger.warning("starts again from a snapshot", reason=str(error))
        return 3
    except (LogError, ClientConfigError, OSError) as error:
        logger.error("cannot go on", reason=str(error), kind=type(error).__name__)
        return 1
    except KeyboardInterrupt:
        return 0
    except BaseException:
        logger.exception("crashed")
        return 1


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _said(code: int, text: str) -> int:
    print(text, file=sys.stderr)
    return code


class Process:
    """One run of a service. `log` and `client` can be given, for tests in one process."""

    def __init__(
        self,
        service: Service,
        given: settings.Settings,
        logger: logs.Logger | None = None,
        *,
        log: EventLog | None = None,
        snapshots: Snapshots | None = None,
        client: Client | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.service, self.settings = service, given
        self.logger = logger or logs.get(service=service.name)
        self.health = Health()
        self.metrics = Metrics(service.family)
        self.stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self.context: Context | None = None
        self._given: tuple[EventLog | None, Snapshots | None, Client | None] = log, snapshots, client
        self._log_clock = LogClock() if clock is None else None
        self._clock: Clock = clock or self._log_clock or SystemClock()
        self._phase = "starting"
        self.candidate: Candidate | None = None
        self._config: ConfigSource | None = None
        self._effector: Effector | None = None
        self._gate = Gate(given.api_token, given.api_token_file, given.answers_token_file, reads_only=given.read_only == "on")
        self.server = Server(service.name, self.health, self.metrics.registry, self._summary, self._gate)
        self.health.checks.append(lambda: self._phase)
        self.health.checks.append(lambda: self.candidate.cannot_ask if self.candidate is not None else "")

    async def life(self) -> int:
        """Until SIGTERM, or until something fails: then it raises."""
        loop = asyncio.get_running_loop()
        self.logger.info("starting", **self.settings.shown())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            async with contextlib.AsyncExitStack() as stack:
                await self._up(stack)
        finally:
            await self.server.stop()
        self.logger.info("stopped")
        return 0

    def stop(self) -> None:
        """Stop in order. A second call does not hurry: the drain is bounded."""
        self._phase = "stopping"
        self.stopping.set()

    # -- up ------------------------------------------------------------------------------------------------------------

    async def _up(self, stack: contextlib.AsyncExitStack) -> None:
        started, collector = machine.steady(), collector_of()
        await self.server.start(*self.settings.listen, self.settings.http_file)
        self.metrics.gauges(self._gauges)
        begun = await self._begun(stack)
        if begun is None:
            return
        context, loading = begun
        log, state = context.log, context.state
        shaping = self.service.shape(context) if self.service.shape else Shaping()
        exporter = None
        if collector is not None:
            resource = resource_of(self.service.name, log.cluster, log.log_id, self.settings.identity)
            exporter = Exporter(collector, resource, lambda said: self.logger.warning("spans", said=said))
            stack.push_async_callback(asyncio.to_thread, exporter.close)
        tracer = Tracer(exporter)
        commander = context.commander = Commander(
            log, context.follower, self.service.decider, context.leadership, self._clock, self.metrics,
            service=self.service.name, tracer=tracer,
            propose=shaping.propose, book=shaping.book, shrink=shaping.shrink, heavy=shaping.heavy,
        )
        context.follower.arrived = self._time_of_record
        context.follower.bytes = loading.bytes
        context.follower.expect(loading.mark)
        commander.release = release.name(self.settings.image)
        parts = self.service.assemble(context)
        effector = self._effector = Effector(
            context.follower, self.service.decider, context.leadership, commander, parts.executors, self.metrics,
            acts=self.settings.read_only != "on", tracer=tracer,
        )
        self.metrics.labelled(effector.oldest)
        self.server.extend(parts.routes)
        self.health.checks.extend(parts.checks)
        if (heavy := shaping.heavy) is not None:
            self.health.notes.append(lambda: heavy.note(state, self._clock.now()))
        self.health.checks.append(lambda: f"{broken}. {TO_REPAIR}" if (broken := context.follower.broken) else "")
        self.health.checks.append(lambda: too_old(state))
        trouble = commander.trouble
        self.health.checks.append(lambda: f"the log does not take commits: {trouble.why}" if trouble.why else "")
        follow = asyncio.create_task(context.follower.run(), name="follower")
        tasks = [follow]
        try:
            await self._caught_up(follow, context.follower)
            self.logger.info(
                "caught up", seq=state.seq, address=self.server.address, seconds=round(machine.steady() - started, 3)
            )
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLD)
            self._configure(context, commander)
            candidate = self.candidate = Candidate(self.settings, context.client, commander, self.stopping, self.logger)
            own = [commander.run(), effector.run(), context.recorder.run(), candidate.lead(self._drained), self._see_the_tail(context), loading.until_saved(state), *parts.tasks]
            if self._config is not None:
                own.append(self._config.watch())
            tasks += [asyncio.create_task(task, name=getattr(task, "__qualname__", "task")) for task in own]
            # Whoever leads without a lease claims first: it is no standby, which would be ready.
            await asyncio.sleep(0)
            if self._phase == "starting":
                self._phase = ""
            await self._until_stopped(tasks)
            await self._drain(commander, effector, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _begun(self, stack: contextlib.AsyncExitStack) -> tuple[Context, Loading] | None:
        """Kubernetes, the log, its time, and the state as of the newest snapshot; None where the service is to stop before."""
        log, snapshots, client = self._given
        if client is None:
            client = await _client(self.settings)
            stack.push_async_callback(client.close)
        if log is None:
            there = await LogOpening(self.service.name, self.service.family, self.settings, client, self.stopping, self._say, self.logger).log()
            if there is None:
                return None
            log = there
            stack.push_async_callback(there.close)
            self.health.checks += [there.away, there.too_few, there.unlike]
            self.health.notes.append(there.some_silent)
            self.health.notes += [there.crowded, there.damaged_copy]
            self.health.notes.append(lambda: of_broker(self.settings.nats_files, machine.now()))
            stores = self.service.stores_snapshots
            opening = Loading(there, None, None, self._say, self.logger)
            snapshots = await unless(self.stopping, opening.ask(lambda: jetstream.open_snapshots(there, create=stores)))
            if self.stopping.is_set():
                return None
        await self._learn_time(log)
        if self.stopping.is_set():
            return None
        archive = self.settings.archive_of(log.cluster) if self.service.stores_snapshots else None
        loading = Loading(log, snapshots, archive, self._say, self.logger)
        state = await unless(self.stopping, loading.state())
        if state is None:
            return None
        context = self.context = self._assemble(log, snapshots, client, state)
        return context, loading

    async def _see_the_tail(self, context: Context) -> None:
        """For ever: for the lag that is shown, and for whether enough brokers are there (`JetStreamLog.too_few`), of which who has nothing to append hears nothing."""
        while True:
            try:
                context.follower.seen = await context.log.tail()
                pause = TAIL_ASKED_EVERY
            except Unavailable:
                pause = TAIL_ASKED_AGAIN
            await asyncio.sleep(pause)

    async def _learn_time(self, log: EventLog) -> None:
        """Before anything is decided: what is due is due by the log's time, not by this machine's. A broker that has just gone away is waited for: its records tell a
        machine that is ahead so only once it has stored a commit that says its own time, which every reader folds and `restow verify` reports."""
        if self._log_clock is None:
            return
        self.health.notes.append(self._log_clock.problem)

        async def answer() -> tuple[float, int]:
            return machine.steady(), await log.time()

        said = await unless(self.stopping, Loading(log, None, None, self._say, self.logger).ask(answer))
        if said is None:
            return
        sent, time = said
        self._log_clock.asked(time, sent, machine.steady())
        if problem := self._log_clock.problem():
            self.logger.warning("wrong clock", reason=problem)

    def _time_of_record(self, record: Record) -> None:
        clock, context = self._log_clock, self.context
        if clock is None or context is None:
            return
        before = clock.problem()
        ours = record.family == self.service.family and record.envelope.source.endswith(f"/{context.leadership.holder}")
        stamped: Millis | None = None
        if ours:
            # Whether the record is what it says is not known yet (RULES G-16).
            with contextlib.suppress(ValueError):
                stamped = times.stamped(record.envelope.time)
        clock.stored(record.time, stamped)
        if not before and (problem := clock.problem()):
            self.logger.warning("wrong clock", reason=problem)

    def _say(self, phase: str) -> None:
        if not self.stopping.is_set():
            self._phase = phase

    def _assemble(self, log: EventLog, snapshots: Snapshots | None, client: Client, state: ClusterState) -> Context:
        family, identity = self.service.family, self.settings.identity
        return Context(
            service=self.service, settings=self.settings, log=log, snapshots=snapshots, client=client,
            recorder=Recorder(client, f"restow.dev/{self.service.name.replace('_', '-')}", identity, limit=0 if self.settings.read_only == "on" else MOST_NOTICES),
            follower=Follower(log, family, state),
            leadership=Leadership(family, f"{identity}/{machine.token(4)}"),
            clock=self._clock, metrics=self.metrics, health=self.health, gate=self._gate,
        )

    async def _caught_up(self, follow: asyncio.Task[None], follower: Follower) -> None:
        async def there() -> None:
            await follower.known.wait()
            await follower.folded.reached(follower.tail)

        waiting = asyncio.create_task(there())
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({follow, waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                follow.result()
        finally:
            waiting.cancel()
            stop.cancel()

    def _configure(self, context: Context, commander: Commander) -> None:
        if self.service.read_config is None:
            return
        self._config = ConfigSource(self.settings.config, self.service.read_config, commander, self.service.default_config, self.service.fits)
        self._config.load()
        source = self._config
        context.refused = lambda: f"configuration refused, the last good one is used: {source.problem}" if source.problem else ""
        self.health.notes.append(context.refused)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, source.hup)

    # -- down ----------------------------------------------------------------------------------------------------------

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self.stopping.wait())
        done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done - {stop}:
            task.result()
            if not self.stopping.is_set():
                raise RuntimeError(f"task {task.get_name()} ended by itself")

    async def _drain(self, commander: Commander, effector: Effector, tasks: list[asyncio.Task[None]]) -> None:
        """Finish the commit and the effects in flight, then give the lease up."""
        assert self.context is not None
        seconds, context = self.settings.drain, self.context
        self.logger.info("draining", commit_in_flight=commander.in_flight, effects=effector.under_way, seconds=seconds)
        await effector.drain(seconds)
        commander.drain()
        running = [t for t in tasks if not t.done() and t.get_name() == "Commander.run"]
        if running:
            await asyncio.wait(running, timeout=seconds)
        self._drained.set()
        leader = [t for t in tasks if not t.done() and t.get_name() == "Candidate.lead"]
        if leader and context.leadership.phase is not Phase.STANDBY:
            await asyncio.wait(leader, timeout=2.0)

    # -- what others see -----------------------------------------------------------------------------------------------

    def _summary(self) -> dict[str, Any]:
        context = self.context
        summary: dict[str, Any] = {
            "service": self.service.name, "family": self.service.family, "identity": self.settings.identity, "release": release.name(self.settings.image)
        }  # fmt: skip
        if context is None:
            return summary
        state = context.state
        leader = state.leaders[self.service.family]
        return summary | {
            "phase": str(context.leadership.phase),
            "epoch": leader.epoch,
            "leader": leader.holder,
            "log": context.log.log_id,
            "seq": state.seq,
            "lag": context.follower.lag,
            "time": state.time,
            "configured": state.configured.get(self.service.family, ""),
            "effects": self._effector.owed if self._effector else 0,
            **state.counts(),
        }

    def _gauges(self) -> dict[str, float]:
        context = self.context
        # Also of whoever waits for a broker that does not let it in: that may be why.
        files = {"broker_certificate_due": float(bool(of_broker(self.settings.nats_files, machine.now())))}
        if context is None:
            return files | {"ready": 0.0}
        state, there = context.state, context.follower.caught_up
        counted = {f"state_{name}": value for name, value in state.counts().items()}
        if not there:
            # Old ones are counted anew by whoever starts: that is no alert.
            del counted["state_foreign_records"]
        return files | {
            "leader": float(context.leadership.leading and reached(context.log)),
            "ready": float(self.health.report().ready),
            "log_sequence": state.seq,
            "log_lag": context.follower.lag,
            "log_stuck": float(bool(context.commander.trouble.why)) if context.commander else 0.0,
            # A break that was repaired is one until the repair is folded.
            "log_broken": float(there and bool(context.follower.broken)),
            "log_repairs": state.repairs,
            "log_too_new": float(bool(too_old(state))),
            "clock_ahead_seconds": self._log_clock.ahead / 1000 if self._log_clock else 0.0,
            "effects_owed": self._effector.owed if self._effector else 0,
            **counted,
        }


async def _client(given: settings.Settings) -> Client:
    agent, read_only = f"restow/{given.identity}", given.read_only == "on"
    if not given.kube:
        return await connect(ClientConfig(in_cluster=True, user_agent=agent, read_only=read_only))
    if given.kube.startswith(("http://", "https://")):
        return await connect(ClientConfig(url=given.kube, user_agent=agent, read_only=read_only))
    return await connect(ClientConfig(kubeconfig=given.kube, user_agent=agent, read_only=read_only))
