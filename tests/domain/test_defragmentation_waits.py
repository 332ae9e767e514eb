"""Moves wait for those only whose being under way a rule would notice: given pods with rules about each other and moves of some of them,
then in whatever order the moves begin, land and fail, as far as `after` permits, the scheduler would make each of them."""

import random
from collections import Counter

import msgspec
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.ruled import HOST, ZONE, cluster, may
from domain.storage import CLASSES, claim, volume
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import HostPort, LabelSelector, Move, PodTerm, Spread
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.order import Sequence
from restow.domain.defragmentation.optimizing.rule_order import _Predecessors
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot

ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={})


def ordered(state, wanted: dict[str, str]) -> list[Move]:
    """Moves that bring these pods to these nodes, of as many as can be."""
    rows = {uid: Spot(state.table.rows[name]) for uid, name in wanted.items()}
    with opened(task := Task(state, ARGS, NOW, "p", 2_000), "nodes", Rows(task)) as world:
        return Sequence(world, "p", 2_000).order(rows, list(rows)).moves


def test_whom_a_move_waits_for_already_by_way_of_others_it_does_not_wait_for_again():
    """Of four moves 1 waits for 0, and 3 is to wait for 1, then for 0 and 2."""
    predecessors = _Predecessors([1], [0b0000, 0b0001, 0b0000, 0b0000])
    predecessors.add_all([0, 2, 1, 2])
    assert predecessors.after == [1, 2]


class Cluster:
    """The slow checker. A move has a hold at its target from its beginning on, which rules see as a pod; the pod is at its source until
    it lands."""

    def __init__(self, state, moves: list[Move]) -> None:
        self.facts = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
        self.pods, self.moves = {uid: pod.fact for uid, pod in state.pods.items()}, moves
        self.at = {uid: charge.node for uid, charge in state.charges.items()}
        self.left = {move.migration: move for move in moves}
        self.under_way: dict[str, tuple[Move, str]] = {}
        self.landed: dict[str, str] = {}
        self.failed: set[str] = set()

    def turn(self) -> list[Move]:
        return [m for m in self.left.values() if all(one in self.landed for one in firsts(m))]

    def judge(self, move: Move, uid: str, without: frozenset[str]) -> None:
        """As the scheduler judges a successor: neither the pods that it replaces nor holds for them are there."""
        there = [msgspec.structs.replace(p, node=self.at[other]) for other, p in self.pods.items() if other not in without]
        holds = [
            msgspec.structs.replace(self.pods[other], pod=f"hold-{one.migration}", node=one.target)
            for one, other in self.under_way.values()
            if other not in without
        ]
        waiting = msgspec.structs.replace(self.pods[uid], pod="successor", node=None, phase="Pending", ready=False)
        assert may([*self.facts, *there, *holds], waiting, move.target), (move, self.at, list(self.under_way))

    def begin(self, move: Move) -> None:
        uid = move.pod or self.landed[move.follows]
        self.judge(move, uid, frozenset({uid}))
        del self.left[move.migration]
        self.under_way[move.migration] = move, uid

    def land(self, id: str) -> None:
        move, uid = self.under_way[id]
        self.judge(move, uid, frozenset({uid}))
        del self.under_way[id]
        self.at[uid], self.landed[id] = move.target, uid

    def fail(self, id: str) -> None:
        """It stays where it is, and whoever waits for it does not begin."""
        del self.under_way[id]
        self.failed.add(id)
        while broken := [m for m in self.left.values() if any(one in self.failed for one in firsts(m))]:
            for move in broken:
                del self.left[move.migration]
                self.failed.add(move.migration)


def firsts(move: Move) -> list[str]:
    return [*move.after, *([move.follows] if move.follows else [])]


