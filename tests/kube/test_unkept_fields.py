"""PodGroup and Queue fields of Volcano's that are not kept: what would bind is refused, a preference is accepted and said."""

import msgspec
import pytest

from restow.contracts.ids import Millis
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
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, "spec.networkTopology.mode: hard is not kept"),
        ({"networkTopology": {"highestTierAllowed": 2}}, "spec.networkTopology.mode: hard is not kept"),
        ({"preemptable": False}, "spec.preemptable: false is not kept"),
    ],
)
def test_a_podgroup_that_asks_for_what_would_bind_and_is_not_kept_is_refused_by_name(spec, says):
    fact = pod_group_fact(custom({"minMember": 2} | spec))
    assert fact.invalid.startswith(says)


def test_a_soft_topology_is_accepted_and_said_to_have_no_effect():
    fact = pod_group_fact(custom({"minMember": 2, "networkTopology": {"mode": "soft"}}))
    assert (fact.invalid, fact.unheeded, fact.min_member) == ("", "spec.networkTopology", 2)
    said = not_honoured(fact.unheeded)
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
