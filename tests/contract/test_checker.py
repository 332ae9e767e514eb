"""The judge of logs (`tests/checker.py`) sees every kind of broken promise; a judge that never objects proves nothing."""

import pytest
from checker import GPU, Judge

M = "m-1"
NODES = [{"type": "cluster.node_observed", "name": n, "allocatable": {"cpu": 4, "pods": 9, GPU: 2000}, "devices": 2} for n in "ab"]
SHAPE = {"type": "cluster.shape_declared", "shape": "s", "spec": {"requests": {"cpu": 2, "pods": 1, GPU: 600}, "devices": {"count": 1, "milli": 600}, "scheduler": "restow"}}


def pod(uid, **more):
    return {"type": "cluster.pod_observed", "pod": uid, "namespace": "d", "name": uid, "shape": "s", "phase": "Pending", **more}


def placed(uid, node="a", device=0):
    return {"type": "session.pod_placed", "pod": uid, "node": node, "devices": [{"index": device, "milli": 600}]}


def bound(uid, node, **more):
    return {"type": "cluster.pod_changed", "pod": uid, "node": node, "phase": "Running", "ready": True, "devices": [{"index": 0, "milli": 600}], **more}


def gone(uid):
    return {"type": "cluster.pod_gone", "pod": uid}


PLAN = {"type": "migration.planned", "moves": [{"migration": M, "pod": "p", "source": "a", "target": "b"}]}
RESERVATION = {"type": "cluster.reservation_observed", "reservation": "r", "migration": M, "spec": {"allocate_once": True, "tasks": [{"name": "hold", "shape": "s", "replicas": 1}]}}
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


def commits(*several, **judge):
    """Each a list of events that share a commit."""
    judge = Judge(**judge)
    for seq, events in enumerate(several, 1):
        judge.commit(seq, events[0]["type"].partition(".")[0], seq - 1, list(events))
    judge.end()
    return judge.report


def each(events):
    return [[event] for event in events]


def judged(events):
    return commits(*each(events))


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
        (without(HOLD), "evicts before a landing slot was held"),
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


PROPOSED = {**PLAN, "plan": "x", "mode": "propose"}
APPROVED = {"type": "migration.plan_approved", "plan": "x", "by": "ada"}


def with_plan(*events):
    at = STORY.index(PLAN)
    return [*STORY[:at], *events, *STORY[at + 1 :]]


@pytest.mark.parametrize("approved", [APPROVED, {**APPROVED, "moves": [M]}])
def test_a_plan_that_a_person_has_approved_is_fine(approved):
    assert judged(with_plan(PROPOSED, approved)).ok


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((PROPOSED,), "holding of the unknown migration m-1"),
        (({**PROPOSED, "mode": "observe"},), "holding of the unknown migration m-1"),
        ((PROPOSED, {**APPROVED, "moves": ["m-2"]}), "holding of the unknown migration m-1"),
        ((PROPOSED, {"type": "migration.plan_rejected", "plan": "x", "by": "ada", "reason": "no"}), "holding of the unknown migration m-1"),
        ((PROPOSED, {"type": "migration.plan_cancelled", "plan": "x", "reason": "no"}, APPROVED), "does not wait for anybody"),
        ((PROPOSED, APPROVED, APPROVED), "does not wait for anybody"),
        ((PROPOSED, {**APPROVED, "by": ""}), "nobody has approved plan x"),
    ],
)
def test_nothing_moves_that_nobody_has_approved(events, said):
    assert any(said in sentence for sentence in judged(with_plan(*events)).broken), judged(with_plan(*events)).broken


def test_restows_own_placeholders_are_nobodys_victims_and_others_are_missed():
    ended = [pod("h", namespace="restow-holds"), gone("h"), pod("x"), gone("x")]
    assert [said.partition(": ")[2] for said in judged([*TO_HOLD, *ended, HOLD, *STORY[len(TO_HOLD) + 1 :]]).broken] == ["pod x was ended, but its migrations are none"]


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


# -- gangs, queues, preemption, starving jobs ------------------------------------------------------------------------

SMALL = {"type": "cluster.shape_declared", "shape": "cpu", "spec": {"requests": {"cpu": 2, "pods": 1}, "scheduler": "restow"}}
NOTHING = {"type": "cluster.shape_declared", "shape": "none", "spec": {"requests": {"pods": 1}, "scheduler": "restow"}}
GROUP = {"type": "cluster.pod_group_observed", "namespace": "d", "name": "g", "min_member": 2, "queue": "q"}
QUEUE = {"type": "cluster.queue_observed", "name": "q", "capability": {"cpu": 4}}
CLUSTER = [*NODES, SMALL, NOTHING, GROUP, QUEUE]


