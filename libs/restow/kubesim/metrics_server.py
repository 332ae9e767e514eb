"""metrics.k8s.io: what pods and nodes use, as a metrics-server answers it. Nothing is measured here: an annotation says what a
pod uses, and without one it uses what its containers ask for.

Off unless it is asked for: a cluster without a metrics-server answers 404. On, off, old and down are `PUT` and `DELETE
/kubesim/metrics`, or `cluster.metrics` in process.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web

from restow.kubesim import negotiate, responses, table
from restow.kubesim.amounts import cpu_text, memory_text, parse_quantity
from restow.kubesim.errors import ApiError, bad_request, details_of, method_not_allowed
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj, rfc3339
from restow.kubesim.podstate import (
    annotations_of,
    condition_of,
    is_ready,
    labels_of,
    node_of,
    phase_of,
    seconds_of,
)
from restow.kubesim.resources import NODES, PODS, Resource
from restow.kubesim.routes import RequestInfo
from restow.kubesim.selectors import predicate

if TYPE_CHECKING:
    from restow.kubesim.store import Store

log = logging.getLogger(__name__)

GROUP = "metrics.k8s.io"
NODE_METRICS = Resource(GROUP, "v1beta1", "nodes", "NodeMetrics", namespaced=False, verbs=("get", "list"))
POD_METRICS = Resource(GROUP, "v1beta1", "pods", "PodMetrics", verbs=("get", "list"))

USAGE = "kubesim.restow.dev/usage"
"""On a pod: what it uses, such as `cpu=700m,memory=200Mi` (its containers share it). On a node: what is used there beside the pods.
`none`: it cannot be measured."""
NONE = "none"

Amounts = dict[str, int]
"""cpu in nanocores, memory in bytes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A metrics-server's own flags and habits, and what may be wrong with it. Seconds."""

    resolution: float = 15.0
    """How long one scrape is answered with (`--metric-resolution`); 0 scrapes at each request."""
    window: float = 15.0
    """What the usage is an average of, at most the time that the pod has run."""
    youngest: float = 10.0
    """A pod that has run for less has no metrics yet."""
    behind: float = 0.0
    """So much older are all timestamps: nothing was scraped any more since."""
    node: str = "cpu=100m,memory=256Mi"
    """What a node uses beside its pods."""
    down: bool = False
    """503, as the API server says where an aggregated API is not available."""


@dataclass(frozen=True, slots=True)
class _Scrape:
    at: float
    """Of the store's clock, in seconds since 1970."""
    nodes: dict[str, Amounts] = field(default_factory=dict)
    pods: dict[tuple[str, str], tuple[float, list[tuple[str, Amounts]]]] = field(default_factory=dict)
    """(namespace, name) → the window, and what each container uses."""


