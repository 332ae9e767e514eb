"""Host ports and required inter-pod affinity: given a cluster and a pod, then which nodes are out, and why."""

import pytest
from domain.build import NOW, changed, given, node, pod, reservation, run, shape, then
from domain.topology_words import AFFINITY, ANTI, EXISTING, HOST, PORTS, ZONE, named, sel, zoned
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import (
    Expression,
    HostPort,
    LabelSelector,
    PodTerm,
    ReservationTask,
)
from restow.domain import changes, session
from restow.domain.snapshot import dump, load
from restow.domain.topology import Subject, Topology

PLAIN = shape("plain")
WEB = {"app": "web"}


NODES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), zoned("none"))


def out(state, labels=None, namespace="default", shape="s") -> dict[str, set[str]]:
    """Which nodes each reason removes for such a pod."""
    topology, subject = Topology.of(state), Subject(namespace, labels or {}, shape)
    return named(state, [*topology.ports(subject), *topology.affinity(subject)])


def near(*terms: PodTerm) -> e.ShapeDeclared:
    return shape("s", pod_affinity=terms)


def apart(*terms: PodTerm) -> e.ShapeDeclared:
    return shape("s", pod_anti_affinity=terms)


# -- host ports ------------------------------------------------------------------------------------------------------

MEETINGS = {
    "the same port": (HostPort(80), HostPort(80), True),
    "another port": (HostPort(80), HostPort(81), False),
    "another protocol": (HostPort(80), HostPort(80, "UDP"), False),
    "every address and one": (HostPort(80), HostPort(80, ip="10.0.0.1"), True),
    "one address and every": (HostPort(80, ip="10.0.0.1"), HostPort(80), True),
    "the same address": (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.1"), True),
    "two addresses": (HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), False),
    "no address means every one": (HostPort(80, ip=""), HostPort(80, ip="10.0.0.2"), True),
}


@pytest.mark.parametrize(("there", "asked", "meet"), MEETINGS.values(), ids=MEETINGS)
def test_a_host_port_is_taken_if_number_protocol_and_address_meet(there, asked, meet):
    state = given(NODES, shape("t", host_ports=(there,)), shape("s", host_ports=(asked,)), pod("p", "t", "a1"))
    assert out(state) == ({PORTS: {"a1"}} if meet else {})


def test_a_terminating_pod_keeps_its_host_port_until_it_is_over():
    state = given(NODES, shape("s", host_ports=(HostPort(80),)), pod("p", "s", "a1"))
    then(state, changed("p", node="a1", phase="Running", deleting=5))
    assert out(state) == {PORTS: {"a1"}}
    then(state, changed("p", node="a1", phase="Succeeded", deleting=5))
    assert out(state) == {}


def hold(name: str, shape: str, on: str, labels: dict[str, str], generation: int = 1, **spec):
    """A place of one Reservation, held there."""
    fact = reservation(name, ("t", 1, shape), generation=generation, **spec)
    fact = replace(fact, spec=replace(fact.spec, tasks=(ReservationTask("t", 1, shape, labels),)))
    placed = (e.HoldPlaced(name, "t-0", on),) if generation == 1 else ()
    return (fact,), (e.ReservationAccepted(name, generation, 1),), placed


def test_others_see_the_ports_labels_and_terms_of_a_held_place_as_a_pods():
    held = shape("held", host_ports=(HostPort(80),), pod_anti_affinity=(PodTerm(HOST, sel(app="other")),))
    mine = shape("s", host_ports=(HostPort(80),), pod_anti_affinity=(PodTerm(ZONE, sel(app="web")),))
    state = given(NODES, held, mine, *hold("r", "held", "a1", WEB))
    assert out(state, {"app": "other"}) == {PORTS: {"a1"}, ANTI: {"a1", "a2"}, EXISTING: {"a1"}}
    then(state, e.HoldReleased("r", "t-0", "Deleted"))
    assert out(state, {"app": "other"}) == {}


