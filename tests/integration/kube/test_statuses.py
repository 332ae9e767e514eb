"""The status of PodGroups and Queues: our fields are made right, those of others stay, and nothing is written for nothing."""

import contextlib
import json

import pytest
import yaml

from restow.domain.session.statuses.podgroup_status import READY, Condition, GroupStatus
from restow.domain.session.statuses.queue_status import QueueStatus
from restow.kube import decode as d
from restow.kube.client import ApiStatus
from restow.kube.effects import Done, Failed, Gone
from restow.kube.retry import Backoff
from restow.kube.statuses import Statuses
from restow.scheduler_session.status import group_fields, queue_fields

from .conftest import CRDS

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PATH = f"{GROUPS}/g"
HOLDS = Condition("Scheduled", "True", reason=READY)


@pytest.fixture(params=["with /status", "without /status"])
async def group(api, request):
    """A PodGroup's uid; Volcano's CRD has had no /status."""
    for document in yaml.safe_load_all((CRDS / "podgroups.scheduling.volcano.sh.yaml").read_text()):
        if request.param == "without /status":
            for version in document["spec"]["versions"]:
                del version["subresources"]
        await api.client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2}}
    return json.loads(await api.client.create(GROUPS, body))["metadata"]["uid"]


async def write(api, uid, status, now=1_700_000_000_000, name="g"):
    return await Statuses(api.client, FAST).write(
        d.POD_GROUPS, "default", name, uid, lambda there: group_fields(there, status, uid, now)
    )


async def there(api):
    return json.loads(await api.client.get(PATH))


async def test_it_is_written_wherever_the_crd_has_it(api, group):
    assert await write(api, group, GroupStatus("Running", 2, holds=HOLDS)) == Done()
    status = (await there(api))["status"]
    assert (status["phase"], status["running"]) == ("Running", 2)
    assert "failed" not in status, "what has never been is not counted"
    (condition,) = status["conditions"]
    assert set(condition) == {"type", "status", "transitionID", "lastTransitionTime", "reason"}


async def test_equal_statuses_are_written_once_however_much_later(api, group):
    await write(api, group, GroupStatus("Running", 2, holds=HOLDS))
    version = (await there(api))["metadata"]["resourceVersion"]
    await write(api, group, GroupStatus("Running", 2, holds=HOLDS), now=1_800_000_000_000)
    assert (await there(api))["metadata"]["resourceVersion"] == version


async def test_the_fields_of_others_stay(api, group):
    """Seed 003's migrationState beside, and migrationInfo in the spec."""
    moved = {"spec": {"migrationInfo": [{"sourceNode": "a", "targetNode": "b"}]}, "status": {"migrationState": {"phase": "Running"}}}
    for path in (PATH, f"{PATH}/status"):
        with contextlib.suppress(ApiStatus):  # one of them is not served
            await api.client.patch(path, moved)
    await write(api, group, GroupStatus("Unknown", 1, 0, 1, Condition("Unschedulable", "True", reason="NotEnoughTasks", message="m")))
    await write(api, group, GroupStatus("Running", 2, holds=HOLDS))
    now = await there(api)
    assert now["status"]["migrationState"] == {"phase": "Running"}
    assert now["spec"]["migrationInfo"][0]["targetNode"] == "b"
    assert [c["type"] for c in now["status"]["conditions"]] == ["Unschedulable", "Scheduled"]
    assert now["status"]["failed"] == 0, "once counted, it is counted down, too"


async def test_another_group_of_that_name_and_one_that_is_gone_are_left_alone(api, group):
    assert await write(api, "another", GroupStatus("Running")) == Gone()
    assert await write(api, group, GroupStatus("Running"), name="nobody") == Gone()
    assert "status" not in await there(api) or "phase" not in (await there(api))["status"]


async def test_an_api_that_does_not_answer_is_tried_again_later(api, group):
    for _ in range(10 * FAST.attempts):
        api.faults.add("drop", verb="get", resource="podgroups")
    assert isinstance(await write(api, group, GroupStatus("Running")), Failed)


def test_conditions_that_cannot_be_read_are_replaced():
    fields = group_fields({"conditions": "none"}, GroupStatus("Running", holds=HOLDS), "uid", 1)
    assert [c["type"] for c in fields["conditions"]] == ["Scheduled"]


def test_a_queue_is_open_unless_somebody_says_otherwise():
    status = QueueStatus(running=1, allocated={"cpu": "1"})
    assert queue_fields({}, status)["state"] == "Open"
    for state in ("Open", "Closed", "Closing", "Unknown"):
        assert "state" not in queue_fields({"state": state}, status)
    assert queue_fields({}, status)["allocated"] == {"cpu": "1"}
