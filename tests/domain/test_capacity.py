"""Plugin capacity: amounts of one's own in a tree of queues; what is wrong there stops nobody else."""

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
from restow.domain import config, session
from restow.domain import reservation as reservations
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.plugins.capacity.claims import Claims
from restow.domain.session.plugins.capacity.hierarchy import plant
from restow.domain.session.plugins.capacity.plugin import Tree
from restow.domain.session.registry import open_session

decider = session.decider
CAPACITY = configured(
    "session",
    SessionConfig(
        actions=tuple(ActionConfig(name) for name in ("enqueue", "allocate", "backfill")),
        tiers=tuple(tuple(map(PluginConfig, names)) for names in (("priority", "gang"), ("drf", "predicates", "capacity", "nodeorder"))),
    ),
)


def cluster(*queues, cpu=10_000, **more):
    return given(CAPACITY, node("n", cpu=cpu, **more), shape("s"), *queues)


def wanting(state, **pods):
    """So many pods of one core in each queue."""
    return then(state, *[in_queue(f"{name}{i}", name) for name, count in pods.items() for i in range(count)])


def schedule(state, after=0):
    return run(state, decider, c.Schedule(NOW + after, 1_000))


def settle(state):
    got = []
    while new := [event.pod for event in schedule(state) if isinstance(event, e.PodPlaced)]:
        got += new
    return got


def counts(names):
    return {letter: sum(name.startswith(letter) for name in names) for letter in sorted({name[0] for name in names})}


def why(state, pod):
    said = state.waiting[state.parked[pod][0]]
    return said.reason, said.message


def tree(state):
    opened = open_session(state, NOW, 1_000)
    opened.close()
    return Tree(opened)


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_queue_borrows_beyond_what_it_deserves_up_to_its_capability():
    state = cluster(queue("a", deserved={"cpu": 2_000}, capability={"cpu": 6_000}))
    assert counts(settle(wanting(state, a=10))) == {"a": 6}
    assert why(state, "a9") == ("QueueQuota", "queue a has no cpu left that it may use")


def test_what_is_guaranteed_to_one_is_kept_from_all_others():
    state = cluster(queue("a"), queue("b", guarantee={"cpu": 3_000}))
    assert counts(settle(wanting(state, a=10))) == {"a": 7}
    assert why(state, "a9") == ("QueueQuota", "queue root has no cpu left beside other queues, which are guaranteed the rest (queue a is below it)")
    assert counts(settle(wanting(state, b=10))) == {"b": 3}


def test_a_childs_pods_count_for_all_above_it():
    state = cluster(queue("p", capability={"cpu": 5_000}), queue("a", parent="p", capability={"cpu": 4_000}), queue("b", parent="p"))
    got = counts(settle(wanting(state, a=10, b=10)))
    assert got["a"] + got["b"] == 5
    assert got["a"] <= 4
    assert why(state, "b9") == ("QueueQuota", "queue p has no cpu left that it may use (queue b is below it)")


def test_what_a_grandchild_is_guaranteed_is_kept_from_its_cousins_and_from_strangers():
    state = cluster(
        queue("p"), queue("q", parent="p"), queue("a", parent="q", guarantee={"cpu": 4_000}), queue("b", parent="q"), queue("d", parent="p"),
        queue("x"),
    )
    assert len(settle(wanting(state, b=10, d=10, x=10))) == 6
    assert len(settle(wanting(state, a=10))) == 4


def test_who_has_less_of_what_it_deserves_comes_first_and_who_deserves_nothing_comes_last():
    state = cluster(queue("a", deserved={"cpu": 4_000}), queue("b", deserved={"cpu": 8_000}), queue("x"), cpu=6_000)
    assert counts(settle(wanting(state, a=9, b=9, x=9))) == {"a": 2, "b": 4}


