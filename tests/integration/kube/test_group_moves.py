"""PodGroups whose pods are moved: `spec.migrationInfo` first, then `status.migrationState` (seed 003, RULES 003-2)."""

import contextlib
import json

import pytest
import yaml

from restow.domain.records import GroupMove, GroupMoves, Step
from restow.domain.statuses import podgroup_migration
from restow.kube.client import ApiStatus
from restow.kube.effects import Done, Gone
from restow.kube.group_moves import GroupMoveEffects
from restow.kube.retry import Backoff

from .conftest import CRDS

FAST = Backoff(attempts=2, first=0.001, longest=0.002)
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PATH = f"{GROUPS}/g"
SINCE = 1_700_000_000_000


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


def moves(phase: str, step: Step, id: str = "x-1") -> GroupMoves:
    return GroupMoves((GroupMove(id, "uid-p", "p", "a", "b", "uid-hold", step),), phase, SINCE)


async def write(api, uid: str, of: GroupMoves):
    infos = podgroup_migration.infos(of, "default")
    return await GroupMoveEffects(api.client, FAST).write("default", "g", uid, infos, lambda before: podgroup_migration.states(of, before))


async def there(api):
    return json.loads(await api.client.get(PATH))


def version(seen) -> int:
    return int(seen["metadata"]["resourceVersion"])


async def test_info_then_pending_then_how_it_goes(api, group):
    before = version(await there(api))
    assert await write(api, group, moves("Running", Step.EVICTING)) == Done()
    seen = await there(api)
    (info,) = seen["spec"]["migrationInfo"]
    assert info["pod"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}}
    assert info["reservation"]["metadata"] == {"name": "restow-x-1", "namespace": "default", "uid": "uid-hold"}
    assert (info["sourceNode"], info["targetNode"]) == ("a", "b")
    assert seen["status"]["migrationState"]["phase"] == "Running"
    assert version(seen) == before + 3, "the spec, Pending, Running"
    assert seen["spec"]["minMember"] == 2


async def test_phase_and_conditions_of_the_scheduler_stay(api, group):
    for path in (PATH, f"{PATH}/status"):
        with contextlib.suppress(ApiStatus):  # one of them is not served
            await api.client.patch(path, {"status": {"phase": "Running", "running": 2}})
    await write(api, group, moves("Succeeded", Step.LANDED))
    status = (await there(api))["status"]
    assert (status["phase"], status["running"], status["migrationState"]["phase"]) == ("Running", 2, "Succeeded")


async def test_what_is_there_already_is_not_written_again(api, group):
    await write(api, group, moves("Running", Step.EVICTING))
    before = version(await there(api))
    await write(api, group, moves("Running", Step.EVICTED))
    assert version(await there(api)) == before
    await write(api, group, moves("Succeeded", Step.LANDED))
    assert version(await there(api)) == before + 1


async def test_moves_that_begin_anew_are_pending_again(api, group):
    await write(api, group, moves("Failed", Step.FAILED))
    before = version(await there(api))
    await write(api, group, moves("Running", Step.EVICTING, "y-1"))
    seen = await there(api)
    assert version(seen) == before + 3
    assert [info["reservation"]["metadata"]["name"] for info in seen["spec"]["migrationInfo"]] == ["restow-y-1"]


async def test_another_group_of_that_name_is_not_touched(api, group):
    before = version(await there(api))
    assert await write(api, "another", moves("Running", Step.EVICTING)) == Gone()
    assert version(await there(api)) == before
    await api.client.delete(PATH, {})
    assert await write(api, group, moves("Running", Step.EVICTING)) == Gone()


@pytest.mark.parametrize("action", ["drop", "cut"])
async def test_a_lost_answer_is_made_good(api, group, action):
    """`drop` loses the request, `cut` the answer."""
    api.faults.add(action, verb="patch", resource="podgroups")
    assert await write(api, group, moves("Running", Step.EVICTING)) == Done()
    seen = await there(api)
    assert (len(seen["spec"]["migrationInfo"]), seen["status"]["migrationState"]["phase"]) == (1, "Running")
