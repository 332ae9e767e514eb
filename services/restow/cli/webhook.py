"""`restow webhook`: the gate of moves beside another scheduler, for API servers that have no MutatingAdmissionPolicy.

It fails open, as its configuration says: whoever cannot ask it makes pods as usual.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from pathlib import Path
from typing import NamedTuple

import click

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure

PATH, CERTIFICATE = "/gate", "/certificate"
PORT = 8443
LARGEST = 4 << 20
"""Bytes of a review: an object of 1.5 MB, twice where it is replaced, with what is around it."""
SMALL, LARGE_AT_ONCE, READ_IN = 256 << 10, 2, 2.0
"""Bytes of what is read at once from however many; how many larger ones are read at a time, and in how many seconds. Anybody in the cluster can reach it,
and a hundred halves of large ones would be more memory than it may have."""
CONNECTIONS = 200
"""Open at a time; each takes 280 KB for TLS. An API server keeps a few; beyond it the longest idle one is ended (`bounded_socket`)."""
LINGER = 5.0
"""Seconds for which it still answers after SIGTERM: the API server hears of its end later."""
RELOAD = 30.0
"""Seconds between two looks at the certificate's file."""


@click.command()
@click.option("--port", default=PORT, show_default=True, help="Port to listen on; 0 for any.")
@click.option("--tls", "folder", type=click.Path(path_type=Path), default=Path("/etc/restow-webhook"), show_default=True, help="Folder with tls.crt and tls.key, read again when they change.")
@click.option("--kubeconfig", metavar="FILE", default="", help="The API outside a cluster; by default the pod's own account.")
def webhook(port: int, folder: Path, kubeconfig: str) -> None:
    """Gate the successors of moved pods, for API servers without MutatingAdmissionPolicy (before Kubernetes 1.36).

    The chart runs it (beside.gate: webhook). It reads Landing objects and nothing else, and changes nothing.
    """
    try:
        asyncio.run(_serve(port, folder, kubeconfig))
    except (OSError, ssl.SSLError) as error:
        raise Failure(f"{folder}: {error}; allowed: a folder with tls.crt and tls.key, and a free port", UNUSABLE) from error


async def _serve(port: int, folder: Path, kubeconfig: str) -> None:
    from aiohttp import web

    from restow.cli.bounded_socket import BoundedSocket
    from restow.kube.client import ClientConfig, ClientConfigError, connect
    from restow.kube.in_cluster import in_cluster
    from restow.kube.landing_webhook import LANDINGS, Lists, answer
    from restow.kube.reflector import Config, Reflector, Restart
    from restow.kube.watch import half_jitter, watch

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate = _load(context, folder)
    try:
        config = ClientConfig(kubeconfig=kubeconfig, user_agent="restow-webhook")
        client = await connect(config) if kubeconfig else in_cluster(config)
    except ClientConfigError as error:
        raise Failure(str(error), UNREACHABLE) from error
    lists, reflector = Lists(), Reflector(LANDINGS, "", Config(max_backoff=3_000), half_jitter)
    ending, large = asyncio.Event(), asyncio.Semaphore(LARGE_AT_ONCE)

    async def review(request: web.Request) -> web.Response:
        number = request.transport.get_extra_info("socket").fileno() if request.transport is not None else -1
        listening.busy.add(number)
        try:
            return await reviewed(request)
        finally:
            listening.busy.discard(number)

    async def reviewed(request: web.Request) -> web.Response:
        length = request.content_length
        try:
            if length is not None and length <= SMALL:
                return web.json_response(answer(await request.read(), lists))
            async with large, asyncio.timeout(READ_IN):
                return web.json_response(answer(await request.read(), lists))
        except TimeoutError:
            return web.json_response({"message": f"no whole body within {READ_IN:g} s"}, status=408)
        except ValueError as error:
            return web.json_response({"message": str(error)}, status=400)

    async def ready(_: web.Request) -> web.Response:
        """Not before it knows the lists: whoever is asked earlier would let all pods through."""
        return web.Response(text="ok") if reflector.synced else web.Response(text="Landings are not listed yet", status=503)

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def shown(_: web.Request) -> web.Response:
        """What everybody sees who connects; `restow doctor` does so through the API server's proxy, which does not tell."""
        return web.Response(text=certificate.pem)

    async def follow() -> None:
        async for changes in watch(client, reflector):
            lists.take(changes)
            for change in changes:
                if isinstance(change, Restart) and change.reason not in ("Expired", "Status404"):
                    print(f"watch starts again: {change.reason} {change.message}", file=sys.stderr, flush=True)

    async def renew() -> None:
        nonlocal certificate
        while True:
            await asyncio.sleep(RELOAD)
            try:
                if _stamp(folder) != certificate.stamp:
                    certificate = _load(context, folder)
            except (OSError, ssl.SSLError) as error:
                print(f"the certificate stays as it was: {error}", file=sys.stderr, flush=True)

    app = web.Application(client_max_size=LARGEST)
    app.add_routes([web.post(PATH, review), web.get("/readyz", ready), web.get("/livez", alive), web.get(CERTIFICATE, shown)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    listening = BoundedSocket(CONNECTIONS)
    listening.bind(("0.0.0.0", port))
    site = web.SockSite(runner, listening, ssl_context=context)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with client:
        tasks = [asyncio.create_task(follow()), asyncio.create_task(renew()), asyncio.create_task(ending.wait())]
        try:
            await site.start()
            print(f"listening on {runner.addresses[0][1]}", flush=True)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await asyncio.sleep(LINGER)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()


class _Loaded(NamedTuple):
    stamp: tuple[float, ...]
    pem: str


def _load(context: ssl.SSLContext, folder: Path) -> _Loaded:
    """Connections that come from now on get this certificate. One that cannot be used is tried elsewhere first: where certificate and key do not
    belong together, OpenSSL forgets the pair that it had."""
    stamp, pem = _stamp(folder), (folder / "tls.crt").read_text()
    for tried in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        tried.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return _Loaded(stamp, pem)


def _stamp(folder: Path) -> tuple[float, ...]:
    return tuple((folder / name).stat().st_mtime for name in ("tls.crt", "tls.key"))
