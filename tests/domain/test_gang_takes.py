"""A gang that takes from others, or that nodes are reserved for, gets what makes it complete if there is any such capacity (RULES G-17)."""

from domain.build import NOW, configured, given, member, node, pod, pod_group, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.contracts.values import HostPort, LabelSelector, PodTerm, Spread
from restow.domain import session
from restow.domain.config import ActionConfig, SessionConfig

decider = session.decider
GROUPS = e.Synced("podgroups.scheduling.volcano.sh", "1")
RESERVE = ActionConfig("reserve", {"starvingJobTimeThreshold": "10"})


def acting(*actions: ActionConfig):
    return configured("session", SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate"), *actions)))


def decided(state, at: int = NOW) -> list[e.Event]:
    return run(state, decider, c.Schedule(at, 1_000))


def nominated(events) -> dict[str, str]:
    return {event.pod: event.node for event in events if isinstance(event, e.Nominated)}


def placed(events) -> dict[str, str]:
    return {event.pod: event.node for event in events if isinstance(event, e.PodPlaced)}


def large_first(*actions: ActionConfig):
    """Two small pods are the gang's minimum; the large one, which comes first, would take all that there is."""
    state = given(acting(*actions), GROUPS, node("n", cpu=4_000), *[shape("low"), shape("large", cpu=4_000, priority=5), shape("small", cpu=2_000, priority=5)])
    then(state, [pod(f"low-{i}", "low", node="n") for i in range(4)], pod_group("g", need=2))
    return then(state, [member("a", "g", "large"), member("b", "g", "small"), member("c", "g", "small")])


def test_a_gang_preempts_for_those_that_ask_for_least_where_a_large_one_would_keep_them_from_their_capacity():
    assert nominated(decided(large_first(ActionConfig("preempt")))) == {"b": "n", "c": "n"}


def test_nodes_are_reserved_for_those_that_ask_for_least_where_a_large_one_would_keep_them_from_their_capacity():
    events = decided(large_first(RESERVE), NOW + 60_000)
    assert {event.pod for event in events if isinstance(event, e.TaskReserved)} == {"b", "c"}


def test_a_pod_that_wants_to_be_beside_a_later_one_of_its_gang_preempts_with_it():
    beside = (PodTerm("zone", LabelSelector({"app": "leader"})),)
    state = given(acting(ActionConfig("preempt")), GROUPS, node("n", cpu=4_000, labels={"zone": "a"}), shape("low", cpu=4_000))
    then(state, shape("beside", cpu=2_000, priority=5, pod_affinity=beside), shape("leader", cpu=2_000, priority=5), pod("low", "low", node="n"))
    then(state, pod_group("g", need=2), [member("a", "g", "beside"), member("b", "g", "leader", labels={"app": "leader"})])
    assert nominated(decided(state)) == {"a": "n", "b": "n"}


def promised():
    """A gang of two that is to go to n and m, once low-n and low-m have left."""
    state = given(acting(ActionConfig("preempt")), GROUPS, node("n", cpu=4_000), node("m", cpu=4_000), shape("low", cpu=4_000), shape("s", cpu=3_000, priority=5))
    then(state, pod("low-n", "low", node="n"), pod("low-m", "low", node="m"), pod_group("g", need=2), [member("a", "g"), member("b", "g")])
    assert set(nominated(decided(state)).values()) == {"n", "m"}
    return state


def test_the_victims_of_a_gang_stay_where_one_of_its_nodes_was_cordoned_before_they_were_told_to_go():
    state = then(promised(), node("n", cpu=4_000, unschedulable=True))
    events = decided(state)
    assert {event.pod for event in events if isinstance(event, e.PreemptionEnded)} == {"low-n", "low-m"}
    assert not state.nominations
    assert not nominated(decided(state))


def test_where_a_gangs_victim_is_on_its_way_already_the_node_may_come_back():
    state = then(promised(), changed_to_go("low-n"), changed_to_go("low-m"), node("n", cpu=4_000, ready=False))
    assert decided(state) == []
    then(state, e.PodGone("low-n"), e.PodGone("low-m"), node("n", cpu=4_000))
    assert set(placed(decided(state)).values()) == {"n", "m"}


def changed_to_go(name: str, node: str = "") -> e.PodChanged:
    return e.PodChanged(name, node=node or name.removeprefix("low-"), phase="Running", deleting=NOW)


def test_a_gang_that_fits_elsewhere_meanwhile_goes_there_and_its_victims_stay():
    state = then(promised(), node("x", cpu=8_000))
    assert decider.due(state, NOW) is not None
    assert placed(decided(state)) == {"a": "x", "b": "x"}
    assert not state.victims_of
    assert not state.nominations


def test_a_gang_of_which_one_pod_has_its_capacity_goes_where_the_other_fits_meanwhile():
    state = promised()
    one = next(uid for uid, nomination in state.nominations.items() if nomination.node == "n")
    then(state, changed_to_go("low-m"), e.PodGone("low-n"), node("x", cpu=3_000))
    assert placed(decided(state)) == {one: "n", ({"a", "b"} - {one}).pop(): "x"}


def test_a_gang_of_which_only_one_pod_fits_elsewhere_stays_where_it_is_and_what_is_promised_counts_as_before():
    state = then(promised(), node("x", cpu=3_000))
    before, free = dict(state.accounts.of("default")), state.table.free.tolist()
    assert decided(state) == []
    assert decided(state, NOW + 1) == []
    assert (dict(state.accounts.of("default")), state.table.free.tolist()) == (before, free)
    assert len(state.nominations) == len(state.victims_of) == 2


def test_a_pod_whose_capacity_is_there_but_of_no_use_yet_goes_where_it_fits_meanwhile():
    """Its port is taken by one that leaves for long."""
    state = given(acting(ActionConfig("preempt")), node("n", cpu=4_000), shape("low", cpu=3_000), shape("s", cpu=3_000, priority=5, host_ports=(HostPort(80),)))
    then(state, shape("web", cpu=500, host_ports=(HostPort(80),)), pod("low", "low", node="n"), pod("web", "web", node="n"), pod("a"))
    assert nominated(decided(state)) == {"a": "n"}
    then(state, e.PodGone("low"), e.PodChanged("web", node="n", phase="Running", deleting=NOW), node("x", cpu=4_000))
    assert state.nominations["a"].complete
    assert placed(decided(state)) == {"a": "x"}



ZONES = {"n": {"zone": "a"}, "m": {"zone": "b"}}
SPREAD = (Spread(1, "zone", "DoNotSchedule", LabelSelector({"app": "x"})),)


def spread_over_two_zones():
    """Zone b has one of the app already. Of the gang one is to go to zone a when `goes` has ended, and only then one more may be in b."""
    state = given(acting(ActionConfig("preempt")), GROUPS, [node(name, cpu=4_000, labels=labels) for name, labels in ZONES.items()])
    then(state, shape("s", cpu=2_000), shape("large", cpu=4_000), shape("first", cpu=2_000, spread=SPREAD), shape("second", cpu=4_000, spread=SPREAD))
    then(state, pod("there", node="m", labels={"app": "x"}), pod("goes", "large", node="n"), changed_to_go("goes", "n"))
    return then(state, pod_group("g", need=2), [member("a", "g", "second", labels={"app": "x"}), member("b", "g", "first", labels={"app": "x"})])


def test_what_is_held_for_one_of_a_gang_that_may_only_be_there_beside_another_waits_for_that_one():
    state = spread_over_two_zones()
    assert nominated(decided(state)) == {"a": "n", "b": "m"}
    assert [decided(state, NOW + at) for at in range(3)] == [[], [], []]
    then(state, e.PodGone("goes"))
    assert placed(decided(state)) == {"a": "n", "b": "m"}


def test_of_those_that_follow_a_gang_whoever_fits_starts_although_one_before_it_does_not():
    state = given(acting(), GROUPS, node("n", cpu=4_000), shape("s"), shape("half", cpu=2_000), shape("large", cpu=4_000), pod_group("g", need=1))
    then(state, pod("busy", "half", node="n"), pod("goes", node="n"), member("a", "g", node="n"), [member("b", "g", "large"), member("c", "g")])
    assert placed(decided(state)) == {}
    then(state, e.PodGone("goes"))
    assert placed(decided(state)) == {"c": "n"}


def at_rest(state) -> None:
    for _ in range(10):
        if (due := decider.due(state, Millis(NOW))) is None:
            return
        run(state, decider, due)
    raise AssertionError("sessions without end")


def test_half_a_gangs_capacity_asks_for_no_session_until_the_other_half_has_come():
    state = then(promised(), changed_to_go("low-n"), changed_to_go("low-m"), e.PodGone("low-n"))
    at_rest(state)
    then(state, shape("another"), e.PodChanged("low-m", node="m", phase="Running", deleting=NOW, ready=False))
    assert decider.due(state, Millis(NOW)) is None, "nothing has moved"
    then(state, e.PodGone("low-m"))
    assert set(placed(run(state, decider, decider.due(state, Millis(NOW)))).values()) == {"n", "m"}


def test_a_gang_that_waits_for_the_rest_of_its_capacity_is_settled_when_it_has_lost_a_member():
    state = then(promised(), changed_to_go("low-n"), changed_to_go("low-m"), e.PodGone("low-n"))
    at_rest(state)
    then(state, member("c", "g"))
    at_rest(state)
    then(state, e.PodGone("c"))
    assert decider.due(state, Millis(NOW)) is not None
