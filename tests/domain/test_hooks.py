"""Hooks: before a move its workload is asked, and nobody is evicted without its word; afterwards it is told (docs/hooks.md)."""

import pytest
from domain.build import NOW, configured, given, node, pod, run, shape, then
from domain.saga import (
    OWNER,
    advance,
    create,
    decider,
    evicts,
    failed,
    hold,
    land,
    move,
    owed,
    plan,
    session_answers,
    step,
    terminate,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.contracts.values import OwnerRef
from restow.domain import config, hooks, snapshot
from restow.domain.config import HookConfig, Selector
from restow.domain.defragmentation.costs import MOVE, Costs
from restow.domain.effects import AskConsent, Evict, TellWorkload, WithdrawRequest
from restow.domain.migration.deadlines import LAST_ANSWER
from restow.domain.migration.warnings import warnings
from restow.domain.records import Step

M = "x-1"
BY_ANNOTATION = {hooks.BEFORE: "annotation"}
BY_HTTP = {hooks.BEFORE: ":8080/checkpoint"}
MINUTE = 60_000


def world(annotations=BY_ANNOTATION, *more: e.Event, policy=(), **conf):
    conf = config.MigrationConfig(**({"max_unavailable": 0, "evictions_per_minute": 0, "hooks": policy} | conf))
    return given(
        configured("migration", conf), node("a"), node("b"), shape("s"), pod("p", node="a", owner=OWNER, annotations=annotations),
        *more, plan("x", move(M)),
    )  # fmt: skip


def asked(annotations=BY_ANNOTATION, **more):
    """Its slot is held, and its workload is asked."""
    state = world(annotations, **more)
    advance(state)
    events = hold(state, M)
    assert [type(event) for event in events] == [e.Held, e.ConsentAsked], events
    return state


def says(state, after: int = 0, **annotations):
    """The workload writes on its pod; nothing else of it changes."""
    keys = {name.replace("_", "-"): said for name, said in annotations.items()}
    before = state.fact_of(PodUid("p"))
    then(state, pod("p", node="a", owner=OWNER, annotations={**before.annotations, **{f"restow.dev/{k}": v for k, v in keys.items()}}))
    return advance(state, after)


def answers(state, word: str, after: int = 0, **more):
    found = run(state, decider, c.ReportConsent(NOW + after, M, word, **more))
    return [*found, *advance(state, after)]


# -- who is asked ----------------------------------------------------------------------------------------------------------


def test_a_pod_without_a_hook_is_evicted_as_soon_as_its_slot_is_held():
    state = world({})
    advance(state)
    assert evicts(hold(state, M)) == [M]


def test_a_workload_is_asked_once_its_slot_is_held_and_until_then_nobody_is():
    state = world()
    advance(state)
    assert AskConsent(M) not in owed(state)
    events = hold(state, M)
    assert events[-1] == e.ConsentAsked(M, NOW + 5 * MINUTE, "annotation")
    assert (step(state, M), owed(state)) == (Step.HELD, [AskConsent(M)])


def test_it_is_not_asked_while_a_limit_is_in_the_way():
    state = world(BY_ANNOTATION, evictions_per_minute=1)
    then(state, e.Planned("y", "P", (), *[state.plans["x"].planned.before] * 2))
    state.evictions["other"] = NOW
    advance(state)
    assert not [event for event in hold(state, M) if isinstance(event, e.ConsentAsked)]
    assert [event for event in advance(state, 29_000) if isinstance(event, e.ConsentAsked)] == []


def test_the_policy_asks_for_whom_its_entry_selects_and_the_first_entry_counts():
    gate = HookConfig("gate", before="https://gate.ml.svc/before", selector=Selector({"app": "trainer"}), kinds=("ReplicaSet.apps",), namespaces=("default",))
    other = HookConfig("other", before="annotation")
    state = world({}, policy=(gate, other))
    fact = state.fact_of(PodUid("p"))
    assert hooks.before(state, fact).name == "other"
    trainer = pod("q", owner=OWNER, labels={"app": "trainer"})
    assert hooks.before(state, trainer) == hooks.Hook("https://gate.ml.svc/before", "gate", 300_000)
    assert hooks.before(state, pod("q", owner=OWNER, labels={"app": "trainer"}, namespace="other")).name == "other"
    assert hooks.before(state, pod("q", owner=OWNER, labels={"app": "trainer"}, annotations=BY_HTTP)) == hooks.Hook(":8080/checkpoint")


def test_each_hook_is_the_pods_own_or_its_controllers_or_that_of_who_controls_that():
    rs = e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", OwnerRef("Deployment", "d", "uid-d", "apps/v1"))
    deployment = e.WorkloadObserved("uid-d", "Deployment", "default", "d", hooks={hooks.BEFORE: ":1/a", hooks.DEADLINE: "10m"})
    state = given(configured("migration", config.MigrationConfig()), shape("s"), rs, deployment)
    told_only = pod("p", owner=OWNER, annotations={hooks.AFTER: "annotation"})
    assert hooks.before(state, told_only) == hooks.Hook(":1/a", "", 600_000)
    assert hooks.after(state, told_only).way == "annotation"
    then(state, e.WorkloadGone("uid-d"))
    assert hooks.before(state, told_only) is None


def test_a_pod_has_the_hook_of_its_controller_where_it_has_none_of_its_own():
    job = e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", hooks={hooks.BEFORE: ":1/a", hooks.DEADLINE: "10m"})
    state = given(configured("migration", config.MigrationConfig()), shape("s"), job)
    assert hooks.before(state, pod("p", owner=OWNER)) == hooks.Hook(":1/a", "", 600_000)
    assert hooks.before(state, pod("p", owner=OWNER, annotations=BY_ANNOTATION)) == hooks.Hook("annotation")


@pytest.mark.parametrize(
    "bad",
    [
        {hooks.BEFORE: "http://169.254.169.254/latest"}, {hooks.BEFORE: "https://example.com:8080/x"}, {hooks.BEFORE: ":0/x"}, {hooks.BEFORE: ":70000"},
        {hooks.BEFORE: ":80/a b"}, {hooks.BEFORE: "file:///etc/passwd"}, {hooks.BEFORE: "//host:80/"}, {hooks.BEFORE: ":80@evil/"},
        BY_HTTP | {hooks.DEADLINE: "soon"}, BY_HTTP | {hooks.DEADLINE: "48h"}, BY_HTTP | {hooks.ON_SILENCE: "maybe"}, BY_HTTP | {hooks.DEADLINE: "0s"},
        # Of which Python reads no number: whoever annotates a pod would stop every service.
        BY_HTTP | {hooks.DEADLINE: "9" * 5_000 + "h"}, {hooks.BEFORE: ":" + "9" * 5_000},
    ],
)  # fmt: skip
def test_a_hook_that_cannot_be_read_or_names_another_host_keeps_its_pod(bad):
    state = world(bad)
    assert failed(advance(state)) == {M: "BadHook"}
    assert "allowed: " in state.migrations[M].message


# -- what it answers -------------------------------------------------------------------------------------------------------


def test_its_request_is_owed_until_it_is_seen_on_the_pod_and_then_its_word_is_waited_for():
    state = asked()
    says(state, move_requested=M)
    assert owed(state) == []
    assert evicts(advance(state, MINUTE)) == []
    events = says(state, MINUTE, move_acknowledged=M)
    assert events == [e.ConsentGiven(M), e.Evicting(M, NOW + MINUTE + 60_000)]
    assert owed(state) == [Evict(M)]


def test_an_answer_to_another_migration_is_none():
    state = asked()
    assert says(state, move_acknowledged="x-0", move_refused="x-0 no") == []


def test_a_workload_that_refuses_on_its_pod_keeps_it_and_is_left_alone_as_long_as_it_says():
    state = asked()
    says(state, move_requested=M)
    events = says(state, MINUTE, move_refused=f"{M} retry-after=2h the epoch ends soon")
    again = NOW + MINUTE + 120 * MINUTE
    assert events == [e.ConsentRefused(M, "the epoch ends soon", again), e.MigrationFailed(M, "WorkloadRefused", "the epoch ends soon")]
    assert state.refused["p"].until == again
    assert (state.consents, WithdrawRequest(M) in owed(state)) == ({}, True), "what asked it is taken off its pod"


def test_a_refusal_counts_more_than_an_assent():
    state = asked()
    assert failed(says(state, move_acknowledged=M, move_refused=f"{M} no")) == {M: "WorkloadRefused"}


@pytest.mark.parametrize(("word", "reason"), [("agreed", None), ("refused", "WorkloadRefused")])
def test_an_http_answer_counts(word, reason):
    state = asked(BY_HTTP)
    assert owed(state) == [AskConsent(M)]
    says(state, move_requested=M)
    assert owed(state) == [AskConsent(M)], "it is owed until it is answered"
    events = answers(state, word, 1_000, message="busy", again=NOW + 9_000 if reason else 0)
    assert failed(events) == ({M: reason} if reason else {})
    assert evicts(events) == ([] if reason else [M])
    if reason:
        assert state.refused["p"].until == NOW + 9_000
        assert WithdrawRequest(M) in owed(state)


def test_a_silent_workload_keeps_its_pod():
    state = asked(BY_ANNOTATION | {hooks.DEADLINE: "90s"})
    assert decider.deadline(state) == NOW + 90_000
    assert advance(state, 89_999) == []
    assert failed(advance(state, 90_000)) == {M: "NoWord"}
    assert state.refused["p"].until > NOW + 90_000


def test_a_silent_workload_is_evicted_where_its_hook_takes_silence_for_assent():
    state = asked(BY_ANNOTATION | {hooks.ON_SILENCE: "evict"})
    says(state, move_requested=M)
    events = advance(state, 5 * MINUTE)
    assert events == [e.ConsentGiven(M, True), e.Evicting(M, NOW + 6 * MINUTE)]


@pytest.mark.parametrize("how", [BY_ANNOTATION, BY_HTTP])
def test_a_workload_that_nobody_has_asked_is_not_silent(how):
    """Restow was away until its time was up. Of an HTTP request only the process that has sent it says that there was no answer."""
    state = asked(how | {hooks.ON_SILENCE: "evict"})
    assert failed(advance(state, 5 * MINUTE + LAST_ANSWER)) == {M: "NoWord"}
    assert "was to be asked" in state.migrations[M].message


def test_who_has_asked_by_http_says_that_there_was_no_answer_and_that_is_assent():
    state = asked(BY_HTTP | {hooks.ON_SILENCE: "evict"})
    assert [type(event) for event in answers(state, "silent", 5 * MINUTE)] == [e.ConsentGiven, e.Evicting]


def test_who_asks_by_http_says_at_the_deadline_what_was_answered_instead():
    state = asked(BY_HTTP)
    assert advance(state, 5 * MINUTE) == []
    assert answers(state, "silent", 4 * MINUTE, message="too early") == []
    events = answers(state, "silent", 5 * MINUTE, message="503 Service Unavailable")
    assert failed(events) == {M: "NoWord"}
    assert "503 Service Unavailable" in state.migrations[M].message
    assert TellWorkload(M) in owed(state), "it may have answered, and nobody has heard it"


def test_and_where_nobody_asks_any_more_it_ends_a_moment_later():
    state = asked(BY_HTTP)
    assert failed(advance(state, 5 * MINUTE + LAST_ANSWER)) == {M: "NoWord"}


def test_a_word_that_comes_after_its_move_has_ended_is_nobodys():
    state = asked(BY_HTTP)
    advance(state, 5 * MINUTE + LAST_ANSWER)
    assert run(state, decider, c.ReportConsent(NOW + 6 * MINUTE, M, "agreed")) == []


# -- while it is waited for ------------------------------------------------------------------------------------------------


def test_the_hold_stays_while_the_word_is_waited_for_and_what_was_asked_before_is_asked_again():
    state = asked()
    then(state, e.NodeObserved("b", "uid-b", {"cpu": 8_000, "memory": 32 << 30, "pods": 110}, unschedulable=True))
    assert failed(advance(state, MINUTE)) == {M: "TargetLost"}


def test_a_move_whose_pod_may_no_longer_go_when_the_word_comes_waits_for_its_turn_and_not_for_ever():
    state = asked(evictions_per_minute=1)
    at = 4 * MINUTE
    state.evictions["other"] = NOW + at
    assert says(state, at, move_acknowledged=M) == [e.ConsentGiven(M)]
    assert failed(advance(state, at + 30_000)) == {M: "RateLimit"}


def test_a_cancelled_plan_ends_the_wait_and_the_workload_is_told():
    state = asked(BY_HTTP)
    run(state, decider, c.CancelPlan(NOW, "x"))
    events = advance(state)
    assert [type(event) for event in events] == [e.WorkloadToTell, e.MigrationFailed]
    assert owed(state)[-1] == TellWorkload(M)
    assert run(state, decider, c.ReportTold(NOW, M)) == [e.WorkloadTold(M)]
    assert TellWorkload(M) not in owed(state)


def test_a_pod_that_ends_by_itself_while_its_workload_is_asked_needs_no_word():
    state = asked()
    terminate(state, "p")
    assert [type(event) for event in advance(state)] == [e.MigrationFailed]
    assert state.migrations[M].reason == "PodGone"


def test_an_eviction_that_is_given_up_tells_who_had_agreed():
    state = asked(BY_HTTP)
    answers(state, "agreed")
    run(state, decider, c.CancelPlan(NOW, "x"))
    advance(state)
    assert step(state, M) is Step.ABORTING
    events = run(state, decider, c.ReportEviction(NOW, M, "Aborted"))
    assert [type(event) for event in events] == [e.WorkloadToTell, e.MigrationFailed]
    assert events[0].what == "stays"


def test_a_request_that_reaches_the_pod_after_its_move_has_ended_is_taken_off():
    state = asked()
    run(state, decider, c.CancelPlan(NOW, "x"))
    advance(state)
    assert WithdrawRequest(M) not in owed(state)
    state.touched = type(state.touched)()
    says(state, move_requested=M)
    assert WithdrawRequest(M) in decider.pending(state, state.touched)
    then(state, pod("p", node="a", owner=OWNER, annotations=BY_ANNOTATION))
    assert not decider.owed(state, WithdrawRequest(M))


def test_a_hook_that_is_declared_when_the_eviction_was_decided_stops_it():
    """A budget, or a guard that is to be made first, may keep it waiting."""
    state = world({})
    advance(state)
    assert evicts(hold(state, M)) == [M]
    assert Evict(M) in owed(state)
    says(state, before_move="annotation")
    assert Evict(M) not in owed(state)
    assert (step(state, M), state.migrations[M].reason) == (Step.ABORTING, "NotAsked")
    assert run(state, decider, c.ReportEviction(NOW, M, "Aborted"))[-1].reason == "NotAsked"


def test_who_has_agreed_is_evicted_also_where_another_hook_is_declared_meanwhile():
    state = asked()
    says(state, move_acknowledged=M)
    assert step(state, M) is Step.EVICTING
    says(state, before_move=":8080/checkpoint")
    assert Evict(M) in owed(state)


def test_a_word_may_be_taken_back_while_the_move_waits_for_its_turn():
    state = asked(evictions_per_minute=1)
    state.evictions["other"] = NOW
    assert says(state, move_acknowledged=M) == [e.ConsentGiven(M)]
    events = says(state, move_refused=f"{M} retry-after=30m the epoch ends soon")
    assert failed(events) == {M: "WorkloadRefused"}
    assert e.ConsentRefused(M, "the epoch ends soon", NOW + 30 * MINUTE) in events


def test_a_word_may_be_taken_back_as_long_as_the_api_has_not_evicted_the_pod():
    state = asked()
    says(state, move_acknowledged=M)
    assert Evict(M) in owed(state)
    says(state, move_refused=M)
    assert Evict(M) not in owed(state)
    assert (step(state, M), state.migrations[M].reason) == (Step.ABORTING, "WorkloadRefused")


def test_a_pod_that_nobody_makes_again_is_not_evicted_where_it_is_to_be_asked():
    state = given(
        configured("migration", config.MigrationConfig(max_unavailable=0)), node("a"), shape("s"), pod("p", node="a", annotations=BY_ANNOTATION),
        plan("x", move(M, target="")),
    )  # fmt: skip
    assert failed(advance(state)) == {M: "NotAsked"}


# -- a node that is emptied wholly -----------------------------------------------------------------------------------------


def whole(*said: dict):
    pods = [pod(f"p{i}", node="a", owner=OWNER, annotations=one) for i, one in enumerate(said, 1)]
    moves = [move(f"x-{i}", f"p{i}") for i in range(1, len(said) + 1)]
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0)
    state = given(configured("migration", conf), node("a"), node("b"), shape("s"), *pods, plan("x", *moves, whole=True))
    advance(state)
    create(state, *(one.migration for one in moves))
    session_answers(state)
    return state, advance(state)


