"""RemovePodsViolatingTopologySpreadConstraint: domains with too many give away, and what they give away lands."""

import random
from collections import Counter

import pytest
from domain.build import given, node, pod, shape
from domain.descheduling.plugin_words import Plugin, kept, reasons
from domain.descheduling_words import WEB
from domain.topology_words import HOST, ZONE, zoned

from restow.contracts.values import LabelSelector, NodeTerm, PreferredNodeTerm, Spread, Taint
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint import moves

spread = Plugin("RemovePodsViolatingTopologySpreadConstraint")
AB = (zoned("n1", "a"), zoned("n2", "b"))
APP = LabelSelector({"app": "x"})
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


def even(name="s", key=ZONE, skew=1, when=HARD, priority=0, **more):
    """A shape with one constraint."""
    about = {field: more.pop(field) for field in tuple(more) if field in Spread.__struct_fields__}
    return shape(name, spread=(Spread(skew, key, when, about.pop("selector", APP), **about),), priority=priority, **more)


def pods(count, at, shape="s", start=0, **more):
    more.setdefault("labels", {"app": "x"})
    return tuple(pod(f"{at}-{i}", shape, at, owner=WEB, **more) for i in range(start, start + count))


@pytest.mark.parametrize(
    ("sizes", "skew", "gone"),
    [
        ((3, 1), 1, {"n1": 1}),
        ((2, 1), 1, {}),
        ((4, 0), 1, {"n1": 2}),
        ((4, 0), 2, {"n1": 1}),
        ((4, 0), 4, {}),
        ((5, 3, 0), 1, {"n1": 2}),
        ((9, 0, 0), 1, {"n1": 6}),
        ((7, 4, 1), 2, {"n1": 2}),
    ],
)
def test_how_many_go(sizes, skew, gone):
    nodes = tuple(zoned(f"n{i + 1}", f"z{i}") for i in range(len(sizes)))
    state = given(*nodes, even(skew=skew), *(p for i, n in enumerate(sizes) for p in pods(n, f"n{i + 1}")))
    assert Counter(name[:2] for name in spread.gone(state)) == gone


def test_it_says_from_where_to_where():
    state = given(*AB, even(), *pods(3, "n1"), *pods(1, "n2"))
    assert list(reasons(spread(state)).values()) == ["3 pods like it in zone=a, fewer in zone=b; the skew may be 1"]


def test_a_soft_constraint_counts_where_it_is_asked_for():
    state = given(*AB, even(when=SOFT), *pods(3, "n1"), *pods(1, "n2"))
    assert spread.gone(state) == []
    assert len(spread.gone(state, constraints=[SOFT])) == 1
    assert spread.gone(given(*AB, even(), *pods(3, "n1")), constraints=[SOFT]) == []


def test_the_least_important_go_and_the_choosy_last():
    choosy = (PreferredNodeTerm(1, NodeTerm()),)
    shapes = even("high", priority=9), even("low"), even("picky", node_preferences=choosy)
    there = *pods(1, "n1", "high"), *pods(2, "n1", "picky", start=1), *pods(3, "n1", "low", start=3)
    state = given(*AB, *shapes, *there)
    assert sorted(spread.gone(state)) == ["n1-3", "n1-4", "n1-5"]
    state = given(*AB, *shapes, *there[:-3])
    assert spread.gone(state) == ["n1-0"], "importance is asked among those that are equally choosy"


def test_only_those_go_that_some_node_of_a_smaller_domain_takes():
    full = zoned("n2", "b", cpu=500)
    outcome = spread(given(AB[0], full, even(), *pods(4, "n1")))
    assert reasons(outcome) == {}
    assert set(kept(outcome).values()) == {"Fit: no node of a domain with fewer pods would take it"}
    assert len(spread.gone(given(AB[0], full, even(), *pods(4, "n1")), topologyBalanceNodeFit=False)) == 2


def test_who_fits_elsewhere_goes_before_who_does_not():
    small = zoned("n2", "b", cpu=500)
    state = given(AB[0], small, even("big"), even("s", cpu=100, priority=5), *pods(2, "n1", "big"), *pods(2, "n1", start=2))
    assert sorted(spread.gone(state)) == ["n1-2", "n1-3"]


def test_taints_honored_make_no_domain():
    tainted = zoned("n2", "b", taints=(Taint("gpu", "NoSchedule"),))
    state = given(AB[0], tainted, zoned("n3", "c"), even(node_taints_policy="Honor"), *pods(2, "n1"), *pods(2, "n3"))
    assert spread.gone(state) == []


