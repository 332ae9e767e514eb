"""The oracle is right: the examples of the Kubernetes documentation and the cases of kube-scheduler's own tests, by hand."""

import pytest
from domain.build import GIB, NOW, node, pod, shape

from oracle.filters import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    OTHER_NODE,
    PORTS,
    SELECTOR,
    SPREAD,
    SPREAD_LABEL,
    UNSCHEDULABLE,
    pick_devices,
    reason_counts,
    why_not,
)
from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import (
    Container,
    DeviceRequest,
    DeviceShare,
    Expression,
    HostPort,
    LabelSelector,
    NodeTerm,
    NumaZone,
    PodTerm,
    Spread,
    Taint,
    Toleration,
)

HOST = "kubernetes.io/hostname"
APP = LabelSelector({"foo": "bar"})


def refusals(*facts: e.Event, of: str = "p", **pod_facts) -> dict[str, list[str]]:
    """By node, why the pod `p` of shape `s` cannot go there."""
    world = World.of([*facts, pod(of, **pod_facts)])
    return {name: why_not(world, world.pods[of], fact) for name, fact in sorted(world.nodes.items())}


def able(*facts: e.Event, **pod_facts) -> list[str]:
    return [name for name, reasons in refusals(*facts, **pod_facts).items() if not reasons]


# -- the node itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "values", "labels", "fits"),
    [
        ("In", ("bar", "value2"), {"foo": "bar"}, True),
        ("In", ("value1",), {"foo": "bar"}, False),
        ("In", ("bar",), {}, False),
        ("NotIn", ("abc", "def"), {"foo": "bar"}, True),
        ("NotIn", ("bar",), {"foo": "bar"}, False),
        ("NotIn", ("bar",), {}, True),
        ("Exists", (), {"foo": "bar"}, True),
        ("Exists", (), {"other": "bar"}, False),
        ("DoesNotExist", (), {"foo": "bar"}, False),
        ("DoesNotExist", (), {}, True),
        ("Gt", ("0204",), {"foo": "206"}, True),
        ("Gt", ("206",), {"foo": "206"}, False),
        ("Gt", ("1",), {}, False),
        ("Gt", ("1",), {"foo": "many"}, False),
        ("Gt", ("x",), {"foo": "2"}, False),
        ("Gt", ("-5",), {"foo": "-3"}, True),
        ("Lt", ("206",), {"foo": "0205"}, True),
        ("Lt", ("5",), {"foo": "5"}, False),
        ("Near", ("5",), {"foo": "5"}, False),
    ],
)
def test_node_affinity_knows_every_operator(operator, values, labels, fits):
    term = NodeTerm((Expression("foo", operator, values),))
    found = refusals(node("n", labels=labels), shape("s", node_affinity=(term,)))
    assert found == {"n": [] if fits else [SELECTOR]}


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        (None, ["n1", "n2"]),
        ((), []),
        ((NodeTerm(),), []),
        ((NodeTerm(), NodeTerm((Expression("foo", "Exists"),))), ["n1"]),
        ((NodeTerm((Expression("foo", "Exists"), Expression("bar", "Exists"))),), []),
        ((NodeTerm((Expression("bar", "Exists"),)), NodeTerm((Expression("foo", "Exists"),))), ["n1"]),
        ((NodeTerm(fields=(Expression("metadata.name", "In", ("n2",)),)),), ["n2"]),
        ((NodeTerm(fields=(Expression("metadata.name", "NotIn", ("n2",)),)),), ["n1"]),
        ((NodeTerm((Expression("foo", "Exists"),), (Expression("metadata.name", "In", ("n2",)),)),), []),
    ],
)
def test_terms_are_ored_their_parts_are_anded_and_an_empty_term_matches_nothing(terms, fits):
    assert able(node("n1", labels={"foo": "bar"}), node("n2"), shape("s", node_affinity=terms)) == fits


