"""Who asks for CPUs of its own, and how CPUs are written: Koordinator's annotations."""

import json
import re

import pytest
from kube.siblings import manifest, pod

from restow.contracts import values as v
from restow.contracts.events import PodChanged
from restow.domain.cores import cpuset
from restow.kube import decode as d
from restow.kube.cpus import parse_list, read_status, write_status
from restow.kube.describe import node_fact, pod_fact
from restow.kube.requests import FactError
from restow.kube.shapes import Shaper

SPEC, STATUS = "scheduling.koordinator.sh/resource-spec", "scheduling.koordinator.sh/resource-status"


def asks(cpu: str = "4", spec: object = None, priority: int | None = None, shaper: Shaper | None = None, **labels: str):
    """The shape of a pod of class LSR with one container."""
    data = json.loads(manifest("deployment"))
    data["metadata"]["labels"] = {"koordinator.sh/qosClass": "LSR"} | {f"koordinator.sh/{k}": value for k, value in labels.items()}
    if spec is not None:
        data["metadata"]["annotations"] = {SPEC: spec if isinstance(spec, str) else json.dumps(spec)}
    data["spec"] |= {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    data["spec"].pop("initContainers", None)
    return pod_fact(d.PODS.object(json.dumps(data).encode()), shaper or Shaper())[0]


def test_a_pod_of_class_lsr_asks_for_as_many_cpus_as_it_requests():
    assert asks().cores == v.CoreRequest(4, "FullPCPUs")
    assert asks(qosClass="LSE").cores == v.CoreRequest(4, "FullPCPUs")
    assert asks(qosClass="LS").cores is None
    assert pod_fact(pod("deployment"), Shaper())[0].cores is None


def test_no_whole_number_of_cpus_is_asked_for_as_none_that_fits():
    assert asks("2500m").cores == v.CoreRequest(0, "FullPCPUs")
    assert asks("0").cores is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, v.CoreRequest(4, "FullPCPUs")),
        ({"preferredCPUBindPolicy": "Default"}, v.CoreRequest(4, "FullPCPUs")),
        ({"preferredCPUBindPolicy": "SpreadByPCPUs"}, v.CoreRequest(4, "SpreadByPCPUs")),
        ({"requiredCPUBindPolicy": "SpreadByPCPUs"}, v.CoreRequest(4, "SpreadByPCPUs", True)),
        ({"requiredCPUBindPolicy": "Default", "preferredCPUBindPolicy": "SpreadByPCPUs"}, v.CoreRequest(4, "FullPCPUs", True)),
        ({"preferredCPUExclusivePolicy": "PCPULevel"}, v.CoreRequest(4, "FullPCPUs", False, "PCPULevel")),
        ({"preferredCPUExclusivePolicy": "None"}, v.CoreRequest(4, "FullPCPUs")),
        # Its CPUs are bound by the node agent, out of those that are shared.
        ({"preferredCPUBindPolicy": "ConstrainedBurst"}, None),
        (None, v.CoreRequest(4, "FullPCPUs")),
        ("null", v.CoreRequest(4, "FullPCPUs")),
    ],
)
def test_the_annotation_says_how_they_are_to_be_chosen(spec, expected):
    assert asks(spec=spec).cores == expected


@pytest.mark.parametrize(("priority", "bound"), [(None, True), (0, True), (9500, True), (7500, False), (5000, False), (3999, False)])
def test_pods_of_lesser_priority_classes_share_their_cpus(priority, bound):
    assert (asks(priority=priority).cores is not None) == bound
    assert asks(priority=priority, **{"priority-class": "koord-prod"}).cores is not None
    assert asks(priority=priority, **{"priority-class": "koord-batch"}).cores is None


def test_what_one_pod_asks_for_is_not_remembered_for_another():
    shaper = Shaper()
    assert [asks(spec=spec, shaper=shaper, qosClass=qos).cores for qos, spec in (
        ("LSR", None), ("LS", None), ("LSR", {"requiredCPUBindPolicy": "FullPCPUs"}), ("LSR", None)
    )] == [v.CoreRequest(4, "FullPCPUs"), None, v.CoreRequest(4, "FullPCPUs", True), v.CoreRequest(4, "FullPCPUs")]  # fmt: skip


@pytest.mark.parametrize("text", ["{", "7", '{"requiredCPUBindPolicy": 7}'])
def test_an_annotation_that_cannot_be_read_says_what_is_allowed(text):
    shape = asks(spec=text)
    assert re.search(r"resource-spec.*allowed: ", shape.unreadable)
    assert (shape.cores, shape.requests["cpu"]) == (None, 4000)


# -- lists ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpus", "text"), [((), ""), ((3,), "3"), ((0, 1), "0-1"), ((0, 1, 2, 8, 10, 11), "0-2,8,10-11")])
def test_cpus_are_written_as_linux_does(cpus, text):
    assert cpuset(cpus) == cpuset(reversed(cpus)) == text
    assert parse_list(text) == cpus
    assert read_status(write_status(cpus)) == cpus


@pytest.mark.parametrize(("text", "cpus"), [("", ()), (" 1 , 3 - 4 ", (1, 3, 4)), ("2,0-1,1", (0, 1, 2))])
def test_lists_are_read_in_any_order(text, cpus):
    assert parse_list(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "0-65536", "0-99999999999999999999", "1-2-3", "²"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(ValueError, match=r"no CPU|not in order"):
        parse_list(text)
    with pytest.raises(FactError, match=r"resource-status.*allowed: "):
        read_status(json.dumps({"cpuset": text}))


def test_the_cpus_that_a_pod_has_are_a_fact_of_it():
    data = json.loads(manifest("deployment"))
    data["metadata"]["annotations"] = {STATUS: '{"cpuset":"0-1,8","numaNodeResources":[{"node":0}]}'}
    fact = pod_fact(d.PODS.object(json.dumps(data).encode()), Shaper())[2]
    assert fact.cores == (0, 1, 8)
    changed = fact.moving()
    assert isinstance(changed, PodChanged)
    assert changed.cores == (0, 1, 8)
    # It is no annotation that a rule reads besides.
    assert fact.annotations == {}


def test_a_nodes_own_annotation_may_say_which_cpus_it_has():
    body = {"metadata": {"name": "n", "uid": "u", "annotations": {"node.koordinator.sh/cpu-topology": '{"detail":[{"id":3,"core":1}]}'}}}
    assert node_fact(d.NODES.object(json.dumps(body).encode())).cpus == (v.Cpu(3, 1, 0, 0),)
