"""The cluster that is watched: where it is, and that it is the one that the folder's log is of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure
from restow.kube.client import ApiStatus, ClientConfig, ClientConfigError, connect

SYSTEM = (("fieldSelector", "metadata.name=kube-system"), ("limit", "1"))
FILE = "cluster.json"


class _Meta(msgspec.Struct):
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Meta


class _Namespaces(msgspec.Struct):
    items: list[_Namespace] = []


def kubeconfig(named: str) -> str:
    """The URL or kubeconfig to use: as it is named, otherwise kubectl's. Raises Failure."""
    if named.startswith(("http://", "https://")):
        return named
    path = named or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not os.path.isfile(path):
        raise Failure(f"{path} is no file; allowed for --kube: the path of a kubeconfig, or http(s)://host:port; without it KUBECONFIG or ~/.kube/config", UNUSABLE)
    return path


async def identity(kube: str) -> str:
    """What tells this cluster from others: the uid of its namespace kube-system, or where there is none the API's address. Raises Failure."""
    url = kube.startswith(("http://", "https://"))
    config = ClientConfig(url=kube, read_only=True) if url else ClientConfig(kubeconfig=kube, read_only=True)
    try:
        async with await connect(config) as client:
            found = msgspec.json.decode(await client.get("/api/v1/namespaces", SYSTEM), type=_Namespaces)
            return found.items[0].metadata.uid if found.items else client.url
    except ClientConfigError as error:
        raise Failure(str(error), UNUSABLE) from None
    except ApiStatus as error:
        hint = "; `restow watch --rbac` prints the rights that it needs" if error.code in (401, 403) else ""
        raise Failure(f"the Kubernetes API of {kube} cannot be read: {error}{hint}", UNREACHABLE) from None


def recognise(folder: Path, cluster: str) -> bool:
    """Whether the folder's log is of this cluster already; it is from now on. Raises Failure where it is another one's."""
    file = folder / FILE
    try:
        known = json.loads(file.read_text())["cluster"]
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"cluster": cluster}) + "\n")
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{file} cannot be read ({error}); use another --data folder, or remove {folder}", UNUSABLE) from None
    if known != cluster:
        raise Failure(f"{folder} is of another cluster ({known}, and this is {cluster}); use another --data folder", UNUSABLE)
    return True
