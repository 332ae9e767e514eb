"""What other servers answered while something was done: heard by whoever asks for it, in the task that does it and those that it starts."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class Call(msgspec.Struct):
    """One request: times in ns, the `code` of HTTP (0: nobody answered), and in one word why it was no success. `to`: address and port of a workload's hook, of whose path nothing is
    told: a token may be in it. None for the Kubernetes API."""

    method: str
    path: str
    begin: int
    end: int
    code: int
    reason: str = ""
    to: tuple[str, int] | None = None


CALLS: ContextVar[list[Call] | None] = ContextVar("calls", default=None)
"""Where calls are put down; None where nobody wants to know."""


def what(path: str) -> str:
    """The kind of object that a path of the Kubernetes API leads to, without names: `pods/eviction`."""
    parts = [part for part in path.split("/") if part]
    if not parts or parts[0] not in ("api", "apis"):
        return ""
    parts = parts[2 if parts[0] == "api" else 3 :]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join(parts[::2])
