"""What pods prefer counts when they are moved: soft spread and preferred affinity have a price, and no plan gives them up for nothing."""

import random

import msgspec
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape

from restow.contracts.ids import PodUid
from restow.contracts.values import Expression, LabelSelector, NodeTerm, PodTerm, PreferredNodeTerm, Spread
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task

HOST = "kubernetes.io/hostname"
ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={}, searchSteps=4_000)
FREE = msgspec.structs.replace(ARGS, costs={"preferences": 0})
WEB = LabelSelector({"app": "web"})
SPREAD = shape("web", cpu=1_000, spread=(Spread(1, HOST, "ScheduleAnyway", WEB),))
OWNER = replica_of("rs")


def host(name: str, **labels: str):
    return node(name, labels={HOST: name} | labels)


def web(name: str, on: str):
    return pod(name, "web", on, owner=OWNER, labels={"app": "web"})


def stayer(name: str, on: str, cpu: int = 1_000):
    """Bare: nobody would make it again."""
    return pod(name, f"bare-{cpu}", on)


def bare(cpu: int = 1_000):
    return shape(f"bare-{cpu}", cpu=cpu)


def plan(state, args=ARGS):
    return defragmentation.plan(state, args, NOW, "p")


def ends(made):
    return {move.pod: (move.target, move.cost) for move in made.moves}


def test_three_replicas_that_are_to_be_spread_come_to_one_node_only_where_nobody_says_that_it_matters():
    """Three nodes could be emptied onto any of three others, of which the first is the fullest."""
    there = [host(name) for name in ("a", "b", "c", "x", "y", "z")]
    state = given(SPREAD, bare(), bare(2_000), *there, web("p", "a"), web("q", "b"), web("r", "c"), stayer("s", "x", 2_000), stayer("t", "y"), stayer("u", "z"))
    assert {target for target, _ in ends(plan(state, FREE)).values()} == {"x"}
    found = ends(plan(state))
    assert sorted(target for target, _ in found.values()) == ["x", "y", "z"]
    assert {cost for _, cost in found.values()} == {1_000}


def test_where_there_is_only_one_target_it_has_its_price_and_the_plan_says_for_what():
    state = given(SPREAD, bare(), host("a"), host("x"), web("p", "a"), web("q", "x"), stayer("s", "x"))
    made = plan(state)
    assert ends(made) == {"p": ("x", 1_200)}
    assert made.worth.dearest[0].parts == {"move": 1_000, "preferences": 200}
    assert made.worth.cost == 1_200
    refused = plan(state, msgspec.structs.replace(ARGS, minimumGain=900))
    assert refused.moves == (), "a node for 1.2 is less than 0.9 for one"
    missed = refused.worth.missed
    assert (missed.cost, ends(plan(state, msgspec.structs.replace(ARGS, minimumGain=missed.least)))) == (1_200, {"p": ("x", 1_200)}), "it says what would do"
    assert plan(state, msgspec.structs.replace(ARGS, minimumGain=missed.least + 1)).moves == ()
    assert ends(plan(state, msgspec.structs.replace(FREE, minimumGain=900))) == {"p": ("x", 1_000)}


NEAR_DISK = {"node_preferences": (PreferredNodeTerm(10, NodeTerm(labels=(Expression("disk", "In", ("ssd",)),))),)}
NEAR_DB = {"pod_affinity": (PodTerm(HOST, LabelSelector({"app": "db"}), weight=10),)}
OFF_DB = {"pod_anti_affinity": (PodTerm(HOST, LabelSelector({"app": "db"}), weight=10),)}


@pytest.mark.parametrize(
    ("says", "home", "worse", "target"),
    [(NEAR_DISK, "ssd", "hdd", "ssd"), (NEAR_DB, "db", "other", "db"), (OFF_DB, "other", "db", "other")],
    ids=["node affinity", "pod affinity", "pod anti-affinity"],
)
def test_preferred_affinity_is_kept_where_it_can_be_and_lost_at_a_price(says, home, worse, target):
    def place(name: str, kind: str, cpu: int):
        return host(name, disk=kind), pod(f"on-{name}", f"bare-{cpu}", name, labels={"app": kind})

    at_home = [] if home == "ssd" else [pod("mate", "bare-1000", "a", labels={"app": home}, owner=replica_of("ds", "DaemonSet"))]
    both = (*place("x", worse, 2_000), *place("y", target, 1_000))
    mover = shape("m", cpu=1_000, **says), pod("p", "m", "a", owner=OWNER), host("a", disk=home), bare(), bare(2_000), *at_home
    state = given(*mover, *both)
    assert ends(plan(state, FREE)) == {"p": ("x", 1_000)}, "the fuller one"
    assert ends(plan(state)) == {"p": ("y", 1_000)}
    assert ends(plan(given(*mover, *place("x", worse, 2_000)))) == {"p": ("x", 1_200)}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_back_costs_what_it_cost_before(seed):
    """Whoever was elsewhere in between."""
    chance = random.Random(seed)
    state = given(SPREAD, *(host(f"n{i}") for i in range(4)), *(web(f"p{i}", f"n{chance.randrange(4)}") for i in range(6)))
    task = Task(state, ARGS, NOW, "p", 9)
    with opened(task, "nodes", Rows(task)) as world:
        marks = []
        for _ in range(60):
            if marks and chance.random() < 0.3:
                mark, spent, away = marks.pop(chance.randrange(len(marks)))
                marks = [one for one in marks if one[0] <= mark]
                world.undo(mark)
                assert (world.spent, world.away) == (spent, away)
                continue
            marks.append((world.mark(), world.spent, dict(world.away)))
            uid = PodUid(f"p{chance.randrange(6)}")
            world.lift(uid)
            spot = world.placement.find(uid, (world.home(uid).row, chance.randrange(4)))
            world.land(uid, spot or world.home(uid))
        world.undo(0)
        assert (world.spent, world.away) == (0, {})
