"""What capacity is worth and what moves cost, in one unit; and plans by objective `value`."""

import random

import msgspec
import numpy as np
import pytest
from domain.build import GIB, NOW, configured, given, job_of, member, node, pod, replica_of, shape, then

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.contracts.values import DeviceShare
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig, PriceArgs
from restow.domain.defragmentation import ArgsError, check
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.bound import judged
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.prices import OWN_PRICE
from restow.domain.defragmentation.usable_worth import UsableWorth, loads_of
from restow.domain.hooks import CHECKPOINTED
from restow.domain.migration.warnings import warnings
from restow.domain.planview import node_groups
from restow.domain.protection import PREFER_NO_EVICTION

HOUR = 3_600_000
SERVER, JOB, ODD = replica_of("rs"), replica_of("job", "Job"), replica_of("other", "Odd")
VALUE = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={}, searchSteps=4_000)
ONE, EIGHT = shape("one", cpu=0, memory=0, gpu=(1, 1_000)), shape("eight", cpu=0, memory=0, gpu=(8, 1_000))
GPUS = {"cpu": 0, "memory": 0, "gpus": 8}
"""A node that is worth 8 GPU-hours per hour."""


def one(name: str, on: str, device: int, **more) -> e.PodObserved:
    return pod(name, "one", on, devices=(DeviceShare(device, 1_000),), **{"owner": SERVER} | more)


def plan(state, args=VALUE, **more) -> e.Planned:
    return defragmentation.plan(state, args, more.pop("time", NOW), "p", **more)


def cost(state, uid: str, args=VALUE) -> int:
    return Appraisal(state, args, NOW).costs.cost(PodUid(uid))


# -- prices ----------------------------------------------------------------------------------------------------------


def test_a_node_is_worth_what_it_has_in_gpu_hours_unless_somebody_says_a_price():
    prices = PriceArgs(perHour={"dear": 40, "odd": "12.5"}, label="class", unit="USD")
    state = given(
        node("plain", cpu=50_000, memory=400 * GIB, gpus=8), node("classed", labels={"class": "dear"}), node("text", labels={"class": "odd"}),
        node("own", labels={"class": "dear", OWN_PRICE: "3.25"}), node("unreadable", labels={"class": "dear", OWN_PRICE: "much"}),
    )  # fmt: skip
    found = Appraisal(state, msgspec.structs.replace(VALUE, prices=prices), NOW).prices
    assert found.unit == "USD"
    assert {name: found.per_hour[row] for name, row in state.table.rows.items()} == {
        "plain": 10_000_000, "classed": 40_000_000, "text": 12_500_000, "own": 3_250_000, "unreadable": 40_000_000,
    }  # fmt: skip
    assert Appraisal(state, VALUE, NOW).prices.unit == "units", "of money, for one node says a price, and nobody which"
    assert Appraisal(given(node("plain"), node("unreadable", labels={OWN_PRICE: "much"})), VALUE, NOW).prices.unit == "GPU-hours"


@pytest.mark.parametrize(("resource", "many", "worth"), [
    ("nvidia.com/mig-1g.5gb", 7, 999_999), ("nvidia.com/mig-3g.20gb", 2, 857_142), ("nvidia.com/mig-1g.10gb.me", 1, 142_857), ("nvidia.com/mig-7g.40gb", 1, 1_000_000),
    ("amd.com/gpu", 8, 8_000_000), ("example.com/license", 8, 0), ("nvidia.com/mig-9g.1gb", 1, 0),
])  # fmt: skip
def test_a_slice_counts_as_many_sevenths_of_a_gpu_as_its_profile_says_and_other_whole_devices_as_one(resource, many, worth):
    state = given(node("n", cpu=0, memory=0, allocatable={resource: many}))
    assert Appraisal(state, VALUE, NOW).prices.per_hour == [worth, *[0] * (len(state.table.names) - 1)]