def test_a_hold_counts_by_the_labels_of_the_accepted_generation():
    state = given(NODES, PLAIN, apart(PodTerm(HOST, sel(app="web"))), *hold("r", "plain", "a1", WEB))
    assert out(state) == {ANTI: {"a1"}}
    then(state, *hold("r", "plain", "a1", {"app": "api"}, generation=2))
    assert out(state) == {}


# -- required affinity -----------------------------------------------------------------------------------------------


def test_affinity_needs_a_pod_in_the_domain_and_the_topology_key():
    state = given(NODES, PLAIN, near(PodTerm(ZONE, sel(app="web"))), pod("p", "plain", "a1", labels=WEB))
    assert out(state) == {AFFINITY: {"b1", "none"}}


def test_a_terminating_pod_still_counts_for_affinity():
    state = given(NODES, PLAIN, near(PodTerm(ZONE, sel(app="web"))), pod("p", "plain", "a1", labels=WEB))
    then(state, changed("p", node="a1", phase="Running", deleting=5))
    assert out(state) == {AFFINITY: {"b1", "none"}}


def test_only_a_pod_that_all_terms_are_about_counts():
    both = near(PodTerm(ZONE, sel(app="web")), PodTerm(HOST, sel(tier="x")))
    state = given(NODES, PLAIN, both, pod("p", "plain", "a1", labels=WEB), pod("q", "plain", "a1", labels={"tier": "x"}))
    assert out(state) == {AFFINITY: {"a1", "a2", "b1", "none"}}
    then(state, pod("r", "plain", "a2", labels=WEB | {"tier": "x"}))
    assert out(state) == {AFFINITY: {"a1", "b1", "none"}}


def test_the_first_of_a_group_may_go_wherever_the_keys_are():
    state = given(NODES, PLAIN, near(PodTerm(ZONE, sel(app="web"))))
    assert out(state, WEB) == {AFFINITY: {"none"}}
    assert out(state, {"app": "api"}) == {AFFINITY: {"a1", "a2", "b1", "none"}}
    assert out(state, WEB, namespace="other") == {AFFINITY: {"none"}}


def test_the_second_of_a_group_follows_the_first():
    state = given(NODES, near(PodTerm(ZONE, sel(app="web"))), pod("p", "s", "b1", labels=WEB))
    assert out(state, WEB) == {AFFINITY: {"a1", "a2", "none"}}


def test_one_that_runs_where_no_key_is_does_not_keep_the_next_from_being_the_first():
    state = given(NODES, near(PodTerm(ZONE, sel(app="web"))), pod("p", "s", "none", labels=WEB))
    assert out(state, WEB) == {AFFINITY: {"none"}}


def test_no_selector_is_about_nobody_and_an_empty_one_about_everybody():
    state = given(NODES, PLAIN, near(PodTerm(ZONE)), pod("p", "plain", "a1"))
    assert out(state) == {AFFINITY: {"a1", "a2", "b1", "none"}}
    state = given(NODES, PLAIN, near(PodTerm(ZONE, sel())), pod("p", "plain", "a1"))
    assert out(state) == {AFFINITY: {"b1", "none"}}


# -- namespaces ------------------------------------------------------------------------------------------------------

