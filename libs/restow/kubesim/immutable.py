"""What an update may not change."""

from __future__ import annotations

from restow.kubesim.errors import Cause
from restow.kubesim.objects import Obj, dig
from restow.kubesim.resources import (
    CLUSTERROLEBINDINGS,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    PRIORITYCLASSES,
    REPLICASETS,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    ROLEBINDINGS,
    SECRETS,
    STATEFULSETS,
    STORAGECLASSES,
    Resource,
)
from restow.kubesim.schemas import shown

_IMMUTABLE = "field is immutable"
_POD_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_STS_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_CLAIM_TEXT = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_STS_MUTABLE = frozenset({
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
})  # fmt: skip


def check(resource: Resource, obj: Obj, old: Obj) -> list[Cause]:
    """The forbidden changes between `old` and `obj`."""
    return _finalizers(obj, old) + _spec(resource, obj, old)


def _finalizers(obj: Obj, old: Obj) -> list[Cause]:
    """Of an object that is being deleted finalizers are only removed."""
    if "deletionTimestamp" not in old["metadata"]:
        return []
    had = old["metadata"].get("finalizers") or ()
    added = [one for one in obj["metadata"].get("finalizers") or () if one not in had]
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{', '.join(map(shown, added))}}}"
    return [_forbidden("metadata.finalizers", why)] if added else []


def _spec(resource: Resource, obj: Obj, old: Obj) -> list[Cause]:
    if resource == PODS:
        return _pod(obj["spec"], old["spec"])
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    if resource in (DEPLOYMENTS, REPLICASETS, DAEMONSETS):
        return _fields(spec, before, "spec", ("selector",))
    if resource == STATEFULSETS:
        if {k: v for k, v in spec.items() if k not in _STS_MUTABLE} != {
            k: v for k, v in before.items() if k not in _STS_MUTABLE
        }:
            return [_forbidden("spec", _STS_TEXT)]
    elif resource == JOBS:
        names = ["selector", "completionMode", "completions"]
        if not (before.get("suspend") and dig(old, "status", "startTime") is None):
            names.append("template")
        return _fields(spec, before, "spec", tuple(names))
    elif resource == PERSISTENTVOLUMECLAIMS:
        return _claim(spec, before, dig(old, "status", "phase") == "Bound")
    elif resource in (RESOURCECLAIMS, RESOURCECLAIMTEMPLATES):
        return _fields(obj, old, "", ("spec",))
    elif resource == PRIORITYCLASSES:
        return _top(obj, old, "value")
    elif resource == STORAGECLASSES:
        return _top(obj, old, "provisioner") + _top(obj, old, "volumeBindingMode")
    elif resource in (ROLEBINDINGS, CLUSTERROLEBINDINGS):
        return _role(obj, old)
    elif resource in (CONFIGMAPS, SECRETS):
        if old.get("immutable") and any(
            obj.get(k) != old.get(k) for k in ("data", "binaryData", "immutable")
        ):
            return [_forbidden("data", "field is immutable when `immutable` is set")]
        if resource == SECRETS:
            return _fields(obj, old, "", ("type",))
    return []


def _forbidden(field: str, why: str) -> Cause:
    return {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}


def _fields(spec: Obj, before: Obj, place: str, names: tuple[str, ...]) -> list[Cause]:
    return [
        {
            "reason": "FieldValueInvalid",
            "message": f"Invalid value: {shown(spec.get(name))}: {_IMMUTABLE}",
            "field": f"{place}.{name}" if place else name,
        }
        for name in names
        if spec.get(name) != before.get(name)
    ]


def _top(obj: Obj, old: Obj, name: str) -> list[Cause]:
    if obj.get(name) == old.get(name):
        return []
    return [_forbidden(name, "may not be changed in an update.")]


def _role(obj: Obj, old: Obj) -> list[Cause]:
    role = obj.get("roleRef")
    if role == old.get("roleRef"):
        return []
    said = {name: (role or {}).get(field, "") for name, field in (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))}
    return [{"reason": "FieldValueInvalid", "message": f"Invalid value: {shown(said)}: cannot change roleRef", "field": "roleRef"}]


def _claim(spec: Obj, before: Obj, bound: bool) -> list[Cause]:
    """A volume, and a class where there was none, may be filled in; sizes change on bound claims."""
    free = {name for name in ("volumeName", "storageClassName") if not before.get(name)}
    if bound:
        free |= {"resources", "volumeAttributesClassName"}
    if {k: v for k, v in spec.items() if k not in free} == {k: v for k, v in before.items() if k not in free}:
        return []
    return [_forbidden("spec", _CLAIM_TEXT)]


def _without_images(containers: list[Obj] | None) -> list[Obj]:
    return [{k: v for k, v in item.items() if k != "image"} for item in containers or ()]


def _pod(spec: Obj, old: Obj) -> list[Cause]:
    if spec == old:
        return []
    causes: list[Cause] = []
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            if not container.get("image"):
                where = f"spec.{group}[{index}].image"
                causes.append({"reason": "FieldValueRequired", "message": "Required value", "field": where})
    rest, before = dict(spec), dict(old)
    for group in ("containers", "initContainers"):
        rest[group], before[group] = _without_images(spec.get(group)), _without_images(old.get(group))
    causes += _deadline(spec, old)
    for key in ("activeDeadlineSeconds",):
        rest.pop(key, None), before.pop(key, None)
    tolerations, had = spec.get("tolerations") or [], old.get("tolerations") or []
    if all(item in tolerations for item in had):
        rest.pop("tolerations", None), before.pop("tolerations", None)
    else:
        text = "existing toleration can not be modified except its tolerationSeconds"
        kept = {(t.get("key"), t.get("operator"), t.get("value"), t.get("effect")) for t in tolerations}
        if all((t.get("key"), t.get("operator"), t.get("value"), t.get("effect")) in kept for t in had):
            rest.pop("tolerations", None), before.pop("tolerations", None)
        else:
            causes.append(_forbidden("spec.tolerations", text))
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        rest.pop("terminationGracePeriodSeconds"), before.pop("terminationGracePeriodSeconds")
    causes += _gates(rest, before)
    if rest != before:
        causes.append(_forbidden("spec", _POD_TEXT))
    return causes


def _deadline(spec: Obj, old: Obj) -> list[Cause]:
    new, was = spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if new == was or was is None:
        return []
    if new is None or new > was:
        text = f"Invalid value: {shown(new)}: must be less than or equal to previous value"
        return [{"reason": "FieldValueInvalid", "message": text, "field": "spec.activeDeadlineSeconds"}]
    return []


def _gates(rest: Obj, before: Obj) -> list[Cause]:
    """Scheduling gates may only be removed; while there are some, the node selector may be narrowed."""
    gates, had = rest.pop("schedulingGates", None) or [], before.pop("schedulingGates", None) or []
    added = [(at, gate) for at, gate in enumerate(gates) if gate not in had]
    if added:
        why = "only deletion is allowed, but found new scheduling gate"
        return [_forbidden(f"spec.schedulingGates[{at}].name", f"{why} '{gate.get('name', '')}'") for at, gate in added]
    if had:
        wider, was = rest.get("nodeSelector") or {}, before.get("nodeSelector") or {}
        if all(wider.get(key) == value for key, value in was.items()):
            rest.pop("nodeSelector", None), before.pop("nodeSelector", None)
    return []
