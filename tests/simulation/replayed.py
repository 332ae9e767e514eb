"""What needs our own code to be judged: a fold is a fold wherever it is made, and every decision can be made again.

An own fold of every commit is kept beside the services'. At points during a run and at its end: whoever has folded as far has the same
state, byte for byte; so has a snapshot with the tail after it. At the end also: folded again from the first record; the watcher's facts beside
the objects of the API; what is owed is being done; and `restow verify`.
"""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from restow.contracts.events import Landed, Synced
from restow.domain import snapshot
from restow.domain.beside import is_beside
from restow.domain.deciders import DECIDERS
from restow.domain.state import ClusterState
from restow.eventlog.port import Record
from restow.kube import decode
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Replace, Upsert
from restow.replay.source import ListSource
from restow.replay.state_at import ReplayError, decode_record, fold_record
from restow.replay.verify import verify

if TYPE_CHECKING:
    from simulation.world import World


class Replayed:
    """`stored` is told of every commit. `events`: how many of each type there were."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.state = ClusterState()
        self.events: Counter[str] = Counter()
        self.landed_beside = 0
        self._restored = ClusterState()
        """From the snapshot of the last look."""
        self._tail: list[Record] = []

    def stored(self, record: Record) -> None:
        try:
            fold_record(self.state, record)
        except ReplayError as error:
            self._world.fail("folds", str(error))
            return
        self._tail.append(record)
        for decision in decode_record(record):
            for event in decision.events:
                self.events[type(event).__struct_config__.tag] += 1
                if isinstance(event, Landed) and (landed := self.state.migrations.get(event.migration)) is not None:
                    self.landed_beside += is_beside(self.state, landed.shape)

    def look(self) -> None:
        """Compare every state that is as far as ours, and the snapshot of the last look with what came since."""
        mine = snapshot.dump(self.state)
        for unit in self._world.units:
            state = unit.state
            if state is not None and state.seq == self.state.seq and snapshot.dump(state) != mine:
                self._world.fail("same-fold", f"{unit.process} has folded up to {state.seq} and has another state than the log says")
        for record in self._tail:
            fold_record(self._restored, record)
        self._tail.clear()
        if snapshot.dump(self._restored) != mine:
            self._world.fail("snapshot-and-tail", f"a snapshot with what follows it, up to {self.state.seq}, is another state than the whole log")
        self._restored = snapshot.load(mine)

    def end(self) -> None:
        """At rest."""
        world = self._world
        records = list(world.broker.records)
        again = ClusterState()
        for record in records:
            fold_record(again, record)
        if snapshot.dump(again) != snapshot.dump(self.state):
            world.fail("same-fold", "the log folded again is another state")
        report = verify(ListSource(records, cluster="sim", log_id=world.broker.log.log_id), DECIDERS)
        if report.decisions != report.identical:
            world.fail("verify", f"{report.sentence}: {[str(each) for each in report.differences[:1]]} {report.skipped or ''}"[:1500])
        if report.problems:
            world.fail("verify", f"{report.sentence}: {[str(each) for each in report.found[:2]]}")
        for unit in world.units:
            if forgotten := unit.forgotten:
                world.fail("owed", f"{unit.process} owes {len(forgotten)} effects that it has forgotten: {forgotten[:1]}")
        self._facts()

    def _facts(self) -> None:
        """A list of everything, compared with the fold as the watcher does it, has nothing to say."""
        store, found = self._world.store, []
        for collection in decode.COLLECTIONS:
            plural, _, group = collection.name.partition(".")
            resource = store.registry.find(group, plural)
            if resource is None:
                continue
            batch, keys = Batch(StateKnown(self.state)), set()
            for obj in store.list(resource):
                one = collection.object(msgspec.json.encode(obj))
                keys.add(collection.key(one))
                batch.add(collection, Upsert(one))
            batch.add(collection, Replace(frozenset(keys), ""))
            found += [str(event)[:300] for event in batch.events() if not isinstance(event, Synced)]
        if found:
            self._world.fail("facts", f"the API has {len(found)} facts that the log has not: {found[:2]}")
