"""The client reaches a cluster as kubectl would, and every failure is an ApiStatus."""

import asyncio
import json
import ssl
import subprocess
import sys
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from restow.kube import decode as d
from restow.kube.client import ApiStatus, ClientConfig, ClientConfigError, connect, path_of


def kubeconfig(path, url: str):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sim",
        "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "me"}}],
        "clusters": [{"name": "sim", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "abc"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_a_kubeconfig_leads_to_the_cluster(api, tmp_path):
    config = ClientConfig(kubeconfig=kubeconfig(tmp_path / "config", api.server.url))
    async with await connect(config) as client:
        assert json.loads(await client.get("/api/v1/namespaces/default"))["kind"] == "Namespace"


@asynccontextmanager
async def listening():
    """Somebody who answers everything with {}: the URL, and what was asked, in lower case."""
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


async def test_who_only_reads_sends_nothing_else():
    async with listening() as (url, heads), await connect(ClientConfig(url=url, read_only=True)) as client:
        await client.get("/version")
        for write in (client.create("/a", {}), client.replace("/a", {}), client.patch("/a", {}), client.delete("/a")):
            with pytest.raises(ApiStatus, match=r"405 ReadOnly: .* was not sent"):
                await write
    assert [head.split(" ", 1)[0] for head in heads] == ["get"]


async def test_the_users_token_goes_along(tmp_path):
    async with listening() as (url, heads), await connect(ClientConfig(kubeconfig=kubeconfig(tmp_path / "config", url))) as client:
        await client.get("/version")
    assert "authorization: bearer abc" in heads[0]


async def test_a_netrc_that_knows_the_host_stands_in_nobodys_way(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with listening() as (url, heads), await connect(ClientConfig(kubeconfig=kubeconfig(tmp_path / "config", url))) as client:
        await client.get("/version")
    assert "authorization: bearer abc" in heads[0]


@pytest.mark.parametrize("bypassed", [False, True])
async def test_the_environments_proxy_is_gone_through_unless_it_excepts_the_host(tmp_path, monkeypatch, bypassed):
    async with listening() as (proxy, through), listening() as (url, directly):
        monkeypatch.setenv("http_proxy", proxy.replace("http://", "http://me:secret@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1" if bypassed else "example.com")
        async with await connect(ClientConfig(kubeconfig=kubeconfig(tmp_path / "config", url))) as client:
            await client.get("/version")
    assert (len(through), len(directly)) == ((0, 1) if bypassed else (1, 0))
    for head in through:
        assert head.startswith(f"get {url}/version ")
        assert "proxy-authorization: basic bwu6c2vjcmv0" in head


async def test_inside_a_cluster_its_service_account_leads_to_it(tmp_path, monkeypatch):
    from kubernetes_asyncio.config import incluster_config

    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_text(ssl.DER_cert_to_PEM_cert(b"x"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    async with await connect(ClientConfig(in_cluster=True)) as client:
        assert client.url == "https://10.96.0.1:443"


def openssl(folder, *args):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


def certified(folder):
    """A server's certificate from an authority that says nothing of its key's usage, as some clusters' do."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(folder, "req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(folder, "req", *key, "-subj", "/CN=api", "-keyout", "api.key", "-out", "api.csr")
    authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(folder, "x509", "-req", "-in", "api.csr", *authority, "-days", "2", "-extfile", "names", "-out", "api.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.crt", folder / "api.key")
    return context


async def test_an_authority_that_kubectl_trusts_is_trusted(tmp_path, monkeypatch):
    """Python 3.13 made its default strict (`VERIFY_X509_STRICT`); Go is not, and clusters' certificates are made for Go."""
    default = ssl.create_default_context

    def strict(*args, **more):
        context = default(*args, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certified(tmp_path))
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(ssl, "create_default_context", strict)
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", port, ssl=strict(cafile=tmp_path / "ca.crt"))
    path = tmp_path / "config"
    document = yaml.safe_load(Path(kubeconfig(path, f"https://127.0.0.1:{port}")).read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.crt")
    path.write_text(yaml.safe_dump(document))
    async with await connect(ClientConfig(kubeconfig=str(path))) as client:
        assert await client.get("/version") == b"{}"
    server.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ClientConfig(url="127.0.0.1:80"), "url is '127.0.0.1:80'; allowed: http"),
        (ClientConfig(kubeconfig="/nowhere/config"), "kubeconfig '/nowhere/config'"),
        (ClientConfig(in_cluster=True), "in-cluster configuration: .*; allowed: "),
    ],
)
async def test_a_bad_configuration_says_what_is_allowed(config, message):
    with pytest.raises(ClientConfigError, match=message):
        await connect(config)


async def test_an_error_carries_code_reason_message_and_retry_after(api):
    with pytest.raises(ApiStatus) as missing:
        await api.client.get("/api/v1/nodes/nobody")
    assert (missing.value.code, missing.value.reason) == (404, "NotFound")
    api.faults.add("status", verb="get", resource="nodes", code=429, retry_after=3)
    with pytest.raises(ApiStatus) as busy:
        await api.client.get("/api/v1/nodes/nobody")
    assert (busy.value.code, busy.value.retry_after, busy.value.transient) == (429, 3000, True)


async def test_no_answer_is_code_zero(api):
    # All of them: aiohttp repeats a GET once by itself when a kept connection turns out to be closed.
    api.faults.add("cut", verb="get", resource="nodes", count=-1)
    with pytest.raises(ApiStatus) as cut:
        await api.client.get("/api/v1/nodes/nobody")
    assert (cut.value.code, cut.value.transient) == (0, True)


FORBIDDEN = 'pods "web" is forbidden: User "system:serviceaccount:restow-system:restow-descheduler" cannot get resource "pods" in API group ""'
QUOTA = 'pods "hold-1" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=0, limited: pods=0'


@pytest.mark.parametrize(("message", "broken", "passes"), [(FORBIDDEN, True, True), (FORBIDDEN, False, False), (QUOTA, True, False)])
async def test_what_an_authorizer_refuses_just_after_a_connection_broke_may_pass(message, broken, passes):
    """An API server that has just started answers before it knows the roles. Its admission's refusals are of the object, and stay."""
    answer = json.dumps({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message}).encode()
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        if asked > 1 or not broken:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with await connect(ClientConfig(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as client:
        if broken:
            with pytest.raises(ApiStatus, match="Disconnected"):
                await client.create("/api/v1/pods", {})
        with pytest.raises(ApiStatus, match="403 Forbidden") as refused:
            await client.get("/api/v1/pods/web")
    server.close()
    assert (refused.value.code, refused.value.transient) == (403, passes)


async def test_a_slow_answer_is_not_waited_for(api):
    api.faults.add("delay", verb="get", resource="nodes", seconds=5)
    async with await connect(ClientConfig(url=api.server.url, timeout=0.05)) as client:
        with pytest.raises(ApiStatus) as slow:
            await client.get("/api/v1/nodes/nobody")
    assert (slow.value.code, slow.value.reason) == (0, "Timeout")


async def test_a_watch_that_falls_silent_is_given_up(api):
    async with await connect(ClientConfig(url=api.server.url, idle=0.05)) as client:
        lines = client.watch_lines(d.NODES, (("watch", "true"),))
        with pytest.raises(ApiStatus) as silent:
            await anext(lines)
    assert (silent.value.code, silent.value.reason) == (0, "Timeout")


async def test_lines_are_whole_however_the_network_cuts_them():
    """A server of our own that sends three lines in odd pieces, and a fourth that it never finishes."""
    pieces = [b'{"a":', b'1}\n{"b":2}\n{', b'"c":3}', b"\n\n", b'{"never":']

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    got = []
    async with (
        await connect(ClientConfig(url=f"http://127.0.0.1:{port}")) as client,
        aclosing(client.watch_lines(d.NODES, ())) as lines,
    ):
        async for some in lines:
            got += some
    server.close()
    assert got == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


async def test_a_gateways_page_is_an_error_too():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html>bad gateway</html>"
        head = f"HTTP/1.1 502 Bad Gateway\r\nContent-Length: {len(body)}\r\nRetry-After: 2\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with await connect(ClientConfig(url=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(ApiStatus) as bad:
            await client.get("/x")
    server.close()
    assert (bad.value.code, bad.value.retry_after, bad.value.message) == (502, 2000, "<html>bad gateway</html>")


async def refused_with(head: str, pieces: list[bytes]) -> tuple[ApiStatus, int]:
    """What the client makes of such an answer, and how many pieces of it were sent when it had made that."""
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode())
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
                sent += 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with await connect(ClientConfig(url=f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(ApiStatus) as refusal:
            await client.get("/x")
        there = sent
    server.close()
    return refusal.value, there


async def test_an_error_that_comes_in_pieces_is_read_whole():
    body = b'{"kind":"Status","message":"over","reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget"}],"retryAfterSeconds":7}}'
    pieces = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:40], body[40:])]
    status, _ = await refused_with("HTTP/1.1 429 Too Many\r\nTransfer-Encoding: chunked\r\n\r\n", [*pieces, b"0\r\n\r\n"])
    assert (status.code, status.reason, status.causes, status.retry_after) == (429, "TooManyRequests", ("DisruptionBudget",), 7000)


async def test_of_an_error_only_the_beginning_is_read_whatever_length_it_says_it_has():
    pieces = [b"x" * 2**16] * 64
    status, sent = await refused_with(f"HTTP/1.1 500 Oh\r\nContent-Length: {64 * 2**16}\r\n\r\n", pieces)
    assert (status.code, status.message) == (500, "x" * 200)
    assert sent < 32


def test_paths():
    assert path_of(d.PODS, "ns", "p", "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert path_of(d.KOORDINATOR_RESERVATIONS, "", "r", "status").endswith("/reservations/r/status")
    assert path_of(d.VOLCANO_RESERVATIONS, "a/b") == "/apis/batch.volcano.sh/v1alpha1/namespaces/a%2Fb/reservations"


def test_the_models_of_kubernetes_asyncio_are_not_imported_for_a_plain_url():
    code = "import restow.kube.client, restow.kube.watch, restow.kube.effects, sys; print('kubernetes_asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


async def test_after_its_end_a_client_has_no_answer(api):
    """aiohttp's RuntimeError was an error in the log of a session that ended while it removed what it had asked the scheduler by."""
    async with await connect(ClientConfig(url=api.server.url)) as client:
        await client.get("/api/v1/nodes")
    with pytest.raises(ApiStatus, match="was not sent: this process ends") as caught:
        await client.get("/api/v1/nodes")
    assert caught.value.transient
