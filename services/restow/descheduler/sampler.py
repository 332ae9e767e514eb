"""A policy that goes by metrics: they are read just before it is carried out, and are in the command. Timed triggers of
such a policy come from here; all others follow from the state alone."""

import asyncio
from collections.abc import Callable, Iterable

from restow.contracts import commands as c
from restow.contracts.ids import Millis
from restow.contracts.samples import Loads, NodeRatios, Samples
from restow.domain.decider import Rejected
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.relevant import relevant
from restow.domain.migration import next_trigger, plan_id, policy_of, wants_samples
from restow.kube.metrics import sample
from restow.runtime import command_queue, logs
from restow.runtime.clock import Timer
from restow.runtime.service import Context
from restow.runtime.signals import Bell
from restow.runtime.telemetry import Labelled

DEADLINE = 30.0
"""Seconds in which all sources must have answered."""
FRESH = 1_000
"""Milliseconds for which what was read is good for whoever asks next, from when it came: anybody may ask for dry runs where there is no token."""
AGAIN = 10_000
"""Milliseconds until a trigger is tried again that came to nothing."""


class Sampler:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._bell = Bell()
        self._timer: Timer | None = None
        self._not_before = 0
        self._reading = asyncio.Lock()
        self._kept: tuple[Policy, Millis, Samples | None] | None = None
        self._wrong: dict[str, str] = {}
        """By source, why what it said last cannot be relied on; "" where it can."""
        context.metrics.labelled(self._usable)

    async def sample(self) -> Samples | None:
        """What the configured policy goes by, None where it asks for nothing. Never raises: what is missing says why, and the plugins
        that need it do nothing."""
        async with self._reading:
            policy, now = policy_of(self._context.state), self._context.clock.now()
            if policy is None or not policy.measured:
                self._wrong = {}
                return None
            if self._kept is None or self._kept[0] is not policy or not 0 <= now - self._kept[1] < FRESH:
                found = await self._read(policy, now)
                # From its end on: a source that is down takes all of DEADLINE, and whoever came in that time would wait as long once more,
                # one after the other, the timed trigger among them.
                self._kept = policy, self._context.clock.now(), found
                self._tell(policy, found)
            return self._kept[2]

    def _tell(self, policy: Policy, samples: Samples | None) -> None:
        """Of a source that is down once, and once when it is back: an interval may be short."""
        now, log = self._context.clock.now(), logs.get(family="migration")
        before, self._wrong = self._wrong, {} if samples is None else _wrong(policy, samples, now)
        for source, why in self._wrong.items():
            if why and not before.get(source):
                log.warning("metrics cannot be relied on", source=source, reason=why)
            elif not why and before.get(source):
                log.info("metrics can be relied on again", source=source)

    def _usable(self) -> Iterable[Labelled]:
        # Of a source that the policy goes by no more nobody is to hear: it may not be read again.
        policy = policy_of(self._context.state)
        sources = {} if policy is None else _sources(policy)
        rows = [((source,), float(not why)) for source, why in self._wrong.items() if source in sources]
        yield Labelled("metrics_source_usable", "1 where the metrics that were read last can be relied on", ("source",), rows)

    async def _read(self, policy: Policy, now: Millis) -> Samples | None:
        context = self._context
        state = context.state
        uids = {f"{pod.fact.namespace}/{pod.fact.name}": uid for uid, pod in state.pods.items() if not pod.live.deleting}
        try:
            async with asyncio.timeout(DEADLINE):
                found = await sample(context.client, policy, uids, now)
        except TimeoutError:
            return _failed(policy, now, f"no answer in {DEADLINE:g} s")
        except Exception as error:
            logs.get(family="migration").warning("metrics cannot be read", reason=f"{type(error).__name__}: {error}")
            return _failed(policy, now, f"cannot be read: {type(error).__name__} {error}")
        return None if found is None else relevant(state, policy, found)

    async def run(self) -> None:
        """Timed triggers of a policy that wants metrics, for ever."""
        context = self._context
        context.follower.listeners.append(self._bell.ring)
        context.leadership.changed.append(self._bell.ring)
        self._bell.ring()
        while True:
            await self._bell.wait()
            if context.leadership.leading and self._is_due():
                await self._trigger()
            self._set_timer()

    def _is_due(self) -> bool:
        state, now = self._context.state, self._context.clock.now()
        if now < self._not_before or not wants_samples(state):
            return False
        trigger = next_trigger(state)
        return trigger is not None and trigger[0] <= now

    async def _trigger(self) -> None:
        context = self._context
        samples = await self.sample()
        trigger, now = next_trigger(context.state), context.clock.now()
        if trigger is None or trigger[0] > now or not wants_samples(context.state) or not context.leadership.leading:
            return
        command = c.Deschedule(now, trigger[1], plan_id(now), samples)
        try:
            await context.commander.submit(command, cause=trigger[1])
        except (Rejected, command_queue.Refused) as error:
            self._not_before = now + AGAIN
            logs.get(family="migration").warning("a trigger came to nothing", trigger=trigger[1], reason=str(error))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        state = self._context.state
        if self._context.leadership.leading and wants_samples(state) and (trigger := next_trigger(state)) is not None:
            at = max(trigger[0], self._not_before, self._context.clock.now() + 1)
            self._timer = self._context.clock.at(Millis(at), self._bell.ring)


def _sources(policy: Policy) -> dict[str, Callable[[Samples, Millis], str]]:
    """What is read for the policy, each with what says why it cannot be relied on (empty: it can)."""
    found: dict[str, Callable[[Samples, Millis], str]] = {}
    if policy.wants_metrics:
        found["metrics.k8s.io"] = Samples.missing
    if policy.prometheus is not None and policy.queries:
        found["Prometheus"] = lambda samples, now: next(filter(None, (samples.missing_query(query, now) for query in policy.queries)), "")
    return found | {source: _loads(source) for source in policy.load_sources}


def _loads(source: str) -> Callable[[Samples, Millis], str]:
    return lambda samples, now: samples.missing_loads(source, now)


def _wrong(policy: Policy, samples: Samples, now: Millis) -> dict[str, str]:
    return {source: why(samples, now) for source, why in _sources(policy).items()}


def _failed(policy: Policy, now: Millis, why: str) -> Samples:
    """Of every source the same."""
    return Samples(
        now,
        error=f"metrics.k8s.io: {why}",
        prometheus={query: NodeRatios(now, error=f"Prometheus: {why}") for query in policy.queries},
        loads={source: Loads(now, error=f"{source}: {why}") for source in policy.load_sources},
    )
