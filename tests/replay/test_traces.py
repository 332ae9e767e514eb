"""Traces as a view of the log."""

import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from property.fold_stories import Story
from replay.handmade import LOG_ID, PACKING, STEP, Handmade, migration, node, placements, pod, shape, time_at

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis
from restow.contracts.sampling import sampled
from restow.contracts.values import Move
from restow.domain.fold import evolve_one
from restow.domain.record_trust import Examined
from restow.domain.state import ClusterState
from restow.eventlog.port import Record
from restow.replay.state_at import state_at
from restow.replay.traces import Traces
from restow.tracing.spans import Link, Span, span_id, trace_id


def told(log, share=1.0, seq=None):
    traces, spans = Traces(LOG_ID, share), []
    state_at(log.source(), seq=seq, watch=lambda state, record, found: spans.extend(traces.hear(state, record, found)))
    return [*spans, *traces.rest()]


def tree(spans, trace):
    """Name → children's names in order of their begins, of one trace."""
    own = [span for span in spans if span.trace == trace]
    return {span.name: [child.name for child in sorted(own, key=lambda one: one.begin) if child.parent == span.id] for span in own if any(one.parent == span.id for one in own)}


def checked(spans):
    """What a collector may rely on."""
    assert len({(span.trace, span.id) for span in spans}) == len(spans)
    by_id = {(span.trace, span.id): span for span in spans}
    for span in spans:
        assert span.begin <= span.end
        assert (len(span.trace), len(span.id)) == (32, 16)
        if span.parent:
            parent = by_id[span.trace, span.parent]
            assert parent.begin <= span.begin
            assert span.end <= parent.end
    for trace in {span.trace for span in spans}:
        assert sum(not span.parent for span in spans if span.trace == trace) == 1


PLAN = trace_id(LOG_ID, "plan", "p1")


def test_a_plan_is_a_trace_with_its_moves_and_their_steps():
    spans = told(migration())
    checked(spans)
    assert tree(spans, PLAN) == {"plan Defragmentation": ["move shop/web-old"], "move shop/web-old": ["wait for its turn", "hold", "evict", "land"]}
    assert not any(span.error or span.open for span in spans if span.trace == PLAN)


def test_a_move_links_to_the_pod_that_was_moved_and_to_its_successor():
    (move,) = [span for span in told(migration()) if span.name.startswith("move")]
    old, new = (trace_id(LOG_ID, "pod", uid) for uid in ("uid-web-old", "uid-web-new"))
    assert [(link.trace, link.what) for link in move.links] == [(old, "moved pod"), (new, "successor")]
    assert move.values["restow.target"] == "b"


def test_a_pod_is_a_trace_from_when_it_was_seen_until_it_is_bound():
    spans = told(migration())
    own = trace_id(LOG_ID, "pod", "uid-web-new")
    assert tree(spans, own) == {"pod shop/web-new": ["wait", "bind"]}
    (root,) = [span for span in spans if span.trace == own and not span.parent]
    assert root.values["k8s.node.name"] == "b"


def test_what_was_decided_links_to_the_commit_by_its_own_traceparent():
    log = placements()
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    log.records = [
        Record(one.seq, one.family, Envelope(**{name: getattr(one.envelope, name) for name in one.envelope.__struct_fields__} | {"traceparent": parent}), one.body, one.time)
        for one in log.records
    ]
    waits = [span for span in told(log) if span.name == "wait" and not span.open]
    assert waits
    assert all(len(span.links) == 1 for span in waits)
    assert {(span.links[0].trace, span.links[0].span) for span in waits} == {("a" * 32, "b" * 16)}
    assert Link("a" * 32, "b" * 16, waits[0].links[0].what) == waits[0].links[0]


def test_the_same_log_gives_the_same_spans():
    assert told(migration()) == told(migration())


def test_what_has_not_ended_is_told_as_open_to_the_end_of_the_log():
    log = migration(lands=False)
    spans = told(log)
    checked(spans)
    open = [span for span in spans if span.open]
    assert {span.name for span in open} >= {"plan Defragmentation", "move shop/web-old"}
    assert {span.end for span in open} == {time_at(log.seq)}


def proposed(*answers):
    """A plan of two moves that waits for a person from 00:00:01 on."""
    log = Handmade()
    moves = tuple(Move(f"p-{n}", f"uid-{n}", "shop", f"web-{n}", "a", "b") for n in (1, 2))
    log.decide("migration", c.Defragment(time_at(1), "api", "p"), e.Planned("p", "Defragmentation", moves, PACKING, PACKING, mode="propose"))
    for answer in answers:
        log.decide("migration", c.Advance(time_at(log.seq + 1)), answer)
    return told(log)


def test_a_proposed_plan_begins_when_it_is_approved_with_what_is_approved():
    spans = proposed(e.PlanApproved("p", "ann", moves=("p-2",)))
    checked(spans)
    (waited,) = [span for span in spans if span.name == "wait for approval"]
    assert (waited.values, waited.end - waited.begin) == ({"restow.by": "ann"}, STEP)
    assert [span.name for span in spans if span.name.startswith("move")] == ["move shop/web-2"]


def test_a_plan_ends_although_a_pod_of_it_has_gone_while_it_waited_for_a_person():
    spans = told(migration(approved=("p1-1", "p1-2")))
    checked(spans)
    own = {span.name: span for span in spans if span.trace == PLAN}
    assert not [name for name, span in own.items() if span.open]
    assert own["move shop/web-other"].error == "its pod was gone when the plan began"
    assert (own["plan Defragmentation"].error, own["plan Defragmentation"].end) == ("", own["move shop/web-old"].end)


