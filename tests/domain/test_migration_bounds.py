"""What the state remembers of plans and migrations does not grow for ever, however long it is at work; and who comes back twice in a row
is found on every history (DESIGN 5)."""

import random
from itertools import pairwise

import pytest
from domain.build import NOW, changed, node, pod, replica_of, run, shape, then
from domain.saga import OWNER, advance, decider, hold, move, plan, step, terminate, through, world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import snapshot
from restow.domain.evolve import bounces
from restow.domain.evolve import migration as rules
from restow.domain.records import Step

HOUR = 3_600_000


def small(monkeypatch) -> None:
    """The same rules with small numbers."""
    for name, most in (("KEEP_PLANS", 10), ("KEEP_MIGRATIONS", 20), ("KEEP_MOVES", 30), ("SLACK", 10)):
        monkeypatch.setattr(rules, name, most)
    monkeypatch.setattr(bounces, "KEEP", 5)
    monkeypatch.setattr(bounces, "MOST", 3)


MAPS = (
    "plans", "cancelled", "migrations", "backlog", "active", "victims", "successors", "followers", "armed", "cooling", "promised",
    "left_alone", "left", "returned", "found", "evictions", "demand_slots", "group_moves", "demands",
)  # fmt: skip


def sizes(state) -> dict[str, int]:
    return {name: len(getattr(state, name)) for name in MAPS}


@pytest.mark.parametrize("seed", range(5))
def test_nothing_grows_with_the_number_of_plans(seed, monkeypatch):
    """Plans that end well, badly, are cancelled or empty; pods that come back; nodes and workloads that come and go."""
    small(monkeypatch)
    monkeypatch.setattr(rules, "SWEEP", 4)
    r = random.Random(seed)
    state = world()
    now, grown = NOW, []
    for turn in range(120):
        now += HOUR
        name, owner, home = f"t{turn}", replica_of(f"rs{turn % 7}-{turn // 30}"), f"n{turn}"
        then(state, node(home, cpu=4_000), *(pod(f"{name}-{i}", node=home, owner=owner) for i in range(3)), time=now)
        if r.random() < 0.2:
            then(state, e.Bounced(f"uid-{turn}", home, 2), time=now)
        moves = [move(f"{name}-m{i}", f"{name}-{i}", home, r.choice("bcd")) for i in range(r.randint(0, 3))]
        then(state, plan(name, *moves), time=now)
        play(state, r, name, now)
        assert not state.active
        assert not state.backlog
        # The pods and their node go: a cluster that grows and shrinks.
        gone = [uid for uid in list(state.pods) if uid.startswith(name)]
        then(state, *(e.PodGone(uid) for uid in gone), e.NodeGone(home), time=now)
        grown.append(sizes(state))
    late, early = grown[-30:], grown[30:60]
    for key in MAPS:
        assert max(one[key] for one in late) <= max(one[key] for one in early) + 3, key
    assert len(state.plans) <= 11
    assert len(state.migrations) <= 22
    assert sum(len(known.planned.moves) for known in state.plans.values()) <= 33
    assert snapshot.load(snapshot.dump(state)).left_alone == state.left_alone


def play(state, r: random.Random, name: str, now: int) -> None:
    run(state, decider, c.Advance(now))
    for id in list(state.active):
        if r.random() < 0.3:
            then(state, e.PodGone(state.migrations[id].move.pod), time=now)
    if r.random() < 0.2 and state.active:
        run(state, decider, c.CancelPlan(now, name))
    for _ in range(12):
        now += 400_000
        run(state, decider, c.Advance(now))


@pytest.mark.parametrize("seed", range(20))
def test_who_comes_back_twice_in_a_row_is_found_whatever_others_do(seed):
    """A line of successors is moved off its node and goes its way; told beside it by a plain count."""
    r = random.Random(seed)
    state = world()
    uid, row, found = "p1", 0, []
    for turn in range(8):
        then(state, plan(f"x{turn}", move(f"x{turn}-1", uid)))
        advance(state)
        if state.found or state.left_alone:
            break
        landed = f"s{turn}"
        through(state, f"x{turn}-1", landed)
        if r.random() < 0.5:
            # Another workload's pods come and go on the node.
            then(state, pod(f"o{turn}", node="a", owner=replica_of("other")))
        back = "a" if r.random() < 0.6 else "c"
        live = state.pods[landed].live
        then(state, changed(landed, node=live.node, phase="Running", deleting=NOW))
        uid = f"b{turn}"
        then(state, pod(uid, owner=replica_of("rs")), e.PodGone(landed), changed(uid, node=back, phase="Running", ready=True))
        row = row + 1 if back == "a" else 0
        found += [event for event in advance(state) if isinstance(event, e.Bounced)]
        assert bool(found) == (row >= 2)
        if back != "a":
            # It goes on from where it is: a new line, for it is moved off another node.
            then(state, e.PodGone(uid))
            uid = f"again{turn}"
            then(state, pod(uid, node="a", owner=replica_of("rs")))
        if found:
            assert found == [e.Bounced("uid-rs", "a", 2)]
            assert [(key, known.times) for key, known in state.left_alone.items()] == [(("uid-rs", "a"), 2)]
            return


