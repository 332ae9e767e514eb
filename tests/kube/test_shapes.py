"""Siblings share a shape, and nothing that people keep secret gets past the decoder."""

import hashlib
import json

import msgspec
import pytest
from kube.siblings import NAMES, manifest, pod

from restow.contracts import values as v
from restow.contracts.events import NodeObserved
from restow.domain.predicates import NOT_READY, why_not
from restow.kube.decode import PODS
from restow.kube.describe import pod_fact
from restow.kube.shapes import Shaper, shape_id


def changed(name: str, change) -> v.PodShape:
    data = json.loads(manifest(name))
    change(data)
    return pod_fact(PODS.object(json.dumps(data).encode()), Shaper())[0]


def test_ten_workloads_of_twenty_pods_have_ten_shapes():
    shapes = {pod_fact(pod(name, i))[1] for name in NAMES for i in range(20)}
    assert len(NAMES) == 10
    assert len(shapes) == 10


@pytest.mark.parametrize("name", NAMES)
def test_siblings_share_one_shape(name):
    assert len({pod_fact(pod(name, i), Shaper())[1] for i in range(30)}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_memory_of_the_shaper_changes_nothing(name):
    assert pod_fact(pod(name, 3), Shaper())[:2] == pod_fact(pod(name, 3), Shaper(limit=1))[:2]


@pytest.mark.parametrize("name", NAMES)
def test_no_env_no_args_no_secret_is_ever_in_a_fact(name):
    shape, _, fact = pod_fact(pod(name))
    said = msgspec.json.encode((shape, fact)).decode()
    for secret in ("hunter2", "swordfish", "DB_PASSWORD", "mesh-tls", "restartedAt", "kube-api-access"):
        assert secret not in said


def test_a_shape_id_is_the_digest_of_its_canonical_json():
    shape = v.PodShape(requests={"pods": 1, "cpu": 2}, node_selector={"b": "1", "a": "2"})
    same = v.PodShape(requests={"cpu": 2, "pods": 1}, node_selector={"a": "2", "b": "1"})
    text = b'{"requests":{"cpu":2,"pods":1},"node_selector":{"a":"2","b":"1"}}'
    assert shape_id(shape) == shape_id(same) == hashlib.sha256(text).hexdigest()[:16]


def test_a_daemonset_pod_is_pinned():
    shape, _, fact = pod_fact(pod("daemonset", 7))
    assert fact.pinned_node == "node-007"
    assert shape.node_affinity is None
    assert shape.host_ports == (v.HostPort(9100),)


def test_a_pin_beside_other_terms_keeps_the_others():
    def add(data):
        term = data["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        term["nodeSelectorTerms"][0]["matchExpressions"] = [{"key": "disk", "operator": "In", "values": ["ssd"]}]

    shape = changed("daemonset", add)
    assert shape.node_affinity == (v.NodeTerm(labels=(v.Expression("disk", "In", ("ssd",)),)),)


def test_claims_are_the_pods_own_and_volume_kinds_the_shapes():
    shape, _, fact = pod_fact(pod("statefulset", 4))
    assert fact.claims == ("data-postgres-4",)
    assert shape.volumes == ("persistentVolumeClaim",)


def test_generic_ephemeral_volumes_claim_by_the_pods_name():
    shape, _, fact = pod_fact(pod("ephemeral_volume"))
    assert fact.claims == (f"{fact.name}-scratch",)
    assert shape.volumes == ("csi", "ephemeral")


def test_injected_tolerations_are_left_out_and_own_ones_kept():
    assert pod_fact(pod("deployment"))[0].tolerations == ()
    assert len(pod_fact(pod("daemonset"))[0].tolerations) == 8


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ({"effect": "NoSchedule", "operator": "Exists"}, ["not-ready", "unreachable"]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "operator": "Exists"}, ["not-ready"]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "operator": "Equal", "value": "x"}, []),
        ({"key": "gpu", "operator": "Exists"}, []),
    ],
)
def test_injected_tolerations_count_where_the_pod_may_come_to_a_node_that_is_not_ready(own, kept):
    """kube-scheduler lets it in; a hold's template, which no admission sees, is still the same spec."""

    def add(data):
        data["spec"]["tolerations"].append(own)

    def write(data):
        data["spec"]["tolerations"] = [own]

    shape, template = changed("deployment", add), changed("deployment", write)
    assert [t.key.removeprefix("node.kubernetes.io/") for t in shape.tolerations if t.seconds == 300] == kept
    assert len(shape.tolerations) == len(kept) + 1
    assert shape.spec_digest == template.spec_digest
    gone = NodeObserved("n", "u", {}, ready=False, taints=tuple(v.Taint("node.kubernetes.io/not-ready", effect) for effect in ("NoSchedule", "NoExecute")))
    assert why_not(shape, gone) == ("" if kept else NOT_READY)


