"""`restow webhook` as a process: it answers over TLS once it knows the lists, follows them, and ends in an orderly way."""

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import yaml

from restow.cli import webhook
from restow.cli.bounded_socket import BoundedSocket
from restow.kubesim.testing import kubesim

ROOT = Path(__file__).parents[2]
RESTOW = str(Path(sys.executable).with_name("restow"))
LANDINGS = "/apis/restow.dev/v1/landings"
POD = {
    "metadata": {"ownerReferences": [{"uid": "u", "controller": True}], "managedFields": [{"time": "2026-03-01T08:00:00Z"}]},
    "spec": {},
}
REVIEW = {"request": {"uid": "r", "object": POD}}


def certify(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=w", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")], check=True, capture_output=True,
    )  # fmt: skip


@asynccontextmanager
async def running(kube, folder: Path):
    config = {"clusters": [{"name": "k", "cluster": {"server": kube.url}}], "users": [{"name": "u", "user": {}}],
              "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}], "current-context": "c"}  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    process = await asyncio.create_subprocess_exec(RESTOW, "webhook", "--port", "0", "--tls", str(folder), "--kubeconfig", str(folder / "kubeconfig"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int((await process.stdout.readline()).split()[-1])
    trusted = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=aiohttp.TCPConnector(ssl=trusted)) as session:
        try:
            yield process, session
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def status(session, path: str) -> int:
    async with session.get(path) as response:
        return response.status


async def until(session, expected: int) -> None:
    async with asyncio.timeout(20):
        while await status(session, "/readyz") != expected:
            await asyncio.sleep(0.05)


async def gated(session) -> bool:
    async with session.post("/gate", json=REVIEW) as response:
        return "patch" in (await response.json())["response"]


async def put(kube, path: str, body) -> None:
    async with aiohttp.ClientSession() as session, session.post(kube.url + path, json=body) as response:
        assert response.status < 300, await response.text()


async def test_it_answers_once_it_knows_the_lists_and_follows_them(tmp_path):
    certify(tmp_path)
    definition = yaml.safe_load((ROOT / "deploy" / "beside" / "crd.yaml").read_text())
    async with kubesim() as kube, running(kube, tmp_path) as (process, session):
        assert await status(session, "/livez") == 200
        assert await status(session, "/readyz") == 503
        async with session.get("/certificate") as response:
            assert await response.text() == (tmp_path / "tls.crt").read_text(), "for restow doctor"
        assert not await gated(session)
        await put(kube, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await until(session, 200)
        body = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": {"name": "log"}, "spec": {"open": {"u": "2026-03-01T08:01:00Z"}}}
        await put(kube, LANDINGS, body)
        async with asyncio.timeout(10):
            while not await gated(session):
                await asyncio.sleep(0.02)
        async with session.post("/gate", data=b"{") as response:
            assert (response.status, "AdmissionReview" in json.loads(await response.read())["message"]) == (400, True)
        process.send_signal(signal.SIGTERM)
        assert await gated(session), "the API server hears of its end later"
        async with asyncio.timeout(webhook.LINGER + 10):
            assert await process.wait() == 0


async def test_connections_that_say_nothing_keep_nobody_away(tmp_path):
    """More than it keeps: half of them do not even begin the handshake."""
    certify(tmp_path)
    async with kubesim() as kube, running(kube, tmp_path) as (process, session), AsyncExitStack() as stack:
        assert await status(session, "/livez") == 200
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        for i in range(webhook.CONNECTIONS + 100):
            _, writer = await asyncio.open_connection("127.0.0.1", session._base_url.port, ssl=trusted if i % 2 else None)
            stack.callback(writer.close)
        assert not await gated(session), "answered, on a connection that is new or the one that it had"
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) <= webhook.CONNECTIONS + 40