def play(state, moves: list[Move], seed: int, failing: bool) -> None:
    """In some order that the moves permit."""
    chance = random.Random(seed)
    doing = Cluster(state, moves)
    while doing.left or doing.under_way:
        turn = doing.turn()
        assert turn or doing.under_way, f"nothing can begin: {doing.left}"
        if turn and (not doing.under_way or chance.random() < 0.65):
            doing.begin(chance.choice(turn))
            continue
        id = chance.choice(sorted(doing.under_way))
        if failing and not doing.failed and chance.random() < 0.4:
            doing.fail(id)
        else:
            doing.land(id)


@settings(max_examples=examples(50), deadline=None)
@any_of(st.integers(0, 1_000_000), st.booleans())
def test_in_every_order_that_is_permitted_the_scheduler_would_make_each_move(seed, failing):
    state = cluster(seed)
    chance = random.Random(seed)
    names = sorted(state.nodes)
    wanted = {uid: chance.choice(names) for uid in state.pods if chance.random() < 0.7}
    wanted = {uid: name for uid, name in wanted.items() if name != state.charges[uid].node}
    moves = ordered(state, wanted)
    for i in range(3):
        play(state, moves, seed + i, failing)


# -- what waits for what ---------------------------------------------------------------------------------------------

X, Y = LabelSelector({"app": "x"}), LabelSelector({"app": "y"})
ZONES = [node(f"n{i}", cpu=8_000, labels={HOST: f"n{i}", ZONE: str(i % 2)}) for i in range(6)]


def app(name: str, on: str, shape: str, label: str = "x") -> e.PodObserved:
    return pod(name, shape, on, labels={"app": label}, owner=replica_of(label))


def after(moves: list[Move]) -> dict[str, list[str]]:
    who = {move.migration: move.pod for move in moves}
    return {move.pod: sorted(who[one] for one in move.after) for move in moves}


def test_who_must_not_meet_do_not_wait_for_each_other_unless_one_takes_the_others_place():
    apart = shape("apart", cpu=500, pod_anti_affinity=(PodTerm(HOST, X),))
    state = given(*ZONES, apart, *(app(f"p{i}", f"n{i}", "apart") for i in range(3)))
    assert after(ordered(state, {"p0": "n3", "p1": "n4", "p2": "n5"})) == {"p0": [], "p1": [], "p2": []}
    assert after(ordered(state, {"p2": "n3", "p1": "n2", "p0": "n4"})) == {"p2": [], "p1": ["p2"], "p0": []}


def test_another_pods_anti_affinity_is_waited_for_as_ones_own_is():
    apart = shape("apart", cpu=500, pod_anti_affinity=(PodTerm(HOST, Y),))
    state = given(*ZONES, apart, shape("s", cpu=500), app("a", "n0", "apart"), app("y", "n1", "s", "y"), app("z", "n2", "s", "y"))
    assert after(ordered(state, {"a": "n3", "y": "n0", "z": "n4"})) == {"a": [], "y": ["a"], "z": []}
    assert after(ordered(state, {"y": "n3", "a": "n1"})) == {"y": [], "a": ["y"]}


def test_pods_without_rules_are_waited_for_where_a_rule_counts_them():
    near = shape("near", cpu=500, pod_affinity=(PodTerm(HOST, Y),))
    state = given(*ZONES, near, shape("s", cpu=500), app("y", "n0", "s", "y"), app("o", "n4", "s", "o"), app("x", "n0", "near"))
    assert after(ordered(state, {"o": "n5", "y": "n1", "x": "n1"})) == {"o": [], "y": [], "x": ["y"]}


def test_spread_is_waited_for_only_where_it_is_tight():
    def moves(skew: int) -> dict[str, list[str]]:
        even = shape("even", cpu=500, spread=(Spread(skew, ZONE, "DoNotSchedule", X),))
        state = given(*ZONES, even, *(app(f"p{i}", f"n{i % 2}", "even") for i in range(4)))
        # Two each: one goes to the other zone, one comes back, and another one goes.
        return after(ordered(state, {"p0": "n3", "p1": "n2", "p2": "n5"}))

    assert moves(4) == {"p0": [], "p1": [], "p2": []}
    assert moves(2) == {"p0": [], "p1": [], "p2": ["p0", "p1"]}


