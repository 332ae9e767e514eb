"""What the conformance tests talk to: kubesim, a bare kube-apiserver, or a whole cluster, through HTTP alone."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from restow.eventlog.testing import free_ports

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass(frozen=True)
class Target:
    """Where the API is. `kind` is kubesim, apiserver (nothing but the API server) or cluster."""

    kind: str
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    ssl: ssl.SSLContext | bool = True


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any


class Api:
    """A thin HTTP client; every method returns status, decoded body and headers."""

    def __init__(self, target: Target, session: aiohttp.ClientSession):
        self.target = target
        self.session = session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = JSON,
        accept: str = JSON,
        raw: bytes | None = None,
    ) -> Answer:
        headers = {**self.target.headers, "Accept": accept}
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        if data is not None:
            headers["Content-Type"] = media
        async with self.session.request(
            method, self.target.url + path, data=data, headers=headers, ssl=self.target.ssl
        ) as response:
            text = await response.read()
            is_json = "json" in response.headers.get("Content-Type", "")
            return Answer(
                response.status, json.loads(text) if is_json and text else text.decode(), response.headers
            )

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The body of an answer that must be a success."""
        answer = await self.call(method, path, body, **more)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.body

    async def fails(
        self, code: int, reason: str | None, method: str, path: str, body: Any = None, **more: Any
    ) -> Any:
        """The Status of an answer that must be this failure."""
        answer = await self.call(method, path, body, **more)
        assert answer.status == code, (method, path, answer.status, answer.body)
        assert answer.body["kind"] == "Status"
        assert answer.body["status"] == "Failure"
        assert answer.body["code"] == code
        if reason is not None:
            assert answer.body.get("reason", "") == reason, answer.body
        return answer.body

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        """An open watch."""
        accept = query.pop("accept", JSON)
        pairs = {"watch": "true", **{key: str(value) for key, value in query.items()}}
        headers = {**self.target.headers, "Accept": accept}
        async with self.session.get(
            self.target.url + path, params=pairs, headers=headers, ssl=self.target.ssl
        ) as response:
            yield Watch(response)


class Watch:
    """Reads events; every wait has a deadline."""

    def __init__(self, response: aiohttp.ClientResponse):
        self.response = response
        self.status = response.status

    async def next(self, seconds: float = 10.0) -> Any:
        """The next event, or None at the end of the stream."""
        line = await asyncio.wait_for(self.response.content.readline(), seconds)
        return json.loads(line) if line else None

    async def until(self, kind: str, name: str) -> Any:
        """The next event of this type on this object; others are passed over."""
        while True:
            event = await self.next()
            assert event is not None, f"the watch ended before {kind} {name}"
            if event["type"] == kind and event["object"]["metadata"].get("name") == name:
                return event


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


# -- the real thing -----------------------------------------------------------------------------------


def free_port() -> int:
    return free_ports(1)[0]


@contextmanager
def apiserver(assets: Path, work: Path) -> Iterator[Target]:
    """etcd and kube-apiserver from an envtest folder, on free ports, without plugins that need controllers."""
    etcd_port, peer_port, port = free_port(), free_port(), free_port()
    token = secrets.token_hex(16)
    (work / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    key = work / "sa.key"
    key.write_text(signing_key())
    etcd_url = f"http://127.0.0.1:{etcd_port}"
    etcd = [
        str(assets / "etcd"), "--data-dir", str(work / "etcd"), "--listen-client-urls", etcd_url,
        "--advertise-client-urls", etcd_url, "--listen-peer-urls", f"http://127.0.0.1:{peer_port}", "--unsafe-no-fsync",
    ]  # fmt: skip
    server = [
        str(assets / "kube-apiserver"), f"--etcd-servers={etcd_url}", f"--secure-port={port}",
        "--bind-address=127.0.0.1", f"--cert-dir={work / 'certs'}", f"--token-auth-file={work / 'tokens.csv'}",
        "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://kubesim.test",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
    ]  # fmt: skip
    insecure = ssl.create_default_context()
    insecure.check_hostname = False
    insecure.verify_mode = ssl.CERT_NONE
    children = []
    log = (work / "server.log").open("wb")
    try:
        children.append(subprocess.Popen(etcd, stdout=log, stderr=log))
        children.append(subprocess.Popen(server, stdout=log, stderr=log))
        target = Target(
            "apiserver", f"https://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"}, insecure
        )
        _await_ready(target, children, work / "server.log")
        yield target
    finally:
        for child in reversed(children):
            child.terminate()
        for child in reversed(children):
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        log.close()


