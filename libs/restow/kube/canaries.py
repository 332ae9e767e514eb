"""The start-up check on a cluster: makes and deletes the two pods of `canary`, and looks at them."""

import asyncio
from typing import Literal

import msgspec

from restow.domain.other_schedulers import LOG
from restow.kube import canary, wire
from restow.kube import decode as d
from restow.kube.annotations import TOUCHED
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.effects import read
from restow.kube.placeholder import IMAGE, NAMESPACE
from restow.kube.retry import Sleep


class _Pods(msgspec.Struct):
    items: list[wire.Pod]


_pods = msgspec.json.Decoder(_Pods)
LOOK = 0.1
"""Seconds between two looks."""


async def honours_nominations(
    client: Client, scheduler: str, node: str, log: str, token: str, patience: float = 10.0, sleep: Sleep = asyncio.sleep, image: str = IMAGE
) -> canary.Verdict:
    """Whether this scheduler does, tried on this node, which should be ready and let pods be scheduled. `token`: as in a name, new for each
    check. Nothing is left behind, unless the API does not let it be deleted: then it is found by its labels. Raises ApiStatus."""
    guest, probe = (make(scheduler, node, log, token, image) for make in (canary.guest, canary.probe))
    asked, elapsed = canary.Asked(), 0.0
    try:
        while True:
            asked, step = canary.step(asked, await _seen(client, guest, probe, elapsed), patience)
            match step:
                case canary.Invite():
                    await client.create(path_of(d.PODS, NAMESPACE), guest)
                    await client.patch(path(guest, "status"), {"status": {"nominatedNodeName": node}}, "strategic")
                case canary.Probe():
                    await client.create(path_of(d.PODS, NAMESPACE), probe)
                case canary.Again():
                    await delete(client, probe)
                    await client.patch(path(guest), {"metadata": {"annotations": {TOUCHED: token}}}, "strategic")
                case canary.Dismiss():
                    await delete(client, guest)
                case canary.Verdict():
                    return step
                case canary.Wait():
                    await sleep(LOOK)
            elapsed = elapsed + LOOK if isinstance(step, canary.Wait) else 0.0
    finally:
        for pod in (guest, probe):
            await delete(client, pod)


async def sweep(client: Client, log: str) -> None:
    """Removes what an earlier check of this log has left behind: its process died. Raises ApiStatus."""
    query = (("labelSelector", f"{canary.CANARY},{LOG}={log}"),)
    for pod in answered(_pods, await client.get(path_of(d.PODS, NAMESPACE), query)).items:
        await _remove(client, path_of(d.PODS, NAMESPACE, pod.metadata.name))


async def _seen(client: Client, guest: canary.Pod, probe: canary.Pod, elapsed: float) -> canary.Seen:
    there, tried = await read(client, d.PODS, path(guest)), await read(client, d.PODS, path(probe))
    return canary.Seen(there is not None, _how(tried), elapsed)


def _how(pod: wire.Pod | None) -> Literal["absent", "new", "refused", "bound"]:
    if pod is None:
        return "absent"
    if pod.spec and pod.spec.node_name:
        return "bound"
    said = (pod.status.conditions if pod.status else None) or ()
    return "refused" if any(c.type == "PodScheduled" and c.status == "False" for c in said) else "new"


async def delete(client: Client, pod: canary.Pod) -> None:
    """At once. One that is gone is done. Raises ApiStatus."""
    await _remove(client, path(pod))


async def _remove(client: Client, where: str) -> None:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    try:
        await client.delete(where, options)
    except ApiStatus as status:
        if status.code != 404:
            raise


def path(pod: canary.Pod, subresource: str = "") -> str:
    return path_of(d.PODS, NAMESPACE, pod.metadata.name, subresource)
