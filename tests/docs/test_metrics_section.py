"""docs/descheduling.md, "Policies that use metrics": what it shows is accepted, and fits what is deployed. (tests/e2e/test_metrics.py runs it.)"""

import yaml
from docs.pages import ROOT, section

from restow.descheduler.sampler import Sampler
from restow.domain.descheduling.policy import load
from restow.domain.state import ClusterState
from restow.runtime.policy_file import read
from restow.runtime.telemetry import Metrics

SECTION = section("Policies that use metrics")
SHOWN = [yaml.safe_load(text.partition("```")[0]) for text in SECTION.split("```yaml\n")[1:]]


def objects():
    return [one for one in yaml.safe_load_all((ROOT / "deploy" / "restow.yaml").read_text()) if one]


def test_the_policies_are_accepted_by_the_service_and_by_the_command_line_and_want_metrics():
    policies = [one for one in SHOWN if one["kind"] == "DeschedulerPolicy"]
    assert len(policies) == 2
    for said in policies:
        assert read(said).policy
        once = load({key: value for key, value in said.items() if key != "restow"})
        assert once.measured
        for name in ("LoadAware", "LowNodeUtilization"):
            if any(config["name"] == name for config in said["profiles"][0]["pluginConfig"]):
                said["profiles"][0]["plugins"]["balance"]["enabled"] = [name]
                assert read(said).policy


def test_the_network_policy_is_of_the_descheduler_and_its_port_is_not_open_already():
    (shown,) = [one for one in SHOWN if one["kind"] == "NetworkPolicy"]
    (deployment,) = [one for one in objects() if (one["kind"], one["metadata"]["name"]) == ("Deployment", "restow-descheduler")]
    chosen = shown["spec"]["podSelector"]["matchLabels"]
    assert chosen.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert shown["metadata"]["namespace"] == "restow-system"
    (url,) = [one["metricsProviders"][0]["prometheus"]["url"] for one in SHOWN if "Prometheus" in str(one.get("metricsProviders"))]
    (port,) = shown["spec"]["egress"][0]["ports"]
    assert url.endswith(f":{port['port']}")
    services = next(one for one in objects() if one["metadata"]["name"] == "restow-services")
    open_to_all = {p["port"] for rule in services["spec"]["egress"] if "to" not in rule for p in rule["ports"]}
    assert open_to_all == {443, 6443}
    assert port["port"] not in open_to_all


def test_the_role_may_read_what_metrics_server_serves_and_the_page_grants_the_rest_to_the_right_account():
    (role,) = [one for one in objects() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "restow-descheduler"]
    (rule,) = [one for one in role["rules"] if one["apiGroups"] == ["metrics.k8s.io"]]
    assert (set(rule["resources"]), set(rule["verbs"])) == ({"nodes", "pods"}, {"list"})
    assert not [one for one in role["rules"] if "secrets" in one["resources"]]
    (account,) = [one["metadata"]["name"] for one in objects() if one["kind"] == "ServiceAccount" and one["metadata"]["name"].endswith("descheduler")]
    assert f"--serviceaccount=restow-system:{account}" in SECTION


def test_the_metric_of_a_source_is_in_the_table():
    class Context:
        metrics = Metrics("migration")
        state = ClusterState()

    sampler = Sampler(Context())
    (gauge,) = sampler._usable()
    assert f"| `restow_{gauge.name}` |" in section("Metrics")
    assert f"`restow_{gauge.name}`" in SECTION
