"""Subresources other than status: scale, binding, eviction, finalize, log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from restow.kubesim import eviction, negotiate, reads, responses, writes
from restow.kubesim.errors import ApiError, bad_request, conflict, method_not_allowed, not_implemented
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj, dig, member
from restow.kubesim.resources import PODS, Resource
from restow.kubesim.routes import RequestInfo
from restow.kubesim.subselect import selector_text

if TYPE_CHECKING:
    from restow.kubesim.cluster import Cluster

SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def handle(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a request on a subresource that is not handled like the object itself."""
    match info.subresource:
        case "scale":
            return await _scale(cluster, info, request)
        case "binding":
            return await _binding(cluster, info, request)
        case "eviction":
            if info.method != "POST":
                raise method_not_allowed(info.resource)
            body = negotiate.object_of(await request.read(), request.headers.get("Content-Type", ""))
            return responses.reply(encode(eviction.evict(cluster.store, info, body)), 201)
        case "finalize" if info.method == "PUT":
            return await _finalize(cluster, info, request)
        case "log":
            cluster.store.get(info.resource, info.namespace, info.name)
            raise not_implemented("container logs: its pods have no containers")
        case "ephemeralcontainers" | "resize":
            cluster.store.get(info.resource, info.namespace, info.name)
            raise not_implemented(f"pods/{info.subresource}")
    raise method_not_allowed(info.resource)


# -- binding ----------------------------------------------------------------------------------------


