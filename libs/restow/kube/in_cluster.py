"""A client inside a cluster without `kubernetes_asyncio`, which takes 37 MiB of memory: for processes that do little."""

import os
import ssl
from pathlib import Path

import aiohttp

from restow.kube.client import Client, ClientConfig, ClientConfigError
from restow.kube.connector import Connector
from restow.kube.credentials import HEADER, Credentials

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class TokenFile(Credentials):
    """The account's token, which the kubelet replaces in its file: read for each request, of which there are few."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def authorize(self, headers: dict[str, str]) -> None:
        headers[HEADER] = self._bearer()

    async def replaced(self, refused: str) -> bool:
        return self._bearer() != refused

    def _bearer(self) -> str:
        return f"Bearer {self._path.read_text().strip()}"


def in_cluster(config: ClientConfig = ClientConfig(), folder: Path = FOLDER) -> Client:
    """Raises ClientConfigError where this is no pod of a cluster."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        trusted = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        (folder / "token").read_text()
    except OSError as error:
        raise ClientConfigError(f"in-cluster configuration: {error}; allowed: a pod with a ServiceAccount's token") from error
    if not host:
        raise ClientConfigError("KUBERNETES_SERVICE_HOST is not set; allowed: inside a cluster, or name a kubeconfig")
    # As kubectl verifies (`client.connect`).
    trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT
    session = aiohttp.ClientSession(connector=Connector(ssl=trusted, limit=config.pool))
    return Client(f"https://{f'[{host}]' if ':' in host else host}:{port}", session, config, TokenFile(folder / "token"))
