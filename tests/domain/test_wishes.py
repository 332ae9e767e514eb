"""What pods say about Reservations, and Reservations about pods, means what it means in Koordinator."""

import json

import pytest
from domain import build as b

from restow.contracts import values as v
from restow.domain.reservation import reservation_affinity as w

FIELD = "metadata.name"


def required(*terms: dict) -> dict:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": list(terms)}}


def asks(affinity=None, exact=None, shape: str = "s", **more):
    """A pod with these annotations; text is taken as it is."""
    said = {w.AFFINITY: affinity, w.EXACT: exact}
    texts = {k: one if isinstance(one, str) else json.dumps(one) for k, one in said.items() if one is not None}
    return b.pod("p", shape, annotations=texts, **more)


def door(pod, labels=None, node_labels=None, shape: str = "s", place=None, **spec) -> str:
    """Whether the pod may use a Reservation `r` of shape `s`, held on `n`."""
    held = b.node("n", labels=node_labels or {})
    shapes = [b.shape("s"), b.shape("large", cpu=2_000), b.shape("half", gpu=(1, 500)), b.shape("gpu", gpu=(1, 1000))]
    r = b.reservation("r", ("t", 1, shape), **spec)
    r = r.__class__(**{name: getattr(r, name) for name in r.__struct_fields__} | {"labels": labels or {}})
    state = b.given(held, *shapes, r, b.e.ReservationAccepted("r", 1, 1, 0), pod)
    return w.closed(state, w.wish_of(pod), pod, state.reservations["r"], state.nodes["n"], place)


def open_to(pod, **more) -> bool:
    return door(pod, **more) == ""


def term(key: str, operator: str, *values: str) -> dict:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_pod_that_says_nothing_wishes_nothing_and_may_use_what_it_owns():
    plain = b.pod("p", "s", annotations={"restow.dev/x": "y"})
    assert w.wish_of(plain) is None
    assert open_to(plain)


def test_equal_annotations_are_read_once():
    assert w.wish_of(asks({"name": "r"})) is w.wish_of(asks({"name": "r"}))


@pytest.mark.parametrize("said", ["", "null", "{}"])
def test_an_empty_affinity_asks_for_any_reservation(said):
    wish = w.wish_of(asks(said))
    assert (wish.affinity, wish.wrong) == (True, "")
    assert open_to(asks(said))


def test_one_with_a_name_uses_that_one_only():
    assert open_to(asks({"name": "r"}))
    assert door(asks({"name": "other"})) == "has another name than 'other', which the pod's reservation affinity asks for"


def test_a_name_counts_more_than_unschedulable_taints_and_selectors():
    taints = (v.Taint("k", "NoSchedule", "v"),)
    assert open_to(asks({"name": "r", "reservationSelector": {"a": "b"}}), unschedulable=True, taints=taints)


def test_an_unschedulable_reservation_is_closed_to_all_but_who_tolerates_that():
    assert door(b.pod("p", "s"), unschedulable=True) == "is unschedulable"
    assert door(asks({}), unschedulable=True) == "is unschedulable"
    for effect in ("NoSchedule", ""):
        toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": effect}
        assert open_to(asks({"tolerations": [toleration]}), unschedulable=True)
    late = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}
    assert not open_to(asks({"tolerations": [late]}), unschedulable=True)


@pytest.mark.parametrize(("effect", "kept_off"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)])
def test_a_taint_keeps_pods_off_that_do_not_tolerate_it(effect, kept_off):
    taints = (v.Taint("team", effect, "a"),)
    why = "has the taint {team: a}, which the pod does not tolerate" if kept_off else ""
    assert door(b.pod("p", "s"), taints=taints) == why
    assert door(asks({}), taints=taints) == why
    assert open_to(asks({"tolerations": [{"key": "team", "operator": "Equal", "value": "a"}]}), taints=taints)
    assert door(asks({"tolerations": [{"key": "team", "value": "b"}]}), taints=taints) == why


def test_tolerations_of_the_pod_itself_are_about_nodes():
    tolerant = b.shape("tolerant", tolerations=(v.Toleration(operator="Exists"),))
    pod = b.pod("p", "tolerant")
    state = b.given(tolerant, b.shape("s"), b.reservation("r", ("t", 1, "s"), taints=(v.Taint("k", "NoSchedule"),)),
                    b.e.ReservationAccepted("r", 1, 1, 0), pod)  # fmt: skip
    assert w.closed(state, None, pod, state.reservations["r"], None)


def test_the_selector_is_over_the_reservations_labels_laid_over_its_nodes():
    wants = asks({"reservationSelector": {"zone": "a"}})
    assert open_to(wants, labels={"zone": "a"})
    assert open_to(wants, node_labels={"zone": "a"})
    assert not open_to(wants, labels={"zone": "b"}, node_labels={"zone": "a"})
    assert door(wants) == "does not match the pod's reservation affinity"


