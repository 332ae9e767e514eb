"""A token that ends is replaced, as kubectl replaces it, and no request of ours fails because of it."""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from restow.kube import client as kube_client
from restow.kube import credentials as kube_credentials
from restow.kube.client import ApiStatus, ClientConfig, ClientConfigError, connect


class Api:
    """Answers whoever sends one of the tokens that it takes; else 401."""

    def __init__(self):
        self.takes, self.got = set(), []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        token = next((line.split("bearer ")[1] for line in head.split("\r\n") if line.startswith("authorization: bearer ")), "")
        self.got.append(token)
        status = b"200 OK" if token in self.takes else b"401 Unauthorized"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()


@pytest.fixture
async def api():
    async with Api() as api:
        yield api


class Plugin:
    """An exec plugin, as EKS, GKE and AKS have: its tokens are t1, t2, …; each says that it ends in `life` seconds."""

    def __init__(self, folder, life=None):
        self._folder = folder
        self.script = folder / "plugin.py"
        self.script.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, time\n"
            f"folder = {str(folder)!r}\n"
            "open(folder + '/calls', 'a').write('x')\n"
            "if os.path.exists(folder + '/hangs'): time.sleep(60)\n"
            "if os.path.exists(folder + '/broken'): sys.exit('cannot reach sts')\n"
            "status = {'token': f't{os.path.getsize(folder + \"/calls\")}'}\n"
            f"life = {life!r}\n"
            "if life is not None: status['expirationTimestamp'] = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + life))\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': status}))\n"
        )
        self.script.chmod(0o755)

    def user(self):
        return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(self.script), "interactiveMode": "Never"}}

    @property
    def calls(self):
        calls = self._folder / "calls"
        return calls.stat().st_size if calls.exists() else 0

    def does(self, what):
        (self._folder / what).touch()

    @asynccontextmanager
    async def hangs(self):
        """Those that hang are ended afterwards, while the loop still hears of it: otherwise they fail whichever test runs when they are collected. One that was given up before it began is none."""
        self.does("hangs")
        yield
        # The system begins a process before the loop goes on, so all are there by now.
        for children in Path("/proc/self/task").glob("*/children"):
            for pid in children.read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if str(self.script).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)
                        while os.path.exists(f"/proc/{pid}"):
                            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)


def kubeconfig(folder, url, user):
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(document))
    return ClientConfig(kubeconfig=str(folder / "kubeconfig"))


class Clock:
    """The wall clock, which a test may move on."""

    def __init__(self):
        self.moved = 0.0

    def now(self):
        return time.time() + self.moved


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(kube_credentials, "_now", clock.now)
    return clock


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_plugins_token_is_replaced_before_it_ends(api, tmp_path, clock):
    plugin = Plugin(tmp_path, life=900)
    api.takes = {"t1", "t2"}
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client:
        await client.get("/version")
        clock.moved = 570  # It goes on by itself: on a busy machine by more than a second until the next line.
        await client.get("/version")
        assert plugin.calls == 1
        clock.moved = 601
        await client.get("/version")
        await until(lambda: client._credentials._renewal is None)
        await client.get("/version")
        assert (plugin.calls, api.got) == (2, ["t1", "t1", "t1", "t2"])


async def test_nobody_sends_a_token_that_has_ended(api, tmp_path, clock):
    """Of many requests at once the plugin is asked once."""
    plugin = Plugin(tmp_path, life=900)
    api.takes = {"t2"}
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client:
        clock.moved = 1000
        await asyncio.gather(*(client.get("/version") for _ in range(10)))
        assert (plugin.calls, api.got) == (2, ["t2"] * 10)


async def test_a_token_that_the_api_takes_no_longer_is_replaced_once_and_the_request_is_sent_again(api, tmp_path, clock):
    """The plugin did not say when it ends, or somebody has revoked it."""
    plugin = Plugin(tmp_path)
    api.takes = {"t1"}
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client:
        await client.get("/version")
        api.takes = {"t2"}
        clock.moved = 20
        await asyncio.gather(*(client.create("/api/v1/nodes", {}) for _ in range(5)))
        assert plugin.calls == 2
        assert api.got.count("t1") == 6
        assert api.got.count("t2") == 5


