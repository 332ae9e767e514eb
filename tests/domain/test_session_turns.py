"""What is too much for one session is looked at in several: whoever could be helped is, however many before it could not (RULES G-17)."""

import pytest
from domain.build import (
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    run,
    shape,
    then,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session import opening
from restow.domain.session.actions import reserve_starving
from restow.domain.session.jobs import single
from restow.domain.session.preemption import claims, victims
from restow.domain.session.registry import open_session
from restow.domain.snapshot import dump, load

decider = session.decider
GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")


def acting(*actions: ActionConfig | str):
    named = [ActionConfig(action) if isinstance(action, str) else action for action in actions]
    return configured("session", SessionConfig(actions=tuple(named)))


PREEMPT = acting("enqueue", "allocate", "backfill", "preempt")


def at_rest(state, at: int = NOW) -> tuple[list[e.Event], int]:
    """All that is decided until no session is due for ten seconds; and how many there were."""
    decided: list[e.Event] = []
    for sessions in range(1_000):
        command = decider.due(state, at)
        if command is None:
            when = decider.deadline(state)
            if when is None or when > at + 10_000:
                return decided, sessions
            at = max(when, at + 1)
            continue
        decided += run(state, decider, command)
    raise AssertionError("no rest")


def nominated(state) -> list[str]:
    return [event.pod for event in at_rest(state)[0] if isinstance(event, e.Nominated)]


def test_a_pod_that_could_preempt_has_its_turn_after_more_that_could_not_than_a_session_looks_at(monkeypatch):
    monkeypatch.setattr(claims, "JOBS", 4)
    state = given(PREEMPT, node("n"), shape("low", cpu=8_000), shape("can", cpu=2_000, priority=5), pod("victim", "low", node="n"))
    then(state, [shape(f"huge{i}", cpu=9_000 + i, priority=9) for i in range(12)] + [pod(f"p{i:02}", f"huge{i}") for i in range(12)])
    then(state, pod("can", "can"))
    assert nominated(state) == ["can"]


def kept_nodes(count: int):
    """Nodes whose pods the gang's minimum keeps, and one whose pod is more important and may go."""
    state = given(PREEMPT, GROUPS, shape("low", cpu=8_000), shape("mid", cpu=8_000, priority=1), shape("can", cpu=2_000, priority=5))
    for i in range(count):
        then(state, node(f"n{i:02}", labels={"zone": "a"}), pod_group(f"g{i}"), member(f"m{i}", f"g{i}", "low", node=f"n{i:02}"))
    return then(state, node("z", labels={"zone": "b"}), pod("victim", "mid", node="z"))


def test_a_node_that_can_be_freed_is_found_behind_more_that_cannot_than_are_looked_at(monkeypatch):
    monkeypatch.setattr(victims, "NODES", 8)
    state = then(kept_nodes(20), pod("can", "can"))
    assert nominated(state) == ["can"]


def test_pods_that_cannot_be_helped_use_up_no_others_search(monkeypatch):
    monkeypatch.setattr(victims, "NODES", 8)
    state = kept_nodes(20)
    vain = [shape(f"s{i}", cpu=2_000 + i, priority=9, node_selector={"zone": "a"}) for i in range(6)]
    then(state, vain + [pod(f"p{i}", f"s{i}") for i in range(6)], pod("can", "can"))
    assert nominated(state) == ["can"]


@pytest.mark.parametrize(("questions", "nodes"), [(0, 4), (3, 4), (4, 2), (7, 2)])
def test_a_search_takes_half_of_what_is_left_and_four_questions_to_plugins_count_for_one_node_more(questions, nodes, monkeypatch):
    monkeypatch.setattr(victims, "NODES", 8)
    looked: list[int] = []

    def free(hunt, job, pod, scope, row) -> None:
        looked.append(row)
        hunt.asked += questions

    monkeypatch.setattr(victims.Hunt, "_free", free)
    state = then(kept_nodes(20), pod("can", "can"), pod("other", "can"))
    opened = open_session(state, NOW, 1_000)
    hunt = victims.Hunt(opened, [single(state, state.pods["other"].fact)])
    assert hunt.find(single(state, state.pods["can"].fact), state.pods["can"].fact, victims.Scope.QUEUE) is None
    opened.close()
    assert len(looked) == nodes


def test_a_pod_of_another_queue_is_looked_at_although_many_of_its_shape_wait_before_it(monkeypatch):
    monkeypatch.setattr(claims, "ALIKE", 4)
    tiers = ((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),)
    alike = configured("session", SessionConfig(actions=(ActionConfig("allocate"), ActionConfig("preempt")), tiers=tiers))
    state = given(alike, node("n"), shape("low", cpu=8_000), shape("s", priority=5), queue("a"), queue("b"))
    then(state, in_queue("victim", "b", "low", node="n"), [in_queue(f"a{i}", "a") for i in range(9)], in_queue("can", "b"))
    assert nominated(state)[:1] == ["can"]


def test_where_nobody_can_be_helped_sessions_come_to_rest_after_everybody_has_had_a_turn(monkeypatch):
    monkeypatch.setattr(claims, "JOBS", 4)
    state = given(PREEMPT, node("n"), *[shape(f"huge{i}", cpu=9_000 + i) for i in range(12)], [pod(f"p{i:02}", f"huge{i}") for i in range(12)])
    _, sessions = at_rest(state)
    assert 5 <= sessions <= 8


def test_a_session_that_looked_at_a_part_is_followed_by_one_after_a_moment_and_not_at_once(monkeypatch):
    monkeypatch.setattr(claims, "JOBS", 4)
    state = given(PREEMPT, node("n"), *[shape(f"huge{i}", cpu=9_000 + i) for i in range(12)], [pod(f"p{i:02}", f"huge{i}") for i in range(12)])
    run(state, decider, decider.due(state, NOW))
    command = decider.due(state, NOW)
    assert command is not None
    assert run(state, decider, command) == []
    assert decider.due(state, NOW) is None
    assert decider.deadline(state) == NOW + 250
    assert decider.due(state, NOW + 250) == c.Schedule(NOW + 250, 2_000, command.turn + 1)


@pytest.mark.parametrize("turn", range(6))
def test_what_a_session_decides_follows_from_the_state_and_its_turn(turn, monkeypatch):
    monkeypatch.setattr(claims, "JOBS", 4)
    state = given(PREEMPT, node("n"), shape("low", cpu=8_000), shape("can", cpu=2_000, priority=5), pod("victim", "low", node="n"))
    then(state, [shape(f"huge{i}", cpu=9_000 + i, priority=9) for i in range(12)] + [pod(f"p{i:02}", f"huge{i}") for i in range(12)])
    then(state, pod("can", "can"))
    at_rest(fresh := load(dump(state)))
    command = c.Schedule(NOW, 1_000, turn)
    assert list(decider.decide(state, command)) == list(decider.decide(load(dump(state)), command))
    assert "can" in fresh.nominations


def test_a_starving_gang_has_its_turn_after_more_that_can_never_be_reserved_for_than_a_session_looks_at(monkeypatch):
    monkeypatch.setattr(reserve_starving, "MOST", 3)
    reserve = ActionConfig("reserve", {"starvingJobTimeThreshold": "10"})
    state = given(acting("enqueue", "allocate", "backfill", reserve), GROUPS, node("n"), shape("s", cpu=1_000), shape("big", cpu=6_000), pod("busy", "big", node="n"))
    for i in range(7):
        then(state, pod_group(f"g{i}", need=2), [member(f"g{i}-{j}", f"g{i}", "big") for j in range(2)])
    then(state, pod_group("z", need=3), [member(f"z-{j}", "z") for j in range(3)])
    decided, _ = at_rest(state, NOW + 60_000)
    assert {event.pod for event in decided if isinstance(event, e.TaskReserved)} == {"z-0", "z-1", "z-2"}


def test_of_new_pods_no_more_kinds_are_looked_at_in_one_session_than_keep_it_short_and_the_others_follow_in_their_order(monkeypatch):
    monkeypatch.setattr(opening, "CLASSES", 3)
    state = given(GROUPS, node("n", cpu=100_000, memory=1 << 50), *[shape(f"s{i}", cpu=100 + i) for i in range(8)], [pod(f"p{i}-{j}", f"s{i}") for i in range(8) for j in range(2)])
    then(state, pod_group("g", need=3), [member(f"g-{j}", "g", "s0") for j in range(3)])
    sessions = []
    while (command := decider.due(state, NOW)) is not None and (events := run(state, decider, command)):
        sessions.append(sorted({event.pod.partition("-")[0] for event in events if isinstance(event, e.PodPlaced)}))
    assert sessions == [["p0", "p1", "p2"], ["p3", "p4", "p5"], ["g", "p6", "p7"]]
    assert not state.queue
