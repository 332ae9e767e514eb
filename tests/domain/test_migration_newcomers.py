"""From the eviction on, nobody whom the session places keeps the successor from its slot; and a move that ends says why (RULES G-8, G-13)."""

import os
import random
from collections import Counter

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
    queue,
    replica_of,
    run,
    shape,
    then,
)
from domain.saga import (
    BOLD,
    advance,
    create,
    decider,
    evicts,
    hold,
    land,
    move,
    plan,
    session_answers,
    step,
    terminate,
)
from domain.test_migration_company import NEAR, SPREAD, zones

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm, Spread
from restow.domain import config, session
from restow.domain import reservation as reservations
from restow.domain.migration import other_pods
from restow.domain.records import FINAL, Step
from restow.domain.session.plugins.predicates.kept_for_successors import KEPT
from restow.domain.session_config import read_conf
from restow.domain.state import ClusterState, is_sociable
from restow.domain.topology import awaited

SEEDS = range(int(os.environ.get("RESTOW_SEEDS", "30")))
LAND = config.MigrationConfig().land_deadline
WEB = {"app": "web"}
IN_B = shape("in-b", node_selector={"zone": "b"})
OTHER = replica_of("other")


def webs(*nodes: str) -> list[e.Event]:
    return [pod(f"w{i}", "spread", where, owner=replica_of("web"), labels=WEB) for i, where in enumerate(nodes)]


def leaving(*more: e.Event) -> ClusterState:
    """Of three pods that are spread over zones a (two of them) and b one is being moved to b, and its eviction may have been sent."""
    state = zones(*webs("a1", "a2", "b2"), IN_B, plan("x", move("x-1", "w0", "a1", "b1")), *more)
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    return state


def left(*more: e.Event) -> ClusterState:
    state = leaving(*more)
    terminate(state, "w0")
    advance(state)
    then(state, e.PodGone("w0"))
    return state


def web(name: str, kind: str = "spread", owner=OTHER, **more) -> e.Event:
    return pod(name, kind, owner=owner, labels=WEB, **more)


def successor(name: str = "w9") -> e.Event:
    return web(name, owner=replica_of("web"))


# -- who waits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [leaving, left])
def test_nobody_comes_into_the_zone_who_would_make_the_skew_too_large_for_the_successor(begun):
    state = begun()
    then(state, web("n", "in-b"))
    session_answers(state)
    assert state.waiting[state.parked["n"][0]].reasons[KEPT] == 2


def test_once_the_successor_is_there_whoever_waited_for_it_comes():
    state = left()
    then(state, web("n", "in-b"))
    session_answers(state)
    assert "n" in state.parked
    then(state, successor())
    session_answers(state)
    assert state.placed["w9"].hold is not None
    assert state.placed["w9"].node == "b1"
    assert "n" in state.placed


def test_when_the_move_is_over_whoever_waited_comes():
    state = left()
    then(state, web("n", "in-b"))
    session_answers(state)
    advance(state, LAND)
    session_answers(state, LAND)
    assert "n" in state.placed


def test_who_is_not_counted_is_not_kept_off():
    state = left()
    then(state, pod("n", "in-b", owner=OTHER, labels={"app": "db"}), pod("m", "in-b", owner=OTHER, labels=WEB, namespace="another"))
    session_answers(state)
    assert {"n", "m"} <= state.placed.keys()


def test_who_is_counted_may_come_where_it_takes_nothing_from_the_successor():
    state = left(shape("in-a", node_selector={"zone": "a"}))
    then(state, web("n", "in-a"), web("m", "in-a"))
    session_answers(state)
    assert {"n", "m"} <= state.placed.keys()
    then(state, web("k", "in-b"))
    session_answers(state)
    # Zone a has three by now: b may have two beside the successor.
    assert "k" in state.placed


def test_who_is_kept_off_is_found_out_once_for_many_that_nothing_tells_apart(monkeypatch):
    state, times = left(), Counter()
    closed = awaited.closed
    monkeypatch.setattr(awaited, "closed", lambda *about: times.update(["closed"]) or closed(*about))
    then(state, *(web(f"n{i}", "in-b") for i in range(50)))
    session_answers(state)
    assert len(state.parked) == 50
    assert times["closed"] <= 5


def test_before_the_eviction_nobody_is_kept_off_and_the_move_ends_without_it():
    state = zones(*webs("a1", "a2", "b2"), IN_B, plan("x", move("x-1", "w0", "a1", "b1")))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    then(state, web("n", "in-b"))
    session_answers(state)
    assert "n" in state.placed
    assert evicts(advance(state)) == []


