"""Of a ResourceQuota only what is exceeded is a fact: how much is in use changes with every pod."""

import pytest

from restow.contracts import events as e
from restow.contracts.values import Expression
from restow.kube import wire_objects as w
from restow.kube.resource_quotas import quota_fact


def fact(hard: dict, used: dict, **spec) -> e.QuotaObserved:
    return quota_fact(w.Quota(w.Meta(name="q", namespace="ns", uid="u"), w.QuotaSpec(**spec), w.QuotaStatus(hard, used)))


@pytest.mark.parametrize(("hard", "used", "exceeded"), [
    ({"pods": "3"}, {"pods": "3"}, ()),
    ({"pods": "3"}, {"pods": "4"}, ("pods",)),
    ({"requests.cpu": "1"}, {"requests.cpu": "1001m"}, ("requests.cpu",)),
    ({"requests.cpu": "1", "memory": "1Gi"}, {"requests.cpu": "1000m", "memory": "1073741825"}, ("memory",)),
    ({"limits.cpu": 1, "pods": 1}, {"limits.cpu": 2, "pods": 2}, ("limits.cpu", "pods")),
    ({"requests.storage": "1", "services": "1", "count/jobs.batch": "1"}, {"requests.storage": "2", "services": "2", "count/jobs.batch": "2"}, ()),
    ({"pods": "3"}, {}, ()),
    ({"pods": "what"}, {"pods": "4"}, ()),
    ({}, {}, ()),
])  # fmt: skip
def test_what_is_exceeded_of_what_pods_ask_for(hard, used, exceeded):
    assert fact(hard, used) == e.QuotaObserved("ns", "q", "u", exceeded)


def test_which_pods_it_is_about_is_told_where_anything_is_exceeded():
    scopes = {"scopes": ["BestEffort"], "scope_selector": w.QuotaScopes([w.QuotaScope("PriorityClass", "In", ["high"])])}
    assert fact({"pods": "1"}, {"pods": "1"}, **scopes).scopes == ()
    assert fact({"pods": "1"}, {"pods": "2"}, **scopes).scopes == (Expression("BestEffort", "Exists"), Expression("PriorityClass", "In", ("high",)))


def test_one_without_a_spec_or_a_status_is_one():
    assert quota_fact(w.Quota(w.Meta(name="q", namespace="ns", uid="u"))) == e.QuotaObserved("ns", "q", "u")
