"""Verdicts on what waits for more than a node: gangs, queues, other pods, volumes, windows; and on what was chosen."""

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    run,
    shape,
    then,
)
from domain.storage import CLASSES, claim, on, volume
from domain.test_numa import cores, topology
from domain.test_reserve import EBOOK, at, label
from domain.test_reserve import conf as window
from domain.topology_words import AFFINITY, ANTI, PORTS, SKEWED, ZONE, sel, zoned

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import HostPort, PodTerm, Spread, Taint
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.numa import CONTAINER
from restow.domain.session.plugins.reserve.plugin import KEPT_FREE
from restow.domain.session.starving import RESERVED
from restow.domain.session.verdict import Block, Choice, Relief, choice, explain, explain_group

SYNCED = e.Synced("podgroups.scheduling.volcano.sh", "1")


def conf(*actions: str, tiers=(("priority", "gang"), ("drf", "predicates", "capacity", "nodeorder"))) -> e.Event:
    names = actions or ("enqueue", "reserve", "allocate", "preempt", "backfill")
    plugins = tuple(tuple(map(PluginConfig, tier)) for tier in tiers)
    return configured("session", SessionConfig(actions=tuple(map(ActionConfig, names)), tiers=plugins))


def reliefs(verdict):
    return [relief.change for relief in verdict.reliefs]


# -- gangs ---------------------------------------------------------------------------------------------------------------


def gang(*nodes, need=3, pods=3, cpu=1_000, **more):
    members = [member(f"m{i}", "g") for i in range(pods)]
    return given(conf(), *nodes, shape("s", cpu=cpu), pod_group("g", need=need, **more), *members)


def test_of_a_gang_is_said_how_many_fit_at_the_same_time_and_what_the_first_other_lacks():
    verdict = explain(gang(node("a", cpu=2_500), node("b", cpu=900)), "m0")
    fit = verdict.gang
    assert verdict.fits == 1, "alone it fits"
    assert (fit.need, fit.ready, fit.waiting, fit.fit, fit.first) == (3, 0, 3, 2, "default/m2")
    assert (fit.nodes, fit.reasons) == (2, {"Insufficient cpu": 2})


def test_the_changes_that_would_complete_a_gang_are_more_nodes_a_smaller_gang_or_smaller_pods():
    assert reliefs(explain(gang(node("a", cpu=2_500), node("b", cpu=900)), "m0")) == [
        "1 more empty node like a", "a minMember of at most 2", "a cpu request of at most 900m each",
    ]  # fmt: skip


def test_smaller_pods_are_as_small_as_what_else_they_ask_for_makes_them_share_a_node():
    """On a there is memory for one of them only, so that b must take two."""
    state = gang(node("a", cpu=8_000, memory=GIB), node("b", cpu=3_000), cpu=2_000)
    assert "a cpu request of at most 1500m each" in reliefs(explain(state, "m0"))


def test_nodes_are_counted_of_the_kind_that_needs_the_fewest():
    state = gang(node("little", cpu=1_500), node("large", cpu=4_000, unschedulable=True), node("mid", cpu=2_000), need=9, pods=9)
    verdict = explain(state, "m0")
    assert (verdict.gang.fit, reliefs(verdict)[0]) == (3, "3 more empty nodes like mid")


def test_a_member_that_no_node_can_take_is_not_relieved_by_more_of_them():
    verdict = explain(gang(node("a", cpu=500)), "m0")
    assert not [change for change in reliefs(verdict) if "more empty" in change]
    assert "a cpu request of at most 166m each" in reliefs(verdict)


def test_only_changes_that_are_enough_by_themselves_are_named():
    """Two fit, and with smaller pods three would, but the queue has capacity for two and a half."""
    state = gang(node("a", cpu=2_900), queue="q")
    then(state, queue("q", capability={"cpu": 2_500}))
    assert reliefs(explain(state, "m0")) == ["a minMember of at most 2"]
    then(state, node("b"))
    assert reliefs(explain(state, "m0")) == ["queue q: capability cpu 500m more", "a minMember of at most 2"]


