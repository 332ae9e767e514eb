"""A gang's pod that follows one which is being moved goes to the hold that was made for it, and nowhere else (RULES G-12)."""

from domain.build import changed, configured, given, node, pod, pod_group, replica_of, run, shape, then
from domain.saga import advance, hold, move, plan, step

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, session
from restow.domain.records import SlotPhase, Step
from restow.domain.session.actions.allocate import FOLLOWS
from restow.domain.session.session import Session

NOW = 1_700_000_000_000
G = {"annotations": {"scheduling.k8s.io/group-name": "g"}}


def moved():
    """Pod w of a gang that needs two of its three terminates on node a; what its successor takes is held on d. The two others have
    failed meanwhile, and all three are made again."""
    others = [pod(name, node="c", owner=replica_of(name), **G) for name in ("launcher", "other")]
    state = given(configured("migration", config.MigrationConfig()), e.Synced("podgroups.scheduling.volcano.sh", "1"),
                  *[node(n, cpu=8_000) for n in "abcd"], shape("s"), pod_group("g", need=2), pod("w", node="a", owner=replica_of("workers"), **G),
                  *others)  # fmt: skip
    then(state, plan("P", move("m", "w", "a", "d")))
    advance(state)
    hold(state, "m")
    advance(state)
    assert step(state, "m") is Step.EVICTING
    then(state, changed("w", node="a", phase="Running", deleting=NOW))
    then(state, *[changed(name, node="c", phase="Failed") for name in ("launcher", "other")])
    return then(state, again("w2", "workers"), again("l2", "launcher"), again("o2", "other"))


def again(name: str, of: str) -> e.PodObserved:
    return pod(name, "s", owner=replica_of(of), **G)


def schedule(state) -> dict[str, str]:
    events = run(state, session.decider, c.Schedule(NOW, 2_000))
    return {x.pod: x.node for x in events if isinstance(x, e.PodPlaced | e.HandedOver)}


def test_a_gangs_successor_goes_to_the_hold_that_was_made_for_it():
    placed = schedule(moved())
    assert sorted(placed) == ["l2", "o2", "w2"]
    assert placed["w2"] == "d"


def not_yet(session, job, pod):
    """A rule counts the pod that terminates as one beside its successor."""


def test_a_gangs_successor_waits_as_long_as_the_pod_that_terminates_is_in_its_way(monkeypatch):
    state = moved()
    with monkeypatch.context() as patch:
        patch.setattr(Session, "hand_over", not_yet)
        assert sorted(schedule(state)) == ["l2", "o2"]
    assert state.slots["hold-m"]["hold-0"].phase is SlotPhase.HELD
    then(state, e.PodGone("w"))
    assert schedule(state) == {"w2": "d"}


def test_a_gang_that_would_only_be_complete_with_it_waits_as_a_whole_and_says_so(monkeypatch):
    state = moved()
    then(state, pod_group("g", need=3))
    with monkeypatch.context() as patch:
        patch.setattr(Session, "hand_over", not_yet)
        assert schedule(state) == {}
    assert {state.waiting[state.parked[uid][0]].message for uid in ("l2", "o2", "w2")} == {FOLLOWS}
    then(state, e.PodGone("w"))
    placed = schedule(state)
    assert sorted(placed) == ["l2", "o2", "w2"]
    assert placed["w2"] == "d"
