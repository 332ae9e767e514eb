"""A plan as two maps: its nodes before it and after it."""

from collections import Counter

import pytest
from console.logs_large import GPU
from replay.handmade import LOG_ID, PACKING, Handmade, migration, observed, proposed, time_at

from restow.console.answers import plan, plans
from restow.console.index import Index
from restow.console.plan_maps import plan_maps
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, DeviceShare, Move, PodShape, SlotFor
from restow.domain.planview import migrations_of, plan_view
from restow.domain.state import ClusterState
from restow.replay.source import ListSource
from restow.replay.state_at import examine_record, fold_examined, state_at


def index_of(log):
    index, state = Index(), ClusterState()
    for record in log.records:
        found = fold_examined(state, record, examine_record(record, LOG_ID), LOG_ID)
        index.note(state, record.family, len(record.body), [event for decision in found.decisions for event in decision.events])
    return index


def chained(after=("m1",), **how):
    """Of three nodes with two devices, `p` goes from a to c by way of b, `q` from b to a, `r` is only evicted; `s` stays."""
    log, gone = Handmade(), {"devices": (DeviceShare(1, 1000),)}
    log.facts(*(e.NodeObserved(name, f"uid-{name}", {"cpu": 8000, "memory": 1 << 33, "pods": 110, GPU: 2000}, devices=2) for name in "abc"), kind="nodes")
    log.facts(e.ShapeDeclared("one", PodShape({"cpu": 1000, "memory": 1 << 30, "pods": 1, GPU: 1000}, scheduler="restow", devices=DeviceRequest(1, 1000))))
    log.facts(*(e.PodObserved(f"uid-{name}", "ns", name, "one", 0, node=on, phase="Running", ready=True, devices=(DeviceShare(i, 1000),)) for name, on, i in (("p", "a", 0), ("q", "b", 0), ("r", "c", 0), ("s", "a", 1))))
    log.facts(e.PodObserved("uid-w", "ns", "w", "one", 0))
    moves = (
        Move("m1", "uid-p", "ns", "p", "a", "b", devices=(DeviceShare(1, 1000),)),
        Move("m2", "uid-q", "ns", "q", "b", "a", devices=(DeviceShare(0, 1000),), after=after),
        Move("m3", "", "ns", "", "b", "c", follows="m1", **gone),
        Move("m4", "uid-r", "ns", "r", "c", ""),
    )
    log.decide("migration", c.Defragment(time_at(5), "api", "p1"), e.Planned("p1", "Defragmentation", moves, PACKING, PACKING, slots=(SlotFor("s", "uid-w", "ns", "b"),), **how))
    return log


def on(said, side):
    return {node["name"]: {(one["pod"], *map(tuple, one["devices"])): one["migration"] for one in node[side]} for node in said["nodes"]}


def test_everybody_is_where_the_plan_wants_them():
    said = plan_maps(index_of(chained()), "p1", 5)
    assert on(said, "before") == {
        "a": {("ns/p", (0, 1000)): "m1", ("ns/s", (1, 1000)): ""}, "b": {("ns/q", (0, 1000)): "m2"}, "c": {("ns/r", (0, 1000)): "m4"},
    }  # fmt: skip
    assert on(said, "after") == {
        "a": {("ns/s", (1, 1000)): "", ("ns/q", (0, 1000)): "m2"}, "b": {}, "c": {("ns/p", (1, 1000)): "m3"},
    }  # fmt: skip
    assert [node["devices"] for node in said["nodes"]] == [[0, 1]] * 3
    assert (said["known"], said["nodesInAll"], said["slots"]) == (True, 3, [{"pod": "ns/w", "node": "b"}])


async def test_of_a_plan_that_is_approved_in_part_only_that_part_is_carried_out(looking):
    log = chained(mode="propose")
    log.decide("migration", c.Approve(time_at(6), "p1", "ann", moves=("m4",)), e.PlanApproved("p1", "ann", moves=("m4",)))
    index = index_of(log)
    whole, part = (plan_maps(index, "p1", at) for at in (5, 6))
    assert (whole["declined"], part["declined"]) == (0, 3)
    assert on(whole, "after")["c"] == {("ns/p", (1, 1000)): "m3"}
    assert on(part, "before") == {"a": {("ns/p", (0, 1000)): "", ("ns/s", (1, 1000)): ""}, "b": {("ns/q", (0, 1000)): ""}, "c": {("ns/r", (0, 1000)): "m4"}}
    assert on(part, "after") == on(part, "before") | {"c": {}}
    async with looking(ListSource(log.records, log_id=LOG_ID)) as client:
        _, headers, _ = await client.get("/api/v1/plans/p1/maps", at="5")
        assert (await client.get("/api/v1/plans/p1/maps", {"If-None-Match": headers["ETag"]}, at="6"))[0] == 200, "not what it was before the answer"
        assert (await client.json("/api/v1/plans/p1/maps", at="5"))["declined"] == 0