def test_a_node_selector_and_an_affinity_must_both_hold():
    want = shape("s", node_selector={"foo": "bar"}, node_affinity=(NodeTerm((Expression("baz", "Exists"),)),))
    nodes = [node("n1", labels={"foo": "bar"}), node("n2", labels={"baz": ""}), node("n3", labels={"foo": "bar", "baz": ""})]
    assert able(*nodes, want) == ["n3"]


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration("key1", "Equal", "value1", "NoSchedule"), True),
        (Toleration("key1", "", "value1", "NoSchedule"), True),
        (Toleration("key1", "Exists", "", "NoSchedule"), True),
        (Toleration("key1", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("key1", "Equal", "value2", "NoSchedule"), False),
        (Toleration("key1", "Exists", "", "NoExecute"), False),
        (Toleration("key2", "Exists"), False),
        (Toleration("key1", "Equal"), False),
    ],
)
def test_a_toleration_matches_key_value_and_effect(toleration, fits):
    found = refusals(node("n", taints=(Taint("key1", "NoSchedule", "value1"),)), shape("s", tolerations=(toleration,)))
    assert found == {"n": [] if fits else ["node(s) had untolerated taint {key1: value1}"]}


def test_one_taint_that_is_not_tolerated_is_enough_and_the_first_such_is_named():
    """The documentation's example: three taints, tolerations for the first two."""
    taints = (Taint("key1", "NoSchedule", "value1"), Taint("key1", "NoExecute", "value1"), Taint("key2", "NoSchedule", "value2"))
    want = shape("s", tolerations=tuple(Toleration("key1", "Equal", "value1", effect) for effect in ("NoSchedule", "NoExecute")))
    assert refusals(node("n", taints=taints), want) == {"n": ["node(s) had untolerated taint {key2: value2}"]}
    assert able(node("n", taints=(Taint("key1", "PreferNoSchedule"),)), shape("s")) == ["n"]


def test_cordoned_and_unready_nodes_take_who_tolerates_it():
    nodes = [node("n1", unschedulable=True), node("n2", ready=False), node("n3", ready=False, unschedulable=True)]
    assert refusals(*nodes, shape("s")) == {"n1": [UNSCHEDULABLE], "n2": ["node(s) were not ready"], "n3": ["node(s) were not ready"]}
    cordon = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    broken = Toleration("node.kubernetes.io/not-ready", "Exists")
    assert able(*nodes, shape("s", tolerations=(cordon,))) == ["n1"]
    assert able(*nodes, shape("s", tolerations=(broken,))) == ["n2"]
    assert able(*nodes, shape("s", tolerations=(cordon, broken))) == ["n1", "n2", "n3"]


def test_a_pod_for_one_node_counts_all_others():
    world = World.of([node("n1"), node("n2", ready=False), node("n3", cpu=0), shape("s"), pod("p", pinned_node="n3")])
    assert reason_counts(world, world.pods["p"]) == {OTHER_NODE: 2, "Insufficient cpu": 1}


# -- ports and capacity --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        (HostPort(8080, "UDP", "127.0.0.1"), HostPort(9090, "UDP", "127.0.0.1"), True),
        (HostPort(8080, "UDP", "127.0.0.1"), HostPort(8080, "UDP", "127.0.0.1"), False),
        (HostPort(8080, "TCP", "127.0.0.1"), HostPort(8080, "TCP", "127.0.0.2"), True),
        (HostPort(8080, "UDP", "127.0.0.1"), HostPort(8080, "TCP", "127.0.0.1"), True),
        (HostPort(8001, "TCP", "0.0.0.0"), HostPort(8001, "TCP", "127.0.0.1"), False),
        (HostPort(8001, "TCP", "127.0.0.1"), HostPort(8001, "TCP", "0.0.0.0"), False),
        (HostPort(8001, "TCP", ""), HostPort(8001, "TCP", "127.0.0.1"), False),
        (HostPort(8001, "TCP", "0.0.0.0"), HostPort(8001, "UDP", "0.0.0.0"), True),
    ],
)
def test_host_ports_meet_on_equal_port_protocol_and_address(mine, theirs, fits):
    facts = node("n"), shape("s", host_ports=(mine,)), shape("t", host_ports=(theirs,)), pod("q", "t", "n")
    assert refusals(*facts) == {"n": [] if fits else [PORTS]}


