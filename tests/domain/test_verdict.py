"""Verdicts: why a pod is where it is, or waits, and what would let it fit."""

import pytest
from domain.build import GIB, NOW, given, node, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Taint
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.session.verdict import Relief, explain


def waiting(*facts):
    return explain(given(*facts, pod("p")), "p")


@pytest.mark.parametrize(
    ("fact", "status"),
    [
        (pod("p", node="a"), "bound"),
        (pod("p", node="a", phase="Succeeded"), "finished"),
        (pod("p", node="a", deleting=NOW), "terminating"),
        (pod("p", gated=True), "gated"),
        (pod("p", "f"), "foreign"),
        (pod("p"), "waiting"),
    ],
)
def test_the_status_says_whose_turn_it_is(fact, status):
    assert explain(given(node("a"), shape("s"), shape("f", scheduler="else"), fact), "p").status == status


def test_a_placed_pod_names_its_node_and_the_hold_that_it_took():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))
    then(state, pod("p", labels={"app": "owner"}))
    run(state, session.decider, c.Schedule(NOW))
    verdict = explain(state, "p")
    assert (verdict.status, verdict.node, verdict.hold) == ("placed", "a", "r/t-0")


def test_a_pod_that_nobody_knows_is_an_error():
    with pytest.raises(KeyError):
        explain(given(), "p")


def test_the_greatest_request_that_would_fit_is_named_per_resource():
    verdict = waiting(node("a", cpu=700), node("b", cpu=900), shape("s"))
    assert (verdict.fits, verdict.reasons) == (0, {"Insufficient cpu": 2})
    assert verdict.reliefs == (Relief("a cpu request of at most 900m", 1),)


def test_nodes_are_counted_where_the_request_that_is_named_would_fit():
    verdict = waiting(node("a", cpu=700), node("b", cpu=900), node("c", cpu=900), node("d", cpu=300), shape("s"))
    assert verdict.reasons == {"Insufficient cpu": 4}
    assert verdict.reliefs == (Relief("a cpu request of at most 900m", 2),)


def test_what_lacks_two_resources_is_not_relieved_by_one():
    assert waiting(node("a", cpu=100, memory=GIB // 2), shape("s")).reliefs == ()


def test_rules_that_alone_stand_in_the_way_are_named_with_their_nodes():
    verdict = waiting(
        node("a", taints=(Taint("gpu", "NoSchedule", "yes"),)), node("b", ready=False), node("c", ready=False),
        node("full", cpu=100, unschedulable=True), shape("s"),
    )  # fmt: skip
    assert verdict.reliefs == (
        Relief("without the rule: node(s) had untolerated taint {gpu: yes}", 1),
        Relief("a node that becomes ready", 2),
    )


def test_a_smaller_share_of_a_gpu_is_a_relief():
    busy = pod("q", "big", node="a", devices=(DeviceShare(0, 700),))
    verdict = waiting(node("a", gpus=1), shape("big", gpu=(1, 700)), shape("s", gpu=(1, 500)), busy)
    assert verdict.reasons == {"Insufficient gpu": 1}
    assert verdict.reliefs == (Relief("a GPU share of at most 300 thousandths of one device", 1),)


def test_fewer_gpus_are_a_relief():
    verdict = waiting(node("a", gpus=3), node("b", gpus=2), shape("s", gpu=(4, 1000)))
    assert verdict.reliefs == (Relief("a request of at most 3 GPUs", 1),)


def test_gpus_that_are_charged_to_no_device_are_counted_as_lacking():
    """Three bound pods on two GPUs: one of them is on no device that anybody knows. When another ends, nothing is free."""
    one = shape("s", gpu=(1, 1000))
    state = given(node("a", gpus=2), one, pod("p1", node="a"), pod("p2", node="a"), pod("p3", node="a"), e.PodGone("p2"), pod("p"))
    verdict = explain(state, "p")
    assert (verdict.fits, verdict.reasons) == (0, {"Insufficient gpu": 1})


def test_of_a_pinned_pod_only_its_node_counts():
    state = given(node("a", cpu=100), node("b"), node("c"), shape("s"), pod("p", pinned_node="a"))
    verdict = explain(state, "p")
    assert verdict.fits == 0
    assert verdict.reasons == {"Insufficient cpu": 1, "node(s) didn't match the requested node name": 2}
    assert verdict.reliefs == (Relief("a cpu request of at most 100m", 1),)


def test_a_pod_pinned_to_a_node_that_is_gone_says_so():
    verdict = explain(given(node("b"), shape("s"), pod("p", pinned_node="a")), "p")
    assert (verdict.fits, verdict.reasons) == (0, {"node(s) didn't match the requested node name": 1})
