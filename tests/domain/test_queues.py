"""Queues that take no jobs, whichever plugins are active; and the sums that plugins of queues work with."""

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
    reservation,
    run,
    shape,
    then,
)
from effort import examples
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import PluginConfig, SessionConfig
from restow.domain.groups import group_of
from restow.domain.session import queues, sums
from restow.domain.session.job_turns import Turns
from restow.domain.session.registry import open_session

decider = session.decider


def schedule(state, after=0):
    return run(state, decider, c.Schedule(NOW + after, 1_000))


def placed(events):
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def why(state, pod):
    said = state.waiting[state.parked[pod][0]]
    return said.reason, said.message


def without_queue_plugins():
    return configured("session", SessionConfig(tiers=((PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("nodeorder")),)))


@pytest.mark.parametrize("conf", [(), (without_queue_plugins(),)], ids=["the default", "no plugin of queues"])
class TestWhicheverPluginsAreActive:
    def test_pods_of_a_missing_queue_wait_and_others_go_on(self, conf):
        state = given(*conf, node("n"), shape("s"), in_queue("lost", "none"), pod("p"))
        assert placed(schedule(state)) == ["p"]
        assert why(state, "lost") == ("QueueNotFound", "queue none does not exist")

    def test_they_start_as_soon_as_it_is_there_and_wait_again_for_its_opening(self, conf):
        state = given(*conf, node("n"), shape("s"), in_queue("p", "q"))
        schedule(state)
        then(state, queue("q", state="Closed"))
        schedule(state, after=1)
        assert why(state, "p") == ("QueueClosed", "queue q is Closed")
        then(state, queue("q"))
        assert placed(schedule(state, after=2)) == ["p"]

    def test_a_group_of_a_missing_queue_is_not_admitted_and_its_pods_say_why(self, conf):
        state = given(*conf, node("n"), shape("s"), pod_group("g", "none", phase="Pending"), member("m", "g"))
        assert not [event for event in schedule(state) if isinstance(event, e.Enqueued)]
        assert why(state, "m") == ("QueueNotFound", "queue none does not exist")

    def test_a_queue_that_cannot_be_read_says_so(self, conf):
        state = given(*conf, node("n"), shape("s"), queue("q", invalid="spec.weight: 0; allowed: 1 to 9"), in_queue("p", "q"))
        schedule(state)
        assert why(state, "p") == ("InvalidQueue", "queue q: spec.weight: 0; allowed: 1 to 9")

    def test_a_guarantee_above_the_capability_is_refused(self, conf):
        state = given(*conf, node("n"), shape("s"), queue("q", guarantee={"cpu": 2}, capability={"cpu": 1}), in_queue("p", "q"), pod("d"))
        assert placed(schedule(state)) == ["d"]
        assert why(state, "p") == ("InvalidQueue", "queue q: guarantee of cpu 2m is above its capability 1m")


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_the_dominant_share_is_the_greatest_and_of_nothing_a_whole():
    assert queues.share({0: 1, 1: 3}, {0: 4, 1: 4}) == 750_000_000
    assert queues.share({0: 1}, {0: 0}) == queues.SCALE
    assert queues.share({}, {0: 0}) == 0


def test_a_queue_loses_only_what_it_is_above_in_and_what_helps():
    assert queues.may_lose({0: 5}, ((0, 1),), {0: 4}, [0], {})
    assert not queues.may_lose({0: 4}, ((0, 1),), {0: 4}, [0], {})
    assert not queues.may_lose({0: 5}, ((0, 2),), {0: 4}, [0], {})
    assert not queues.may_lose({0: 5, 1: 1}, ((0, 1),), {0: 4, 1: 4}, [1], {})
    assert queues.may_lose({0: 5, 1: 1}, ((0, 1), (1, 1)), {0: 4, 1: 4}, [0, 1], {})
    assert queues.may_lose({0: 5, 1: 8}, ((0, 2), (1, 2)), {0: 4, 1: 4}, [0, 1], {}), "of one it is above by less than that"
    assert not queues.may_lose({0: 5, 1: 8}, ((0, 2), (1, 2)), {0: 4, 1: 4}, [0], {}), "and nobody asks for the other one"
    assert not queues.may_lose({0: 5, 1: 8}, ((0, 2), (1, 2)), {0: 4, 1: 4}, [0, 1], {0: 4}), "what is guaranteed stays"


