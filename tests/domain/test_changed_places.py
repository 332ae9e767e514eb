"""Successors that another scheduler binds to each other's slots: they have landed, each by the other's move, and nothing is held or charged twice."""

from itertools import permutations
from random import Random

import pytest
from domain.build import changed, node, pod, replica_of, shape, then
from domain.saga import advance, failed, step, terminate
from domain.test_beside import STOCK, session_answers
from domain.test_gang_evictions import IN, decided, kept

from restow.contracts import events as e
from restow.domain import session
from restow.domain.beside import placeholder_of
from restow.domain.effects import CreatePlaceholder, Land
from restow.domain.records import SlotPhase, Step
from restow.domain.snapshot import dump, load


def handed_over(names=("n1", "n2", "n3"), **of):
    """All three of a gang have left, and a slot was handed over to each successor; their placeholders have gone, and their gates are off."""
    state, moves = decided()
    kept(state, *moves)
    terminate(state, "p1", "p2", "p3")
    advance(state)
    then(state, *(e.PodGone(uid) for uid in ("p1", "p2", "p3")))
    for uid in names:
        then(state, pod(uid, of.get(uid, "s"), gated=True, landing=True, **IN))
        session_answers(state)
    let_go(state, *names)
    return state, moves, {state.migrations[id].successor: state.migrations[id].move.target for id in moves}


def let_go(state, *names):
    for uid in names:
        if (body := placeholder_of(state, uid)) is not None:
            then(state, e.PodGone(body))
        then(state, pod(uid, state.pods[uid].fact.shape, nominated=state.placed[uid].node, **IN))
        session_answers(state)


def runs(state, uid: str, on: str) -> None:
    then(state, changed(uid, node=on))
    session_answers(state)
    advance(state)
    then(state, changed(uid, node=on, phase="Running", ready=True))
    session_answers(state)


def free(state) -> dict[str, int]:
    column = state.table.columns["cpu"]
    return {name: int(state.table.free[row, column]) for name, row in state.table.rows.items()}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("places", list(permutations(range(3))))
def test_whoever_of_a_gang_is_bound_to_whichever_of_its_slots_all_have_landed(order, places):
    state, moves, targets = handed_over()
    pods, nodes = list(targets), list(targets.values())
    for at in order:
        runs(state, pods[at], nodes[places[at]])
        assert state.fact_of(pods[at]) is not None
        assert min(free(state).values()) >= 0, "nothing is counted twice on the way"
    advance(state)
    assert {id: (step(state, id), state.migrations[id].reason) for id in moves} == dict.fromkeys(moves, (Step.LANDED, ""))
    for id in moves:
        record = state.migrations[id]
        assert state.node_of(record.successor) == record.move.target
    assert free(state) == {"a": 4_000, "b": 4_000, "c": 4_000, "d": 1_000, "e": 1_000, "f": 1_000}
    assert not state.missed, "no miss of auto-pause"
    assert not state.to_land
    assert not state.successors


def test_a_slot_says_who_has_it_and_the_next_is_awaited_where_its_node_is_now():
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, changed(n1, node=t2))
    assert not failed(advance(state))
    by_target = {state.migrations[id].move.target: state.migrations[id] for id in moves}
    assert (by_target[t2].successor, by_target[t1].successor) == (n1, n2)
    for target, uid in ((t2, n1), (t1, n2)):
        ((name, slot),) = state.slots[by_target[target].reservation].items()
        assert (slot.phase, slot.pod, slot.owner) == (SlotPhase.USED, uid, f"default/{uid}")
        assert list(state.slot_users[by_target[target].reservation, name]) == [uid]
        assert state.allocations[uid].node == target
    assert state.node_of(n2) == t1
    assert state.allocations[n1].bound
    assert not state.allocations[n2].bound


def test_a_snapshot_in_the_middle_changes_nothing():
    state, _, targets = handed_over()
    (n1, t1), (n2, t2), (n3, t3) = targets.items()
    then(state, changed(n1, node=t2))
    other = load(dump(state))
    for one in (state, other):
        runs(one, n2, t1)
        runs(one, n3, t3)
        runs(one, n1, t2)
        advance(one)
        assert {record.step for record in one.migrations.values()} == {Step.LANDED}
    assert dump(other) == dump(state)


def test_one_that_its_kubelet_rejects_there_leaves_that_slot_to_the_next():
    state, moves, targets = handed_over()
    (n1, _), (_, t2), _ = targets.items()
    then(state, changed(n1, node=t2))
    then(state, changed(n1, node=t2, phase="Failed", reason="OutOfcpu"))
    (waits,) = [state.migrations[id] for id in moves if not state.migrations[id].successor]
    assert waits.move.target == t2


def test_where_one_goes_off_the_slots_of_its_gang_it_is_elsewhere_and_the_others_are_not():
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), (n3, t3) = targets.items()
    runs(state, n1, t2)
    runs(state, n2, "a")
    runs(state, n3, t3)
    advance(state)
    said = {state.migrations[id].move.target: (step(state, id), state.migrations[id].reason) for id in moves}
    assert said == {t1: (Step.FAILED, "Elsewhere"), t2: (Step.LANDED, ""), t3: (Step.LANDED, "")}


