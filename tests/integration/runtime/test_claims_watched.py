"""Devices by claim, from the API to the state: kubesim's scheduler gives them, and the cluster watcher tells who has which."""

import aiohttp
import pytest

from restow.cluster_watcher.service import service as cluster_watcher
from restow.domain.claim_devices import Count, claim_devices
from restow.domain.held_by_claim import why_it_stays
from restow.eventlog.testing import running_server, unique_cluster
from restow.kubesim.testing import kubesim

from .test_services import _create, _node, _pod, _post, service

GROUP = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


def a_slice(node, *devices):
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": name} for name in devices]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def claiming(name):
    pod = _pod(name)
    pod["spec"] |= {"schedulerName": "default-scheduler", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    return pod


async def test_the_state_knows_which_devices_there_are_and_who_has_them(broker):
    async with kubesim(controllers=True) as kube, service(cluster_watcher(), broker, unique_cluster(), kube) as watcher:
        await _create(kube, _node("n0"))
        of = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}}
        await _post(kube, f"{GROUP}/deviceclasses", of)
        asked = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"}, "spec": asked}
        await _post(kube, f"{GROUP}/namespaces/default/resourceclaimtemplates", template)
        await _post(kube, f"{GROUP}/resourceslices", a_slice("n0", "gpu-0", "gpu-1"))
        await _create(kube, claiming("p0"))
        await watcher.until(lambda state: state.pods and claim_devices(state).by_driver() == {DRIVER: Count(2, 1, 1, 2, 1)})
        state = watcher.process.context.state
        (uid,) = (uid for uid, pod in state.pods.items() if pod.fact.name == "p0")
        assert why_it_stays(state, uid) == f"Unsupported: it has gpu-0 of {DRIVER} by ResourceClaim, and claimNamespaces of the policy does not name default"
        await _create(kube, claiming("p1"))
        await watcher.until(lambda state: claim_devices(state).by_driver()[DRIVER].free == 0)
        async with aiohttp.ClientSession() as session, session.delete(f"{kube.url}/api/v1/namespaces/default/pods/p0?gracePeriodSeconds=0") as answer:
            assert answer.status < 300
        await watcher.until(lambda state: claim_devices(state).by_driver()[DRIVER].free == 1)
        assert [one.state for one in claim_devices(state).on("n0")] == ["", "allocated"]