def test_a_gang_that_must_spread_is_not_promised_that_more_nodes_help():
    apart = (Spread(1, ZONE, "DoNotSchedule", sel(app="x")),)
    members = [member(f"m{i}", "g", labels={"app": "x"}) for i in range(4)]
    state = given(conf(), zoned("a", "z1", cpu=8_000), zoned("b", "z2", cpu=1_000), shape("s", spread=apart), pod_group("g", need=4), *members)
    verdict = explain(state, "m0")
    assert verdict.gang.fit == 3
    assert not [change for change in reliefs(verdict) if "more empty" in change]


def test_a_gang_that_fits_is_said_to_be_complete():
    verdict = explain(gang(node("a")), "m1")
    assert verdict.gang.complete
    assert verdict.reliefs == ()


def test_asking_changes_nothing():
    state = gang(node("a", cpu=2_500))
    free, epoch = state.table.free.copy(), state.capacity_epoch
    first = explain(state, "m0")
    assert explain(state, "m0") == first
    assert (state.table.free == free).all()
    assert state.capacity_epoch == epoch
    (told,) = run(state, session.decider, c.Schedule(NOW, 1_000))
    assert isinstance(told, e.Withheld)


def test_too_few_pods_need_more_of_them_or_a_smaller_gang():
    verdict = explain(gang(node("a"), need=5), "m0")
    assert [block.reason for block in verdict.blocks] == ["NotEnoughPods"]
    assert reliefs(verdict)[:2] == ["2 more pods of the gang", "a minMember of at most 3"]
    assert reliefs(explain(gang(node("a"), need=4), "m0"))[0] == "1 more pod of the gang"


def test_a_group_that_is_missing_is_named():
    state = given(conf(), SYNCED, node("a"), shape("s"), member("m", "g"))
    verdict = explain(state, "m")
    assert verdict.blocks == (Block("PodGroupNotFound", "PodGroup default/g does not exist"),)
    assert reliefs(verdict) == ["a PodGroup named g in namespace default"]


def test_a_group_can_be_asked_about_itself():
    state = gang(node("a", cpu=2_500))
    fit, blocks, changes = explain_group(state, ("default", "g"))
    assert (fit.fit, blocks, changes[0].change) == (2, (), "1 more empty node like a")
    assert explain_group(given(conf(), node("a"), pod_group("g")), ("default", "g")) == (None, (), ())


# -- queues --------------------------------------------------------------------------------------------------------------


def test_a_missing_a_closed_and_an_absurd_queue():
    state = given(conf(), node("a"), shape("s"), queue("shut", state="Closed"), queue("odd", invalid="spec.weight: 0"))
    then(state, in_queue("p", "none"), in_queue("q", "shut"), in_queue("r", "odd"))
    assert [explain(state, name).blocks[0].reason for name in "pqr"] == ["QueueNotFound", "QueueClosed", "InvalidQueue"]
    assert [reliefs(explain(state, name)) for name in "pqr"] == [["a queue named none"], ["queue shut: state Open"], []]


def test_a_full_queue_says_how_much_more_it_needs_and_only_what_really_helps():
    state = given(conf(), node("a"), shape("s"), queue("q", capability={"cpu": 1_500}), in_queue("old", "q", node="a"))
    then(state, in_queue("p", "q"))
    verdict = explain(state, "p")
    assert verdict.fits == 1
    assert {block.reason for block in verdict.blocks} <= {"QueueQuota", "QueueOverused"}
    assert reliefs(verdict) == ["queue q: capability cpu 500m more"]


def test_what_of_a_queue_is_not_short_stays_as_it_is():
    """Its memory suffices to the last byte, and nothing is said of it."""
    state = given(conf(), node("a"), shape("s"), queue("q", capability={"cpu": 1_500, "memory": 2 * GIB}), in_queue("old", "q", node="a"))
    then(state, in_queue("p", "q"))
    assert reliefs(explain(state, "p")) == ["queue q: capability cpu 500m more"]


