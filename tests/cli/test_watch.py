"""`restow watch`: a cluster is read, what a plan would win is said, and nothing is written there."""

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
import yaml
from cli.conftest import RESTOW, Api, kubesim

from restow.cli.failures import Failure
from restow.cli.watch import cluster, command
from restow.cli.watch.screen import score_text
from restow.domain.records import Score
from restow.runtime.policy_file import read

POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: packing
    pluginConfig:
      - name: Defragmentation
        args:
          resourceType: cpu
          lowThresholds: {cpu: 50}
          defragmentThresholds: {cpu: 51}
          protectionThresholds: {cpu: 100}
    plugins: {balance: {enabled: [Defragmentation]}}
restow: {mode: automatic, holdDeadline: 1s, evictDeadline: 1s, landDeadline: 1s}
"""
EVERYTHING = (
    "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces", "/api/v1/events", "/api/v1/configmaps", "/apis/apps/v1/replicasets", "/apis/events.k8s.io/v1/events",
    "/apis/coordination.k8s.io/v1/leases", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
)  # fmt: skip


def play(api):
    """On node a two pods, on b six, all of one ReplicaSet of another scheduler, and of one core each."""
    for name, cores in (("a", "8"), ("b", "10")):
        has = {"cpu": cores, "memory": "32Gi", "pods": "110"}
        api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": has, "allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]}})
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"schedulerName": "somebody-elses", "containers": [container]}}
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 8, "selector": {"matchLabels": {"app": "web"}}, "template": template}}
    api.call("POST", "/apis/apps/v1/namespaces/default/replicasets", body)
    for name, node in zip(eight(api), "aabbbbbb", strict=True):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        api.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", {"metadata": {"name": name}, "target": target})
    until(lambda: all(running(pod) for pod in api.call("GET", "/api/v1/pods")["items"]))


def eight(api):
    found = []
    until(lambda: found.extend(pod["metadata"]["name"] for pod in api.call("GET", "/api/v1/pods")["items"]) or len(found) >= 8 or found.clear())
    return found


def running(pod):
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def until(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def versions(api):
    """All that there is, and of which version; of nodes and Leases, which kubelets write, what is said of them beside that."""
    found = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for path in EVERYTHING for item in api.call("GET", path)["items"]}
    nodes = api.call("GET", "/api/v1/nodes")["items"]
    found |= dict.fromkeys((lease["metadata"]["uid"] for lease in api.call("GET", "/apis/coordination.k8s.io/v1/leases")["items"]), "a Lease")
    return found | {node["metadata"]["uid"]: [node["metadata"].get("annotations"), node["metadata"].get("labels"), node["spec"]] for node in nodes}


@contextlib.contextmanager
def watching(url, folder, *options):
    """The command as a process; yields its output's file, and ends it with Ctrl-C."""
    (policy := folder / "policy.yaml").write_text(POLICY)
    said = folder / f"said-{time.monotonic_ns()}"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [RESTOW, "watch", "--kube", url, "--policy", policy, "--every", "5s", *options], cwd=folder, stdout=out, stderr=out, env=os.environ | {"COLUMNS": "100"}
        )
        try:
            yield said, process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, said.read_text()


def test_a_cluster_is_watched_scored_and_not_touched(tmp_path, restow):
    with kubesim(tmp_path, "--kubelet-speed", "20") as url:
        api = Api(url)
        play(api)
        before = versions(api)
        with watching(url, tmp_path) as (said, process):
            until(lambda: "SCORE" in said.read_text() or process.poll() is not None)
            stack = json.loads((tmp_path / ".restow" / "watch" / "stack.json").read_text())
            assert set(stack["services"]) == {"cluster_watcher", "descheduler"}
            assert "observed" in restow("get", "plans").output
            refused = restow("migrate", f"pod/default/{api.call('GET', '/api/v1/pods')['items'][0]['metadata']['name']}")
            assert refused.exit_code != 0
        text = said.read_text()
        assert "would move 2 pods off 1 node" in text
        assert "looked back: 2 of 2 predicted slots are free" in text
        assert "100.0 % of 2 predicted slots were free when looked at" in text
        assert versions(api) == before

        with watching(url, tmp_path) as (said, process):
            until(lambda: "goes on after" in said.read_text() or process.poll() is not None)
        assert "SCORE  1 plan" in said.read_text() or "SCORE  2 plans" in said.read_text()

        with watching(url, tmp_path, "-o", "json") as (said, process):
            until(lambda: '"plan"' in said.read_text() or process.poll() is not None)
        first = json.loads(said.read_text().splitlines()[0])
        assert (first["what"], first["nodes"], first["pods"]) == ("watching", 2, 8)