def test_a_connection_on_which_something_is_answered_is_not_the_one_that_ends():
    """What has no room then is told so at once."""
    listening = BoundedSocket(2)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    with listening, closing_all() as calls:
        calls.to(listening)
        first, _ = listening.accept()
        listening.busy.add(first.fileno())
        calls.to(listening)
        second, _ = listening.accept()
        calls.to(listening)
        third, _ = listening.accept()
        assert [calls.ended(i) for i in range(3)] == [False, True, False]
        listening.busy.add(third.fileno())
        calls.to(listening)
        with pytest.raises(ConnectionAbortedError):
            listening.accept()
        assert [calls.ended(i) for i in range(4)] == [False, True, False, True]
        for one in (first, second, third):
            one.close()


class Calls:
    def __init__(self):
        self.made = []

    def to(self, listening):
        self.made.append(socket.create_connection(listening.getsockname()))
        self.made[-1].setblocking(False)

    def ended(self, i):
        try:
            return self.made[i].recv(1) == b""
        except BlockingIOError:
            return False


@contextmanager
def closing_all():
    calls = Calls()
    try:
        yield calls
    finally:
        for one in calls.made:
            one.close()


def test_without_a_certificate_it_says_what_it_needs(tmp_path):
    done = subprocess.run([RESTOW, "webhook", "--tls", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "allowed: a folder with tls.crt and tls.key" in " ".join(done.stderr.split())


def test_outside_a_cluster_it_asks_for_a_kubeconfig(tmp_path):
    certify(tmp_path)
    done = subprocess.run([RESTOW, "webhook", "--port", "0", "--tls", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "in-cluster configuration" in " ".join(done.stderr.split())


def test_a_certificate_that_was_replaced_is_served_to_whoever_connects_next(tmp_path):
    certify(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    first = webhook._load(context, tmp_path)
    assert webhook._stamp(tmp_path) == first.stamp
    certify(tmp_path)
    assert webhook._stamp(tmp_path) != first.stamp
    with pytest.raises(OSError, match="No such file"):
        webhook._load(context, tmp_path / "away")


def handshake(context: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """Without a network. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = context.wrap_bio(to_server, to_client, server_side=True), trusted.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for end in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.getpeercert()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
def test_a_certificate_that_cannot_be_used_leaves_the_one_before_it_served(tmp_path, name):
    """Half a rotation, or a Secret that somebody has filled by hand."""
    certify(tmp_path)
    context, trusted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    webhook._load(context, tmp_path)
    handshake(context, trusted)
    (tmp_path / "other").mkdir()
    certify(tmp_path / "other")
    for said in ((tmp_path / "other" / name).read_text(), "garbage"):
        (tmp_path / name).write_text(said)
        with pytest.raises(ssl.SSLError):
            webhook._load(context, tmp_path)
        handshake(context, trusted)


def most_memory(pid: int) -> int:
    """MiB that it has had at most."""
    return int(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


async def test_strangers_who_send_halves_of_large_bodies_take_neither_its_memory_nor_its_answers(tmp_path):
    """Its container may have 256 MiB. What a connection buffers by itself, TLS in the main, is about one MiB; a body held whole would be four more."""
    certify(tmp_path)
    async with kubesim() as kube, running(kube, tmp_path) as (process, session):
        session.connector._limit = 100
        before = most_memory(process.pid)

        async def half():
            async def data():
                yield b" " * 3_900_000
                await asyncio.sleep(60)

            with suppress(aiohttp.ClientError):
                async with session.post("/gate", data=data()):
                    pass

        strangers = [asyncio.create_task(half()) for _ in range(24)]
        for _ in range(3):
            await asyncio.sleep(1)
            async with asyncio.timeout(60), session.post("/gate", json=REVIEW) as response:
                assert response.status == 200
        assert most_memory(process.pid) - before < 75
        for stranger in strangers:
            stranger.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)


async def test_a_large_pod_is_answered_too(tmp_path):
    certify(tmp_path)
    large = {"request": {"uid": "r", "object": POD | {"metadata": POD["metadata"] | {"annotations": {"a": "x" * 1_000_000}}}}}
    async with kubesim() as kube, running(kube, tmp_path) as (_, session), session.post("/gate", json=large) as response:
        assert (await response.json())["response"] == {"uid": "r", "allowed": True}
