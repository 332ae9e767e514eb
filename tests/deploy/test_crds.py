"""The CRDs are ones that an API server takes, and take what people write."""

import copy
from pathlib import Path

import pytest
import yaml
from deploy.structural import at, errors, problems, walk

from restow.cli.embedded import shipped

ROOT = Path(__file__).parents[2]
CRDS = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((ROOT / "deploy" / "crds").glob("*.*.yaml"))}
NUMA, DEVICES, HYPER = "noderesourcetopologies.topology.node.k8s.io", "devices.scheduling.koordinator.sh", "hypernodes.topology.volcano.sh"
EMBEDDED = {NUMA: "v1alpha2", DEVICES: "v1alpha1", HYPER: "v1alpha1"}
"""Others' CRDs, for kubesim alone: they have the form that their authors gave them."""
OTHERS = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((ROOT / "deploy" / "crds" / "embedded").glob("*.yaml"))}
SAMPLES = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((Path(__file__).parent / "samples").glob("*.yaml"))}
VOLCANO, KOORDINATOR = "reservations.batch.volcano.sh", "reservations.scheduling.koordinator.sh"


def schema(name: str) -> dict:
    return (CRDS | OTHERS)[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def crd_of(obj: dict) -> str:
    group = obj["apiVersion"].split("/")[0]
    return next(n for n, c in (CRDS | OTHERS).items() if c["spec"]["group"] == group and c["spec"]["names"]["kind"] == obj["kind"])


def refused(name: str, path: str, value) -> list[str]:
    """What is wrong when the field at this path of a good sample becomes `value`."""
    spoilt = copy.deepcopy(SAMPLES[name])
    *steps, last = (int(s) if s.isdigit() else s for s in path.split("."))
    here = spoilt
    for step in steps:
        here = here[step]
    here[last] = value
    return errors(schema(crd_of(spoilt)), spoilt)


def test_the_four_crds_are_there():
    expected = {VOLCANO, KOORDINATOR, "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"}
    assert set(CRDS) == expected


def test_what_only_kubesim_gets_is_never_installed_on_a_cluster():
    assert set(OTHERS) == set(EMBEDDED)
    assert not [r for r in yaml.safe_load((ROOT / "deploy/crds/kustomization.yaml").read_text())["resources"] if "embedded" in r]
    assert not set(shipped.crds()) & set(shipped.others())
    assert {p.stem for p in shipped.others()} == set(EMBEDDED)


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_crds_of_others_are_ones_that_a_server_takes(name):
    (version,) = OTHERS[name]["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == (EMBEDDED[name], True, True)
    assert OTHERS[name]["spec"]["scope"] == "Cluster"
    # The API server refuses a group of k8s.io without it.
    assert not name.endswith(".k8s.io") or "api-approved.kubernetes.io" in OTHERS[name]["metadata"]["annotations"]
    assert problems(schema(name)) == []


@pytest.mark.parametrize("name", CRDS)
class TestEveryCrd:
    def test_is_named_after_its_resource(self, name):
        crd = CRDS[name]
        assert crd["apiVersion"] == "apiextensions.k8s.io/v1"
        assert crd["metadata"]["name"] == name == f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"
        assert crd["spec"]["names"]["shortNames"]

    def test_has_one_version_with_a_status_subresource(self, name):
        (version,) = CRDS[name]["spec"]["versions"]
        assert version["served"] is True
        assert version["storage"] is True
        assert version["subresources"] == {"status": {}}

    def test_is_structural(self, name):
        assert problems(schema(name)) == []

    def test_describes_spec_and_status(self, name):
        for part in ("spec", "status"):
            assert schema(name)["properties"][part]["description"]

    def test_shows_columns_that_exist(self, name):
        for column in CRDS[name]["spec"]["versions"][0]["additionalPrinterColumns"]:
            assert column["type"] in {"integer", "number", "string", "boolean", "date"}
            if column["jsonPath"] != ".metadata.creationTimestamp":
                found = at(schema(name), column["jsonPath"])
                assert found, column
                assert column["type"] in {found["type"], "date"}


def test_short_names_do_not_clash():
    names = [n for c in CRDS.values() for n in c["spec"]["names"]["shortNames"]]
    assert len(names) == len(set(names))


def test_scopes():
    scopes = {name: crd["spec"]["scope"] for name, crd in CRDS.items()}
    assert scopes == {
        VOLCANO: "Namespaced",
        KOORDINATOR: "Cluster",
        "podgroups.scheduling.volcano.sh": "Namespaced",
        "queues.scheduling.volcano.sh": "Cluster",
    }


def test_defaults_are_only_those_that_mean_the_same_in_every_form():
    """RULES G-2: no 24 h; G-4: no matchPolicy; 004-1: allocateOnce is true in Koordinator's form."""
    found = {(name, path): part["default"] for name in CRDS for path, part in walk(schema(name)) if "default" in part}
    assert found == {
        (VOLCANO, ".spec.tasks[].replicas"): 1,
        (KOORDINATOR, ".spec.allocateOnce"): True,
        ("podgroups.scheduling.volcano.sh", ".spec.queue"): "default",
        ("podgroups.scheduling.volcano.sh", ".spec.networkTopology.mode"): "hard",
    }


def test_pod_templates_keep_every_field():
    for name, path in ((VOLCANO, ".spec.template"), (VOLCANO, ".spec.tasks[].template"), (KOORDINATOR, ".spec.template")):
        part = dict(walk(schema(name)))[path]
        assert part["x-kubernetes-preserve-unknown-fields"] is True
        assert "x-kubernetes-embedded-resource" not in part


@pytest.mark.parametrize("name", SAMPLES)
def test_a_good_object_is_taken_whole(name):
    assert errors(schema(crd_of(SAMPLES[name])), SAMPLES[name]) == []


def test_a_task_needs_no_name_and_keeps_what_volcanos_tasks_have():
    """So that reservation_cache can say which of these fields mean nothing: the API server would drop them without a word."""
    assert refused("complex-reservation", "spec.tasks.0", {"template": SAMPLES["complex-reservation"]["spec"]["tasks"][0]["template"]}) == []
    for name, value in (("minAvailable", 1), ("maxRetry", 3), ("policies", [{"event": "PodFailed", "action": "RestartJob"}]),
                        ("dependsOn", {"name": ["ps"]}), ("topologyPolicy", "none"), ("partitionPolicy", {"totalPartitions": 2})):  # fmt: skip
        assert refused("complex-reservation", f"spec.tasks.0.{name}", value) == [], name


@pytest.mark.parametrize("ttl", ["0", "0s", "600s", "24h", "1h30m", "1.5h", "10m0s", "300ms", ".5s", "1µs"])
def test_durations_of_kubernetes_are_taken(ttl):
    assert refused("complex-reservation", "spec.ttl", ttl) == []


@pytest.mark.parametrize(
    ("sample", "path", "value"),
    [
        ("complex-reservation", "spec.ttl", "10 minutes"),
        ("complex-reservation", "spec.ttl", "10"),
        ("complex-reservation", "spec.ttl", "-1h"),
        ("complex-reservation", "spec.ttl", ""),
        ("complex-reservation", "spec.ttl", 600),
        ("complex-reservation", "spec.minAvailable", -1),
        ("complex-reservation", "spec.minAvailable", "3"),
        ("complex-reservation", "spec.tasks", []),
        ("complex-reservation", "spec.tasks.0.name", "Not A Name"),
        ("complex-reservation", "spec.tasks.0.replicas", -1),
        ("complex-reservation", "spec.tasks.0.template", None),
        ("complex-reservation", "spec.owners.0", {}),
        ("complex-reservation", "spec.owner", []),
        ("complex-reservation", "spec.matchPolicy", "Exactly"),
        ("complex-reservation", "spec.allocatePolicy", "Default"),
        ("complex-reservation", "spec", None),
        ("volcano-with-status", "status.allocatable.cpu", "lots"),
        ("complex-reservation", "spec.tasks.0.replicas", 10_001),
        ("volcano-with-status", "spec.taints", [{"effect": "NoSchedule"}]),
        ("volcano-with-status", "spec.owners.1.labelSelector.matchExpressions.0.operator", "Like"),
        ("koordinator", "spec.allocatePolicy", "Covering"),
        ("koordinator", "spec.taints", [{"key": "k", "effect": "Never"}]),
        ("koordinator", "spec.taints", [{"key": "", "effect": "NoSchedule"}]),
        ("koordinator", "spec.owners", []),
        ("koordinator", "spec.template", "none"),
        ("podgroup-migrating", "spec.minMember", "three"),
        ("queue", "spec.dequeueStrategy", "lifo"),
        ("queue", "spec.capability.cpu", "many"),
        ("queue", "spec.weight", "heavy"),
        ("podgroup-migrating", "spec.minTaskMember.worker", "two"),
        ("podgroup-migrating", "spec.minResources.cpu", "1x"),
        ("noderesourcetopology", "zones.0.resources.0.allocatable", "some"),
        ("noderesourcetopology", "zones.0.name", None),
        ("device", "spec.devices.0.minor", "first"),
        ("hypernode", "spec.tier", "one"),
        ("hypernode", "spec.members.0.type", "Rack"),
    ],
)
def test_a_bad_field_is_refused_by_name(sample, path, value):
    found = refused(sample, path, value)
    assert found
    assert any(path.split(".")[0] in line for line in found)


def rules(name: str) -> list[tuple[str, str]]:
    """(path, rule) of every CEL validation of the spec."""
    return [
        (path, " ".join(rule["rule"].split()))
        for path, part in walk(schema(name)["properties"]["spec"], ".spec")
        for rule in part.get("x-kubernetes-validations", ())
    ]


def test_contradictions_between_fields_are_refused_by_cel():
    """kubesim evaluates none of it; the domain says the same again. That these compile within an API server's budget, and what
    they refuse, is asked of a real one by the end-to-end suite (`test_a_bad_reservation_is_refused...`)."""
    said = {rule: path for path, rule in rules(VOLCANO)}
    assert said["has(self.tasks) != has(self.template)"] == ".spec"
    assert said["has(self.owners) && size(self.owners) > 0"] == ".spec"
    assert said["!has(self.tasks) || !has(self.allocateOnce) || self.allocateOnce"] == ".spec"
    assert said["self > 0"] == ".spec.tasks[].replicas"
    assert any("self.minAvailable <=" in rule for rule in said)


@pytest.mark.parametrize("name", [VOLCANO, KOORDINATOR])
def test_allocate_once_cannot_change(name):
    assert [path for path, rule in rules(name) if "oldSelf" in rule] == [".spec" if name == VOLCANO else ".spec.allocateOnce"]


@pytest.mark.parametrize("name", [VOLCANO, KOORDINATOR])
def test_ttl_and_expires_may_come_together(name):
    """RULES G-2."""
    assert not [rule for _, rule in rules(name) if "ttl" in rule or "expires" in rule]


@pytest.mark.parametrize("name", [VOLCANO, KOORDINATOR])
def test_what_cel_walks_is_bounded(name):
    """Else an API server refuses the whole definition: it estimates the cost of the longest lists."""
    parts = dict(walk(schema(name)))
    for path, _ in rules(name):
        above = path
        while "[]" in above:
            above = above[: above.rindex("[]")]
            assert "maxItems" in parts[above], above


@pytest.mark.parametrize("name", [VOLCANO, KOORDINATOR])
def test_every_rule_says_what_to_do(name):
    for path, part in walk(schema(name)):
        for rule in part.get("x-kubernetes-validations", ()):
            assert rule["message"], path


@pytest.mark.parametrize(
    ("name", "always", "wide"),
    [
        (
            VOLCANO,
            ["Phase", "Min", "Pending", "Waiting", "Available", "Succeeded", "Age"],
            ["Reason", "Queue", "TTL", "Expires", "Node"],
        ),
        (KOORDINATOR, ["Phase", "Age", "Node", "TTL", "Expires"], ["Once", "Policy", "Unschedulable"]),
    ],
)
def test_columns_of_kubectl(name, always, wide):
    columns = CRDS[name]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == always
    assert [c["name"] for c in columns if c.get("priority")] == wide


@pytest.mark.parametrize("sample", ["volcano-with-status", "koordinator"])
def test_unschedulable_and_taints_are_taken_at_both_doors(sample):
    taints = [{"key": "k", "value": "v", "effect": effect} for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")]
    assert refused(sample, "spec.taints", taints) == []
    assert refused(sample, "spec.unschedulable", True) == []


def test_koordinators_empty_allocate_policy_is_taken():
    assert refused("koordinator", "spec.allocatePolicy", "") == []


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"properties": {"a": {}}}, "type None"),
        ({"properties": {"a": {"type": "string", "$ref": "#/x"}}}, "$ref is forbidden"),
        ({"properties": {"a": {"type": "array"}}}, "needs items"),
        ({"properties": {"a": {"type": "integer", "default": "one"}}}, "default"),
        ({"properties": {"metadata": {"type": "object", "properties": {}}}}, "metadata"),
        ({"properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}, "not allowed in logic"),
        ({"properties": {"a": {"type": "object", "additionalProperties": False}}}, "boolean additionalProperties"),
        ({"properties": {"a": {"type": "string", "nulable": True}}}, "unknown"),
        (
            {
                "properties": {
                    "a": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                    }
                }
            },
            "must be required",
        ),
    ],
)
def test_the_structural_check_can_fail(part, words):
    assert any(words in line for line in problems({"type": "object", **part})), problems({"type": "object", **part})
