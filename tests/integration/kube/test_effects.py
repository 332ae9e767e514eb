"""Effects are safe to repeat and safe to be late: against kubesim, with its scripted faults."""

import asyncio
import json

import pytest

from restow.contracts.values import DeviceShare
from restow.kube import decode as d
from restow.kube.annotations import ABORTED_UNTIL, MIGRATION, read_devices
from restow.kube.client import ApiStatus
from restow.kube.effects import (
    Accepted,
    AlreadyTerminating,
    Bound,
    Changed,
    Done,
    Effects,
    Failed,
    Gone,
    InBackground,
    OverBudget,
    PodRef,
    Refused,
    Taken,
)
from restow.kube.retry import Backoff

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
STRANGER = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def effects(api):
    return Effects(api.client, FAST)


# -- bind ------------------------------------------------------------------------------------------------------------------


async def test_a_pod_is_bound_with_its_devices_in_one_call(api, effects):
    pod = await api.pod()
    shares = (DeviceShare(0, 500), DeviceShare(3, 500))
    assert await effects.bind(pod, "node-a", shares) == Bound()
    there = await api.read_pod(pod)
    assert there["spec"]["nodeName"] == "node-a"
    assert read_devices(there["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"]) == shares


async def test_a_pod_is_bound_with_its_cpus_and_the_reservation_that_it_drew_from_in_the_same_call(api, effects):
    pod = await api.pod()
    assert await effects.bind(pod, "node-a", (), (0, 1, 8), ("hold", "r-1")) == Bound()
    annotations = (await api.read_pod(pod))["metadata"]["annotations"]
    assert annotations["scheduling.koordinator.sh/resource-status"] == '{"cpuset":"0-1,8"}'
    assert annotations["scheduling.koordinator.sh/reservation-allocated"] == '{"name":"hold","uid":"r-1"}'
    assert "scheduling.koordinator.sh/device-allocated" not in annotations


async def test_binding_to_the_same_node_again_is_success(api, effects):
    pod = await api.pod()
    assert await effects.bind(pod, "node-a") == Bound()
    assert await effects.bind(pod, "node-a") == Bound()


async def test_a_pod_that_somebody_else_placed_is_taken(api, effects):
    pod = await api.pod()
    await effects.bind(pod, "node-b")
    assert await effects.bind(pod, "node-a") == Taken("node-b")


async def test_a_pod_that_does_not_exist_is_gone(effects):
    assert await effects.bind(PodRef("default", "nobody", STRANGER), "node-a") == Gone()


async def test_another_pod_of_the_same_name_is_not_bound(api, effects):
    pod = await api.pod()
    assert await effects.bind(PodRef("default", "web", STRANGER), "node-a") == Gone()
    assert "nodeName" not in (await api.read_pod(pod))["spec"]


async def test_a_lost_answer_to_a_bind_is_success(api, effects):
    pod = await api.pod()
    rule = api.faults.add("drop", verb="create", resource="pods/binding")
    assert await effects.bind(pod, "node-a") == Bound()
    assert rule.hits == 1


async def test_a_bind_that_never_arrived_is_sent_again(api, effects):
    pod = await api.pod()
    api.faults.add("cut", verb="create", resource="pods/binding")
    assert await effects.bind(pod, "node-a") == Bound()


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_bind_survives_transient_answers(api, effects, code):
    pod = await api.pod()
    api.faults.add("status", verb="create", resource="pods/binding", code=code, count=2)
    assert await effects.bind(pod, "node-a") == Bound()


async def test_a_bind_gives_up_after_its_attempts_and_says_why(api, effects):
    pod = await api.pod()
    rule = api.faults.add("status", verb="create", resource="pods/binding", code=503, count=-1)
    outcome = await effects.bind(pod, "node-a")
    assert isinstance(outcome, Failed)
    assert (outcome.code, rule.hits) == (503, 3)


async def test_a_gated_pod_is_refused(api, effects):
    pod = await api.pod(schedulingGates=[{"name": "wait"}])
    outcome = await effects.bind(pod, "node-a")
    assert isinstance(outcome, Refused)
    assert outcome.code == 409


async def test_a_terminating_pod_is_refused(api, effects):
    pod = await api.pod()
    await api.patch_pod(pod, {"metadata": {"finalizers": ["restow.dev/test"]}})
    await api.client.delete("/api/v1/namespaces/default/pods/web")
    outcome = await effects.bind(pod, "node-a")
    assert isinstance(outcome, Refused)
    assert outcome.reason == "Terminating"


# -- evict -----------------------------------------------------------------------------------------------------------------


async def running(api, effects, name: str = "web") -> PodRef:
    pod = await api.pod(name)
    await effects.bind(pod, "node-a")
    ready = {"type": "Ready", "status": "True"}
    await api.patch_pod(pod, {"status": {"phase": "Running", "conditions": [ready]}}, "/status")
    return pod


