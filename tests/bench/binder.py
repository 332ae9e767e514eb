"""A client that binds each pod as soon as it sees it, to one node after another: it decides nothing, and keeps nothing. What it takes, the API server and the
store behind it take; no scheduler is faster.

A process of its own, as a scheduler is: `python -m tests.bench.binder`, with `RESTOW_BENCH_URL`, `RESTOW_BENCH_AUTHORIZATION` and the number of nodes in
`RESTOW_BENCH_NODES`. It says `ready` once it watches.
"""

import asyncio
import itertools
import os
import ssl
import sys

import aiohttp
import msgspec

from .api import PODS

NAME = "binder"
"""Of the pods that it binds: their `schedulerName`."""


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_decode = msgspec.json.Decoder(_Event).decode


async def bind(url: str, authorization: str, nodes: int) -> None:
    """For ever. Raises where the API says no."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connector, turn = aiohttp.TCPConnector(limit=64, ssl=trusting), itertools.cycle(range(nodes))
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers={"Authorization": authorization}, timeout=timeout) as session, asyncio.TaskGroup() as group:

        async def one(meta: _Meta) -> None:
            target = {"kind": "Node", "name": f"node-{next(turn):05d}"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta.name, "uid": meta.uid}, "target": target}
            async with session.post(f"{url}{PODS}/{meta.name}/binding", json=body) as answer:
                if answer.status != 201:
                    raise RuntimeError(f"the binding of {meta.name}: {answer.status} {await answer.text()}")
                await answer.read()

        async with session.get(url + PODS, params={"watch": "true", "fieldSelector": f"spec.schedulerName={NAME}"}) as watch:
            print("ready", flush=True)
            rest = b""
            async for piece in watch.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for event in map(_decode, lines):
                    if event.type == "ADDED" and not event.object.spec.node_name:
                        group.create_task(one(event.object.metadata))


if __name__ == "__main__":
    import uvloop

    try:
        uvloop.run(bind(os.environ["RESTOW_BENCH_URL"], os.environ["RESTOW_BENCH_AUTHORIZATION"], int(os.environ["RESTOW_BENCH_NODES"])))
    except KeyboardInterrupt:
        sys.exit(0)
