"""`restow descheduler run --once` against a Kubernetes API, with nothing of Restow running: kubesim without controllers."""

import json
from pathlib import Path

import pytest
import yaml
from cli.conftest import Api, kubesim

PODS = "/api/v1/namespaces/shop/pods"


class Shop(Api):
    def workload(self):
        """A ReplicaSet, for orphans would be collected."""
        labels = {"matchLabels": {"rs": "web"}}
        template = {"metadata": {"labels": {"rs": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": labels, "template": template}}
        self.web = self.call("POST", "/apis/apps/v1/namespaces/shop/replicasets", body)["metadata"]["uid"]

    def node(self, name, **spec):
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec, "status": status})
        self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")

    def pod(self, name, node, phase="Running", labels=None, owner="ReplicaSet", cpu="100m", **spec):
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": self.web, "controller": True}] if owner else []
        container = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}
        made = {
            "metadata": {"name": name, "labels": labels or {"app": name}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 30, **spec},
        }
        self.call("POST", PODS, made)
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        self.call("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": ready}}, "application/merge-patch+json")

    def pods(self):
        """Names of those that are not going away."""
        items = self.call("GET", PODS)["items"]
        return {pod["metadata"]["name"] for pod in items if "deletionTimestamp" not in pod["metadata"]}


@pytest.fixture
def api(tmp_path):
    """Two nodes, of which `n1` repels pods by a taint, and pods on it. Nobody creates pods or ends them."""
    with kubesim(tmp_path) as url:
        found = Shop(url)
        found.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        found.workload()
        found.node("n1", taints=[{"key": "drain", "effect": "NoSchedule"}])
        found.node("n2")
        yield found


def policy(plugin="RemovePodsViolatingNodeTaints", args=None, evictor=None, point="deschedule", **more):
    configs = [{"name": "DefaultEvictor", "args": evictor or {}}, {"name": plugin, "args": args or {}}]
    profile = {"name": "default", "pluginConfig": configs, "plugins": {point: {"enabled": [plugin]}}}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile], **more}


@pytest.fixture
def run(api, restow, tmp_path):
    def call(said, *options):
        file = tmp_path / "policy.yaml"
        file.write_text(said if isinstance(said, str) else yaml.safe_dump(said))
        return restow("descheduler", "run", "--once", "--policy", file.name, "--kube", api.url, *options)

    return call


def test_a_dry_run_says_what_would_go_and_why_the_others_stay(api, run):
    api.pod("web-1", "n1")
    api.pod("bare", "n1", owner="")
    api.pod("fine", "n2")
    result = run(policy(), "--dry-run")
    assert result.exit_code == 0
    assert "2 nodes and 3 pods" in result.said
    assert "RemovePodsViolatingNodeTaints (deschedule, profile default): 1 pod to evict, 1 looked at and left" in result.said
    assert "1 would go" in result.said
    assert "shop/web-1" in result.said
    assert "Bare: nobody owns it" in result.said
    assert max(map(len, result.output.splitlines())) <= 100
    assert api.pods() == {"web-1", "bare", "fine"}


def test_what_is_decided_is_evicted_with_the_policys_grace(api, run):
    api.pod("web-1", "n1")
    api.pod("fine", "n2")
    result = run(policy(gracePeriodSeconds=7))
    assert result.exit_code == 0
    assert "1 evicted" in result.said
    assert api.pods() == {"fine"}
    assert api.call("GET", f"{PODS}/web-1")["metadata"]["deletionGracePeriodSeconds"] == 7
    assert "Terminating" in run(policy()).said, "it is not evicted twice"


def test_who_has_gone_is_said_where_a_fault_of_ours_ends_the_run(api, run, monkeypatch):
    """A sentence named the fault, and nothing who was evicted before it."""
    from restow.domain.descheduling.interpreter import Run

    carry, turns = Run.carry, []

    def odd(self, turn, port):
        if turns:
            raise KeyError("odd")
        turns.append(turn)
        carry(self, turn, port)

    monkeypatch.setattr(Run, "carry", odd)
    api.pod("web-1", "n1")
    two = policy()
    two["profiles"].append(two["profiles"][0] | {"name": "other"})
    result = run(two)
    assert result.exit_code == 70
    assert "1 evicted before the run ended early (shop/web-1): KeyError: 'odd' This is a bug in Restow" in result.said
    assert api.pods() == set()


