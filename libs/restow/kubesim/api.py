"""The HTTP face: one handler that routes every request and turns every failure into a Status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC
from email.utils import format_datetime
from typing import Any

import msgspec
from aiohttp import web

from restow.kubesim import (
    admin,
    discovery,
    negotiate,
    openapi,
    reads,
    responses,
    routes,
    subresources,
    writes,
)
from restow.kubesim.cluster import Cluster
from restow.kubesim.errors import ApiError, bad_request, method_not_allowed, no_such_path
from restow.kubesim.faults import Rule
from restow.kubesim.metrics_server import GROUP as METRICS
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import MalformedError
from restow.kubesim.routes import RequestInfo

log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
_NO_QUERY: Mapping[str, str] = {}
_PLAIN_SUBRESOURCES = frozenset({"", "status"})


class Api:
    """`handle` is the handler of an aiohttp `web.Server`."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self._openapi = openapi.Documents(cluster.store.registry)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except ApiError as error:
            return _failure(error)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {MAX_BODY}"
            return _failure(ApiError(413, "RequestEntityTooLarge", text))
        except MalformedError as error:
            return _failure(bad_request(f"the body cannot be decoded: {error}"))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path_qs)
            text = f"Internal error occurred: {type(error).__name__}: {error}"
            return _failure(ApiError(500, "InternalError", text))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        query: Mapping[str, str] = request.query if "?" in request.raw_path else _NO_QUERY
        depth = path.count("/")
        if (path.startswith("/api/v1/") and depth >= 3) or (path.startswith("/apis/") and depth >= 4):
            path = path.rstrip("/")
            if path.startswith(("/apis/authorization.k8s.io/v1/", "/apis/authentication.k8s.io/v1/")):
                return await _review(request)
            if path.count("/") >= (3 if path.startswith("/api/v1") else 4):
                info = routes.parse(self.cluster.store.registry, request.method, path, query)
                return await self._resource(info, request)
        return await self._other(path.rstrip("/") or "/", request)

    async def _resource(self, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
        faults = self.cluster.faults
        rule = faults.find(info) if faults.rules else None
        if rule is None:
            return await self._perform(info, request)
        return await self._faulty(rule, info, request)

    async def _faulty(self, rule: Rule, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
        if rule.action == "delay":
            await self.cluster.faults.delay(rule)
            try:
                return await self._perform(info, request)
            finally:
                rule.done += 1
        elif rule.action == "status":
            raise rule.error()
        elif rule.action == "drop":
            # The work is done, the client never learns of it.
            try:
                await self._perform(info, request)
            except ApiError:
                pass
            _abort(request)
        elif rule.action == "cut":
            _abort(request)
        return await self._perform(info, request)

    async def _perform(self, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
        cluster = self.cluster
        if info.subresource not in _PLAIN_SUBRESOURCES:
            return await subresources.handle(cluster, info, request)
        accept = request.headers.get("Accept")
        if info.resource.group == METRICS:
            return cluster.metrics.answer(info, accept)
        match info.verb:
            case "get":
                return reads.get(cluster, info, accept)
            case "list":
                return reads.list_(cluster, info, accept)
            case "watch":
                return await reads.watch_(cluster, info, request)
            case "create" if not info.subresource:
                return await writes.create(cluster, info, request)
            case "update":
                return await writes.update(cluster, info, request)
            case "patch":
                return await writes.patch_(cluster, info, request)
            case "delete":
                return await writes.delete(cluster, info, request)
            case "deletecollection":
                return await writes.delete_collection(cluster, info, request)
        raise method_not_allowed(info.resource)

    async def _other(self, path: str, request: web.BaseRequest) -> web.StreamResponse:
        """Everything that is not a resource."""
        if path.startswith("/kubesim/"):
            return await admin.handle(self.cluster, path, request)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed(None)
        if path in ("/healthz", "/livez", "/readyz") or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return web.Response(text="ok")
        if path == "/version":
            found = _json(discovery.VERSION)
            found.headers["Date"] = format_datetime(self.cluster.store.clock().astimezone(UTC), usegmt=True)
            return found
        if path.startswith("/openapi/"):
            return self._openapi.answer(path, request)
        return self._discovery(path, request)

    def _discovery(self, path: str, request: web.BaseRequest) -> web.Response:
        registry = self.cluster.store.registry
        parts = [part for part in path.split("/") if part]
        if parts in (["api"], ["apis"]):
            form = negotiate.accepted(request.headers.get("Accept"), ("APIGroupDiscoveryList",))
            if form.kind:
                body = discovery.aggregated(registry, core=parts == ["api"], version=form.version)
                media = f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
                return web.Response(body=encode(body), headers={"Content-Type": media, "Vary": "Accept"})
            if parts == ["api"]:
                return _json(discovery.api_versions(request.host))
            return _json(discovery.group_list(registry))
        match parts:
            case ["api", version]:
                return _json(discovery.resource_list(registry, "", version))
            case ["apis", group]:
                return _json(discovery.one_group(registry, group))
            case ["apis", group, version]:
                return _json(discovery.resource_list(registry, group, version))
            case []:
                return _json({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})  # fmt: skip
        raise no_such_path()


async def _review(request: web.BaseRequest) -> web.Response:
    """Access reviews: everybody may do everything, there is no RBAC."""
    plural = request.path.rstrip("/").rpartition("/")[2]
    if plural == "selfsubjectreviews":
        raise no_such_path()
    if plural not in discovery.REVIEWS:
        raise no_such_path()
    if request.method != "POST":
        raise ApiError(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
        )
    body = negotiate.object_of(await request.read(), request.headers.get("Content-Type", ""))
    if plural == "selfsubjectrulesreviews":
        every = {"verbs": ["*"]}
        rules = [{**every, "apiGroups": ["*"], "resources": ["*"]}]
        status: dict[str, Any] = {
            "resourceRules": rules,
            "nonResourceRules": [{**every, "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    else:
        status = {"allowed": True, "reason": "kubesim has no RBAC"}
    head = {"kind": discovery.REVIEWS[plural], "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    return _json({**head, "spec": body.get("spec") or {}, "status": status}, 201)


def _json(body: Any, status: int = 200) -> web.Response:
    return responses.reply(encode(body), status)


def _failure(error: ApiError) -> web.Response:
    return responses.reply(msgspec.json.encode(error.status()) + b"\n", error.code, error.headers)


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("cut by a scripted fault")
