"""On demand for pods that wait: given a policy with `demand`, when a job waits for capacity that is there in pieces, then a plan is
due for it, now and then, and less and less often while nothing helps."""

import msgspec
import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    replica_of,
    reservation,
    run,
    shape,
    then,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Packing, SlotFor
from restow.domain import config, migration, session, snapshot
from restow.domain.config import DefragmentationArgs
from restow.domain.migration import demand
from restow.domain.migration.demand import LONGEST_PAUSE, PATIENCE, PAUSE, PERIOD, next_demand

ARGS = DefragmentationArgs(
    resourceType="cpu", protectionThresholds={"cpu": 100}, defragmentThresholds={"cpu": 90}, lowThresholds={"cpu": 10}, demand=True
)
CONF = config.MigrationConfig(defragmentation=ARGS)
NONE = Packing(0, 0, 0, 0, 0, 0)
RS = replica_of("rs")


def pieces(*more: e.Event, conf: config.MigrationConfig = CONF, wants: int = 5_000):
    """Two nodes of 8 cores with 4 in use on each, and a pod that wants 5: no node has them, both have 8."""
    return given(
        configured("migration", conf), node("a"), node("b"), shape("s", cpu=4_000), shape("big", cpu=wants),
        pod("pa", "s", "a", owner=RS), pod("pb", "s", "b", owner=RS), *more,
    )  # fmt: skip


def told(state, time: int = NOW) -> None:
    """A session has looked at whoever waits."""
    run(state, session.decider, c.Schedule(time))


def tried(state, job: str, at: int, *slots: SlotFor, plan: str = "") -> None:
    then(state, e.Planned(plan or f"p{at}", "Defragmentation", (), NONE, NONE, trigger="demand", slots=slots, demand=job), time=at)


def waiting():
    state = pieces(pod("w", "big"))
    told(state)
    return state


def test_a_pod_that_would_fit_if_the_pieces_were_together_is_helped():
    assert next_demand(waiting()) == (NOW + PATIENCE, "w")


def test_nobody_is_helped_where_the_policy_does_not_say_so():
    state = pieces(pod("w", "big"), conf=msgspec.structs.replace(CONF, defragmentation=msgspec.structs.replace(ARGS, demand=False)))
    told(state)
    assert next_demand(state) is None
    state = pieces(pod("w", "big"), conf=config.MigrationConfig())
    told(state)
    assert next_demand(state) is None


def test_who_asks_for_more_than_is_free_in_all_is_not_helped():
    state = pieces(pod("w", "big"), wants=8_001)
    told(state)
    assert next_demand(state) is None


def test_what_is_free_on_a_node_that_takes_no_pods_does_not_count():
    state = waiting()
    then(state, node("b", unschedulable=True))
    told(state)
    assert next_demand(state) is None


def test_who_waits_for_something_else_is_not_helped():
    state = pieces(shape("picky", node_selector={"no": "such"}), pod("w", "picky"))
    told(state)
    assert state.parked
    assert next_demand(state) is None


def test_who_is_told_later_that_he_waits_for_capacity_is_helped_however_often_it_was_asked_before():
    cordoned = (node("a", unschedulable=True), node("b", unschedulable=True))
    state = pieces(*cordoned, pod("w", "big"))
    told(state)
    then(state, node("a"), node("b"), time=NOW + 60_000)
    assert next_demand(state) is None, "as the descheduler asks after each fold"
    told(state, NOW + 60_000)
    assert next_demand(state) == (NOW + PATIENCE, "w")


def test_a_job_whose_capacity_was_deleted_is_helped_again():
    state = waiting()
    tried(state, "w", NOW, SlotFor("room", "w", "default", "a"), plan="x")
    then(state, replace(reservation("room", ("t", 1, "big")), labels={"restow.dev/plan": "x"}))
    assert next_demand(state) is None, "room is being made"
    then(state, e.ReservationGone("room"))
    assert next_demand(state) == (NOW + PAUSE, "w")


