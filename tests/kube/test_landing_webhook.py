"""The webhook's answers: a pod is always allowed, and gets the gate by the same rule as by the policy. What cannot be read lists nobody."""

import base64
import json

import pytest

from restow.domain.landing_gate import GATE, Listed
from restow.kube.landing_webhook import LANDINGS, Lists, answer
from restow.kube.reflector import Delete, Replace, Upsert

NOW, LATER, BEFORE = "2026-03-01T08:00:00Z", "2026-03-01T08:00:01.500Z", "2026-03-01T07:59:59Z"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": True}


def landing(name="log", **entries):
    return LANDINGS.object(json.dumps({"metadata": {"name": name, "resourceVersion": "7"}, "spec": {"open": entries}}).encode())


def owners(**more):
    of = {"namespace": "work", "until": LATER, "labels": [{"app": "a", "tier": "b"}, {"app": "c"}]} | more
    found = Lists()
    body = {"metadata": {"name": "log", "resourceVersion": "7"}, "spec": {"owners": {"reservation": of}}}
    found.take([Upsert(LANDINGS.object(json.dumps(body).encode()))])
    return found


def lists(**entries):
    found = Lists()
    found.take([Upsert(landing(**entries))])
    return found


def patch(known, *, owner=OWNER, fields=({"time": NOW, "manager": "m"},), annotations=None, labels=None, namespace="work", **spec):
    pod = {"metadata": {"annotations": annotations, "labels": labels, "ownerReferences": [owner], "managedFields": fields}, "spec": {"containers": [], **spec}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r", "operation": "CREATE", "namespace": namespace, "object": pod}}
    response = answer(json.dumps(review).encode(), known)["response"]
    assert (response["uid"], response["allowed"]) == ("r", True)
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else None


SAID = {"op": "add", "path": "/metadata/annotations", "value": {GATE: f"log {LATER}"}}
ADDED = [SAID, {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]


@pytest.mark.parametrize(
    ("entries", "more", "expected"),
    [
        ({"u": LATER}, {}, ADDED),
        ({"u": LATER}, {"schedulingGates": []}, ADDED),
        ({"u": LATER}, {"schedulingGates": [{"name": "other"}]}, [SAID, {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}]),
        ({"u": LATER}, {"schedulingGates": [{"name": GATE}]}, [SAID]),
        ({"u": LATER}, {"annotations": {"a": "b"}}, [SAID | {"path": "/metadata/annotations/restow.dev~1landing", "value": f"log {LATER}"}, ADDED[1]]),
        ({"u": "soon"}, {}, None),
        ({"u": "2026-03-01T08:00:02"}, {}, None),
        ({"u": LATER}, {"nodeName": "n"}, None),
        ({"u": LATER}, {"owner": OWNER | {"controller": False}}, None),
        ({"u": LATER}, {"owner": {k: v for k, v in OWNER.items() if k != "controller"}}, None),
        ({"u": LATER}, {"fields": None}, None),
        ({"u": LATER}, {"fields": [{"manager": "m"}]}, None),
        ({"u": LATER}, {"fields": [{"time": NOW}, {"time": "2026-03-01T08:00:02Z"}]}, None),
        ({"u": NOW}, {}, None),
        ({"u": BEFORE}, {}, None),
        ({"other": LATER}, {}, None),
        ({}, {}, None),
    ],
    ids=str,
)
def test_who_is_listed_for_longer_than_now_gets_the_gate(entries, more, expected):
    assert patch(lists(**entries), **more) == expected


def test_each_installation_has_a_list_and_what_has_gone_or_cannot_be_read_lists_nobody():
    known = Lists()
    known.take([Upsert(landing("a", v=LATER)), Upsert(landing("b", u=LATER))])
    assert patch(known) == [SAID | {"value": {GATE: f"b {LATER}"}}, ADDED[1]]
    known.take([Upsert(LANDINGS.object(b'{"metadata": {"name": "b", "resourceVersion": "8"}, "spec": {"open": {"u": 5}}}'))])
    assert patch(known) is None
    known.take([Upsert(landing("b", u=LATER)), Delete("b", landing("b"))])
    assert patch(known) is None
    known.take([Upsert(landing("b", u=LATER)), Replace(frozenset({"a"}), "9")])
    assert list(known.known) == ["a"]
    known.take([Upsert(LANDINGS.object(b'{"metadata": {"name": "a", "resourceVersion": "8"}}'))])
    assert known.known == {"a": Listed({})}


@pytest.mark.parametrize(
    ("of", "more", "expected"),
    [
        ({}, {"labels": {"app": "a", "tier": "b", "x": "y"}}, ADDED),
        ({}, {"labels": {"app": "c"}}, ADDED),
        ({}, {"labels": {"app": "a"}}, None),
        ({}, {"labels": None}, None),
        ({}, {"labels": {"app": "c"}, "namespace": "other"}, None),
        ({"namespace": ""}, {"labels": {"app": "c"}, "namespace": "other"}, ADDED),
        ({"until": NOW}, {"labels": {"app": "c"}}, None),
        ({}, {"labels": {"app": "c"}, "nodeName": "n"}, None),
    ],
    ids=str,
)
def test_who_is_like_the_owners_of_a_reservation_gets_the_gate(of, more, expected):
    assert patch(owners(**of), **more) == expected


@pytest.mark.parametrize("pod", [None, 5, {}, {"metadata": {"managedFields": [{"time": "never"}]}, "spec": {}}])
def test_a_pod_that_cannot_be_read_is_left_as_it_is(pod):
    said = answer(json.dumps({"request": {"uid": "r", "object": pod}}).encode(), lists(u=LATER))["response"]
    assert said == {"uid": "r", "allowed": True}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": {}}', b"\xff"])
def test_what_is_no_review_is_refused(body):
    with pytest.raises(ValueError, match="not an AdmissionReview"):
        answer(body, lists())
