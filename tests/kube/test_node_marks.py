"""Whose a cordon is: managedFields say who has written it last. In the form in which an API server 1.36 says it."""

from typing import Any

import msgspec
import pytest

from restow.contracts.times import millis, seconds
from restow.domain.autoscalers import CORDONED, ENDS, GRACE, PROTECTED, PROTECTS
from restow.kube.node_marks import Node, change, collected

NOW = millis("2026-01-01T00:00:00Z")
CA, KARPENTER = PROTECTS
CORDON = {"f:spec": {"f:unschedulable": {}}}


def noted(*keys: str) -> dict[str, Any]:
    return {"f:metadata": {"f:annotations": {".": {}, **{f"f:{key}": {} for key in keys}}}}


def node(*written: tuple[str, dict[str, Any]], cordoned: bool = True, **notes: str) -> Node:
    """`written`: by whom, and which fields."""
    entries = [{"manager": who, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields} for who, fields in written]
    meta = {"name": "n", "uid": "u", "resourceVersion": "1", "annotations": notes, "managedFields": entries}
    return msgspec.convert({"metadata": meta, "spec": {"unschedulable": cordoned}}, Node)


OURS = {CORDONED: "log p", ENDS[CORDONED]: seconds(NOW)}
KUBELET = ("kubelet", {"f:metadata": {"f:annotations": {"f:volumes.kubernetes.io/controller-managed-attach-detach": {}}}})
US = ("restow", noted(*OURS) | CORDON)


def given_back(there: Node) -> list[bool]:
    """Whether the node is uncordoned: by its descheduler, and by a collector."""
    return ["spec" in said for said in (change(there, "log", protect=False, plan="", until=NOW), collected(there, NOW + GRACE)[1])]


def test_a_cordon_that_was_written_with_its_mark_goes_with_it():
    assert given_back(node(KUBELET, US, **OURS)) == [True, True]


@pytest.mark.parametrize("how", ["kubectl-cordon", "kubectl"])
def test_a_cordon_that_somebody_has_set_again_since_stays_when_the_mark_goes(how: str):
    """They have uncordoned the node and cordoned it again; or applied it beside ours."""
    for us in (("restow", noted(*OURS)), US):
        there = node(KUBELET, us, (how, CORDON), **OURS)
        assert given_back(there) == [False, False]
        assert collected(there, NOW + GRACE)[1] == {"metadata": {"annotations": dict.fromkeys(OURS)}}


def test_where_nobody_says_who_has_written_it_the_mark_counts():
    assert given_back(node(**OURS)) == [True, True]
    assert given_back(node(KUBELET, ("restow", noted(*OURS)), **OURS)) == [True, True]


def test_what_somebody_else_has_set_for_an_autoscaler_since_stays():
    notes = {PROTECTED: f"log {CA} {KARPENTER}", ENDS[PROTECTED]: seconds(NOW), CA: "true", KARPENTER: "true"}
    there = node(("restow", noted(PROTECTED, ENDS[PROTECTED], KARPENTER)), ("kubectl-annotate", noted(CA)), cordoned=False, **notes)
    gone = dict.fromkeys((KARPENTER, PROTECTED, ENDS[PROTECTED]))
    assert collected(there, NOW + GRACE)[1] == {"metadata": {"annotations": gone}}
    assert change(there, "log", protect=False, plan="", until=NOW) == {"metadata": {"annotations": gone}}
