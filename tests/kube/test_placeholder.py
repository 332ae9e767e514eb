"""A placeholder asks for what the pod asks for, on one node, and is nobody's."""

import json
from typing import Any

import msgspec
import pytest

from restow.domain.beside import SLOT
from restow.kube import decode as d
from restow.kube.describe import pod_fact
from restow.kube.placeholder import (
    NAMESPACE,
    WITH_HOST_PORTS,
    Hold,
    class_name,
    hold_class,
    name_of,
    placeholder,
)

LABELS = {"app": "db", "pod-template-hash": "abc"}
HOLD = Hold(log="l0g", slot="r-1.hold-0", node="t", namespace="shop", labels=LABELS, migration="m-1")


def read(spec: dict[str, Any]) -> Any:
    """The shape that cluster_watcher reads."""
    meta = {"name": "db-1", "namespace": "shop", "uid": "p-1", "labels": LABELS, "creationTimestamp": "2026-01-01T00:00:00Z"}
    base = {"containers": [{"name": "c", "image": "db", "resources": {"requests": {"cpu": "1500m", "memory": "3Gi"}}}]}
    return pod_fact(d.PODS.object(json.dumps({"metadata": meta, "spec": base | spec}).encode()))[0]


def made(spec: dict[str, Any], hold: Hold = HOLD) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(placeholder(read(spec), hold)))


def back(manifest: dict[str, Any]) -> Any:
    manifest["metadata"] |= {"uid": "h", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return pod_fact(d.PODS.object(json.dumps(manifest).encode()))[0]


def test_it_asks_for_what_the_pod_asks_for_with_its_overhead_and_init_containers():
    spec = {
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "4"}}}],
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}},
            {"name": "b", "resources": {"requests": {"cpu": "500m", "memory": "3Gi", "hugepages-2Mi": "4Mi"}}},
        ],
        "overhead": {"memory": "64Mi"},
    }
    assert back(made(spec)).requests == read(spec).requests
    assert back(made(spec)).devices == read(spec).devices
    resources = made(spec)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "2", "hugepages-2Mi": resources["requests"]["hugepages-2Mi"]}


def test_the_pods_own_scheduler_places_it_on_one_node_and_nowhere_else():
    spec = {"schedulerName": "default-scheduler", "tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}
    got = made(spec)["spec"]
    assert "nodeName" not in got
    (term,) = got["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["t"]}]}
    assert (got["schedulerName"], got["nodeSelector"]) == ("default-scheduler", {"disk": "ssd"})
    assert got["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_each_term_of_the_pods_node_affinity_is_for_this_node_only():
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]} for z in "ab"]
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}}}
    terms = made(spec)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchExpressions"][0]["values"] for term in terms] == [["a"], ["b"]]
    assert all(term["matchFields"][0]["values"] == ["t"] for term in terms)


def test_it_has_none_of_the_pods_labels_and_says_whose_it_is():
    meta = made({})["metadata"]
    assert meta["labels"] == {"app.kubernetes.io/managed-by": "restow", "sidecar.istio.io/inject": "false", "restow.dev/log": "l0g", "restow.dev/migration": "m-1"}
    assert meta["annotations"][SLOT] == "r-1.hold-0"
    assert meta["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert meta["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert meta["annotations"]["linkerd.io/inject"] == "disabled"


def test_the_same_slot_on_the_same_node_has_the_same_name_and_no_other_has():
    others = [msgspec.structs.replace(HOLD, **{field: "x"}) for field in ("log", "slot", "node")]
    names = {name_of(one) for one in (HOLD, *others, msgspec.structs.replace(HOLD, virtual=True))}
    assert len(names) == 5
    assert name_of(HOLD) == made({})["metadata"]["name"]


def test_its_class_has_the_pods_priority_and_never_preempts():
    got = json.loads(msgspec.json.encode(hold_class(-5, "l0g")))
    assert (got["metadata"]["name"], got["value"], got["preemptionPolicy"]) == ("restow-hold--5", -5, "Never")
    assert got["metadata"]["labels"]["restow.dev/log"] == "l0g"
    assert made({"priority": 7, "priorityClassName": "web"})["spec"]["priorityClassName"] == class_name(7)


def test_host_ports_are_held_in_a_namespace_that_allows_them():
    ports = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}]}]}
    got = made(ports)
    assert got["metadata"]["namespace"] == WITH_HOST_PORTS
    assert made({})["metadata"]["namespace"] == NAMESPACE
    assert back(got).host_ports == read(ports).host_ports


def test_a_pod_on_its_hosts_network_is_held_by_its_ports():
    spec = {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 9100}]}]}
    assert "hostNetwork" not in made(spec)["spec"]
    assert back(made(spec)).host_ports == read(spec).host_ports


# -- anti-affinity -----------------------------------------------------------------------------------------------------


def anti(**term: Any) -> dict[str, Any]:
    base = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [base | term]}}}


def terms(spec: dict[str, Any], hold: Hold = HOLD) -> Any:
    found = made(spec, hold)["spec"]["affinity"].get("podAntiAffinity", {})
    return found.get("requiredDuringSchedulingIgnoredDuringExecution", [])


def test_anti_affinity_means_the_pods_own_namespace():
    (term,) = terms(anti())
    assert term["namespaces"] == ["shop"]


@pytest.mark.parametrize("said", [{"namespaces": ["other"]}, {"namespaceSelector": {}}])
def test_a_term_that_names_its_namespaces_keeps_them(said):
    (term,) = terms(anti(**said))
    assert {key: term.get(key) for key in said} == said


def test_match_label_keys_are_the_pods_labels():
    (term,) = terms(anti(matchLabelKeys=["pod-template-hash"], mismatchLabelKeys=["app", "no-such"]))
    assert "matchLabelKeys" not in term
    assert term["labelSelector"]["matchExpressions"] == [
        {"key": "pod-template-hash", "operator": "In", "values": ["abc"]},
        {"key": "app", "operator": "NotIn", "values": ["db"]},
    ]


def test_what_the_pod_itself_blocks_while_it_is_there_is_left_out():
    near = msgspec.structs.replace(HOLD, shared=frozenset({"zone"}))
    assert terms(anti(), near) == []
    assert len(terms(anti(labelSelector={"matchLabels": {"app": "rival"}}), near)) == 1
    assert len(terms(anti(namespaces=["other"]), near)) == 1
    assert len(terms(anti(topologyKey="kubernetes.io/hostname"), near)) == 1


def test_preferred_terms_affinity_and_spread_are_left_out():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    spec = {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    got = made(spec)["spec"]
    assert set(got["affinity"]) == {"nodeAffinity"}
    assert not {"topologySpreadConstraints", "volumes"} & set(got)


def test_its_kubelet_ends_it_when_its_time_is_up():
    assert made({}, msgspec.structs.replace(HOLD, lifetime=600))["spec"]["activeDeadlineSeconds"] == 600
    assert "activeDeadlineSeconds" not in made({})["spec"]


def test_a_virtual_one_is_gated():
    assert made({}, msgspec.structs.replace(HOLD, virtual=True))["spec"]["schedulingGates"] == [{"name": "restow.dev/hold"}]