def test_of_several_jobs_the_first_in_turn_is_helped():
    state = pieces(pod("late", "big", created=NOW), shape("vip", cpu=5_000, priority=9), pod("vip", "vip"))
    told(state)
    assert next_demand(state) == (NOW + PATIENCE, "vip")


def test_a_gang_is_one_job_and_needs_capacity_for_all_that_makes_it_ready():
    def gang(need: int):
        state = pieces(pod_group("g", need=need), shape("half", cpu=5_000), member("g1", "g", "half"), member("g2", "g", "half"))
        told(state)
        return next_demand(state)

    assert gang(1) == (NOW + PATIENCE, "default/g")
    assert gang(2) is None  # 10 cores of 8


def test_a_gang_whose_first_pods_ask_for_too_much_is_helped_where_the_others_do_not():
    state = pieces(
        pod_group("g", need=1), shape("huge", cpu=20_000), shape("wide", cpu=5_000), member("g1", "g", "huge"), member("g2", "g", "wide")
    )
    told(state)
    assert next_demand(state) == (NOW + PATIENCE, "default/g")


def test_a_job_is_not_helped_again_while_capacity_for_any_of_its_pods_is_being_made():
    state = pieces(pod_group("g", need=1), shape("wide", cpu=5_000), *(member(f"g{i}", "g", "wide") for i in range(3)))
    told(state)
    tried(state, "default/g", NOW + PATIENCE, SlotFor("restow-slot-1", "g2", "default", "a"))
    assert next_demand(state) is None


def test_plans_for_different_jobs_keep_their_distance():
    state = pieces(pod("w", "big"), shape("big2", cpu=6_000), pod("x", "big2"))
    told(state)
    tried(state, "w", NOW + PATIENCE)
    assert next_demand(state) == (NOW + PATIENCE + PERIOD, "x")


@pytest.mark.parametrize(("tries", "pause"), [(1, PAUSE), (2, 2 * PAUSE), (3, 4 * PAUSE), (40, LONGEST_PAUSE)])
def test_a_job_that_cannot_be_helped_is_tried_less_and_less_often(tries, pause):
    state, at = waiting(), NOW + PATIENCE
    for i in range(tries):
        tried(state, "w", at + i)
    assert next_demand(state) == (at + tries - 1 + pause, "w")


def test_a_job_for_which_capacity_is_being_made_is_not_tried_again():
    state = waiting()
    tried(state, "w", NOW + PATIENCE, SlotFor("restow-slot-x-1", "w", "default", "a"), plan="x")
    assert next_demand(state) is None
    then(state, e.PlanCancelled("x", "by hand"), time=NOW + PATIENCE + 1)
    assert next_demand(state) == (NOW + PATIENCE + PAUSE, "w")


def test_jobs_that_do_not_wait_any_more_are_forgotten():
    state = pieces(pod("w", "big"), shape("big2", cpu=6_000), pod("x", "big2"))
    told(state)
    tried(state, "w", NOW + PATIENCE)
    then(state, changed("w", phase="Running", node="b", ready=True))
    tried(state, "x", NOW + PATIENCE + PERIOD)
    assert set(state.demands) == {"x"}


def test_a_restart_forgets_nothing():
    state = waiting()
    tried(state, "w", NOW + PATIENCE)
    tried(state, "w", NOW + PATIENCE + PAUSE)
    before = next_demand(state)
    assert before == (NOW + PATIENCE + PAUSE + 2 * PAUSE, "w")
    assert next_demand(snapshot.load(snapshot.dump(state))) == before


