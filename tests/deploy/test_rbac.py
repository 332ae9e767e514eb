"""What is deployed is what deploy/rights.py declares, and that gives nobody more than it needs."""

import re
import runpy

import pytest
from deploy.manifests import ROOT, SERVICES, named, of_kind, whole

from restow.contracts.ids import WRITERS
from restow.kube.decode import COLLECTIONS

MANIFESTS = whole()


def verbs(role: dict) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{resource}.{group}".rstrip("."), set()).update(rule["verbs"])
    return found


ALLOWED = {service: verbs(named(MANIFESTS, "ClusterRole", f"restow-{service}")) for service in SERVICES}


def test_what_is_deployed_is_what_is_declared():
    declared = runpy.run_path(str(ROOT / "deploy" / "rights.py"))
    for path, write in (("RBAC", "rbac"), ("BESIDE", "beside"), ("HOST_PORTS", "host_ports"), ("CLAIM_RIGHTS", "claims"), ("CLAIM_BINDING", "claim_binding"), ("WEBHOOK", "webhook"), ("AUTOSCALERS", "autoscalers"), ("PERMISSIONS", "permissions")):
        assert declared[path].read_text() == declared[write](), "run `make rights`"
    assert declared["NKEYS"].read_text() == declared["permissions"](keys=True), "run `make rights`"


def test_the_watcher_may_read_exactly_what_it_watches():
    """Both sides change together: a collection that is watched and not allowed is a 403 for ever."""
    assert {c.name for c in COLLECTIONS} == set(ALLOWED["cluster-watcher"])


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_owns_its_lease_and_no_other(service):
    create, own, home = named(MANIFESTS, "Role", f"restow-{service}")["rules"]
    assert create == {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}
    family = next(f for f, writer in WRITERS.items() if writer == service.replace("-", "_"))
    assert own["resourceNames"] == [f"restow-{family}"]
    assert set(own["verbs"]) == {"get", "update"}
    assert (home["resources"], home["resourceNames"], home["verbs"]) == (["namespaces"], ["restow-system"], ["get"])


def test_nobody_has_a_wildcard_secrets_or_a_way_to_more_rights():
    for role in of_kind(MANIFESTS, "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert not re.search(r"\*", str(rule)), role["metadata"]["name"]
            assert not {"secrets", "serviceaccounts", "serviceaccounts/token", "pods/exec"} & set(rule["resources"])
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_every_binding_gives_one_service_its_own_role():
    bindings = of_kind(MANIFESTS, "ClusterRoleBinding", "RoleBinding")
    assert len(bindings) == 2 * len(SERVICES)
    for binding in bindings:
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == name
        assert binding["roleRef"]["kind"] == binding["kind"].removesuffix("Binding")
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "restow-system"}]


def test_only_descheduler_and_session_can_remove_a_pod_and_only_by_eviction():
    assert {s for s, rules in ALLOWED.items() if "pods/eviction" in rules} == {"descheduler", "scheduler-session"}
    assert not [s for s, rules in ALLOWED.items() if {"delete", "deletecollection"} & rules.get("pods", set())]


def test_a_status_is_written_and_never_read_by_itself():
    """It is read with its object (`crs.patch_status`)."""
    assert {frozenset(v) for rules in ALLOWED.values() for name, v in rules.items() if "/status" in name} == {frozenset({"patch"})}
