"""The watcher's commits in doubt: a change leaves the buffer when a commit that says it is in the log, and not before.

An answer is lost, the next commit goes out under a new id, and then the first one arrives late (found by the simulator: seeds 42, 69,
74, 102, 121).
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from domain.build import NOW
from domain.test_beside import holding, opened
from domain.test_beside import world as beside_world
from kube.streams import node as node_object
from kube.streams import page
from kube.test_troubles import a_pod, status
from msgspec.structs import replace

from restow.cluster_watcher import observer as watcher
from restow.cluster_watcher.observer import Observer
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain.state import ClusterState
from restow.eventlog.port import Unknown
from restow.kube import decode as d
from restow.kube import facts as kube_facts
from restow.kube.reflector import Bookmark, Delete, Replace, Upsert
from restow.runtime.commander import Commander
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership
from restow.runtime.telemetry import Metrics

from .rig import ManualClock, cluster, facts, history, idle, memory, named, running, soon, until


class Late:
    """A log whose broker keeps the watcher's next appends back, one for each of `meanwhile` (what happens until the answer is given up).
    The first one that was kept arrives before the next append, or with the next question after its tail."""

    def __init__(self, log, *meanwhile, arrives="append"):
        self.kept, self._meanwhile, self._arrives = [], list(meanwhile), arrives
        self._append, self._tail = log.append, log.tail
        log.append, log.tail = self.append, self.tail

    async def append(self, family, body, envelope, *, expected_last):
        if family == "cluster" and self._meanwhile:
            self.kept.append((family, body, envelope, expected_last))
            self._meanwhile.pop(0)()
            raise Unknown(family, envelope.id, "lost on the way")
        if self._arrives == "append":
            await self._arrive()
        return await self._append(family, body, envelope, expected_last=expected_last)

    async def tail(self):
        if self._arrives == "tail" and not self._meanwhile:
            await self._arrive()
        return await self._tail()

    async def _arrive(self):
        if self.kept:
            family, body, envelope, expected_last = self.kept.pop(0)
            self.kept.clear()
            await self._append(family, body, envelope, expected_last=expected_last)


@asynccontextmanager
async def watching(log, observer, state=None):
    follower, leadership = Follower(log, "cluster", state or ClusterState()), Leadership("cluster", "one")
    commander = Commander(
        log, follower, observer, leadership, ManualClock(), Metrics("cluster"), service="cluster_watcher",
        propose=observer.propose, book=observer, shrink=observer.smaller,
    )
    tasks = [asyncio.create_task(loop.run()) for loop in (follower, commander)]
    leadership.claim()
    await until(lambda: leadership.leading, follower)
    try:
        yield commander
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def there(name, version):
    return Upsert(d.NODES.page(page(version, node_object(name, version))).items[0])


async def said(log):
    return [
        (type(event).__name__, getattr(event, "name", ""))
        for _, _, events in await history(log, "cluster")
        for event in events
        if isinstance(event, e.NodeObserved | e.NodeGone)
    ]


async def drained(commander, observer):
    commander.wake()
    await until(lambda: not observer.waiting, commander.follower)


@pytest.mark.parametrize("arrives", ["append", "tail"])
async def test_of_two_commits_in_doubt_the_one_that_arrives_late_takes_only_its_own_changes_along(arrives):
    """The second one, decided over more changes, is never stored: what only it would have said is said again."""
    log, observer = memory(), Observer()
    async with watching(log, observer) as commander:
        losses = [lambda: observer.add(d.NODES, [there("n2", 2), there("n3", 3)], "3")]
        if arrives == "tail":
            losses.append(lambda: observer.add(d.NODES, [there("n4", 4)], "4"))
        Late(log, *losses, arrives=arrives)
        observer.add(d.NODES, [there("n1", 1)], "1")
        await drained(commander, observer)
    assert await said(log) == [("NodeObserved", f"n{i}") for i in range(1, 4 + len(losses) - 1)]


async def troubled_and_well(log, observer, commander, **options):
    """A pod runs well; it says of itself that it crashes, and no answer comes to that; and then that it is well again."""
    observer.add(d.PODS, [Upsert(a_pod())], "1")
    await drained(commander, observer)
    late = Late(log, lambda: observer.add(d.PODS, [Upsert(a_pod())], "3"), **options)
    crashes = status(waiting={"reason": "ErrImageNeverPull"})
    observer.add(d.PODS, [Upsert(a_pod(containers=[crashes]))], "2")
    await drained(commander, observer)
    return late


async def test_what_cancels_out_while_a_commit_is_in_doubt_is_still_said_when_that_commit_arrives():
    """Both together say nothing, until the lost commit says the first half."""
    log, observer = memory(), Observer()
    async with watching(log, observer) as commander:
        await troubled_and_well(log, observer, commander)
        assert not commander.follower.state.troubles
    told = [x for _, _, events in await history(log, "cluster") for x in events if isinstance(x, e.PodTroubled)]
    assert [bool(x.containers) for x in told] == [True, False]


async def test_a_doubt_about_nothing_ends_with_a_commit_of_nothing():
    """Otherwise changes that say nothing would fill the buffer until the watches stop."""
    log, observer = memory(), Observer()
    async with watching(log, observer) as commander:
        late = await troubled_and_well(log, observer, commander, arrives="never")
        assert late.kept
    last = [events for _, _, events in await history(log, "cluster")][-1]
    assert [type(event) for event in last] == [e.Synced]


async def test_a_claim_to_lead_that_is_stored_takes_no_change_of_an_earlier_attempt_along():
    """A decision that was too large, and then leadership: two commits, and the first one was never made."""
    log, observer = memory(), Observer()
    observer.add(d.NODES, [there("n1", 1)], "1")
    assert observer.propose(ClusterState(), [c.Observe("", "watch")])
    observer.propose(ClusterState(), [c.Lead("one")])
    observer.committed(1, observer.mark())
    assert observer.waiting == 1
    assert await log.tail() == 0


async def test_a_command_whose_commit_arrives_late_is_ended_once_and_not_decided_again():
    """It was put back to be decided again; the configuration came first, and only then was the lost commit found."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        append, kept = log.append, []

        async def losing(family, body, envelope, *, expected_last):
            if family == "session" and not kept:
                kept.append((family, body, envelope, expected_last))
                rig.commander.configuration = '{"starveAfter":"5m"}'
                raise Unknown(family, envelope.id, "lost on the way")
            if family == "session" and len(kept) == 1:
                kept.append(None)
                of, first, ours, expected = kept[0]
                await append(of, first, ours, expected_last=expected)
                rig.commander.configuration = None
            return await append(family, body, envelope, expected_last=expected_last)

        log.append = losing
        outcome = await soon(rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "no")))
        assert [type(event) for event in outcome.events] == [e.PodReleased]
        await idle()
    assert len(await named(log, e.PodReleased)) == 1


