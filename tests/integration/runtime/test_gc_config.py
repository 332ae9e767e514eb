"""The collector's configuration: read from its file, refused where it is bad, used as soon as it is in the log."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from domain.build import NOW, reservation, shape

from restow.contracts import commands as c
from restow.domain import config, gc
from restow.domain import reservation as reservations
from restow.domain.decider import decide_all
from restow.domain.state import ClusterState
from restow.garbage_collector.conf import read
from restow.runtime.commander import Commander
from restow.runtime.config_source import BadConfig, ConfigSource
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership
from restow.runtime.telemetry import Metrics

from .rig import ManualClock, facts, idle, memory, until

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000


def test_koordinators_fixed_day_and_minute_can_be_said():
    assert read({"retention": "24h", "period": "60s"}) == config.GcConfig(retention=DAY, period=MINUTE)


def test_without_a_file_a_day_and_no_period():
    assert read(None) == read({}) == config.GcConfig(retention=DAY, period=0)


def test_it_may_delete_at_once_and_practically_never():
    assert read({"retention": 0}).retention == 0
    assert read({"retention": "876600h"}).retention == 100 * 8_766 * HOUR


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"retention": "-1h"}, r"\$\.retention: -1h0m0s; allowed: 0s to 876600h0m0s"),
        ({"retention": -1}, r"\$\.retention: -1ms; allowed: 0s to 876600h0m0s"),
        ({"retention": "900000h"}, r"\$\.retention: 900000h0m0s; allowed: 0s to 876600h0m0s"),
        ({"retention": "soon"}, r"\$\.retention: 'soon' is not a duration; allowed: numbers with units"),
        ({"retention": 1.5}, r"\$\.retention: Expected `int`, got `float`; found 1\.5"),
        ({"retention": None}, r"\$\.retention: Expected `int`, got `null`; found None"),
        ({"period": "-1m"}, r"\$\.period: -1m0s; allowed: 0 \(each as soon as it may be deleted\), or 1s to 8784h0m0s"),
        ({"period": "10ms"}, r"\$\.period: 10ms; allowed: 0 .*or 1s to 8784h0m0s"),
        ({"period": "9000h"}, r"\$\.period: 9000h0m0s; allowed: 0 .*or 1s to 8784h0m0s"),
        ({"period": True}, r"\$\.period: Expected `int`, got `bool`; found True"),
        ({"gcPeriod": "1m"}, r"\$: Object contains unknown field `gcPeriod`.*allowed: retention, period, snapshotEvery, snapshotBytes, keep, keepBytes"),
        ({"snapshotEvery": 0}, r"\$\.snapshotEvery: 0; allowed: 1 or more"),
        ({"keep": -1}, r"\$\.keep: -1; allowed: 0 or more"),
        (["retention"], r"\$: \['retention'\]; allowed: a mapping"),
    ],
)
def test_a_bad_value_is_refused_with_path_value_and_what_is_allowed(said, refusal):
    with pytest.raises(BadConfig, match=refusal):
        read(said)


@asynccontextmanager
async def collector(log):
    follower, leadership, clock = Follower(log, "gc", ClusterState()), Leadership("gc", "one"), ManualClock()
    commander = Commander(log, follower, gc.decider, leadership, clock, Metrics("gc"), service="garbage_collector")
    tasks = [asyncio.create_task(loop.run()) for loop in (follower, commander)]
    try:
        yield follower, leadership, clock, commander
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_changed_period_is_used_at_once_and_a_bad_one_keeps_the_last_good_one(tmp_path):
    file, log = tmp_path / "gc.yaml", memory()
    file.write_text("retention: 10m\nperiod: 24h\n")
    await facts(log, shape("s"), reservation("r", ("t", 0, "s")))
    async with collector(log) as (follower, leadership, clock, commander):
        source = ConfigSource(str(file), read, commander)
        source.load()
        leadership.claim()
        await until(lambda: leadership.leading and follower.state.gc_config.period == DAY, follower)
        refused = decide_all(follower.state, reservations.decider, [c.Review(NOW)])
        await facts(log, *refused[0].events, family="reservation")
        clock.advance(11 * MINUTE)
        await idle()
        assert not follower.state.reservations["r"].collected
        file.write_text("retention: 10m\nperiod: -24h\n")
        source.reload()
        await idle()
        assert source.problem == f"{file}: $.period: -24h0m0s; allowed: 0 (each as soon as it may be deleted), or 1s to 8784h0m0s"
        assert not follower.state.reservations["r"].collected
        file.write_text("retention: 10m\nperiod: 0\n")
        source.reload()
        await until(lambda: follower.state.reservations["r"].collected == "Retention", follower)
        assert follower.state.gc_config == config.GcConfig(retention=10 * MINUTE)
