"""kubesim with a cluster that runs already: nodes, and pods that are bound and ready. Nothing moves by itself there."""

import argparse
import asyncio
import gc
import signal
from pathlib import Path
from typing import Any

from restow.kubesim.main import load
from restow.kubesim.nodes import NodeShape, create_nodes
from restow.kubesim.resources import NAMESPACES, PODS
from restow.kubesim.server import Server

GIB = 1 << 30
SHAPES = 40
PER_JOB = 20


def fill(server: Server, nodes: int, pods: int) -> None:
    store = server.cluster.store
    create_nodes(store, [NodeShape(f"node-{i:05d}", 64_000, 256 * GIB, gpus=8, zone=f"zone-{i % 3}") for i in range(nodes)])
    for i in range(7):
        store.create(NAMESPACES, {"metadata": {"name": f"team-{i}"}}, owned=True)
    for i in range(pods):
        stored = store.create(PODS, _pod(i, f"node-{i % nodes:05d}"), f"team-{i % 7}", owned=True)
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
        stored = store.get(PODS, f"team-{i % 7}", stored["metadata"]["name"])
        running = {**stored, "status": {**stored["status"], "phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}}
        store.update(PODS, running, subresource="status", owned=True)


def _pod(i: int, node: str) -> dict[str, Any]:
    """As a Deployment's ReplicaSet makes them: two containers with environment, probes and volumes that nobody may log."""
    job, shape = i // PER_JOB, i // PER_JOB % SHAPES
    resources = {"requests": {"cpu": f"{100 + 25 * shape}m", "memory": f"{256 + 64 * shape}Mi"}}
    environment = [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(6)]
    main = {"name": "main", "image": f"registry.example/app-{shape}:1.4.2", "resources": resources, "env": environment}
    sidecar = {"name": "proxy", "image": "registry.example/proxy:3.1", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    labels = {"app": f"job-{job}", "pod-template-hash": f"{shape:08x}", "team": f"team-{i % 7}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"job-{job}", "uid": f"00000000-0000-4000-8000-{job:012d}", "controller": True}
    return {
        "metadata": {"name": f"job-{job}-{i:06d}", "labels": labels, "ownerReferences": [owner]},
        "spec": {"schedulerName": "restow", "nodeName": node, "containers": [main, sidecar]},
    }


async def serve(given: argparse.Namespace) -> None:
    server = Server(controllers=False)
    for path in given.apply:
        load(server, path)
    gc.disable()
    fill(server, given.nodes, given.pods)
    gc.freeze()
    gc.enable()
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    part = given.port_file.with_suffix(".part")
    part.write_text(str(server.port))
    part.replace(given.port_file)
    await stop.wait()
    await server.stop()


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--apply", type=Path, action="append", default=[])
    uvloop.run(serve(parser.parse_args()))