def test_queues_of_higher_priority_come_first():
    state = cluster(queue("a", deserved={"cpu": 4_000}), queue("b", priority=5), cpu=6_000)
    assert counts(settle(wanting(state, a=9, b=5))) == {"a": 1, "b": 5}


def test_siblings_compete_below_their_parents_and_parents_with_theirs():
    """p and x deserve the same; p's two children share what is p's."""
    state = cluster(
        queue("p", deserved={"cpu": 4_000}), queue("a", parent="p", deserved={"cpu": 2_000}),
        queue("b", parent="p", deserved={"cpu": 2_000}), queue("x", deserved={"cpu": 4_000}), cpu=8_000,
    )
    assert counts(settle(wanting(state, a=9, b=9, x=9))) == {"a": 2, "b": 2, "x": 4}


def test_only_leaves_take_jobs():
    state = cluster(queue("p"), queue("a", parent="p"))
    wanting(state, p=1, a=1)
    then(state, in_queue("r0", "root"))
    assert settle(state) == ["a0"]
    assert why(state, "p0") == ("QueueNotLeaf", "queue p has queues below it; only those take jobs")
    assert state.parked["r0"][0].startswith("Queue")


def test_a_job_in_the_default_queue_needs_no_object():
    state = then(cluster(queue("a")), pod("p"))
    assert settle(state) == ["p"]


# -- wrong trees -----------------------------------------------------------------------------------------------------

WRONG = {
    "a circle": ([queue("a", parent="b"), queue("b", parent="a")], "queue a: its parents go round in a circle: a → b → a"),
    "itself": ([queue("a", parent="a")], "queue a: its parents go round in a circle: a → a"),
    "below a circle": (
        [queue("a", parent="b"), queue("b", parent="c"), queue("c", parent="b")],
        "queue a: its parents go round in a circle: b → c → b",
    ),
    "no parent": ([queue("a", parent="none")], "queue a: its parent none does not exist"),
    "no grandparent": ([queue("a", parent="b"), queue("b", parent="none")], "queue a: queue b's parent none does not exist"),
    "guarantee above capability": (
        [queue("a", guarantee={"cpu": 3_000}, capability={"cpu": 2_000})],
        "queue a: guarantee of cpu 3 is above its capability 2",
    ),
    "deserved above capability": (
        [queue("a", deserved={"cpu": 3_000}, capability={"cpu": 2_000})],
        "queue a: deserved of cpu 3 is above its capability 2",
    ),
    "children's guarantees above the parent's": (
        [queue("p", guarantee={"cpu": 3_000}), queue("a", parent="p", guarantee={"cpu": 2_000}), queue("c", parent="p", guarantee={"cpu": 2_000})],
        "queue a: queue p: its children's guarantees add up to cpu 4, above its own 3",
    ),
    "children's guarantees above the parent's capability": (
        [queue("p", capability={"cpu": 3_000}), queue("a", parent="p", guarantee={"cpu": 2_000}), queue("c", parent="p", guarantee={"cpu": 2_000})],
        "queue a: queue p: guarantee of cpu 4 is above its capability 3",
    ),
    "a guarantee above the cluster": (
        [queue("a", guarantee={"cpu": 10**18})],
        "queue a: guarantee of cpu 1P is above what the cluster has, 10",
    ),
    "unreadable": ([queue("a", invalid="spec.weight: -1; allowed: 1 to 9")], "queue a: spec.weight: -1; allowed: 1 to 9"),
    "below an unreadable one": ([queue("p", invalid="bad"), queue("a", parent="p")], "queue a: queue p: bad"),
}


