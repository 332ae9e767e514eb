"""Whatever is there: who waits when nothing can be placed any more has a reason, who was placed was compared, and asking leaves
no trace."""

from domain.build import NOW, given, run
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from oracle.strategies import FEATURES, worlds

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.session.verdict import choice, explain
from restow.domain.snapshot import dump
from restow.domain.state import ClusterState

PROGRESS = (e.PodPlaced, e.HandedOver, e.HoldPlaced, e.Enqueued, e.PodReleased)


def step(state: ClusterState) -> list[e.Event]:
    return run(state, session.decider, c.Schedule(NOW, 1_000))


def settled(facts) -> ClusterState:
    state = given(*facts)
    for _ in range(30):
        if not any(isinstance(event, PROGRESS) for event in step(state)):
            return state
    raise AssertionError("sessions without an end")


@settings(max_examples=examples(150), deadline=None)
@for_all(st.sampled_from([FEATURES, *((feature,) for feature in FEATURES)]).flatmap(worlds))
def test_every_pod_that_waits_has_a_reason_and_asking_leaves_no_trace(facts):
    state = settled(facts)
    image, epoch = dump(state), state.capacity_epoch
    for uid in state.pods:
        verdict = explain(state, uid)
        if verdict.status == "waiting":
            gang = verdict.gang is not None and not verdict.gang.complete
            assert not verdict.fits or verdict.blocks or gang or verdict.reserved, (uid, verdict)
            assert verdict.reasons or verdict.blocks or gang or not state.nodes, (uid, verdict)
        assert all(relief.nodes <= len(state.nodes) for relief in verdict.reliefs)
    assert (dump(state), state.capacity_epoch) == (image, epoch)


@settings(max_examples=examples(100), deadline=None)
@for_all(st.sampled_from([FEATURES, *((feature,) for feature in FEATURES)]).flatmap(worlds))
def test_the_first_node_that_is_chosen_is_the_best_and_no_other_has_more(facts):
    before, after = given(*facts), given(*facts)
    first = next(iter(step(after)), None)
    if not isinstance(first, e.PodPlaced):
        return
    chosen = choice(before, first.pod, first.node)
    assert chosen is not None
    assert chosen.fits >= 1
    assert not chosen.next or chosen.score >= chosen.next_score