@pytest.mark.parametrize(
    ("prices", "labels", "told"),
    [
        (PriceArgs(), {}, []),
        (PriceArgs(perHour={"dear": 40, "cheap": 1}, label="class"), {"a": {"class": "dear"}, "b": {"class": "cheap"}}, []),
        (PriceArgs(), {"a": {OWN_PRICE: "3"}}, ["prices: 1 node of 2 has none, such as b, and counts by GPUs, cores and memory, which is no money"]),
        (
            PriceArgs(perHour={"deer": 40}, label="class"),
            {"a": {"class": "dear"}, "b": {"class": "cheap"}},
            ["prices.perHour: no node has label class with deer"],
        ),
        (
            PriceArgs(perHour={"cheap": 1, "v": 1, "w": 1, "x": 1, "y": 1}, label="class"),
            {"a": {OWN_PRICE: "3 €\n"}, "b": {"class": "cheap"}},
            [
                "restow.dev/price-per-hour: of 1 node it does not count, such as '3 €' of a; allowed: a number of units per hour, 0 to 10000",
                "prices.perHour: no node has label class with v, w, x and 1 more",
                "prices: 1 node of 2 has none, such as a, and counts by GPUs, cores and memory, which is no money",
            ],
        ),
    ],
)
def test_prices_that_count_for_no_node_and_nodes_without_one_beside_others_are_told(prices, labels, told):
    """A slip in the name of a class weighed its nodes by their GPUs, beside others in dollars, without a word."""
    nodes = [node(name, labels=labels.get(name, {}), gpus=8) for name in "ab"]
    conf = configured("migration", MigrationConfig(defragmentation=msgspec.structs.replace(VALUE, prices=prices)))
    assert warnings(given(conf, ONE, *nodes, one("p", "a", 0))) == told


@pytest.mark.parametrize("price", [-1, "much", "nan", "inf", 10_001])
def test_a_price_that_is_none_is_refused_with_its_path(price):
    with pytest.raises(ArgsError, match=r"prices\.perHour\['h100'\]: .*; allowed: a number of units per hour"):
        check(msgspec.structs.replace(VALUE, prices=PriceArgs(perHour={"h100": price})))


@pytest.mark.parametrize(("unit", "said"), [("x" * 33, "x" * 32), ("\x1b[31m", r"\\x1b\[31m")])
def test_a_unit_is_a_word_that_fits_into_a_table(unit, said):
    with pytest.raises(ArgsError, match=rf"prices\.unit: '{said}'; allowed: up to 32 printable characters"):
        check(msgspec.structs.replace(VALUE, prices=PriceArgs(unit=unit)))
    check(msgspec.structs.replace(VALUE, prices=PriceArgs(unit="€ ohne Mehrwertsteuer")))


def test_value_is_an_objective_of_the_optimizing_planner_and_its_time_is_bounded():
    with pytest.raises(ArgsError, match="objective: value; allowed: only with planner optimizing"):
        check(msgspec.structs.replace(VALUE, planner="greedy"))
    with pytest.raises(ArgsError, match="horizonHours: 0; allowed: 1 to"):
        check(msgspec.structs.replace(VALUE, horizonHours=0))


# -- costs -----------------------------------------------------------------------------------------------------------


def test_a_job_costs_the_work_that_it_loses_and_a_server_does_not_though_nobody_has_asked():
    state = given(
        EIGHT, node("a", **GPUS), node("b", **GPUS), job_of("job"),
        pod("j", "eight", "a", owner=JOB, created=NOW - 10 * HOUR), pod("s", "eight", "b", owner=SERVER, created=NOW - 10 * HOUR),
    )  # fmt: skip
    assert (cost(state, "j"), cost(state, "s")) == (1_000 + 80_000, 1_000)
    assert cost(state, "j", msgspec.structs.replace(VALUE, costs={"work": 0})) == 1_000
    assert cost(state, "j", msgspec.structs.replace(VALUE, prices=PriceArgs(perHour={"": 16}))) == 1_000 + 160_000, "in money where there are prices"


