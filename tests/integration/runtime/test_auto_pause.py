"""What pauses all moves by itself, as the descheduler looks for it: pods that wait although nothing keeps them."""

import asyncio
import contextlib
from types import SimpleNamespace

import msgspec
import pytest
from domain.build import configured, given, pod, then
from domain.saga import world

from restow.contracts import commands as c
from restow.descheduler import auto_pause
from restow.descheduler.auto_pause import Watch
from restow.domain import config
from restow.domain.descheduling.policy import load, written
from restow.domain.migration import next_trigger, plans_by_itself, policy_of, wants_samples
from restow.kube.prometheus import MetricsError
from restow.runtime.policy_file import read
from restow.runtime.telemetry import Metrics

from .rig import ManualClock


class Paused:
    """What asks for a pause, as a context has it."""

    def __init__(self):
        self.reasons = []
        self.metrics, self.client, self.state, self.clock = Metrics("migration"), None, world(), ManualClock()
        self.commander = self

    async def submit(self, command, cause):
        assert (type(command), command.by, cause) == (c.Pause, "", "autoPause")
        self.reasons.append(command.reason)


async def asked(*queries):
    """Why moves are paused, and why a query was not answered; empty for neither."""
    context = Paused()
    wrong = await Watch(context)._ask(None, queries)
    assert len(context.reasons) < 2
    return "".join(context.reasons), wrong


async def test_the_leader_pauses_once_a_pod_has_waited_for_so_long_since_it_was_seen_first():
    asked, clock = [], ManualClock()

    async def submit(command, cause):
        asked.append((command, cause))

    state = then(world(auto_pause=config.AutoPause(pending=60_000)), pod("waits", "s"))
    watch = Watch(SimpleNamespace(state=state, metrics=Metrics("migration"), clock=clock, commander=SimpleNamespace(submit=submit)))
    await watch._look_at_pods()
    clock.advance(59_000)
    await watch._look_at_pods()
    assert asked == []
    clock.advance(1_000)
    await watch._look_at_pods()
    ((command, cause),) = asked
    assert isinstance(command, c.Pause)
    assert (command.by, cause) == ("", "autoPause")
    assert "pod default/waits for 1m0s" in command.reason


def test_pods_that_wait_while_no_session_is_there_are_seen_by_the_descheduler():
    """Else the objective has no errors just then: its metric was the session's alone."""
    clock, metrics, state = ManualClock(), Metrics("migration"), then(world(), pod("waits", "s"))
    Watch(SimpleNamespace(state=state, metrics=metrics, clock=clock))

    def oldest():
        return metrics.registry.get_sample_value("restow_undecided_oldest_seconds", {"family": "migration"})

    assert oldest() == 0.0
    clock.advance(70_000)
    assert oldest() == 70.0


async def test_a_query_that_is_wrong_keeps_no_other_from_pausing(monkeypatch):
    said = {"long": b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"%s"]}]}}' % (b"1" * 5_000_000), "bad(": None, "fine": b'{"status":"success","data":{"resultType":"vector","result":[]}}', "fires": b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"3"]}]}}'}

    @contextlib.asynccontextmanager
    async def asking(client, source, own):
        async def ask(query):
            if said[query] is None:
                raise MetricsError(f"400 to {query!r}")
            return said[query]

        yield ask

    monkeypatch.setattr(auto_pause, "asking", asking)
    assert await asked("bad(", "fires", "fires") == ("autoPause query 'fires' is 3", "400 to 'bad('")
    assert await asked("fine", "bad(") == ("", "400 to 'bad('")
    assert await asked("fine") == ("", "")
    # What no record could hold would pause nothing.
    assert 0 < len((await asked("long"))[0]) < 200


async def test_queries_that_hang_are_waited_for_together(monkeypatch):
    """Ten seconds each, one after the other, kept the one that fires, and the look at pods that wait."""
    together = asyncio.Barrier(3)

    @contextlib.asynccontextmanager
    async def asking(client, source, own):
        async def ask(query):
            await together.wait()
            if query != "fires":
                raise MetricsError(f"no answer to {query}")
            return b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"3"]}]}}'

        yield ask

    monkeypatch.setattr(auto_pause, "asking", asking)
    async with asyncio.timeout(5):
        assert await asked("a", "b", "fires") == ("autoPause query 'fires' is 3", "no answer to a")


async def test_a_query_that_fires_pauses_while_another_hangs(monkeypatch):
    @contextlib.asynccontextmanager
    async def asking(client, source, own):
        async def ask(query):
            if query == "hangs":
                await asyncio.Event().wait()
            return b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"3"]}]}}'

        yield ask

    monkeypatch.setattr(auto_pause, "asking", asking)
    context = Paused()
    round_ = asyncio.create_task(Watch(context)._ask(None, ("hangs", "fires")))
    async with asyncio.timeout(5):
        while not context.reasons:
            await asyncio.sleep(0.01)
    assert not round_.done()
    round_.cancel()


@pytest.mark.parametrize("profiles", [[], [{"name": "by-hand"}], [{"name": "p", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}]])
async def test_queries_are_asked_whatever_the_policy_enables(monkeypatch, profiles):
    """There are moves by hand, too."""
    asked = []

    async def ask(self, source, queries):
        asked.append((source.url, queries))
        return ""

    monkeypatch.setattr(Watch, "_ask", ask)
    asks = read({
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": profiles, "nodeSelector": "pool=none",
        "metricsProviders": [{"source": "KubernetesMetrics"}, {"source": "Prometheus", "prometheus": {"url": "http://prometheus:9090"}}],
        "restow": {"autoPause": {"queries": ["up == 0"]}, "interval": "1m"},
    })  # fmt: skip
    state = given(configured("migration", asks))
    await Watch(SimpleNamespace(state=state, metrics=Metrics("migration"), clock=ManualClock(), client=None))._look_at_queries()
    assert asked == [("http://prometheus:9090", ("up == 0",))]
    enables = any("plugins" in one for one in profiles)
    assert plans_by_itself(asks) == enables
    assert (policy_of(state).node_selector is not None) == enables
    if not enables:
        assert not wants_samples(state)
        assert next_trigger(state) is None


async def test_of_queries_that_the_policy_has_no_more_nobody_hears(monkeypatch):
    """Else RestowAutoPauseBlind goes on until somebody restarts the descheduler."""

    async def ask(self, source, queries):
        return "Prometheus does not answer"

    monkeypatch.setattr(Watch, "_ask", ask)
    said = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [{"name": "p"}], "metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "http://prometheus:9090"}}]}
    asks = config.MigrationConfig(policy=written(load(said)), auto_pause=config.AutoPause(queries=("up",)))
    context = SimpleNamespace(state=given(configured("migration", asks)), metrics=Metrics("migration"), clock=ManualClock(), client=None)
    watch = Watch(context)
    assert [one.samples for one in watch._answers()] == [[]]
    await watch._look_at_queries()
    assert [one.samples for one in watch._answers()] == [[((), 0.0)]]
    then(context.state, configured("migration", msgspec.structs.replace(asks, auto_pause=config.AutoPause())))
    assert [one.samples for one in watch._answers()] == [[]]