@pytest.mark.parametrize(("queues", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_queue_is_told_so_and_all_others_go_on(queues, message):
    state = wanting(cluster(*queues, queue("x", deserved={"cpu": 1_000})), a=2, x=10)
    assert counts(settle(state)) == {"x": 10}
    assert why(state, "a0") == ("InvalidQueue", message)


def test_when_the_queue_is_put_right_its_pods_start():
    state = wanting(cluster(queue("a", parent="none")), a=2)
    assert settle(state) == []
    then(state, queue("none"))
    assert settle(state) == ["a0", "a1"]


def test_below_a_closed_queue_all_are_closed():
    state = wanting(cluster(queue("p", state="Closed"), queue("a", parent="p")), a=1)
    assert settle(state) == []
    assert why(state, "a0") == ("QueueClosed", "queue a is Closed")


# -- groups ----------------------------------------------------------------------------------------------------------


def test_groups_are_admitted_while_their_minimum_fits_beside_what_is_used_and_promised_also_above():
    state = cluster(queue("p", capability={"cpu": 5_000}), queue("a", parent="p"), queue("b", parent="p"))
    then(state, *[in_queue(f"b{i}", "b", node="n") for i in range(2)])
    then(state, *[pod_group(f"g{i}", "a", phase="Pending", min_resources={"cpu": 2_000}) for i in range(2)], member("m", "g1"))
    assert [event.group for event in schedule(state) if isinstance(event, e.Enqueued)] == ["g0"]
    assert why(state, "m") == (
        "NotEnqueued", "queue p has no cpu left that it may use for the group's minimum (queue a is below it)",
    )


def test_what_an_admitted_group_uses_already_is_not_counted_twice():
    state = cluster(queue("a", capability={"cpu": 4_000}))
    then(state, pod_group("g", "a", need=2, min_resources={"cpu": 2_000}), member("m0", "g", node="n"))
    then(state, pod_group("h", "a", phase="Pending", min_resources={"cpu": 2_000}))
    assert [event.group for event in schedule(state) if isinstance(event, e.Enqueued)] == ["h"]


@pytest.mark.parametrize("guaranteed", [1_000, 4_000])
def test_what_a_queue_is_guaranteed_later_takes_nobody_past_the_capability_above_it(guaranteed):
    state = cluster(queue("p", capability={"cpu": 4_000}), queue("a", parent="p"), queue("b", parent="p"), cpu=8_000)
    then(state, *[in_queue(f"b{i}", "b", node="n") for i in range(4)])
    then(state, queue("a", parent="p", guarantee={"cpu": guaranteed}))
    assert settle(wanting(state, a=5)) == []
    assert state.waiting[state.parked["a0"][0]].message == "queue p has no cpu left that it may use (queue a is below it)"
    then(state, e.PodGone("b0"))
    assert settle(state) == ["a0"], "as soon as some of it is used no more"


# -- reclaiming ------------------------------------------------------------------------------------------------------


def borrowed(**more):
    state = cluster(queue("a", deserved={"cpu": 4_000}, **more), queue("b", deserved={"cpu": 6_000}))
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(10)])
    return wanting(state, b=10)


def test_what_was_borrowed_is_reclaimed_down_to_what_is_deserved():
    assert tree(borrowed()).reclaimable("b0", [f"a{i}" for i in range(10)]) == [f"a{i}" for i in range(6)]


def test_a_queue_keeps_what_it_is_guaranteed_and_an_unreclaimable_one_everything():
    assert tree(borrowed(guarantee={"memory": 8 << 30})).reclaimable("b0", [f"a{i}" for i in range(10)]) == ["a0", "a1"]
    assert tree(borrowed(reclaimable=False)).reclaimable("b0", ["a0"]) == []


def test_who_deserves_nothing_has_borrowed_all_of_it_and_reclaims_nothing():
    state = cluster(queue("x"), queue("b", deserved={"cpu": 6_000}), *[in_queue(f"x{i}", "x", node="n") for i in range(10)])
    wanting(state, b=2, x=1)
    then(state, in_queue("y", "x"))
    found = tree(state)
    assert found.reclaimable("b0", ["x1", "x2"]) == ["x1", "x2"]
    assert found.preemptive("b", state.pods["b0"].fact)
    assert not found.preemptive("x", state.pods["y"].fact)