def test_a_rejected_plan_is_over_and_says_by_whom():
    spans = proposed(e.PlanRejected("p", "bob", "not now"))
    checked(spans)
    assert [(span.name, span.error) for span in spans if not span.parent] == [("plan Defragmentation", "bob: not now")]
    checked(proposed())
    checked(proposed(e.PlanCancelled("p", "it is too old")))


def test_a_pod_whose_bind_was_refused_waits_once_more():
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("x"))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-x", "a"))
    log.decide("session", c.RefuseBind(time_at(5), "uid-x", "a", "Conflict"), e.PodReleased("uid-x", "Conflict"))
    log.decide("session", c.Schedule(time_at(6)), e.PodPlaced("uid-x", "a"))
    log.facts(e.PodChanged("uid-x", node="a"))
    spans = told(log)
    checked(spans)
    own = sorted((span for span in spans if span.parent), key=lambda one: one.begin)
    assert [(span.name, span.error) for span in own] == [("wait", ""), ("bind", "Conflict"), ("wait", ""), ("bind", "")]


def test_a_pod_that_is_deleted_before_it_has_a_node_is_a_failure():
    log = placements()
    log.facts(e.PodObserved("uid-x", "shop", "x", _shape(log), 0))
    log.facts(e.PodGone("uid-x"))
    (root,) = [span for span in told(log) if span.name == "pod shop/x"]
    assert root.error == "it was deleted before it had a node"
    assert root.end - root.begin == STEP


@example(8484)  # a move of one plan was planned by another one, too, which no planner does
@settings(max_examples=examples(80))
@given(st.integers(0, 10_000))
def test_whatever_is_told_spans_form_trees(seed):
    state = ClusterState()
    story, traces, spans, gone = Story(seed, state), Traces(LOG_ID), [], set()
    later, of_later = Traces(LOG_ID), []
    for at, events in enumerate(story.chapters(3), 1):
        if at == 2:
            later.begin(state)
        for event in events:
            # No uid, and no name of a plan or a move, is ever used twice.
            names = {event.plan, *(move.migration for move in event.moves)} if isinstance(event, e.Planned) else {getattr(event, "pod", None)}
            if names & gone:
                continue
            if isinstance(event, e.PodGone | e.Planned):
                gone |= names
            evolve_one(state, event)
            state.time = max(state.time, at * 1000)
            record = Record(at, "migration", Envelope("", "", "", 0, ""), b"", 0)
            found = Examined(decisions=(Decision(c.Observe("pods", "watch"), (event,)),))
            spans += traces.hear(state, record, found)
            of_later += later.hear(state, record, found) if at > 1 else []
    checked([*spans, *traces.rest()])
    checked([*of_later, *later.rest()])


@given(st.integers(0, 1 << 60), st.floats(0, 1))
def test_a_trace_is_told_whole_or_not_at_all(number, share):
    trace = trace_id(LOG_ID, "pod", str(number))
    assert sampled(trace, 1.0)
    assert not sampled(trace, 0.0)
    assert sampled(trace, share) <= sampled(trace, min(1.0, share + 0.1))


def test_a_share_tells_whole_traces():
    every, some = told(migration()), told(migration(), share=0.5)
    chosen = {span.trace for span in every if sampled(span.trace, 0.5)}
    assert {span.trace for span in some} == chosen
    assert [span for span in every if span.trace in chosen] == some


def test_from_a_state_on_those_who_wait_are_told_from_when_they_were_made():
    log = placements()
    log.facts(e.PodObserved("uid-x", "shop", "x", _shape(log), time_at(2)))
    state = state_at(log.source())
    traces = Traces(LOG_ID)
    traces.begin(state)
    root, wait = sorted((span for span in traces.rest() if span.trace == trace_id(LOG_ID, "pod", "uid-x")), key=lambda span: span.parent)
    assert (root.name, root.begin, root.end) == ("pod shop/x", time_at(2), time_at(log.seq))
    assert {root.id, wait.id} == {span.id for span in told(log) if span.trace == root.trace}, "as by whoever reads all of it: it is not there twice"


@pytest.mark.parametrize("log", [migration(), migration(lands=False), migration(approved=("p1-1",)), migration(approved=("p1-1", "p1-2"))], ids=["lands", "does not", "approved", "gone"])
def test_from_any_state_on_a_plan_and_its_moves_are_told_with_the_same_ids_and_times(log):
    """As by `restow trace -f` that begins at a snapshot: what ends later is told as by whoever has read all."""
    whole = {span.id: span for span in told(log) if span.trace == PLAN}
    for cut in range(1, log.seq + 1):
        state = state_at(log.source(), seq=cut)
        traces, spans = Traces(LOG_ID), []
        traces.begin(state)
        state_at(log.source(), watch=lambda state, record, found, cut=cut, traces=traces, spans=spans: spans.extend(traces.hear(state, record, found)) if record.seq > cut else None)
        spans = [span for span in [*spans, *traces.rest()] if span.trace == PLAN]
        checked(spans) if spans else None
        now = Millis(state.time)
        later = {id for id, span in whole.items() if span.end > now or span.open}
        assert {span.id for span in spans} >= later, cut
        for span in spans:
            known = whole[span.id]
            assert (span.name, span.begin, span.end, span.error, span.open, span.parent) == (known.name, known.begin, known.end, known.error, known.open, known.parent)


def test_ids_of_spans_differ_by_trace_and_by_part():
    assert len({span_id(trace, key) for trace in "ab" for key in ("pod", "pod/1")}) == 4
    assert isinstance(told(migration())[0], Span)


def _events(record):
    from restow.replay.state_at import decode_record

    return [event for decision in decode_record(record) for event in decision.events]


def _shape(log):
    return next(event.shape for record in log.records for event in _events(record) if isinstance(event, e.PodObserved))