class MetricsServer:
    """Served while `settings` are there."""

    def __init__(self, store: Store):
        self._store = store
        self.settings: Settings | None = None
        self._last: _Scrape | None = None

    def on(self, **said: Any) -> None:
        """Serve metrics from now on; 400 for unknown and bad settings. What was scraped before is forgotten."""
        settings = _checked(said)
        registry = self._store.registry
        if self.settings is None:
            registry.add(NODE_METRICS)
            registry.add(POD_METRICS)
        self.settings, self._last = settings, None

    def off(self) -> None:
        if self.settings is not None:
            self._store.registry.remove(NODE_METRICS)
            self._store.registry.remove(POD_METRICS)
        self.settings = self._last = None

    def show(self) -> Obj:
        return {"enabled": self.settings is not None, **(asdict(self.settings) if self.settings else {})}

    # -- answers ----------------------------------------------------------------------------------

    def answer(self, info: RequestInfo, accept: str | None) -> web.Response:
        settings = self.settings
        assert settings is not None, "it is in the registry only while it is on"
        if info.verb not in ("get", "list") or info.subresource:
            raise method_not_allowed(info.resource)
        if settings.down:
            raise ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request", {})
        form = negotiate.accepted(accept, responses.TRANSFORMS)
        found = self._found(info, settings)
        if form.kind == "Table":
            include = info.query.get("includeObject", "Metadata") or "Metadata"
            body = table.render(info, found, self._store.clock(), include, form.version)
        elif form.kind:
            body = {"kind": f"{form.kind}List", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": {}}
            body["items"] = [responses.partial(one, form.version) for one in found]
            body = body if info.verb == "list" else body["items"][0]
        elif info.verb == "list":
            body = {"kind": f"{info.resource.kind}List", "apiVersion": info.api_version, "metadata": {}, "items": found}
        else:
            body = found[0]
        raw = encode(body)
        return responses.as_yaml(raw) if form.yaml else responses.reply(raw + b"\n")

    def _found(self, info: RequestInfo, settings: Settings) -> list[Obj]:
        scrape, of_nodes = self._scraped(settings), info.resource == NODE_METRICS
        if info.verb == "list":
            query = info.query
            select = predicate(
                NODES if of_nodes else PODS, query.get("labelSelector", ""), query.get("fieldSelector", "")
            )
            objs: Iterable[Obj] = self._store.list(NODES if of_nodes else PODS, info.namespace, select)
        else:
            one = self._store.find(NODES if of_nodes else PODS, info.namespace, info.name)
            objs = () if one is None else (one,)
        said = [self._node(scrape, settings, obj) if of_nodes else self._pod(scrape, settings, obj) for obj in objs]
        found = [one for one in said if one is not None]
        if info.verb == "get" and not found:
            raise _no_metrics(info)
        return found

    def _node(self, scrape: _Scrape, settings: Settings, node: Obj) -> Obj | None:
        used = scrape.nodes.get(node["metadata"]["name"])
        if used is None:
            return None
        return self._head("NodeMetrics", node, scrape, settings, settings.window) | {"usage": shown(used)}

    def _pod(self, scrape: _Scrape, settings: Settings, pod: Obj) -> Obj | None:
        found = scrape.pods.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]))
        if found is None:
            return None
        window, containers = found
        said = [{"name": name, "usage": shown(used)} for name, used in containers]
        return self._head("PodMetrics", pod, scrape, settings, window) | {"containers": said}

    def _head(self, kind: str, obj: Obj, scrape: _Scrape, settings: Settings, window: float) -> Obj:
        named = {key: obj["metadata"][key] for key in ("name", "namespace") if key in obj["metadata"]}
        meta: Obj = {**named, "creationTimestamp": self._store.now()}
        if labels := labels_of(obj):
            meta["labels"] = labels
        taken = self._store.clock() - timedelta(seconds=self._seconds() - scrape.at + settings.behind)
        return {
            "kind": kind,
            "apiVersion": f"{GROUP}/v1beta1",
            "metadata": meta,
            "timestamp": rfc3339(taken),
            "window": f"{window:.3f}".rstrip("0").rstrip(".") + "s",
        }

    # -- scrapes ----------------------------------------------------------------------------------

    def _seconds(self) -> float:
        moment: datetime = self._store.clock()
        return moment.timestamp()

    def _scraped(self, settings: Settings) -> _Scrape:
        now, last = self._seconds(), self._last
        if last is None or not 0 <= now - last.at < settings.resolution:
            last = self._last = self._scrape(settings, now)
        return last

    def _scrape(self, settings: Settings, now: float) -> _Scrape:
        scrape = _Scrape(now)
        for node in self._store.list(NODES):
            own = _said(node, settings.node) if _reachable(node) else None
            if own is not None:
                scrape.nodes[node["metadata"]["name"]] = own
        for pod in self._store.list(PODS):
            there = scrape.nodes.get(node_of(pod))
            if there is None or phase_of(pod) != "Running":
                continue
            ran = now - seconds_of((pod.get("status") or {}).get("startTime"))
            containers = _containers(pod)
            if containers is None or ran < settings.youngest:
                continue
            for _, used in containers:
                for name, amount in used.items():
                    there[name] += amount
            key = (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
            scrape.pods[key] = (min(settings.window, max(ran, 1.0)), containers)
        return scrape


def _reachable(node: Obj) -> bool:
    """Of a kubelet that does not answer there are no metrics. Without any condition nobody has said that it does not."""
    return is_ready(node) or condition_of(node, "Ready") is None


def _said(obj: Obj, otherwise: str) -> Amounts | None:
    """What the object's annotation says, or this. None: not measured; a bad annotation, too."""
    text = annotations_of(obj).get(USAGE, otherwise)
    if text == NONE:
        return None
    try:
        return parsed(text)
    except ValueError as error:
        log.warning("kubesim: %s of %s: %s", USAGE, obj["metadata"]["name"], error)
        return None


def _containers(pod: Obj) -> list[tuple[str, Amounts]] | None:
    containers = [(one["name"], one) for one in pod["spec"].get("containers") or ()]
    if USAGE not in annotations_of(pod):
        return [(name, _requested(one)) for name, one in containers]
    used = _said(pod, "")
    if used is None or not containers:
        return None
    shares: list[tuple[str, Amounts]] = []
    for i, (name, _) in enumerate(containers):
        # What does not divide evenly is the first one's.
        part = {key: amount // len(containers) + (amount % len(containers) if i == 0 else 0) for key, amount in used.items()}
        shares.append((name, part))
    return shares


def _requested(container: Obj) -> Amounts:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {"cpu": parse_quantity(str(asked.get("cpu", 0)), 10**9), "memory": parse_quantity(str(asked.get("memory", 0)))}


def parsed(text: str) -> Amounts:
    """`cpu=700m,memory=200Mi`; what is not said is 0. ValueError for anything else."""
    used = {"cpu": 0, "memory": 0}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, amount = part.partition("=")
        if not sign or name not in used:
            raise ValueError(f"{part!r}; allowed: cpu=<quantity>, memory=<quantity>, or {NONE}")
        used[name] = parse_quantity(amount, 10**9 if name == "cpu" else 1)
        if used[name] < 0:
            raise ValueError(f"{part!r}; allowed: 0 or more")
    return used


def shown(used: Amounts) -> dict[str, str]:
    return {"cpu": cpu_text(used["cpu"]), "memory": memory_text(used["memory"])}


def _no_metrics(info: RequestInfo) -> ApiError:
    name = f"{info.namespace}/{info.name}" if info.namespace else info.name
    kind = info.resource.kind.lower()
    return ApiError(404, "NotFound", f'{kind}.{GROUP} "{name}" not found', details_of(GROUP, kind, name))


def _checked(said: Any) -> Settings:
    known = {one.name: one for one in fields(Settings)}
    for name, value in said.items():
        if name not in known:
            raise bad_request(f"unknown setting {name!r} of metrics; allowed: {', '.join(known)}")
        kind = known[name].type
        fits = isinstance(value, bool) if kind == "bool" else isinstance(value, str) if kind == "str" else _is_time(value)
        if not fits:
            raise bad_request(f"{name}: {value!r}; allowed: a {kind}{' of 0 or more seconds' * (kind == 'float')}")
    settings = Settings(**said)
    try:
        parsed(settings.node)
    except ValueError as error:
        raise bad_request(f"node: {error}") from None
    return settings


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
