"""Nobody is evicted for a pod that cannot go there any more, or need not."""

from domain.build import NOW, changed, configured, given, node, pod, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider
TIERS = ((PluginConfig("priority"), PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("proportion"), PluginConfig("nodeorder")),)
BUSY = configured("session", SessionConfig(actions=(ActionConfig("allocate"), ActionConfig("preempt")), tiers=TIERS))


def nominated():
    """Pod `pod` is to go to node n, once `victim` has left."""
    state = given(BUSY, node("n", cpu=4_000), shape("low", cpu=4_000), shape("high", cpu=2_000, priority=5), pod("victim", "low", node="n"), pod("pod", "high"))
    assert any(isinstance(event, e.Nominated) for event in session_of(state))
    assert "victim" in state.victims_of
    return state


def session_of(state, at: int = NOW) -> list[e.Event]:
    return run(state, decider, c.Schedule(at, 1_000))


def test_a_victim_stays_where_its_node_was_cordoned_before_it_was_told_to_go():
    state = then(nominated(), node("n", cpu=4_000, unschedulable=True))
    assert decider.due(state, NOW) is not None
    assert e.NominationEnded("pod", "NoLongerFits") in session_of(state)
    assert not state.victims_of
    assert [type(event) for event in session_of(state)] == [e.Unfit]


def test_where_the_victim_is_on_its_way_already_the_node_may_come_back():
    state = then(nominated(), changed("victim", node="n", phase="Running", deleting=NOW), node("n", cpu=4_000, ready=False))
    assert session_of(state) == []
    then(state, e.PodGone("victim"), node("n", cpu=4_000))
    assert [event.node for event in session_of(state) if isinstance(event, e.PodPlaced)] == ["n"]


def test_a_pod_that_fits_elsewhere_meanwhile_goes_there_and_the_victim_stays():
    state = then(nominated(), node("m", cpu=2_000))
    assert [event.node for event in session_of(state) if isinstance(event, e.PodPlaced)] == ["m"]
    assert not state.victims_of
    assert not state.nominations
    assert session_of(state) == []


def test_whoever_waits_for_capacity_that_is_there_goes_before_one_whose_capacity_is_coming():
    state = then(nominated(), [pod("other", "high"), node("m", cpu=2_000)])
    assert [(event.pod, event.node) for event in session_of(state) if isinstance(event, e.PodPlaced)] == [("other", "m")]
    assert "pod" in state.nominations
    assert "victim" in state.victims_of


def test_what_is_promised_counts_as_before_for_one_that_fits_nowhere_else():
    state = then(nominated(), pod("small", "low"))
    before = dict(state.accounts.of("default"))
    session_of(state)
    session_of(state, NOW + 1)
    assert dict(state.accounts.of("default")) == before
    assert "pod" in state.nominations
