"""Kinds that are stored and say nothing by themselves: roles, admission policies, and their bindings."""

from __future__ import annotations

from typing import Any

from kubesim.conformance.harness import MERGE, TABLE, Api, unique

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def rules(verb: str) -> list[dict[str, Any]]:
    return [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]


async def wide(api: Api, path: str) -> list[Any]:
    """Cells of an object's row, with those that only `-o wide` shows; the age is left out."""
    table = await api.ok("GET", path, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    return [cell for name, cell in zip(names, table["rows"][0]["cells"], strict=True) if name not in ("Age", "Created At")]


async def test_roles_and_their_bindings_are_stored(api: Api, ns: str) -> None:
    """KS-178"""
    name = unique("reader")
    for root in (f"{RBAC}/namespaces/{ns}/roles", f"{RBAC}/clusterroles"):
        await api.ok("POST", root, {"metadata": {"name": name}, "rules": rules("get")})
        changed = await api.ok("PATCH", f"{root}/{name}", {"rules": rules("list")}, media=MERGE)
        assert changed["rules"] == rules("list")
        assert await wide(api, f"{root}/{name}") == [name]
    subjects = [{"kind": "User", "name": "a"}, {"kind": "User", "name": "b"}, {"kind": "Group", "name": "g"}]
    subjects.append({"kind": "ServiceAccount", "name": "s", "namespace": ns})
    roots = {f"{RBAC}/namespaces/{ns}/rolebindings": "Role", f"{RBAC}/clusterrolebindings": "ClusterRole"}
    for root, kind in roots.items():
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        made = await api.ok("POST", root, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
        assert [subject.get("apiGroup", "") for subject in made["subjects"]] == [role["apiGroup"]] * 3 + [""]
        assert await wide(api, f"{root}/{name}") == [name, f"{kind}/{name}", "a, b", "g", f"{ns}/s"]
        body = await api.fails(422, "Invalid", "PATCH", f"{root}/{name}", {"roleRef": {"name": "other"}}, media=MERGE)
        assert body["message"].endswith("cannot change roleRef")
        body = await api.ok("DELETE", f"{root}/{name}")
        assert (body["kind"], body["status"]) == ("Status", "Success")
    for root in (f"{RBAC}/namespaces/{ns}/roles", f"{RBAC}/clusterroles"):
        await api.ok("DELETE", f"{root}/{name}")
        await api.fails(404, "NotFound", "GET", f"{root}/{name}")


async def test_admission_policies_and_their_bindings_are_stored(api: Api, ns: str) -> None:
    """KS-179"""
    name = unique("nobody")
    nobody = {
        "namespaceSelector": {"matchLabels": {"nobody": "here"}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    spec = {"paramKind": kind, "matchConstraints": nobody, "validations": [{"expression": "true"}, {"expression": "!false"}]}
    policies, bindings = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"
    made = await api.ok("POST", policies, {"metadata": {"name": name}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    assert await wide(api, f"{policies}/{name}") == [name, 2, "v1/ConfigMap"]
    for reference, shown in (
        ({"name": "m", "namespace": ns}, f"{ns}/m"),
        ({"name": "m"}, "*/m"),
        (
            {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "x", "operator": "In", "values": ["c", "d"]}]}},
            "&LabelSelector{MatchLabels:map[string]string{a: b,},"
            "MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:x,Operator:In,Values:[c d],},},}",
        ),
    ):
        said = {"policyName": name, "validationActions": ["Warn"], "paramRef": {**reference, "parameterNotFoundAction": "Allow"}}
        await api.ok("POST", bindings, {"metadata": {"name": name}, "spec": said})
        assert await wide(api, f"{bindings}/{name}") == [name, name, shown]
        await api.ok("DELETE", f"{bindings}/{name}")
    await api.ok("POST", bindings, {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Warn"]}})
    assert await wide(api, f"{bindings}/{name}") == [name, name, "<unset>"]
    for root in (bindings, policies):
        await api.ok("DELETE", f"{root}/{name}")
        await api.fails(404, "NotFound", "GET", f"{root}/{name}")
