"""Validation of built-in resources, with a real server's wording."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from restow.kubesim.errors import Cause, bad_request
from restow.kubesim.objects import Obj, dig
from restow.kubesim.resources import (
    CONFIGMAPS,
    CSINODES,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PERSISTENTVOLUMES,
    PODDISRUPTIONBUDGETS,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    Resource,
)
from restow.kubesim.schemas import shown
from restow.kubesim.selectors import label_selector_test

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_DNS_1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?$")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_QUANTITY_TEXT = (
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class Causes(list[Cause]):
    """The errors of an object, in the words of field.Error."""

    def invalid(self, field: str, value: Any, why: str) -> None:
        self.append(
            {
                "reason": "FieldValueInvalid",
                "message": f"Invalid value: {shown(value)}: {why}",
                "field": field,
            }
        )

    def required(self, field: str, why: str = "") -> None:
        message = f"Required value: {why}" if why else "Required value"
        self.append({"reason": "FieldValueRequired", "message": message, "field": field})

    def unsupported(self, field: str, value: Any, allowed: tuple[str, ...]) -> None:
        listed = ", ".join(f'"{item}"' for item in allowed)
        text = f"Unsupported value: {shown(value)}: supported values: {listed}"
        self.append({"reason": "FieldValueNotSupported", "message": text, "field": field})

    def forbidden(self, field: str, why: str) -> None:
        self.append({"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field})

    def duplicate(self, field: str, value: Any) -> None:
        self.append(
            {"reason": "FieldValueDuplicate", "message": f"Duplicate value: {shown(value)}", "field": field}
        )


# -- metadata ---------------------------------------------------------------------------------------


def metadata(resource: Resource, obj: Obj) -> Causes:
    """Name, labels and annotations."""
    causes = Causes()
    meta = obj["metadata"]
    name = meta.get("name")
    if not name:
        causes.required("metadata.name", "name or generateName is required")
    elif not isinstance(name, str):
        causes.invalid("metadata.name", name, "must be a string")
    else:
        for why in name_errors(resource, name):
            causes.invalid("metadata.name", name, why)
    _labels(causes, meta.get("labels"), "metadata.labels")
    causes += annotation_errors(obj)
    _owners(causes, meta.get("ownerReferences") or ())
    return causes


def _owners(causes: Causes, references: Sequence[Obj]) -> None:
    """One controller at most, and never an Event (apimachinery, ValidateOwnerReferences)."""
    path, controller = "metadata.ownerReferences", None
    for ref in references:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not ref.get(field):
                causes.invalid(f"{path}.{field}", ref.get(field) or "", "must not be empty" if field != "apiVersion" else "version must not be empty")
        if ref.get("kind") == "Event" and ref.get("apiVersion") in ("v1", "events.k8s.io/v1"):
            group, _, version = ref["apiVersion"].rpartition("/")
            causes.invalid(path, ref, f"{group}/{version}, Kind=Event is disallowed from being an owner")
        if ref.get("controller"):
            named = f"{ref.get('kind')}/{ref.get('name')}"
            if controller is not None:
                causes.invalid(path, list(references), f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {named}')
            controller = controller or named


def name_errors(resource: Resource, name: str) -> list[str]:
    if resource == NAMESPACES:
        pattern, text, limit = _LABEL, _LABEL_TEXT, 63
    elif resource == SERVICES:
        pattern, text, limit = _DNS_1035, _DNS_1035_TEXT, 63
    elif resource.kind in ("ClusterRole", "Role", "RoleBinding"):
        return []
    else:
        pattern, text, limit = _SUBDOMAIN, _SUBDOMAIN_TEXT, 253
    errors = []
    if len(name) > limit:
        errors.append(f"must be no more than {limit} characters")
    if not pattern.match(name):
        errors.append(text)
    return errors


def annotation_errors(obj: Obj) -> Causes:
    causes = Causes()
    found = obj["metadata"].get("annotations") or {}
    for key, value in found.items():
        _key(causes, key.lower(), "metadata.annotations")
        if not isinstance(value, str):
            raise TypeError("metadata.annotations must be of type string")
    return causes


def _key(causes: Causes, key: str, field: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.match(prefix):
        causes.invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if len(name) > 63:
        causes.invalid(field, key, "name part must be no more than 63 bytes")
    if not _QUALIFIED.match(name):
        causes.invalid(field, key, _KEY_TEXT)


def _labels(causes: Causes, labels: Obj | None, field: str) -> None:
    for key, value in (labels or {}).items():
        _key(causes, key, field)
        if not isinstance(value, str):
            raise TypeError(f"{field} must be of type string")
        if len(value) > 63:
            causes.invalid(field, value, "must be no more than 63 bytes")
        if value and not _QUALIFIED.match(value):
            causes.invalid(field, value, _VALUE_TEXT)


# -- pods -------------------------------------------------------------------------------------------


def pod_spec(causes: Causes, spec: Any, field: str, kind: str = "Pod") -> None:
    if not isinstance(spec, dict):
        causes.required(field)
        return
    containers = spec.get("containers")
    if not containers or not isinstance(containers, list):
        causes.required(f"{field}.containers")
        containers = []
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            _container(causes, container, f"{field}.{group}[{index}]", seen, kind)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.unsupported(
            f"{field}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never")
        )
    if (node := spec.get("nodeName")) and not _SUBDOMAIN.match(node):
        causes.invalid(f"{field}.nodeName", node, _SUBDOMAIN_TEXT)
    if node and spec.get("schedulingGates"):
        causes.append(
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: cannot be set until all schedulingGates have been cleared",
                "field": f"{field}.nodeName",
            }
        )
    _labels(causes, spec.get("nodeSelector"), f"{field}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _toleration(causes, toleration, f"{field}.tolerations[{index}]")
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        where = f"{field}.volumes[{index}].name"
        if not volume.get("name"):
            causes.required(where)
        elif volume["name"] in volumes:
            causes.duplicate(where, volume["name"])
        volumes.add(volume.get("name", ""))
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        causes.invalid(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    if (deadline := spec.get("activeDeadlineSeconds")) is not None and not 1 <= deadline <= 2**31 - 1:
        causes.invalid(
            f"{field}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"
        )


def _container(causes: Causes, container: Obj, field: str, seen: set[str], kind: str) -> None:
    name = container.get("name")
    if not name:
        causes.required(f"{field}.name")
    elif not _LABEL.match(name):
        causes.invalid(f"{field}.name", name, _LABEL_TEXT)
    elif name in seen:
        causes.duplicate(f"{field}.name", name)
    seen.add(name or "")
    if not container.get("image"):
        causes.required(f"{field}.image")
    policy = container.get("imagePullPolicy")
    if policy not in (None, "Always", "IfNotPresent", "Never"):
        causes.unsupported(f"{field}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never"))
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        if not number:
            causes.required(f"{field}.ports[{index}].containerPort")
        elif not 1 <= number <= 65535:
            causes.invalid(
                f"{field}.ports[{index}].containerPort", number, "must be between 1 and 65535, inclusive"
            )
    resources = container.get("resources") or {}
    for group in ("limits", "requests"):
        for name, value in (resources.get(group) or {}).items():
            where = f"{field}.resources.{group}[{name}]"
            if not _QUANTITY.match(str(value)):
                # A real server fails to decode such an object at all.
                raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {_QUANTITY_TEXT}')
            elif str(value).startswith("-"):
                causes.invalid(where, value, "must be greater than or equal to 0")
    _requests_within_limits(causes, resources, field)


def _requests_within_limits(causes: Causes, resources: Obj, field: str) -> None:
    limits = resources.get("limits") or {}
    for name, value in (resources.get("requests") or {}).items():
        limit = limits.get(name)
        if limit is None or not _QUANTITY.match(str(value)) or not _QUANTITY.match(str(limit)):
            continue
        if amount(value) > amount(limit):
            where = f"{field}.resources.requests"
            causes.invalid(where, str(value), f"must be less than or equal to {name} limit of {limit}")


_SCALES = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
_SCALES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}


def amount(quantity: Any) -> float:
    """A quantity's value, good enough to compare."""
    text = str(quantity)
    found = re.match(r"^([+-]?[\d.]+)(.*)$", text)
    if found is None:
        return 0.0
    if found[2] in _SCALES:
        return float(found[1]) * _SCALES[found[2]]
    return float(text)


