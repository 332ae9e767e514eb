"""A service that is paused (SIGSTOP) for longer than every deadline, while a second instance takes over, and then wakes up:
it exits, and what it still does changes nothing. Real processes, a real broker, the embedded Kubernetes API."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import pytest

from restow.contracts import events as e

from . import test_kill as base

FAMILY = {"cluster_watcher": "cluster", "scheduler_session": "session", "reservation_cache": "reservation", "descheduler": "migration", "garbage_collector": "gc"}
DEPOSED = 3
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def without_leases(monkeypatch):
    """Whoever comes claims at once: what a Lease prevents for a while is what is tested here."""
    monkeypatch.setenv("RESTOW_LEASE", "off")


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch):
    monkeypatch.setitem(base.POLICY, "restow", {"concurrent": 4, "evictDeadline": "1s", "holdDeadline": "20s", "landDeadline": "60s"})


@asynccontextmanager
async def paused(made, name):
    """The leader stands still; yields its process, which is gone afterwards."""
    first = made.processes[name]
    os.kill(first.pid, signal.SIGSTOP)
    try:
        yield first
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()


async def second(made, name):
    """Another instance takes the family over."""
    del made.processes[name]
    await made.start(name)
    await made.leading(name)


async def wake(first):
    """The first one goes on, and must end by itself."""
    os.kill(first.pid, signal.SIGCONT)
    async with asyncio.timeout(base.SOON):
        assert await first.wait() == DEPOSED


def ended(log):
    """How migrations ended, of commits."""
    return [x for *_, events in log for x in events if isinstance(x, e.Landed | e.MigrationFailed | e.NotRecreated)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("cluster_watcher", marks=pytest.mark.deep), "scheduler_session", "descheduler"])
async def test_a_paused_leader_that_wakes_up_exits_and_has_decided_nothing(tmp_path, name):
    async with base.stack(tmp_path) as made:
        await base._fragmented(made)
        asked = asyncio.create_task(made.ask("descheduler", "/defragment", "POST"))
        if name == "descheduler":
            await asked
        async with paused(made, name) as first:
            await second(made, name)
            await asked
            await made.until("the migrations end", lambda: base._over(made))
            await made.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "meanwhile"}, "spec": base._pod_spec("100m")})
            everybody = base.SETS * base.REPLICAS + base.NODES // 2 + 1
            await made.until("all pods run", lambda: base._count(made, everybody))
            await made.until("no hold is left", lambda: base._no_hold(made))
            before = await made.running()
            await wake(first)
        assert await made.running() == before
        log = await base._commits(made)
        leaders = [(seq, source) for seq, family, source, events in log for x in events if family == FAMILY[name] and isinstance(x, e.LED[family])]
        (_, old), (since, new) = leaders
        assert old != new
        assert not [seq for seq, _, source, _ in log if source == old and seq > since]
        ends = ended(log)
        assert len(ends) == len({x.migration for x in ends})
        assert not [x for x in ends if isinstance(x, e.NotRecreated)]


@pytest.mark.slow
async def test_an_eviction_that_a_paused_descheduler_had_sent_does_nothing_after_the_abort(tmp_path):
    """Its requests are still on the way when the next leader gives the migrations up; when they arrive, budgets would
    allow them again, and the paused process wakes up, too."""
    async with base.stack(tmp_path) as made:
        await base._fragmented(made)
        faults = made.kube.cluster.faults
        late = faults.add("delay", verb="create", resource="pods/eviction", seconds=600.0, count=4)
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        assert (await made.ask("descheduler", "/defragment", "POST"))[0] == 200
        await made.until("evictions are on the way", lambda: _reached(lambda: late.hits, 4))
        async with paused(made, "descheduler") as first:
            await made.create(budgets, {
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"},
                "spec": {"maxUnavailable": 0, "selector": {"matchExpressions": [{"key": "set", "operator": "Exists"}]}},
            })
            await second(made, "descheduler")
            await made.until("the migrations end", lambda: base._over(made))
            before = await made.running()
            async with made.session.delete(f"{made.kube.url}{budgets}/all") as answer:
                assert answer.status == 200
            faults.clear()
            await made.until("the late evictions were answered", lambda: _reached(lambda: late.done, 4))
            await wake(first)
        assert await made.running() == before
        log = await base._commits(made)
        ends = ended(log)
        assert {type(x) for x in ends} == {e.MigrationFailed}
        # The marks forbid only those evictions: the same pods move when they are asked for by name. (Plans leave alone for a while what
        # was refused.)
        failed = {x.migration for x in ends}
        pods = [move.pod for *_, events in log for x in events if isinstance(x, e.Planned) for move in x.moves if move.migration in failed]
        assert len(pods) >= 4
        for pod in pods[:4]:
            await made.until("the budget is known to be gone", lambda pod=pod: _moves(made, pod))
        await made.until("the migrations end", lambda: base._over(made))
        ends = ended((await base._commits(made))[len(log):])
        assert len(ends) == 4
        assert {type(x) for x in ends} == {e.Landed}


async def _moves(made, pod):
    return (await made.ask("descheduler", "/migrations", "POST", {"pod": pod}))[0] == 200


async def _reached(count, wanted):
    return count() >= wanted