def small(uid, shape="cpu", **more):
    return {**pod(uid), "shape": shape, **more}


def member(uid, **more):
    notes = {"scheduling.k8s.io/group-name": "g"} | ({"volcano.sh/task-spec": more.pop("task")} if "task" in more else {})
    return small(uid, annotations=notes, **more)


def on(uid, node="a"):
    return {"type": "session.pod_placed", "pod": uid, "node": node}


def runs(uid, node="a", **more):
    return {"type": "cluster.pod_changed", "pod": uid, "node": node, "phase": "Running", **more}


def nominated(uid, *victims, node="a"):
    return {"type": "session.nominated", "pod": uid, "node": node, "deadline": 9, "victims": list(victims)}


def preempted(uid, by):
    return {"type": "session.preempted", "pod": uid, "by": by, "action": "preempt"}


def ended(uid):
    return {"type": "session.nomination_ended", "pod": uid, "reason": "Deadline"}


def reserved(uid, node="a"):
    return {"type": "session.task_reserved", "pod": uid, "node": node}


FULL = [*CLUSTER, small("v1"), on("v1"), runs("v1"), small("v2"), on("v2"), runs("v2"), small("p")]
CLAIM = [preempted("v1", "p"), nominated("p", "v1")]
GOING = [runs("v1", deleting=1), gone("v1")]
QUEUED = {"scheduling.volcano.sh/queue-name": "q"}


def test_a_whole_story_of_preemption_is_fine():
    report = commits(*each(FULL), CLAIM, *each(GOING), [on("p")], [runs("p")], planned=True)
    assert report.ok, report.broken


def test_a_gang_that_is_placed_together_and_one_that_gets_more_are_fine():
    first = [[fact] for fact in (*CLUSTER, member("m1"), member("m2"), member("m3"))]
    report = commits(*first, [on("m1"), on("m2")], [runs("m1")], [gone("v")], [on("m3", "b")])
    assert [s for s in report.broken if "gang" in s] == []


