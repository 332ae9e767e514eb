"""Two pods that change places, whatever is refused, cancelled or late in between, and in whatever order services see it: somebody who waits
for their room gets none of it, both run at the end, and nothing is held any more."""

import random

import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, run, shape, then
from domain.saga import OWNER, advance, decider, move, observe, owed, plan, session_answers, terminate
from domain.test_migration_swaps import CONF, OTHER, budget
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import migration
from restow.domain.decider import Rejected
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.records import SlotPhase

WORKLOADS = {"p": OWNER, "q": OTHER}
STEPS, CALM = 25, 60


class World:
    def __init__(self, seed: int) -> None:
        self.chance, self.after, self.made = random.Random(seed), 0, 1
        conf = replace(CONF, budget_patience=self.chance.choice([0, 90_000]))
        self.state = given(
            configured("migration", conf), node("a", cpu=4_000), node("b", cpu=4_000), shape("p", cpu=4_000), shape("q", cpu=3_500),
            *(pod(f"{app}1", app, node=on, owner=WORKLOADS[app], labels={"app": app}) for app, on in (("p", "a"), ("q", "b"))),
            pod("greedy", "p", owner=replica_of("greedy")),
            plan("x", move("x-1", "p1", "a", "b", swap=True), move("x-2", "q1", "b", "a", swap=True)),
        )  # fmt: skip
        advance(self.state)

    def something_happens(self) -> None:
        """What services do, each now and then, and somebody who is in the way."""
        for likely, what in ((0.5, self.effects), (0.1, self.trouble), (0.1, self.pass_time), (0.1, self.go), (0.7, self.controllers)):
            if self.chance.random() < likely:
                what()
        for likely, what in ((0.8, lambda: session_answers(self.state, self.after)), (0.8, lambda: advance(self.state, self.after)), (0.6, self.kubelets)):
            if self.chance.random() < likely:
                what()

    def trouble(self) -> None:
        if self.chance.random() < 0.5:
            then(self.state, budget(self.chance.choice("pq"), self.chance.choice([0, 1, 2])))
            return
        try:
            run(self.state, decider, c.CancelPlan(NOW + self.after, "x", "enough"))
        except Rejected:
            pass  # It is over, or cancelled already.

    def pass_time(self) -> None:
        self.after += self.chance.choice([1_000, 20_000, 40_000])

    def go(self) -> None:
        for uid in [uid for uid, live in self.state.live.items() if live.deleting]:
            then(self.state, e.PodGone(uid), time=NOW + self.after)

    def controllers(self) -> None:
        for app, owner in WORKLOADS.items():
            if not any(uid.startswith(app) and not live.deleting for uid, live in self.state.live.items()):
                self.made += 1
                then(self.state, pod(f"{app}{self.made}", app, owner=owner, labels={"app": app}))

    def kubelets(self) -> None:
        for uid in list(self.state.pods):
            live = self.state.live[uid]
            on = live.node or (self.state.placed[uid].node if uid in self.state.placed else None)
            if on and not live.ready and not live.deleting:
                then(self.state, changed(uid, node=on, phase="Running", ready=self.chance.random() < 0.5))

    def effects(self) -> None:
        for effect in owed(self.state):
            match effect:
                case AbortEviction(migration=id):
                    run(self.state, decider, c.ReportEviction(NOW + self.after, id, "Aborted"))
                case CreateHold(migration=id, back=back):
                    manifest = migration.hold_manifest(self.state, self.state.migrations[id])
                    if manifest is not None:
                        observe(self.state, manifest, f"hold-{id}-back" if back else f"hold-{id}")
                case DeleteReservation(reservation=uid):
                    then(self.state, e.ReservationGone(uid))
                case Evict(migration=id):
                    self.evict(id)

    def evict(self, id: str) -> None:
        record = self.state.migrations[id]
        answer = self.chance.choice(["", "Gone", "Gone", "Budget", "Refused"])
        if answer in ("Budget", "Refused"):
            run(self.state, decider, c.ReportEviction(NOW + self.after, id, answer))
            return
        places = self.state.slots[record.reservation].values()
        assert any(s.node == record.move.target and s.phase in (SlotPhase.HELD, SlotPhase.WAITING) for s in places), "a place is chosen"
        terminate(self.state, record.move.pod)
        if answer:
            run(self.state, decider, c.ReportEviction(NOW + self.after, id, answer))

    def comes_to_rest(self) -> None:
        then(self.state, *(budget(app, 5) for app in WORKLOADS))
        for _ in range(CALM):
            for what in (self.controllers, lambda: session_answers(self.state, self.after), lambda: advance(self.state, self.after), self.effects, self.go, self.kubelets):
                what()
            if not (self.state.active or self.state.backlog or owed(self.state)) and all(live.ready for uid, live in self.state.live.items() if uid != "greedy"):
                return
            if not owed(self.state) and (at := decider.deadline(self.state)) is not None:
                self.after = max(self.after, at - NOW)
        raise AssertionError(f"it never ends: {[(m.id, m.step, m.reason) for m in self.state.migrations.values()]}")


@pytest.mark.parametrize("seed", [*range(5), 43])
def test_nobody_loses_his_place_to_somebody_who_waits_for_it(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.something_happens()
    world.comes_to_rest()
    where = {uid: world.state.node_of(uid) for uid in world.state.pods}
    assert where.pop("greedy") is None
    assert sorted(filter(None, where.values())) == ["a", "b"]
    assert world.state.held_on == {}
