"""fieldValidation=Strict: unknown fields are refused rather than dropped."""

from __future__ import annotations

from restow.kubesim import schemas
from restow.kubesim.errors import bad_request
from restow.kubesim.objects import Obj
from restow.kubesim.routes import RequestInfo

_TOP = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_META = frozenset({
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
})  # fmt: skip


def check(info: RequestInfo, obj: Obj) -> None:
    """400 with every unknown field, as `strict decoding error: unknown field "spec.x"`."""
    unknown = [f"metadata.{key}" for key in obj.get("metadata") or {} if key not in _META]
    if info.resource.custom is not None:
        unknown += schemas.unknown_fields(info.resource.custom.versions[info.version].schema, obj)
    elif info.resource.has_status:
        unknown += [key for key in obj if key not in _TOP]
    if unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        kind = info.resource.kind
        raise bad_request(
            f'{kind} in version "{info.version}" cannot be handled as a {kind}: strict decoding error: {listed}'
        )
