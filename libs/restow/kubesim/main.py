"""`restow-kubesim`: an in-memory Kubernetes API for kubectl and clients."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from restow.kubesim.errors import ApiError
from restow.kubesim.negotiate import BAD_YAML
from restow.kubesim.objects import Obj
from restow.kubesim.resources import NODES
from restow.kubesim.server import Server

GC_THRESHOLD = (50_000, 20, 100)
"""Objects of the API are many, live long and hold no cycles: Python's collector would stop every request for 100 ms."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="restow-kubesim", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    parser.add_argument(
        "--port-file", type=Path, help="write the port into this file once the server answers"
    )
    parser.add_argument("--nodes-from", type=Path, action="append", default=[], metavar="FILE", help="YAML or JSON with Node objects to create")  # fmt: skip
    parser.add_argument("--apply", type=Path, action="append", default=[], metavar="FILE", help="YAML or JSON with objects to create, in order")  # fmt: skip
    parser.add_argument("--controllers", action=argparse.BooleanOptionalAction, default=True, help="run the workload controllers and kubelets")  # fmt: skip
    parser.add_argument("--metrics-server", action="store_true", help="serve metrics.k8s.io (kubectl top)")
    parser.add_argument("--kubelet-speed", type=float, default=1.0, metavar="X", help="divide the kubelets' start and stop times by X")  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="let uids and generated names follow from N and from what an object is called")
    parser.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    return parser


def documents(path: Path) -> Iterator[Obj]:
    """The objects of a YAML or JSON file; Lists are unfolded. ValueError names the file and what is wrong."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    try:
        loaded = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except BAD_YAML as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    for document in loaded:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ValueError(f"{path}: every document must be an object with a kind")
        if document["kind"].endswith("List") and isinstance(document.get("items"), list):
            yield from document["items"]
        else:
            yield document


def load(server: Server, path: Path, *, nodes: bool = False) -> int:
    """Create the objects of a file; returns how many. ValueError where one is refused."""
    store = server.cluster.store
    count = 0
    for obj in documents(path):
        api_version = str(obj.get("apiVersion") or "v1")
        group, _, version = api_version.rpartition("/")
        resource = (
            NODES if nodes and "kind" not in obj else store.registry.by_kind(group, obj.get("kind", ""))
        )
        if resource is None:
            raise ValueError(f"{path}: no resource for kind {obj.get('kind')} in {api_version}")
        if nodes and resource != NODES:
            raise ValueError(f"{path}: --nodes-from takes Node objects only, found {obj['kind']}")
        try:
            store.create(resource, obj, (obj.get("metadata") or {}).get("namespace", ""))
        except ApiError as error:
            raise ValueError(f"{path}: {error.message}") from None
        count += 1
        del version
    return count


async def serve(args: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT."""
    server = Server(
        host=args.host, port=args.port, controllers=args.controllers, kubelet_speed=args.kubelet_speed,
        metrics_server=args.metrics_server, seed=args.seed,
    )  # fmt: skip
    for path in args.nodes_from:
        load(server, path, nodes=True)
    for path in args.apply:
        load(server, path)
    await server.start()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if args.port_file:
        # Renamed into place, so that a reader never sees half a number.
        part = args.port_file.with_name(f".{args.port_file.name}.{os.getpid()}")
        part.write_text(f"{server.port}\n")
        part.replace(args.port_file)
    print(f"kubesim listens on {server.url}", flush=True)
    try:
        await stop.wait()
    finally:
        await server.stop()


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.kubelet_speed <= 0:
        print("restow-kubesim: --kubelet-speed must be above 0", file=sys.stderr)
        return 2
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    run: Any = serve(args)
    try:
        import uvloop

        uvloop.run(run)
    except ValueError as error:
        print(f"restow-kubesim: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            why = os.strerror(error.errno).lower()
            print(f"restow-kubesim: port {args.port} of {args.host}: {why}; allowed: a free port, or 0 for any", file=sys.stderr)
            return 2
        print(f"restow-kubesim: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
