"""Creating, reading and replacing objects."""

from __future__ import annotations

from kubesim.conformance.harness import MERGE, Api
from kubesim.conformance.objects import config_map, deployment, pod


async def test_system_fields(api: Api, ns: str) -> None:
    """KS-20"""
    answer = await api.call("POST", f"/api/v1/namespaces/{ns}/configmaps", config_map("a", k="v"))
    assert answer.status == 201
    meta = answer.body["metadata"]
    assert meta["namespace"] == ns
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"].endswith("Z")
    assert int(meta["resourceVersion"]) > 0
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMap", "v1")


async def test_already_exists(api: Api, ns: str) -> None:
    """KS-21"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a"))
    body = await api.fails(409, "AlreadyExists", "POST", path, config_map("a"))
    assert body["message"] == 'configmaps "a" already exists'
    assert body["details"] == {"name": "a", "kind": "configmaps"}


async def test_generate_name(api: Api, ns: str) -> None:
    """KS-22"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    first = await api.ok("POST", path, {"metadata": {"generateName": "g-"}})
    second = await api.ok("POST", path, {"metadata": {"generateName": "g-"}})
    names = [first["metadata"]["name"], second["metadata"]["name"]]
    assert names[0] != names[1]
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


async def test_not_found(api: Api, ns: str) -> None:
    """KS-23"""
    body = await api.fails(404, "NotFound", "GET", f"/apis/apps/v1/namespaces/{ns}/deployments/none")
    assert body["message"] == 'deployments.apps "none" not found'
    assert body["details"] == {"name": "none", "group": "apps", "kind": "deployments"}


async def test_missing_namespace(api: Api) -> None:
    """KS-24"""
    body = await api.fails(
        404, "NotFound", "POST", "/api/v1/namespaces/ks-missing/configmaps", config_map("a")
    )
    assert body["message"] == 'namespaces "ks-missing" not found'


async def test_bodies_that_contradict_the_path(api: Api, ns: str) -> None:
    """KS-25"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    other = config_map("a")
    other["metadata"]["namespace"] = "default"
    body = await api.fails(400, "BadRequest", "POST", path, other)
    assert (
        body["message"]
        == "the namespace of the provided object does not match the namespace sent on the request"
    )
    await api.fails(400, "BadRequest", "POST", path, {**config_map("a"), "apiVersion": "apps/v1"})
    await api.ok("POST", path, config_map("a"))
    body = await api.fails(400, "BadRequest", "PUT", f"{path}/a", config_map("b"))
    assert body["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_missing_and_bad_names(api: Api, ns: str) -> None:
    """KS-26"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    body = await api.fails(422, "Invalid", "POST", path, {"metadata": {}})
    assert body["details"]["causes"][0] == {
        "reason": "FieldValueRequired",
        "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }
    body = await api.fails(422, "Invalid", "POST", path, config_map("Not_Valid"))
    assert (
        'ConfigMap "Not_Valid" is invalid: metadata.name: Invalid value: "Not_Valid": a lowercase RFC 1123'
        in body["message"]
    )
    assert body["details"]["causes"][0]["reason"] == "FieldValueInvalid"


async def test_stale_updates_conflict(api: Api, ns: str) -> None:
    """KS-27"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    first = await api.ok("POST", path, config_map("a", k="1"))
    await api.ok("PUT", f"{path}/a", {**first, "data": {"k": "2"}})
    body = await api.fails(409, "Conflict", "PUT", f"{path}/a", {**first, "data": {"k": "3"}})
    assert body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )
    assert body["details"] == {"name": "a", "kind": "configmaps"}


async def test_updates_that_change_nothing(api: Api, ns: str) -> None:
    """KS-28"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    first = await api.ok("POST", path, config_map("a", k="1"))
    again = await api.ok("PUT", f"{path}/a", first)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_updates_of_another_uid(api: Api, ns: str) -> None:
    """KS-29"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    first = await api.ok("POST", path, config_map("a", k="1"))
    meta = {**first["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}
    body = await api.fails(409, "Conflict", "PUT", f"{path}/a", {**first, "metadata": meta})
    assert "Precondition failed: UID in precondition: 00000000-0000-4000-8000-000000000000" in body["message"]


async def test_updates_of_nothing(api: Api, ns: str) -> None:
    """KS-30"""
    await api.fails(404, "NotFound", "PUT", f"/api/v1/namespaces/{ns}/configmaps/none", config_map("none"))


async def test_updates_without_a_version(api: Api, ns: str) -> None:
    """KS-31"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a", k="1"))
    assert (await api.ok("PUT", f"{path}/a", config_map("a", k="2")))["data"] == {"k": "2"}


