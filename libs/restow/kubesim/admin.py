"""/kubesim/…: what only this server has. Scripted faults live here, outside the Kubernetes paths."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from aiohttp import web

from restow.kubesim import negotiate, responses
from restow.kubesim.errors import ApiError, bad_request, no_such_path
from restow.kubesim.negotiate import encode
from restow.kubesim.resources import Resource

if TYPE_CHECKING:
    from restow.kubesim.cluster import Cluster


async def handle(cluster: Cluster, path: str, request: web.BaseRequest) -> web.Response:
    """GET, PUT, POST and DELETE /kubesim/faults; POST /kubesim/watches; GET /kubesim/stats; GET, PUT, DELETE /kubesim/metrics."""
    body: Any = None
    if request.method in ("PUT", "POST"):
        body = negotiate.body_of(await request.read(), "application/json")
    match request.method, path:
        case "GET", "/kubesim/faults":
            pass
        case "PUT", "/kubesim/faults":
            cluster.faults.clear()
            _add(cluster, body)
        case "POST", "/kubesim/faults":
            _add(cluster, body)
        case "DELETE", "/kubesim/faults":
            cluster.faults.clear()
        case "POST", "/kubesim/watches":
            return _watches(cluster, body)
        case "GET", "/kubesim/stats":
            return responses.reply(encode(stats(cluster)))
        case "GET", "/kubesim/metrics":
            return responses.reply(encode(cluster.metrics.show()))
        case "PUT", "/kubesim/metrics":
            if body is not None and not isinstance(body, dict):
                raise bad_request("expected an object with settings of metrics, such as {\"resolution\": 0}")
            cluster.metrics.on(**(body or {}))
            return responses.reply(encode(cluster.metrics.show()))
        case "DELETE", "/kubesim/metrics":
            cluster.metrics.off()
            return responses.reply(encode(cluster.metrics.show()))
        case _, "/kubesim/faults" | "/kubesim/watches" | "/kubesim/stats" | "/kubesim/metrics":
            raise ApiError(405, "MethodNotAllowed", f"{request.method} is not allowed on {path}")
        case _:
            raise no_such_path()
    return responses.reply(encode(cluster.faults.show()))


def _add(cluster: Cluster, body: Any) -> None:
    rules = body.get("rules") if isinstance(body, dict) and "rules" in body else body
    for rule in rules if isinstance(rules, list) else [rules]:
        if not isinstance(rule, dict) or "action" not in rule:
            raise bad_request("a fault is an object with an action")
        fields = {key: value for key, value in rule.items() if key not in ("seen", "hits", "done")}
        cluster.faults.add(fields.pop("action"), **fields)


def _resource(cluster: Cluster, text: str) -> Resource | None:
    if not text:
        return None
    plural, _, group = text.partition(".")
    resource = cluster.store.registry.find(group, plural)
    if resource is None:
        raise bad_request(f"unknown resource {text!r}; write it as pods or deployments.apps")
    return resource


def _watches(cluster: Cluster, body: Any) -> web.Response:
    if not isinstance(body, dict):
        raise bad_request("expected an object with action, resource and last")
    resource = _resource(cluster, body.get("resource", ""))
    hit = cluster.faults.watches(body.get("action", ""), resource, last=int(body.get("last", 1)))
    return responses.reply(encode({"watches": hit}))


def stats(cluster: Cluster) -> dict[str, Any]:
    """Object counts, open watches and the resourceVersion."""
    store = cluster.store
    counts: Counter[str] = Counter()
    for resource in store.registry:
        # Plurals are not unique: events and metrics are served by two groups each.
        counts[resource.plural] += store.count(resource)
    return {
        "resourceVersion": str(store.resource_version),
        "objects": {plural: count for plural, count in counts.items() if count},
        "watches": len(cluster.hub.watchers()),
    }
