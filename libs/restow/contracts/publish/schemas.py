"""JSON Schemas (draft 7, the one that every AsyncAPI tool reads) of everything that is on the wire."""

from typing import Any

import msgspec

from restow.contracts import commands, events
from restow.contracts.codec import Commit, Decision
from restow.contracts.envelope import Envelope
from restow.contracts.publish.catalogue import meaning, tag

DRAFT = "http://json-schema.org/draft-07/schema#"
_REF = "#/definitions/"

HEADER_MEANINGS = {
    "ce-specversion": "The version of CloudEvents, always 1.0.",
    "ce-id": "Id of the commit, unique. After a lost answer, a commit with this id in the log means success.",
    "ce-type": "The form of the body.",
    "ce-source": "Who decided.",
    "ce-time": "When it was decided: RFC 3339, UTC, with milliseconds.",
    "content-type": "The media type of the body.",
    "restow-read": "The sequence that had been folded when this was decided.",
    "restow-logic": "The decider and its version, such as `session@1`.",
    "traceparent": "W3C trace context. May be absent.",
    "restow-log": "Id of the log that it was written for; a record that names another one is void. Absent in old logs.",
    "restow-release": "The release that decided: a version, and the image where it is known. Absent in old logs.",
    "restow-digest": "How far its writer had read the log, and the digest of all that: the record follows from this history and from no other. Absent in old logs.",
    "restow-reader": "The oldest reader that understands it: one that is older must not pass over what it does not know. Absent in old logs.",
    "Nats-Expected-Last-Subject-Sequence": "The writer's own last sequence, 0 for none: what makes two writers of a "
    "family unable to both succeed.",
}

EXAMPLE_ENVELOPE = Envelope(
    id="01JGFJJZ00Q8W6M3T5C2R7V9XA",
    source="restow/demo/session/restow-scheduler-session-0",
    time="2026-01-01T00:00:00.000Z",
    read=4711,
    logic="session@1",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    log="9f2c4be7d1a05368b7e2c94f0a6d1835",
    release="1.0.0",
    digest="4711:7d2b0f6f1c0e4b5fa2c9a4f0e3d18b96",
    reader=1,
)


def all_schemas() -> dict[str, dict[str, Any]]:
    """File name → self-contained schema: one an event, one a command, decision, commit and headers."""
    _, parts = msgspec.json.schema_components(
        [*events.EVENTS, *commands.COMMANDS, Decision, Commit], ref_template=_REF + "{name}"
    )
    found = {"headers.json": headers_schema()}
    for cls in events.EVENTS:
        found[f"events/{tag(cls)}.json"] = _one(cls, tag(cls), parts)
    for command in commands.COMMANDS:
        found[f"commands/{tag(command)}.json"] = _one(command, tag(command), parts)
    found["decision.json"] = _one(Decision, "decision", parts)
    found["commit.json"] = _one(Commit, "commit", parts)
    return found


def headers_schema() -> dict[str, Any]:
    """The envelope. Header values are strings on the wire."""
    full = EXAMPLE_ENVELOPE.headers()
    least = msgspec.structs.replace(EXAMPLE_ENVELOPE, traceparent="", log="", release="", digest="", reader=0).headers()
    fixed = {"ce-specversion", "ce-type", "content-type"}
    properties: dict[str, Any] = {}
    for name, value in full.items():
        properties[name] = {"type": "string", "description": HEADER_MEANINGS.get(name, "")}
        if name in fixed:
            properties[name]["enum"] = [value]
        else:
            properties[name]["examples"] = [value]
    properties["ce-time"]["format"] = "date-time"
    properties["restow-read"]["pattern"] = "^[0-9]+$"
    properties["restow-reader"]["pattern"] = "^[0-9]+$"
    properties["Nats-Expected-Last-Subject-Sequence"] = {
        "type": "string",
        "pattern": "^[0-9]+$",
        "description": HEADER_MEANINGS["Nats-Expected-Last-Subject-Sequence"],
    }
    return {
        "$schema": DRAFT,
        "$id": "urn:restow:schema:headers",
        "title": "Headers of a commit",
        "description": "CloudEvents 1.0 in binary mode, and what Restow adds.",
        "type": "object",
        "properties": properties,
        "required": list(least),
    }


def _one(cls: type[msgspec.Struct], name: str, parts: dict[str, Any]) -> dict[str, Any]:
    own = parts[cls.__name__]
    head = {"$schema": DRAFT, "$id": f"urn:restow:schema:{name}"}
    body = {**own, "title": name}
    if cls not in (Decision, Commit):
        body["description"] = meaning(cls)
    reached = {part: parts[part] for part in sorted(_reached(own, parts))}
    return _tidy({**head, **body, **({"definitions": reached} if reached else {})})


def _reached(schema: Any, parts: dict[str, Any]) -> set[str]:
    """The names of every definition that this schema needs."""
    found: set[str] = set()
    todo = [schema]
    while todo:
        here = todo.pop()
        if isinstance(here, dict):
            ref = here.get("$ref", "")
            if ref.startswith(_REF) and ref[len(_REF) :] not in found:
                found.add(ref[len(_REF) :])
                todo.append(parts[ref[len(_REF) :]])
            todo.extend(here.values())
        elif isinstance(here, list | tuple):
            todo.extend(here)
    return found


def _tidy(schema: Any) -> Any:
    """Descriptions on one line: docstrings come with their indentation."""
    if isinstance(schema, dict):
        return {
            k: " ".join(v.split()) if k == "description" and isinstance(v, str) else _tidy(v) for k, v in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [_tidy(item) for item in schema]
    return schema
