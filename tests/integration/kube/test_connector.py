"""On uvloop no client of a service connects sockets by itself: where a connection is refused, or given up meanwhile, libuv would end the process."""

import asyncio
import socket
from contextlib import closing

import aiohttp
import pytest
import uvloop
from aiohttp.abc import AbstractResolver

from restow.console.orders import Orders
from restow.descheduler.hook_calls import call
from restow.domain.descheduling.sources import Prometheus
from restow.kube.client import ClientConfig, connect
from restow.kube.connector import Connector
from restow.kube.prometheus import asking
from restow.machine.addresses import NEXT

from .test_client import kubeconfig, listening


class Loop(uvloop.Loop):
    async def sock_connect(self, sock, address):
        raise AssertionError("aiohttp connects by itself")


def on_uvloop(work):
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)


def test_uvloop_connects_for_each_client_of_a_service(tmp_path):
    async def ask():
        async with listening() as (url, heads):
            for config in (ClientConfig(url=url), ClientConfig(kubeconfig=kubeconfig(tmp_path / "config", url))):
                async with await connect(config) as client:
                    assert await client.get("/version") == b"{}"
            async with await connect(ClientConfig(url=url)) as client, asking(client, Prometheus(url), own=False) as query:
                await asyncio.gather(query("up"), return_exceptions=True)
            await call(f"{url}/hook", {}, None, 5.0)
            await Orders(lambda: (url, "")).give("/approve", {})
            return [head.split()[1].partition("?")[0] for head in heads]

    assert on_uvloop(ask()) == ["/version", "/version", "/api/v1/query", "/hook", "/approve"]


def test_of_a_name_with_several_addresses_one_that_refuses_or_hangs_is_passed_over():
    class Named(AbstractResolver):
        def __init__(self, *addresses):
            self.addresses = addresses

        async def resolve(self, host, port=0, family=socket.AF_INET):
            families = {one: socket.AF_INET6 if ":" in one else socket.AF_INET for one in self.addresses}
            return [{"hostname": host, "host": one, "port": port, "family": families[one], "proto": 0, "flags": 0} for one in self.addresses]

        async def close(self):
            pass

    async def ask():
        async with listening() as (url, _):
            port, taken = int(url.rpartition(":")[2]), []
            loop = asyncio.get_running_loop()
            with closing(socket.create_server(("127.0.0.2", port), backlog=0)) as full, closing(socket.create_connection(full.getsockname())):
                # A client of a name with both families, and a server that listens on one of them, as behind localhost.
                for names in (("127.0.0.3", "127.0.0.2", "127.0.0.1"), ("::1", "127.0.0.1"), ("127.0.0.3", "::1", "127.0.0.1")):
                    began = loop.time()
                    connector = Connector(resolver=Named(*names))
                    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://api.example:{port}/") as answer:
                        assert await answer.read() == b"{}"
                    taken.append(loop.time() - began)
                connector = Connector(resolver=Named("127.0.0.3", "::1"))
                async with aiohttp.ClientSession(connector=connector) as session:
                    with pytest.raises(aiohttp.ClientConnectorError):
                        await session.get(f"http://api.example:{port}/")
                return taken

    hung, *refused = on_uvloop(ask())
    assert NEXT <= hung < NEXT + 3
    assert max(refused) < 3


def test_a_connection_that_nobody_waits_for_any_more_is_ended_once_it_is_there():
    """Cancelled in the middle of TLS's handshake, uvloop would log what becomes of it."""

    async def ask():
        there, ended = asyncio.Event(), asyncio.Event()

        async def slow(reader, writer):
            try:
                await reader.read()
            except ConnectionError:
                pass
            ended.set()

        async def connecting(*args, **kwargs):
            await there.wait()
            return transport, None

        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.sockets[0].getsockname()[:2])
        connector = Connector()
        connector._wrap_existing_connection = connecting
        asked = asyncio.ensure_future(connector._wrap_create_connection(addr_infos=[(0, 0, 0, "", ("127.0.0.1", 1))], req=None, timeout=aiohttp.ClientTimeout()))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert asked.cancelled()
        there.set()
        await asyncio.wait_for(ended.wait(), 10)
        await connector.close()
        server.close()

    on_uvloop(ask())


@pytest.mark.parametrize("silent", ["connecting", "handshake"])
def test_an_attempt_that_nobody_waits_for_any_more_is_given_up_where_nothing_answers(monkeypatch, silent):
    """It lived for the 60 s of uvloop's TLS handshake, or as long as the kernel tries to connect."""
    monkeypatch.setattr("restow.machine.addresses.UNWANTED", 0.5)
    told = []

    async def ask():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        with closing(socket.create_server(("127.0.0.1", 0), backlog=0 if silent == "connecting" else 9)) as server:
            full = [socket.create_connection(server.getsockname())] if silent == "connecting" else []
            async with aiohttp.ClientSession(connector=Connector()) as session:
                asked = asyncio.ensure_future(session.get(f"https://127.0.0.1:{server.getsockname()[1]}/"))
                await asyncio.sleep(0.2)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert len(left) == 1
                await asyncio.wait_for(asyncio.wait(left), 5)
            if silent == "handshake":
                taken, _ = await loop.run_in_executor(None, server.accept)
                with closing(taken):
                    taken.settimeout(5)
                    while await loop.run_in_executor(None, taken.recv, 4096):
                        pass
            for one in full:
                one.close()

    on_uvloop(ask())
    assert told == []


def test_a_server_that_accepts_and_says_nothing_costs_a_long_request_no_more_than_the_time_of_a_handshake(monkeypatch):
    monkeypatch.setattr("restow.kube.connector.HANDSHAKE", 0.5)

    async def ask():
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            async with aiohttp.ClientSession(connector=Connector(), timeout=aiohttp.ClientTimeout(total=30)) as session:
                with pytest.raises(aiohttp.ClientConnectorError, match=r"no TLS handshake within 0\.5 s"):
                    await session.get(f"https://127.0.0.1:{server.getsockname()[1]}/")

    on_uvloop(ask())
