"""Lists what moves beside another scheduler have made, by the label of their log, and removes it (`restow.domain.leftovers`)."""

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import msgspec

from restow.contracts.ids import Millis
from restow.contracts.times import millis
from restow.domain.beside import GUARD, HOLD_CLASS, NAMESPACES, SLOT
from restow.domain.leftovers import Leftover, Remove
from restow.domain.other_schedulers import LOG
from restow.kube import decode as d
from restow.kube.annotations import MIGRATION
from restow.kube.canary import CANARY
from restow.kube.client import ApiStatus, Client, answered, path_of
from restow.kube.gates import LANDINGS

_any = msgspec.json.Decoder(dict[str, Any])
_ABSENT = (403, 404)
"""deploy/beside is not applied, or not wholly."""


async def listed(
    client: Client, namespaces: Container[str] = NAMESPACES, forbidden: Callable[[ApiStatus], None] = lambda status: None, claims: Iterable[str] = ()
) -> list[Leftover]:
    """`namespaces`: those that there are; `claims`: where placeholders are besides; `forbidden` is told what may not be listed. Raises ApiStatus."""
    paths = [*(path_of(d.PODS, namespace) for namespace in (*NAMESPACES, *claims) if namespace in namespaces), d.PRIORITY_CLASSES.path, LANDINGS]
    peoples = {path_of(d.PODS, namespace) for namespace in claims}
    found: list[Leftover] = []
    for path in paths:
        try:
            answer = answered(_any, await client.get(path, (("labelSelector", LOG),)))
        except ApiStatus as status:
            if status.code not in _ABSENT or status.transient:
                raise
            if status.code == 403:
                forbidden(status)
            continue
        if path in peoples:
            # Nobody else's pods may have such a class there, whatever labels they have.
            answer["items"] = [item for item in answer.get("items") or () if ((item.get("spec") or {}).get("priorityClassName") or "").startswith(HOLD_CLASS)]
        kind = {d.PRIORITY_CLASSES.path: "PriorityClass", LANDINGS: "Landing"}.get(path, "Pod")
        found += _read(kind, answer.get("items") or ())
    return found


def _read(kind: Any, items: Any) -> Iterator[Leftover]:
    for item in items:
        meta, spec = item["metadata"], item.get("spec") or {}
        labels = meta.get("labels") or {}
        created = _time(meta.get("creationTimestamp"))
        reservation, slash, _ = str((meta.get("annotations") or {}).get(SLOT, "")).partition("/")
        lifetime = spec.get("activeDeadlineSeconds") or 0
        yield Leftover(
            kind=kind, name=meta["name"], uid=meta["uid"], log=labels.get(LOG, ""), created=created, namespace=meta.get("namespace") or "",
            until=Millis(created + 1000 * lifetime) if lifetime else Millis(0), canary=CANARY in labels,
            class_name=spec.get("priorityClassName") or "", reservation=reservation if slash and reservation != GUARD and MIGRATION not in labels else "", version=meta.get("resourceVersion") or "",
            entries={uid: _time(until) for uid, until in (spec.get("open") or {}).items()},
            owners={uid: _time(entry.get("until")) for uid, entry in (spec.get("owners") or {}).items()},
        )  # fmt: skip


def _time(text: Any) -> Millis:
    """0 for what is no time: it is over."""
    try:
        return millis(text)
    except (TypeError, ValueError, AttributeError):
        return Millis(0)


async def remove(client: Client, one: Remove) -> None:
    """As it was when it was listed: uid, and of entries the version, are preconditions. Raises ApiStatus."""
    what = one.what
    try:
        if one.entries or one.owners:
            gone = {"open": dict.fromkeys(one.entries), "owners": dict.fromkeys(one.owners)}
            patch = {"metadata": {"resourceVersion": what.version}, "spec": gone}
            await client.patch(f"{LANDINGS}/{what.name}", patch)
            return
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": what.uid}}
        if what.kind == "Pod":
            options["gracePeriodSeconds"] = 0
        await client.delete(_path(what), options)
    except ApiStatus as status:
        if status.code not in (404, 409):
            raise


def _path(what: Leftover) -> str:
    if what.kind == "Pod":
        return path_of(d.PODS, what.namespace, what.name)
    return f"{d.PRIORITY_CLASSES.path if what.kind == 'PriorityClass' else LANDINGS}/{what.name}"