def test_the_queue_above_that_is_full_is_the_one_that_is_named():
    state = given(conf(), node("a"), shape("s"), queue("top", capability={"cpu": 1_000}), queue("q", parent="top"))
    then(state, queue("z", parent="top"), in_queue("old", "z", node="a"), in_queue("p", "q"))
    assert "queue top: capability cpu 1 more" in reliefs(explain(state, "p"))


def test_a_group_that_is_not_let_in_says_why():
    state = given(conf(), node("a"), shape("s"), queue("q", capability={"cpu": 1_000}))
    then(state, pod_group("g", "q", phase="Pending", min_resources={"cpu": 3_000}), member("m", "g"))
    verdict = explain(state, "m")
    assert "NotEnqueued" in [block.reason for block in verdict.blocks]
    assert "queue q: capability cpu 2 more" in reliefs(verdict)


def test_a_gang_that_its_quota_has_no_capacity_for_as_a_whole_says_how_much_is_missing():
    state = given(conf(), node("a"), shape("s", cpu=800), queue("q", capability={"cpu": 2_000}), in_queue("old", "q", node="a"))
    then(state, pod_group("g", "q", need=2), member("m0", "g"), member("m1", "g"))
    verdict = explain(state, "m0")
    assert verdict.blocks == ()
    assert (verdict.gang.fit, "queue q" in verdict.gang.quota) == (1, True)
    assert "queue q: capability cpu 400m more" in reliefs(verdict)


# -- rules about what runs -----------------------------------------------------------------------------------------------


def anti(**labels):
    return PodTerm(topology_key=ZONE, selector=sel(**labels))


@pytest.mark.parametrize(
    ("mine", "reason"),
    [
        (shape("mine", host_ports=(HostPort(80),)), PORTS),
        (shape("mine", pod_anti_affinity=(anti(app="x"),)), ANTI),
        (shape("mine", pod_affinity=(anti(app="nobody"),)), AFFINITY),
        (shape("mine", spread=(Spread(1, ZONE, "DoNotSchedule", sel(app="x")),)), SKEWED),
    ],
)
def test_rules_about_other_pods_count_and_are_named_where_they_alone_stand_in_the_way(mine, reason):
    there = shape("s", host_ports=(HostPort(80),))
    state = given(conf(), zoned("a", "z1"), zoned("full", "z1", cpu=100), zoned("shut", "z2", unschedulable=True), there, mine)
    then(state, pod("x", node="a", labels={"app": "x"}), pod("p", "mine", labels={"app": "x"}))
    verdict = explain(state, "p")
    assert verdict.reasons[reason] >= 1
    assert Relief(f"without the rule: {reason}", 1) in verdict.reliefs


def test_a_volume_that_is_elsewhere_and_a_claim_that_does_not_exist():
    state = given(*CLASSES, conf(), node("a"), node("b", cpu=100), shape("s"), claim("c", volume="v"), volume("v", claim="c", affinity=on("b")))
    then(state, pod("p", claims=("c",)), pod("q", claims=("none",)))
    (relief,) = [r for r in explain(state, "p").reliefs if "node affinity" in r.change or "volume" in r.change]
    assert relief.nodes == 1
    (block,) = explain(state, "q").blocks
    assert 'persistentvolumeclaim "none" not found' in block.message


def test_nodes_that_starving_tasks_wait_for_are_counted():
    state = given(conf(), node("a", cpu=1_500), shape("s"), shape("big", cpu=9_000), pod("old", "big"), pod("p"))
    then(state, e.TaskReserved("old", "a"))
    verdict = explain(state, "p")
    assert verdict.reasons == {RESERVED: 1}
    assert verdict.reliefs == (Relief(f"without the rule: {RESERVED}", 1),)
    assert explain(state, "old").reserved.startswith("reserved on node a")


