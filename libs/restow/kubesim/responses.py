"""Bodies as HTTP responses, and the forms that a client may ask for instead of the object itself."""

from __future__ import annotations

import msgspec
from aiohttp import web

from restow.kubesim.objects import Obj

TRANSFORMS = ("Table", "PartialObjectMetadata")


def reply(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def as_yaml(raw: bytes, status: int = 200) -> web.Response:
    body = msgspec.yaml.encode(msgspec.json.decode(raw))
    return web.Response(body=body, status=status, content_type="application/yaml")


def partial(obj: Obj, version: str) -> Obj:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj["metadata"],
    }