def test_every_lacking_resource_is_named():
    facts = node("n", cpu=1000, memory=GIB, pods=1, allocatable={"nic": 1}), shape("t", cpu=900, memory=0), pod("q", "t", "n")
    assert refusals(*facts, shape("s", cpu=200, memory=2 * GIB, requests={"nic": 2, "fpga": 1})) == {
        "n": ["Insufficient cpu", "Insufficient memory", "Too many pods", "Insufficient nic", "Insufficient fpga"]
    }


def test_what_is_not_asked_for_may_be_overdrawn():
    facts = node("n", cpu=1000, pods=5), shape("t", cpu=1500), pod("q", "t", "n")
    assert able(*facts, shape("s", cpu=0, memory=GIB)) == ["n"]
    assert able(*facts, shape("s", cpu=1, memory=GIB)) == []


def test_a_finished_pod_uses_nothing_and_a_terminating_one_still_does():
    facts = node("n", cpu=1000), shape("s", cpu=800), pod("q", "s", "n", phase="Succeeded")
    assert able(*facts) == ["n"]
    assert able(*facts, e.PodChanged("q", node="n", phase="Running", deleting=NOW)) == []
    assert able(*facts, e.PodChanged("q", node="n", phase="Running"), e.PodGone("q")) == ["n"]


def test_the_fullest_devices_that_suffice_are_taken():
    assert pick_devices([1000, 300, 500, 500], DeviceRequest(1, 400)) == (DeviceShare(2, 400),)
    assert pick_devices([1000, 300, 500, 500], DeviceRequest(3, 400)) == tuple(DeviceShare(i, 400) for i in (0, 2, 3))
    assert pick_devices([1000, 300, 500, 500], DeviceRequest(2, 600)) is None


def test_shares_of_two_devices_are_not_one_device():
    """RULES 004-4: 60 % and 50 % never split."""
    facts = node("n", gpus=2), shape("t", gpu=(1, 600)), pod("q", "t", "n", devices=(DeviceShare(0, 600),))
    facts += (pod("r", "t", "n", devices=(DeviceShare(1, 600),)),)
    assert refusals(*facts, shape("s", gpu=(1, 500))) == {"n": ["Insufficient gpu"]}


# -- NUMA ------------------------------------------------------------------------------------------------------------


def test_a_guaranteed_pod_needs_one_zone_that_holds_it():
    half = {"cpu": 2000, "memory": 4 * GIB}
    zones = NumaZone("node-0", half), NumaZone("node-1", half)
    facts = [node("n", cpu=4000, memory=8 * GIB, allocatable={"nic": 4}), e.NumaObserved("n", "single-numa-node", "pod", zones)]
    facts += [shape("t", cpu=1500, qos="Guaranteed"), pod("q", "t", "n")]
    assert able(*facts, shape("s", cpu=2000, qos="Guaranteed")) == ["n"]
    assert able(*facts, shape("s", cpu=2000, qos="Guaranteed", requests={"nic": 4})) == ["n"]
    assert refusals(*facts, shape("s", cpu=2100, qos="Guaranteed")) == {"n": ["cannot align pod"]}
    assert refusals(*facts, pod("r", "t", "n"), shape("s", cpu=600, qos="Guaranteed")) == {"n": ["cannot align pod"]}
    assert able(*facts, shape("s", cpu=2100)) == ["n"]
    assert able(*facts, e.NumaObserved("n", "best-effort", "pod", zones), shape("s", cpu=2100, qos="Guaranteed")) == ["n"]


