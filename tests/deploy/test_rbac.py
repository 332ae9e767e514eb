"""What each service may do on Kubernetes, exactly (DESIGN 1). Widening a role means changing this table."""

import re

import pytest
from deploy.manifests import SERVICES, named, of_kind, sources

from restow.contracts.publish.catalogue import WRITERS
from restow.kube.decode import COLLECTIONS

ALLOWED: dict[str, dict[str, set[str]]] = {
    "cluster-watcher": {
        "nodes": {"list", "watch"},
        "pods": {"list", "watch"},
        "replicasets.apps": {"list", "watch"},
        "jobs.batch": {"list", "watch"},
        "reservations.batch.volcano.sh": {"list", "watch"},
        "reservations.scheduling.koordinator.sh": {"list", "watch"},
        "namespaces": {"list", "watch"},
        "priorityclasses.scheduling.k8s.io": {"list", "watch"},
        "queues.scheduling.volcano.sh": {"list", "watch"},
        "podgroups.scheduling.volcano.sh": {"list", "watch"},
        "persistentvolumeclaims": {"list", "watch"},
        "persistentvolumes": {"list", "watch"},
        "storageclasses.storage.k8s.io": {"list", "watch"},
        "csinodes.storage.k8s.io": {"list", "watch"},
        "noderesourcetopologies.topology.node.k8s.io": {"list", "watch"},
        "devices.scheduling.koordinator.sh": {"list", "watch"},
        "poddisruptionbudgets.policy": {"list", "watch"},
        "resourcequotas": {"list", "watch"},
    },
    "scheduler-session": {
        "pods": {"get"},
        "pods/binding": {"create"},
        "pods/status": {"patch"},
        "pods/eviction": {"create"},
        "persistentvolumeclaims": {"get", "patch"},
        "persistentvolumes": {"get", "patch"},
        "podgroups.scheduling.volcano.sh": {"get", "patch"},
        "podgroups/status.scheduling.volcano.sh": {"get", "patch"},
        "queues.scheduling.volcano.sh": {"get", "patch"},
        "queues/status.scheduling.volcano.sh": {"get", "patch"},
        "events.events.k8s.io": {"get", "create", "patch"},
    },
    "reservation-cache": {
        "reservations.batch.volcano.sh": {"get", "list", "watch"},
        "reservations/status.batch.volcano.sh": {"patch"},
        "reservations.scheduling.koordinator.sh": {"get", "list", "watch"},
        "reservations/status.scheduling.koordinator.sh": {"patch"},
        "events.events.k8s.io": {"get", "create", "patch"},
    },
    "descheduler": {
        "reservations.batch.volcano.sh": {"get", "create", "delete"},
        "reservations.scheduling.koordinator.sh": {"delete"},
        "pods": {"get", "patch"},
        "pods/eviction": {"create"},
        "podgroups.scheduling.volcano.sh": {"get", "patch"},
        "podgroups/status.scheduling.volcano.sh": {"get", "patch"},
        "nodes.metrics.k8s.io": {"list"},
        "pods.metrics.k8s.io": {"list"},
        "nodes/node_cpu_usage_avg.custom.metrics.k8s.io": {"get"},
        "nodes/node_memory_usage_avg.custom.metrics.k8s.io": {"get"},
        "events.events.k8s.io": {"get", "create", "patch"},
    },
    "garbage-collector": {
        "reservations.batch.volcano.sh": {"delete"},
        "reservations.scheduling.koordinator.sh": {"delete"},
    },
}
MANIFESTS = sources()


def verbs(role: dict) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{resource}.{group}".rstrip("."), set()).update(rule["verbs"])
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_do_exactly_this(service):
    assert verbs(named(MANIFESTS, "ClusterRole", f"restow-{service}")) == ALLOWED[service]


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