def _toleration(causes: Causes, item: Obj, field: str) -> None:
    operator = item.get("operator") or "Equal"
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        causes.unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    if not item.get("key") and operator != "Exists":
        causes.invalid(f"{field}.operator", operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")  # fmt: skip
    if operator == "Exists" and item.get("value"):
        causes.invalid(f"{field}.operator", item, "value must be empty when `operator` is 'Exists'")
    if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
        causes.invalid(f"{field}.effect", item.get("effect", ""), "effect must be 'NoExecute' when `tolerationSeconds` is set")  # fmt: skip


# -- other kinds ------------------------------------------------------------------------------------


def _workload(causes: Causes, resource: Resource, obj: Obj) -> None:
    spec = obj.get("spec") or {}
    template = spec.get("template")
    if (replicas := spec.get("replicas")) is not None and (not isinstance(replicas, int) or replicas < 0):
        causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    selector = spec.get("selector")
    labels = dig(template, "metadata", "labels", default={})
    if not selector and resource != JOBS:
        causes.required("spec.selector")
    elif selector and not label_selector_test(selector)(labels):
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    if not isinstance(template, dict):
        causes.required("spec.template")
        return
    _labels(causes, labels, "spec.template.metadata.labels")
    pod_spec(causes, template.get("spec"), "spec.template.spec", resource.kind)
    policy = dig(template, "spec", "restartPolicy")
    if resource == JOBS:
        if policy not in ("OnFailure", "Never"):
            allowed = ("OnFailure", "Never")
            text = f"Required value: valid values: {', '.join(chr(34) + item + chr(34) for item in allowed)}"
            causes.append(
                {"reason": "FieldValueRequired", "message": text, "field": "spec.template.spec.restartPolicy"}
            )
    elif policy not in (None, "Always"):
        causes.unsupported("spec.template.spec.restartPolicy", policy, ("Always",))


def _budget(causes: Causes, obj: Obj) -> None:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.invalid("spec", {k: spec[k] for k in ("minAvailable", "maxUnavailable")}, "minAvailable and maxUnavailable cannot be both set")  # fmt: skip
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if isinstance(value, str) and not re.match(r"^\d+%$", value):
            causes.invalid(f"spec.{name}", value, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")  # fmt: skip
        elif isinstance(value, int) and value < 0:
            causes.invalid(f"spec.{name}", value, "must be greater than or equal to 0")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        causes.unsupported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def _specifics(causes: Causes, resource: Resource, obj: Obj) -> None:
    if resource == PODS:
        pod_spec(causes, obj.get("spec"), "spec")
    elif resource in (DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS):
        _workload(causes, resource, obj)
    elif resource == PODDISRUPTIONBUDGETS:
        _budget(causes, obj)
    elif resource == PERSISTENTVOLUMES:
        _driver(causes, dig(obj, "spec", "csi", "driver"), "spec.csi.driver")
    elif resource == CSINODES:
        for index, driver in enumerate(dig(obj, "spec", "drivers") or ()):
            _driver(causes, driver.get("name"), f"spec.drivers[{index}].name")


def _driver(causes: Causes, name: Any, field: str) -> None:
    """The name of a CSI driver is a DNS subdomain: without a slash, unlike a provisioner's."""
    if name is not None and (not isinstance(name, str) or not _SUBDOMAIN.match(name)):
        causes.invalid(field, name, _SUBDOMAIN_TEXT)


_MAPS = ("spec", "status", "data", "binaryData", "stringData")
_TEXTS = ("data", "binaryData", "stringData")


def shapes(resource: Resource, obj: Obj) -> None:
    """TypeError where a top-level field of a built-in kind has the wrong type."""
    for field in _MAPS:
        value = obj.get(field)
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{resource.kind}.{field} must be an object")
    if resource in (CONFIGMAPS, SECRETS):
        for field in _TEXTS:
            for key, value in (obj.get(field) or {}).items():
                if not isinstance(value, str):
                    raise TypeError(f"{resource.kind}.{field}.{key} must be of type string")


def new(resource: Resource, obj: Obj) -> Causes:
    """What is wrong with a new object."""
    causes = metadata(resource, obj)
    _specifics(causes, resource, obj)
    return causes


def changed(resource: Resource, obj: Obj, old: Obj) -> Causes:
    """What is wrong with an object that replaces `old`."""
    causes = Causes()
    if obj["metadata"].get("labels") != old["metadata"].get("labels"):
        _labels(causes, obj["metadata"].get("labels"), "metadata.labels")
    if (owners := obj["metadata"].get("ownerReferences")) != old["metadata"].get("ownerReferences"):
        _owners(causes, owners or ())
    if obj.get("spec") != old.get("spec"):
        _specifics(causes, resource, obj)
    return causes


def status(resource: Resource, obj: Obj) -> Causes:
    """What is wrong with a new status."""
    causes = Causes()
    phase = dig(obj, "status", "phase")
    if resource == PODS and phase not in (None, "Pending", "Running", "Succeeded", "Failed", "Unknown"):
        causes.unsupported("status.phase", phase, ("Failed", "Pending", "Running", "Succeeded", "Unknown"))
    return causes