def test_containers_are_aligned_one_by_one_where_the_scope_says_so():
    half = {"cpu": 2000, "memory": 4 * GIB}
    topology = e.NumaObserved("n", "single-numa-node", "container", (NumaZone("node-0", half), NumaZone("node-1", half)))
    big, small = (Container(str(c), requests={"cpu": c, "memory": GIB}) for c in (1500, 400))
    first = Container("first", requests={"cpu": 2100}, init=True)

    def found(*parts: Container) -> dict[str, list[str]]:
        want = shape("s", cpu=sum(p.requests["cpu"] for p in parts if not p.init), qos="Guaranteed", containers=parts)
        return refusals(node("n", memory=64 * GIB), topology, want)

    assert found(big, big, small, small) == {"n": []}
    assert found(big, big, big) == {"n": ["cannot align container"]}
    assert found(first, small) == {"n": ["cannot align init container"]}


# -- spread ----------------------------------------------------------------------------------------------------------


def four_nodes() -> list[e.Event]:
    """The documentation's cluster: two zones of two nodes; shape `t` has no constraint."""
    homes = {"n1": "A", "n2": "A", "n3": "B", "n4": "B"}
    return [node(n, labels={"zone": z, HOST: n}) for n, z in homes.items()] + [shape("t", cpu=0, memory=0)]


def at(*homes: str, **more) -> list[e.Event]:
    more.setdefault("labels", {"foo": "bar"})
    return [pod(f"q{i}", "t", home, **more) for i, home in enumerate(homes)]


def spread(key: str = "zone", skew: int = 1, **more) -> Spread:
    return Spread(skew, key, "DoNotSchedule", more.pop("selector", APP), **more)


BY_ZONE, BY_NODE = spread(), spread(HOST)
NOT_C = (NodeTerm((Expression("zone", "NotIn", ("C",)),)),)
C = node("n5", labels={"zone": "C", HOST: "n5"})


@pytest.mark.parametrize(
    ("constraints", "homes", "fits"),
    [
        ((BY_ZONE,), ("n1", "n2", "n3"), ["n3", "n4"]),
        ((spread(skew=2),), ("n1", "n2", "n3"), ["n1", "n2", "n3", "n4"]),
        ((BY_ZONE, BY_NODE), ("n1", "n2", "n3"), ["n4"]),
        ((BY_NODE,), ("n1", "n2", "n3"), ["n4"]),
        ((BY_ZONE, BY_NODE), ("n1", "n1", "n2", "n3", "n3"), ["n4"]),
        ((spread(min_domains=3),), ("n1", "n3"), []),
        ((spread(min_domains=2),), ("n1", "n3"), ["n1", "n2", "n3", "n4"]),
        ((spread(min_domains=3),), (), ["n1", "n2", "n3", "n4"]),
        ((Spread(1, "zone", "ScheduleAnyway", APP),), ("n1", "n2"), ["n1", "n2", "n3", "n4"]),
    ],
)
def test_spread_keeps_domains_within_max_skew(constraints, homes, fits):
    assert able(*four_nodes(), *at(*homes), shape("s", spread=constraints), labels={"foo": "bar"}) == fits


def test_constraints_that_contradict_each_other_leave_no_node():
    """The documentation's example: zone B is asked for by one constraint, node n2 by the other."""
    nodes = [fact for fact in four_nodes() if getattr(fact, "name", "") != "n4"]
    facts = *nodes, *at("n1", "n1", "n2", "n3", "n3"), shape("s", spread=(BY_ZONE, BY_NODE))
    assert refusals(*facts, labels={"foo": "bar"}) == {"n1": [SPREAD], "n2": [SPREAD], "n3": [SPREAD]}


def test_zones_that_the_pod_may_not_use_do_not_count_unless_the_policy_says_so():
    """The documentation's example: zone C is empty, and excluded by node affinity."""
    facts = *four_nodes(), C, *at("n1", "n2", "n3")
    honor = shape("s", spread=(BY_ZONE,), node_affinity=NOT_C)
    ignore = shape("s", spread=(spread(node_affinity_policy="Ignore"),), node_affinity=NOT_C)
    assert able(*facts, honor, labels={"foo": "bar"}) == ["n3", "n4"]
    assert able(*facts, ignore, labels={"foo": "bar"}) == []


