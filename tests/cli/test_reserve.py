"""`restow reserve` against a Kubernetes API: kubesim without controllers, and without any service of Restow."""

import asyncio
import json

import pytest
import yaml
from cli.conftest import Api, kubesim
from cli.test_like import workload

from restow.cli.embedded.outside import install
from restow.cli.embedded.shipped import crds

VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """With Volcano's CRD and not Koordinator's, and a Deployment `web`."""
    with kubesim(tmp_path_factory.mktemp("kubesim")) as url:
        found = Api(url)
        asyncio.run(install(found.url, [path for path in crds() if path.name == "reservations.batch.volcano.sh.yaml"], 30))
        body = {"apiVersion": "apps/v1", **workload()}
        found.call("POST", DEPLOYMENTS, body)
        plain = workload(name="plain")
        del plain["spec"]["template"]["spec"]
        plain["spec"]["template"]["spec"] = {"containers": [{"name": "c", "image": "i"}]}
        found.call("POST", DEPLOYMENTS, {"apiVersion": "apps/v1", **plain})
        yield found


@pytest.fixture
def reserve(api, restow):
    """`reserve("--replicas", "3")`: of the Deployment web, where nothing else is said. What was made is gone afterwards."""

    def call(*arguments):
        like = () if "--like" in arguments else ("--like", "deployment/web")
        return restow("reserve", *like, *arguments, "--kube", api.url)

    yield call
    for item in api.call("GET", VOLCANO)["items"]:
        api.call("DELETE", f"{VOLCANO}/{item['metadata']['name']}")


def reservations(api):
    return {item["metadata"]["name"]: item for item in api.call("GET", VOLCANO)["items"]}


def set_phase(api, name, phase, message=""):
    status = {"status": {"state": {"phase": phase, "reason": "Because", "message": message}}}
    api.call("PATCH", f"{VOLCANO}/{name}/status", status, "application/merge-patch+json")


def test_it_says_what_it_did_and_where_to_look(api, reserve):
    result = reserve("--replicas", "3", "--ttl", "1h")
    (name,) = reservations(api)
    assert result.exit_code == 0
    assert result.output == (
        f"reservation/default/{name}: 3 slots for the next pods of deployment/web, for 1h\n"
        f"look at it: restow describe reservation/default/{name}\n"
    )
    spec = reservations(api)[name]["spec"]
    assert (spec["ttl"], spec["matchPolicy"], spec["tasks"][0]["replicas"]) == ("1h", "Owner", 3)


def test_twice_is_once(api, reserve):
    assert reserve().exit_code == 0
    again = reserve()
    assert (again.exit_code, "unchanged" in again.said) == (0, True)
    assert len(reservations(api)) == 1


def test_what_is_used_up_frees_capacity_for_the_next(api, reserve):
    reserve()
    (name,) = reservations(api)
    set_phase(api, name, "Succeeded")
    assert f"{name}-2: 1 slot" in reserve().said
    assert f"{name}-2: unchanged" in reserve().said


def test_a_name_of_ones_own_is_used_once(api, reserve):
    assert reserve("--name", "mine").exit_code == 0
    refused = reserve("--name", "mine", "--replicas", "2")
    assert (refused.exit_code, "choose another --name" in refused.said) == (2, True)
    assert "kubectl delete reservation.batch.volcano.sh/mine -n default" in refused.said


def test_a_dry_run_prints_what_kubectl_would_apply_and_makes_nothing(api, reserve):
    body = yaml.safe_load(reserve("--dry-run", "--ttl", "0").output)
    assert not reservations(api)
    api.call("POST", VOLCANO, body)
    assert reservations(api)[body["metadata"]["name"]]["spec"]["ttl"] == "0"


def test_other_forms_of_output(api, reserve):
    made = json.loads(reserve("-o", "json").output)
    name = made["metadata"]["name"]
    assert reserve("-o", "name").output == f"reservation.batch.volcano.sh/{name}\n"
    assert yaml.safe_load(reserve("-o", "yaml").output)["metadata"]["uid"] == made["metadata"]["uid"]


