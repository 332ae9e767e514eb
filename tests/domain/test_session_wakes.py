"""After whatever has changed all who may fit by that are looked at (RULES G-17), and no deadline is forgotten; a session that decides nothing rests."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.saga import decider as sagas
from domain.saga import move, plan

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm
from restow.domain import session
from restow.domain.config import ActionConfig, MigrationConfig, SessionConfig
from restow.domain.session_config import read_conf
from restow.domain.state import ClusterState

decider = session.decider
DAY = 24 * 3_600_000


def sessions(state: ClusterState, after: int = 0) -> list[e.Event]:
    """As the service has them, until none is due."""
    said: list[e.Event] = []
    for _ in range(20):
        if (command := decider.due(state, NOW + after)) is None:
            return said
        said += run(state, decider, command)
    raise AssertionError("sessions never end")


def rests(state: ClusterState, after: int = DAY) -> None:
    """Nothing is due but to say how much is free by then, and nothing would be decided."""
    assert all(isinstance(event, e.Unfit) for event in sessions(state, after))
    assert decider.due(state, NOW + after) is None
    assert when(state, decider, c.Schedule(NOW + after)) == []


def quiet(*facts) -> ClusterState:
    """Somebody waits who fits nowhere, and sessions have come to rest."""
    state = given(shape("big", cpu=64_000), *facts, pod("big", "big"))
    sessions(state)
    rests(state)
    return state


def placed(events: list[e.Event]) -> list[str]:
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def test_who_needs_company_is_looked_at_again_when_it_has_come_in_the_same_session():
    near = shape("near", pod_affinity=(PodTerm("zone", LabelSelector({"app": "y"})),))
    state = quiet(node("a", labels={"zone": "z"}), node("b", labels={"zone": "z"}), shape("y"), near)
    then(state, [pod("near", "near"), pod("y", "y", labels={"app": "y"})])
    assert placed(sessions(state)) == ["y", "near"]
    rests(state)


def test_who_was_refused_what_another_queue_turns_out_not_to_need_borrows_it():
    state = quiet(node("a", cpu=1_000), queue("b", weight=3), shape("s", cpu=300), shape("l", cpu=1_000))
    then(state, [in_queue("b1", "b", "s"), pod("d1", "s"), in_queue("b2", "b", "l")])
    assert placed(sessions(state)) == ["b1", "d1"]
    rests(state)


def test_after_a_session_that_only_says_why_somebody_waits_no_other_one_follows():
    state = quiet(node("a"))
    then(state, pod("other", "big"))
    assert run(state, decider, decider.due(state, NOW))
    assert decider.due(state, NOW) is None


@pytest.mark.parametrize("how", [
    [e.PodGone("a1")],
    [changed("a1", phase="Failed")],
    [changed("a1", phase="Pending", deleting=NOW)],
    [in_queue("a1", "a", "x", gated=True)],
    [in_queue("a1", "b", "x")],
], ids=["gone", "ended", "deleting", "gated", "of another queue"])  # fmt: skip
def test_what_one_that_waits_no_more_kept_for_its_queue_others_borrow(how):
    facts = node("n", cpu=4_000), queue("a"), queue("b"), shape("s", cpu=2_000), shape("x", cpu=2_000, node_selector={"zone": "z"})
    state = quiet(*facts, in_queue("b1", "b", "s", "n"), in_queue("a1", "a", "x"), in_queue("b2", "b", "s"))
    then(state, *how)
    assert placed(sessions(state)) == ["b2"]
    rests(state)


def preempting(*facts) -> ClusterState:
    return given(configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("reserve", "allocate", "preempt"))))),
                 node("a", cpu=1_000), shape("low", priority=1), shape("high", priority=10), *facts)


def chosen(events: list[e.Event]) -> list[str]:
    return [event.pod for event in events if isinstance(event, e.Preempted)]


def test_who_is_bound_after_a_more_important_pod_was_refused_may_go_for_it():
    state = preempting(pod("l", "low"))
    sessions(state)
    then(state, pod("h", "high"))
    assert chosen(sessions(state)) == [], "nobody takes from one whose bind is on its way"
    then(state, changed("l", node="a", phase="Running", ready=True))
    assert chosen(sessions(state)) == ["l"]


def test_who_stays_because_its_migration_has_failed_may_go_for_a_more_important_pod():
    state = preempting(configured("migration", MigrationConfig()), node("b", cpu=1_000, unschedulable=True),
                       pod("p", "low", "a", owner=replica_of("rs")), plan("x", move("x-1")), pod("h", "high"))
    assert chosen(sessions(state)) == []
    assert run(state, sagas, c.Advance(NOW))
    assert chosen(sessions(state)) == ["p"]


TIERS = [{"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "predicates"}]}]
FULL = (node("a", cpu=2_000), shape("s", cpu=1_000), shape("l", cpu=2_000, priority=1), pod("r", "s", "a"), pod("r2", "s", "a"))
UNREADY = changed("r", node="a", phase="Running", ready=False)
SLA = {"actions": "enqueue, allocate", "tiers": [{"plugins": [{"name": "sla", "arguments": {"sla-waiting-time": "1m"}}]}, {"plugins": [{"name": "gang"}, {"name": "overcommit"}]}]}
PENDING = (pod_group("g", need=1, phase="Pending", min_resources={"cpu": 2_000}), member("m", "g"))
STARVING = {"actions": ["allocate", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 60}}], "tiers": TIERS}
WINDOW = {"nodeSelector": {"k": "v"}, "resources": {"cpu": "2"}, "cron": "0 22-23 * * *"}
KEPT = {"actions": "allocate", "tiers": [{"plugins": [{"name": "predicates"}, {"name": "reserve", "arguments": {"reservelabels": [WINDOW]}}]}]}
TO_23 = 2_800_000
"""NOW is 22:13:20."""


@pytest.mark.parametrize(("conf", "facts", "at", "decided"), [
    (SLA, (*FULL, *PENDING), 60_001, e.Enqueued),
    (STARVING, (*FULL, pod("big", "l")), 60_002, e.TaskReserved),
    (KEPT, (node("a", cpu=2_000, labels={"k": "v"}), shape("s", cpu=1_000), pod("p", "s"), pod("r", "s", "a")), TO_23, e.PodPlaced),
], ids=["sla", "starving", "window"])  # fmt: skip
def test_a_fact_that_is_written_after_a_deadline_and_folded_before_the_session_looks_hides_no_deadline(conf, facts, at, decided):
    state = given(configured("session", read_conf(conf)), *facts)
    sessions(state)
    assert decider.deadline(state) is not None
    then(state, UNREADY, time=NOW + at)
    assert decided in map(type, sessions(state, at))


def test_a_pod_is_named_once_where_it_is_said_why_it_waits():
    state = given(configured("session", read_conf(STARVING)), *FULL, pod("big", "l"))
    sessions(state)
    then(state, UNREADY, node("b", cpu=1_000), time=NOW + DAY)
    said = [event for event in sessions(state, DAY) if isinstance(event, e.Unfit)]
    assert [event.reasons for event in said] == [{"Insufficient cpu": 2}]
    assert said[0].pods in ((), ("big",)), "who waits for it already need not be named"


def test_after_a_deadline_that_has_passed_long_ago_sessions_rest():
    state = given(configured("session", read_conf(STARVING)), *FULL, pod("big", "l"))
    sessions(state)
    then(state, UNREADY, time=NOW + DAY)
    assert e.TaskReserved in map(type, sessions(state, DAY))
    rests(state)
