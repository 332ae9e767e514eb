"""The judge of logs (`tests/checker.py`) sees every kind of broken promise; a judge that never objects proves nothing."""

import pytest
from checker import GPU, Judge

M = "m-1"
NODES = [{"type": "cluster.node_observed", "name": n, "allocatable": {"cpu": 4, "pods": 9, GPU: 2000}, "devices": 2} for n in "ab"]
SHAPE = {"type": "cluster.shape_declared", "shape": "s", "spec": {"requests": {"cpu": 2, "pods": 1, GPU: 600}, "devices": {"count": 1, "milli": 600}}}


def pod(uid, **more):
    return {"type": "cluster.pod_observed", "pod": uid, "namespace": "d", "name": uid, "shape": "s", "phase": "Pending", **more}


def placed(uid, node="a", device=0):
    return {"type": "session.pod_placed", "pod": uid, "node": node, "devices": [{"index": device, "milli": 600}]}


def bound(uid, node, **more):
    return {"type": "cluster.pod_changed", "pod": uid, "node": node, "phase": "Running", "ready": True, "devices": [{"index": 0, "milli": 600}], **more}


def gone(uid):
    return {"type": "cluster.pod_gone", "pod": uid}


PLAN = {"type": "migration.planned", "moves": [{"migration": M, "pod": "p", "source": "a", "target": "b"}]}
RESERVATION = {"type": "cluster.reservation_observed", "reservation": "r", "migration": M, "spec": {"tasks": [{"name": "hold", "shape": "s"}]}}
ACCEPTED = {"type": "reservation.accepted", "reservation": "r", "generation": 1}
HOLD = {"type": "session.hold_placed", "reservation": "r", "slot": "hold-0", "node": "b", "devices": [{"index": 0, "milli": 600}]}
RELEASED = {"type": "session.hold_released", "reservation": "r", "slot": "hold-0", "reason": "x"}
COLLECTED = {"type": "gc.collected", "reservation": "r"}
START = [*NODES, SHAPE, pod("p"), placed("p"), bound("p", "a")]


def over(uid, node="b"):
    return {"type": "session.handed_over", "reservation": "r", "slot": "hold-0", "pod": uid, "node": node, "devices": [{"index": 0, "milli": 600}]}


def step(name, **more):
    return {"type": f"migration.{name}", "migration": M, **more}


LANDED = step("landed", pod="q", node="b")
TO_HOLD = [*START, PLAN, step("holding"), RESERVATION, ACCEPTED]
STORY = [
    *TO_HOLD, HOLD, step("held"), step("evicting"), bound("p", "a", deleting=1), pod("q"), step("evicted"), over("q"), gone("p"),
    bound("q", "b"), LANDED, COLLECTED,
]


def judged(events):
    judge = Judge()
    for seq, event in enumerate(events, 1):
        judge.commit(seq, event["type"].partition(".")[0], seq - 1, [event])
    judge.end()
    return judge.report


def without(*events):
    return [event for event in STORY if event not in events]


def test_a_whole_story_is_fine():
    report = judged(STORY)
    assert report.ok, report.broken
    assert report.holds_left == 0


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([*START, pod("x"), placed("x", device=1), pod("y"), placed("y", device=1)], "a has 4 of cpu, 6 are promised"),
        ([*START, pod("x"), placed("x", device=0)], "a has 1000 of 0, 1200 are promised"),
        ([*START, pod("x"), placed("x", device=2)], "a has 0 of 2, 600 are promised"),
        ([*NODES, SHAPE, pod("p"), placed("p"), placed("p", "b")], "was placed on a already"),
        ([*START, bound("p", "b")], "went from a to b"),
        ([*TO_HOLD, HOLD, HOLD], "is held twice"),
        ([*TO_HOLD, {**HOLD, "node": "a", "devices": [{"index": 1, "milli": 600}]}], "is held on a, not on its target"),
        ([*STORY, pod("z"), over("z")], "is handed over to z, but it is used"),
        ([*TO_HOLD, HOLD, RELEASED, pod("z"), over("z")], "is handed over to z, but it is released"),
        ([*TO_HOLD, HOLD, RELEASED, RELEASED], "is released, but it is released"),
        (without(HOLD), "evicts before a landing place was held"),
        (without(LANDED), "at the end migration m-1 is evicted"),
        (without(bound("q", "b")), "landed, but pod q is on None"),
        ([*without(LANDED, COLLECTED), {**LANDED, "node": "a"}], "landed on a, not on its target"),
        (without(step("evicting")), "was ended, but its migrations are ['held']"),
        (without(step("held"), step("evicting"), step("evicted"), LANDED), "was ended, but its migrations are ['holding']"),
        ([*TO_HOLD, HOLD, COLLECTED], "is still held; its Reservation is collected"),
        ([*TO_HOLD, HOLD, step("failed")], "is still held; its Reservation is of a finished migration"),
        ([*STORY, LANDED], "is landed after landed"),
        ([*STORY, gone("q")], "pod q was ended, but its migrations are none"),
    ],
)
def test_what_breaks_a_promise_is_said(events, said):
    assert any(said in sentence for sentence in judged(events).broken), judged(events).broken


def test_what_facts_bring_about_by_themselves_is_told_apart():
    facts = [*START, pod("x", node="a", devices=[{"index": 0, "milli": 600}])]
    report = judged(facts)
    assert not report.broken
    assert "a has 1000 of 0, 1200 are promised" in report.overtaken[0]
    assert not report.ok


def test_a_decision_on_something_that_was_not_yet_there_is_said():
    judge = Judge()
    judge.commit(3, "cluster", 3, [NODES[0]])
    judge.commit(4, "session", 1, [NODES[1]])
    assert judge.report.broken == ["3: it was decided at 3, which is not before it", "4: cluster.node_observed in a commit of session"]
