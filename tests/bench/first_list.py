"""The first list of a watcher on a real API server, in pages as the watcher takes it, and as a watch that begins with what there is (`sendInitialEvents`): time, CPU and memory of
both sides.

The cluster is written into etcd (in memory) as copies of one node and one pod that the API server has stored: through the API it would take ten minutes. Each way is taken by a
process of its own, in turns; the API server goes on.
"""

import asyncio
import base64
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import aclosing
from pathlib import Path
from typing import Any

from .table import Row, Size, median, progress

TITLE = "first list of nodes and pods, kube-apiserver"
BASELINE = "the same streamed: a watch with sendInitialEvents"

SIZES = {Size.HUGE: (15_000, 200_000), Size.FULL: (3_000, 40_000), Size.QUICK: (1_000, 10_000), Size.SMOKE: (5, 20)}
"""Nodes, pods. With the largest, kube-apiserver alone has 10 GB and more."""
TURNS = {Size.HUGE: 1, Size.FULL: 2, Size.QUICK: 2, Size.SMOKE: 1}
PUTS = 100
"""Of one transaction."""
GOAL = 20
"""Seconds, of the largest size."""
NODE, POD = "node-00000", "pod-000000"

A_NODE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Node",
    "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "topology.kubernetes.io/zone": "zone-a", "node.kubernetes.io/instance-type": "gpu-8"}},
    "status": {
        "capacity": {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": "8"}, "allocatable": {"cpu": "95", "memory": "760Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "conditions": [{"type": kind, "status": status, "reason": "Kubelet", "message": "kubelet says so"} for kind, status in (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"))],
        "images": [{"names": [f"registry.example/team/image-{number}:v1"], "sizeBytes": 1 << 30} for number in range(20)],
    },
}  # fmt: skip
A_POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
        "name": POD, "namespace": "default", "labels": {"app": "web", "pod-template-hash": "59b8cdfc67"}, "annotations": {"example.com/team": "batch", "example.com/note": "x" * 200},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-59b8cdfc67", "uid": "11111111-0000-4000-8000-000000000000", "controller": True}],
    },
    "spec": {
        "nodeName": NODE,
        "containers": [
            {
                "name": name, "image": f"registry.example/team/{name}:v1", "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
                "env": [{"name": f"VARIABLE_{number}", "value": "some value"} for number in range(10)], "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
            for name in ("main", "side")
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}  # fmt: skip


def _call(url: str, body: Any, headers: dict[str, str], context: Any = None) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return json.loads(answer.read())


def fill(lab: Any, nodes: int, pods: int) -> None:
    """As the API server would have stored them: in its own encoding, each with a name and a uid of its own."""
    nodes_made = _copies(lab, "/api/v1/nodes", f"/registry/minions/{NODE}", A_NODE, nodes, {})
    _copies(lab, "/api/v1/namespaces/default/pods", f"/registry/pods/default/{POD}", A_POD, pods, {NODE: nodes_made})


def _copies(lab: Any, path: str, key: str, one: dict[str, Any], count: int, others: dict[str, list[str]]) -> list[str]:
    """Of one that the API server has taken and stored; texts of the same length are put in place of others, which any encoding takes. `others`: what else is replaced, in turns."""
    made = _call(f"{lab.target.url}{path}", one, dict(lab.target.headers), lab.target.ssl)["metadata"]
    stored = base64.b64decode(_call(f"{lab._etcd}/v3/kv/range", {"key": _b64(key)}, {})["kvs"][0]["value"])
    stem, _, digits = made["name"].rpartition("-")
    names = [f"{stem}-{number:0{len(digits)}d}" for number in range(count)]
    puts: list[Any] = []
    for number, name in enumerate(names[1:], 1):
        value = stored.replace(made["uid"].encode(), f"{len(digits):08d}-0000-4000-8000-{number:012d}".encode()).replace(made["name"].encode(), name.encode())
        for old, new in others.items():
            value = value.replace(old.encode(), new[number % len(new)].encode())
        puts.append({"requestPut": {"key": _b64(key.replace(made["name"], name)), "value": base64.b64encode(value).decode()}})
        if len(puts) == PUTS or number == count - 1:
            _call(f"{lab._etcd}/v3/kv/txn", {"success": puts}, {})
            puts = []
    return names


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


STREAM = (("watch", "true"), ("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"), ("resourceVersion", ""), ("allowWatchBookmarks", "true"))


async def first(kubeconfig: str, streamed: bool) -> dict[str, float]:
    """In a process of its own: the watcher's own client, decoders and reflector."""
    from restow.kube import decode
    from restow.kube.client import ClientConfig, connect
    from restow.kube.reflector import Reflector, Replace, Upsert
    from restow.kube.watch import watch

    began, objects = time.perf_counter(), 0

    async def stream(collection: Any) -> int:
        seen = 0
        async with aclosing(client.watch_lines(collection, STREAM)) as pieces:
            async for lines in pieces:
                for line in lines:
                    said = collection.line(line)
                    if said.type == "BOOKMARK" and b"k8s.io/initial-events-end" in line:
                        return seen
                    seen += said.type == "ADDED"
        raise AssertionError("it ended before all was said")

    async def one(collection: Any) -> int:
        if streamed:
            return await stream(collection)
        reflector, seen = Reflector(collection), 0
        async for changes in watch(client, reflector):
            seen += sum(isinstance(change, Upsert) for change in changes)
            if any(isinstance(change, Replace) for change in changes):
                return seen
        raise AssertionError("a watch has no end")

    async with await connect(ClientConfig(kubeconfig=kubeconfig)) as client:
        objects = sum(await asyncio.gather(one(decode.NODES), one(decode.PODS)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": time.perf_counter() - began, "cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024, "objects": objects}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak(pid: int) -> float:
    """MB, since the last `_mark`."""
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")) / 1024


def _turn(lab: Any, streamed: bool, objects: int) -> dict[str, float]:
    server, etcd = lab.pid("api"), lab.pid("etcd")
    Path(f"/proc/{server}/clear_refs").write_text("5")
    had, of_etcd = _cpu(server), _cpu(etcd)
    argv = [sys.executable, "-m", f"{__package__}.first_list", str(lab.work / "kubeconfig"), "streamed" if streamed else "paged"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2))})
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    assert found["objects"] == objects, found
    return found | {"server": _cpu(server) - had, "server_mb": _peak(server), "etcd": _cpu(etcd) - of_etcd}


async def measure(size: Size) -> list[Row]:
    return _measured(size)


def _measured(size: Size) -> list[Row]:
    from .kubernetes import Lab, assets  # Here: what it needs is no part of the client's memory.

    found, why = assets()
    if found is None:
        raise RuntimeError(why)

    nodes, pods = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="restow-first-list-", dir="/dev/shm", ignore_cleanup_errors=True) as folder:
        lab = Lab(found, Path(folder))
        try:
            lab.start(controllers=False, scheduler=False)
            fill(lab, nodes, pods)
            progress(f"{nodes} nodes and {pods} pods are written")
            _turn(lab, False, nodes + pods)  # The API server's cache has all of them once one has listed.
            turns = [(_turn(lab, False, nodes + pods), _turn(lab, True, nodes + pods)) for _ in range(TURNS[size])]
        finally:
            lab.close()
    told = (
        ("until all is there", "seconds", "s", GOAL if size is Size.HUGE else None), ("CPU of the client", "cpu", "s", None),
        ("memory of the client at most", "mb", "MB", None), ("CPU of kube-apiserver", "server", "s", None),
        ("memory of kube-apiserver at most", "server_mb", "MB", None), ("CPU of etcd", "etcd", "s", None),
    )  # fmt: skip
    return [Row(f"{what}, {nodes:,} + {pods:,}", median([ours[key] for ours, _ in turns]), unit, baseline=median([theirs[key] for _, theirs in turns]), goal=goal) for what, key, unit, goal in told]


if __name__ == "__main__":
    import uvloop  # As the services do.

    print(json.dumps(uvloop.run(first(sys.argv[1], sys.argv[2] == "streamed"))))
