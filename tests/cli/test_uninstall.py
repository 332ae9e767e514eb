"""`restow uninstall` against kubesim, without any service of Restow: what Restow made goes, and nothing else."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from cli.conftest import Api, kubesim

from restow.cli.uninstall import removal
from restow.cli.uninstall.inventory import AFTER, BEFORE, DEFINITIONS, unmarked
from restow.kube.client import ApiStatus

DEPLOY = Path(__file__).parents[2] / "deploy"
OURS, MADE = {"app.kubernetes.io/part-of": "restow"}, {"app.kubernetes.io/managed-by": "restow", "restow.dev/log": "log-1"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"
LANDINGS = "/apis/restow.dev/v1/landings"
PODS = "/api/v1/namespaces/default/pods"
SPEC = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
COLLECTIONS = [
    *dict.fromkeys(kind.path for stage in (*BEFORE, *AFTER) for kind in stage.kinds), DEFINITIONS.path, "/api/v1/events", "/api/v1/nodes",
    "/apis/apps/v1/replicasets",
]  # fmt: skip


def objects(api):
    """All that is there, by kind and name."""
    found = set()
    for path in COLLECTIONS:
        try:
            listed = api.call("GET", path)
        except OSError:
            continue
        found |= {(path, one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in listed["items"]}
    return found


def manifests(*files):
    for file in files:
        yield from yaml.safe_load_all((DEPLOY / file).read_text())


def create(api, path, kind, name, spec=None, labels=None, **more):
    version = "apps/v1" if "/apps/" in path else "v1"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or {}, **more}}
    return api.call("POST", path, body | ({"spec": spec} if spec else {}))


def applied(api):
    """deploy/crds, deploy/beside and a Deployment, as kubectl labels them; and what services have made."""
    for one in manifests("crds/reservations.batch.volcano.sh.yaml", "crds/queues.scheduling.volcano.sh.yaml", "beside/crd.yaml"):
        api.call("POST", CRDS, one)
    for one in manifests("beside/landing.yaml", "beside/guard.yaml", "chart/files/guard.yaml"):
        kind = one["kind"].lower().replace("policy", "policie") if one["kind"].endswith("Policy") else one["kind"].lower()
        api.call("POST", f"/apis/admissionregistration.k8s.io/v1/{kind}s", one)
    for name in ("restow-holds", "restow-holds-ports", "restow-system"):
        create(api, "/api/v1/namespaces", "Namespace", name, labels=OURS)
    template = {"metadata": {"labels": {"app": "s"}}, "spec": SPEC}
    deployment = {"replicas": 1, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    create(api, "/apis/apps/v1/namespaces/restow-system/deployments", "Deployment", "restow-descheduler", deployment, OURS)
    create(api, "/api/v1/namespaces/restow-system/configmaps", "ConfigMap", "restow-policy", labels=OURS)
    body = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": {"name": "log-1", "labels": MADE}, "spec": {"open": {}}}
    api.call("POST", LANDINGS, body)
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "restow-hold-7", "labels": MADE}, "value": 7}
    api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    create(api, "/api/v1/namespaces/restow-holds/pods", "Pod", "hold-1", SPEC, MADE)
    create(api, "/api/v1/namespaces/restow-holds/pods", "Pod", "canary-guest-1", {**SPEC, "schedulingGates": [{"name": "restow.dev/canary"}]}, MADE)
    reservation(api, "restow-hold-x-1", MADE)


def reservation(api, name, labels=None):
    spec = {"owners": [{"labelSelector": {}}], "tasks": [{"name": "t", "replicas": 1, "template": {"spec": SPEC}}]}
    meta = {"name": name, "labels": labels or {}}
    api.call("POST", VOLCANO, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": spec})


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setattr(removal, "SETTLED", 0.1)
    with kubesim(tmp_path, "--controllers") as url:
        found = Api(url)
        create(found, PODS, "Pod", "theirs", SPEC)
        yield found


def test_nothing_is_left_and_nothing_else_is_touched(api, restow):
    before = objects(api)
    applied(api)
    create(api, PODS, "Pod", "waits", {**SPEC, "schedulingGates": [{"name": "restow.dev/landing"}, {"name": "theirs"}]})
    marks = {"restow.dev/migration": "aborted", "restow.dev/aborted-until": "5", "restow.dev/movable": "true", "restow.dev/moved-from": "n"}
    create(api, PODS, "Pod", "marked", SPEC, annotations=marks)
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert result.exit_code == 0, result.output
    assert objects(api) - before == {("/api/v1/pods", "default", "waits"), ("/api/v1/pods", "default", "marked")}
    assert before <= objects(api)
    assert api.call("GET", f"{PODS}/waits")["spec"]["schedulingGates"] == [{"name": "theirs"}]
    assert api.call("GET", f"{PODS}/marked")["metadata"]["annotations"] == {"restow.dev/movable": "true"}
    assert "ungated Pod default/waits\n" in result.output
    assert "deleted Landing log-1\n" in result.output
    lines = result.output.splitlines()
    first = {line.split()[1]: i for i, line in reversed(list(enumerate(lines)))}
    assert first["MutatingAdmissionPolicy"] < first["Deployment"] < lines.index("ungated Pod default/waits") < lines.index("deleted Pod restow-holds/hold-1")
    again = restow("uninstall", "--kube", api.url, "--yes")
    assert (again.exit_code, again.output) == (0, f"nothing of Restow is in the cluster at {api.url}\n")


def test_a_dry_run_says_the_same_and_changes_nothing(api, restow):
    applied(api)
    before = objects(api)
    said = restow("uninstall", "--kube", api.url, "--dry-run", "-o", "json")
    assert objects(api) == before
    done = restow("uninstall", "--kube", api.url, "--yes", "-o", "json")
    planned, carried = ({tuple(one.values()) for one in json.loads(r.stdout)} for r in (said, done))
    assert planned == carried


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_it_says_first_which_cluster_that_is(api, restow, tmp_path, monkeypatch, more):
    """In a folder where a stack runs it is the stack's, whatever kubectl's configuration says."""
    applied(api)
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / ".restow").mkdir()
    (folder / "stack.json").write_text(json.dumps({"kube": api.url}))
    assert restow("uninstall", *more).output.startswith(f"the cluster at {api.url}, of the stack in {folder}:\n")
    assert restow("uninstall", "--kube", api.url, *more).output.startswith(f"the cluster at {api.url}:\n")


def test_a_dry_run_of_nothing_says_so(api, restow):
    assert restow("uninstall", "--kube", api.url, "--dry-run").output == f"nothing of Restow is in the cluster at {api.url}\n"


def test_a_definition_whose_objects_people_have_made_stays_unless_they_say_so(api, restow):
    applied(api)
    reservation(api, "tomorrow")
    kept = "reservations.batch.volcano.sh"
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert f"kept CustomResourceDefinition {kept}: 1 of its objects was not made by Restow, and would be deleted with it" in result.output
    assert [one["metadata"]["name"] for one in api.call("GET", CRDS)["items"]] == [kept]
    assert [one["metadata"]["name"] for one in api.call("GET", VOLCANO)["items"]] == ["tomorrow"]
    assert restow("uninstall", "--kube", api.url, "--yes", "--with-reservations").exit_code == 0
    assert api.call("GET", CRDS)["items"] == []


def test_what_volcano_has_installed_stays(api, restow):
    (crd,) = manifests("crds/queues.scheduling.volcano.sh.yaml")
    del crd["metadata"]["labels"]
    api.call("POST", CRDS, crd)
    assert restow("uninstall", "--kube", api.url, "--yes").output == f"nothing of Restow is in the cluster at {api.url}\n"
    assert len(api.call("GET", CRDS)["items"]) == 1


def test_nobody_is_asked_where_nobody_can_answer(api, restow):
    applied(api)
    before = objects(api)
    result = restow("uninstall", "--kube", api.url)
    assert result.exit_code == 2
    assert "nobody can be asked here; allowed: --yes" in result.said
    assert objects(api) == before


def test_broken_off_anywhere_it_can_be_run_again(api, restow, monkeypatch):
    before = objects(api)
    applied(api)
    create(api, PODS, "Pod", "waits", {**SPEC, "schedulingGates": [{"name": "restow.dev/landing"}]})
    own, left = removal.Removal._refused, 0

    async def breaks(self, request, *about):
        nonlocal left
        left -= 1
        if left < 0:
            request.close()
            raise ConnectionError("the link is gone")
        return await own(self, request, *about)

    monkeypatch.setattr(removal.Removal, "_refused", breaks)
    for _ in range(30):
        left = 2
        if restow("uninstall", "--kube", api.url, "--yes").exit_code == 0:
            break
    assert objects(api) - before == {("/api/v1/pods", "default", "waits")}
    assert not api.call("GET", f"{PODS}/waits")["spec"].get("schedulingGates")


def test_nodes_keep_nothing_of_what_restow_has_set_and_everything_else(api, restow):
    theirs = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true", "note": "x"}
    ours = {"karpenter.sh/do-not-disrupt": "true", "restow.dev/protected": "log-1 karpenter.sh/do-not-disrupt", "restow.dev/cordoned": "log-2 p"}
    ours |= {"restow.dev/protected-until": "2026-01-01T00:00:00Z", "restow.dev/cordoned-until": "2199-01-01T00:00:00Z"}
    create(api, "/api/v1/nodes", "Node", "n", {"unschedulable": True}, annotations=theirs | ours)
    create(api, "/api/v1/nodes", "Node", "drained", {"unschedulable": True})
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert result.exit_code == 0, result.said
    there = {one["metadata"]["name"]: one for one in api.call("GET", "/api/v1/nodes")["items"]}
    assert there["n"]["metadata"]["annotations"] == theirs
    assert not there["n"]["spec"].get("unschedulable")
    assert there["drained"]["spec"]["unschedulable"], "somebody else's"


def test_a_cordon_that_somebody_has_set_again_stays_when_its_mark_goes_and_so_goes_an_end_without_its_mark():
    notes = {"restow.dev/cordoned": "log p", "restow.dev/cordoned-until": "2026-01-01T00:00:00Z"}
    fields = [{"manager": "restow", "fieldsV1": {"f:metadata": {"f:annotations": {"f:restow.dev/cordoned": {}}}}}, {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    node = {"metadata": {"name": "n", "resourceVersion": "1", "annotations": notes, "managedFields": fields}, "spec": {"unschedulable": True}}
    gone = {"metadata": {"annotations": dict.fromkeys(notes), "resourceVersion": "1"}}
    assert unmarked(node) == gone
    del node["metadata"]["managedFields"]
    assert unmarked(node) == gone | {"spec": {"unschedulable": None}}
    del notes["restow.dev/cordoned"]
    assert unmarked(node) == {"metadata": {"annotations": dict.fromkeys(notes), "resourceVersion": "1"}}


def test_a_nodes_marks_that_nobody_of_ours_has_written_neither_stop_it_nor_uncordon_the_node():
    for note in (" log plan", "log\tplan", " "):
        for mark in ("restow.dev/protected", "restow.dev/cordoned"):
            node = {"metadata": {"name": "n", "resourceVersion": "1", "annotations": {mark: note}}, "spec": {"unschedulable": True}}
            assert "spec" not in unmarked(node), (mark, note)


async def test_pods_that_somebody_gates_again_and_again_end_it_with_their_names():
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"schedulingGates": [{"name": "restow.dev/landing"}]}}

    class Client:
        async def get(self, path, query=()):
            return json.dumps({"items": [pod] if path == "/api/v1/pods" else [], "metadata": {}}).encode()

        async def patch(self, *_):
            return b"{}"

    async def sleep(seconds):
        pass

    said = []
    with pytest.raises(removal.Stuck, match="Pod default/p"):
        await removal.Removal(Client(), said.append, dry=False, reservations=False, sleep=sleep).run()
    assert {one.action for one in said} == {"ungate"}


def test_a_pod_that_cannot_be_freed_keeps_no_other_waiting(api, restow):
    """Its namespace's admission refuses it, say: nobody else frees the others any more."""
    applied(api)
    for name in ("a", "b"):
        create(api, PODS, "Pod", name, {**SPEC, "schedulingGates": [{"name": "restow.dev/landing"}]})
    api.call("POST", "/kubesim/faults", {"action": "status", "verb": "patch", "resource": "pods", "name": "^a$", "code": 403, "count": -1})
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert result.exit_code == 1, result.output
    assert "not allowed: Pod default/a: 403" in " ".join(result.said.split())
    assert "ungated Pod default/a" not in result.output
    assert not api.call("GET", f"{PODS}/b")["spec"].get("schedulingGates")
    api.call("DELETE", "/kubesim/faults")
    assert restow("uninstall", "--kube", api.url, "--yes").exit_code == 0
    assert not api.call("GET", f"{PODS}/a")["spec"].get("schedulingGates")


