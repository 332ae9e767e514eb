"""/openapi/v2 and /openapi/v3, as far as kubectl needs them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from restow.kubesim import discovery, openapi_schemas
from restow.kubesim.errors import no_such_path
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj
from restow.kubesim.resources import Registry

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# `@` is no legal character of a media type, so the answer is named differently from the question.
_ANSWER_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def _field(number: int, payload: bytes) -> bytes:
    """A protobuf field of a length below 128."""
    return bytes((number << 3 | 2, len(payload))) + payload


# kubectl falls back to v2, in protobuf alone, for kinds that v3 does not know. A document without definitions
# lets it go on to say that the kind does not exist.
_EMPTY_V2 = _field(1, b"2.0") + _field(2, _field(1, b"Kubernetes") + _field(2, b"v1.36.0"))


class Documents:
    """The documents, built again only when the registry changed."""

    def __init__(self, registry: Registry):
        self.registry = registry
        self._generation = -1
        self._cache: dict[str, bytes] = {}

    def answer(self, path: str, request: web.BaseRequest) -> web.Response:
        if self._generation != self.registry.generation:
            self._cache.clear()
            self._generation = self.registry.generation
        accept = request.headers.get("Accept", "")
        if path == "/openapi/v2":
            if PROTOBUF_V2 in accept and "application/json" not in accept:
                return web.Response(body=_EMPTY_V2, headers={"Content-Type": _ANSWER_V2, "Vary": "Accept"})
            return self._json(path, lambda: openapi_schemas.document_v2(self.registry))
        if path == "/openapi/v3":
            return self._json(path, self._index)
        group, version = self._group_version(path)
        return self._json(path, lambda: openapi_schemas.document_v3(self.registry, group, version))

    def _json(self, path: str, build: Any) -> web.Response:
        raw = self._cache.get(path)
        if raw is None:
            raw = self._cache[path] = encode(build())
        return web.Response(body=raw, content_type="application/json", headers={"Vary": "Accept"})

    def _index(self) -> Obj:
        paths = {}
        for group, versions in discovery.groups(self.registry).items():
            for version in versions:
                place = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={self.registry.generation}"}
        return {"paths": paths}

    def _group_version(self, path: str) -> tuple[str, str]:
        parts = path.split("/")[3:]
        match parts:
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                raise no_such_path()
        if version not in discovery.groups(self.registry).get(group, {}):
            raise no_such_path()
        return group, version
