"""AsyncAPI 3.0: one channel a subject, one sender a channel, every service a receiver of all."""

from typing import Any

from restow.contracts.envelope import COMMIT_TYPE, CONTENT_TYPE
from restow.contracts.ids import FAMILIES, WRITERS
from restow.contracts.publish.catalogue import SUBJECT, by_family, tag

SCHEMA_FORMAT = "application/schema+json;version=draft-07"

_ABOUT = (
    "One JetStream stream a cluster holds everything that Restow knows and decided, in one total order. A message is a "
    "commit: an ordered list of decisions, each a command and its events. A family is written by one service and read "
    "by all. Appends carry `Nats-Expected-Last-Subject-Sequence`; no message carries a `Nats-Msg-Id`."
)


def document() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Restow's log",
            "version": "1.0.0",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {family: _channel(family) for family in FAMILIES},
        "operations": _operations(),
        "components": {
            "parameters": {"cluster": {"description": "The cluster's name: lower-case letters, digits, `-` and `_`."}},
            "messages": {f"{family}Commit": _message(family) for family in FAMILIES},
        },
    }


def _channel(family: str) -> dict[str, Any]:
    return {
        "address": f"{SUBJECT}.{family}",
        "title": f"Family {family}",
        "description": f"Commits of {WRITERS[family]}: " + ", ".join(tag(e) for e in by_family()[family]) + ".",
        "parameters": {"cluster": {"$ref": "#/components/parameters/cluster"}},
        "messages": {"commit": {"$ref": f"#/components/messages/{family}Commit"}},
    }


def _message(family: str) -> dict[str, Any]:
    return {
        "name": COMMIT_TYPE,
        "title": f"A commit of {WRITERS[family]}",
        "contentType": CONTENT_TYPE,
        "headers": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": "./schemas/headers.json"}},
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": "./schemas/commit.json"}},
    }


def _operations() -> dict[str, Any]:
    found = {}
    for written, service in WRITERS.items():
        found[f"{service}.append"] = _operation("send", written, f"{service} appends what it decided.")
        for read in FAMILIES:
            found[f"{service}.fold.{read}"] = _operation("receive", read, f"{service} folds family {read}.")
    return found


def _operation(action: str, family: str, summary: str) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{family}"},
        "summary": summary,
        "messages": [{"$ref": f"#/channels/{family}/messages/commit"}],
    }
