"""The last release and this one side by side on one log: every service is upgraded while migrations run, and taken back again. No pod is lost, no hold leaks,
and each decision is made again, to the byte, by whoever has made it."""

import asyncio
import json
import subprocess
import sys
from collections import Counter

import pytest
from checker import check
from domain.build import NOW, node, pod, shape
from integration import test_migration_kill as scene
from integration.killing import PATIENCE, nobody_is_lost
from integration.last_release import install, last_release
from integration.runtime.rig import facts, memory, records

from restow.cli.demo.feed import Api
from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.ids import FAMILIES, WRITERS
from restow.contracts.reader import needed
from restow.contracts.values import Packing
from restow.domain.records import FINAL
from restow.domain.state import ClusterState
from restow.replay.source import ListSource, open_broker, open_path, save
from restow.runtime import release

NODES, MOVERS = 12, 72
POLICY = configs.policy(resource="cpu", concurrent=3) + "  perNode: 50\n"
"""Few at once: moves are to be under way while each service is started anew."""


class Mixed(Stack):
    """`python`: what each service runs on; this one's unless it says otherwise."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.python: dict[str, str] = {}

    def _child(self, name, argv, environment, *, restart):
        return super()._child(name, [self.python.get(name, argv[0]), *argv[1:]], environment, restart=restart)

    async def change(self, name: str, python: str, observer: Observer) -> None:
        """Stop it in order, and start it on another Python; back when that leads."""
        family = next(family for family, writer in WRITERS.items() if writer == name)
        epoch = observer.state.leaders[family].epoch
        await self.children[name].stop()
        self.python[name] = python
        await self._start_service(name)
        await observer.until(f"{name} leads again", lambda: observer.state.leaders[family].epoch > epoch, PATIENCE)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    version, commit = last_release()
    return version, install(commit, tmp_path_factory.mktemp("last-release"))


async def play(folder, python: str, said: dict) -> None:
    stack = Mixed(folder / "stack", policy=POLICY, scheduler=configs.scheduler(), keep=True, kubelet_speed=0.1)
    stack.python = dict.fromkeys(WRITERS.values(), python)
    async with stack, Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
        await scene.workloads(api, observer)
        state = observer.state
        await scene.ask(stack)
        await observer.until("the plan", lambda: bool(state.migrations), PATIENCE)
        under_way = []
        for to in (None, python):
            for name in WRITERS.values():
                under_way.append(len(state.active))
                await stack.change(name, to or sys.executable, observer)
        said["under way at each change"] = under_way
        await observer.until("every migration has ended", lambda: all(m.step in FINAL for m in state.migrations.values()), PATIENCE)
        said["ended"] = dict(Counter(f"{m.step} {m.reason}".strip() for m in state.migrations.values()))
        await observer.until("all pods run and no hold is left", lambda: settled(state, observer), PATIENCE)
        await nobody_is_lost(api, scene.NS, scene.MOVERS + scene.NODES)
        live = open_broker(stack.nats, stack.cluster)
        try:
            await asyncio.to_thread(save, live, folder / "log.jsonl.zst")
        finally:
            live.close()


def settled(state: ClusterState, observer: Observer) -> bool:
    return observer.running() == scene.MOVERS + scene.NODES == len(state.pods) and not state.reservations and not observer.holds()


def again(python: str, file) -> dict:
    """What `restow verify` of that release says."""
    done = subprocess.run([python, "-m", "restow.cli.main", "verify", "--log", str(file), "-o", "json"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.slow
def test_services_of_two_releases_share_a_log_up_and_down_while_migrations_run(tmp_path, earlier, monkeypatch, capsys):
    version, python = earlier
    monkeypatch.setattr(scene, "NODES", NODES)
    monkeypatch.setattr(scene, "MOVERS", MOVERS)
    monkeypatch.setattr(scene, "KEPT", 0)
    said: dict = {"from": version}
    try:
        asyncio.run(play(tmp_path, python, said))
    except BaseException as error:
        raise AssertionError(f"{error}; {said}") from error
    file = tmp_path / "log.jsonl.zst"
    judged = check(file)
    assert judged.ok, f"{judged.broken[:10]} {judged.overtaken[:10]}"
    assert judged.holds_left == 0
    by = Counter((record.family, (record.envelope.release.split() or [""])[0]) for batch in open_path(file).batches() for record in batch)
    said["commits"] = {f"{family} {name}": count for (family, name), count in sorted(by.items())}
    with capsys.disabled():
        print(f"\n{said}")
    assert {family for family, _ in by} == set(FAMILIES)
    ours = release.name()
    theirs = {name for _, name in by} - {ours}
    assert len(theirs) == 1, said
    assert all(by[family, name] for family in FAMILIES for name in (ours, *theirs)), said
    up, down = said["under way at each change"][:5], said["under way at each change"][5:]
    assert any(up), f"no migration was under way; {said}"
    assert any(down), f"no migration was under way; {said}"
    assert said["ended"].get("landed", 0) >= MOVERS // 2, said
    mine, earlier_ones = again(sys.executable, file), again(python, file)
    for report, other in ((mine, earlier_ones), (earlier_ones, mine)):
        assert report["different"] == report["problems"] == 0, report
        for family, found in report["families"].items():
            assert found["skipped"] <= other["families"][family]["identical"], f"nobody can decide them again: {family}, {said}"


FOLDED = """
import json, sys
from restow.domain.fold import fold_record
from restow.domain.migration import decider
from restow.domain.state import ClusterState
from restow.replay.source import open_path
state, source = ClusterState(), open_path(sys.argv[1])
for batch in source.batches():
    for record in batch:
        fold_record(state, record.seq, record.family, record.envelope, record.body, source.log_id)
