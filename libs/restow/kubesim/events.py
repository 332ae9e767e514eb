"""Events have two APIs (core/v1 and events.k8s.io/v1) over one storage; the core form is stored."""

from __future__ import annotations

from restow.kubesim.objects import Obj

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
