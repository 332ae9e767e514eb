"""Which resource, object and verb a request means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from restow.kubesim import events
from restow.kubesim.errors import bad_request, no_such_path, unknown_dry_run
from restow.kubesim.objects import Obj
from restow.kubesim.resources import EVENTS, EVENTS_V1, Registry, Resource

Query = Mapping[str, str]


@dataclass(slots=True)
class RequestInfo:
    """A request on a resource. `resource` is the stored one, `api_version` what the client speaks."""

    verb: str
    method: str
    resource: Resource
    api_version: str
    namespace: str
    name: str
    subresource: str
    query: Query

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def verbatim(self) -> bool:
        """The client sees objects exactly as they are stored."""
        return self.api_version == self.resource.api_version

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            kind = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}.get(self.method, "")
            raise unknown_dry_run(kind, [value])
        return value == "All"

    def show(self, obj: Obj) -> Obj:
        """A stored object in the client's version."""
        if self.verbatim:
            return obj
        if self.resource == EVENTS:
            return events.to_v1(obj)
        return {**obj, "apiVersion": self.api_version}

    def take(self, obj: Obj) -> Obj:
        """The client's object in the stored version."""
        if self.verbatim:
            return obj
        if self.resource == EVENTS:
            return events.from_v1(obj)
        return {**obj, "apiVersion": self.resource.api_version}


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _verb(method: str, name: str, query: Query) -> str:
    if method in ("GET", "HEAD"):
        if query.get("watch", "").lower() in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _VERBS.get(method, "")


def parse(registry: Registry, method: str, path: str, query: Query) -> RequestInfo:
    """The request's meaning; 404 for unknown groups, versions, resources and subresources."""
    parts = [part for part in path.split("/") if part]
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    if rest and rest[0] == "watch" and method == "GET":
        query, rest = {**query, "watch": "true"}, rest[1:]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        raise no_such_path()
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    resource = registry.served(group, version, plural)
    if resource is None or bool(namespace) > resource.namespaced:
        raise no_such_path()
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    api_version = f"{group}/{version}" if group else version
    stored: Any = EVENTS if resource == EVENTS_V1 else resource
    verb = _verb(method, name, query)
    if verb == "watch" and name:
        joined = ",".join(part for part in (query.get("fieldSelector", ""), f"metadata.name={name}") if part)
        query = {**query, "fieldSelector": joined}
    return RequestInfo(verb, method, stored, api_version, namespace, name, subresource, query)


def integer(query: Query, key: str) -> int | None:
    """An integer query parameter; 400 if it is none."""
    text = query.get(key, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