def test_order_makes_no_shape():
    def reorder(data):
        terms = data["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms[0]["labelSelector"]["matchExpressions"][0]["values"].reverse()
        terms.reverse()

    def two(data):
        terms = data["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms[0]["labelSelector"]["matchExpressions"][0]["values"] = ["postgres", "mysql"]
        terms.append({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}})

    def both(data):
        two(data)
        reorder(data)

    assert changed("statefulset", two) == changed("statefulset", both)


@pytest.mark.parametrize(
    ("text", "requests"),
    [("0.5", "500m"), ("500e-3", "0.5"), ("500000u", "500m")],
)
def test_equal_quantities_are_one_shape(text, requests):
    def spelled(value):
        return lambda data: data["spec"]["containers"][0]["resources"]["requests"].update(cpu=value)

    assert changed("deployment", spelled(text)) == changed("deployment", spelled(requests))


def test_a_default_that_is_spelled_out_makes_no_other_shape():
    def spelled(data):
        data["spec"] |= {"preemptionPolicy": "PreemptLowerPriority", "priority": data["spec"].get("priority", 0)}

    def left_out(data):
        data["spec"].pop("preemptionPolicy", None)

    def never(data):
        data["spec"]["preemptionPolicy"] = "Never"

    assert changed("deployment", spelled) == changed("deployment", left_out)
    assert changed("deployment", never) != changed("deployment", left_out)


@pytest.mark.parametrize("amounts", [{}, {"limits": {"cpu": "1", "memory": "1Gi"}}], ids=["best effort", "guaranteed"])
def test_init_containers_end_before_the_others_start_and_sidecars_do_not(amounts):
    def three(data):
        one = {"image": "a", "resources": amounts}
        data["spec"]["containers"] = [one | {"name": "main"}]
        data["spec"]["initContainers"] = [one | {"name": "setup"}, one | {"name": "mesh", "restartPolicy": "Always"}]

    assert {c.name: c.init for c in changed("deployment", three).containers} == {"main": False, "setup": True, "mesh": False}


# -- spec digest (RULES G-4) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["spec"]["containers"][0].update(image="nginx:1.28"),
        lambda d: d["spec"]["containers"][0]["env"].clear(),
        lambda d: d["spec"]["tolerations"].clear(),
        lambda d: d["spec"].update(priority=7),
        lambda d: d["spec"]["containers"][0]["resources"]["requests"].update(cpu="0.5"),
        lambda d: d["spec"].pop("schedulerName"),
    ],
)
def test_what_pod_spec_matching_ignores(change):
    assert changed("deployment", change).spec_digest == pod_fact(pod("deployment"))[0].spec_digest


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["spec"]["containers"][0].update(name="other"),
        lambda d: d["spec"]["containers"][0]["resources"]["requests"].update(cpu="501m"),
        lambda d: d["spec"]["containers"][0]["resources"]["limits"].update(memory="2Gi"),
        lambda d: d["spec"].update(nodeSelector={"a": "b"}),
        lambda d: d["spec"].update(schedulerName="volcano"),
        lambda d: d["spec"].update(priorityClassName="high"),
        lambda d: d["spec"]["tolerations"].append({"key": "a", "operator": "Exists"}),
        lambda d: d["spec"].pop("affinity"),
        lambda d: d["spec"].update(initContainers=[{"name": "init"}]),
    ],
)
def test_what_pod_spec_matching_compares(change):
    assert changed("deployment", change).spec_digest != pod_fact(pod("deployment"))[0].spec_digest


def test_what_limit_ranger_injected_is_not_compared():
    def injected(data):
        data["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = (
            "LimitRanger plugin set: cpu, ephemeral-storage request for container web; cpu limit for container web"
        )
        resources = data["spec"]["containers"][0]["resources"]
        resources["requests"] |= {"ephemeral-storage": "1Gi", "cpu": "100m"}
        resources["limits"] |= {"cpu": "1"}

    def bare(data):
        del data["spec"]["containers"][0]["resources"]["requests"]["cpu"]

    assert changed("deployment", injected).spec_digest == changed("deployment", bare).spec_digest


def test_a_template_without_defaults_has_the_digest_of_its_pod():
    def as_written(data):
        resources = data["spec"]["containers"][0]["resources"]
        resources["limits"] = {"cpu": 2, "memory": "8Gi"}
        del resources["requests"]
        for name in ("schedulerName", "priority", "preemptionPolicy", "tolerations"):
            data["spec"].pop(name)

    assert changed("statefulset", as_written).spec_digest == pod_fact(pod("statefulset"))[0].spec_digest