def test_json_has_every_pod_and_its_reason(api, run):
    api.pod("web-1", "n1")
    api.pod("web-2", "n1")
    api.pod("bare", "n1", owner="")
    said = json.loads(run(policy(maxNoOfPodsToEvictTotal=1), "-o", "json").output)
    (gone,) = said["evictions"]
    assert (gone["name"], gone["node"], gone["plugin"], gone["result"]) == ("web-1", "n1", "RemovePodsViolatingNodeTaints", "evicted")
    why = {one["name"]: one["why"].partition(":")[0] for one in said["kept"]}
    assert why == {"web-2": "Limit", "bare": "Bare"}


def test_a_budget_keeps_a_pod_and_is_named(api, run):
    api.pod("web-1", "n1")
    budget = {"metadata": {"name": "keep"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web-1"}}}}
    api.call("POST", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets", budget)
    result = run(policy())
    assert result.exit_code == 0, result.output
    assert "1 kept: budget" in result.said
    assert "disruption budget" in result.said
    assert api.pods() == {"web-1"}


def test_what_a_budget_keeps_uses_up_no_limit(api, run):
    for name in ("web-1", "web-2", "web-3"):
        api.pod(name, "n1")
    budget = {"metadata": {"name": "keep"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web-1"}}}}
    api.call("POST", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets", budget)
    result = run(policy(maxNoOfPodsToEvictTotal=1))
    assert "1 evicted, 1 kept: budget" in result.said
    assert api.pods() == {"web-1", "web-3"}


def test_an_eviction_is_an_event_of_its_pod(api, run):
    api.pod("web-1", "n1")
    run(policy())
    (event,) = api.call("GET", "/apis/events.k8s.io/v1/namespaces/shop/events")["items"]
    assert (event["regarding"]["name"], event["reason"], event["type"]) == ("web-1", "Evicting", "Normal")
    assert event["note"].startswith("evicted from n1 by RemovePodsViolatingNodeTaints (profile default): ")


def test_the_policy_that_ships_with_restow_is_followed_and_what_is_the_services_is_said(api, run):
    shipped = (Path(__file__).parents[2] / "deploy" / "chart" / "files" / "config" / "descheduler-policy.yaml").read_text()
    result = run(shipped, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "restow: is for the descheduler service, and has no effect here" in result.said
    assert "Defragmentation" in result.said


def test_pods_that_have_failed_are_removed(api, run):
    api.pod("dead", "n2", phase="Failed")
    api.pod("alive", "n2")
    result = run(policy("RemoveFailedPods", {"minPodLifetimeSeconds": 0}))
    assert "1 evicted" in result.said
    assert api.pods() == {"alive"}


def test_a_pod_that_fits_nowhere_else_stays_and_the_nodes_say_why(api, run):
    api.pod("big", "n1", cpu="3")
    api.pod("filler", "n2", cpu="2")
    result = run(policy(evictor={"nodeFit": True}))
    assert "nothing to evict" in result.said
    assert "NodeFit: 0 of 1 other nodes would take it: 1" in result.said
    assert "Insufficient cpu" in result.said


def test_without_metrics_nothing_is_evicted_and_that_is_said(api, run):
    api.pod("web-1", "n2")
    args = {"thresholds": {"cpu": 90}, "targetThresholds": {"cpu": 95}, "metricsUtilization": {"source": "KubernetesMetrics"}}
    result = run(policy("LowNodeUtilization", args, point="balance", metricsProviders=[{"source": "KubernetesMetrics"}]))
    assert result.exit_code == 0
    assert "nothing is evicted: metrics.k8s.io" in result.said
    assert "is metrics-server installed?" in result.said
    assert api.pods() == {"web-1"}


def test_a_prometheus_that_is_down_evicts_nothing(api, run):
    api.pod("web-1", "n2")
    asked = {"source": "Prometheus", "prometheus": {"query": "load"}}
    args = {"thresholds": {"MetricResource": 1}, "targetThresholds": {"MetricResource": 2}, "metricsUtilization": asked}
    source = {"source": "Prometheus", "prometheus": {"url": "http://127.0.0.1:9"}}
    result = run(policy("LowNodeUtilization", args, point="balance", metricsProviders=[source]))
    assert "nothing is evicted: Prometheus at http://127.0.0.1:9 does not answer" in result.said
    assert api.pods() == {"web-1"}


def test_arguments_that_select_nothing_are_warned_about(api, run):
    api.pod("web-1", "n1")
    args = {"namespaces": {"include": ["shpo"]}, "labelSelector": {"matchLabels": {"app": "wbe"}}}
    result = run(policy(args=args, evictor={"labelSelector": {"matchLabels": {"app": "bew"}}}), "--dry-run")
    assert result.said.count("shpo") == 1
    assert "namespaces: shpo does not exist" in result.said
    assert "RemovePodsViolatingNodeTaints: labelSelector: selects no pod" in result.said
    assert "DefaultEvictor: labelSelector: selects no pod" in result.said


def test_one_node_is_not_enough(api, run):
    api.pod("web-1", "n1")
    result = run(policy(nodeSelector="kubernetes.io/hostname=nowhere"))
    assert result.exit_code == 0
    assert "nothing was looked at: 0 ready nodes" in result.said
    assert api.pods() == {"web-1"}


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ("profiles: [", "not YAML"),
        ("- a\n- b\n", "allowed: an object of kind DeschedulerPolicy"),
        (policy(maxPods=1), "unknown field `maxPods`"),
        (policy(args={"labelSelektor": {}}), "profiles[0].pluginConfig[1].args: Object contains unknown field `labelSelektor`; allowed:"),
        (policy("RemoveEverything"), "profiles[0].pluginConfig[1].name: 'RemoveEverything'; allowed: DefaultEvictor"),
        (policy(point="balance"), "profiles[0].plugins.balance.enabled[0]: 'RemovePodsViolatingNodeTaints'; allowed:"),
        (policy(args={"namespaces": {"include": ["a"], "exclude": ["b"]}}), "profiles[0].pluginConfig[1].args.namespaces: has include and exclude"),
        (policy(evictor={"minReplicas": -1}), "profiles[0].pluginConfig[0].args.minReplicas"),
        (policy(evictor={"noEvictionPolicy": "Never"}), "args.noEvictionPolicy: 'Never'; allowed: Preferred, Mandatory"),
        (policy(nodeSelector="a in"), "nodeSelector: 'a in'; allowed: a label selector"),
        (policy(gracePeriodSeconds=-1), "gracePeriodSeconds: -1; allowed: 0 or more"),
        ({**policy(), "apiVersion": "descheduler/v1alpha1"}, "apiVersion: 'descheduler/v1alpha1'; allowed: descheduler/v1alpha2"),
        ({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}, "profiles: none; allowed: at least one"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_with_file_path_and_reason(restow, tmp_path, said, refusal):
    (tmp_path / "policy.yaml").write_text(said if isinstance(said, str) else yaml.safe_dump(said))
    result = restow("descheduler", "run", "--once", "--policy", "policy.yaml", "--kube", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "policy.yaml: " in result.said
    assert refusal in result.said


def test_without_once_it_says_who_runs_at_intervals(api, restow, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy()))
    result = restow("descheduler", "run", "--policy", str(file), "--kube", api.url)
    assert result.exit_code == 2
    assert "--once" in result.said


def test_an_api_that_is_not_there(restow, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy()))
    result = restow("descheduler", "run", "--once", "--policy", str(file), "--kube", "http://127.0.0.1:9")
    assert result.exit_code == 3
    assert "does not answer" in result.said


def test_in_a_pod_it_goes_by_the_pods_own_account(restow, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy()))
    result = restow("descheduler", "run", "--once", "--policy", "policy.yaml")
    assert result.exit_code == 3
    assert "in-cluster configuration" in result.said, "there is no token here"


# -- Defragmentation -----------------------------------------------------------------------------------------------------

DEFRAG = {
    "resourceType": "cpu", "protectionThresholds": {"cpu": 95}, "defragmentThresholds": {"cpu": 40}, "lowThresholds": {"cpu": 40},
}  # fmt: skip


def defragmentation(args=None, *, others=(), evictor=None, point="balance", **more):
    configs = [{"name": "DefaultEvictor", "args": evictor or {}}, {"name": "Defragmentation", "args": args or DEFRAG}, *others]
    plugins = {"balance": {"enabled": ["Defragmentation"]}}
    for one in others:
        plugins.setdefault(point, {"enabled": []})["enabled"].append(one["name"])
    profile = {"name": "default", "pluginConfig": configs, "plugins": plugins}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile], **more}


@pytest.fixture
def pieces(api):
    """`n2` is used well, `n3` hardly; pods of some other scheduler."""
    api.node("n3")
    for i in range(5):
        api.pod(f"stays-{i}", "n2", cpu="500m", owner="")
    api.pod("web-1", "n3", cpu="500m")
    api.pod("web-2", "n3", cpu="400m")
    return api


def test_the_plan_is_shown_beside_what_the_other_plugins_would_do(pieces, run):
    pieces.pod("tainted", "n1")
    others = ({"name": "RemovePodsViolatingNodeTaints", "args": {}},)
    result = run(defragmentation(others=others, point="deschedule"), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "RemovePodsViolatingNodeTaints (deschedule, profile default): 1 pod to evict" in result.said
    assert "Defragmentation (balance, profile default): 2 pods to evict" in result.said
    assert "would move 2 pods off 1 node in 1 wave; planner greedy" in result.said
    assert "3 would go" in result.said
    assert "nothing holds the targets that Defragmentation has found" in result.said
    assert "restow defrag --now" in result.said
    assert max(map(len, result.output.splitlines())) <= 100
    assert pieces.pods() >= {"web-1", "web-2", "tainted"}


def test_the_moves_are_evicted_with_the_policys_grace_and_limits(pieces, run):
    result = run(defragmentation(maxNoOfPodsToEvictPerNode=1, gracePeriodSeconds=9))
    assert result.exit_code == 0, result.output
    assert "1 evicted" in result.said
    assert "maxNoOfPodsToEvictPerNode is reached on its node" in result.said
    assert "web-1" not in pieces.pods()
    assert pieces.call("GET", f"{PODS}/web-1")["metadata"]["deletionGracePeriodSeconds"] == 9


def test_json_has_the_plan_and_that_nothing_is_held(pieces, run):
    said = json.loads(run(defragmentation(evictor={"labelSelector": {"matchLabels": {"app": "web-2"}}}), "--dry-run", "-o", "json").output)
    assert [(m["name"], m["source"], m["target"]) for m in said["plan"]["moves"]] == [("web-2", "n3", "n2")]
    assert said["held"] is False
    assert [(one["name"], one["plugin"], one["result"]) for one in said["evictions"]] == [("web-2", "Defragmentation", "dry-run")]
    assert {one["name"]: one["why"].partition(":")[0] for one in said["kept"]}["web-1"] == "EvictorLabels"


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        (defragmentation({"planner": "best"}), "profiles[0].pluginConfig[1].args.planner: Invalid enum value 'best'; found 'best'; allowed: claims, greedy, optimizing"),
        (defragmentation({**DEFRAG, "lowThresholds": {"cpu": 60}}), "args.lowThresholds['cpu']: 60; allowed: at most defragmentThresholds, 40"),
        (defragmentation({"ResourceType": ""}), "profiles[0].pluginConfig[1].args.ResourceType: ''; allowed: a resource such as cpu, memory or nvidia.com/gpu"),
        (defragmentation({"ResourceType": 7}), "profiles[0].pluginConfig[1].args.ResourceType: Expected `str`"),
        (defragmentation({"rooms": {}}), "profiles[0].pluginConfig[1].args: Object contains unknown field `rooms`; found {'rooms': {}}; allowed: resourceType"),
        (defragmentation(resto={"interval": "5m"}), "unknown field `resto`"),
        (defragmentation(evictor={"minReplicas": "2"}), "profiles[0].pluginConfig[0].args.minReplicas"),
    ],
)  # fmt: skip
def test_defragmentation_that_cannot_be_meant_is_refused(restow, tmp_path, said, refusal):
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(said))
    result = restow("descheduler", "run", "--once", "--policy", "policy.yaml", "--kube", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert refusal in result.said