def test_a_window_that_keeps_nodes_free_is_a_rule_as_any_other():
    state = given(window(label(resources={"cpu": "8"})), node("a", labels=EBOOK), node("full", cpu=100), shape("s"), time=at("03:00"))
    then(state, pod("p"), time=at("03:00"))
    verdict = explain(state, "p")
    assert verdict.reasons == {KEPT_FREE: 1, "Insufficient cpu": 1}
    assert Relief(f"without the rule: {KEPT_FREE}", 1) in verdict.reliefs


def test_numa_zones_that_are_too_small_are_a_rule_as_any_other():
    zones = [topology("a", {"cpu": 4_000}, {"cpu": 4_000})]
    verdict = explain(given(conf(), node("a"), *zones, cores(5), pod("p")), "p")
    assert verdict.reasons == {CONTAINER: 1}
    assert verdict.reliefs == (Relief(f"without the rule: {CONTAINER}", 1),)


def test_two_taints_are_not_relieved_by_lifting_one():
    two = (Taint("x", "NoSchedule", "1"), Taint("y", "NoSchedule", "2"))
    assert explain(given(conf(), node("a", taints=two), shape("s"), pod("p")), "p").reliefs == ()
    away = Taint("node.kubernetes.io/not-ready", "NoExecute")
    state = given(conf(), node("a", ready=False, taints=(away,)), shape("s"), pod("p"))
    assert explain(state, "p").reliefs == (Relief("a node that becomes ready", 1),)


# -- what is on its way --------------------------------------------------------------------------------------------------


def test_a_nominated_pod_says_who_goes_for_it_until_when_and_what_is_missing():
    state = given(conf(), node("a", cpu=2_500), shape("low", priority=1), shape("high", priority=10, cpu=2_000))
    then(state, pod("l0", "low", "a"), pod("l1", "low", "a"), pod("h", "high"))
    run(state, session.decider, c.Schedule(NOW, 1_000))
    verdict = explain(state, "h")
    assert (verdict.status, verdict.nominee.node) == ("nominated", "a")
    assert set(verdict.nominee.victims) == {"l0", "l1"}
    assert verdict.nominee.missing == {"cpu": 1_500}
    assert verdict.nominee.deadline > NOW
    assert explain(state, "l0").evicted_for == "default/h"


def test_the_chosen_node_is_compared_with_the_next_best():
    state = given(conf(), node("a", cpu=4_000), node("b", cpu=8_000), node("c", cpu=500), shape("s"), pod("p"))
    chosen = choice(state, "p", "b")
    assert (chosen.node, chosen.next, chosen.fits) == ("b", "a", 2)
    assert chosen.score > chosen.next_score
    (placed,) = run(state, session.decider, c.Schedule(NOW, 1_000))
    assert placed.node == "b"
    assert choice(state, "p", "b") is None, "it has been chosen"


def test_a_node_without_rivals_has_none():
    state = given(conf(), node("a"), node("c", cpu=500), shape("s"), pod("p"))
    chosen = choice(state, "p", "a")
    assert chosen == Choice("a", chosen.score, 1)


def test_who_may_not_be_beside_a_nominee_is_told_so_as_the_session_says_it():
    apart = shape("apart", priority=5, pod_anti_affinity=(PodTerm("host", sel(app="y")),))
    state = given(conf("allocate", "preempt", "backfill"), node("a", cpu=2_000, labels={"host": "a"}), shape("low", cpu=1_500), apart, shape("none", cpu=0), pod("v", "low", "a"), pod("n", "apart"))
    run(state, session.decider, c.Schedule(NOW))
    then(state, pod("y", "none", labels={"app": "y"}))
    run(state, session.decider, c.Schedule(NOW))
    said = {"node(s) didn't satisfy existing pods anti-affinity rules": 1}
    verdict = explain(state, "y")
    assert [*state.nominations] == ["n"]
    assert (state.waiting[state.parked["y"][0]].reasons, verdict.reasons, verdict.fits) == (said, said, 0)