# -- turns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
@settings(max_examples=examples(60), deadline=None)
@drawn(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([1, 1, 1, -1]), st.booleans()), max_size=25))
def test_whose_turn_it_is_is_found_as_if_all_were_asked(plugin, happened):
    conf = configured("session", SessionConfig(tiers=((PluginConfig(plugin),),)))
    tree = {"c": "p", "d": "p"} if plugin == "capacity" else {}
    facts = [queue(name, at + 1, deserved={"cpu": 1_000 * at}, parent=tree.get(name, "")) for at, name in enumerate("abcdp")]
    state = given(conf, node("n", cpu=12_000), shape("s"), *facts, *[in_queue(f"{name}{i}", name) for name in "abcd" for i in range(9)])
    opened = open_session(state, NOW, 1_000)
    left = dict.fromkeys("abcd")
    turns = Turns(opened, left)
    for name, sign, goes in happened:
        opened.charge_queue(name, "s", sign)
        if goes and len(left) > 1:
            left.pop(name, None)
        assert turns.first() == min(left, key=lambda q: (*opened.extensions.key("queueOrder", q), q))
    opened.close()


# -- sums ------------------------------------------------------------------------------------------------------------


def slow_sums(state):
    """Everything added up anew."""
    waiting, kinds, groups, incoming = {}, {}, {}, {}
    for uid, pod_ in state.pods.items():
        items = state.vectors[pod_.fact.shape].items
        if state.awaits_placement(uid):
            name = state.queue_of(pod_.fact)
            amounts = waiting.setdefault(name, {})
            for column, amount in items:
                amounts[column] = amounts.get(column, 0) + amount
            counts = kinds.setdefault(name, {})
            counts[pod_.fact.shape] = counts.get(pod_.fact.shape, 0) + 1
            if group_of(pod_.fact) is not None:
                counts = incoming.setdefault(name, {}).setdefault(group_of(pod_.fact), {})
                counts[pod_.fact.shape] = counts.get(pod_.fact.shape, 0) + 1
        group = group_of(pod_.fact)
        live = state.pods[uid].live
        ready = live.phase == "Succeeded" or (live.phase != "Failed" and not live.deleting and state.node_of(uid) is not None)
        charge = state.charges.get(uid)
        charged = charge is not None and not charge.releasing
        if group is not None and (ready or charged):
            use = groups.setdefault(group, [0, {}])
            use[0] += ready
            for column, amount in items if charged else ():
                use[1][column] = use[1].get(column, 0) + amount
    table = state.table
    return {
        "waiting": waiting, "kinds": kinds, "groups": groups, "incoming": incoming,
        "allocatable": [sum(map(int, table.allocatable[:, at])) for at in range(len(table.columns))],
        "charged": [sum(map(int, table.used[:, at])) + sum(map(int, table.reserved[:, at])) for at in range(len(table.columns))],
    }


def kept_sums(state):
    known, nodes = sums.ledger(state), sums.totals(state)
    return {
        "waiting": known.waiting, "kinds": known.shapes, "incoming": known.incoming, "groups": {g: [u.ready, u.used] for g, u in known.groups.items()},
        "allocatable": nodes.allocatable, "charged": nodes.charged,
    }


names = st.sampled_from("pqrstu")
happenings = st.lists(
    st.one_of(
        st.builds(lambda n, cpu: node(f"n{n}", cpu=cpu), st.integers(0, 3), st.sampled_from([1_000, 8_000, 1 << 60])),
        st.builds(lambda n: e.NodeGone(f"n{n}"), st.integers(0, 3)),
        st.builds(lambda n, s: pod(n, s), names, st.sampled_from(["s", "big"])),
        st.builds(lambda n, q: in_queue(n, q), names, st.sampled_from("ab")),
        st.builds(lambda n, g: member(n, g), names, st.sampled_from(["g", "h"])),
        st.builds(lambda n, at: changed(n, node=f"n{at}", phase="Running"), names, st.integers(0, 3)),
        st.builds(lambda n, phase: changed(n, node="n0", phase=phase), names, st.sampled_from(["Succeeded", "Failed"])),
        st.builds(lambda n: changed(n, node="n0", phase="Running", deleting=NOW), names),
        st.builds(e.PodGone, names),
        st.builds(lambda g, q, need: pod_group(g, q, need), st.sampled_from(["g", "h"]), st.sampled_from(["a", "b", ""]), st.integers(1, 2)),
        st.just(reservation("res", ("t", 2, "s"))),
        st.just("schedule"),
    ),
    max_size=30,
)


@settings(max_examples=examples(150), deadline=None)
@drawn(happenings)
def test_sums_that_are_kept_are_those_added_up_anew(happened):
    state = given(shape("s"), shape("big", cpu=3_000), queue("a"), queue("b"), node("n0"))
    for at, what in enumerate(happened):
        if what == "schedule":
            schedule(state, after=at)
        else:
            then(state, what)
        assert kept_sums(state) == slow_sums(state)


def test_a_draft_leaves_nothing_behind_in_sums():
    state = given(shape("s"), node("n0"), pod("p"), member("m", "g"))
    before = slow_sums(state)
    with state.draft():
        then(state, e.PodPlaced("p", "n0"), e.PodPlaced("m", "n0"))
        assert kept_sums(state) == slow_sums(state)
    assert kept_sums(state) == before