due = decider.due(state, state.time)
print(json.dumps({
    "plans": {name: [plan.planned.reason, len(plan.planned.moves)] for name, plan in state.plans.items()}, "under way": state.search.plan, "failed": state.search.failed,
    "failures": state.search.failures, "reason": state.search.reason, "unknown": sorted(state.unknown), "void": sum(state.void.values()),
    "due": [type(due).__name__, getattr(due, "plan", "")],
}))
"""


EMPTY = Packing(2, 2, 0, 0, 0, 0)
FAULT = e.Planned("a-p1", "PodLifeTime", (), EMPTY, EMPTY, reason="could not be made by a fault of Restow's own", planner="policy", profile="old", fault=True)


async def failed_plans():
    log = memory()
    await facts(log, node("n0"), node("n1"), shape("s"), pod("p0", "s", "n0"))
    for events in (
        (e.SearchBegun("a", "interval", 0),),
        (FAULT, e.Planned("a-p2", "RemoveFailedPods", (), EMPTY, EMPTY, planner="policy", profile="failed")),
        (e.SearchBegun("b", "interval", 0),),
        (e.SearchEnded("b", "NotStored", "its leader had changed", False),),
        (e.SearchBegun("c", "interval", 0),),
        (e.SearchEnded("c", "Failed", "KeyError: 'n7' (deschedule.py:7)"),),
        (e.SearchBegun("d", "interval", 0),),
    ):
        await facts(log, *events, family="migration", time=NOW)
    return await records(log)


@pytest.mark.slow
def test_the_last_release_goes_on_from_plans_that_a_fault_has_ended_in_this_one(tmp_path, earlier):
    """They need no newer reader: that one reads them as plans without moves, puts off what has failed, and ends what has no end."""
    assert needed([Decision(c.Deschedule(NOW, "interval", "a", failed={"a-p1": "OverflowError"}), (FAULT,))]) == 1
    file = tmp_path / "log.jsonl"
    save(ListSource(asyncio.run(failed_plans())), file)
    ours, theirs = (json.loads(subprocess.run([python, "-c", FOLDED, str(file)], check=True, capture_output=True, text=True).stdout) for python in (sys.executable, earlier[1]))
    assert theirs == ours
    assert ours == {
        "plans": {"a-p1": [FAULT.reason, 0], "a-p2": ["", 0]}, "under way": "d", "failed": "c", "failures": 1, "reason": "Failed", "unknown": [], "void": 0, "due": ["EndSearch", "d"],
    }  # fmt: skip
