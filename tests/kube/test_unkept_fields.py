"""PodGroup and Queue fields of Volcano's that are not kept: what would bind is refused, a preference is accepted and said."""

import msgspec
import pytest

from restow.contracts.ids import Millis
from restow.contracts.values import NetworkTopology
from restow.domain.session.statuses.podgroup_status import NOT_HONOURED, Condition, conditions, not_honoured
from restow.kube import wire_objects as w
from restow.kube.groups import pod_group_fact, queue_fact
from restow.kube.wire import Meta

REQUIRED, PREFERRED = (f"{what}DuringSchedulingIgnoredDuringExecution" for what in ("required", "preferred"))


def custom(spec: dict) -> w.Custom:
    return w.Custom(Meta(name="x", namespace="default", uid="u"), msgspec.Raw(msgspec.json.encode(spec)), msgspec.Raw(b""))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"subGroupPolicy": [{"name": "a"}, {"networkTopology": {"highestTierAllowed": 1}}]}, "spec.subGroupPolicy[1].networkTopology.mode: hard is not kept"),
        ({"networkTopology": {"mode": "near"}}, "spec.networkTopology.mode: 'near'; allowed: hard, soft"),
        ({"networkTopology": {"highestTierAllowed": -1}}, "spec.networkTopology.highestTierAllowed: -1; allowed: 0 to 2147483647"),
        ({"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}}, "spec.networkTopology: highestTierAllowed 1 and highestTierName rack; allowed: one of them"),
        ({"preemptable": False}, "spec.preemptable: false is not kept"),
    ],
)
def test_a_podgroup_that_asks_for_what_would_bind_and_is_not_kept_is_refused_by_name(spec, says):
    fact = pod_group_fact(custom({"minMember": 2} | spec))
    assert fact.invalid.startswith(says)


@pytest.mark.parametrize(
    ("said", "topology"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, NetworkTopology("hard", 2)),
        ({"highestTierAllowed": 0}, NetworkTopology("hard", 0)),
        ({"highestTierName": "rack"}, NetworkTopology("hard", name="rack")),
        ({"mode": "hard"}, NetworkTopology("hard", 1)),
        ({"mode": "soft", "highestTierAllowed": 2}, NetworkTopology("soft")),
        (None, None),
    ],
)
def test_how_near_to_each_other_pods_are_to_be_is_read(said, topology):
    fact = pod_group_fact(custom({"minMember": 2, "networkTopology": said}))
    assert (fact.invalid, fact.topology, fact.min_member) == ("", topology, 2)


def test_parts_of_a_group_are_accepted_and_said_to_have_no_effect():
    fact = pod_group_fact(custom({"minMember": 2, "subGroupPolicy": [{"subGroupSize": 2, "networkTopology": {"mode": "soft"}}]}))
    assert (fact.invalid, fact.unheeded) == ("", "spec.subGroupPolicy")


def test_what_has_no_effect_is_a_condition_that_goes_with_it():
    said = not_honoured("spec.networkTopology")
    assert said is not None
    held = conditions((), None, "u", Millis(0), said)
    assert [(c.type, c.status, c.reason, c.message) for c in held] == [
        (NOT_HONOURED, "True", "FieldNotHonoured", "accepted, without effect: spec.networkTopology")
    ]
    assert conditions(held, None, "u", Millis(0)) == ()
    other = Condition("Scheduled", "True")
    assert [c.type for c in conditions((other, *held), other, "u", Millis(0), said)] == [NOT_HONOURED, "Scheduled"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"dequeueStrategy": "fifo"}, "spec.dequeueStrategy: fifo is not kept; allowed: traverse"),
        ({"affinity": {"nodeGroupAffinity": {REQUIRED: ["a"]}}}, f"spec.affinity.nodeGroupAffinity.{REQUIRED}"),
        ({"affinity": {"nodeGroupAntiAffinity": {REQUIRED: ["a"]}}}, f"spec.affinity.nodeGroupAntiAffinity.{REQUIRED}"),
    ],
)
def test_a_queue_that_asks_for_what_would_bind_and_is_not_kept_is_refused_by_name(spec, says):
    assert queue_fact(custom(spec)).invalid.startswith(says)


@pytest.mark.parametrize(
    ("spec", "unheeded"),
    [
        ({"extendClusters": [{"name": "b", "weight": 1}]}, "spec.extendClusters"),
        ({"type": "elastic"}, "spec.type"),
        ({"type": "elastic", "extendClusters": [{}]}, "spec.extendClusters, spec.type"),
        ({"extendClusters": []}, ""),
        ({"extendClusters": None, "type": ""}, ""),
    ],
)
def test_a_queue_that_names_other_clusters_or_a_type_is_accepted_and_told_that_it_has_no_effect(spec, unheeded):
    fact = queue_fact(custom(spec))
    assert (fact.invalid, fact.unheeded) == ("", unheeded)


def test_a_queues_preferences_are_accepted_and_said_to_have_no_effect():
    fact = queue_fact(custom({"dequeueStrategy": "traverse", "affinity": {"nodeGroupAffinity": {PREFERRED: ["a"]}}}))
    assert (fact.invalid, fact.unheeded) == ("", f"spec.affinity.nodeGroupAffinity.{PREFERRED}")