def test_terms_are_ored_and_their_expressions_anded():
    either = asks(required(term("a", "In", "1"), term("b", "Exists")))
    assert open_to(either, labels={"a": "1"})
    assert open_to(either, labels={"b": ""})
    assert not open_to(either, labels={"a": "2"})
    both = {"matchExpressions": [*term("a", "In", "1")["matchExpressions"], *term("b", "DoesNotExist")["matchExpressions"]]}
    assert not open_to(asks(required(both)), labels={"a": "1", "b": "2"})
    assert open_to(asks(required(both)), labels={"a": "1"})


def test_a_field_names_the_reservation_and_not_its_node():
    named = {"matchFields": [{"key": FIELD, "operator": "In", "values": ["r"]}]}
    assert open_to(asks(required(named)))
    named["matchFields"][0]["values"] = ["n"]
    assert not open_to(asks(required(named)))


def test_no_terms_and_empty_terms_match_nothing():
    assert not open_to(asks(required()))
    assert not open_to(asks(required({})))


def test_exact_compares_each_named_resource_and_absent_in_both_is_equal():
    exact = {"resourceNames": ["cpu", "nvidia.com/gpu"]}
    assert open_to(asks(exact=exact))
    assert door(asks(exact=exact), shape="large") == "does not hold exactly what the pod requests of cpu"
    assert door(asks(exact=exact), shape="gpu") == "does not hold exactly what the pod requests of nvidia.com/gpu"
    assert open_to(asks(exact={"resourceNames": ["memory"]}), shape="large")
    assert open_to(asks({"name": "r"}, exact))
    assert not open_to(asks({"name": "r"}, exact), shape="large")


def test_exact_of_a_gpu_means_the_same_devices():
    exact = {"resourceNames": ["koordinator.sh/gpu"]}
    assert open_to(asks(exact=exact, shape="half"), shape="half")
    assert not open_to(asks(exact=exact, shape="half"), shape="gpu")


def test_exact_looks_at_the_place_where_one_is_given():
    exact = asks(exact={"resourceNames": ["cpu"]})
    assert open_to(exact, place="s", shape="large")
    assert not open_to(exact, place="large")


@pytest.mark.parametrize("said", ["", "null", "{}", '{"resourceNames": null}', '{"resourceNames": []}'])
def test_exact_without_names_says_nothing(said):
    assert w.wish_of(asks(exact=said)) is None


@pytest.mark.parametrize(
    ("affinity", "exact", "words"),
    [
        ("{", None, "annotation scheduling.koordinator.sh/reservation-affinity: '{': "),
        ("[]", None, "reservation-affinity"),
        ({"name": 7}, None, "Expected `str | null`"),
        ("[" * 5_000, None, "reservation-affinity"),
        (required(term("a", "Like", "b")), None, "reservationSelectorTerms[0].matchExpressions[0].operator: 'Like'; allowed: In"),
        (required(term("a", "In")), None, "values: 0 of them; allowed with In: one or more"),
        (required(term("a", "Exists", "b")), None, "allowed with Exists: no"),
        (required(term("a", "Gt", "1", "2")), None, "allowed with Gt: one"),
        (required({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["r"]}]}), None, "allowed: metadata.name"),
        ({"tolerations": [{"key": "a", "operator": "Some"}]}, None, "allowed: Equal, Exists"),
        ({"tolerations": [{"value": "a"}]}, None, "tolerations[0].key: empty"),
        (None, '{"resourceNames": "cpu"}', "annotation scheduling.koordinator.sh/exact-match-reservation: "),
    ],
)
def test_what_cannot_be_read_closes_every_reservation_and_says_why(affinity, exact, words):
    pod = asks(affinity, exact)
    wish = w.wish_of(pod)
    assert words in wish.wrong
    assert wish.affinity is (affinity is not None)
    assert door(pod) == f"cannot be asked for: {wish.wrong}"


@pytest.mark.parametrize(("value", "ignored"), [("true", True), ("True", False), ("", False)])
def test_the_label_that_ignores_reservations(value, ignored):
    assert w.ignores(b.pod("p", "s", labels={w.IGNORED: value})) is ignored
    assert not w.ignores(b.pod("p", "s"))


@pytest.mark.parametrize(
    ("label", "order"), [("3", 3), ("-1", -1), ("+2", 2), ("0", 0), ("", 0), ("1_0", 0), ("first", 0), ("9" * 19, 0), ("٣", 0)]
)
def test_the_order_of_a_reservation(label, order):
    fact = b.e.ReservationObserved("r", "koordinator", "", "r", 0, labels={w.ORDER: label})
    assert w.order_of(fact) == order
    assert w.order_of(b.e.ReservationObserved("r", "koordinator", "", "r", 0)) == 0
