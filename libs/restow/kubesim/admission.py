"""The strategy of a kubesim store: which defaults and checks run for which resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from restow.kubesim import crd, defaults, immutable, landing, namespaces, schemas, validate
from restow.kubesim.errors import bad_request, invalid
from restow.kubesim.objects import Obj
from restow.kubesim.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, NODES, PODS, Resource
from restow.kubesim.store import Store, Strategy


@contextmanager
def _typed(resource: Resource) -> Iterator[None]:
    """A field of the wrong type is the client's mistake: a real server could not decode the object."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        kind = resource.kind
        text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: json: cannot unmarshal: {error}'
        raise bad_request(text) from error


class Admission(Strategy):
    """Defaults first, then validation, in the order of a real server."""

    def create(self, store: Store, resource: Resource, obj: Obj) -> None:
        with _typed(resource):
            self._create(store, resource, obj)

    def update(self, store: Store, resource: Resource, obj: Obj, old: Obj, subresource: str) -> None:
        with _typed(resource):
            self._update(store, resource, obj, old, subresource)

    def _create(self, store: Store, resource: Resource, obj: Obj) -> None:
        if resource.namespaced:
            namespaces.check_open(store, resource, obj)
        if resource.custom is not None:
            causes = validate.metadata(resource, obj) + schemas.admit(resource, obj)
        elif resource == CUSTOMRESOURCEDEFINITIONS:
            crd.default(obj)
            causes = validate.metadata(resource, obj) + crd.check(obj)
        else:
            validate.shapes(resource, obj)
            if resource == PODS:
                landing.gate(store, obj)
            defaults.on_create(store, resource, obj)
            causes = validate.new(resource, obj)
        if causes:
            raise invalid(resource, obj["metadata"].get("name", ""), causes)

    def _update(self, store: Store, resource: Resource, obj: Obj, old: Obj, subresource: str) -> None:
        if subresource in ("binding", "finalize"):
            return
        if resource.custom is not None:
            causes = schemas.admit(resource, obj) + validate.changed(resource, obj, old)
        elif subresource == "status":
            validate.shapes(resource, obj)
            causes = validate.status(resource, obj)
        elif resource == CUSTOMRESOURCEDEFINITIONS:
            crd.default(obj)
            causes = crd.check(obj)
        else:
            validate.shapes(resource, obj)
            defaults.on_update(resource, obj, old)
            causes = validate.changed(resource, obj, old)
            causes += immutable.check(resource, obj, old)
        if resource not in (PODS, NODES):
            causes += validate.annotation_errors(obj)
        if causes:
            raise invalid(resource, obj["metadata"]["name"], causes)

    def may_delete(self, store: Store, resource: Resource, obj: Obj) -> Obj | None:
        if resource == NAMESPACES:
            return namespaces.mark_terminating(store, obj)
        if resource == CUSTOMRESOURCEDEFINITIONS:
            return crd.mark_terminating(store, obj)
        return None
