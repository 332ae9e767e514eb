"""What a node says of us: `restow.domain.autoscalers`. One patch, on the version that was read, so that what others set meanwhile is seen.

Whose a cordon (or a value for an autoscaler) is, the API server knows: managedFields name who has written it last. One that our mark's own writer has not
written is somebody else's, who has set it again since, and stays when the mark goes. Where there are no managedFields, the mark alone counts.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from restow.contracts.ids import Millis
from restow.contracts.times import seconds
from restow.domain.autoscalers import CORDONED, DAY, ENDS, PROTECTED, PROTECTS, due
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.client import ApiStatus, Client
from restow.kube.effects import Done, Gone, PatchOutcome, Refused, bounded, read
from restow.kube.retry import Backoff, Sleep

Change = dict[str, Any]
"""A merge patch; empty where nothing is to be changed."""


class Entry(wire.Wire):
    """Of managedFields: which fields somebody has written, as a tree of `f:<name>`."""

    fields: dict[str, Any] | None = msgspec.field(name="fieldsV1", default=None)


class Meta(wire.Meta):
    managed_fields: list[Entry] | None = None


class Node(wire.Wire):
    metadata: Meta
    spec: wire.NodeSpec | None = None


_NODE = d.Collection("nodes", "Node", d.NODES.path, Node)


class NodeMarks:
    """Through one client."""

    def __init__(self, client: Client, backoff: Backoff = Backoff(), sleep: Sleep = asyncio.sleep) -> None:
        self._client, self._backoff, self._sleep = client, backoff, sleep

    async def mark(self, name: str, uid: str, log: str, *, protect: bool, plan: str, until: Millis) -> PatchOutcome:
        """Sets what is wanted and nobody has set, and takes away what this log has set and is not wanted. `Gone`: the node is, or another has its name."""
        return await self._patch(name, uid, lambda there: change(there, log, protect=protect, plan=plan, until=until))

    async def renew(self, name: str, uid: str, log: str, marks: Collection[str], until: Millis) -> PatchOutcome:
        """Puts off the end of these marks, where they are this log's."""
        return await self._patch(name, uid, lambda there: renewed(there, log, marks, until))

    async def collect(self, name: str, uid: str, now: Millis) -> PatchOutcome | tuple[str, ...]:
        """Takes away marks of whatever log that have ended, which are named, and has those end that say no end."""
        gone: list[str] = []

        def patch(there: Node) -> Change:
            gone[:], found = collected(there, now)
            return found

        outcome = await self._patch(name, uid, patch)
        return tuple(gone) if isinstance(outcome, Done) else outcome

    async def _patch(self, name: str, uid: str, change: Callable[[Node], Change]) -> PatchOutcome:
        path = f"{d.NODES.path}/{name}"

        async def attempt() -> PatchOutcome:
            there = await read(self._client, _NODE, path)
            if there is None or there.metadata.uid != uid:
                return Gone()
            patch = change(there)
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


def change(node: Node, log: str, *, protect: bool, plan: str, until: Millis) -> Change:
    """What brings the marks of this log to what is wanted. Another log's are left alone."""
    said: dict[str, str | None] = {}
    spec: Change = {}
    for found in (_protection(node, log, protect, until), _cordon(node, log, plan, until)):
        said |= found.get("metadata", {}).get("annotations", {})
        spec |= found.get("spec", {})
    return _merged(said, spec)


def renewed(node: Node, log: str, marks: Collection[str], until: Millis) -> Change:
    return _merged({ENDS[mark]: seconds(until) for mark in marks if _owner(node, mark) == log}, {})


def collected(node: Node, now: Millis) -> tuple[list[str], Change]:
    """The marks that have ended, and what takes them away and has the others end some time."""
    gone: list[str] = []
    said: dict[str, str | None] = {}
    spec: Change = {}
    notes = node.metadata.annotations or {}
    for mark, end in ENDS.items():
        if not (owner := _owner(node, mark)):
            continue
        match due(notes.get(end, ""), now):
            case "ended":
                found = _protection(node, owner, False, now) if mark == PROTECTED else _cordon(node, owner, "", now)
                gone.append(f"{mark}: {notes[mark]}")
                said |= found["metadata"]["annotations"]
                spec |= found.get("spec", {})
            case "endless":
                said[end] = seconds(now + DAY)
    return gone, _merged(said, spec)


def _cordon(node: Node, log: str, plan: str, until: Millis) -> Change:
    """A cordon that was there before ours is as good, and stays somebody else's."""
    cordoned = bool(node.spec and node.spec.unschedulable)
    owner, of = _owner(node, CORDONED), (node.metadata.annotations or {}).get(CORDONED, "").partition(" ")[2]
    if plan and not owner and not cordoned:
        return _merged({CORDONED: f"{log} {plan}", ENDS[CORDONED]: seconds(until)}, {"unschedulable": True})
    if plan and owner == log and of != plan:
        return _merged({CORDONED: f"{log} {plan}", ENDS[CORDONED]: seconds(until)}, {})
    if not plan and owner == log:
        ours = cordoned and _is_ours(node, CORDONED, "f:spec", "f:unschedulable")
        return _merged(_ended(node, CORDONED), {"unschedulable": None} if ours else {})
    return {}


def _protection(node: Node, log: str, protect: bool, until: Millis) -> Change:
    """What somebody else has set is as good, and stays."""
    notes, owner = node.metadata.annotations or {}, _owner(node, PROTECTED)
    if protect and not owner:
        new = [key for key in PROTECTS if key not in notes]
        return _merged({**dict.fromkeys(new, "true"), PROTECTED: " ".join((log, *new)), ENDS[PROTECTED]: seconds(until)}, {})
    if protect or owner != log:
        return {}
    ours = [key for key in notes[PROTECTED].split()[1:] if key in PROTECTS and notes.get(key) == "true" and _is_ours(node, PROTECTED, *_note(key))]
    return _merged(dict.fromkeys(ours) | _ended(node, PROTECTED), {})


def _owner(node: Node, mark: str) -> str:
    """The log whose mark it is; empty where there is none, or none that one of ours has written."""
    return (node.metadata.annotations or {}).get(mark, "").partition(" ")[0]


def _ended(node: Node, mark: str) -> dict[str, str | None]:
    """The mark goes, with what it says of its end."""
    notes = node.metadata.annotations or {}
    return {key: None for key in (mark, ENDS[mark]) if key in notes}


def _is_ours(node: Node, mark: str, *field: str) -> bool:
    """Whether nobody but the writer of this mark has written the field last."""
    entries = node.metadata.managed_fields or ()
    return not any(_has(entry, *field) and not _has(entry, *_note(mark)) for entry in entries)


def _note(key: str) -> tuple[str, str, str]:
    return "f:metadata", "f:annotations", f"f:{key}"


def _has(entry: Entry, *path: str) -> bool:
    tree: Any = entry.fields
    for name in path:
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def _merged(said: dict[str, str | None], spec: Change) -> Change:
    return ({"metadata": {"annotations": said}} if said else {}) | ({"spec": spec} if spec else {})