@pytest.mark.parametrize(
    ("several", "said"),
    [
        ((*each(FULL), CLAIM, *each(GOING), [small("x")], [on("x")]), "a has 4 of cpu, 6 are promised (last to x)"),
        ((*each(FULL), CLAIM, *each(GOING), [on("p", "b")], [on("p", "b")]), "was placed on b already"),
        ((*each(FULL), [preempted("v1", "p")]), "pod v1 is to go for p, which nothing is held for"),
        ((*each(FULL), CLAIM, [ended("p")], *each(GOING)), "pod v1 was ended, but its migrations are none"),
        ((*each(FULL), *each(GOING)), "pod v1 was ended, but its migrations are none"),
        ((*each(FULL), CLAIM, [runs("v2", deleting=1)]), "pod v2 was ended, but its migrations are none"),
        ((*each(FULL), CLAIM, [ended("p")], [ended("p")]), "ends, but nothing is held for it"),
        ((*each(FULL), [nominated("v1", node="b")]), "room on b is held for pod v1, which does not wait for any"),
        ((*each(CLUSTER), [member("m1")], [member("m2")], [on("m1")]), "gang d/g needs 2 pods together, and has 1"),
        ((*each(CLUSTER), [member("m1")], [member("m2", deleting=1)], [on("m1")]), "gang d/g needs 2 pods together, and has 1"),
        ((*each(CLUSTER), [{**GROUP, "min_task_member": {"t": 1}}], [member("m1")], [member("m2", task="s")], [on("m1"), on("m2")]),
         "gang d/g needs 1 pods of task t together, and has 0"),
        ((*each(CLUSTER), [small("p")], [small("x")], [reserved("p")], [on("x")]), "pod x comes to a, which is reserved for pod p"),
        ((*each(CLUSTER), [small("p")], [RESERVATION | {"migration": "", "spec": {"allocate_once": True, "tasks": [{"name": "hold", "shape": "cpu", "replicas": 1}]}}], [ACCEPTED], [reserved("p", "b")], [{**HOLD, "devices": []}]),
         "comes to b, which is reserved for pod p"),
        ((*each(CLUSTER), *[[small(f"q{i}", annotations=QUEUED)] for i in range(3)], [on("q0"), on("q1")], [on("q2", "b")]), "queue q may use 4 of cpu, and uses 6"),
        ((*each(CLUSTER), [{**QUEUE, "name": "below", "parent": "q", "capability": {}}], *[[small(f"q{i}", annotations={"scheduling.volcano.sh/queue-name": "below"})] for i in range(3)], [on("q0"), on("q1")], [on("q2", "b")]),
         "queue q may use 4 of cpu, and uses 6"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_of_the_session_is_said(several, said):
    report = commits(*several, planned=True)
    assert any(said in sentence for sentence in report.broken), report.broken


@pytest.mark.parametrize(
    "several",
    [
        (*each(CLUSTER), [small("p")], [small("x", "none")], [reserved("p")], [on("x")], [on("p")]),
        (*each(CLUSTER), [small("p")], [reserved("p")], [gone("p")], [small("x")], [on("x")]),
        (*each(CLUSTER), [small("p")], [reserved("p")], [{"type": "session.task_unreserved", "pod": "p", "reason": "Ready"}], [small("x")], [on("x")]),
        (*each(FULL), [nominated("p")], [{"type": "cluster.node_gone", "name": "a"}], [ended("x")]),
        (*each(CLUSTER), [member("m1", node="a", phase="Running")], [member("m2")], [on("m2")]),
        (*each(CLUSTER), *[[small(f"q{i}", annotations=QUEUED)] for i in range(3)], [on("q0"), on("q1")], [runs("q0", deleting=1)], [on("q2", "b")]),
        ([{"type": "session.configured", "text": '{"tiers":[[{"name":"predicates"}]]}'}], *each(CLUSTER), [member("m1")], [member("m2")], [on("m1")]),
    ],
)  # fmt: skip
def test_what_breaks_no_rule_of_the_session_is_not_said(several):
    assert [s for s in commits(*several).broken if "ends, but" not in s] == []


def test_facts_between_a_decision_and_its_commit_excuse_a_gang():
    judge = Judge()
    for seq, event in enumerate([*CLUSTER, member("m1"), member("m2")], 1):
        judge.commit(seq, "cluster", seq - 1, [event])
    judge.commit(seq + 1, "cluster", seq, [gone("m2")])
    judge.commit(seq + 2, "session", seq, [on("m1"), on("m2")])
    assert judge.report.ok, judge.report.broken


def read_before_the_last(*events):
    """Each in a commit of its own; the last was decided before the one in front of it was stored."""
    judge = Judge()
    for seq, event in enumerate(events, 1):
        last = seq == len(events)
        judge.commit(seq, event["type"].partition(".")[0], seq - 1 - last, [event])
    judge.end()
    return judge.report


def test_a_hold_that_is_chosen_while_its_migration_ends_is_none():
    report = read_before_the_last(*TO_HOLD, step("failed"), HOLD)
    assert report.ok, report.broken
    assert report.holds_left == 0


def test_a_hold_that_is_chosen_for_a_migration_that_is_known_to_be_over_is_said():
    assert any("is held, but its Reservation is of a finished migration" in s for s in judged([*TO_HOLD, step("failed"), HOLD]).broken)


def test_a_hold_that_a_migration_leaves_behind_is_to_be_released_at_once():
    placed_later = [pod("x"), placed("x", "b", 1)]
    assert any("hold-0') is not released; its Reservation is of a finished migration" in s for s in judged([*TO_HOLD, HOLD, step("failed"), *placed_later]).broken)


def test_a_move_of_a_pod_that_had_gone_is_none():
    report = judged([*START, gone("p"), PLAN])
    assert report.ok, report.broken


def test_a_move_that_follows_one_that_is_over_is_none():
    follows = {"type": "migration.planned", "moves": [{"migration": "m-2", "pod": "", "follows": M, "source": "b", "target": "a"}]}
    report = judged([*START, PLAN, step("failed"), follows])
    assert report.ok, report.broken


def test_a_move_that_turns_back_lands_nowhere_and_gives_up_its_first_place():
    told = [*TO_HOLD, HOLD, step("held"), step("evicting"), bound("p", "a", deleting=1), step("evicted"), step("turning_back"), RELEASED, step("failed")]
    report = judged(told)
    assert report.ok, report.broken
    assert any("turns back after held" in s for s in judged([*TO_HOLD, HOLD, step("held"), step("turning_back")]).broken)
