"""The part of AsyncAPI 3.0's structure that our document uses, checked without a network."""

import json
import re
from pathlib import Path
from typing import Any

_TOP = {"asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components"}
_CHANNEL = {"address", "messages", "title", "summary", "description", "servers", "parameters", "tags", "bindings"}
_OPERATION = {"action", "channel", "title", "summary", "description", "security", "tags", "bindings", "messages", "reply"}
_MESSAGE = {"headers", "payload", "contentType", "name", "title", "summary", "description", "tags", "bindings", "traits"}


def problems(document: dict[str, Any], folder: Path) -> list[str]:
    """One line a violation; empty for a sound document. `folder` is where relative references start."""
    found = [f"unknown field {k!r}" for k in set(document) - _TOP]
    if not re.fullmatch(r"3\.\d+\.\d+", str(document.get("asyncapi"))):
        found.append(f"asyncapi: {document.get('asyncapi')!r} is not version 3")
    found += [f"info.{k} is missing" for k in ("title", "version") if not document.get("info", {}).get(k)]
    for name, channel in document.get("channels", {}).items():
        found += _channel(name, channel)
    for name, operation in document.get("operations", {}).items():
        found += _operation(name, operation, document)
    for name, message in document.get("components", {}).get("messages", {}).items():
        found += _message(name, message)
    return found + _references(document, document, folder, "#")


def _channel(name: str, channel: dict[str, Any]) -> list[str]:
    found = [f"channels.{name}: unknown field {k!r}" for k in set(channel) - _CHANNEL]
    named = set(re.findall(r"\{(.+?)\}", channel.get("address", "")))
    given = set(channel.get("parameters", {}))
    found += [f"channels.{name}: parameter {{{p}}} is not described" for p in sorted(named - given)]
    found += [f"channels.{name}: parameter {p} is not in the address" for p in sorted(given - named)]
    return found


def _operation(name: str, operation: dict[str, Any], document: dict[str, Any]) -> list[str]:
    found = [f"operations.{name}: unknown field {k!r}" for k in set(operation) - _OPERATION]
    if operation.get("action") not in ("send", "receive"):
        found.append(f"operations.{name}: action {operation.get('action')!r}; allowed: send, receive")
    channel = operation.get("channel", {}).get("$ref", "")
    if not channel.startswith("#/channels/"):
        found.append(f"operations.{name}: channel must be a reference to a channel")
    for message in operation.get("messages", []):
        if not message.get("$ref", "").startswith(f"{channel}/messages/"):
            found.append(f"operations.{name}: its messages must be those of its channel")
    return found


def _message(name: str, message: dict[str, Any]) -> list[str]:
    found = [f"messages.{name}: unknown field {k!r}" for k in set(message) - _MESSAGE]
    for part in ("headers", "payload"):
        if set(message.get(part, {})) != {"schemaFormat", "schema"}:
            found.append(f"messages.{name}.{part}: expected schemaFormat and schema")
    return found


def _references(part: Any, document: dict[str, Any], folder: Path, where: str) -> list[str]:
    if isinstance(part, list):
        return [line for i, item in enumerate(part) for line in _references(item, document, folder, f"{where}/{i}")]
    if not isinstance(part, dict):
        return []
    ref = part.get("$ref")
    own = [f"{where}: {ref} leads nowhere"] if isinstance(ref, str) and not _leads(ref, document, folder) else []
    return own + [line for k, v in part.items() for line in _references(v, document, folder, f"{where}/{k}")]


def _leads(ref: str, document: dict[str, Any], folder: Path) -> bool:
    file, _, pointer = ref.partition("#")
    here: Any = document
    if file:
        path = folder / file
        if not path.is_file():
            return False
        here = json.loads(path.read_bytes())
    for step in pointer.strip("/").split("/") if pointer.strip("/") else []:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(here, dict) or step not in here:
            return False
        here = here[step]
    return True
