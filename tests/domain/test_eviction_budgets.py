"""Eviction budgets: how many pods may be evicted in a time, in all, or by namespace, queue and node pool."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from domain.build import NOW, configured, node, pod, pod_group, run, shape, then
from domain.saga import (
    BOLD,
    OWNER,
    advance,
    begun,
    create,
    decider,
    evicts,
    failed,
    hold,
    move,
    plan,
    session_answers,
    step,
    terminate,
    through,
    world,
)
from domain.test_propose import approve
from hypothesis import given, settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import of, rfc3339
from restow.domain import config, eviction_budgets, migration, snapshot
from restow.domain.config import EvictionBudget, MigrationConfig, Requirement, Selector
from restow.domain.decider import Rejected
from restow.domain.migration.warnings import warnings
from restow.domain.records import Step

MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR


def budget(evictions=1, name="few", **more):
    return {"budgets": (EvictionBudget(name, evictions, **more),), "per_node": 9}


def four(**conf):
    """Plan x moves all of the four pods."""
    return then(world(**conf), plan("x", *(move(f"x-{i}", f"p{i}") for i in (1, 2, 3, 4))))


def spent(state, key="few", at=NOW):
    return len(eviction_budgets.spent(state, key, at))


# -- the saga ------------------------------------------------------------------------------------------------------------


def test_moves_beyond_it_are_refused_before_anything_is_held_and_the_first_planned_have_it():
    state = four(**budget(2))
    events = advance(state)
    assert begun(events) == ["x-1", "x-2"]
    assert failed(events) == {"x-3": "EvictionBudget", "x-4": "EvictionBudget"}
    said = state.migrations["x-3"].message
    assert said == "the eviction budget few allows 2 within 24h0m0s: 0 spent, 2 planned"
    assert through(state, "x-1", "new")
    assert step(state, "x-1") is Step.LANDED


def test_what_is_spent_counts_for_so_long_and_who_is_refused_is_told_when_there_is_some_again():
    state = then(world(**budget(1)), plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "new")
    then(state, plan("y", move("y-1", "p2")))
    assert failed(advance(state)) == {"y-1": "EvictionBudget"}
    assert state.migrations["y-1"].message == f"the eviction budget few allows 1 within 24h0m0s: 1 spent; there is enough from {rfc3339(NOW + DAY)} on"
    then(state, plan("z", move("z-1", "p2")), time=NOW + DAY - 1)
    assert "z-1" in failed(advance(state, DAY - 1))
    then(state, plan("w", move("w-1", "p2")), time=NOW + DAY)
    assert begun(advance(state, DAY)) == ["w-1"]


def test_an_eviction_that_the_api_refuses_is_given_back_and_a_pod_that_left_by_itself_costs_nothing():
    state = then(world(**budget(1)), plan("x", move("x-1", "p1")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    assert spent(state) == 1
    run(state, decider, c.ReportEviction(NOW, "x-1", "Refused", "no"))
    run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted"))
    assert (step(state, "x-1"), spent(state), state.budgeted) == (Step.FAILED, 0, {})
    then(state, plan("y", move("y-1", "p2")))
    advance(state)
    create(state, "y-1")
    terminate(state, "p2")
    advance(state)
    assert (spent(state), eviction_budgets.reserved(state)) == (0, {})


def test_a_plan_that_is_cancelled_leaves_its_part_to_the_next():
    state = four(**budget(2))
    assert eviction_budgets.reserved(state) == {"few": 4}
    run(state, decider, c.CancelPlan(NOW, "x"))
    assert eviction_budgets.reserved(state) == {}
    advance(state)
    then(state, plan("y", move("y-1", "p1"), move("y-2", "p2")))
    assert eviction_budgets.reserved(state) == {"few": 2}
    assert begun(advance(state)) == ["y-1", "y-2"]


def test_one_that_holds_its_slot_when_the_policy_allows_none_any_more_stays():
    state = four(**budget(2))
    advance(state)
    hold(state, "x-1")
    assert step(state, "x-1") is Step.EVICTING
    then(state, configured("migration", MigrationConfig(**(BOLD | budget(1)))))
    assert failed(advance(state)) == {"x-2": "EvictionBudget"}
    assert step(state, "x-1") is Step.EVICTING, "its eviction may have been sent"


def test_a_budget_of_none_moves_nobody_and_no_budget_keeps_no_account():
    assert begun(advance(four(**budget(0)))) == []
    state = four(per_node=9)
    advance(state)
    hold(state, "x-1")
    assert (state.budgeted, state.budget_spent) == ({}, {})


def test_a_node_that_is_emptied_wholly_or_not_at_all_is_not_begun():
    def emptied(evictions):
        state = world(pod("q", node="c", owner=OWNER), **budget(evictions))
        moves = [move(f"x-{i}", f"p{i}") for i in (1, 2, 3, 4)]
        return then(state, plan("x", *moves, move("x-5", "q", "c", "d"), whole=True))

    events = advance(emptied(4))
    assert (begun(events), failed(events)) == (["x-1", "x-2", "x-3", "x-4"], {"x-5": "EvictionBudget"})
    events = advance(emptied(3))
    assert begun(events) == ["x-5"]
    assert set(failed(events)) == {"x-1", "x-2", "x-3", "x-4"}


def test_a_node_that_would_be_refused_keeps_no_other_one_waiting_until_it_has_its_turn():
    state = world(pod("q", node="c", owner=OWNER), **budget(2, per_node_label="pool"), concurrent=1)
    then(state, node("c", cpu=8_000, labels={"pool": "other"}))
    moves = [move(f"x-{i}", f"p{i}") for i in (1, 2, 3, 4)]
    then(state, plan("x", *moves, move("x-5", "q", "c", "d"), whole=True))
    events = advance(state)
    assert (begun(events), set(failed(events))) == (["x-5"], {"x-1", "x-2", "x-3", "x-4"})


@pytest.mark.parametrize(("evictions", "goes"), [(2, []), (3, ["x-1", "x-2", "x-3"])])
def test_a_gang_goes_as_one_or_stays(evictions, goes):
    members = [pod(f"g{i}", node="a", owner=OWNER, annotations={"scheduling.k8s.io/group-name": "g"}) for i in (1, 2, 3)]
    state = world(pod_group("g"), *members, **budget(evictions))
    then(state, plan("x", *(move(f"x-{i}", f"g{i}", gang="default/g") for i in (1, 2, 3))))
    events = advance(state)
    assert (begun(events), len(failed(events))) == (goes, 0 if goes else 3)
    if not goes:
        assert "; 3 more needed at once" in state.migrations["x-1"].message


# -- what is charged to what ---------------------------------------------------------------------------------------------


GKE = "cloud.google.com/gke-nodepool"


def test_each_is_charged_to_the_budgets_that_are_about_it():
    state = world(
        node("n1", labels={GKE: "h100", "spot": "true"}), node("n2"),
        e.NamespaceObserved("prod", {"tier": "gold"}), e.NamespaceObserved("test", {}),
        budgets=(
            EvictionBudget("all", 1),
            EvictionBudget("prod", 1, namespaces=("prod", "stage")),
            EvictionBudget("gold", 1, namespace_selector=Selector({"tier": "gold"})),
            EvictionBudget("queues", 1, queues=("q1",)),
            EvictionBudget("spot", 1, node_selector=Selector(match_expressions=(Requirement("spot", "Exists"),))),
            EvictionBudget("each", 1, per="namespace"),
            EvictionBudget("line", 1, per="queue", namespaces=("test",)),
            EvictionBudget("pools", 1, per_node_label=GKE),
        ),
    )  # fmt: skip
    assert eviction_budgets.keys(state, "prod", "q1", "n1") == ("all", "prod", "gold", "queues", "spot", "each/prod", "pools/h100")
    assert eviction_budgets.keys(state, "test", "q2", "n2") == ("all", "each/test", "line/q2", "pools/")
    assert eviction_budgets.keys(state, "unknown", "", "gone") == ("all", "each/unknown", "pools/")


def test_a_pods_queue_is_that_of_its_group_the_one_it_names_kueues_or_the_default():
    state = world(pod_group("g", queue="research"))
    made = [
        pod("a1", annotations={"scheduling.k8s.io/group-name": "g"}),
        pod("a2", annotations={"scheduling.volcano.sh/queue-name": "own"}),
        pod("a3", labels={"kueue.x-k8s.io/queue-name": "team"}),
        pod("a4"),
        pod("a5", "other"),
    ]
    then(state, shape("other", scheduler="default-scheduler"), *made)
    assert [eviction_budgets.queue_of(state, one) for one in made] == ["research", "own", "team", "default", ""]


def test_what_each_has_is_its_own():
    state = world(pod("q", node="c", owner=OWNER), node("c", cpu=8_000, labels={"pool": "x"}), **budget(1, per_node_label="pool"))
    then(state, plan("x", move("x-1", "p1"), move("x-2", "q", "c", "d"), move("x-3", "p2")))
    events = advance(state)
    assert (begun(events), failed(events)) == (["x-1", "x-2"], {"x-3": "EvictionBudget"})
    assert state.migrations["x-3"].message.startswith("the eviction budget few/ allows 1 within")


# -- whoever asks --------------------------------------------------------------------------------------------------------


def test_a_move_by_hand_is_refused_with_which_budget_and_until_when():
    state = then(world(**budget(1)), plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "new")
    with pytest.raises(Rejected, match=rf"^move: the eviction budget few allows 1 within 24h0m0s: 1 spent; there is enough from {rfc3339(NOW + DAY)} on; allowed: later"):
        decider.decide(state, c.MovePod(NOW, "y", "p2"))
    assert decider.decide(state, c.MovePod(NOW + DAY, "y", "p2"))


def test_of_a_plan_that_waits_for_a_person_as_much_can_be_approved_as_is_left():
    state = world(mode="propose", **budget(1))
    then(state, plan("x", move("x-1", "p1"), move("x-2", "p2", target="c"), mode="propose"))
    with pytest.raises(Rejected, match=r"^approve: the eviction budget few allows 1 within 24h0m0s: 0 spent; 2 more needed at once; allowed: fewer of the moves of plan x, or later"):
        approve(state)
    approve(state, "x-2")
    assert begun(advance(state)) == ["x-2"]


def test_everybody_is_told_what_is_used_up_and_until_when():
    two = (EvictionBudget("few", 1), EvictionBudget("each", 2, "day", per="namespace"), EvictionBudget("none", 0, queues=("x",)))
    state = then(world(budgets=two), plan("x", move("x-1", "p1")))
    assert warnings(state) == ["eviction budgets are used up: few"], "what is planned may still come back: nobody knows until when"
    advance(state)
    through(state, "x-1", "new")
    assert [(one.budget, one.of, one.spent, one.planned, one.left, one.again) for one in eviction_budgets.accounts(state, NOW)] == [
        ("few", "", 1, 0, 0, rfc3339(NOW + DAY)), ("each", "default", 1, 0, 1, ""), ("none", "", 0, 0, 0, ""),
    ]  # fmt: skip
    assert warnings(state) == [f"eviction budgets are used up: few until {rfc3339(NOW + DAY)}"]


# -- restarts ------------------------------------------------------------------------------------------------------------


def test_a_restart_in_the_middle_forgets_neither_what_is_spent_nor_what_is_planned():
    state = four(**budget(3))
    advance(state)
    hold(state, "x-1")
    terminate(state, "p1")
    advance(state)
    again = snapshot.load(snapshot.dump(state))
    for one in (state, again):
        then(one, plan("y", move("y-1", "p4")))
        assert "y-1" in failed(advance(one))
        assert (spent(one), eviction_budgets.reserved(one)) == (1, {"few": 2})
    assert again.migrations["y-1"].message == state.migrations["y-1"].message


def test_what_is_spent_stays_so_when_the_node_has_gone_and_when_the_budget_has_another_size():
    state = then(world(node("a", cpu=8_000, labels={"pool": "x"}), **budget(1, per_node_label="pool")), plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "new")
    then(state, e.NodeGone("a"))
    assert spent(state, "few/x") == 1
    then(state, configured("migration", MigrationConfig(**(BOLD | budget(5, per_node_label="pool")))))
    assert spent(state, "few/x") == 1
    then(state, configured("migration", MigrationConfig(**(BOLD | budget(5, "other")))))
    assert state.budget_spent == {}


def otherwise(state, **more):
    then(state, configured("migration", MigrationConfig(**(BOLD | budget(1, **more)))))


def test_what_each_has_spent_counts_together_where_the_budget_is_for_all_from_now_on():
    state = then(world(**budget(1, per="namespace")), plan("x", move("x-1", "p1")))
    advance(state)
    hold(state, "x-1")
    assert spent(state, "few/default") == 1
    otherwise(state)
    assert (state.budget_spent, state.budgeted) == ({"few": {"x-1": NOW}}, {"x-1": ("few",)})
    then(state, plan("y", move("y-1", "p2")))
    assert failed(advance(state)) == {"y-1": "EvictionBudget"}
    run(state, decider, c.ReportEviction(NOW, "x-1", "Refused", "no"))
    run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted"))
    assert (state.budget_spent, state.budgeted) == ({}, {})


def test_what_a_namespace_has_spent_is_not_a_queues_of_the_same_name():
    state = then(world(**budget(1, per="namespace")), plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "new")
    otherwise(state, per="queue")
    assert (spent(state, "few/default"), state.budget_spent) == (0, {})
    then(state, plan("y", move("y-1", "p2")))
    assert begun(advance(state)) == ["y-1"]


# -- time ----------------------------------------------------------------------------------------------------------------


def at(text):
    return of(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    ("zone", "evicted", "asked", "counts", "again"),
    [
        ("UTC", "2026-11-23T23:59:59Z", "2026-11-24T00:00:00Z", False, None),
        ("UTC", "2026-11-24T00:00:00Z", "2026-11-24T23:59:59Z", True, "2026-11-25T00:00:00Z"),
        ("Europe/Berlin", "2026-11-23T23:30:00Z", "2026-11-24T22:59:00Z", True, "2026-11-24T23:00:00Z"),
        # Of 25 hours.
        ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T22:59:00Z", True, "2026-10-25T23:00:00Z"),
        # Midnight is skipped: clocks go from 23:59:59 to 01:00.
        ("America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-04T03:00:00Z", False, None),
        ("America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-05T01:59:59Z", True, "2018-11-05T02:00:00Z"),
    ],
)
def test_a_day_is_from_midnight_to_midnight_by_the_clock_of_the_policy(zone, evicted, asked, counts, again):
    state = world(**budget(1, within="day"), time_zone=zone)
    state.budget_spent["few"] = {"x-1": at(evicted)}
    assert spent(state, at=at(asked)) == counts
    assert eviction_budgets.frees_at(state, "few", at(asked), 1) == (at(again) if counts else at(asked))


def test_what_counts_no_more_is_dropped_when_a_plan_is_made():
    state = then(world(**budget(1)), plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "new")
    then(state, plan("y"), time=NOW + DAY - 1)
    assert spent(state) == 1
    then(state, plan("z"), time=NOW + DAY)
    assert state.budget_spent == {}


def test_evictions_of_a_clock_that_was_a_year_ahead_do_not_block_a_year():
    state = then(world(**budget(1)), plan("x", move("x-1", "p1")))
    state.budget_spent["few"] = {"w-1": NOW + 365 * DAY}
    assert begun(advance(state)) == ["x-1"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((EvictionBudget("", 1),), r"budgets\[0\].name: ''; allowed"),
        ((EvictionBudget("a/b", 1),), r"budgets\[0\].name: 'a/b'"),
        ((EvictionBudget("a", 1), EvictionBudget("a", 2)), r"budgets\[1\].name: 'a'; allowed: each name once"),
        ((EvictionBudget("a", -1),), r"budgets\[0\].evictions: -1; allowed: 0"),
        ((EvictionBudget("a", 100_001),), "evictions: 100001"),
        ((EvictionBudget("a", 1, within=1),), r"within: 1; allowed: day .* or 1m to 744h"),
        ((EvictionBudget("a", 1, per="queue", per_node_label="pool"),), "perNodeLabel: set beside per"),
        ((EvictionBudget("a", 1, per_node_label="a b"),), "perNodeLabel: "),
        ((EvictionBudget("a", 1, node_selector=Selector({"a b": "c"})),), r"nodeSelector.matchLabels"),
        ((EvictionBudget("a", 1, namespace_selector=Selector(match_expressions=(Requirement("a", "In"),))),), r"namespaceSelector.matchExpressions\[0\].values: none"),
        (tuple(EvictionBudget(f"a{i}", 1) for i in range(51)), "allowed: up to 50"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_allowed(wrong, said):
    with pytest.raises(ValueError, match=said):
        migration.check(MigrationConfig(budgets=wrong))


# -- against a walk through the log --------------------------------------------------------------------------------------


POOLS = {"a": "x", "b": "x", "c": "y", "d": ""}
ZONE = "Europe/Berlin"
WITHIN = st.one_of(st.just("day"), st.integers(1, 40).map(lambda hours: hours * HOUR))
BUDGETS = st.lists(st.tuples(st.integers(1, 4), WITHIN, st.sampled_from(["", "pool", "x"])), min_size=1, max_size=2)
PAUSES = st.one_of(st.just(0), st.integers(0, 3 * HOUR), st.integers(0, 40 * HOUR))
STEPS = st.lists(st.tuples(st.sampled_from(["plan", "plan", "hold", "hold", "hold", "refuse", "restart"]), PAUSES), min_size=8, max_size=20)


class Walk:
    """Of a budget by the log alone: `(when, event)` in order."""

    def __init__(self, log, number, within, scope):
        self.log, self.number, self.within, self.scope = log, number, within, scope
        self.source = {one.migration: one.source for _, event in log if isinstance(event, e.Planned) for one in event.moves}

    def group(self, id):
        """What it is charged to; None where the budget is not about it."""
        pool = POOLS[self.source[id]]
        if self.scope == "x" and pool != "x":
            return None
        return pool if self.scope == "pool" else ""

    def is_in(self, first, one):
        """Whether an eviction at `first` counts at `one`."""
        if self.within == "day":
            return _date(first) == _date(one)
        return first <= one < first + self.within

    def evicted(self, upto):
        """When evictions were decided that were not given back."""
        found, accepted = {}, set()
        for when, event in self.log[:upto]:
            if isinstance(event, e.Evicting):
                found[event.migration] = when
            elif isinstance(event, e.Evicted):
                accepted.add(event.migration)
            elif isinstance(event, e.MigrationFailed) and event.migration not in accepted:
                found.pop(event.migration, None)
        return found

    def most(self):
        """In any span of its time."""
        times = {}
        for id, when in self.evicted(len(self.log)).items():
            times.setdefault(self.group(id), []).append(when)
        times.pop(None, None)
        return max((sum(self.is_in(first, one) for one in some) for some in times.values() for first in some), default=0)

    def refuses(self, i):
        """Whether the move of whose end event `i` says had one too many before it: spent, or planned earlier and still to be evicted."""
        now, end = self.log[i]
        mine = self.group(end.migration)
        if mine is None:
            return False
        gone = {event.migration for _, event in self.log[:i] if isinstance(event, e.MigrationFailed)}
        evicted = self.evicted(i)
        used = sum(self.group(id) == mine and self.is_in(when, now) for id, when in evicted.items())
        for _, event in self.log[:i]:
            for one in event.moves if isinstance(event, e.Planned) else ():
                if one.migration == end.migration:
                    return used >= self.number
                used += one.migration not in gone and one.migration not in evicted and self.group(one.migration) == mine
        raise AssertionError("it was planned")


def _date(time):
    return datetime.fromtimestamp(time / 1000, ZoneInfo(ZONE)).date()


@settings(max_examples=25, deadline=None)
@given(BUDGETS, STEPS, st.data())
def test_in_no_span_of_its_time_more_are_evicted_than_it_allows_and_a_move_is_refused_only_where_one_more_would_be_too_many(said, steps, data):
    budgets = tuple(
        EvictionBudget(f"b{i}", n, within, per_node_label="pool" if scope == "pool" else "", node_selector=Selector({"pool": "x"}) if scope == "x" else None)
        for i, (n, within, scope) in enumerate(said)
    )
    nodes = [node(name, cpu=64_000, labels={"pool": pool}) for name, pool in POOLS.items()]
    state = world(*nodes, budgets=budgets, per_node=99, time_zone=ZONE, hold_deadline=config.LONGEST, evict_deadline=config.LONGEST)
    log, number, after = [], 0, 0

    def note(events):
        log.extend((NOW + after, event) for event in events)

    for what, pause in steps:
        after += pause
        if what == "plan":
            number += 1
            name = f"m{number:02}"
            chosen = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3))
            uids = [f"n{number}-{i}" for i in range(len(chosen))]
            then(state, *(pod(uid, node=source, owner=OWNER) for uid, source in zip(uids, chosen, strict=True)), time=NOW + after)
            moves = [move(f"{name}-{i}", uid, source, "d" if source != "d" else "a") for i, (uid, source) in enumerate(zip(uids, chosen, strict=True))]
            then(state, made := plan(name, *moves), time=NOW + after)
            note([made])
        elif what == "hold" and (holding := [id for id in state.active if state.migrations[id].step is Step.HOLDING]):
            held = data.draw(st.lists(st.sampled_from(holding), min_size=1, unique=True))
            create(state, *held)
            session_answers(state, after)
            note(advance(state, after))
            terminate(state, *(state.migrations[id].move.pod for id in held[:-1]))
        elif what == "refuse" and (asked := [id for id in state.active if state.migrations[id].step is Step.EVICTING]):
            id = data.draw(st.sampled_from(asked))
            note(run(state, decider, c.ReportEviction(NOW + after, id, "Refused", "no")))
            note(run(state, decider, c.ReportEviction(NOW + after, id, "Aborted")))
        elif what == "restart":
            again = snapshot.load(snapshot.dump(state))
            assert list(decider.decide(again, c.Advance(NOW + after))) == list(decider.decide(state, c.Advance(NOW + after)))
            state = again
        note(advance(state, after))
    walks = [Walk(log, *one) for one in said]
    assert all(walk.most() <= walk.number for walk in walks)
    for i, (_, event) in enumerate(log):
        if isinstance(event, e.MigrationFailed) and event.reason == "EvictionBudget":
            assert any(walk.refuses(i) for walk in walks), event