def signing_key() -> str:
    """A new P-256 key as PEM (RFC 5915, without the public half, which readers compute), for service account tokens."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    secret = (secrets.randbelow(order - 1) + 1).to_bytes(32, "big")
    der = bytes.fromhex("30310201010420") + secret + bytes.fromhex("a00a06082a8648ce3d030107")
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[i : i + 64] for i in range(0, len(text), 64))
    return f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n"


def write_kubeconfig(target: Target, path: Path) -> Path:
    """A kubeconfig for the target, as kubectl and the services read it."""
    token = target.headers.get("Authorization", "").removeprefix("Bearer ")
    cluster: dict[str, Any] = {"server": target.url}
    if target.url.startswith("https://"):
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def _await_ready(target: Target, children: list[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + 90
    context = target.ssl if isinstance(target.ssl, ssl.SSLContext) else None
    while time.monotonic() < deadline:
        if any(child.poll() is not None for child in children):
            raise RuntimeError(f"etcd or kube-apiserver ended: {log.read_text(errors='replace')[-2000:]}")
        try:
            request = urllib.request.Request(f"{target.url}/readyz", headers=target.headers)
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("kube-apiserver did not become ready in 90 s")


_REPLICASETS = "/apis/apps/v1/namespaces/default/replicasets"


def from_kubeconfig(path: Path) -> Target:
    """The current context of a kubeconfig: token, or client certificate."""
    import tempfile

    config = yaml.safe_load(path.read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])

    def file_of(holder: dict[str, Any], key: str) -> str | None:
        if key in holder:
            return str(path.parent / holder[key])
        if f"{key}-data" not in holder:
            return None
        handle = tempfile.NamedTemporaryFile(delete=False, suffix=".pem")  # noqa: SIM115
        handle.write(base64.b64decode(holder[f"{key}-data"]))
        handle.close()
        return handle.name

    secure = ssl.create_default_context(cafile=file_of(cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        secure.check_hostname = False
        secure.verify_mode = ssl.CERT_NONE
    certificate = file_of(user, "client-certificate")
    if certificate:
        secure.load_cert_chain(certificate, file_of(user, "client-key"))
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    return Target("cluster", cluster["server"].rstrip("/"), headers, secure)


def has_controllers(target: Target) -> bool:
    """Whether somebody takes notice of a ReplicaSet within ten seconds."""
    name = unique("probe")
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    body = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    plain(target, "POST", _REPLICASETS, body)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if plain(target, "GET", f"{_REPLICASETS}/{name}").get("status", {}).get("observedGeneration"):
                return True
            time.sleep(0.1)
        return False
    finally:
        plain(target, "DELETE", f"{_REPLICASETS}/{name}")


def plain(target: Target, method: str, path: str, body: Any = None) -> Any:
    """One request without a session, for what is set up before the tests. Raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    headers = {**target.headers, "Content-Type": "application/json"}
    request = urllib.request.Request(target.url + path, data=data, headers=headers, method=method)
    context = target.ssl if isinstance(target.ssl, ssl.SSLContext) else None
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return json.load(answer)


def configured() -> tuple[str, Path] | None:
    """What the environment names to test against, if anything."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return "assets", Path(assets)
    for name in ("RESTOW_CONFORMANCE_KUBECONFIG", "KUBECONFIG"):
        if found := os.environ.get(name):
            return "kubeconfig", Path(found)
    return None