def test_the_decider_asks_for_the_plan_when_it_is_due_and_plans_are_about_the_job():
    state = waiting()
    assert migration.decider.deadline(state) == NOW + PATIENCE
    assert migration.decider.due(state, NOW + PATIENCE - 1) is None
    command = migration.decider.due(state, NOW + PATIENCE)
    assert (command.trigger, command.demand) == ("demand", "w")
    (planned,) = run(state, migration.decider, command)
    assert (planned.trigger, planned.demand) == ("demand", "w")
    assert [(move.source, move.target) for move in planned.moves] in ([("a", "b")], [("b", "a")])
    assert [capacity.pod for capacity in planned.slots] == ["w"]
    assert planned.reason == "capacity for default/w"
    assert next_demand(state) is None


def test_a_plan_for_a_gang_names_the_gang_and_its_pods_as_people_do():
    state = pieces(pod_group("g", need=2), shape("huge", cpu=20_000), member("g-0", "g", "huge"), member("g-1", "g", "huge"))
    told(state)
    (planned,) = run(state, migration.decider, c.Defragment(NOW, "cli", "p", "default/g"))
    assert planned.reason.startswith("no plan for podgroup default/g: ")
    assert " default/g-0 " in planned.reason.replace("podgroup default/g:", "")
    assert "podgroup default/g-0" not in planned.reason


def test_timed_plans_are_due_as_if_there_were_none_on_demand():
    state = pieces(pod("w", "big"), conf=msgspec.structs.replace(CONF, interval=60_000))
    told(state)
    assert state.timed_from == NOW
    tried(state, "w", NOW + PATIENCE)
    assert state.timed_from == NOW


def test_what_it_costs_does_not_grow_with_the_pods_of_a_kind(monkeypatch):
    state = pieces(*(pod(f"w{i}", "big") for i in range(200)))
    told(state)
    asked = []
    monkeypatch.setattr(demand, "_waits_for_capacity", lambda state, uid: asked.append(uid) or True)
    next_demand(state)
    next_demand(state)
    assert len(asked) == 1


def test_who_could_be_helped_is_found_behind_more_than_are_looked_at_that_ask_for_more_than_there_is(monkeypatch):
    monkeypatch.setattr(demand, "LOOKED_AT", 5)
    state = pieces(*(shape(f"x{i}", cpu=100_000 + i) for i in range(9)), *(pod(f"h{i}", f"x{i}") for i in range(9)))
    told(state)
    then(state, pod("w", "big", created=NOW + 1))
    told(state, NOW + 1)
    assert next_demand(state) == (NOW + 1 + PATIENCE, "w")


@pytest.mark.parametrize("why", ["too big in all", "tried in vain"])
def test_who_could_be_helped_is_not_hidden_by_more_gangs_than_are_looked_at_whom_no_plan_can_help(monkeypatch, why):
    monkeypatch.setattr(demand, "LOOKED_AT", 5)
    need = 2 if why == "too big in all" else 1
    gangs = [(pod_group(f"g{i}", need=need), member(f"g{i}-0", f"g{i}", "wide"), member(f"g{i}-1", f"g{i}", "wide")) for i in range(12)]
    state = pieces(shape("wide", cpu=5_000), *(event for gang in gangs for event in gang))
    told(state)
    then(state, pod("w", "big", created=NOW + 1))
    told(state, NOW + 1)
    at, asked = NOW + PATIENCE, []
    for _ in range(16):
        then(state, e.Synced("nodes", f"{at}"), time=at)
        if (due := next_demand(state)) is not None and due[0] <= at:
            asked.append(due[1])
            tried(state, due[1], at)
        at += PERIOD
    assert "w" in asked


def test_who_was_not_tried_yet_is_helped_before_who_was_tried_in_vain():
    state = pieces(pod("w", "big"), shape("big2", cpu=6_000), pod("x", "big2", created=NOW + 1))
    told(state, NOW + 1)
    tried(state, "w", NOW + PATIENCE)
    later = NOW + PATIENCE + PAUSE + PERIOD
    tried(state, "gone", later)
    assert next_demand(state) == (later + PERIOD, "x")