def test_what_was_saved_is_not_lost_and_nobody_loses_more_than_a_week():
    saved = {CHECKPOINTED: "2023-11-14T20:13:20Z"}  # two hours before NOW
    state = given(
        ONE, node("a", **GPUS), one("saved", "a", 0, owner=JOB, created=NOW - 10 * HOUR, annotations=saved),
        one("old", "a", 1, owner=JOB, created=NOW - 1_000 * HOUR),
    )  # fmt: skip
    assert (cost(state, "saved"), cost(state, "old")) == (1_000 + 2_000, 1_000 + 168_000)


def test_of_a_gang_all_start_again():
    mates = [member(f"m{i}", "g", "one", "a", owner=JOB, created=NOW - 5 * HOUR, devices=(DeviceShare(i, 1_000),)) for i in range(3)]
    state = given(ONE, node("a", **GPUS), *mates)
    assert cost(state, "m0") == 1_000 + 15_000 + 2 * 50, "and the others may wait"


def test_what_every_move_costs_can_be_said():
    """It was one unit of the prices, whichever that is: with prices in yen nothing kept a pod where it is, and where a node earns less in a day nothing moved."""
    state = given(ONE, node("a", **GPUS), one("p", "a", 0, annotations={PREFER_NO_EVICTION: ""}), one("q", "a", 1))
    assert [cost(state, uid, msgspec.structs.replace(VALUE, costs={"move": 30})) for uid in "qp"] == [30, 60]
    assert [cost(state, uid) for uid in "qp"] == [1_000, 2_000]
    small = PriceArgs(unit="USD", perHour={"small": "0.05"}, label="class")
    state = given(
        shape("half", cpu=2_000), shape("large", cpu=8_000), *(node(name, cpu=8_000, labels={"class": "small"}) for name in "ab"),
        pod("p", "half", "a", owner=SERVER), pod("q", "half", "b", owner=SERVER), pod("w", "large"),
    )  # fmt: skip
    args = msgspec.structs.replace(VALUE, prices=small)
    assert not plan(state, args).moves, "a node of 1.2 dollars a day, and a dollar for the move"
    found = plan(state, msgspec.structs.replace(args, costs={"move": 50}))
    assert [move.cost for move in found.moves] == [50]
    assert found.worth is not None
    assert [one.parts for one in found.worth.dearest] == [{"move": 50}]


@pytest.mark.parametrize("move", [0, -1, 1_000_001])
def test_no_move_is_for_nothing(move):
    with pytest.raises(ArgsError, match=rf"costs\['move'\]: {move}; allowed: 1 to 1000000"):
        check(msgspec.structs.replace(VALUE, costs={"move": move}))


# -- worth -----------------------------------------------------------------------------------------------------------


def busy(seed: int):
    """Nodes of several classes, some in part in use; who waits asks for other things than who runs."""
    chance = random.Random(seed)
    facts = [shape("small", cpu=500, gpu=(1, 300)), shape("pair", cpu=4_000, gpu=(2, 1_000)), shape("cpu", cpu=3_000), EIGHT]
    for i in range(8):
        facts.append(node(f"n{i}", cpu=chance.choice((16_000, 64_000)), gpus=chance.choice((0, 2, 8)), labels={OWN_PRICE: "7.5"} if i % 3 == 0 else {}))
    facts.append(node("large", cpu=20_000_000_000, memory=1 << 54, pods=10_000_000, labels={OWN_PRICE: "10000"}))
    for i in range(12):
        on = f"n{chance.randrange(8)}"
        facts.append(pod(f"c{i}", "cpu", on, owner=SERVER))
    facts += [pod("w1", "small"), pod("w2", "pair"), pod("w3", "eight")]
    return given(*facts)