def test_tainted_nodes_count_unless_the_policy_says_otherwise():
    tainted = node("n5", labels={"zone": "C", HOST: "n5"}, taints=(Taint("key", "NoExecute"),))
    facts = *four_nodes(), tainted, *at("n1", "n3")
    assert able(*facts, shape("s", spread=(BY_ZONE,)), labels={"foo": "bar"}) == []
    honor = shape("s", spread=(spread(node_taints_policy="Honor"),))
    assert able(*facts, honor, labels={"foo": "bar"}) == ["n1", "n2", "n3", "n4"]


def test_nodes_without_the_key_are_refused_and_count_for_no_constraint():
    lone = node("n5", labels={HOST: "n5"})
    found = refusals(*four_nodes(), lone, *at("n1", "n3"), shape("s", spread=(BY_NODE, BY_ZONE)), labels={"foo": "bar"})
    assert found == {"n1": [SPREAD], "n2": [], "n3": [SPREAD], "n4": [], "n5": [SPREAD_LABEL]}


def test_terminating_pods_other_namespaces_and_other_labels_do_not_count():
    want = shape("s", spread=(BY_ZONE,))
    for more in ({"deleting": NOW}, {"namespace": "other"}, {"labels": {"foo": "baz"}}):
        assert able(*four_nodes(), *at("n1", "n2", **more), want, labels={"foo": "bar"}) == ["n1", "n2", "n3", "n4"]


def test_a_pod_that_does_not_match_itself_adds_nothing_to_the_skew():
    assert able(*four_nodes(), *at("n1"), shape("s", spread=(BY_ZONE,))) == ["n1", "n2", "n3", "n4"]
    assert able(*four_nodes(), *at("n1", "n1"), shape("s", spread=(BY_ZONE,))) == ["n3", "n4"]


def test_match_label_keys_spread_each_revision_on_its_own():
    want = shape("s", spread=(spread(match_label_keys=("hash", "absent")),))
    facts = *four_nodes(), *at("n1", "n2", labels={"foo": "bar", "hash": "1"}), want
    assert able(*facts, labels={"foo": "bar", "hash": "1"}) == ["n3", "n4"]
    assert able(*facts, labels={"foo": "bar", "hash": "2"}) == ["n1", "n2", "n3", "n4"]


# -- inter-pod affinity ----------------------------------------------------------------------------------------------


SERVICE = LabelSelector({}, (Expression("service", "In", ("securityscan", "value2")),))
SCANNED = {"service": "securityscan"}


def zoned(selector: LabelSelector | None = SERVICE, key: str = "zone", **more) -> tuple[PodTerm, ...]:
    return (PodTerm(key, selector, **more),)


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (zoned(), ["n1", "n2"]),
        (zoned(key=HOST), ["n1"]),
        (zoned(key="nowhere"), []),
        (zoned(LabelSelector({}, (Expression("service", "NotIn", ("securityscan3",)),))), ["n1", "n2"]),
        (zoned(LabelSelector({}, (Expression("service", "NotIn", ("securityscan",)),))), []),
        (zoned(LabelSelector({}, (Expression("service", "Exists"), Expression("wrongkey", "DoesNotExist")))), ["n1", "n2"]),
        (zoned(LabelSelector({}, (Expression("service", "Exists"), Expression("app", "Exists")))), []),
        (zoned(LabelSelector()), ["n1", "n2"]),
        (zoned(None), []),
        (zoned(namespaces=("DiffNameSpace",)), []),
        (zoned(namespaces=("DiffNameSpace", "default")), ["n1", "n2"]),
        (zoned(namespace_selector=LabelSelector()), ["n1", "n2"]),
        (zoned(namespace_selector=LabelSelector({"team": "subteam1"})), ["n1", "n2"]),
        (zoned(namespace_selector=LabelSelector({"team": "subteam2"})), []),
        (zoned(namespaces=("default",), namespace_selector=LabelSelector({"team": "subteam2"})), ["n1", "n2"]),
        (zoned() + zoned(LabelSelector({"app": "x"})), []),
    ],
)
def test_affinity_asks_for_a_matching_pod_in_the_domain(term, fits):
    facts = *four_nodes(), e.NamespaceObserved("default", {"team": "subteam1"}), *at("n1", labels=SCANNED)
    assert able(*facts, shape("s", pod_affinity=term), labels=SCANNED) == fits
    others = [n for n in ("n1", "n2", "n3", "n4") if n not in fits]
    if len(term) == 1:
        assert able(*facts, shape("s", pod_anti_affinity=term), labels=SCANNED) == others