def test_a_domain_that_the_node_selector_excludes_is_none_unless_ignored():
    nodes = zoned("n1", "a", labels={"os": "l"}), zoned("n2", "b", labels={"os": "w"}), zoned("n3", "c", labels={"os": "l"})
    there = *pods(2, "n1"), *pods(2, "n3")
    assert spread.gone(given(*nodes, even(node_selector={"os": "l"}), *there)) == []
    ignored = given(*nodes, even(node_selector={"os": "l"}, node_affinity_policy="Ignore"), *there)
    assert spread.gone(ignored) == [], "the empty domain counts, but would not take them"
    assert spread.gone(ignored, topologyBalanceNodeFit=False) != []


def test_match_label_keys_tell_revisions_apart():
    def revision(hash, count, at, start):
        return pods(count, at, start=start, labels={"app": "x", "hash": hash})

    there = *revision("1", 2, "n1", 0), *revision("2", 2, "n1", 2), *revision("1", 1, "n2", 0), *revision("2", 1, "n2", 1)
    assert len(spread.gone(given(*AB, even(), *there))) == 1
    assert spread.gone(given(*AB, even(match_label_keys=("hash",)), *there)) == []


def test_terminating_and_protected_pods_do_not_count():
    state = given(*AB, even(), *pods(1, "n1"), *pods(2, "n1", start=1, deleting=1), *pods(2, "n1", start=3, static=True), *pods(1, "n2"))
    assert spread.gone(state) == []


def test_two_constraints_and_no_pod_twice():
    both = shape("s", spread=(Spread(1, ZONE, HARD, APP), Spread(1, HOST, HARD, APP)))
    state = given(*AB, both, *pods(4, "n1"))
    assert len(spread.gone(state)) == 2


def test_another_pod_s_constraint_balances_those_without_one():
    state = given(*AB, even(), shape("plain"), *pods(1, "n1"), *pods(3, "n1", "plain", start=1))
    assert len(spread.gone(state)) == 2


def test_nodes_without_the_key_are_nowhere():
    state = given(*AB, node("n0"), even(), *pods(5, "n0"), *pods(1, "n1"))
    assert spread.gone(state) == []


def test_namespaces_and_labels():
    state = given(*AB, even(), *pods(3, "n1"), *pods(1, "n2"))
    assert spread.gone(state, namespaces={"exclude": ["default"]}) == []
    assert spread.gone(state, labelSelector={"matchLabels": {"app": "y"}}) == []
    assert len(spread.gone(state, labelSelector={"matchLabels": {"app": "x"}})) == 1


def test_limits():
    state = given(*AB, even(), *pods(6, "n1"))
    outcome = spread(state, limits={"maxNoOfPodsToEvictPerNode": 1})
    assert len(outcome.evictions) == 1
    assert list(kept(outcome).values()) == ["Limit: this run evicts nothing more from the node"] * 2


def test_arguments_that_make_no_sense():
    assert spread.refused(constraints=["Hard"]) == "constraints[0]: 'Hard'; allowed: DoNotSchedule, ScheduleAnyway"


def balanced(sizes, skew):
    """Upstream's balanceDomains as it stands, on numbers."""
    sizes, average, given_away = sorted(sizes), sum(sizes) / len(sizes), Counter()
    i, j = 0, len(sizes) - 1
    while i < j:
        if sizes[j] <= average:
            j -= 1
        difference = sizes[j] - sizes[i]
        if difference <= skew:
            i += 1
            continue
        count = min(int(sizes[j] - int(average)), int(-(-sum(sizes) // len(sizes))) - sizes[i], -(-(difference - skew) // 2))
        if count <= 0:
            i += 1
            continue
        sizes[j] -= count
        sizes[i] += count
        given_away[j] += count
    return sizes, given_away


@pytest.mark.parametrize("seed", range(10))
def test_numbers_are_upstreams(seed):
    draw = random.Random(seed)
    for _ in range(50):
        sizes = sorted(draw.randrange(draw.choice((3, 12, 60))) for _ in range(draw.randrange(1, 9)))
        skew = draw.choice((1, 1, 2, 3, 10))
        ours, given_away = list(sizes), Counter()
        for high, _, count in moves(ours, skew):
            given_away[high] += count
        assert (ours, given_away) == balanced(sizes, skew)
        assert sum(ours) == sum(sizes)
        assert max(ours) - min(ours) <= max(sizes) - min(sizes)
