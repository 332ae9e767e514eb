"""Bytes as an API server writes them."""

import json
from typing import Any


def node(name: str, version: int, uid: str = "", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}, **more}


def page(version: int | str, *items: Any, more: str = "") -> bytes:
    meta = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return json.dumps({"kind": "NodeList", "apiVersion": "v1", "metadata": meta, "items": list(items)}).encode()


def line(kind: str, item: Any) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), "creationTimestamp": None}})


def error(code: int, reason: str = "", message: str = "", retry: int | None = None) -> bytes:
    details = {} if retry is None else {"details": {"retryAfterSeconds": retry}}
    return line("ERROR", {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **details})