def test_a_pod_that_was_replaced_by_another_of_its_name_is_freed_all_the_same(api, restow):
    """A StatefulSet's: kube-apiserver answers to its uid with 422."""
    applied(api)
    create(api, PODS, "Pod", "a-0", {**SPEC, "schedulingGates": [{"name": "restow.dev/landing"}]})
    api.call("POST", "/kubesim/faults", {"action": "status", "verb": "patch", "resource": "pods", "code": 422})
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert result.exit_code == 0, result.output
    assert not api.call("GET", f"{PODS}/a-0")["spec"].get("schedulingGates")


def test_one_placeholder_that_is_not_to_be_deleted_keeps_no_other(api, restow):
    applied(api)
    api.call("POST", "/kubesim/faults", {"action": "status", "verb": "delete", "resource": "pods", "name": "canary", "code": 403, "count": -1})
    result = restow("uninstall", "--kube", api.url, "--yes")
    assert result.exit_code == 1, result.output
    assert "not allowed: Pod restow-holds/canary-guest-1: 403" in " ".join(result.said.split())
    assert [pod["metadata"]["name"] for pod in api.call("GET", "/api/v1/namespaces/restow-holds/pods")["items"]] == ["canary-guest-1"]


@pytest.mark.parametrize("versions", [("v1",), ("v1beta1",), ("v1", "v1beta1")])
async def test_the_policy_goes_once_whatever_version_of_it_the_api_serves(versions):
    """Kubernetes 1.34 and 1.35 serve v1beta1 alone, 1.36 and later may serve both: the same object."""
    group, there = "/apis/admissionregistration.k8s.io/", {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}

    class Client:
        async def get(self, path, query=()):
            version, _, kind = path.removeprefix(group).partition("/")
            if path.startswith(group) and version not in versions:
                raise ApiStatus(404, "NotFound")
            items = [{"metadata": {"name": "restow-landing", "uid": kind}}] if kind in there else []
            return json.dumps({"items": items, "metadata": {}}).encode()

        async def delete(self, path, options):
            there.remove(path.split("/")[-2])

    done = []
    await removal.Removal(Client(), done.append, dry=False, reservations=False, sleep=lambda seconds: asyncio.sleep(0)).run()
    assert [one.kind for one in done] == ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"]