def test_a_second_pod_of_its_controller_is_kept_off_until_the_first_has_the_slot():
    """Until its pod has left nobody can take the slot, so whoever is there already is none for whom it is held."""
    state = leaving()
    then(state, pod("early", "in-b", owner=replica_of("web"), labels=WEB))
    session_answers(state)
    assert "early" in state.parked


def test_a_slot_in_the_zone_is_no_more_welcome_than_a_pod():
    state = left()
    then(state, plan("y", move("y-1", "w1", "a2", "b2")))
    advance(state)
    create(state, "y-1")
    session_answers(state)
    assert state.held_on.get("b2", {}) == {}
    assert [event.reason for event in advance(state) if isinstance(event, e.MigrationFailed)] == ["NoCapacity"]


def test_whoever_is_about_to_leave_is_not_relied_on():
    """Two leave zone a, one of them for zone b. When both are gone the successor may be the second in b, and no third may come first."""
    nodes = [node(f"{zone}{i}", labels={"zone": zone}) for zone in "abc" for i in (1, 2)]
    pods = webs("a1", "a2", "b2", "c1")
    state = given(
        configured("migration", config.MigrationConfig(**BOLD)), *nodes, shape("s"), NEAR, SPREAD, IN_B, *pods,
        plan("x", move("x-1", "w0", "a1", "b1")), plan("y", move("y-1", "w1", "a2", "a1")),
    )  # fmt: skip
    advance(state)
    gone = evicts(hold(state, "x-1", "y-1"))
    assert "x-1" in gone
    then(state, web("n", "in-b"))
    session_answers(state)
    assert "n" in state.parked


CLUB = shape("club", pod_affinity=(PodTerm("zone", LabelSelector(WEB)),))


def test_a_gang_relies_on_its_own_nominees_for_it_comes_as_a_whole_or_not_at_all():
    """`g2` may come to zone b because `g1` comes to zone a, where `v` has to leave first. Before, the gang was nominated and given up in
    turns, as fast as sessions follow each other."""
    state = left()
    plugins = [{"name": name} for name in ("priority", "gang", "predicates", "proportion", "nodeorder")]
    then(
        state, configured("session", read_conf({"actions": "reserve, allocate, preempt", "tiers": [{"plugins": plugins}]})),
        node("a3", cpu=2_000, labels={"zone": "a", "host": "a3"}), shape("low", cpu=2_000), pod("v", "low", node="a3"),
        shape("takes", cpu=2_000, priority=5, node_selector={"host": "a3"}), shape("beside", cpu=100, priority=5, node_selector={"zone": "b"}),
        pod_group("g", need=2), member("g1", "g", "takes", labels=WEB), member("g2", "g", "beside", labels=WEB),
    )  # fmt: skip
    assert {event.pod for event in run(state, session.decider, c.Schedule(NOW)) if isinstance(event, e.Nominated)} == {"g1", "g2"}
    assert run(state, session.decider, c.Schedule(NOW)) == []
    then(state, e.PodGone("v"))
    run(state, session.decider, c.Schedule(NOW))
    assert {"g1", "g2"} <= state.placed.keys()
    then(state, successor())
    session_answers(state)
    assert state.placed["w9"].hold is not None


def test_who_comes_to_a_complete_gang_relies_on_no_nominee_of_it():
    """`g1` may never come, and `g2` would stay."""
    state = left()
    plugins = [{"name": name} for name in ("priority", "gang", "predicates", "proportion", "nodeorder")]
    then(
        state, configured("session", read_conf({"actions": "reserve, allocate, preempt", "tiers": [{"plugins": plugins}]})),
        node("a3", cpu=2_000, labels={"zone": "a", "host": "a3"}), shape("low", cpu=2_000), pod("v", "low", node="a3"),
        shape("takes", cpu=2_000, priority=5, node_selector={"host": "a3"}), shape("beside", cpu=100, node_selector={"zone": "b"}),
        pod_group("g", need=1), member("g0", "g", "low", node="a1"), member("g1", "g", "takes", labels=WEB),
    )  # fmt: skip
    then(state, e.Nominated("g1", "a3", NOW + LAND), member("g2", "g", "beside", labels=WEB))
    session_answers(state)
    assert "g2" in state.parked
    then(state, e.PodGone("v"))
    run(state, session.decider, c.Schedule(NOW))
    assert {"g1", "g2"} <= state.placed.keys()


