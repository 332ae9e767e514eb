"""Pods in `restow-holds` that have a PriorityClass of ours (`placeholder.hold_class`). It is made with the first pod of its priority."""

from typing import Any

from restow.kube import decode as d
from restow.kube.client import ApiStatus, Client, path_of
from restow.kube.placeholder import class_name, hold_class


async def create(client: Client, namespace: str, pod: Any, priority: int, log: str) -> bytes:
    """The pod as the API answers. Raises ApiStatus: where the class was not there it is made, and another attempt may succeed."""
    try:
        return await client.create(path_of(d.PODS, namespace), pod)
    except ApiStatus as status:
        if status.code != 403 or f"PriorityClass with name {class_name(priority)}" not in status.message:
            raise
        await _make(client, priority, log)
        # Admission hears of the class a moment later.
        raise ApiStatus(0, "ClassIsNew", status.message) from status


async def _make(client: Client, priority: int, log: str) -> None:
    try:
        await client.create(d.PRIORITY_CLASSES.path, hold_class(priority, log))
    except ApiStatus as status:
        if status.code != 409:
            raise