def test_priority_is_that_of_the_class(api, reserve):
    api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    body = workload(name="urgent")
    body["spec"]["template"]["spec"] = {**body["spec"]["template"]["spec"], "priorityClassName": "high"}
    api.call("POST", DEPLOYMENTS, {"apiVersion": "apps/v1", **body})
    made = json.loads(reserve("--like", "deployment/urgent", "-o", "json").output)
    assert made["spec"]["tasks"][0]["template"]["spec"]["priority"] == 1000


def test_wait_returns_when_it_is_held(api, reserve):
    reserve()
    (name,) = reservations(api)
    set_phase(api, name, "Available")
    assert reserve("--wait").exit_code == 0


@pytest.mark.parametrize(
    ("phase", "message", "words"),
    [
        ("", "", "is Restow running on this cluster"),
        ("Pending", "0/2 nodes are available: 2 Insufficient cpu.", "is Pending: 0/2 nodes are available: 2 Insufficient cpu."),
        ("Failed", "spec.owners: is empty", "has failed (Because): spec.owners: is empty"),
    ],
)
def test_wait_tells_why_it_is_not_held(api, reserve, phase, message, words):
    reserve("--name", "w")
    if phase:
        set_phase(api, "w", phase, message)
    # What has failed is over: the same name is not taken again.
    result = reserve("--name", "w", "--wait", "--timeout", "100ms")
    if phase == "Failed":
        assert (result.exit_code, "used up or ended" in result.said) == (2, True)
        return
    assert result.exit_code == 1
    assert words in result.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--like", "deployment/wob"), "deployment/wob is not in namespace default: there are plain"),
        (("--like", "deployment/web", "-n", "shop"), "there is no deployment at all. -n names another namespace"),
        (("--like", "service/web"), "allowed: deployment, statefulset, replicaset, job, pod"),
        (("--like", "deployment/plain"), "set schedulerName: restow in its pod template"),
        (("--ttl", "3 days"), "allowed: numbers with the units h, m and s"),
        (("--ttl", "99999999h"), "--ttl: '99999999h' is too long; allowed: up to 2562047h"),
        (("--ttl", "-5m"), "0 for never"),
        (("--expires", "tomorrow"), "allowed: a time in RFC 3339"),
        (("--expires", "2001-01-01T00:00:00Z"), "allowed: a future time"),
        (("--expires", "2031-01-01T00:00:00Z", "--ttl", "1h"), "use one of them"),
        (("--replicas", "0"), "1<=x<=1000"),
        (("--api", "koordinator", "--queue", "q"), "have no queue"),
        (("--api", "koordinator", "--replicas", "101"), "allowed: up to 100"),
        (("--api", "koordinator"), "does not know reservations.scheduling.koordinator.sh: install its definition"),
        (("--name", "Not_A_Name"), "the Kubernetes API refuses"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(api, reserve, arguments, words):
    result = reserve(*arguments)
    assert (result.exit_code, words in result.said) == (2, True), result.output
    assert not reservations(api)


def test_restow_may_serve_another_schedulers_name(api, reserve):
    made = json.loads(reserve("--like", "deployment/plain", "--scheduler", "default-scheduler", "-o", "json").output)
    assert made["spec"]["tasks"][0]["template"]["spec"]["schedulerName"] == "default-scheduler"


def test_without_an_api_it_says_how_to_name_one(restow, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    nowhere = restow("reserve", "--like", "deployment/web")
    assert (nowhere.exit_code, "--kube URL|KUBECONFIG" in nowhere.said) == (3, True)
    closed = restow("reserve", "--like", "deployment/web", "--kube", "http://127.0.0.1:1")
    assert (closed.exit_code, "does not answer" in closed.said) == (3, True)


def test_the_stack_that_runs_here_is_found(api, restow, tmp_path):
    (tmp_path / ".restow").mkdir()
    (tmp_path / ".restow" / "stack.json").write_text(json.dumps({"kube": api.url, "nats": "nats://127.0.0.1:1", "pid": 1}))
    assert yaml.safe_load(restow("reserve", "--like", "deployment/web", "--dry-run").output)["kind"] == "Reservation"
