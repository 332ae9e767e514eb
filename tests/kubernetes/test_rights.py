"""What each service's account may do on a real API server: all that is declared (`restow.kube.rights`), and nothing else."""

from __future__ import annotations

import json

import pytest
from kubernetes.lab import DEPLOY, NAMESPACE, own

from restow.cli.doctor.look import HOLDS, needed
from restow.kube import rights

SERVICES = sorted(rights.KUBERNETES)
EVERYBODY = {("authorization.k8s.io", "selfsubjectaccessreviews"), ("authorization.k8s.io", "selfsubjectrulesreviews"), ("authentication.k8s.io", "selfsubjectreviews")}
"""What whoever has logged in may ask of himself, by Kubernetes' own roles."""


@pytest.fixture(scope="module", name="cluster")
def installed(tmp_path_factory):
    with own(tmp_path_factory, "rights") as one:
        one.kubectl("apply", "-f", str(DEPLOY / "restow.yaml"))
        one.kubectl("apply", "-k", str(DEPLOY / "beside"))
        one.kubectl("apply", "-k", str(DEPLOY / "beside" / "claims"))
        one.kubectl("apply", "-k", str(DEPLOY / "autoscalers"))
        one.kubectl("create", "namespace", "shop")
        one.kubectl("apply", "-n", "shop", "-f", str(DEPLOY / "beside" / "claims" / "rights.yaml"))
        yield one


def allowed(lab, service, place):
    """(group, resource, verb, name) by the API server's own word."""
    account = ["--as", f"system:serviceaccount:{NAMESPACE}:restow-{service}"]
    for group in ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"):
        account += ["--as-group", group]
    (file := lab.work / "review.json").write_text(json.dumps({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": place}}))
    status = json.loads(lab.kubectl("create", "--validate=false", "-f", str(file), "-o", "json", *account))["status"]
    assert not status["incomplete"]
    return {
        (group, resource, verb, name)
        for rule in status["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if (group, resource) not in EVERYBODY
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    }


def declared(service, place):
    rules = [(where, rule) for one, where, rule in needed(NAMESPACE, True, ["shop"]) if one == service]
    rules += [("", rule) for rule in rights.NODES.get(service, ())]
    return {
        (rule.group, resource, verb, rule.name)
        for where, rule in rules
        if where in ("", place)
        for resource in rule.resources.split()
        for verb in rule.verbs.split()
    }


@pytest.mark.parametrize("place", ["default", NAMESPACE, HOLDS, "shop", "kube-system"])
@pytest.mark.parametrize("service", SERVICES)
def test_an_account_may_do_what_is_declared_and_nothing_else(cluster, service, place):
    assert allowed(cluster, service, place) == declared(service, place)