def test_from_a_cousin_only_what_its_parent_has_borrowed_too():
    state = cluster(
        queue("p", deserved={"cpu": 9_000}), queue("a", parent="p", deserved={"cpu": 2_000}), queue("b", deserved={"cpu": 6_000}),
    )
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(10)])
    wanting(state, b=1)
    assert tree(state).reclaimable("b0", ["a0", "a1", "a2"]) == ["a0"]


def family(**cousin):
    """Below p, which deserves 6 cores and uses them all, a has borrowed from b. Cousin c uses the rest."""
    state = cluster(
        queue("p", deserved={"cpu": 6_000}), queue("a", parent="p", deserved={"cpu": 3_000}), queue("b", parent="p", deserved={"cpu": 3_000}),
        queue("c", deserved={"cpu": 1_000}, **cousin),
    )  # fmt: skip
    then(state, *[in_queue(f"a{i}", "a", node="n") for i in range(6)], *[in_queue(f"c{i}", "c", node="n") for i in range(4)])
    return wanting(state, b=1)


def test_what_a_sibling_has_borrowed_is_taken_back_although_their_parent_has_all_that_it_deserves():
    """What victims leave below the parent is what the claimer takes there: the parent uses no more than before."""
    state = family()
    assert tree(state).preemptive("b", state.pods["b0"].fact)
    assert tree(state).reclaimable("b0", ["a5", "a4", "a3", "a2"]) == ["a5", "a4", "a3"]


def test_from_a_cousin_nothing_is_taken_for_a_parent_that_has_all_that_it_deserves():
    state = family()
    assert tree(state).reclaimable("b0", ["c0", "c1"]) == []


def test_from_a_cousin_as_much_is_taken_as_the_parent_deserves():
    state = family()
    then(state, e.PodGone("a5"))
    assert tree(state).reclaimable("b0", ["c0", "a0"]) == ["c0", "a0"]


def test_the_whole_session_takes_back_what_a_sibling_has_borrowed():
    state = family()
    names = ("enqueue", "allocate", "reclaim")
    tiers = tuple(tuple(map(PluginConfig, names)) for names in (("priority", "gang"), ("predicates", "capacity", "nodeorder")))
    then(state, configured("session", SessionConfig(actions=tuple(map(ActionConfig, names)), tiers=tiers)))
    assert [event.pod[0] for event in schedule(state) if isinstance(event, e.Preempted)] == ["a"]


def test_a_queue_above_what_it_deserves_of_something_takes_nothing():
    state = cluster(queue("b", deserved={"cpu": 6_000, "memory": 1 << 30}), in_queue("b9", "b", node="n"))
    wanting(state, b=1)
    assert not tree(state).preemptive("b", state.pods["b0"].fact)


# -- trees in general ------------------------------------------------------------------------------------------------

amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 12), max_size=2)
facts = st.builds(
    lambda name, parent, c, g, d: queue(name, parent=parent, capability=c, guarantee=g, deserved=d),
    st.sampled_from("abcdef"), st.sampled_from(["", "root", "a", "b", "c", "default", "none"]), amounts, amounts, amounts,
)  # fmt: skip


@settings(max_examples=examples(400), deadline=None)
@drawn(st.lists(facts, max_size=6, unique_by=lambda q: q.name), st.integers(0, 20), st.randoms())
def test_any_tree_is_judged_and_its_order_does_not_matter(queues, total, random):
    whole = {"cpu": total, "memory": total}
    got = plant({q.name: q for q in queues}, whole)
    random.shuffle(queues)
    again = plant({q.name: q for q in queues}, whole)
    assert {n: (p.wrong, p.real, p.deserved, p.above) for n, p in got.items()} == {
        n: (p.wrong, p.real, p.deserved, p.above) for n, p in again.items()
    }
    for place in got.values():
        for resource, most in place.real.items():
            assert most >= 0
            assert resource not in place.capability or most <= max(place.capability[resource], 0)
            for above in place.above:
                if not place.wrong:
                    assert most <= got[above].real.get(resource, most)
        if place.above and got[place.above[0]].wrong:
            assert place.wrong