async def test_commands_that_came_after_a_commit_in_doubt_are_decided_when_that_one_is_found():
    """The second commit is unanswered as well, and the first one is what the log turns out to hold."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log, pods=2)
        for _ in range(2):
            await soon(rig.bound.get())
        append, tail, kept = log.append, log.tail, []

        async def losing(family, body, envelope, *, expected_last):
            if family == "session" and len(kept) < 2:
                kept.append((family, body, envelope, expected_last))
                if len(kept) == 1:
                    second.append(rig.commander.submit(c.RefuseBind(NOW, "p1", "n0", "no")))
                raise Unknown(family, envelope.id, "lost on the way")
            return await append(family, body, envelope, expected_last=expected_last)

        async def arriving():
            if len(kept) == 2:
                kept.append(None)
                of, first, ours, expected = kept[0]
                await append(of, first, ours, expected_last=expected)
            return await tail()

        second = []
        log.append, log.tail = losing, arriving
        outcomes = [await soon(rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "no")))]
        outcomes.append(await soon(second[0]))
        assert [[event.pod for event in outcome.events] for outcome in outcomes] == [["p0"], ["p1"]]


# -- a list that finds more gone than a commit can say ----------------------------------------------------------------------


async def test_a_relist_that_finds_most_of_the_cluster_gone_says_so_in_several_commits_and_synced_last(monkeypatch):
    """60 000 pods gone were one commit that no log takes: it was dropped, and `Synced` with it said all was well."""
    monkeypatch.setattr(watcher, "AT_ONCE", 100)
    log, observer = memory(), Observer()
    await facts(log, *(e.NodeObserved(f"n{i:03}", f"u{i}", {"cpu": 1}) for i in range(350)))
    async with watching(log, observer) as commander:
        observer.add(d.NODES, [there("n007", 900), Replace(frozenset({"n007"}), "900")], "900")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert list(commander.follower.state.nodes) == ["n007"]
    commits = [events for _, _, events in (await history(log, "cluster"))[2:]]
    assert [sum(isinstance(x, e.NodeGone) for x in events) for events in commits] == [99, 100, 100, 51]
    assert [any(isinstance(x, e.Synced) and x.version == "900" for x in events) for events in commits] == [False, False, False, True]


async def test_a_part_of_a_relist_that_is_still_too_large_for_the_log_is_made_smaller_and_nothing_is_left_out():
    log, observer = memory(), Observer()
    await facts(log, *(e.NodeObserved(f"n{i:03}", f"u{i}", {"cpu": 1}) for i in range(200)))
    log.max_body = 2_000
    async with watching(log, observer) as commander:
        observer.add(d.NODES, [Replace(frozenset(), "900")], "900")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert not commander.follower.state.nodes
        assert commander.follower.state.synced["nodes"] == "900"
    assert observer.undecodable == []


async def test_the_object_that_is_too_large_for_the_log_is_the_one_that_is_left_out():
    """What says nothing before it is not blamed for it."""
    log, observer = memory(), Observer()
    log.max_body = 2_000
    async with watching(log, observer) as commander:
        observer.add(d.NODES, [there("n1", 1)], "1")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        large = node_object("large", 3, status={"allocatable": {f"example.com/{i:03}": "1" for i in range(200)}})
        observer.add(d.NODES, [there("n1", 2), Upsert(d.NODES.page(page(3, large)).items[0]), there("n2", 4)], "4")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
    assert await said(log) == [("NodeObserved", "n1"), ("NodeObserved", "n2")]
    assert [(one.name, one.message) for one in observer.undecodable] == [("large", "too large for the log")]


async def test_an_object_whose_fact_no_reader_could_read_takes_no_others_with_it(monkeypatch):
    """Whatever check is missing where objects become facts: the commit would be void to every reader, with all that is in it."""
    describe = kube_facts.node_fact

    def unchecked(node):
        fact = describe(node)
        return replace(fact, devices=1 << 63) if fact.name == "broken" else fact

    monkeypatch.setattr(kube_facts, "node_fact", unchecked)
    log, observer = memory(), Observer()
    async with watching(log, observer) as commander:
        observer.add(d.NODES, [there("n1", 1), there("n2", 2), there("broken", 3), there("n3", 4), there("n4", 5)], "5")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert sorted(commander.follower.state.nodes) == ["n1", "n2", "n3", "n4"]
        assert commander.follower.state.synced["nodes"] == "5"
        assert not commander.follower.state.void
    ((name, why),) = ((one.name, one.message) for one in observer.undecodable)
    assert name == "broken"
    assert "would be void: it cannot be read: decisions[0].events[0]: Expected `int` <= 9223372036854775807" in why


async def test_objects_that_cannot_be_read_are_named_until_they_can_be_read_or_are_gone():
    log, observer = memory(), Observer()
    async with watching(log, observer) as commander:
        broken = [Upsert(d.NODES.page(page(i, node_object(name, i, status={"allocatable": {"cpu": "lots"}}))).items[0]) for i, name in ((2, "n1"), (3, "n2"), (4, "n3"))]
        observer.add(d.NODES, [there("n1", 1), *broken], "4")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert commander.follower.state.nodes["n1"].unschedulable
        assert "Node n1 (status.allocatable" in observer.note()
        assert "Node n3" in observer.note()
        observer.add(d.NODES, [there("n1", 5), Delete("n2", there("n2", 6).object), Replace(frozenset({"n1"}), "7")], "7")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert observer.note() == ""
        assert not commander.follower.state.nodes["n1"].unschedulable
    assert [one.name for one in observer.undecodable] == ["n1", "n2", "n3"]


async def test_a_node_that_the_log_does_not_take_any_more_takes_no_pods():
    log, observer = memory(), Observer()
    log.max_body = 2_000
    async with watching(log, observer) as commander:
        observer.add(d.NODES, [there("n1", 1)], "1")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        large = node_object("n1", 3, status={"allocatable": {f"example.com/{i:03}": "1" for i in range(200)}})
        observer.add(d.NODES, [Upsert(d.NODES.page(page(3, large)).items[0]), there("n2", 4)], "4")
        commander.wake()
        await until(lambda: not observer.waiting, commander.follower)
        assert commander.follower.state.nodes["n1"].unreadable == "too large for the log"
        assert commander.follower.state.nodes["n1"].unschedulable
        assert not commander.follower.state.nodes["n2"].unschedulable


def test_a_bookmark_of_pods_is_logged_each_minute_while_any_are_gated_also_in_a_log_in_which_nothing_else_happens(monkeypatch):
    """The session has pods gated only while it hears of them; and where nothing happens the log's own time stands still."""
    observer, state, now = Observer(), holding(beside_world()), 1_000.0
    monkeypatch.setattr(watcher.machine, "steady", lambda: now)

    def logs(collection=d.PODS):
        observer.add(collection, [Bookmark("7")], "7")
        found = observer.propose(state, [c.Observe(collection.name, "watch")])
        observer.committed(1, observer.mark())
        return bool(found)

    assert logs()
    assert logs(d.NODES)
    now += 60.0
    assert not logs(), "nobody is gated"
    opened(state)
    assert logs()
    assert not logs(), "not more often"
    now += 60.0
    assert not logs(d.NODES)
    assert logs()