def to_and_fro(state, turns: int, trigger: str, start: str = "p1") -> list[e.Event]:
    """One plan moves it from a to b, the next one back, and so on; what is found."""
    uid, found = start, []
    for turn in range(turns):
        source, target = ("a", "b") if turn % 2 == 0 else ("b", "a")
        then(state, plan(f"y{turn}", move(f"y{turn}-1", uid, source, target), trigger=trigger))
        advance(state)
        found += [event for event in through(state, f"y{turn}-1", f"{start}-{turn}") if isinstance(event, e.Bounced)]
        uid = f"{start}-{turn}"
    return found


def test_two_plugins_that_turn_each_others_moves_back_are_found_and_the_pod_is_left_alone():
    """RemoveDuplicates takes apart what HighNodeUtilization brings together: without end, for nobody else touches the pod."""
    state = world()
    assert to_and_fro(state, 2, "interval") == []
    state = world()
    assert to_and_fro(state, 3, "interval") == [e.Bounced("uid-rs", "b", 2)]
    assert [(key, known.times) for key, known in state.left_alone.items()] == [(("uid-rs", "b"), 2)]


def test_who_bounces_again_after_it_was_left_alone_is_left_alone_for_twice_as_long():
    """Plans are made every 25 hours: a day was over whenever the next one was made, and two plugins moved the pod to and fro for ever."""
    state, uid, at, alone = world(), "p1", 0, []
    source, target = "a", "b"
    for turn in range(200):
        at += 25 * HOUR
        if any(node == source for _, node in state.left_alone):
            then(state, plan(f"y{turn}"), time=NOW + at)
            continue
        then(state, plan(f"y{turn}", move(f"y{turn}-1", uid, source, target), trigger="interval"), time=NOW + at)
        advance(state, at)
        assert through(state, f"y{turn}-1", f"q{turn}", after=at)
        uid, source, target = f"q{turn}", target, source
        alone.append(turn)
        state = snapshot.load(snapshot.dump(state))
    # One plan later is when it was forgotten at the plan before.
    assert [b - a - 1 for a, b in pairwise(alone)] == [0, 0, 1, 2, 4, 8, *[16] * 10]


def test_what_a_person_moves_to_and_fro_is_no_finding():
    state = world()
    assert to_and_fro(state, 6, "move") == []
    assert not state.left_alone


def test_a_pod_that_plans_move_on_and_on_comes_back_to_nobody():
    state = world()
    uid = "p1"
    for turn, (source, target) in enumerate(zip("abcd", "bcda", strict=True)):
        then(state, plan(f"y{turn}", move(f"y{turn}-1", uid, source, target), trigger="interval"))
        advance(state)
        through(state, f"y{turn}-1", f"n{turn}")
        uid = f"n{turn}"
    assert not state.left_alone


@pytest.mark.parametrize(("nodes", "pause", "found"), [("abc", 1, ["b"]), ("abcd", 1, ["b"]), ("abc", bounces.LEFT_ALONE, ["b"]), ("abc", bounces.LONGEST_ALONE // 2, [])], ids=["three", "four", "once a day", "slowly"])
def test_plans_that_move_a_pod_round_in_a_circle_are_found(nodes, pause, found):
    state, uid, after = world(), "p1", 0
    route = nodes + nodes[:2]
    for turn, (source, target) in enumerate(pairwise(route)):
        then(state, plan(f"y{turn}", move(f"y{turn}-1", uid, source, target), trigger="interval"), time=NOW + after)
        advance(state, after)
        through(state, f"y{turn}-1", f"n{turn}", after=after)
        uid = f"n{turn}"
        after += pause
        state = snapshot.load(snapshot.dump(state))
    assert [node for _, node in state.left_alone] == found


@pytest.mark.parametrize(("back", "trigger", "times"), [("a", "interval", 2), ("a", "move", 0), ("c", "interval", 0)])
def test_a_pod_whose_next_one_never_takes_its_hold_and_comes_back_is_not_evicted_for_nothing_again_and_again(back, trigger, times):
    """Its controller makes others than those that were seen (a webhook, a policy of resources), so that each move ends as not recreated."""
    state = world(*(shape(f"other{turn}", cpu=1_100 + turn) for turn in range(3)))
    uid, found, after = "p1", [], 0
    for turn in range(2):
        then(state, plan(f"x{turn}", move(f"x{turn}-1", uid, "a" if turn == 0 else back, "b"), trigger=trigger), time=NOW + after)
        advance(state, after)
        hold(state, f"x{turn}-1", after=after)
        terminate(state, uid)
        advance(state, after)
        then(state, e.PodGone(uid), time=NOW + after)
        uid = f"next{turn}"
        then(state, pod(uid, f"other{turn}", owner=OWNER), changed(uid, node=back, phase="Running", ready=True), time=NOW + after)
        after += state.migration_config.land_deadline
        found += [event for event in advance(state, after) if isinstance(event, e.Bounced)]
        assert step(state, f"x{turn}-1") is Step.NOT_RECREATED
    assert found == ([e.Bounced("uid-rs", back, times)] if times else [])