def test_the_first_of_those_who_keep_together_is_not_led_astray_by_one_who_goes_elsewhere():
    """Its like are gone: as the first it may be anywhere, unless another one that it has to be near comes up in another zone."""
    state = zones(CLUB, shape("in-a", node_selector={"zone": "a"}), IN_B, web("w0", "club", replica_of("web"), node="a1"), plan("x", move("x-1", "w0", "a1", "b1")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    terminate(state, "w0")
    advance(state)
    then(state, web("n", "in-a"))
    session_answers(state)
    assert state.waiting[state.parked["n"][0]].reasons[KEPT] == 2
    then(state, web("m", "in-b"))
    session_answers(state)
    assert "m" in state.placed
    then(state, e.PodGone("w0"), web("w9", "club", replica_of("web")))
    session_answers(state)
    assert state.placed["w9"].node == "b1"
    assert "n" in state.placed


def test_where_the_rule_is_switched_off_nobody_is_kept_off():
    state = left()
    plugin = config.PluginConfig("predicates", {}, {"predicate.PodTopologySpreadEnable": False})
    then(state, configured("session", config.SessionConfig(tiers=((plugin,),))), web("n", "in-b"))
    session_answers(state)
    assert "n" in state.placed


# -- how a move ends ---------------------------------------------------------------------------------------------------------


def ends(state: ClusterState, after: int) -> list[tuple[str, str]]:
    return [(event.reason, event.message) if isinstance(event, e.MigrationFailed) else (type(event).__name__, "") for event in advance(state, after)]


def test_whose_successor_another_scheduler_has_put_elsewhere_has_ended_elsewhere():
    state = left()
    then(state, web("w9", owner=replica_of("web"), node="a1"))
    assert ends(state, LAND - 1) == []
    assert ends(state, LAND) == [("Elsewhere", "its successor w9 runs on a1, not on b1")]


def test_a_pod_that_has_the_name_is_the_successor_and_nobody_waits_for_another():
    sts = replica_of("db", "StatefulSet")
    state = zones(pod("db-0", "s", "a1", owner=sts), plan("x", move("x-1", "db-0", "a1", "b1")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    terminate(state, "db-0")
    advance(state)
    then(state, e.PodGone("db-0"))
    then(state, pod("db-0", "s", "a2", uid="again", owner=sts))
    assert ends(state, 0) == [("Elsewhere", "its successor db-0 runs on a2, not on b1")]
    session_answers(state)
    assert state.held_on == {}


def test_who_has_taken_another_moves_slot_is_nobodys_successor_but_that_ones():
    state = zones(*[pod(f"p{i}", "s", "a1", owner=replica_of("rs")) for i in (1, 2)], plan("x", move("x-1", "p1", "a1", "b1"), move("x-2", "p2", "a1", "b2")))
    advance(state)
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1", "x-2"]
    land(state, "x-1", "q1")
    assert step(state, "x-1") is Step.LANDED
    terminate(state, "p2")
    advance(state)
    then(state, e.PodGone("p2"))
    assert ends(state, LAND) == [("NotRecreated", "")]


def test_whom_others_keep_from_its_slot_ends_by_their_company():
    state = left()
    # Another scheduler does not know of slots.
    then(state, *(pod(f"f{i}", "s", f"b{i}", owner=replica_of("foreign", "DaemonSet"), labels=WEB) for i in (1, 2)))
    then(state, successor(), *(node(name, labels={"zone": "a"}, unschedulable=True) for name in ("a1", "a2")))
    session_answers(state)
    assert "w9" in state.parked
    assert ends(state, LAND - 1) == []
    assert ends(state, LAND) == [("Company", "rules about other pods keep its successor w9 from the slot that is held on b1")]


def test_whom_the_scheduler_does_not_look_at_ends_as_not_admitted():
    state = left()
    then(state, queue("q", state="Closed"))
    then(state, pod("w9", "spread", owner=replica_of("web"), labels=WEB, annotations={"scheduling.volcano.sh/queue-name": "q"}))
    session_answers(state)
    assert [reason for reason, _ in ends(state, LAND)] == ["NotAdmitted"]


# -- whoever comes -----------------------------------------------------------------------------------------------------------

ALL = LabelSelector(WEB)
KINDS = (
    shape("s"), shape("in-a", node_selector={"zone": "a"}), IN_B, SPREAD, CLUB,
    shape("two", spread=(Spread(2, "zone", "DoNotSchedule", ALL),)),
    shape("both", spread=(Spread(1, "zone", "DoNotSchedule", ALL), Spread(2, "host", "DoNotSchedule", ALL))),
    shape("three", spread=(Spread(1, "zone", "DoNotSchedule", ALL, min_domains=3),)),
    shape("apart", pod_anti_affinity=(PodTerm("host", ALL),)),
    shape("far", pod_anti_affinity=(PodTerm("zone", LabelSelector({"app": "db"})),)),
    shape("own-b", spread=(Spread(1, "zone", "DoNotSchedule", ALL, node_affinity_policy="Honor"),), node_selector={"zone": "b"}),
)  # fmt: skip
NAMES = [kind.shape for kind in KINDS]


class Play:
    """Moves of pods with rules about others, and whoever comes meanwhile, in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.made, self.seen = chance, 0, Counter[str]()
        names = [f"{zone}{i}" for zone in "abc"[: chance.choice((2, 2, 3))] for i in range(1, chance.choice((2, 3)) + 1)]
        self.nodes = names
        nodes = [node(name, cpu=chance.choice((3_000, 8_000)), labels={"zone": name[0], "host": name}) for name in names]
        self.state = given(configured("migration", config.MigrationConfig(**BOLD)), *nodes, *KINDS)
        for _ in range(chance.randint(6, 15)):
            self.comes()
            session_answers(self.state)
        for uid, placement in list(self.state.placed.items()):
            then(self.state, changed(uid, node=placement.node, phase="Running", ready=True))

    def comes(self) -> None:
        self.made += 1
        kind = self.chance.choice((*NAMES, "in-a", "in-b", "in-b"))
        labels = WEB if self.chance.random() < 0.9 else {"app": "db"}
        then(self.state, pod(f"p{self.made}", kind, owner=replica_of(f"of-{kind}-{labels['app']}"), labels=labels))

    def moves(self) -> None:
        busy = {one.move.pod for one in self.state.migrations.values()}
        picky = {uid for uid, of in self.state.pods.items() if is_sociable(self.state.shapes[of.fact.shape])}
        running = [uid for uid, pod in self.state.pods.items() if pod.live.ready and not pod.live.deleting and uid not in busy and uid in picky]
        if running:
            uid = self.chance.choice(sorted(running))
            source = self.state.pods[uid].live.node
            self.made += 1
            target = self.chance.choice([name for name in self.nodes if name[0] != source[0]])
            then(self.state, plan(f"m{self.made}", move(f"m{self.made}-1", uid, source, target)))

    def saga(self) -> None:
        for id in [id for id in advance_all(self.state) if not self.state.migrations[id].reservation]:
            create(self.state, id)

    def session(self) -> None:
        before = unwelcome(self.state)
        run(self.state, session.decider, c.Schedule(NOW))
        after = unwelcome(self.state)
        self.seen["waited for"] += len(after)
        self.seen["kept off"] += any(KEPT in said.reasons for said in self.state.waiting.values())
        worse = {key for key, kept_out in after.items() if kept_out and not before.get(key, True)}
        assert not worse

    def world(self) -> None:
        run(self.state, reservations.decider, c.Review(NOW))
        for uid, placement in list(self.state.placed.items()):
            if self.state.pods[uid].live.node is None and self.chance.random() < 0.7:
                then(self.state, changed(uid, node=placement.node, phase="Running", ready=True))
        for one in list(self.state.migrations.values()):
            live = self.state.live_of(one.move.pod)
            if one.step in (Step.EVICTING, Step.EVICTED) and live is not None and self.chance.random() < 0.5:
                of = self.state.pods[one.move.pod].fact
                if not live.deleting:
                    terminate(self.state, one.move.pod)
                    self.made += 1
                    then(self.state, pod(f"p{self.made}", of.shape, owner=of.owner, labels=of.labels))
                else:
                    then(self.state, e.PodGone(one.move.pod))


def advance_all(state: ClusterState) -> list[str]:
    for _ in range(50):
        if not run(state, decider, c.Advance(NOW)):
            break
    return [id for id, one in state.migrations.items() if one.step is Step.HOLDING]


def unwelcome(state: ClusterState) -> dict[tuple[str, int], bool]:
    """Of each successor that is to come whether rules about other pods keep it out, whoever of those on the way out has gone by then."""
    leaving = other_pods._leaving(state)
    found = {}
    for one in leaving:
        if one.successor or not other_pods.holds.held(state, one) or one.step in FINAL:
            continue
        for i, gone in enumerate(other_pods._worst(state, one, leaving)):
            with other_pods.OtherPods(state, NOW) as asked:
                found[one.id, i] = not asked._admits(one, gone)
    return found


def play(seed: int) -> Counter:
    chance = random.Random(seed)
    played = Play(chance)
    for _ in range(100):
        act = chance.choice((played.comes, played.comes, played.moves, played.saga, played.session, played.world))
        act()
    return played.seen


def test_nobody_whom_the_session_places_keeps_a_successor_out():
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            seen += play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert seen["waited for"]
    assert seen["kept off"]
