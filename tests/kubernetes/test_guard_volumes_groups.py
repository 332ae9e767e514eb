"""Whatever our services are told to: of a volume they say whose it is, where nobody has it; of a claim, for which node; of groups and queues, how they fare."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes.lab import DEPLOY, Lab
from kubernetes.world import NS, World
from kubesim.conformance.harness import MERGE, Api, Target, plain

VOLUME = "/api/v1/persistentvolumes/{}"
CLAIM = f"/api/v1/namespaces/{NS}/persistentvolumeclaims/{{}}"
GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NS}/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CRDS = [str(DEPLOY / "chart" / "files" / "crds" / f"{name}.scheduling.volcano.sh.yaml") for name in ("podgroups", "queues")]
META = {
    "a label": {"metadata": {"labels": {"evil": "1"}}},
    "somebody's annotation": {"metadata": {"annotations": {"example.com/note": "theirs"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/wait"]}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
}


def claim_ref(name: str, uid: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NS, "name": name} | ({"uid": uid} if uid else {})


@pytest.fixture
async def session(world: World, accounts: dict[str, Target]) -> Api:
    return Api(accounts["scheduler-session"], world.api.session)


async def refused(service: Api, path: str, changes: dict[str, Any], by: str) -> None:
    for what, change in changes.items():
        answer = await service.call("PATCH", path, change, media=MERGE)
        assert answer.status in (403, 422), f"{what} was not refused: {answer.status} {answer.body}"
        assert by in answer.body["message"], f"{what}: {answer.body['message']}"


async def in_force(service: Api, path: str) -> None:
    """An API server that has just heard of a policy compiles it first."""
    async with asyncio.timeout(30):
        while (await service.call("PATCH", path + "?dryRun=All", META["a label"], media=MERGE)).status == 200:
            await asyncio.sleep(0.1)


async def volume(world: World, name: str, **spec: Any) -> str:
    said = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"}, "storageClassName": "none"}
    await world.api.ok("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": said | spec})
    return VOLUME.format(name)


async def test_a_volume_that_somebody_has_stays_theirs_and_as_it_is(world: World, session: Api) -> None:
    """Else a stolen account gave anybody's data away, or had it deleted."""
    theirs = await volume(world, "theirs", claimRef=claim_ref("db", "11111111-2222-3333-4444-555555555555"))
    await in_force(session, theirs)
    spec = {
        "another's": {"spec": {"claimRef": claim_ref("evil", "66666666-2222-3333-4444-555555555555")}},
        "an owner of the same name": {"spec": {"claimRef": claim_ref("db", "66666666-2222-3333-4444-555555555555")}},
        "nobody's": {"spec": {"claimRef": None}},
        "its end": {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
        "its class": {"spec": {"storageClassName": "other"}},
        "its size": {"spec": {"capacity": {"storage": "9Gi"}}},
        "its modes": {"spec": {"accessModes": ["ReadWriteMany"]}},
        "its mount": {"spec": {"mountOptions": ["exec"]}},
    }
    await refused(session, theirs, META | spec, "restow-guard-volumes")


async def test_a_free_volume_and_one_that_is_kept_for_a_claim_are_given_to_it(world: World, session: Api) -> None:
    """As kube-scheduler does before it binds a pod, and nothing else."""
    free, kept = await volume(world, "free"), await volume(world, "kept", claimRef=claim_ref("db"))
    await in_force(session, free)
    await refused(session, kept, {"another's": {"spec": {"claimRef": claim_ref("evil", "66666666-2222-3333-4444-555555555555")}}}, "restow-guard-volumes")
    given = claim_ref("db", "11111111-2222-3333-4444-555555555555")
    await session.ok("PATCH", free + "?dryRun=All", {"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}, "spec": {"claimRef": given}}, media=MERGE)
    await session.ok("PATCH", kept + "?dryRun=All", {"spec": {"claimRef": given}}, media=MERGE)


async def test_of_a_claim_the_node_is_said_that_it_is_for_and_nothing_else(world: World, session: Api) -> None:
    said = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    await world.api.ok("POST", CLAIM.format("")[:-1], {"metadata": {"name": "db"}, "spec": said})
    path, node = CLAIM.format("db"), {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}
    await in_force(session, path)
    await refused(session, path, META | {"a volume": {"spec": {"volumeName": "theirs"}}, "no finalizer": {"metadata": {"finalizers": None}}}, "restow-guard-volumes")
    await session.ok("PATCH", path, node, media=MERGE)
    await refused(session, path, {"another node": {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "m"}}}}, "restow-guard-volumes")


@pytest.fixture(params=["with /status", "without /status"])
async def defined(request: pytest.FixtureRequest, world: World, lab: Lab) -> AsyncIterator[str]:
    """Groups and queues, as the chart defines them, and as Volcano has done before; the subresource that their status is written at."""
    whole = request.param == "with /status"
    for path in CRDS:
        lab.kubectl("apply", "--server-side", "-f", path)
        name = path.rsplit("/", 1)[1].removesuffix(".yaml")
        if not whole:
            lab.kubectl("patch", "crd", name, "--type=json", "-p", '[{"op": "remove", "path": "/spec/versions/0/subresources/status"}]')
        lab.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{name}")
    async with asyncio.timeout(60):
        for path, body in ((GROUPS, {"metadata": {"name": "theirs"}, "spec": {"minMember": 2, "queue": "theirs"}}), (QUEUES, {"metadata": {"name": "theirs"}, "spec": {"weight": 1}})):
            body |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup" if path == GROUPS else "Queue"}
            while (await world.api.call("POST", path, body)).status not in (201, 409):
                await asyncio.sleep(0.1)
    yield "/status" if whole else ""
    lab.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh", "--timeout=60s")


async def test_what_groups_and_queues_are_is_not_ours_to_change(world: World, accounts: dict[str, Target], defined: str) -> None:
    """A stolen account could give any queue the whole cluster, or start a gang by halves."""
    async with aiohttp.ClientSession() as http:
        session, descheduler = (Api(accounts[name], http) for name in ("scheduler-session", "descheduler"))
        group, queue = f"{GROUPS}/theirs", f"{QUEUES}/theirs"
        await in_force(session, group)
        await refused(session, queue, META | {"a weight": {"spec": {"weight": 9}}, "a capability": {"spec": {"capability": {"cpu": "9"}}}}, "restow-guard-groups")
        for service in (session, descheduler):
            await refused(service, group, META | {"its least": {"spec": {"minMember": 1}}, "its queue": {"spec": {"queue": "x"}}, "less": {"spec": {"queue": None}}}, "restow-guard-groups")
        infos = {"spec": {"migrationInfo": [{"sourceNode": "n"}]}}
        await refused(session, group, {"who moves": infos}, "restow-guard-groups")
        await descheduler.ok("PATCH", group, infos, media=MERGE)
        await refused(descheduler, group + defined, {"its phase": {"status": {"phase": "Running"}}}, "restow-guard-groups")
        await descheduler.ok("PATCH", group + defined, {"status": {"migrationState": {"phase": "Running"}}}, media=MERGE)
        await session.ok("PATCH", group + defined, {"status": {"phase": "Running", "running": 1}}, media=MERGE)
        await session.ok("PATCH", queue + defined, {"status": {"state": "Open", "allocated": {"cpu": "1"}}}, media=MERGE)


@pytest.mark.parametrize("name", ["restow-guard-volumes", "restow-guard-groups"])
def test_the_expressions_are_well_typed(lab: Lab, name: str) -> None:
    there = plain(lab.target, "GET", f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}")
    assert "expressionWarnings" not in str(there.get("status")), there["status"]