def test_plans_that_found_nothing_to_do_can_be_left_out_but_for_the_latest():
    log = migration()
    for i in range(3):
        log.decide("migration", c.Defragment(time_at(16 + i), "interval", f"e{i}"), e.Planned(f"e{i}", "Defragmentation", (), PACKING, PACKING))
    index = index_of(log)
    assert [one["plan"] for one in plans(index, 18)] == ["e2", "e1", "e0", "p1"]
    assert [one["plan"] for one in plans(index, 18, empty=False)] == ["e2", "p1"]
    assert [one["plan"] for one in plans(index, 15, empty=False)] == ["p1"]


def test_what_became_of_a_plan_is_known_when_the_log_has_forgotten_its_moves():
    """As the state does of the oldest of ten thousand."""
    log = migration()
    log.facts(kind="nodes")
    index = index_of(log)
    index._put("moves", 16, "p1-1", None)
    assert [one["steps"] for one in plans(index, 16)] == [{"landed": 1}]
    (move,) = plan(index, "p1", 16)["moves"]
    assert (move["step"], move["since"]) == ("landed", time_at(15))


def test_the_maps_are_of_the_instant_of_the_plan_and_not_before_it():
    index = index_of(migration())
    assert plan_maps(index, "p1", 2) is None
    assert plan_maps(index, "none", 15) is None
    # Long after the move has landed, too.
    assert on(plan_maps(index, "p1", 15), "before") == {"a": {("shop/web-old",): "p1-1"}, "b": {}}


def test_nobody_is_lost_or_doubled_in_thought():
    said = plan_maps(index_of(chained()), "p1", 5)
    before, after = (Counter(one["uid"] for node in said["nodes"] for one in node[side]) for side in ("before", "after"))
    assert before - after == Counter(["uid-r"]), "the only one that is evicted and placed nowhere"
    assert after - before == Counter()


async def test_both_are_answered_once_and_then_known(looking):
    async with looking(ListSource(migration().records, log_id=LOG_ID)) as client:
        status, headers, _ = await client.get("/api/v1/plans/p1/maps", at="9")
        assert status == 200
        assert (await client.get("/api/v1/plans/p1/maps", {"If-None-Match": headers["ETag"]}, at="15"))[0] == 304, "a plan stays as it was made"
        for what in ("maps", "values"):
            assert (await client.get(f"/api/v1/plans/p1/{what}", at="2"))[0] == 404
            assert (await client.get(f"/api/v1/plans/none/{what}"))[0] == 404
        assert await client.json("/api/v1/plans/p1/values") == {"moves": [], "unknown": "the plan does not say what it is worth"}


@pytest.mark.parametrize("what", ["maps", "values"])
async def test_a_plan_of_a_hostile_name_is_none(looking, what):
    async with looking(ListSource(migration().records, log_id=LOG_ID)) as client:
        assert (await client.get(f"/api/v1/plans/%22%0d%0aX-Evil:%201/{what}"))[0] == 404


@pytest.mark.parametrize(
    "log",
    [migration(), migration(lands=False), migration(approved=()), migration(approved=("p1-1",)), migration(approved=("p1-1", "p1-2")), proposed(), proposed("approved"), proposed("rejected"), observed()],
    ids=["carried out", "under way", "approved", "in part", "both by name", "waits", "approved later", "rejected", "observed"],
)
def test_what_became_of_a_plans_moves_is_what_the_terminal_says(log):
    """At every instant. (Of an approved plan a move that was void from the start was declined here, and by nobody.)"""
    index, looked = index_of(log), 0
    for seq in range(1, log.seq + 1):
        state = state_at(log.source(), seq=seq)
        for id in state.plans:
            known, said = plan_view(state, id), plan(index, id, seq)
            assert [move["step"] for move in said["moves"]] == [one.step for one in migrations_of(state, id)], seq
            assert (said["steps"], said["cancelled"], (said["answer"] or {}).get("said", "")) == (known.steps, known.cancelled, known.answer), seq
            looked += 1
    assert looked