@pytest.mark.parametrize(("skew", "waits"), [(4, []), (3, ["p"])])
def test_of_two_moves_that_a_rule_would_bear_one_by_one_the_second_waits_where_it_would_not_bear_both(skew, waits):
    """p comes to two. q0 follows it from where one stays then, and q1 from where there are many."""
    even = shape("even", cpu=500, spread=(Spread(skew, ZONE, "DoNotSchedule", X),))
    zones = [node(f"n{i}", cpu=8_000, labels={HOST: f"n{i}", ZONE: str(i)}) for i in range(3)]
    there = [app(name, f"n{i}", "even" if name == "p" else "s") for i, names in enumerate(("p q0 a", "b c", "q1 d e f g")) for name in names.split()]
    state = given(*zones, even, shape("s", cpu=500), *there)
    assert after(ordered(state, {"p": "n1", "q0": "n1", "q1": "n1"})) == {"p": [], "q0": [], "q1": waits}


@pytest.mark.parametrize(("mine", "theirs", "waits"), [
    ("0.0.0.0", "0.0.0.0", True), ("0.0.0.0", "10.0.0.1", True), ("10.0.0.1", "0.0.0.0", True), ("10.0.0.1", "10.0.0.1", True), ("10.0.0.1", "10.0.0.2", False),
])  # fmt: skip
def test_a_port_is_waited_for_until_who_has_it_has_gone(mine, theirs, waits):
    a, b = (shape(name, cpu=500, host_ports=(HostPort(80, ip=ip),)) for name, ip in (("mine", mine), ("theirs", theirs)))
    state = given(*ZONES, a, b, app("p", "n0", "mine"), app("q", "n1", "theirs"), app("r", "n2", "mine"))
    assert after(ordered(state, {"q": "n3", "p": "n1", "r": "n4"})) == {"q": [], "p": ["q"] * waits, "r": []}


def test_moves_of_pods_with_volumes_keep_their_order_where_they_meet_on_a_node_or_at_a_claim():
    there = [pod(f"p{i}", "s", f"n{i}", owner=replica_of("x"), claims=(f"c{i // 2}",)) for i in range(4)]
    bound = [fact for i in range(2) for fact in (claim(f"c{i}", volume=f"v{i}", modes=("ReadWriteMany",)), volume(f"v{i}", claim=f"c{i}", modes=("ReadWriteMany",)))]
    state = given(*CLASSES, *ZONES, *bound, shape("s", cpu=500), *there)
    assert after(ordered(state, {"p0": "n4", "p2": "n5"})) == {"p0": [], "p2": []}
    assert after(ordered(state, {"p0": "n4", "p1": "n5"})) == {"p0": [], "p1": ["p0"]}, "of one claim"
    assert after(ordered(state, {"p0": "n4", "p2": "n4"})) == {"p0": [], "p2": ["p0"]}, "to one node"


def test_many_moves_of_one_rule_wait_for_one_another_in_a_line():
    even = shape("even", cpu=10, memory=0, spread=(Spread(600, HOST, "DoNotSchedule", X),))
    nodes = [node(f"n{i}", cpu=80_000, pods=1_000, labels={HOST: f"n{i}"}) for i in range(2)]
    state = given(*nodes, even, *(app(f"p{i:03}", "n0", "even") for i in range(520)))
    moves = ordered(state, {f"p{i:03}": "n1" for i in range(520)})
    waits = Counter(len(move.after) for move in moves)
    assert len(moves) == 520
    assert waits == {0: 1, 1: 519}


def test_most_moves_of_pods_with_rules_wait_for_nobody():
    found: list[Move] = []
    for seed in range(40):
        state, chance = cluster(seed * 7 + 1), random.Random(seed)
        names = sorted(state.nodes)
        found += ordered(state, {uid: chance.choice([n for n in names if n != state.charges[uid].node]) for uid in state.pods})
    assert len(found) > 100
    assert sum(not move.after for move in found) * 2 > len(found)
