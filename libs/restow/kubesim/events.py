"""Events have two APIs (core/v1 and events.k8s.io/v1) over one storage; the core form is stored."""

from __future__ import annotations

from restow.kubesim.objects import Obj, dig

# events.k8s.io name -> core name
_RENAMED = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: v1 for v1, core in _RENAMED.items()}


def to_v1(event: Obj) -> Obj:
    """A stored event as events.k8s.io/v1 shows it."""
    renamed = {_BACK.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def from_v1(event: Obj) -> Obj:
    """An events.k8s.io/v1 event in the stored form."""
    renamed = {_RENAMED.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "v1"}


def misplaced(event: Obj, namespace: str, core: bool) -> str | None:
    """The namespace of what an Event in its stored form is about, where the Event itself belongs into another one. Of what has none it belongs into
    `default`; events.k8s.io asks no more."""
    about = dig(event, "involvedObject", "namespace", default="")
    return about if (core and about and about != namespace) or (not about and namespace != "default") else None