TEAM = e.NamespaceObserved("other", {"team": "x"})
WHOSE = {
    "its own by default": (PodTerm(HOST, sel()), {"a1"}),
    "those named": (PodTerm(HOST, sel(), ("other",)), {"a2"}),
    "those selected": (PodTerm(HOST, sel(), namespace_selector=sel(team="x")), {"a2"}),
    "those named and those selected": (PodTerm(HOST, sel(), ("default",), sel(team="x")), {"a1", "a2"}),
    "all of them": (PodTerm(HOST, sel(), namespace_selector=sel()), {"a1", "a2", "b1"}),
    "none that nobody knows": (
        PodTerm(HOST, sel(), namespace_selector=sel(Expression("team", "DoesNotExist"))), set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("term", "nodes"), WHOSE.values(), ids=WHOSE)
def test_a_term_is_about_pods_of(term, nodes):
    state = given(
        NODES, PLAIN, apart(term), TEAM, pod("p", "plain", "a1"),
        pod("q", "plain", "a2", namespace="other"), pod("r", "plain", "b1", namespace="unknown"),
    )  # fmt: skip
    assert out(state) == ({ANTI: nodes} if nodes else {})


def test_a_running_pods_selector_is_held_against_no_labels_where_the_namespace_is_unknown():
    term = PodTerm(HOST, sel(), namespace_selector=sel(Expression("team", "DoesNotExist")))
    state = given(NODES, PLAIN, shape("t", pod_anti_affinity=(term,)), TEAM, pod("p", "t", "a1"))
    assert out(state, namespace="unknown", shape="plain") == {EXISTING: {"a1"}}
    assert out(state, namespace="other", shape="plain") == {}


def test_terms_follow_the_labels_of_a_namespace():
    term = PodTerm(HOST, sel(), namespace_selector=sel(team="x"))
    state = given(NODES, apart(term), PLAIN, TEAM, pod("p", "plain", "a1", namespace="other"), pod("q", "s", "b1"))
    assert out(state, namespace="third") == {ANTI: {"a1"}}
    assert out(state, namespace="other", shape="plain") == {EXISTING: {"b1"}}
    then(state, e.NamespaceObserved("other", {"team": "y"}))
    assert out(state, namespace="third") == {}
    assert out(state, namespace="other", shape="plain") == {}
    then(state, e.NamespaceObserved("other", {"team": "x"}), e.NamespaceGone("other"))
    assert out(state, namespace="third") == {}


# -- anti-affinity ---------------------------------------------------------------------------------------------------


def test_anti_affinity_counts_each_term_alone_and_nodes_without_the_key_are_free():
    both = apart(PodTerm(ZONE, sel(app="web")), PodTerm(HOST, sel(tier="x")))
    labels = {"tier": "x"}
    state = given(NODES, PLAIN, both, pod("p", "plain", "a1", labels=WEB), pod("q", "plain", "none", labels=labels))
    assert out(state) == {ANTI: {"a1", "a2", "none"}}
    state = given(NODES, PLAIN, apart(PodTerm(ZONE, sel(app="web"))), pod("p", "plain", "none", labels=WEB))
    assert out(state) == {}


def test_the_anti_affinity_of_a_running_pod_keeps_others_away():
    state = given(NODES, PLAIN, apart(PodTerm(ZONE, sel(app="web"))), pod("p", "s", "a1", labels={"app": "db"}))
    assert out(state, WEB, shape="plain") == {EXISTING: {"a1", "a2"}}
    assert out(state, {"app": "api"}, shape="plain") == {}
    assert out(state, WEB, shape="plain", namespace="other") == {}


KEYS = {
    "not merged": PodTerm(HOST, sel(app="web"), match_label_keys=("rev",)),
    "merged by the API server": PodTerm(
        HOST, sel(Expression("rev", "In", ("1",)), app="web"), match_label_keys=("rev",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("term", KEYS.values(), ids=KEYS)
def test_match_label_keys_ask_for_the_pods_own_value(term):
    old, new = WEB | {"rev": "0"}, WEB | {"rev": "1"}
    state = given(NODES, PLAIN, apart(term), pod("p", "plain", "a1", labels=old), pod("q", "plain", "a2", labels=new))
    assert out(state, new) == {ANTI: {"a2"}}


def test_a_value_that_was_merged_counts_even_if_the_label_has_changed_since():
    state = given(NODES, PLAIN, apart(KEYS["merged by the API server"]), pod("p", "plain", "a1", labels=WEB | {"rev": "1"}))
    assert out(state, WEB | {"rev": "2"}) == {ANTI: {"a1"}}


def test_mismatch_label_keys_refuse_the_pods_own_value_and_a_missing_label_says_nothing():
    term = PodTerm(HOST, sel(app="web"), mismatch_label_keys=("tenant",))
    mine, theirs = WEB | {"tenant": "me"}, WEB | {"tenant": "you"}
    state = given(NODES, PLAIN, apart(term), pod("p", "plain", "a1", labels=mine), pod("q", "plain", "a2", labels=theirs))
    assert out(state, mine) == {ANTI: {"a2"}}
    assert out(state, WEB) == {ANTI: {"a1", "a2"}}


# -- what a session does ---------------------------------------------------------------------------------------------


def test_what_a_session_adds_and_takes_away_counts_until_it_is_taken_back():
    state = given(NODES, PLAIN, apart(PodTerm(HOST, sel(app="web"))), pod("p", "s", "a1", labels=WEB))
    topology, mine = Topology.of(state), Subject("default", WEB, "s")

    def now() -> set[str]:
        return named(state, topology.affinity(mine)).get(ANTI, set())

    topology.add("q", state.table.rows["b1"], mine)
    topology.remove("p")
    assert now() == {"b1"}
    topology.restore("p")
    topology.remove("q")
    assert now() == {"a1"}
    topology.add("q", state.table.rows["b1"], mine)
    assert now() == {"a1", "b1"}
    topology = Topology.of(state)
    assert now() == {"a1"}


def test_what_a_draft_has_placed_is_gone_with_the_draft():
    state = given(NODES, apart(PodTerm(HOST, sel(app="web"))), pod("p", "s", labels=WEB))
    with state.draft():
        then(state, e.PodPlaced("p", "a1"))
        assert out(state, WEB) == {ANTI: {"a1"}, EXISTING: {"a1"}}
    assert out(state, WEB) == {}


def test_a_draft_that_moves_more_than_is_remembered_is_taken_back_all_the_same(monkeypatch):
    monkeypatch.setattr(changes, "KEPT", 1)
    names = [f"p{i}" for i in range(4)]
    state = given(NODES, apart(PodTerm(HOST, sel(app="web"))), *(pod(name, labels=WEB) for name in names))
    with state.draft():
        then(state, [e.PodPlaced(name, "a1") for name in names])
        assert out(state, WEB) == {ANTI: {"a1"}, EXISTING: {"a1"}}
    assert out(state, WEB) == {}


def test_an_owner_takes_its_hold_though_both_keep_their_kind_away():
    state = given(NODES, apart(PodTerm(HOST, sel(app="owner"))), *hold("r", "s", "a1", {"app": "owner"}, match_policy="Owner"))
    then(state, pod("p", labels={"app": "owner"}))
    assert run(state, session.decider, c.Schedule(NOW)) == [e.HandedOver("r", "t-0", "p", "a1")]


def test_a_pod_is_of_no_concern_while_nobody_says_anything_about_it():
    state = given(NODES, PLAIN, pod("p", "plain", "a1", labels=WEB))
    web, api = Subject("default", WEB, "plain"), Subject("default", {"app": "api"}, "plain")
    topology = Topology.of(state)
    assert not topology.concerns(web)
    then(state, apart(PodTerm(HOST, sel(app="web"))))
    topology = Topology.of(state)
    assert not topology.concerns(web)
    assert topology.concerns(Subject("default", {}, "s"))
    topology.add("q", state.table.rows["a1"], Subject("default", {}, "s"))
    assert topology.concerns(web)
    assert topology.requires(web)
    assert not topology.prefers(web)
    assert not topology.concerns(api)
    assert topology.key(web) != topology.key(api) == topology.key(Subject("default", {"app": "x"}, "plain"))


def test_a_term_that_nobody_carries_any_more_does_not_tell_pods_apart():
    """Else what is said of them depended on who ran there once, and a session from a snapshot said something else."""
    apart = (PodTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    state = given(node("n", cpu=4_000), shape("apart", pod_anti_affinity=apart), shape("web", cpu=8_000, host_ports=(HostPort(80),)))
    then(state, pod("was", "apart", node="n"), pod("early", "web"))
    run(state, session.decider, c.Schedule(NOW, 100))
    then(state, e.PodGone("was"), [pod("a", "web", labels={"app": "x"}), pod("b", "web", labels={"app": "y"})])
    command = c.Schedule(NOW, 100)
    assert list(session.decider.decide(state, command)) == list(session.decider.decide(load(dump(state)), command))