async def test_an_accepted_eviction_makes_the_pod_terminate(api, effects):
    pod = await running(api, effects)
    assert await effects.evict(pod) == Accepted()
    assert (await api.read_pod(pod))["metadata"]["deletionTimestamp"]


async def test_a_pod_that_terminates_already_counts_as_evicted(api, effects):
    pod = await running(api, effects)
    await effects.evict(pod)
    assert await effects.evict(pod) == AlreadyTerminating()


async def test_a_pod_that_ended_by_itself_counts_as_evicted(api, effects):
    pod = await running(api, effects)
    await api.patch_pod(pod, {"status": {"phase": "Succeeded"}}, "/status")
    assert await effects.evict(pod) == AlreadyTerminating()


async def test_a_pod_of_another_uid_is_never_evicted(api, effects):
    pod = await running(api, effects)
    assert await effects.evict(PodRef("default", "web", STRANGER)) == Gone()
    assert "deletionTimestamp" not in (await api.read_pod(pod))["metadata"]


async def test_a_dry_run_says_what_an_eviction_would_and_spends_nothing(api, effects):
    pod, other = await running(api, effects), await running(api, effects, "other")
    for one in (pod, other, pod):
        assert await effects.evict(one, dry=True) == Accepted()
        assert "deletionTimestamp" not in (await api.read_pod(one))["metadata"]
    await api.budget(2)
    assert isinstance(await effects.evict(pod, dry=True), OverBudget)


async def test_a_lost_answer_to_an_eviction_is_success(api, effects):
    pod = await running(api, effects)
    api.faults.add("drop", verb="create", resource="pods/eviction")
    assert await effects.evict(pod) == AlreadyTerminating()


async def test_a_disruption_budget_holds(api, effects):
    pod = await running(api, effects)
    await api.budget(1)
    outcome = await effects.evict(pod)
    assert isinstance(outcome, OverBudget)
    assert "disruption budget" in outcome.message
    assert "deletionTimestamp" not in (await api.read_pod(pod))["metadata"]


async def test_an_owner_that_moves_its_pod_by_itself_says_so(api, effects, monkeypatch):
    """What KubeVirt answers with 429, and upstream's descheduler looks for: the pod is not evicted, and no budget is in the way."""
    pod, said = await running(api, effects), 'admission webhook "virt-launcher-eviction" denied: Eviction triggered evacuation of VMI "default/vm"'

    async def refused(path, body):
        raise ApiStatus(429, "TooManyRequests", said)

    monkeypatch.setattr(api.client, "create", refused)
    assert await effects.evict(pod) == InBackground(said)


async def test_a_webhook_that_cannot_be_asked_is_not_taken_to_refuse(api, effects, monkeypatch):
    pod, asked = await running(api, effects), []

    async def refused(path, body):
        asked.append(path)
        raise ApiStatus(400, "BadRequest", 'admission webhook "w" does not support dry run')

    monkeypatch.setattr(api.client, "create", refused)
    assert await effects.evict(pod, dry=True) == Accepted()
    assert isinstance(await effects.evict(pod), Refused)
    assert [path.partition("/eviction")[2] for path in asked] == ["?dryRun=All", ""]


async def test_too_many_requests_is_no_budget_and_is_tried_again(api, effects):
    pod = await running(api, effects)
    rule = api.faults.add("status", verb="create", resource="pods/eviction", code=429)
    assert await effects.evict(pod) == Accepted()
    assert rule.hits == 1


async def test_a_pod_that_changed_in_between_is_not_evicted(api, effects):
    pod = await running(api, effects)
    api.faults.add("delay", verb="create", resource="pods/eviction", seconds=1.0)
    evicting = asyncio.create_task(effects.evict(pod))
    while not api.faults.rules[0].hits:
        await asyncio.sleep(0)
    await api.patch_pod(pod, {"metadata": {"labels": {"new": "label"}}})
    assert isinstance(await evicting, Changed)
    assert "deletionTimestamp" not in (await api.read_pod(pod))["metadata"]


async def test_an_eviction_that_was_read_before_the_abort_fails_however_late(api, effects):
    """A paused old leader: it has read the pod, then the migration is rolled back, then it goes on."""
    pod = await running(api, effects)
    api.faults.add("delay", verb="create", resource="pods/eviction", seconds=1.0)
    late = asyncio.create_task(effects.evict(pod))
    while not api.faults.rules[0].hits:
        await asyncio.sleep(0)
    assert await effects.abort_eviction(pod) == Done()
    assert isinstance(await late, Changed)
    assert "deletionTimestamp" not in (await api.read_pod(pod))["metadata"]


