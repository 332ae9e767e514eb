"""Reads the protobuf bodies that kubectl's generators send (`create deployment`, `create namespace`, `drain`, …).

The field numbers are those of k8s.io/api's generated.proto. Fields that a table does not name are accepted
only where they are empty; anything else is refused, so nothing is dropped silently. Answers are always JSON.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime
from typing import Any

from restow.kubesim.errors import unsupported_media
from restow.kubesim.objects import Obj, rfc3339

MAGIC = b"k8s\x00"

# A field is (name, type). Types: s text, i number (0 means absent), I optional number, b flag (false means
# absent), B optional flag, x bytes, q Quantity, t Time, p int-or-string, or a message's name; a leading `*` repeats;
# `m:x` is a map from text to x.
Field = tuple[str, str]
MESSAGES: dict[str, dict[int, Field]] = {
    "ObjectMeta": {
        1: ("name", "s"), 2: ("generateName", "s"), 3: ("namespace", "s"), 4: ("selfLink", "s"), 5: ("uid", "s"),
        6: ("resourceVersion", "s"), 7: ("generation", "i"), 8: ("creationTimestamp", "t"),
        9: ("deletionTimestamp", "t"), 10: ("deletionGracePeriodSeconds", "I"), 11: ("labels", "m:s"),
        12: ("annotations", "m:s"), 13: ("ownerReferences", "*OwnerReference"), 14: ("finalizers", "*s"),
    },
    "OwnerReference": {
        1: ("kind", "s"), 3: ("name", "s"), 4: ("uid", "s"), 5: ("apiVersion", "s"), 6: ("controller", "B"),
        7: ("blockOwnerDeletion", "B"),
    },
    "LabelSelector": {1: ("matchLabels", "m:s"), 2: ("matchExpressions", "*Requirement")},
    "Requirement": {1: ("key", "s"), 2: ("operator", "s"), 3: ("values", "*s")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "I"), 2: ("preconditions", "Preconditions"), 3: ("orphanDependents", "B"),
        4: ("propagationPolicy", "s"), 5: ("dryRun", "*s"),
    },
    "Preconditions": {1: ("uid", "s"), 2: ("resourceVersion", "s")},
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec")},
    "NamespaceSpec": {1: ("finalizers", "*s")},
    "ConfigMap": {1: ("metadata", "ObjectMeta"), 2: ("data", "m:s"), 3: ("binaryData", "m:x"), 4: ("immutable", "B")},
    "Secret": {
        1: ("metadata", "ObjectMeta"), 2: ("data", "m:x"), 3: ("type", "s"), 4: ("stringData", "m:s"),
        5: ("immutable", "B"),
    },
    "ServiceAccount": {1: ("metadata", "ObjectMeta"), 4: ("automountServiceAccountToken", "B")},
    "Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec")},
    "ServiceSpec": {
        1: ("ports", "*ServicePort"), 2: ("selector", "m:s"), 3: ("clusterIP", "s"), 4: ("type", "s"),
        5: ("externalIPs", "*s"), 7: ("sessionAffinity", "s"), 8: ("loadBalancerIP", "s"), 10: ("externalName", "s"),
        11: ("externalTrafficPolicy", "s"),
    },
    "ServicePort": {
        1: ("name", "s"), 2: ("protocol", "s"), 3: ("port", "i"), 4: ("targetPort", "p"), 5: ("nodePort", "i"),
        6: ("appProtocol", "s"),
    },
    "Deployment": {1: ("metadata", "ObjectMeta"), 2: ("spec", "DeploymentSpec")},
    "DeploymentSpec": {
        1: ("replicas", "I"), 2: ("selector", "LabelSelector"), 3: ("template", "PodTemplateSpec"),
        4: ("strategy", "DeploymentStrategy"), 5: ("minReadySeconds", "i"), 6: ("revisionHistoryLimit", "I"),
        7: ("paused", "b"), 9: ("progressDeadlineSeconds", "I"),
    },
    "DeploymentStrategy": {1: ("type", "s"), 2: ("rollingUpdate", "RollingUpdate")},
    "RollingUpdate": {1: ("maxUnavailable", "p"), 2: ("maxSurge", "p")},
    "PodTemplateSpec": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "Pod": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "PodSpec": {
        2: ("containers", "*Container"), 3: ("restartPolicy", "s"), 4: ("terminationGracePeriodSeconds", "I"),
        5: ("activeDeadlineSeconds", "I"), 6: ("dnsPolicy", "s"), 7: ("nodeSelector", "m:s"),
        8: ("serviceAccountName", "s"), 9: ("serviceAccount", "s"), 10: ("nodeName", "s"), 11: ("hostNetwork", "b"),
        19: ("schedulerName", "s"), 20: ("initContainers", "*Container"), 22: ("tolerations", "*Toleration"),
        24: ("priorityClassName", "s"), 25: ("priority", "I"),
    },
    "Container": {
        1: ("name", "s"), 2: ("image", "s"), 3: ("command", "*s"), 4: ("args", "*s"), 5: ("workingDir", "s"),
        6: ("ports", "*ContainerPort"), 7: ("env", "*EnvVar"), 8: ("resources", "Resources"),
        13: ("terminationMessagePath", "s"), 14: ("imagePullPolicy", "s"), 16: ("stdin", "b"),
        17: ("stdinOnce", "b"), 18: ("tty", "b"),
    },
    "ContainerPort": {
        1: ("name", "s"), 2: ("hostPort", "i"), 3: ("containerPort", "i"), 4: ("protocol", "s"), 5: ("hostIP", "s"),
    },
    "EnvVar": {1: ("name", "s"), 2: ("value", "s")},
    "Resources": {1: ("limits", "m:q"), 2: ("requests", "m:q")},
    "Toleration": {
        1: ("key", "s"), 2: ("operator", "s"), 3: ("value", "s"), 4: ("effect", "s"), 5: ("tolerationSeconds", "I"),
    },
    "Job": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec")},
    "JobSpec": {
        1: ("parallelism", "I"), 2: ("completions", "I"), 3: ("activeDeadlineSeconds", "I"),
        4: ("selector", "LabelSelector"), 5: ("manualSelector", "B"), 6: ("template", "PodTemplateSpec"),
        7: ("backoffLimit", "I"), 8: ("ttlSecondsAfterFinished", "I"), 9: ("completionMode", "s"),
        10: ("suspend", "B"),
    },
    "CronJob": {1: ("metadata", "ObjectMeta"), 2: ("spec", "CronJobSpec")},
    "CronJobSpec": {
        1: ("schedule", "s"), 2: ("startingDeadlineSeconds", "I"), 3: ("concurrencyPolicy", "s"), 4: ("suspend", "B"),
        5: ("jobTemplate", "JobTemplate"), 6: ("successfulJobsHistoryLimit", "I"), 7: ("failedJobsHistoryLimit", "I"),
        8: ("timeZone", "s"),
    },
    "JobTemplate": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec")},
    "PodDisruptionBudget": {1: ("metadata", "ObjectMeta"), 2: ("spec", "BudgetSpec")},
    "BudgetSpec": {
        1: ("minAvailable", "p"), 2: ("selector", "LabelSelector"), 3: ("maxUnavailable", "p"),
        4: ("unhealthyPodEvictionPolicy", "s"),
    },
    "PriorityClass": {
        1: ("metadata", "ObjectMeta"), 2: ("value", "I"), 3: ("globalDefault", "b"), 4: ("description", "s"),
        5: ("preemptionPolicy", "s"),
    },
    "ResourceQuota": {1: ("metadata", "ObjectMeta"), 2: ("spec", "QuotaSpec")},
    "QuotaSpec": {1: ("hard", "m:q"), 2: ("scopes", "*s")},
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "Binding": {1: ("metadata", "ObjectMeta"), 2: ("target", "ObjectReference")},
    "ObjectReference": {
        1: ("kind", "s"), 2: ("namespace", "s"), 3: ("name", "s"), 4: ("uid", "s"), 5: ("apiVersion", "s"),
        6: ("resourceVersion", "s"), 7: ("fieldPath", "s"),
    },
    "SelfSubjectAccessReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "AccessSpec")},
    "SelfSubjectRulesReview": {1: ("metadata", "ObjectMeta"), 2: ("spec", "RulesSpec")},
    "RulesSpec": {1: ("namespace", "s")},
    "AccessSpec": {1: ("resourceAttributes", "ResourceAttributes"), 2: ("nonResourceAttributes", "PathAttributes")},
    "ResourceAttributes": {
        1: ("namespace", "s"), 2: ("verb", "s"), 3: ("group", "s"), 4: ("version", "s"), 5: ("resource", "s"),
        6: ("subresource", "s"), 7: ("name", "s"),
    },
    "PathAttributes": {1: ("path", "s"), 2: ("verb", "s")},
}  # fmt: skip


def decode(raw: bytes) -> Obj:
    """The JSON object that a `k8s\\0` body carries; 415 for kinds and fields that kubesim does not read."""
    if not raw.startswith(MAGIC):
        raise unsupported_media(
            "the body claims to be Kubernetes protobuf but does not start with its magic number"
        )
    try:
        return _decode(raw[len(MAGIC) :])
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise unsupported_media(f"malformed protobuf body: {error}") from None


def _decode(raw: bytes) -> Obj:
    api_version = kind = ""
    payload = b""
    for number, value in _fields(raw):
        if number == 1:
            named = {inner: text for inner, text in _fields(value) if isinstance(text, bytes)}
            api_version, kind = named.get(1, b"").decode(), named.get(2, b"").decode()
        elif number == 2:
            payload = value
    if kind not in MESSAGES:
        raise unsupported_media(
            f"kubesim does not read protobuf bodies of kind {kind!r}; send application/json"
        )
    return {"apiVersion": api_version, "kind": kind, **_message(payload, kind, kind)}


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = raw[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, position
        shift += 7


def _fields(raw: bytes) -> list[tuple[int, Any]]:
    """(number, value) pairs: an int for varints, bytes for everything with a length."""
    found: list[tuple[int, Any]] = []
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            found.append((number, value))
        elif wire == 2:
            length, position = _varint(raw, position)
            if position + length > len(raw):
                raise IndexError("truncated field")
            found.append((number, raw[position : position + length]))
            position += length
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            found.append((number, raw[position : position + size]))
            position += size
        else:
            raise IndexError(f"wire type {wire}")
    return found


def _is_empty(value: Any) -> bool:
    """Zero, or a message of nothing but zeros: gogo writes fields that are not optional even when unset."""
    if isinstance(value, int):
        return value == 0
    if not value:
        return True
    try:
        return all(_is_empty(inner) for _, inner in _fields(value))
    except IndexError:
        return False


def _message(raw: bytes, name: str, place: str) -> Obj:
    table = MESSAGES[name]
    result: Obj = {}
    for number, value in _fields(raw):
        field = table.get(number)
        if field is None:
            if not _is_empty(value):
                raise unsupported_media(
                    f"kubesim does not read protobuf field {number} of {place}; send application/json"
                )
            continue
        key, kind = field
        if kind.startswith("*"):
            result.setdefault(key, []).append(_value(value, kind[1:], f"{place}.{key}", keep=True))
        elif kind.startswith("m:"):
            entry = dict(_fields(value))
            text = entry.get(1, b"").decode()
            result.setdefault(key, {})[text] = _value(
                entry.get(2, b""), kind[2:], f"{place}.{key}", keep=True
            )
        else:
            decoded = _value(value, kind, f"{place}.{key}", keep=False)
            if decoded is not None:
                result[key] = decoded
    return result


def _value(value: Any, kind: str, place: str, *, keep: bool) -> Any:
    """One decoded value; None where it stands for an absent field."""
    match kind:
        case "s":
            text = value.decode()
            return text if text or keep else None
        case "i":
            return _signed(value) or None
        case "I":
            return _signed(value)
        case "b":
            return True if value else None
        case "B":
            return bool(value)
        case "x":
            return base64.b64encode(value).decode()
        case "q":
            return dict(_fields(value)).get(1, b"0").decode()
        case "t":
            seconds = dict(_fields(value)).get(1, 0)
            return rfc3339(datetime.fromtimestamp(_signed(seconds), UTC)) if seconds else None
        case "p":
            parts = dict(_fields(value))
            return (
                parts.get(3, b"").decode()
                if parts.get(1)
                else (_signed(parts.get(2, 0)) or (0 if parts else None))
            )
    return _message(value, kind, place)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
