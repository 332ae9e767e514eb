"""What a node says of us: `restow.domain.autoscalers`. One patch, on the version that was read, so that what others set meanwhile is seen."""

import asyncio
from typing import Any

from restow.domain.autoscalers import CORDONED, PROTECTED, PROTECTS
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.client import ApiStatus, Client
from restow.kube.effects import Done, Gone, PatchOutcome, Refused, bounded, read
from restow.kube.retry import Backoff, Sleep


class NodeMarks:
    """Through one client."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep) -> None:
        self._client, self._backoff, self._sleep = client, backoff, sleep

    async def mark(self, name: str, uid: str, log: str, *, protect: bool, plan: str) -> PatchOutcome:
        """Sets what is wanted and nobody has set, and takes away what this log has set and is not wanted. `Gone`: the node is, or another has its name."""
        path = f"{d.NODES.path}/{name}"

        async def attempt() -> PatchOutcome:
            there = await read(self._client, d.NODES, path)
            if there is None or there.metadata.uid != uid:
                return Gone()
            patch = change(there, log, protect=protect, plan=plan)
            if not patch:
                return Done()
            patch.setdefault("metadata", {})["resourceVersion"] = there.metadata.resource_version
            try:
                await self._client.patch(path, patch)
            except ApiStatus as status:
                if status.code == 409:
                    # It has changed since: kubelets write to it all the time.
                    raise ApiStatus(0, "Changed", status.message) from status
                if status.transient:
                    raise
                return Refused(status.code, status.reason, status.message)
            return Done()

        return await bounded(attempt, self._backoff, self._sleep)


def change(node: wire.Node, log: str, *, protect: bool, plan: str) -> dict[str, Any]:
    """A merge patch; empty where nothing is to be changed."""
    notes = node.metadata.annotations or {}
    said: dict[str, str | None] = _protection(notes, log, protect)
    cordoned = bool(node.spec and node.spec.unschedulable)
    owner, _, of = notes.get(CORDONED, "").partition(" ")
    spec: dict[str, Any] = {}
    if plan and not owner and not cordoned:
        said[CORDONED], spec["unschedulable"] = f"{log} {plan}", True
    elif not plan and owner == log:
        said[CORDONED] = None
        if cordoned:
            spec["unschedulable"] = None
    elif plan and owner == log and of != plan:
        said[CORDONED] = f"{log} {plan}"
    return ({"metadata": {"annotations": said}} if said else {}) | ({"spec": spec} if spec else {})


def _protection(notes: dict[str, str], log: str, protect: bool) -> dict[str, str | None]:
    """What somebody else has set is as good, and stays."""
    owner, *ours = notes.get(PROTECTED, "").split() or [""]
    if protect and not owner:
        new = [key for key in PROTECTS if key not in notes]
        return {**dict.fromkeys(new, "true"), PROTECTED: " ".join((log, *new))}
    if not protect and owner == log:
        return dict.fromkeys((*(key for key in ours if key in PROTECTS and notes.get(key) == "true"), PROTECTED))
    return {}
