"""List and watch as a sans-I/O state machine: it says which request to make next and digests what came back.

The driver loop (`watch.watch`) is: `request(now)`, wait until `not_before`, send it, feed `on_page`, `on_line` and then
`on_end` or `on_error`; every one of them returns the changes to hand on. Times are given in; nothing here reads a clock.

What it guarantees:

* Changes never go back in time: whatever is not newer than what was seen is dropped, and a relist asks for
  `resourceVersionMatch=NotOlderThan` the version known, and drops a page that is older all the same.
* Unless the API's own history has: it was restored from a backup, or built anew. Where a server has not reached the version known, the
  next list asks for no version, which is answered from the store itself and by no cache that lags (client-go does the same). If even
  that is older, there is nothing to wait for: it is taken, and said as `HISTORY_RESET`.
* A watch from a version of the future is silent, whatever happens, until the server has come past it. So whoever resumes first asks for one
  object `NotOlderThan` the version known: a server that is behind says so at once. What was not heard of for longer than `trust` is
  listed anew: in that time an API that came back from a backup may have overtaken the version. (client-go does neither.)
* A line counts only when it is complete and readable; after a cut the watch resumes from the last one that counted.
* A completed list is followed by `Replace` with the keys of everything that exists; an interrupted one never is.
* Every failure leads to a bounded wait: exponential up to `max_backoff`, or what `Retry-After` asks for up to the same.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from restow.kube.decode import Collection, DecodeError, Line, Undecodable

W = TypeVar("W")

_GONE, _TOO_LARGE, _TOO_MANY, _BAD_REQUEST, _TIMEOUT = 410, 413, 429, 400, 504
_LINES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
HISTORY_RESET = "HistoryReset"
"""The reason of a Restart: the store is behind what the log knows. What is listed now replaces everything."""

_SHORT_WATCH = 1_000
"""A watch that ends sooner than this, in ms, without any line counts as a failure."""


MOST = 128 << 20
"""Bytes of a page; larger ones are asked for again with fewer objects."""
FEWER = 8


class Config(msgspec.Struct, frozen=True):
    """Times in milliseconds, except `watch_seconds`, which the server ends a watch after. `trust`: for so long after the last line, list or
    orderly end the API's history is taken to be the same one. A restore takes longer; the last bookmark comes two seconds before the end."""

    page_size: int = 500
    watch_seconds: int = 290
    min_backoff: int = 50
    max_backoff: int = 30_000
    trust: int = 3_000


class List(msgspec.Struct, frozen=True):
    """GET a page of the collection, not before this time."""

    query: tuple[tuple[str, str], ...]
    not_before: int


class Watch(msgspec.Struct, frozen=True):
    """GET the collection's changes as lines, not before this time."""

    query: tuple[tuple[str, str], ...]
    not_before: int


class Upsert(msgspec.Struct, Generic[W], frozen=True):
    object: W | Undecodable


class Delete(msgspec.Struct, Generic[W], frozen=True):
    """The object as it last was."""

    key: str
    object: W | Undecodable


