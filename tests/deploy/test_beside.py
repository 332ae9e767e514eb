"""What is added for moves beside another scheduler fails open, gives nobody more than it needs, and is guarded."""

import re
from typing import Any

import pytest
import yaml
from deploy.manifests import DEPLOY, SERVICES, build, named, of_kind, whole

from restow.contracts.values import DeviceShare
from restow.domain.landing_gate import LEFT_OUT, PART_OF, RESTOW, left_out
from restow.kube.beside import LANDING
from restow.kube.effects import _given
from restow.kube.placeholder import NAMESPACE, WITH_HOST_PORTS, class_name

FOLDERS = ("beside", "beside/host-ports", "beside/claims")
IN_EACH = "rights.yaml"
"""Of `beside/claims`: what is applied in each namespace of people's."""
HELD = {"beside": NAMESPACE, "beside/host-ports": WITH_HOST_PORTS}


def sources(folder: str) -> list[Any]:
    files = [f for f in sorted((DEPLOY / folder).glob("*.yaml")) if f.name != "kustomization.yaml"]
    return [m for f in files if (folder, f.name) != ("beside/claims", IN_EACH) for m in yaml.safe_load_all(f.read_text())]


CLAIMS = list(yaml.safe_load_all((DEPLOY / "beside" / "claims" / IN_EACH).read_text()))
BOTH = [m for folder in FOLDERS for m in sources(folder)]
GUARD = list(yaml.safe_load_all((DEPLOY / "chart" / "files" / "guard.yaml").read_text()))
"""Of every installation."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_builds_with_one_label_and_all_that_is_written(folder):
    built = build(folder)
    assert {(m["kind"], m["metadata"]["name"]) for m in built} == {(m["kind"], m["metadata"]["name"]) for m in sources(folder)}
    assert {m["metadata"]["labels"]["app.kubernetes.io/part-of"] for m in built} == {"restow"}


def test_pods_are_made_and_deleted_where_placeholders_are_and_nowhere_else():
    for role in of_kind(BOTH, "ClusterRole"):
        for rule in role["rules"]:
            assert "pods" not in rule["resources"] or rule["verbs"] == ["patch"]
    for folder, namespace in HELD.items():
        assert {m["metadata"]["namespace"] for m in of_kind(sources(folder), "Role", "RoleBinding")} == {namespace}
        assert named(BOTH, "Namespace", namespace)


def test_in_a_namespace_of_peoples_the_session_makes_and_deletes_pods_and_the_collector_deletes_them():
    """And nobody else. What may be done with claims, the guard says."""
    assert {m["metadata"].get("namespace") for m in CLAIMS} == {None}
    assert {m["metadata"]["labels"]["app.kubernetes.io/part-of"] for m in CLAIMS} == {"restow"}
    allowed = {(role["metadata"]["name"], resource): set(rule["verbs"]) for role in of_kind(CLAIMS, "Role") for rule in role["rules"] for resource in rule["resources"]}
    assert allowed == {
        ("restow-scheduler-session-claims", "pods"): {"create", "delete"},
        ("restow-scheduler-session-claims", "resourceclaims"): {"get", "list", "patch", "delete"},
        ("restow-scheduler-session-claims", "resourceclaims/status"): {"patch"},
        ("restow-garbage-collector-claims", "pods"): {"list", "delete"},
    }
    (guard,) = named(BOTH, "ValidatingAdmissionPolicy", "restow-guard-claims")["spec"]["matchConstraints"]["resourceRules"]
    assert (set(guard["operations"]), set(guard["resources"])) == ({"UPDATE", "DELETE"}, {"resourceclaims", "resourceclaims/status"})


def test_who_may_name_the_class_of_placeholders_elsewhere_has_a_right_that_nothing_else_gives():
    """In the whole cluster: a Role that allows everything in a namespace does not give it."""
    asked = 'authorizer.group("restow.dev").resource("placeholders").check("create").allowed()'
    assert asked in named(BOTH, "ValidatingAdmissionPolicy", "restow-guard-priorities")["spec"]["validations"][0]["expression"]
    assert [role["metadata"]["name"] for role in of_kind([*BOTH, *CLAIMS, *whole()], "ClusterRole", "Role") if "placeholders" in str(role["rules"])] == ["restow-scheduler-session-claims"]
    assert [role["kind"] for role in of_kind(BOTH, "ClusterRole", "Role") if "placeholders" in str(role["rules"])] == ["ClusterRole"]


def test_nobody_gets_a_wildcard_or_a_way_to_more_rights():
    for role in of_kind([*BOTH, *CLAIMS], "ClusterRole", "Role"):
        assert "*" not in str(role["rules"])
        assert not re.search("secrets|serviceaccounts|exec|escalate|impersonate|policies", str(role["rules"]))


def test_each_role_is_bound_to_its_service_and_to_no_other():
    for binding in of_kind([*BOTH, *CLAIMS], "ClusterRoleBinding", "RoleBinding"):
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == name
        service = name.removesuffix("-beside").removesuffix("-claims")
        assert [s["name"] for s in binding["subjects"]] == [service]
        assert service.removeprefix("restow-") in SERVICES


def test_whoever_may_patch_pods_is_guarded():
    base = list(yaml.safe_load_all((DEPLOY / "chart" / "files" / "rights.yaml").read_text()))
    patch = {
        role["metadata"]["name"].removesuffix("-beside")
        for role in of_kind([*BOTH, *base], "ClusterRole")
        for rule in role["rules"]
        if {"pods", "pods/status"} & set(rule["resources"]) and "patch" in rule["verbs"] and rule["apiGroups"] == [""]
    }
    (condition,) = named(GUARD, "ValidatingAdmissionPolicy", "restow-guard")["spec"]["matchConditions"]
    (pattern,) = re.findall(r'matches\("(.+)"\)', condition["expression"])
    for namespace in ("restow-system", "restow-second"):
        assert patch == {f"restow-{one}" for one in SERVICES if re.search(pattern, f"system:serviceaccount:{namespace}:restow-{one}")}
    assert not re.search(pattern, "system:serviceaccount:default:restow-descheduler-2")


OPEN = {
    # Their status alone, which is ours to write; what is ours; what people see of us.
    "reservations.batch.volcano.sh", "reservations.scheduling.koordinator.sh", "reservations/status.batch.volcano.sh", "reservations/status.scheduling.koordinator.sh",
    "landings.restow.dev", "events.events.k8s.io",
    # Kubernetes asks for it besides the right to patch a claim's status, which is guarded.
    "resourceclaims/binding.resource.k8s.io",
}  # fmt: skip
"""What services may change or delete in the whole cluster without a guard."""


def test_whatever_a_service_may_change_of_others_is_guarded():
    """`patch` of an object is the right to all of it."""
    guards = [policy["spec"] for policy in of_kind([*BOTH, *CLAIMS, *GUARD, *build("autoscalers")], "ValidatingAdmissionPolicy")]

    def guarded(account: str, verb: str, group: str, resource: str) -> bool:
        operation = {"patch": "UPDATE", "delete": "DELETE"}[verb]
        return any(
            (not guard.get("matchConditions") or any(re.search(pattern, account) for pattern in re.findall(r'matches\("(.+)"\)', guard["matchConditions"][0]["expression"])))
            and any(operation in rule["operations"] and group in rule["apiGroups"] and resource in rule["resources"] for rule in guard["matchConstraints"]["resourceRules"])
            for guard in guards
        )

    base = list(yaml.safe_load_all((DEPLOY / "chart" / "files" / "rights.yaml").read_text()))
    found = {
        (role["metadata"]["name"], verb, f"{resource}.{group}".rstrip("."))
        for role in of_kind([*BOTH, *CLAIMS, *base, *build("autoscalers")], "ClusterRole")
        for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in {"patch", "delete"} & set(rule["verbs"])
        if not guarded(f"system:serviceaccount:restow-system:{re.sub('-(beside|claims|autoscalers)$', '', role['metadata']['name'])}", verb, group, resource)
    }  # fmt: skip
    assert {name for _, _, name in found} == OPEN
    assert not {verb for role in of_kind([*BOTH, *CLAIMS, *base], "ClusterRole") for rule in role["rules"] for verb in rule["verbs"]} & {"update", "deletecollection"}


def test_what_a_binding_gives_a_pod_the_guard_of_bindings_lets_pass():
    given = _given([DeviceShare(0, 1000)], [1], ("name", "uid"))
    (rule,) = named(GUARD, "ValidatingAdmissionPolicy", "restow-guard-bindings")["spec"]["validations"]
    labels, annotations = (set(re.findall(r'"([^"]+)"', names)) for names in re.findall(r"k in \[([^]]+)\]", rule["expression"]))
    assert annotations == set(given)
    # What the API server itself gives a Binding, from 1.35 on.
    assert labels == {"topology.kubernetes.io/zone", "topology.kubernetes.io/region"}


def test_the_gates_policy_fails_open_and_reads_a_crd():
    policy = named(BOTH, "MutatingAdmissionPolicy", "restow-landing")["spec"]
    assert policy["failurePolicy"] == "Ignore"
    assert policy["paramKind"]["kind"] == named(BOTH, "CustomResourceDefinition", "landings.restow.dev")["spec"]["names"]["kind"]
    assert {m["patchType"] for m in policy["mutations"]} == {"ApplyConfiguration"}
    assert LANDING in str(policy["mutations"])
    assert named(BOTH, "MutatingAdmissionPolicyBinding", "restow-landing")["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"


def test_every_guard_binds_the_accounts_of_each_installation():
    for policy in of_kind([*BOTH, *GUARD, *build("autoscalers")], "ValidatingAdmissionPolicy"):
        for condition in policy["spec"].get("matchConditions", ()):
            if "serviceaccount" in condition["expression"]:
                assert "serviceaccount:[^:]+:restow-" in condition["expression"], policy["metadata"]["name"]
        assert "restow-system" not in str(policy["spec"]["validations"])


def test_those_whom_the_gate_leaves_out_are_those_who_stay():
    asked = named(BOTH, "MutatingAdmissionPolicy", "restow-landing")["spec"]["matchConstraints"]
    assert asked["namespaceSelector"] == {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [LEFT_OUT]}]}
    assert asked["objectSelector"] == {"matchExpressions": [{"key": PART_OF, "operator": "NotIn", "values": [RESTOW]}]}
    for workload in of_kind(whole(), "Deployment", "StatefulSet"):
        assert left_out("any", workload["spec"]["template"]["metadata"]["labels"])


def test_the_classes_of_placeholders_are_nobody_elses():
    policy = named(BOTH, "ValidatingAdmissionPolicy", "restow-guard-priorities")["spec"]
    assert policy["matchConstraints"]["namespaceSelector"] == {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE, WITH_HOST_PORTS]}]}
    (said,) = policy["validations"]
    assert f'startsWith("{class_name(7).removesuffix("7")}")' in said["expression"]


def test_a_guard_that_is_bound_refuses():
    for policy in of_kind([*BOTH, *GUARD], "ValidatingAdmissionPolicy"):
        binding = named([*BOTH, *GUARD], "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])["spec"]
        assert (binding["policyName"], binding["validationActions"], policy["spec"]["failurePolicy"]) == (policy["metadata"]["name"], ["Deny"], "Fail")
