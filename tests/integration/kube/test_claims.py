"""What makes the cluster bind a claim is safe to repeat, safe to be late, and overwrites nobody's choice."""

import json

import pytest

from restow.kube.claims import Claimed, ClaimEffects, ClaimRef
from restow.kube.effects import Done, Failed, Gone, Refused, Taken
from restow.kube.retry import Backoff

FAST = Backoff(attempts=3, first=0.001, longest=0.002)
PVC, PV = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
SELECTED = "volume.kubernetes.io/selected-node"
STRANGER = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def effects(api):
    return ClaimEffects(api.client, FAST)


async def claim(api, name: str = "c", **spec) -> ClaimRef:
    resources = {"requests": {"storage": "1Gi"}}
    body = {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "local", **spec}}
    made = json.loads(await api.client.create(PVC, body))
    return ClaimRef("default", name, made["metadata"]["uid"])


async def volume(api, name: str = "v", **spec) -> str:
    source = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}, "storageClassName": "local"}
    await api.client.create(PV, {"metadata": {"name": name}, "spec": source | spec})
    return name


async def there(api, path: str) -> dict:
    return json.loads(await api.client.get(path))


async def annotations(api) -> dict:
    return (await there(api, f"{PVC}/c"))["metadata"].get("annotations", {})


# -- select a node -----------------------------------------------------------------------------------------------------------


async def test_a_node_is_selected_once_and_repeating_it_is_success(api, effects):
    ref = await claim(api)
    assert await effects.select_node(ref, "n1") == Done()
    before = await there(api, f"{PVC}/c")
    assert before["metadata"]["annotations"][SELECTED] == "n1"
    assert await effects.select_node(ref, "n1") == Done()
    assert await there(api, f"{PVC}/c") == before


async def test_a_node_that_somebody_else_selected_stays(api, effects):
    ref = await claim(api)
    await effects.select_node(ref, "n1")
    assert await effects.select_node(ref, "n2") == Taken("n1")
    assert (await annotations(api))[SELECTED] == "n1"


async def test_a_claim_with_a_volume_needs_no_node(api, effects):
    ref = await claim(api, volumeName="v")
    assert await effects.select_node(ref, "n1") == Done()
    assert SELECTED not in await annotations(api)


async def test_a_claim_that_is_gone_or_another_one_is_left_alone(api, effects):
    assert await effects.select_node(ClaimRef("default", "none", STRANGER), "n1") == Gone()
    await claim(api)
    assert await effects.select_node(ClaimRef("default", "c", STRANGER), "n1") == Gone()
    assert SELECTED not in await annotations(api)


async def test_a_lost_answer_to_a_selection_is_success(api, effects):
    ref = await claim(api)
    rule = api.faults.add("drop", verb="patch", resource="persistentvolumeclaims")
    assert await effects.select_node(ref, "n1") == Done()
    assert (rule.hits, (await annotations(api))[SELECTED]) == (1, "n1")


# -- reserve a volume --------------------------------------------------------------------------------------------------------


async def test_a_volume_is_reserved_as_the_volume_controller_would(api, effects):
    ref = await claim(api)
    await volume(api)
    assert await effects.prebind("v", ref) == Done()
    before = await there(api, f"{PV}/v")
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": ref.uid}
    assert before["spec"]["claimRef"] == reference
    assert before["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
    assert await effects.prebind("v", ref) == Done()
    assert await there(api, f"{PV}/v") == before


async def test_a_volume_that_a_user_reserved_for_the_claim_gets_its_uid_and_stays_the_users(api, effects):
    ref = await claim(api)
    await volume(api, claimRef={"namespace": "default", "name": "c"})
    assert await effects.prebind("v", ref) == Done()
    found = await there(api, f"{PV}/v")
    assert found["spec"]["claimRef"]["uid"] == ref.uid
    assert "annotations" not in found["metadata"]


@pytest.mark.parametrize("owner", [{"namespace": "default", "name": "d"}, {"namespace": "default", "name": "c", "uid": STRANGER}])
async def test_a_volume_of_another_claim_is_left_alone(api, effects, owner):
    ref = await claim(api)
    await volume(api, claimRef=owner)
    assert await effects.prebind("v", ref) == Claimed(f"default/{owner['name']}")
    assert (await there(api, f"{PV}/v"))["spec"]["claimRef"] == owner


async def test_a_volume_that_does_not_exist_is_gone(api, effects):
    assert await effects.prebind("v", await claim(api)) == Gone()


async def test_a_volume_that_changes_in_between_is_looked_at_again_later(api, effects):
    ref = await claim(api)
    await volume(api)
    api.faults.add("status", verb="patch", resource="persistentvolumes", code=409)
    assert isinstance(await effects.prebind("v", ref), Failed)
    assert await effects.prebind("v", ref) == Done()


async def test_a_refusal_for_good_says_why(api, effects):
    ref = await claim(api)
    await volume(api)
    api.faults.add("status", verb="patch", resource="persistentvolumes", code=403)
    assert isinstance(await effects.prebind("v", ref), Refused)