async def test_generation(api: Api, ns: str) -> None:
    """KS-32"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    made = deployment("web")
    made["spec"]["paused"] = True  # else its controller annotates it, which counts as a change
    created = await api.ok("POST", path, made)
    assert created["metadata"]["generation"] == 1
    labelled = await api.ok("PATCH", f"{path}/web", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    assert labelled["metadata"]["generation"] == 1
    scaled = await api.ok("PATCH", f"{path}/web", {"spec": {"replicas": 0}}, media=MERGE)
    assert scaled["metadata"]["generation"] == 2


async def test_status_is_separate(api: Api, ns: str) -> None:
    """KS-33"""
    path = f"/api/v1/namespaces/{ns}/pods"
    created = await api.ok("POST", path, {**pod("a"), "status": {"phase": "Running"}})
    assert created["status"]["phase"] == "Pending"
    ignored = await api.ok("PATCH", f"{path}/a", {"status": {"phase": "Running"}}, media=MERGE)
    assert ignored["status"]["phase"] == "Pending"
    change = {"status": {"phase": "Running"}, "spec": {"containers": []}}
    changed = await api.ok("PATCH", f"{path}/a/status", change, media=MERGE)
    assert changed["status"]["phase"] == "Running"
    assert len(changed["spec"]["containers"]) == 1
    assert (await api.ok("GET", f"{path}/a/status"))["status"]["phase"] == "Running"


async def test_dry_run(api: Api, ns: str) -> None:
    """KS-34"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    assert (await api.call("POST", f"{path}?dryRun=All", config_map("a"))).status == 201
    await api.fails(404, "NotFound", "GET", f"{path}/a")
    await api.ok("POST", path, config_map("a", k="1"))
    shown = await api.ok("PATCH", f"{path}/a?dryRun=All", {"data": {"k": "2"}}, media=MERGE)
    assert shown["data"] == {"k": "2"}
    await api.ok("DELETE", f"{path}/a?dryRun=All")
    assert (await api.ok("GET", f"{path}/a"))["data"] == {"k": "1"}


async def test_a_dry_run_of_something_else_is_refused(api: Api, ns: str) -> None:
    """KS-34"""
    path = f"/api/v1/namespaces/{ns}/configmaps"
    await api.ok("POST", path, config_map("a"))
    for method, where, body in (("POST", path, config_map("b")), ("DELETE", f"{path}/a", None)):
        await api.fails(422, "Invalid", method, f"{where}?dryRun=Some", body)
    await api.fails(422, "Invalid", "DELETE", f"{path}/a", {"dryRun": ["Some"]})
    await api.ok("DELETE", f"{path}/a", {"dryRun": ["All"]})
    await api.ok("GET", f"{path}/a")


async def test_create_with_a_version(api: Api, ns: str) -> None:
    """KS-35"""
    obj = config_map("a")
    obj["metadata"]["resourceVersion"] = "1"
    body = (await api.call("POST", f"/api/v1/namespaces/{ns}/configmaps", obj)).body
    assert body["code"] == 500
    assert "resourceVersion should not be set on objects to be created" in body["message"]


async def test_bad_labels(api: Api, ns: str) -> None:
    """KS-36"""
    obj = config_map("a")
    obj["metadata"]["labels"] = {"a": "not valid!"}
    body = await api.fails(422, "Invalid", "POST", f"/api/v1/namespaces/{ns}/configmaps", obj)
    cause = body["details"]["causes"][0]
    assert cause["field"] == "metadata.labels"
    assert cause["message"].startswith(
        'Invalid value: "not valid!": a valid label must be an empty string or consist'
    )


async def test_owner_references(api: Api, ns: str) -> None:
    """KS-37"""
    path = f"/api/v1/namespaces/{ns}/configmaps"

    def owner(uid: str, kind: str = "ConfigMap", controller: bool = True) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": kind, "name": "o", "uid": uid, "controller": controller}

    def owned(*owners: dict[str, object]) -> dict[str, object]:
        obj = config_map("a")
        obj["metadata"]["ownerReferences"] = list(owners)
        return obj

    two = "Only one reference can have Controller set to true. Found \"true\" in references for ConfigMap/o and ConfigMap/o"
    there = (await api.ok("POST", path, config_map("o")))["metadata"]["uid"]
    for obj, why in (
        (owned(owner(there), owner("2")), two),
        (owned(owner("1", "Event")), "/v1, Kind=Event is disallowed from being an owner"),
        (owned({**owner("1"), "name": ""}), 'Invalid value: "": must not be empty'),
        ({"metadata": {"ownerReferences": [owner(there), owner("2")]}}, two),
    ):
        if "kind" in obj:
            body = await api.fails(422, "Invalid", "POST", path, obj)
        else:
            await api.ok("POST", path, owned(owner(there), owner("2", controller=False)))
            body = await api.fails(422, "Invalid", "PATCH", f"{path}/a", obj, media=MERGE)
        cause = body["details"]["causes"][0]  # a patch is looked at twice by a real server
        assert cause["field"].startswith("metadata.ownerReferences"), cause
        assert "[" not in cause["field"]
        assert why in cause["message"]


async def test_events_are_where_they_belong(api: Api, ns: str) -> None:
    """KS-38"""
    path, new = f"/api/v1/namespaces/{ns}/events", f"/apis/events.k8s.io/v1/namespaces/{ns}/events"
    said = {"reason": "R", "type": "Normal", "action": "A", "reportingController": "c", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z"}

    def event(name: str, **about: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "x", **about}, "reason": "R", "type": "Normal"}

    def regarding(name: str, **about: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "regarding": {"kind": "Pod", "name": "x", **about}, **said}

    await api.ok("POST", path, event("a", namespace=ns))
    await api.ok("POST", new, regarding("b", namespace=ns))
    await api.ok("POST", new, regarding("c", namespace="other"))
    await api.ok("POST", "/api/v1/namespaces/default/events", event(f"{ns}-d"))
    for where, wrong in ((path, event("e")), (path, event("f", namespace="other")), (new, regarding("g"))):
        body = await api.fails(422, "Invalid", "POST", where, wrong)
        assert [cause["field"] for cause in body["details"]["causes"]] == ["involvedObject.namespace"]