async def test_an_aborted_pod_is_not_evicted(api, effects):
    pod = await running(api, effects)
    await effects.abort_eviction(pod)
    outcome = await effects.evict(pod)
    assert isinstance(outcome, Refused)
    assert outcome.reason == "Aborted"


async def test_a_mark_forbids_the_eviction_that_was_given_up_and_no_later_one(api, effects):
    """A pod whose eviction was refused once (a budget was used up) can be moved another time."""
    pod = await running(api, effects)
    assert await effects.abort_eviction(pod, 2_000) == Done()
    for late in (1_000, 2_000):
        assert (await effects.evict(pod, late)).reason == "Aborted"
    assert await effects.evict(pod, 2_001) == Accepted()


@pytest.mark.parametrize("until", ["9" * 5_000, "٣", "-1", "soon", ""])
async def test_a_mark_whose_time_cannot_be_read_forbids_every_eviction(api, effects, until):
    """Anybody who may write to the pod may have written it; Python refuses to read thousands of digits."""
    pod = await running(api, effects)
    await effects.abort_eviction(pod, 2_000)
    await api.client.patch(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"metadata": {"annotations": {ABORTED_UNTIL: until}}})
    assert (await effects.evict(pod, 2_001)).reason == "Aborted"


async def test_each_abort_makes_what_was_read_before_it_fail(api, effects):
    """The second mark is a change, too: a patch that changes nothing would keep the resourceVersion."""
    pod = await running(api, effects)
    versions = []
    for deadline in (2_000, 3_000):
        await effects.abort_eviction(pod, deadline)
        versions.append((await api.read_pod(pod))["metadata"]["resourceVersion"])
    assert versions[0] != versions[1]


async def test_an_abort_after_the_eviction_says_that_it_is_too_late(api, effects):
    pod = await running(api, effects)
    await effects.evict(pod)
    assert await effects.abort_eviction(pod) == AlreadyTerminating()


async def test_an_abort_is_safe_to_repeat_and_survives_a_lost_answer(api, effects):
    pod = await running(api, effects)
    api.faults.add("drop", verb="patch", resource="pods")
    assert await effects.abort_eviction(pod) == Done()
    assert await effects.abort_eviction(pod) == Done()


async def test_an_abort_marks_no_other_pod_of_the_name(api, effects):
    pod = await running(api, effects)
    assert await effects.abort_eviction(PodRef("default", "web", STRANGER)) == Gone()
    assert MIGRATION not in (await api.read_pod(pod))["metadata"].get("annotations", {})


# -- conditions ------------------------------------------------------------------------------------------------------------


async def test_a_condition_is_set_and_the_others_stay(api, effects):
    pod = await api.pod()
    await api.patch_pod(pod, {"status": {"conditions": [{"type": "Mine", "status": "True"}]}}, "/status")
    for message in ("0/3 nodes", "0/4 nodes"):
        outcome = await effects.patch_pod_condition(pod, "False", "Unschedulable", message, "2026-03-01T08:00:00Z")
        assert outcome == Done()
    conditions = {c["type"]: c for c in (await api.read_pod(pod))["status"]["conditions"]}
    assert set(conditions) == {"Mine", "PodScheduled"}
    assert conditions["PodScheduled"]["message"] == "0/4 nodes"


async def test_a_condition_of_a_pod_that_is_gone(effects):
    stranger = PodRef("default", "nobody", STRANGER)
    assert await effects.patch_pod_condition(stranger, "False", "Unschedulable", "", "2026-03-01T08:00:00Z") == Gone()


async def test_what_is_bound_is_read_by_the_facts(api, effects):
    from restow.kube.describe import pod_fact

    pod = await api.pod()
    await effects.bind(pod, "node-a", (DeviceShare(2, 250),))
    fact = pod_fact(d.PODS.object(json.dumps(await api.read_pod(pod)).encode()))[2]
    assert (fact.node, fact.devices) == ("node-a", (DeviceShare(2, 250),))


# -- evictions of a descheduler --------------------------------------------------------------------------------------------


async def test_an_eviction_may_have_its_own_grace(api, effects):
    pod = await api.pod(terminationGracePeriodSeconds=30, nodeName="node-a")
    await api.node()
    assert await effects.evict(pod, grace=7) == Accepted()
    assert (await api.read_pod(pod))["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_pod_that_has_ended_is_evicted_only_where_that_is_meant(api, effects):
    pod = await api.pod()
    await api.patch_pod(pod, {"status": {"phase": "Failed"}}, "/status")
    assert await effects.evict(pod) == AlreadyTerminating()
    assert await effects.evict(pod, finished=True) == Accepted()
    assert await effects.evict(pod, finished=True) in (Gone(), AlreadyTerminating())
