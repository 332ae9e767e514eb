"""create, update, patch, delete and deletecollection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from restow.kubesim import events, negotiate, patch, reads, responses
from restow.kubesim.errors import (
    ApiError,
    bad_request,
    invalid,
    method_not_allowed,
    not_found,
    unknown_dry_run,
    unsupported_media,
)
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj, drop_nulls, member
from restow.kubesim.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, LEASES, PODDISRUPTIONBUDGETS
from restow.kubesim.routes import RequestInfo, integer
from restow.kubesim.validate import Causes

if TYPE_CHECKING:
    from restow.kubesim.cluster import Cluster

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_CREATE_ON_UPDATE = (LEASES, EVENTS)
_NEEDS_VERSION = (LEASES, PODDISRUPTIONBUDGETS, CUSTOMRESOURCEDEFINITIONS)


def _checked(info: RequestInfo, obj: Obj, *, name: str = "") -> Obj:
    """The body must be the object that the path means."""
    expected = info.api_version
    kind = info.resource.kind
    given_version, given_kind = obj.get("apiVersion") or expected, obj.get("kind") or kind
    if given_version != expected:
        text = f"the API version in the data ({given_version}) does not match the expected API version ({expected})"
        raise bad_request(text)
    if given_kind != kind:
        raise bad_request(
            f"{given_kind} in version {given_version!r} cannot be handled as a {kind}".replace("'", '"')
        )
    obj["apiVersion"], obj["kind"] = expected, kind
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if info.resource.namespaced and meta.get("namespace", info.namespace) not in ("", info.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if name:
        if not meta.get("name"):
            raise bad_request("name must be provided")
        if meta["name"] != name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
    if info.resource.namespaced:
        meta["namespace"] = info.namespace
    return obj


async def _body(info: RequestInfo, request: web.BaseRequest) -> Obj:
    raw = await request.read()
    obj = negotiate.object_of(raw, request.headers.get("Content-Type", ""))
    if info.resource.custom is None and b"null" in raw:
        drop_nulls(obj)
    return obj


async def create(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if info.name or (info.resource.namespaced and not info.namespace):
        raise method_not_allowed(info.resource)
    form = negotiate.accepted(request.headers.get("Accept"), responses.TRANSFORMS)
    obj = _checked(info, await _body(info, request))
    dry_run = info.dry_run
    cluster.strict(info, obj)
    taken = info.take(obj)
    if info.resource == EVENTS and (about := events.misplaced(taken, info.namespace, info.verbatim)) is not None:
        causes = Causes()
        causes.invalid("involvedObject.namespace", about, "does not match event.namespace")
        raise invalid(EVENTS, taken["metadata"].get("name", ""), causes)
    stored = cluster.store.create(info.resource, taken, info.namespace, owned=True, dry_run=dry_run)
    return reads.answer(cluster, info, form, stored, 201)


async def update(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if not info.name:
        raise method_not_allowed(info.resource)
    form = negotiate.accepted(request.headers.get("Accept"), responses.TRANSFORMS)
    obj = _checked(info, await _body(info, request), name=info.name)
    dry_run = info.dry_run
    cluster.strict(info, obj)
    store = cluster.store
    old = store.find(info.resource, info.namespace, info.name)
    if old is None:
        if info.resource in _CREATE_ON_UPDATE and not obj["metadata"].get("uid"):
            stored = store.create(info.resource, info.take(obj), info.namespace, owned=True, dry_run=dry_run)
            return reads.answer(cluster, info, form, stored, 201)
        raise not_found(info.resource, info.name)
    if not obj["metadata"].get("resourceVersion") and (
        info.resource.custom is not None or info.resource in _NEEDS_VERSION
    ):
        text = "Invalid value: 0: must be specified for an update"
        cause = {"reason": "FieldValueInvalid", "message": text, "field": "metadata.resourceVersion"}
        raise invalid(info.resource, info.name, [cause])
    stored = store.update(
        info.resource, info.take(obj), subresource=info.subresource, owned=True, dry_run=dry_run
    )
    return reads.answer(cluster, info, form, stored)


async def patch_(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if not info.name:
        raise method_not_allowed(info.resource)
    form = negotiate.accepted(request.headers.get("Accept"), responses.TRANSFORMS)
    media = request.headers.get("Content-Type", "").partition(";")[0].strip()
    check_patch_type(info, media)
    body = negotiate.body_of(await request.read(), "application/json")
    dry_run = info.dry_run
    old = cluster.store.get(info.resource, info.namespace, info.name)
    new = patched(info, media, info.show(old), body)
    new = _checked(info, new, name=info.name)
    uid = old["metadata"]["uid"]
    if (said := new["metadata"].get("uid") or uid) != uid:
        # A PUT of another uid is a conflict; a patch that writes one is invalid.
        cause = {"reason": "FieldValueInvalid", "message": f'Invalid value: "{said}": field is immutable', "field": "metadata.uid"}
        raise invalid(info.resource, info.name, [cause])
    new["metadata"] = {**new["metadata"], "uid": uid}
    cluster.strict(info, new)
    stored = cluster.store.update(
        info.resource, info.take(new), subresource=info.subresource, dry_run=dry_run
    )
    return reads.answer(cluster, info, form, stored)


def check_patch_type(info: RequestInfo, media: str) -> None:
    """415 for patch types that the resource does not take."""
    known = [JSON_PATCH, MERGE_PATCH]
    if info.resource.custom is None:
        known.append(STRATEGIC_PATCH)
    if media == APPLY_PATCH:
        raise unsupported_media(
            "kubesim does not implement server-side apply; use kubectl apply without --server-side"
        )
    if media not in known:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise unsupported_media(text + ", ".join(known))


def patched(info: RequestInfo, media: str, old: Obj, body: Any) -> Obj:
    """The object after a patch. Shares structure with `old`."""
    if media == JSON_PATCH:
        new = patch.json_patch(old, body)
    elif not isinstance(body, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
        )
    elif media == MERGE_PATCH:
        new = patch.merge_patch(old, body)
    else:
        new = patch.strategic_merge(old, body, kind=info.resource.kind)
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request")
    return {**new, "metadata": dict(new["metadata"])}


# -- delete -----------------------------------------------------------------------------------------


class DeleteOptions:
    """DeleteOptions from the body, or from the query where there is no body."""

    def __init__(self, info: RequestInfo, body: dict[str, Any]):
        query = info.query
        self.grace: int | None = body.get("gracePeriodSeconds", integer(query, "gracePeriodSeconds"))
        if self.grace is not None and not isinstance(self.grace, int):
            raise bad_request("gracePeriodSeconds must be an integer")
        preconditions = member(body, "preconditions")
        self.uid: str | None = preconditions.get("uid")
        self.resource_version: str | None = preconditions.get("resourceVersion")
        self.propagation: str | None = body.get("propagationPolicy", query.get("propagationPolicy"))
        orphan = body.get("orphanDependents")
        if orphan is not None and self.propagation is None:
            self.propagation = "Orphan" if orphan else "Background"
        if self.propagation not in (None, "Background", "Foreground", "Orphan"):
            text = f'Unsupported value: "{self.propagation}": supported values: "Background", "Foreground", "Orphan", nil'
            cause = {"reason": "FieldValueNotSupported", "message": text, "field": "propagationPolicy"}
            message = f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: {text}'
            details = {"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": [cause]}
            raise ApiError(422, "Invalid", message, details)
        said = body.get("dryRun") or []
        if unknown := [one for one in said if one != "All"]:
            raise unknown_dry_run("Delete", unknown)
        self.dry_run = bool(said) or info.dry_run


async def _options(info: RequestInfo, request: web.BaseRequest) -> DeleteOptions:
    raw = await request.read() if request.can_read_body else b""
    body = negotiate.object_of(raw, request.headers.get("Content-Type", "")) if raw.strip() else {}
    return DeleteOptions(info, body)


async def delete(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if info.subresource:
        raise method_not_allowed(info.resource)
    form = negotiate.accepted(request.headers.get("Accept"), responses.TRANSFORMS)
    options = await _options(info, request)
    gone, obj = delete_one(cluster, info.resource, info.namespace, info.name, options)
    if gone and not info.resource.returns_deleted:
        return responses.reply(encode(deleted_status(info, obj)))
    return reads.answer(cluster, info, form, obj)


def delete_one(
    cluster: Cluster, resource: Any, namespace: str, name: str, options: DeleteOptions
) -> tuple[bool, Obj]:
    """Delete with options; returns whether the object is gone, and the object."""
    obj = cluster.store.delete(
        resource,
        namespace,
        name,
        grace_period=options.grace,
        uid=options.uid,
        resource_version=options.resource_version,
        propagation=options.propagation,
        dry_run=options.dry_run,
    )
    return "deletionTimestamp" not in obj["metadata"] or is_gone(cluster, resource, obj), obj


def is_gone(cluster: Cluster, resource: Any, obj: Obj) -> bool:
    meta = obj["metadata"]
    now = cluster.store.find(resource, meta.get("namespace", ""), meta["name"])
    return now is None or now["metadata"]["uid"] != meta["uid"]


def deleted_status(info: RequestInfo, obj: Obj) -> Obj:
    resource = info.resource
    details = {"name": obj["metadata"]["name"], "group": resource.group, "kind": resource.plural}
    details = {key: value for key, value in details.items() if value} | {"uid": obj["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


async def delete_collection(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.Response:
    if "deletecollection" not in info.resource.verbs or (info.resource.namespaced and not info.namespace):
        raise method_not_allowed(info.resource)
    options = await _options(info, request)
    page = reads.select_page(cluster, info)
    deleted = []
    for item in page.items:
        meta = item.obj["metadata"]
        try:
            obj = delete_one(cluster, info.resource, meta.get("namespace", ""), meta["name"], options)[1]
        except ApiError as error:
            if error.code != 404:
                raise
            continue
        deleted.append(info.show(obj))
    body = {
        "kind": f"{info.resource.kind}List",
        "apiVersion": info.api_version,
        "metadata": {"resourceVersion": str(cluster.store.resource_version)},
        "items": deleted,
    }
    return responses.reply(encode(body))