def claims_of(queues, total):
    places = plant({q.name: q for q in queues}, {"cpu": total})
    used = {}
    return places, used, Claims(places, {"cpu": 0}, [total], lambda name: {0: used.get(name, 0)}, ())


def claim_by_brute_force(places, used, name):
    place = places[name]
    inside = used.get(name, 0) + sum(claim_by_brute_force(places, used, child) for child in place.below)
    return inside if name == "root" else max(inside, place.guarantee.get("cpu", 0) if not place.wrong else 0)


cpus = st.one_of(st.just({}), st.builds(lambda amount: {"cpu": amount}, st.integers(0, 9)))
branches = st.builds(
    lambda name, parent, c, g: queue(name, parent=parent, capability=c, guarantee=g),
    st.sampled_from("abcdef"), st.sampled_from(["", "a", "b", "c"]), cpus, cpus,
)  # fmt: skip


@settings(max_examples=examples(400), deadline=None)
@drawn(
    st.lists(branches, min_size=1, max_size=6, unique_by=lambda q: q.name),
    st.integers(0, 20),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "f", "default"]), st.integers(1, 4)), max_size=20),
)
def test_whatever_others_take_each_can_have_what_it_is_guaranteed_and_no_limit_is_broken(queues, total, asked):
    places, used, claims = claims_of(queues, total)
    for name, amount in asked:
        place = places.get(name)
        if place is None or place.wrong or place.below or claims.refuses(name, ((0, amount),)) is not None:
            continue
        used[name] = used.get(name, 0) + amount
        claims.charge(name, ((0, amount),), 1)
    for place in places.values():
        claim = claim_by_brute_force(places, used, place.name)
        if place.name != "root" and not place.wrong and "cpu" in place.capability:
            assert claim <= place.capability["cpu"]
        left = place.guarantee.get("cpu", 0) - used.get(place.name, 0)
        if place.name != "root" and not place.below and not place.wrong and left > 0:
            assert claims.refuses(place.name, ((0, left),)) is None
    kept = [p for p in places.values() if p.name != "root" and not p.wrong and p.guarantee.get("cpu")]
    if kept and sum(places[n].guarantee.get("cpu", 0) for n in places["root"].below if not places[n].wrong) <= total:
        assert claim_by_brute_force(places, used, "root") <= total


def test_a_hold_in_a_wrong_queue_waits_and_says_why():
    state = cluster(queue("p"), queue("a", parent="p"), reservation("r", ("t", 1, "s"), queue="p"))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert state.phases["r"].message == "queue p has queues below it; only those take jobs"


@pytest.mark.parametrize("tier", [0, 1])
def test_no_queue_loses_what_it_deserves_in_whatever_tier_the_plugin_is(tier):
    """Volcano asks the first tier that leaves anyone; what a queue deserves is asked in every tier here."""
    first = [config.PluginConfig(name) for name in ("priority", "gang", "conformance")]
    tiers = [first, [config.PluginConfig("predicates")]]
    tiers[tier].append(config.PluginConfig("capacity"))
    actions = tuple(map(config.ActionConfig, ("enqueue", "allocate", "reclaim")))
    conf = config.SessionConfig(actions=actions, tiers=tuple(map(tuple, tiers)))
    queues = [queue("full", deserved={"cpu": 4_000}), queue("other", deserved={"cpu": 2_000})]
    running = [in_queue(f"p{i}", "full", "s", "n") for i in range(4)]
    state = given(configured("session", conf), node("n", cpu=4_000), shape("s"), queues, running, in_queue("x", "other", "s"))
    assert not [event for event in run(state, session.decider, c.Schedule(NOW)) if isinstance(event, e.Preempted)]