@pytest.mark.parametrize("seed", range(6))
def test_worth_is_the_same_for_one_node_and_for_many_and_never_more_than_the_node(seed):
    state = busy(seed)
    appraisal = Appraisal(state, VALUE, NOW)
    table, loads, rows = state.table, loads_of(state), np.arange(len(state.table.names))
    many = appraisal.usable.many(rows, table.free, table.device_free, loads).tolist()
    one_by_one = [appraisal.usable.one(row, table.free[row].tolist(), table.device_free[row].tolist(), int(loads[row])) for row in rows]
    assert many == one_by_one
    assert all(worth * 1_000 <= appraisal.prices.per_hour[row] * 24 for row, worth in enumerate(many) if table.names[row] != "large"), "whose size has a limit, and its worth has none"
    assert sum(many) == appraisal.total() > 0
    nothing = UsableWorth(state, appraisal.prices, 24, ())
    assert not nothing.many(rows, table.free, table.device_free, loads).any(), "nobody asks for anything"
    value = Usable(appraisal.usable, -1)
    v = state.vectors["small"]
    fits = [row for row in rows.tolist() if table.free[row, 0] >= 500 and (table.device_free[row] >= 300).any()]
    lost = value.lost(np.array(fits, np.int64), table.free[fits], table.device_free[fits], loads[fits], v).tolist()
    assert lost == [value.lost_one(row, table.free[row].tolist(), table.device_free[row].tolist(), int(loads[row]), v) for row in fits]


def test_eight_gpus_together_are_worth_more_than_eight_apart_where_eights_are_asked_for():
    scattered = given(ONE, EIGHT, node("a", **GPUS), node("b", **GPUS), one("p", "a", 0), one("q", "b", 0), pod("w", "eight"))
    together = given(ONE, EIGHT, node("a", **GPUS), node("b", **GPUS), one("p", "a", 0), one("q", "a", 1), pod("w", "eight"))
    less, more = (Appraisal(state, VALUE, NOW).total() for state in (scattered, together))
    assert more > less


def test_an_empty_node_is_worth_its_price_where_somebody_takes_empty_nodes_away():
    state = given(ONE, node("a", **GPUS), node("b", **GPUS), one("p", "a", 0))
    before = Appraisal(state, VALUE, NOW).total()
    state.migration_config = msgspec.structs.replace(state.migration_config, emptied="announce")
    assert Appraisal(state, VALUE, NOW).total() >= before
    row = state.table.rows["b"]
    assert Appraisal(state, VALUE, NOW).usable.one(row, [0], [], 0) == 8 * 24 * 1_000


# -- plans -----------------------------------------------------------------------------------------------------------


def waiting_for_eight(**more):
    return given(ONE, EIGHT, node("a", **GPUS), node("b", **GPUS), one("p", "a", 0, **more), one("q", "b", 0), one("r", "b", 1), pod("w", "eight"))


def test_a_plan_by_value_makes_room_for_who_waits_and_says_what_that_is_worth_and_costs():
    state = waiting_for_eight()
    got = plan(state)
    assert [(m.pod, m.source, m.target, m.cost) for m in got.moves] == [("p", "a", "b", 1_000)]
    assert (got.worth.unit, got.worth.hours, got.worth.cost) == ("GPU-hours", 24, 1_000)
    moved = waiting_for_eight()
    then(moved, e.PodGone("p"), one("p2", "b", 2))
    assert (got.worth.before, got.worth.after) == (Appraisal(state, VALUE, NOW).total(), Appraisal(moved, VALUE, NOW).total())
    assert got.worth.after - got.worth.before > got.worth.cost
    assert plan(moved).moves == (), "a second plan right after it is empty"