def test_all_terms_must_be_met_by_one_pod():
    """kube-scheduler: two pods that match one term each are not one that matches both."""
    facts = *four_nodes(), pod("q0", "t", "n1", labels={"a": ""}), pod("q1", "t", "n1", labels={"b": ""})
    both = zoned(LabelSelector({"a": ""})) + zoned(LabelSelector({"b": ""}))
    assert refusals(*facts, shape("s", pod_affinity=both))["n1"] == [AFFINITY]
    assert able(*facts, pod("q2", "t", "n3", labels={"a": "", "b": ""}), shape("s", pod_affinity=both)) == ["n3", "n4"]


def test_the_first_of_a_series_may_go_where_the_keys_are():
    want = shape("s", pod_affinity=zoned())
    lone = node("n5", labels={})
    assert able(*four_nodes(), lone, want, labels=SCANNED) == ["n1", "n2", "n3", "n4"]
    assert able(*four_nodes(), lone, want) == []
    assert able(*four_nodes(), lone, want, *at("n3", labels=SCANNED), labels=SCANNED) == ["n3", "n4"]


def test_a_matching_pod_where_no_key_is_does_not_end_the_exception_for_the_first():
    facts = *four_nodes(), node("n5", labels={}), *at("n5", labels=SCANNED), shape("s", pod_affinity=zoned())
    assert able(*facts, labels=SCANNED) == ["n1", "n2", "n3", "n4"]


def test_anti_affinity_looks_at_both_sides():
    shy = shape("t", cpu=0, memory=0, pod_anti_affinity=zoned())
    facts = [*four_nodes(), shy, *at("n1", labels={})]
    assert refusals(*facts, shape("s"), labels=SCANNED) == {
        "n1": [EXISTING_ANTI_AFFINITY],
        "n2": [EXISTING_ANTI_AFFINITY],
        "n3": [],
        "n4": [],
    }
    assert able(*facts, shape("s"), labels=SCANNED, namespace="other") == ["n1", "n2", "n3", "n4"]
    assert refusals(*four_nodes(), *at("n3", labels=SCANNED), shape("s", pod_anti_affinity=zoned()))["n4"] == [ANTI_AFFINITY]


def test_preferred_terms_refuse_nothing():
    facts = *four_nodes(), *at("n1", labels=SCANNED)
    assert len(able(*facts, shape("s", pod_affinity=zoned(weight=5), pod_anti_affinity=zoned(weight=5)))) == 4


def test_label_keys_bind_a_term_to_the_pods_own_values():
    same = zoned(LabelSelector(), match_label_keys=("hash", "absent"))
    other = zoned(LabelSelector(), mismatch_label_keys=("hash",))
    facts = *four_nodes(), *at("n1", labels={"hash": "1"})
    assert able(*facts, shape("s", pod_affinity=same), labels={"hash": "1"}) == ["n1", "n2"]
    assert able(*facts, shape("s", pod_anti_affinity=same), labels={"hash": "2"}) == ["n1", "n2", "n3", "n4"]
    assert able(*facts, shape("s", pod_affinity=other), labels={"hash": "2"}) == ["n1", "n2"]
