"""A kubesim of one's own for each test, and a client on it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from restow.kube.client import ClientConfig, connect
from restow.kube.effects import PodRef
from restow.kubesim.testing import kubesim

DEPLOY = Path(__file__).parents[3] / "deploy"
CRDS, LANDINGS = DEPLOY / "crds", DEPLOY / "beside" / "crd.yaml"


class Api:
    """The server, a client, and short ways to make things."""

    def __init__(self, server: Any, client: Any):
        self.server, self.client = server, client
        self.faults = server.cluster.faults

    async def node(self, name: str = "node-a") -> None:
        status = {"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    async def pod(self, name: str = "web", **spec: Any) -> PodRef:
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"schedulerName": "restow", "containers": [{"name": "c", "image": "i"}], **spec},
        }
        made = json.loads(await self.client.create("/api/v1/namespaces/default/pods", body))
        return PodRef("default", name, made["metadata"]["uid"])

    async def read(self, path: str) -> SimpleNamespace:
        return json.loads(await self.client.get(path), object_hook=lambda d: SimpleNamespace(**d))

    async def read_pod(self, pod: PodRef) -> dict[str, Any]:
        return json.loads(await self.client.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"))

    async def patch_pod(self, pod: PodRef, patch: Any, subresource: str = "") -> None:
        await self.client.patch(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}{subresource}", patch)

    async def budget(self, minimum: int) -> None:
        spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": "web"}}}
        body = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
        await self.client.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)

    async def crds(self) -> None:
        for path in sorted(CRDS.glob("reservations.*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                await self.client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)

    async def landings(self) -> None:
        """The kind."""
        await self.client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(LANDINGS.read_text()))

    async def landing(self, log: str) -> Any:
        """The spec of this log's."""
        return json.loads(await self.client.get(f"/apis/restow.dev/v1/landings/{log}"))["spec"]


@pytest.fixture
async def api():
    async with kubesim() as server, await connect(ClientConfig(url=server.url, timeout=3.0)) as client:
        yield Api(server, client)
