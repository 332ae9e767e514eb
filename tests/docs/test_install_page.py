"""docs/install.md: what it shows fits what is deployed."""

import re

import yaml
from docs.pages import ROOT, section


def objects():
    return [one for one in yaml.safe_load_all((ROOT / "deploy" / "restow.yaml").read_text()) if one]


VALUES = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())
PAGE = section("On a cluster") + section("What runs") + section("Permissions")


def test_every_value_that_it_names_is_one():
    for said in re.findall(r"`((?:image|defaults|nats|descheduler|schedulerSession|garbageCollector|crds|networkPolicy|monitoring|beside|autoscalers|guard|cluster)(?:\.\w+)*)(?:: [\w.]+)?`", PAGE):
        found = VALUES
        for part in said.split("."):
            assert part in found, said
            found = found[part]


def test_the_ports_that_the_services_reach_are_those_of_the_page():
    services = next(one for one in objects() if one["metadata"]["name"] == "restow-services")
    (rule,) = [rule for rule in services["spec"]["egress"] if "to" not in rule]
    assert [p["port"] for p in rule["ports"]] == VALUES["networkPolicy"]["apiServerPorts"] == [443, 6443]
    assert "port 443 or 6443" in PAGE


def test_the_commands_for_a_new_log_remove_the_volumes_that_are_deployed():
    (said,) = re.findall(r"delete pvc (.+)", section("A new log"))
    claims = {one["metadata"]["name"] for one in objects() if one["kind"] == "PersistentVolumeClaim"}
    for broker in [one for one in objects() if one["kind"] == "StatefulSet"]:
        claims |= {f"{claim['metadata']['name']}-{broker['metadata']['name']}-0" for claim in broker["spec"]["volumeClaimTemplates"]}
    assert set(said.split()) == claims