def word(state, i: int, after: int = 0, **said):
    annotations = {f"restow.dev/{k.replace('_', '-')}": v for k, v in said.items()}
    then(state, pod(f"p{i}", node="a", owner=OWNER, annotations=BY_ANNOTATION | annotations))
    return advance(state, after)


def test_all_workloads_of_a_node_are_asked_together_and_nobody_leaves_before_the_last_has_agreed():
    state, events = whole(BY_ANNOTATION, BY_ANNOTATION, {})
    assert [event.migration for event in events if isinstance(event, e.ConsentAsked)] == ["x-1", "x-2"]
    assert evicts(events) == []
    assert evicts(word(state, 1, move_acknowledged="x-1")) == []
    assert decider.deadline(state) == NOW + 5 * MINUTE
    assert len(evicts(word(state, 2, 4 * MINUTE, move_acknowledged="x-2"))) == 1


def test_one_workload_that_refuses_keeps_all_pods_of_a_node_that_is_emptied_wholly():
    state, _ = whole(BY_ANNOTATION, BY_ANNOTATION, {})
    word(state, 1, move_acknowledged="x-1")
    assert failed(word(state, 2, move_refused="x-2 no")) == {"x-2": "WorkloadRefused", "x-1": "Whole", "x-3": "Whole"}