def test_one_whose_place_is_still_kept_for_it_changes_it_with_nobody():
    """There is enough for both: who has the placeholder goes where it stands."""
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, pod("h9", "s", namespace="restow-holds", labels={"restow.dev/log": state.log}, annotations=dict(state.pods[n1].fact.annotations)))
    key = state.placed[n2].hold
    state.put(state.stand_ins, key, "h9")
    state.put(state.placeholders, "h9", key)
    then(state, node(t2, cpu=8_000), changed("h9", node=t2), changed(n1, node=t2))
    assert failed(advance(state)) == {next(id for id in moves if state.migrations[id].move.target == t1): "Elsewhere"}


@pytest.mark.parametrize("what", ["another owner's", "asks for more"])
def test_nobody_lands_by_the_move_of_somebody_else(what):
    state, _, targets = handed_over()
    (n1, _), (_, t2), _ = targets.items()
    fact = state.pods[n1].fact
    if what == "asks for more":
        then(state, shape("more", cpu=3_500, scheduler=STOCK), pod(n1, "more", **IN))
    else:
        then(state, pod(n1, "s", owner=replica_of("other"), annotations=fact.annotations))
    then(state, changed(n1, node=t2))
    assert list(failed(advance(state)).values()) == ["Elsewhere"]


def test_one_that_still_has_its_gate_is_landed_where_it_is_to_go_now():
    """Its scheduler had forgotten the nomination, and had bound another one there."""
    state, _, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, pod(n2, "s", gated=True, landing=True, nominated=t2, **IN))
    then(state, changed(n1, node=t2))
    assert Land(n2, t1) in list(session.decider.pending(state, None))


def whole(state) -> None:
    """What is kept of who has what is what the facts and decisions say."""
    again = load(dump(state))
    assert (again.table.free == state.table.free).all()
    for name in ("charges", "to_land", "successors", "allocations", "stand_ins", "placed"):
        assert dict(getattr(again, name)) == dict(getattr(state, name)), name
    assert {key: list(pods) for key, pods in again.slot_users.items() if pods} == {key: list(pods) for key, pods in state.slot_users.items() if pods}
    for uid, id in state.successors.items():
        assert state.migrations[id].successor == uid
    used = [slot.pod for slots in state.slots.values() for slot in slots.values() if slot.phase is SlotPhase.USED]
    assert len(used) == len(set(used)), "nobody has two slots"


class Cluster:
    """A scheduler that binds equal pods to any of the held nodes that has room, a kubelet that may reject them, and a controller that makes as many as are wanted."""

    def __init__(self, seed: int):
        self.random, self.made = Random(seed), 3
        self.state, self.moves, self.targets = handed_over()

    def alive(self) -> list[str]:
        pods = self.state.pods
        return [uid for uid in pods if uid.startswith("n") and not pods[uid].live.deleting and pods[uid].live.phase != "Failed"]

    def may_come_to(self) -> list[str]:
        taken = {self.state.pods[uid].live.node for uid in self.alive()}
        return [node for node in "def" if node not in taken]

    def acts(self, trouble: bool) -> bool:
        """One thing that happens; False where nothing can."""
        state, can = self.state, []
        for uid in self.alive():
            pod_, live = state.pods[uid].fact, state.pods[uid].live
            if live.node is None and not pod_.gated:
                can += [lambda uid=uid, to=to: then(state, changed(uid, node=to)) for to in self.may_come_to()]
            elif live.node is None and uid in state.to_land:
                can.append(lambda uid=uid: let_go(state, uid))
            elif live.node is not None and live.phase == "Pending":
                can.append(lambda uid=uid, live=live: then(state, changed(uid, node=live.node, phase="Running", ready=True)))
                if trouble:
                    can.append(lambda uid=uid, live=live: then(state, changed(uid, node=live.node, phase="Failed", reason="OutOfcpu")))
        can += [lambda uid=uid: then(state, e.PodGone(uid)) for uid in state.pods if uid.startswith("n") and state.pods[uid].live.phase == "Failed"]
        if len(self.alive()) < 3:
            self.made += 1
            can.append(lambda: then(state, pod(f"n{self.made}", "s", gated=True, landing=True, **IN)))
        can += [lambda key=key: then(state, placeholder_in(state, key)) for key in lacking(state)]
        if can:
            self.random.choice(can)()
        return bool(can)

    def decides(self) -> None:
        session_answers(self.state)
        advance(self.state)


def lacking(state) -> list:
    return [(effect.reservation, effect.slot) for effect in session.decider.pending(state, None) if isinstance(effect, CreatePlaceholder) and effect.reservation != "guard"]


def placeholder_in(state, key) -> e.PodObserved:
    on, uid = state.slots[key[0]][key[1]].node, f"h-{key[0]}-{state.seq}"
    return pod(uid, "s", namespace="restow-holds", node=on, phase="Running", ready=True, labels={"restow.dev/log": state.log}, annotations={"restow.dev/slot": f"{key[0]}/{key[1]}"})


@pytest.mark.parametrize("seed", range(60))
def test_in_any_order_of_binds_and_rejections_what_is_kept_of_them_is_whole(seed):
    cluster = Cluster(seed)
    for turn in range(40):
        acted = cluster.acts(trouble=turn < 12)
        whole(cluster.state)
        if cluster.random.random() < 0.6 or not acted:
            cluster.decides()
            whole(cluster.state)
    cluster.decides()
    said = [(record.step, record.reason) for record in cluster.state.migrations.values()]
    assert {step for step, _ in said} <= {Step.LANDED, Step.FAILED, Step.EVICTED}
    if cluster.made == 3:
        assert said == [(Step.LANDED, "")] * 3, "no kubelet has rejected anybody"
    for record in cluster.state.migrations.values():
        if record.step is Step.LANDED:
            assert cluster.state.node_of(record.successor) == record.move.target