async def test_who_is_not_let_in_with_any_token_does_not_ask_the_plugin_all_the_time(api, tmp_path, clock):
    plugin = Plugin(tmp_path)
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client:
        for _ in range(3):
            clock.moved += 20
            for _ in range(5):
                with pytest.raises(ApiStatus) as refused:
                    await client.get("/version")
                assert refused.value.code == 401
        assert plugin.calls == 4


async def test_a_plugin_that_fails_costs_nothing_while_its_token_holds_and_is_said_when_it_has_ended(api, tmp_path, clock):
    plugin = Plugin(tmp_path, life=900)
    api.takes = {"t1"}
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client:
        plugin.does("broken")
        for moved in (650, 700, 800):
            clock.moved = moved
            await client.get("/version")
            await until(lambda: client._credentials._renewal is None)
        assert plugin.calls == 4
        clock.moved = 950
        with pytest.raises(ApiStatus) as none:
            await client.get("/version")
        assert (none.value.code, none.value.reason, none.value.transient) == (0, "Credentials", True)
        assert "cannot reach sts" in none.value.message
        os.remove(tmp_path / "broken")
        api.takes, clock.moved = {"t6"}, 970
        await client.get("/version")


async def test_a_plugin_that_hangs_is_given_up(api, tmp_path, clock, monkeypatch):
    plugin = Plugin(tmp_path, life=900)
    async with await connect(kubeconfig(tmp_path, api.url, plugin.user())) as client, plugin.hangs():
        client._credentials._deadline = 0.2
        clock.moved = 1000
        with pytest.raises(ApiStatus, match=r"Credentials: no token within 0\.2 s"):
            await client.get("/version")
        monkeypatch.setattr(kube_client, "DEADLINE", 0.2)
        with pytest.raises(ClientConfigError, match=r"no answer within 0\.2 s"):
            await connect(kubeconfig(tmp_path, api.url, plugin.user()))


async def test_a_token_file_is_read_again(api, tmp_path, clock):
    (tmp_path / "token").write_text("a")
    api.takes = {"a", "b"}
    async with await connect(kubeconfig(tmp_path, api.url, {"tokenFile": str(tmp_path / "token")})) as client:
        await client.get("/version")
        (tmp_path / "token").write_text("b")
        clock.moved = 61
        await client.get("/version")
        await until(lambda: client._credentials._renewal is None)
        await client.get("/version")
        (tmp_path / "token").write_text("c")
        api.takes, clock.moved = {"c"}, 80
        await client.get("/version")
        assert api.got == ["a", "a", "b", "b", "c"]
        (tmp_path / "token").unlink()
        api.takes, clock.moved = {"d"}, 100
        with pytest.raises(ApiStatus) as none:
            await client.get("/version")
        assert (none.value.code, none.value.reason) == (0, "Credentials")


def jwt(expires):
    import base64

    part = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"h.{part}.s"


async def test_an_identity_providers_token_is_refreshed(api, tmp_path, clock, monkeypatch):
    from kubernetes_asyncio.config import kube_config

    class Provider:
        def __init__(self, *_):
            pass

        async def refresh_token(self, refresh):
            return {"id_token": jwt(time.time() + 9_999), "refresh_token": refresh + "+"}

    monkeypatch.setattr(kube_config, "OpenIDRequestor", Provider)
    now = int(time.time())
    config = {"id-token": jwt(now + 400), "refresh-token": "r", "client-id": "i", "client-secret": "s", "idp-issuer-url": "https://idp"}
    user = {"auth-provider": {"name": "oidc", "config": config}}
    async with await connect(kubeconfig(tmp_path, api.url, user)) as client:
        first = client._credentials._token()
        clock.moved = 61
        monkeypatch.setattr(kube_config, "_is_expired", lambda _: True)
        api.takes = {first.removeprefix("Bearer ").lower()}
        await client.get("/version")
        await until(lambda: client._credentials._renewal is None)
        assert client._credentials._token() != first


async def test_inside_a_cluster_a_token_file_that_cannot_be_read_is_no_answer(tmp_path, monkeypatch):
    import datetime
    import ssl

    from kubernetes_asyncio.config import incluster_config

    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_text(ssl.DER_cert_to_PEM_cert(b"x"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", datetime.timedelta(0))
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    async with await connect(ClientConfig(in_cluster=True)) as client:
        (tmp_path / "token").unlink()
        with pytest.raises(ApiStatus) as none:
            await client.get("/version")
        assert (none.value.code, none.value.reason) == (0, "Credentials")