def test_slices_of_a_device_plugin_are_moved_together_for_who_waits_for_more_of_them():
    slices = "nvidia.com/mig-1g.5gb"
    state = given(
        *(node(name, allocatable={slices: 7}) for name in "ab"), shape("s", cpu=100, requests={slices: 1}), shape("seven", cpu=100, requests={slices: 7}),
        pod("p", "s", "a", owner=SERVER), pod("q", "s", "b", owner=SERVER), pod("r", "s", "b", owner=SERVER), pod("w", "seven"),
    )  # fmt: skip
    got = plan(state)
    assert [(m.pod, m.source, m.target) for m in got.moves] == [("p", "a", "b")]
    assert got.worth.after - got.worth.before > got.worth.cost


@pytest.mark.parametrize(("resource", "many"), [("nvidia.com/mig-1g.5gb", 8), ("amd.com/gpu", 10**10), ("amd.com/gpu", 2**63 - 1), ("cpu", 2**63 - 1), ("memory", 2**63 - 1)])
def test_a_pod_that_asks_for_more_than_any_node_has_keeps_no_plan_from_others(resource, many):
    """Whoever may make a pod may write any number into it."""
    slices = "nvidia.com/mig-1g.5gb"
    state = given(
        *(node(name, allocatable={slices: 7, "amd.com/gpu": 8}) for name in "ab"), shape("s", cpu=100, requests={slices: 1}), shape("seven", cpu=100, requests={slices: 7}),
        pod("p", "s", "a", owner=SERVER), pod("q", "s", "b", owner=SERVER), pod("r", "s", "b", owner=SERVER), pod("w", "seven"),
    )  # fmt: skip
    alone = plan(state)
    then(state, shape("typo", requests={resource: many}), pod("v", "typo"))
    got = plan(state)
    assert [(m.pod, m.source, m.target) for m in got.moves] == [("p", "a", "b")]
    assert got.worth == alone.worth


def test_nothing_moves_whose_work_is_worth_more_than_what_is_won():
    hundred_hours = {"owner": JOB, "created": NOW - 100 * HOUR}
    state = waiting_for_eight(**hundred_hours)
    then(state, job_of("job"))
    assert {m.pod for m in plan(state).moves} <= {"q", "r"}, "servers may still go to the node of the job"
    assert plan(state, msgspec.structs.replace(VALUE, minimumGain=1_000_000)).moves == ()