async def _binding(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if info.method != "POST":
        raise method_not_allowed(info.resource)
    body = negotiate.object_of(await request.read(), request.headers.get("Content-Type", ""))
    bind(cluster.store, info.namespace, info.name, body, dry_run=info.dry_run)
    return responses.reply(encode(SUCCESS), 201)


def bind(store: Any, namespace: str, name: str, binding: Obj, *, dry_run: bool = False) -> Obj:
    """Assign the pod to `binding.target.name` (pkg/registry/core/pod/storage, assignPod)."""
    meta = binding.get("metadata") or {}
    if meta.get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    eviction.check_namespace(binding, namespace)
    target = member(binding, "target")
    node, kind = target.get("name", ""), target.get("kind", "")
    causes = []
    if kind not in ("", "Node"):
        text = f'Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        causes.append({"reason": "FieldValueNotSupported", "message": text, "field": "target.kind"})
    if not node:
        causes.append({"reason": "FieldValueRequired", "message": "Required value", "field": "target.name"})
    if causes:
        listed = [f"{cause['field']}: {cause['message']}" for cause in causes]
        joined = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
        # A real server aggregates these errors without making them a 422.
        raise ApiError(500, "", joined)
    pod = store.get(PODS, namespace, name)
    _check_bindable(pod, meta)
    spec = {**pod["spec"], "nodeName": node}
    pod_meta = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if said := member(meta, field):
            pod_meta[field] = {**(pod_meta.get(field) or {}), **said}
    # Feature gate ClearingNominatedNodeNameAfterBinding, on by default: the nomination has served.
    status = {k: v for k, v in (pod.get("status") or {}).items() if k != "nominatedNodeName"}
    conditions = [dict(item) for item in status.get("conditions", ()) if item.get("type") != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.now(),
    }
    if "generation" in pod_meta:
        scheduled["observedGeneration"] = pod_meta["generation"]
    status["conditions"] = [*conditions, scheduled]
    bound = {**pod, "metadata": pod_meta, "spec": spec, "status": status}
    return store.update(PODS, bound, subresource="binding", owned=True, dry_run=dry_run)


def _check_bindable(pod: Obj, meta: Obj) -> None:
    current, name = pod["metadata"], pod["metadata"]["name"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = meta.get(field)
        if wanted and wanted != current[field]:
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{current['namespace']}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {label} in precondition: {wanted}, "
                f"{label} in object meta: {current[field]}"
            )
            raise conflict(PODS, name, why)
    if "deletionTimestamp" in current:
        raise _not_bound(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := dig(pod, "spec", "nodeName"):
        raise _not_bound(name, f'pod {name} is already assigned to node "{node}"')
    if dig(pod, "spec", "schedulingGates"):
        raise _not_bound(name, f"pod {name} has non-empty .spec.schedulingGates")


def _not_bound(name: str, why: str) -> ApiError:
    return conflict(_BINDING, name, why)


_BINDING = Resource("", "v1", "pods/binding", "Binding")


# -- scale ------------------------------------------------------------------------------------------


def _scale_paths(info: RequestInfo) -> dict[str, str]:
    if info.resource.custom is None:
        return {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return info.resource.custom.versions[info.version].scale or {}


def scale_of(info: RequestInfo, obj: Obj) -> Obj:
    """The autoscaling/v1 Scale of an object."""
    paths, meta = _scale_paths(info), obj["metadata"]
    shown = {
        k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta
    }
    replicas = dig(obj, *paths["specReplicasPath"].strip(".").split("."), default=0)
    status: Obj = {"replicas": dig(obj, *paths["statusReplicasPath"].strip(".").split("."), default=0)}
    selector = dig(obj, "spec", "selector")
    if path := paths.get("labelSelectorPath"):
        status["selector"] = dig(obj, *path.strip(".").split("."), default="")
    elif isinstance(selector, dict):
        status["selector"] = selector_text(selector if info.resource.group else {"matchLabels": selector})
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": shown,
        "spec": {"replicas": replicas},
        "status": status,
    }


async def _scale(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    store = cluster.store
    obj = store.get(info.resource, info.namespace, info.name)
    current = scale_of(info, obj)
    if info.method == "GET":
        return responses.reply(encode(current))
    if info.method == "PATCH":
        media = request.headers.get("Content-Type", "").partition(";")[0].strip()
        writes.check_patch_type(info, media)
        body = negotiate.body_of(await request.read(), "application/json")
        wanted = writes.patched(info, media, current, body)
    elif info.method == "PUT":
        wanted = negotiate.object_of(await request.read(), request.headers.get("Content-Type", ""))
    else:
        raise method_not_allowed(info.resource)
    replicas = dig(wanted, "spec", "replicas", default=0)
    if not isinstance(obj.get("spec", {}), dict):
        raise bad_request(f"{info.resource.kind} has no spec to scale")
    if not isinstance(replicas, int) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = {"reason": "FieldValueInvalid", "message": text, "field": "spec.replicas"}
        details = {"name": info.name, "group": "autoscaling", "kind": "Scale", "causes": [cause]}
        raise ApiError(
            422, "Invalid", f'Scale.autoscaling "{info.name}" is invalid: spec.replicas: {text}', details
        )
    meta = dict(obj["metadata"])
    if version := dig(wanted, "metadata", "resourceVersion"):
        meta["resourceVersion"] = version
    changed = set_path({**obj, "metadata": meta}, _scale_paths(info)["specReplicasPath"], replicas)
    stored = store.update(info.resource, changed, dry_run=info.dry_run)
    return responses.reply(encode(scale_of(info, stored)))


def set_path(obj: Obj, path: str, value: Any) -> Obj:
    """A copy of the object with the value at `.a.b.c`; shares everything else."""
    head, _, rest = path.strip(".").partition(".")
    return {**obj, head: set_path(obj.get(head) or {}, rest, value) if rest else value}


# -- finalize ---------------------------------------------------------------------------------------


async def _finalize(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    body = negotiate.object_of(await request.read(), request.headers.get("Content-Type", ""))
    old = cluster.store.get(info.resource, "", info.name)
    spec = {**(old.get("spec") or {}), "finalizers": dig(body, "spec", "finalizers", default=[])}
    meta = dict(old["metadata"])
    if version := dig(body, "metadata", "resourceVersion"):
        meta["resourceVersion"] = version
    stored = cluster.store.update(
        info.resource, {**old, "metadata": meta, "spec": spec}, subresource="finalize", dry_run=info.dry_run
    )
    cluster.namespaces.consider(info.name)
    return reads.answer(cluster, info, negotiate.PLAIN, stored)
