"""CustomResourceDefinitions: what they must say, and the resources that they bring into being."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from restow.kubesim.discovery import version_rank
from restow.kubesim.errors import ApiError, Cause
from restow.kubesim.objects import Obj, dig, rfc3339
from restow.kubesim.resources import CUSTOMRESOURCEDEFINITIONS, CustomResource, CustomVersion, Resource

if TYPE_CHECKING:
    from restow.kubesim.shelf import Change
    from restow.kubesim.store import Store

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def default(crd: Obj) -> None:
    """Defaults of the definition itself."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        spec = crd["spec"] = {}
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names.setdefault("listKind", f"{kind}List")
        names.setdefault("singular", kind.lower())
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions") or ():
        version.setdefault("served", False)
        version.setdefault("storage", False)


def _required(causes: list[Cause], field: str, message: str = "Required value") -> None:
    causes.append({"reason": "FieldValueRequired", "message": message, "field": field})


def _wrong(causes: list[Cause], field: str, message: str) -> None:
    causes.append({"reason": "FieldValueInvalid", "message": message, "field": field})


def check(crd: Obj) -> list[Cause]:
    """What is wrong with the definition."""
    causes: list[Cause] = []
    spec = crd["spec"]
    names, group, name = spec["names"], spec.get("group", ""), crd["metadata"].get("name", "")
    expected = f"{names.get('plural', '')}.{group}"
    if name != expected:
        _wrong(causes, "metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')
    if not group:
        _required(causes, "spec.group")
    for field in ("plural", "kind"):
        if not names.get(field):
            _required(causes, f"spec.names.{field}")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        if not spec.get("scope"):
            _required(causes, "spec.scope")
        else:
            text = f'Unsupported value: "{spec["scope"]}": supported values: "Cluster", "Namespaced"'
            causes.append({"reason": "FieldValueNotSupported", "message": text, "field": "spec.scope"})
    versions = spec.get("versions") or []
    for index, version in enumerate(versions):
        if not isinstance(dig(version, "schema", "openAPIV3Schema"), dict):
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            _required(causes, where)
        else:
            where = "spec.validation.openAPIV3Schema" if len(versions) == 1 else f"spec.versions[{index}].schema.openAPIV3Schema"  # fmt: skip
            _check_structural(dig(version, "schema", "openAPIV3Schema"), where, causes)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = f"Invalid value: {[v.get('name') for v in versions]}: must have exactly one version marked as storage version"
        _wrong(causes, "spec.versions", text.replace("'", '"'))
    if dig(spec, "conversion", "strategy") not in (None, "None"):
        text = f'Unsupported value: "{spec["conversion"]["strategy"]}": supported values: "None"'
        causes.append(
            {"reason": "FieldValueNotSupported", "message": text, "field": "spec.conversion.strategy"}
        )
    return causes


def _check_structural(schema: Any, where: str, causes: list[Cause]) -> None:
    """Every level needs a type, unless it is int-or-string or preserves unknown fields."""
    if not isinstance(schema, dict):
        return
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        _required(causes, f"{where}.type", "Required value: must not be empty for specified object fields")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        _required(causes, f"{where}.items", "Required value: must be specified")
    for name, sub in (schema.get("properties") or {}).items():
        _check_structural(sub, f"{where}.properties[{name}]", causes)
    if isinstance(schema.get("items"), dict):
        _check_structural(schema["items"], f"{where}.items", causes)
    if isinstance(schema.get("additionalProperties"), dict):
        _check_structural(schema["additionalProperties"], f"{where}.additionalProperties", causes)


def resource_of(crd: Obj) -> Resource:
    """The resource that a valid definition defines."""
    spec = crd["spec"]
    names = spec["names"]
    versions: dict[str, CustomVersion] = {}
    for item in sorted(spec["versions"], key=lambda version: version_rank(version["name"])):
        subresources = item.get("subresources") or {}
        versions[item["name"]] = CustomVersion(
            name=item["name"],
            served=bool(item.get("served")),
            storage=bool(item.get("storage")),
            schema=item["schema"]["openAPIV3Schema"],
            columns=tuple(item.get("additionalPrinterColumns") or ()),
            scale=subresources.get("scale"),
            status="status" in subresources,
            selectable=tuple(field["jsonPath"] for field in item.get("selectableFields") or ()),
        )
    stored = next(version for version in versions.values() if version.storage)
    subs = {"status"} if any(version.status for version in versions.values()) else set()
    if any(version.scale for version in versions.values()):
        subs.add("scale")
    return Resource(
        group=spec["group"],
        version=stored.name,
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(subs),
        generation=True,
        custom=CustomResource(crd["metadata"]["name"], versions),
    )


def mark_terminating(store: Store, crd: Obj) -> Obj | None:
    """Delete all objects of the definition; the definition stays until those with finalizers are gone."""
    spec = crd["spec"]
    resource = store.registry.find(spec["group"], spec["names"]["plural"])
    if resource is None or resource.custom is None:
        return None
    for obj in store.list(resource):
        meta = obj["metadata"]
        try:
            store.delete(resource, meta.get("namespace", ""), meta["name"])
        except ApiError as error:
            if error.code != 404:
                raise
    if not store.count(resource):
        return None
    meta = dict(crd["metadata"])
    meta.setdefault("deletionTimestamp", rfc3339(store.clock()))
    finalizers = [item for item in meta.get("finalizers") or () if item != FINALIZER]
    meta["finalizers"] = [*finalizers, FINALIZER]
    changed = {**crd, "metadata": meta}
    return crd if changed == crd else changed


class Definitions:
    """Keeps the registry equal to the stored definitions, and their conditions true."""

    def __init__(self, store: Store):
        self.store = store
        self._specs: dict[tuple[str, str], Obj] = {}
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        if change.resource == CUSTOMRESOURCEDEFINITIONS:
            crd = change.stored.obj
            resource = resource_of(crd)
            if change.type == "DELETED":
                self.store.registry.remove(resource)
            elif "deletionTimestamp" not in crd["metadata"]:
                self._establish(crd, resource)
        elif change.type == "DELETED" and change.resource.custom is not None:
            self._finish(change.resource)

    def _establish(self, crd: Obj, resource: Resource) -> None:
        before = self.store.registry.find(resource.group, resource.plural)
        if before is None or self._specs.get(resource.key) != crd["spec"]:
            self._specs[resource.key] = crd["spec"]
            self.store.registry.add(resource)
        status = self._status(crd)
        if status != crd.get("status"):
            self.store.update(
                CUSTOMRESOURCEDEFINITIONS, {**crd, "status": status}, subresource="status", owned=True
            )

    def _status(self, crd: Obj) -> Obj:
        spec = crd["spec"]
        old = crd.get("status") or {}
        stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
        conditions = old.get("conditions") or [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": self.store.now(),
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": self.store.now(),
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ]
        versions = list(old.get("storedVersions") or [])
        if stored not in versions:
            versions.append(stored)
        return {**old, "conditions": conditions, "acceptedNames": spec["names"], "storedVersions": versions}

    def _finish(self, resource: Resource) -> None:
        assert resource.custom is not None
        crd = self.store.find(CUSTOMRESOURCEDEFINITIONS, "", resource.custom.definition)
        if crd is None or "deletionTimestamp" not in crd["metadata"] or self.store.count(resource):
            return
        self.store.finalize(CUSTOMRESOURCEDEFINITIONS, "", resource.custom.definition, remove=[FINALIZER])