@pytest.mark.parametrize(("objective", "gain"), [("devices", 1_000), ("nodes", 1_000), ("value", 24_000)])
def test_a_plan_that_was_not_worth_it_says_what_it_would_have_taken(objective, gain):
    """A share of a Job that has run for a week keeps a node of one GPU from being free."""
    args = msgspec.structs.replace(VALUE, objective=objective, minimumGain=200)
    facts = [shape("half", cpu=0, memory=0, gpu=(1, 500)), shape("one", cpu=0, memory=0, gpu=(1, 1_000)), job_of("job"), pod("w", "one")]
    nodes = [node(name, **GPUS | {"gpus": 1}) for name in ("a", "b")]
    halves = [pod(uid, "half", on, devices=(DeviceShare(0, 500),), owner=JOB, created=NOW - 168 * HOUR) for uid, on in (("p", "a"), ("q", "b"))]
    state = given(*facts, *nodes, *halves)
    got = plan(state, args)
    missed = got.worth.missed
    assert got.moves == ()
    assert (missed.moves, missed.cost) == (1, 1_000 + 84_000)
    assert 0 < missed.gain <= gain
    if objective != "value":
        assert (missed.gain, missed.least) == (1_000, 1_000_000 // 85_000)
        made = plan(state, msgspec.structs.replace(args, minimumGain=missed.least))
        assert (len(made.moves), made.worth.missed) == (1, None), "as it says"
        assert plan(state, msgspec.structs.replace(args, minimumGain=missed.least + 1)).moves == ()
    else:
        assert missed.least < 0


TIGHT = """
share n0 0 J10 J10, share n0 2 J100 S S, cpu n0 - J100, whole n1 0 S, whole n1 1 S, share n1 2 J10, share n1 3 J10 J10 J1, cpu n1 - J1 J100,
share n2 0 J500 S J100, cpu n2 - J1 S, share n3 0 S, share n3 2 J10 J100 J1, share n3 3 S, cpu n3 - J1
"""
"""Request, node, device, and whose: servers (S), Jobs with the hours for which they have run."""


def test_where_what_is_found_has_no_order_what_is_worth_less_and_has_one_is_the_plan():
    """The best that is found are two that go to each other's places, and cores are too few for one to come before the other leaves. With a third one out of the way they
    can. The plan was empty, and said of these three that `minimumGain` 433 would do, where it was 100."""
    state = given(job_of("job"), *(node(name, cpu=cpu, gpus=4) for name, cpu in (("n0", 16_000), ("n1", 16_000), ("n2", 12_000), ("n3", 16_000))))
    then(state, shape("share", cpu=3_000, memory=0, gpu=(1, 100)), shape("whole", cpu=250, memory=0, gpu=(1, 1_000)), shape("cpu", cpu=500, memory=0))
    for of, on, device, *owners in (line.split() for line in TIGHT.split(",")):
        for who in owners:
            held = () if device == "-" else (DeviceShare(int(device), 1_000 if of == "whole" else 100),)
            owner = {"owner": SERVER} if who == "S" else {"owner": JOB, "created": NOW - int(who[1:]) * HOUR}
            then(state, pod(f"p{len(state.pods):02}", of, on, devices=held, **owner))
    got = plan(state, msgspec.structs.replace(VALUE, objective="devices", minimumGain=100))
    assert (got.after.free_devices - got.before.free_devices, got.worth.missed) == (3, None)


def test_one_piece_that_costs_more_than_any_gain_allows_is_told_all_the_same():
    """A job of eight GPUs that has run for a week costs 1,345 GPU-hours, and 1 is the least `minimumGain` that counts."""
    held = tuple(DeviceShare(i, 1_000) for i in range(8))
    state = given(
        EIGHT, node("a", gpus=8), node("b", gpus=16), job_of("job"),
        pod("j", "eight", "a", owner=JOB, created=NOW - 168 * HOUR, devices=held), pod("k", "eight", "b", owner=ODD, devices=held),
    )  # fmt: skip
    found = plan(state, msgspec.structs.replace(VALUE, objective="nodes", minimumGain=1))
    assert not found.moves
    assert found.worth is not None
    assert found.worth.missed is not None
    assert (found.worth.missed.moves, found.worth.missed.source, found.worth.missed.gain, found.worth.missed.least) == (1, "a", 1_000, 0)
    assert found.worth.missed.cost > 1_000_000


@pytest.mark.parametrize(("waits", "told"), [(True, False), (False, True)])
def test_what_could_not_be_carried_out_is_not_said_to_have_been_missed(waits, told):
    """Once the job's pod has left a, who waits for eight GPUs gets them, and not the pod of c: no `minimumGain` would have them moved."""
    held = tuple(DeviceShare(i, 1_000) for i in range(8))
    state = given(
        ONE, EIGHT, *(node(name, gpus=8) for name in "abc"), job_of("job"), one("j", "a", 0, owner=JOB, created=NOW - 100 * HOUR),
        shape("cpu"), pod("stays", "cpu", "a", owner=ODD), one("k", "b", 0, owner=ODD), pod("p", "eight", "c", owner=SERVER, devices=held), *([pod("w", "eight")] if waits else []),
    )  # fmt: skip
    found = plan(state, msgspec.structs.replace(VALUE, objective="nodes"))
    assert not found.moves
    assert found.worth is not None
    assert (found.worth.missed is not None) == told
    assert bool(plan(state, msgspec.structs.replace(VALUE, objective="nodes", minimumGain=1)).moves) == told


@pytest.mark.parametrize("alike", [1, 12])
def test_who_would_fit_elsewhere_and_gains_nothing_there_is_not_said_to_fit_nowhere(alike):
    """Also of many that are alike, of which the search does not try each."""
    given_nodes = [node(f"n{i:02}", gpus=8) for i in range(alike + 1)]
    state = given(ONE, EIGHT, *given_nodes, *(one(f"p{i}-{d}", f"n{i:02}", d) for i in range(alike) for d in range(3)))
    got = plan(state)
    assert (got.moves, got.kept) == ((), {"NoGain": 3 * alike})


def test_a_gain_that_just_equals_the_cost_is_not_enough():
    facts = [shape("half", cpu=0, memory=0, gpu=(1, 500)), *[node(name, **GPUS | {"gpus": 1}) for name in ("a", "b")]]
    halves = [pod(uid, "half", on, devices=(DeviceShare(0, 500),), owner=SERVER) for uid, on in (("p", "a"), ("q", "b"))]
    args = msgspec.structs.replace(VALUE, objective="devices", minimumGain=1_000)
    missed = plan(given(*facts, *halves), args).worth.missed
    assert (missed.gain, missed.cost, missed.least) == (1_000, 1_000, 999)
    assert len(plan(given(*facts, *halves), msgspec.structs.replace(args, minimumGain=missed.least)).moves) == 1


@pytest.mark.parametrize("args", [VALUE, msgspec.structs.replace(VALUE, objective="devices"), msgspec.structs.replace(VALUE, objective="nodes", horizonHours=48)])
def test_plans_of_every_objective_are_appraised_in_the_same_unit(args):
    got = plan(waiting_for_eight(), args)
    assert got.worth is not None
    assert got.worth.cost == sum(move.cost for move in got.moves)
    assert got.worth.hours == args.horizonHours
    assert [(one.migration, one.cost, one.parts) for one in got.worth.dearest] == [(move.migration, 1_000, {"move": 1_000}) for move in got.moves]


def test_the_worth_of_groups_of_nodes_adds_up_to_that_of_the_plan():
    state = waiting_for_eight()
    state.migration_config = msgspec.structs.replace(state.migration_config, defragmentation=VALUE)
    got = plan(state, time=state.time)
    groups = node_groups(state, got.moves, "kubernetes.io/hostname")
    assert (sum(one.worth_before for one in groups), sum(one.worth_after for one in groups)) == (got.worth.before, got.worth.after)


def test_a_plan_of_the_greedy_planner_says_its_worth_too():
    gpu = {"nvidia.com/gpu": 20}
    args = DefragmentationArgs(lowThresholds=gpu, defragmentThresholds=gpu, protectionThresholds={"nvidia.com/gpu": 100})
    got = plan(waiting_for_eight(), args)
    assert [m.cost for m in got.moves] == [1_000]
    assert got.worth.after > got.worth.before


@pytest.mark.parametrize("objective", ["value", "devices", "nodes", "capacity"])
def test_a_pod_that_runs_and_asks_for_more_than_any_node_has_stays_and_others_move(objective):
    """Whoever may bind a pod may write any number into it. A search that pushed others, and the bound, failed on it."""
    args = msgspec.structs.replace(VALUE, objective=objective, minimumGain=0, **({"capacity": {"cpu": "7"}} if objective == "capacity" else {}))
    state = given(
        *(node(name, gpus=8) for name in "abc"), ONE, EIGHT, shape("typo", cpu=1 << 62, memory=1 << 62, requests={"example.com/x": (1 << 63) - 1}), *(one(f"p{d}", "a", d) for d in range(3)), *(one(f"q{d}", "b", d) for d in range(7)),
        pod("w", "eight"), pod("v", "typo", "c", owner=SERVER),
    )  # fmt: skip
    got = plan(state, args)
    assert "v" not in {move.pod for move in got.moves}
    for kind in ("LP", "volume"):
        bound = judged(Task(state, args, NOW, "p", 20), got, kind)
        assert bound.gained - bound.cost <= bound.net