def test_a_folder_is_of_one_cluster(tmp_path, restow):
    assert cluster.recognise(tmp_path / "w", "one") is False
    assert cluster.recognise(tmp_path / "w", "one") is True
    with kubesim(tmp_path) as url:
        refused = restow("watch", "--kube", url, "--data", str(tmp_path / "w"))
    assert refused.exit_code == 2
    assert "is of another cluster (one, and this is" in refused.said


def test_a_cluster_that_cannot_be_read_is_said_at_once(tmp_path, restow):
    refused = restow("watch", "--kube", "http://127.0.0.1:9", "--data", str(tmp_path / "w"))
    assert refused.exit_code == 3
    assert "cannot be read" in refused.said
    none = restow("watch", "--kube", "/no/such/file")
    assert none.exit_code == 2
    assert "the path of a kubeconfig" in none.said


def test_its_rights_are_to_read_and_nothing_else(restow):
    account, role, binding = yaml.safe_load_all(restow("watch", "--rbac").output)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list", "watch"}
    assert {"nodes", "pods"} <= {name for rule in role["rules"] for name in rule["resources"]}
    assert (account["metadata"]["name"], binding["roleRef"]["name"]) == ("restow-watch", role["metadata"]["name"])


def test_whatever_mode_a_policy_says_it_is_observed(tmp_path):
    (file := tmp_path / "p.yaml").write_text(POLICY)
    said = yaml.safe_load(command.policy_of(file, "10m"))["restow"]
    assert (said["mode"], said["interval"]) == ("observe", "10m")
    file.write_text(POLICY.replace("mode: automatic", "cron: 0 3 * * *"))
    assert "interval" not in yaml.safe_load(command.policy_of(file, "10m"))["restow"]
    usual = yaml.safe_load(command.policy_of(None, "7m"))
    assert (usual["restow"]["interval"], usual["restow"]["mode"], usual["maxNoOfPodsToEvictTotal"]) == ("7m", "observe", 200)
    read(usual)


@pytest.mark.parametrize("text", ["[", "a text", "restow: [1]"])
def test_what_is_no_policy_is_refused(tmp_path, restow, text):
    (file := tmp_path / "p.yaml").write_text(text)
    with kubesim(tmp_path) as url:
        refused = restow("watch", "--kube", url, "--policy", str(file), "--data", str(tmp_path / "w"))
    assert refused.exit_code == 2


@pytest.mark.parametrize("text", [POLICY.partition("profiles:")[0] + "restow: {beside: [default-scheduler]}\n", POLICY.replace("enabled: [Defragmentation]", "enabled: []")])
def test_a_policy_that_makes_no_plans_is_refused(tmp_path, text):
    """It would be looked at for ever, and say nothing."""
    (file := tmp_path / "p.yaml").write_text(text)
    with pytest.raises(Failure, match="no plugin is enabled that makes plans") as refused:
        command.policy_of(file, "10m")
    assert refused.value.message.startswith(f"{file}: $.profiles")


@pytest.mark.parametrize(
    ("every", "more", "said"),
    [
        ("0s", "", "--every is '0s'; allowed: more than nothing"), ("-5m", "", "--every is '-5m'"), ("gestern", "", "--every: 'gestern' is not a duration"),
        ("10m", "  holdDeadlin: 1s", r"p.yaml: \$.restow.holdDeadlin"), ("10m", "  interval: morgen", r"p.yaml: \$.restow.interval: 'morgen' is not a duration"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_starts_with_the_name_of_the_file(tmp_path, every, more, said):
    (file := tmp_path / "p.yaml").write_text(POLICY.replace("restow: {mode: automatic, holdDeadline: 1s, evictDeadline: 1s, landDeadline: 1s}", f"restow:\n  mode: automatic\n{more}\n"))
    with pytest.raises(Failure, match=said):
        command.policy_of(file, every)


def test_the_score_is_one_line():
    assert score_text(Score()) == "SCORE  nothing to look back at yet"
    assert score_text(Score(3, 660, 649, 2, 225, 5)) == "SCORE  3 plans: 98.3 % of 660 predicted slots were free when looked at; 2.2 % of 225 pods had ended within an hour"
    assert score_text(Score(1, 0, 0, 4)) == "SCORE  1 plan: no slot to look at"