# -- afterwards ------------------------------------------------------------------------------------------------------------


def test_a_workload_is_told_when_its_pod_has_landed():
    state = asked(BY_ANNOTATION | {hooks.AFTER: "annotation"})
    says(state, move_acknowledged=M)
    events = land(state, M, "p2", annotations={hooks.AFTER: "annotation"})
    assert [type(event) for event in events][-2:] == [e.WorkloadToTell, e.Landed]
    assert (events[-2].what, events[-2].pod, events[-2].way) == ("moved", "p2", "annotation")
    assert TellWorkload(M) in owed(state)
    assert run(state, decider, c.ReportTold(NOW, M, "nobody answers")) == [e.WorkloadTold(M, "nobody answers")]
    assert (state.tellings, state.consents) == ({}, {})


def test_a_snapshot_knows_who_was_asked_and_who_is_to_be_told():
    state = asked(BY_HTTP)
    assert AskConsent(M) in owed(snapshot.load(snapshot.dump(state)))
    run(state, decider, c.CancelPlan(NOW, "x"))
    advance(state)
    assert TellWorkload(M) in owed(snapshot.load(snapshot.dump(state)))


# -- what a workload says of itself ----------------------------------------------------------------------------------------

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("said", "cost"),
    [
        (None, 10), ("2023-11-14T20:13:20Z", 2), ("2023-11-14T22:13:20+01:00", 1), ("2023-11-14T22:13:21Z", 10), ("yesterday", 10), ("", 10),
        ("2023-11-14T20:13:20", 10), ("9999-12-31T23:59:59Z", 10), ("2020-01-01T00:00:00Z", 10),
    ],
)  # fmt: skip
def test_what_was_saved_last_counts_in_the_cost_of_a_move_and_what_cannot_be_or_cannot_be_read_does_not(said, cost):
    annotations = {} if said is None else {hooks.CHECKPOINTED: said}
    state = given(node("a"), shape("s"), pod("p", node="a", owner=OWNER, created=NOW - 10 * HOUR, annotations=annotations))
    assert Costs(state, {"age": 1}, NOW).cost(PodUid("p")) == MOVE + cost


def test_a_checkpoint_that_does_not_count_is_a_warning():
    pods = [pod(f"p{i}", node="a", annotations={hooks.CHECKPOINTED: said}) for i, said in enumerate(["2023-11-14T20:13:20Z", "2999-01-01T00:00:00Z", "soon"])]
    state = given(node("a"), shape("s"), *pods)
    state.time = NOW
    (told,) = warnings(state)
    assert told.startswith("restow.dev/checkpointed-at: of 2 pods it does not count, such as '2999-01-01T00:00:00Z' of default/p1; allowed: ")
