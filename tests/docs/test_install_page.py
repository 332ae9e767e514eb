"""docs/install.md: what it shows fits what is deployed."""

import re

import yaml
from docs.pages import ROOT, section


def objects(path):
    return [one for one in yaml.safe_load_all((ROOT / "deploy" / path).read_text()) if one]


def test_the_policy_for_an_api_server_on_another_port_is_of_every_service_and_opens_what_is_not_open_already():
    (shown,) = [yaml.safe_load(text.partition("```")[0]) for text in section("What runs").split("```yaml\n")[1:]]
    assert shown["kind"] == "NetworkPolicy"
    assert shown["metadata"]["namespace"] == "restow-system"
    services = next(one for one in objects("base/network.yaml") if one["metadata"]["name"] == "restow-services")
    assert shown["spec"]["podSelector"] == services["spec"]["podSelector"]
    (rule,) = [rule for rule in services["spec"]["egress"] if "to" not in rule]
    assert {p["port"] for p in rule["ports"]} == {443, 6443}
    (more,) = shown["spec"]["egress"]
    assert not [p for p in more["ports"] if p in rule["ports"]]
    assert rule["ports"][0].keys() == more["ports"][0].keys()


def test_the_commands_for_a_new_log_remove_the_volumes_that_are_deployed():
    (said,) = re.findall(r"delete pvc (.+)", section("A new log"))
    claims = {one["metadata"]["name"] for one in objects("base/garbage-collector.yaml") if one["kind"] == "PersistentVolumeClaim"}
    for broker in [one for one in objects("nats/statefulset.yaml") if one["kind"] == "StatefulSet"]:
        claims |= {f"{claim['metadata']['name']}-{broker['metadata']['name']}-0" for claim in broker["spec"]["volumeClaimTemplates"]}
    assert set(said.split()) == claims
