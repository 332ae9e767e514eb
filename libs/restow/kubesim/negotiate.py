"""Content negotiation: what the client accepts, what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from restow.kubesim import protobuf
from restow.kubesim.errors import ApiError, bad_request, not_acceptable, unsupported_media

JSON = "application/json"
_KNOWN = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")

_decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Form:
    """The wire form that was agreed on. `kind` is "", Table, PartialObjectMetadata or APIGroupDiscoveryList."""

    kind: str = ""
    version: str = ""
    yaml: bool = False


PLAIN = Form()
_cache: dict[str, list[tuple[str, dict[str, str]]]] = {}


def _clauses(header: str) -> list[tuple[str, dict[str, str]]]:
    found = _cache.get(header)
    if found is not None:
        return found
    clauses = []
    for clause in header.split(","):
        media, *params = (part.strip() for part in clause.split(";"))
        pairs = dict(param.split("=", 1) for param in params if "=" in param)
        clauses.append((media.lower(), pairs))
    if len(_cache) < 256:
        _cache[header] = clauses
    return clauses


def accepted(header: str | None, transforms: tuple[str, ...] = ()) -> Form:
    """The first form of an Accept header that we speak; 406 if there is none."""
    if not header or header in (JSON, "*/*"):
        return PLAIN
    for media, params in _clauses(header):
        if media not in (JSON, "application/yaml", "*/*", "application/*"):
            continue
        kind = params.get("as", "")
        if not kind:
            return Form(yaml=media == "application/yaml")
        kind = kind.removesuffix("List") if kind.startswith("Partial") else kind
        if kind in transforms:
            return Form(kind, params.get("v", "v1"), media == "application/yaml")
    raise not_acceptable(_KNOWN)


BAD_YAML = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What the loader raises: its own, and whatever the conversion of `2026-02-30`, `!!bool x` or 5 000 brackets has raised."""


def body_of(raw: bytes, content_type: str) -> Any:
    """The decoded JSON or YAML body; 400 if malformed, 415 for anything else."""
    media = content_type.partition(";")[0].strip().lower()
    if media in ("", "application/json", "*/*", "application/octet-stream"):
        try:
            return _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _undecodable(raw, str(error)) from None
    if media == "application/yaml":
        try:
            return yaml.safe_load(raw)
        except BAD_YAML as error:
            raise _undecodable(raw, str(error)) from None
    if media == "application/vnd.kubernetes.protobuf":
        return protobuf.decode(raw)
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(_KNOWN[:2])}"
    raise unsupported_media(text)


def object_of(raw: bytes, content_type: str) -> dict[str, Any]:
    """The body, which must be a JSON object."""
    body = body_of(raw, content_type)
    if not isinstance(body, dict):
        raise _undecodable(raw, "json: cannot unmarshal into an object")
    if "metadata" in body and not isinstance(body["metadata"], dict | None):
        raise _undecodable(raw, "json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    return body


def _undecodable(raw: bytes, why: str) -> ApiError:
    return bad_request(f"couldn't get version/kind; json parse error: {why}" if raw else "EOF")