class Replace(msgspec.Struct, frozen=True):
    """A list is complete: what has none of these keys is gone, as of this version (empty where nothing is served that could have one)."""

    keys: frozenset[str]
    version: str


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to this version was seen."""

    version: str


class Restart(msgspec.Struct, frozen=True):
    """Not a change: the stream broke and goes on after `wait` ms. To be logged and counted by `reason`."""

    reason: str
    wait: int
    message: str = ""


Change = Upsert[Any] | Delete[Any] | Replace | Bookmark | Restart
Jitter = Callable[[int], int]


class Reflector(Generic[W]):
    """`known` is the collection's version in the fold, empty if there is none. `jitter` may shorten or lengthen a wait
    (milliseconds in and out), so that many watchers do not come back at once."""

    def __init__(
        self, collection: Collection[W], known: str = "", config: Config = Config(), jitter: Jitter = lambda wait: wait
    ):
        self.collection = collection
        self._config = config
        self._page = config.page_size
        self._jitter = jitter
        self._version = known
        self._listed = False
        self._more = ""
        self._consistent = False
        """Whether the list is to come from the store itself, whatever the version known."""
        self._behind = False
        """Whether the present watch has shown that its server is behind the version known."""
        self._unsure = False
        """Whether a watch has ended since the last list, so that the server's version is asked for before the next."""
        self._checking = False
        self._heard = 0
        """When anything was last said that only the same history can say."""
        self._keys: set[str] = set()
        self._failures = 0
        self._garbled = False
        self._not_before = 0
        self._started = 0
        self._progress = False
        self._over = False

    @property
    def version(self) -> str:
        """Everything up to here was handed on, once the first list is complete."""
        return self._version

    @property
    def most(self) -> int:
        """Bytes that the next page may have; 0 for any number. Five hundred objects of 1.5 MB, which any user may make, are more than a watcher has memory
        for. A server that gives more than it is asked for is read all the same in the end."""
        return MOST if self._page > 1 else 0

    @property
    def synced(self) -> bool:
        """Whether a list is complete and the watch follows it."""
        return self._listed

    @property
    def broken(self) -> bool:
        """Nothing more is wanted from the present response: make the next request."""
        return self._over

    def request(self, now: int) -> List | Watch:
        """The next request. It is called once a request, and starts its clock."""
        not_before = max(now, self._not_before)
        self._started, self._progress, self._over, self._behind = not_before, False, False, False
        self._checking = self._listed and self._unsure
        if self._checking:
            return List((("limit", "1"), *self._not_older()), not_before)
        if self._listed:
            self._unsure = True
            return Watch(
                (
                    ("watch", "true"),
                    ("resourceVersion", self._version),
                    ("allowWatchBookmarks", "true"),
                    ("timeoutSeconds", str(self._config.watch_seconds)),
                ),
                not_before,
            )
        limit = ("limit", str(self._page))
        if self._more:
            return List((limit, ("continue", self._more)), not_before)
        if self._version and not self._consistent:
            return List((limit, *self._not_older()), not_before)
        return List((limit,), not_before)

    def _not_older(self) -> tuple[tuple[str, str], ...]:
        return ("resourceVersion", self._version), ("resourceVersionMatch", "NotOlderThan")

    # -- what came back ----------------------------------------------------------------------------------------------

    def on_page(self, body: bytes, now: int) -> list[Change]:
        """The body of a 200 to a List."""
        try:
            page = self.collection.page(body)
        except DecodeError as error:
            return [self._fail("Garbled", now, str(error))]
        if not page.version:
            return [self._fail("Garbled", now, f"a page of {self.collection.name} without resourceVersion")]
        older = _older(page.version, self._version)
        if older and not self._consistent:
            self._relist(consistent=True)
            return [self._fail("StaleList", now, f"version {page.version} is older than {self._version}")]
        if self._checking:
            return self._is_there(now)
        self._heard = now
        changes: list[Change] = []
        if older and not self._more:
            why = f"the API's own version is {page.version}, the log knows {self._version}: it was restored or built anew"
            changes.append(Restart(HISTORY_RESET, 0, why))
        changes += [Upsert(item) for item in page.items]
        self._keys.update(self.collection.key(item) for item in page.items)
        # Also where this list is never completed: its objects were handed on, and the next one must not be older than they are.
        self._more, self._version = page.more, page.version
        self._not_before = 0
        if not page.more:
            changes.append(Replace(frozenset(self._keys), page.version))
            self._listed, self._keys, self._consistent, self._unsure = True, set(), False, False
        return changes

    def _is_there(self, now: int) -> list[Change]:
        """The server has come to the version known, by the same way or by another one."""
        self._unsure, self._not_before = False, 0
        silent = now - self._heard
        self._heard = now
        if silent <= self._config.trust:
            return []
        self._relist()
        return [Restart("Silence", 0, f"nothing was heard for {silent} ms")]

    def on_line(self, body: bytes, now: int) -> list[Change]:
        """One complete line of a Watch. After a line that ends the stream the rest is ignored until `request`."""
        if self._over:
            return []
        try:
            line = self.collection.line(body)
        except DecodeError as error:
            return self._on_garbled(now, str(error))
        if line.type == "ERROR":
            self._over = True
            status = line.status
            retry = status.details.retry_after_seconds if status and status.details else None
            code = (status.code if status else 0) or 500
            return self._refused(code, now, status.message if status else "", None if retry is None else retry * 1000)
        if not line.version or line.type not in _LINES:
            return self._on_garbled(now, f"a {line.type!r} of {self.collection.name} at version {line.version!r}")
        if not _older(line.version, self._version):
            self._heard = now
        if not _newer(line.version, self._version):
            return self._not_newer(line, now)
        changes = self._digest(line)
        self._version = line.version
        self._progress = True
        self._garbled = False
        self._settle()
        return changes

    def on_end(self, now: int) -> list[Change]:
        """The response is over, as it should be: after its last page, or after the watch's time. A line that was cut off
        was not complete and is simply not fed."""
        if self._over or not self._listed:
            return []
        self._over = True
        if self._behind:
            return [self._is_behind(now)]
        self._heard = now
        if self._progress or now - self._started >= _SHORT_WATCH:
            self._settle()
            return []
        return [self._fail("ShortWatch", now)]

    def on_error(self, status: int, now: int, message: str = "", retry_after: int | None = None) -> list[Change]:
        """An HTTP status other than 200, or 0 where the connection failed or broke. `retry_after` in ms."""
        if self._over:
            return []
        self._over = True
        return self._refused(status, now, message, retry_after)

    # -- within ------------------------------------------------------------------------------------------------------

    def _digest(self, line: Line[W]) -> list[Change]:
        if line.type == "BOOKMARK" or line.object is None:
            return [Bookmark(line.version)]
        if line.type == "DELETED":
            return [Delete(self.collection.key(line.object), line.object)]
        return [Upsert(line.object)]

    def _not_newer(self, line: Line[W], now: int) -> list[Change]:
        """Mostly a repetition. A server that says how far it is, and is behind before it has sent anything new, may never come to what is
        known: a watch from a version of the future is silent, whatever happens."""
        if self._progress or not _older(line.version, self._version):
            return []
        self._behind = True
        if line.type != "BOOKMARK":
            return []
        self._over = True
        return [self._is_behind(now)]

    def _is_behind(self, now: int) -> Restart:
        self._relist(consistent=True)
        return self._fail("Behind", now, f"the server is behind version {self._version}")

    def _on_garbled(self, now: int, message: str) -> list[Change]:
        """The line is lost, so nothing after it may count: watch again from before it, and list if that fails too."""
        self._over = True
        if self._garbled:
            self._relist()
        self._garbled = not self._garbled
        return [self._fail("Garbled", now, message)]

    def _refused(self, status: int, now: int, message: str, retry_after: int | None) -> list[Change]:
        if status == 0 and self._listed and not self._checking and now - self._started >= _SHORT_WATCH:
            self._settle()
        if status == _GONE and self._listed:
            # The first time nothing is wrong: history is finite. Only a repetition is worth waiting for.
            self._relist()
            return [self._fail("Expired", now, message, soon=True)]
        if status in (_GONE, _BAD_REQUEST) and self._more:
            self._relist()
            return [self._fail("ContinueExpired", now, message, soon=status == _GONE)]
        if status == _TIMEOUT and "resource version" in message.lower():
            self._relist(consistent=True)
            return [self._fail("VersionTooLarge", now, message, retry_after)]
        if status == _TOO_LARGE and (self._checking or not self._listed) and self._page > 1:
            # Anew, for a continue token holds for the same limit only.
            self._page = max(1, self._page // FEWER)
            self._relist()
            return [self._fail("PageTooLarge", now, message, soon=True)]
        if status == _TOO_MANY:
            return [self._fail("TooManyRequests", now, message, retry_after)]
        reason = "Disconnected" if status == 0 else f"Status{status}"
        return [self._fail(reason, now, message, retry_after)]

    def _relist(self, *, consistent: bool = False) -> None:
        self._listed, self._more, self._keys = False, "", set()
        self._consistent = self._consistent or consistent

    def _settle(self) -> None:
        """A watch works. A list alone does not prove it: one that is followed by a 410 each time must slow down."""
        self._failures = 0
        self._not_before = 0

    def _fail(
        self, reason: str, now: int, message: str = "", retry_after: int | None = None, soon: bool = False
    ) -> Restart:
        longest = self._config.max_backoff
        wait = min(self._config.min_backoff * 2 ** min(self._failures, 20), longest)
        if soon and self._failures == 0:
            wait = 0
        self._failures += 1
        wait = max(0, min(self._jitter(wait), longest))
        if retry_after is not None:
            wait = max(wait, min(retry_after, longest))
        self._not_before = now + wait
        return Restart(reason, wait, message)


def _newer(version: str, than: str) -> bool:
    """Versions are decimal numbers in order, of any length (KEP-5504, and always so in practice); others are compared for equality."""
    one, other = _number(version), _number(than)
    if one is not None and other is not None:
        return one > other
    return version != than and version != ""


def _older(version: str, than: str) -> bool:
    one, other = _number(version), _number(than)
    return one is not None and other is not None and one < other


def _number(version: str) -> tuple[int, str] | None:
    """Ordered as the numbers are."""
    if not (version.isascii() and version.isdecimal()):
        return None
    digits = version.lstrip("0")
    return len(digits), digits
