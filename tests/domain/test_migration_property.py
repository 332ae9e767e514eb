"""Whatever happens to a migration, in whatever order: it ends, it never claims what is not so, and nothing leaks.

The world is the real session and reservation deciders, and a cluster whose facts come in any order.
"""

from typing import ClassVar

from domain.build import NOW, changed, configured, given, node, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.domain import config, migration, session, snapshot
from restow.domain import reservation as reservations
from restow.domain.decider import decide
from restow.domain.effects import (
    AbortEviction,
    CreateHold,
    DeleteReservation,
    Evict,
    TellWorkload,
    WithdrawRequest,
)
from restow.domain.records import FINAL, Step

decider = migration.decider
CONF = config.MigrationConfig(concurrent=2, per_node=1)
NONE = Packing(0, 0, 0, 0, 0, 0)
VICTIMS = ("p1", "p2", "p3")
OWNER = replica_of("rs")
REASONS = ("Budget", "Changed", "Gone", "Refused", "Aborted", "NotMarked")


class Saga(RuleBasedStateMachine):
    declared: ClassVar[dict[str, dict[str, str]]] = {}
    """By pod, what it says of hooks."""

    @initialize(lost=st.integers(0, 5))
    def start(self, lost: int) -> None:
        self.now = NOW
        self.made = 0
        self.were_ready: set[tuple[str, str]] = set()
        self.history: dict[str, list[tuple[type, object]]] = {}
        moves = tuple(Move(f"x-{i}", p, "default", p, "a", "b") for i, p in enumerate(VICTIMS, 1))
        self.state = given(
            configured("migration", CONF), node("a"), *((node("b"),) if lost else ()), shape("s"),
            *(pod(p, node="a", owner=OWNER, annotations=self.declared.get(p, {})) for p in VICTIMS), e.Planned("x", "Defragmentation", moves, NONE, NONE),
        )  # fmt: skip
        self.state.touched = type(self.state.touched)()

    # -- what decides ------------------------------------------------------------------------------------------------

    def command(self, command: c.Command, who=decider) -> None:
        before = {id: m.step for id, m in self.state.migrations.items()}
        events = list(decide(self.state, who, command))
        if who is decider:
            self.check(events, command, before)
        then(self.state, events, time=self.now)

    def check(self, events: list[e.Event], command: c.Command, before: dict[str, Step]) -> None:
        for event in events:
            id = event.migration
            if isinstance(event, e.MigrationFailed):
                assert before[id] is not Step.EVICTING
                if before[id] is Step.ABORTING:
                    assert event.reason == "NotMarked" or command.reason == "Aborted"
                    since = self.state.migrations[id].since
                    assert event.reason != "NotMarked" or self.now >= since + CONF.abort_deadline
                    assert (e.Aborting, "") in [(kind, "") for kind, _ in self.history[id]]
            if isinstance(event, e.Landed):
                move = self.state.migrations[id].move
                assert event.node == move.target
                assert (event.pod, event.node) in self.were_ready, "whatever became of it since"
                assert event.pod != move.pod
            if isinstance(event, e.Evicting):
                slots = self.state.slots[self.state.migrations[id].reservation].values()
                assert [s.node for s in slots if s.phase == "Available"] == ["b"]
            self.history.setdefault(id, []).append((type(event), command))

    @rule()
    def advance(self) -> None:
        for _ in range(len(Step) * len(VICTIMS)):
            self.command(c.Advance(self.now))
            if decider.due(self.state, self.now) is None:
                return
        raise AssertionError("it never comes to rest")

    @rule()
    def session_and_cache_answer(self) -> None:
        self.command(c.Review(self.now), reservations.decider)
        self.command(c.Schedule(self.now), session.decider)

    @rule()
    def the_session_answers_a_step_behind(self) -> None:
        """It decided before the migration's next commit was in the log."""
        events = list(decide(self.state, session.decider, c.Schedule(self.now)))
        self.advance()
        then(self.state, events, time=self.now)

    @rule(millis=st.sampled_from([1, 20_000, 40_000, 200_000]))
    def time_passes(self, millis: int) -> None:
        self.now += millis

    # -- what the effects do -----------------------------------------------------------------------------------------

    @rule(answer=st.sampled_from(["created", "created", "failed"]), late=st.booleans())
    def holds_are_created(self, answer: str, late: bool) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, CreateHold):
                if answer == "failed":
                    self.command(c.ReportHold(self.now, effect.migration, "forbidden"))
                else:
                    self.create(effect.migration)
        if late and self.state.migrations["x-1"].step in FINAL and not self.state.migrations["x-1"].reservation:
            self.create("x-1")

    def create(self, id: str) -> None:
        uid = f"hold-{id}-{self.state.seq}"
        then(self.state, reservation(uid, ("hold", 1, "s"), migration=id, back=self.state.migrations[id].back > 0, node="b", match_policy="Owner", ttl=0))

    @rule(reason=st.sampled_from(["evicted", *REASONS]))
    def evictions_are_answered(self, reason: str) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, Evict):
                victim = self.state.migrations[effect.migration].move.pod
                if reason != "evicted":
                    self.command(c.ReportEviction(self.now, effect.migration, reason))
                elif victim in self.state.pods:
                    then(self.state, changed(victim, node="a", phase="Running", deleting=self.now))

    @rule(reason=st.sampled_from(["Aborted", "Aborted", "Gone", "Budget", "NotMarked"]))
    def aborts_are_answered(self, reason: str) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, AbortEviction):
                self.command(c.ReportEviction(self.now, effect.migration, reason))

    @rule()
    def finished_reservations_are_deleted(self) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, DeleteReservation):
                then(self.state, e.ReservationGone(effect.reservation))

    # -- the straight way, from wherever they are: so that what disturbs comes at every step ---------------------------

    @rule()
    def holds_go_well(self) -> None:
        self.advance()
        self.holds_are_created("created", False)
        self.session_and_cache_answer()

    @rule()
    def all_goes_well_up_to_the_eviction(self) -> None:
        self.holds_go_well()
        self.advance()

    @rule(tell=st.booleans())
    def evictions_go_well(self, tell: bool) -> None:
        self.advance()
        self.evictions_are_answered("evicted")
        if tell:
            self.advance()

    @rule(tell=st.booleans(), ready=st.booleans())
    def successors_come_up(self, tell: bool, ready: bool) -> None:
        self.the_controller_makes_a_pod()
        self.session_and_cache_answer()
        if tell:
            self.advance()
        for uid in sorted(self.state.successors):
            self.comes_up(uid, self.state.node_of(uid), "Running", ready)
        if tell:
            self.advance()

    # -- what the cluster does ---------------------------------------------------------------------------------------

    @rule(victim=st.sampled_from((*VICTIMS, "")), what=st.sampled_from(["terminating", "gone", "Failed", "Succeeded"]))
    def a_victim_ends(self, victim: str, what: str) -> None:
        if victim not in self.state.pods:
            return
        if what == "gone":
            then(self.state, e.PodGone(victim))
        elif what == "terminating":
            then(self.state, changed(victim, node="a", phase="Running", deleting=self.now))
        else:
            then(self.state, changed(victim, node="a", phase=what))

    @rule()
    def the_controller_makes_a_pod(self) -> None:
        self.made += 1
        then(self.state, pod(f"new{self.made}", owner=OWNER))

    @rule(ready=st.booleans(), phase=st.sampled_from(["Running", "Running", "Running", "Failed", "Succeeded"]), which=st.integers(0, 5))
    def a_placed_pod_comes_up(self, ready: bool, phase: str, which: int) -> None:
        placed = sorted(self.state.placed)
        if placed:
            uid = placed[which % len(placed)]
            self.comes_up(uid, self.state.node_of(uid), phase, ready and phase == "Running")

    def comes_up(self, uid: str, on: str, phase: str, ready: bool) -> None:
        if ready:
            self.were_ready.add((uid, on))
        then(self.state, changed(uid, node=on, phase=phase, ready=ready))

    @rule(which=st.integers(0, 5))
    def a_new_pod_goes(self, which: int) -> None:
        new = sorted(uid for uid in self.state.pods if uid.startswith("new"))
        if new:
            then(self.state, e.PodGone(new[which % len(new)]))

    @rule(what=st.sampled_from(["back", "back", "back", "back", "lost", "cordoned"]))
    def the_target_changes(self, what: str) -> None:
        if what == "lost":
            then(self.state, *([e.NodeGone("b")] if "b" in self.state.nodes else []))
        else:
            then(self.state, node("b", unschedulable=what == "cordoned"))

    @precondition(lambda self: self.state.reservations)
    @rule(which=st.integers(0, 3))
    def a_user_deletes_a_hold(self, which: int) -> None:
        uids = sorted(self.state.reservations)
        then(self.state, e.ReservationGone(uids[which % len(uids)]))

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def the_indexes_follow_from_the_migrations(self) -> None:
        if not hasattr(self, "state"):
            return
        s = self.state
        running = {id for id, m in s.migrations.items() if m.step not in FINAL}
        assert {*s.backlog, *s.active} == running
        assert all(s.migrations[id].step not in FINAL for id in s.victims.values())
        assert not [k for k in s.void if k.startswith("migration.")], "the decider says only what applies"
        for id in (*(id for ids in s.armed.values() for id in ids), *s.successors.values()):
            assert id in running

    @invariant()
    def what_is_over_owes_nothing_but_the_deletion_of_its_hold(self) -> None:
        if not hasattr(self, "state"):
            return
        for effect in decider.pending(self.state, None):
            assert decider.owed(self.state, effect)
            if not isinstance(effect, DeleteReservation | TellWorkload | WithdrawRequest):
                assert self.state.migrations[effect.migration].step not in FINAL

    @invariant()
    def a_deadline_is_set_for_whatever_waits_for_the_world(self) -> None:
        if hasattr(self, "state") and self.state.active:
            assert decider.deadline(self.state) is not None

    def teardown(self) -> None:
        """Deadlines pass, and nobody answers any more: every migration has ended, and nothing is held."""
        if not hasattr(self, "state"):
            return
        for _ in range(20):
            self.now += 400_000
            self.advance()
        assert not self.state.active
        assert not self.state.backlog
        assert all(m.step in FINAL for m in self.state.migrations.values())
        self.finished_reservations_are_deleted()
        self.session_and_cache_answer()
        assert self.state.held_on == {}
        assert not self.state.armed
        assert not self.state.to_release
        assert list(decider.pending(self.state, None)) == []
        assert snapshot.load(snapshot.dump(self.state)).migrations == self.state.migrations


Saga.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestSaga = Saga.TestCase
