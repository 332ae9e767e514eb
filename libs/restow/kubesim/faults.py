"""Scripted faults: which requests fail, and how. Deterministic: rules count, they never roll dice."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from restow.kubesim.errors import ApiError, bad_request
from restow.kubesim.resources import Resource
from restow.kubesim.routes import RequestInfo

if TYPE_CHECKING:
    from restow.kubesim.store import Store
    from restow.kubesim.watch import Hub

ACTIONS = ("status", "drop", "delay", "cut", "lag")
WATCH_ACTIONS = ("cut", "duplicate", "gone", "stall", "resume", "compact")
_STATUSES = {
    400: ("BadRequest", "injected fault"),
    403: ("Forbidden", "injected fault"),
    404: ("NotFound", "injected fault"),
    409: ("Conflict", "injected fault: the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "injected fault: too old resource version"),
    429: ("TooManyRequests", "injected fault: the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "injected fault: internal error"),
    503: ("ServiceUnavailable", "injected fault: the server is currently unable to handle the request"),
    504: ("Timeout", "injected fault: the server was unable to return a response in the time allotted"),
}  # fmt: skip


@dataclass(slots=True)
class Rule:
    """One scripted fault. Empty patterns match everything; `after` matches are let through first."""

    action: str
    verb: str = ""
    """get, list, watch, create, update, patch, delete, deletecollection; comma-separated; "" is any."""
    resource: str = ""
    """`pods`, `pods/binding`, `deployments.apps`; "" is any."""
    name: str = ""
    """Regular expression on the object's name."""
    namespace: str = ""
    count: int = 1
    """How many requests it hits; -1 for all."""
    after: int = 0
    code: int = 503
    retry_after: int = 0
    """Seconds, sent as Retry-After with the status."""
    seconds: float = 0.0
    """Of a delay. It ends earlier when the faults are cleared."""
    versions: int = 0
    """Of a lag: how many resourceVersions lists are behind."""
    seen: int = 0
    hits: int = 0
    done: int = 0
    """Delayed requests that were answered."""

    def matches(self, info: RequestInfo) -> bool:
        if self.verb and info.verb not in self.verb.split(","):
            return False
        if self.resource and self.resource not in _names(info):
            return False
        if self.namespace and self.namespace != info.namespace:
            return False
        return not self.name or re.search(self.name, info.name) is not None

    def take(self, info: RequestInfo) -> bool:
        """Whether the rule hits this request; counts it."""
        if 0 <= self.count <= self.hits or not self.matches(info):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        return True

    def error(self) -> ApiError:
        reason, text = _STATUSES.get(self.code, ("", "injected fault"))
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else None
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else None
        return ApiError(self.code, reason, text, details, headers)


def _names(info: RequestInfo) -> tuple[str, ...]:
    plural, group = info.resource.plural, info.resource.group
    full = f"{plural}.{group}" if group else plural
    sub = f"/{info.subresource}" if info.subresource else ""
    return (plural + sub, full + sub)


class Faults:
    """The script, and the way to break open watches."""

    def __init__(self, store: Store, hub: Hub):
        self.store = store
        self.hub = hub
        self.rules: list[Rule] = []
        self._cleared = asyncio.Event()

    @property
    def lag(self) -> bool:
        return any(rule.action == "lag" for rule in self.rules)

    def add(self, action: str, **fields: Any) -> Rule:
        """Add a rule; 400 for unknown actions and fields."""
        if action not in ACTIONS:
            raise bad_request(f"unknown fault {action!r}; allowed: {', '.join(ACTIONS)}")
        try:
            rule = Rule(action, **fields)
            re.compile(rule.name)
        except (TypeError, re.error) as error:
            raise bad_request(f"bad fault: {error}") from None
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        self.rules.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()
        for watcher in self.hub.watchers():
            watcher.resume()

    async def delay(self, rule: Rule) -> None:
        """Wait `rule.seconds`, or until the faults are cleared."""
        try:
            async with asyncio.timeout(rule.seconds):
                await self._cleared.wait()
        except TimeoutError:
            pass

    def find(self, info: RequestInfo) -> Rule | None:
        """The first rule that hits the request."""
        for rule in self.rules:
            if rule.action != "lag" and rule.take(info):
                return rule
        return None

    def lagged(self, info: RequestInfo, current: int) -> int:
        """The resourceVersion that a list is served from."""
        for rule in self.rules:
            if rule.action == "lag" and rule.take(info):
                return max(self.store.shelf(info.resource).compacted, current - rule.versions)
        return current

    def watches(self, action: str, resource: Resource | None = None, *, last: int = 1) -> int:
        """Break the open watches of a resource (of all without one); returns how many."""
        if action not in WATCH_ACTIONS:
            raise bad_request(f"unknown watch fault {action!r}; allowed: {', '.join(WATCH_ACTIONS)}")
        if action == "compact":
            self.store.compact(resource)
            return 0
        found = self.hub.watchers(resource)
        for watcher in found:
            match action:
                case "cut":
                    watcher.cut()
                case "duplicate":
                    for framed in list(watcher.recent)[-last:]:
                        watcher.push(framed)
                case "gone":
                    watcher.fail(ApiError(410, "Expired", "injected fault: too old resource version"))
                case "stall":
                    watcher.stall()
                case "resume":
                    watcher.resume()
        return len(found)

    def show(self) -> dict[str, Any]:
        fields = Rule.__dataclass_fields__
        return {"rules": [{name: getattr(rule, name) for name in fields} for rule in self.rules]}

