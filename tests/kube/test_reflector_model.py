"""Whatever the API does, in whatever order: what the reflector hands on ends equal to what is there, and never goes back."""

from hypothesis import given
from hypothesis import strategies as st
from kube.streams import bookmark, error, line, node, page

from restow.kube.decode import NODES
from restow.kube.reflector import Bookmark, Config, Delete, List, Reflector, Replace, Restart, Upsert

NAMES = "abcdef"
FAULTS = (
    "fine", "fine", "fine", "500", "429", "410", "410 line", "reset", "cut", "garbled", "duplicate", "stale", "compact",
)  # fmt: skip


class Server:
    """An API server in twenty lines: objects, history, and a script of what goes wrong next."""

    def __init__(self):
        self.version = 1
        self.objects: dict[str, int] = {}
        self.history: list[tuple[int, str, str]] = []
        self.oldest = 0
        self.snapshots: dict[str, tuple[int, list[tuple[str, int]]]] = {}

    def restore(self, version: int) -> None:
        """From a backup: some of the objects, of a history that ends here."""
        self.objects = dict.fromkeys(sorted(self.objects)[::2], version)
        self.history = [(version, "ADDED", name) for name in self.objects]
        self.version = self.oldest = version
        self.snapshots.clear()

    def change(self, name: str, delete: bool) -> None:
        if delete and name not in self.objects:
            return
        self.version += 1
        kind = "DELETED" if delete else "MODIFIED" if name in self.objects else "ADDED"
        self.history.append((self.version, kind, name))
        if delete:
            del self.objects[name]
        else:
            self.objects[name] = self.version

    def at(self, version: int) -> dict[str, int]:
        objects: dict[str, int] = {}
        for when, kind, name in self.history:
            if when <= version:
                objects.pop(name, None) if kind == "DELETED" else objects.update({name: when})
        return objects

    def listed(self, query: dict[str, str], stale: bool) -> bytes:
        if "continue" in query:
            version, rest = self.snapshots[query["continue"]]
        else:
            version = max(1, self.version - 3) if stale and "resourceVersion" in query else self.version
            rest = sorted(self.at(version).items())
        some, rest = rest[: int(query["limit"])], rest[int(query["limit"]) :]
        token = f"t{len(self.snapshots)}" if rest else ""
        self.snapshots[token] = (version, rest)
        return page(version, *(node(name, at) for name, at in some), more=token)

    def lines(self, since: int) -> list[bytes]:
        """Of a version of the future nothing is said; the bookmark that would tell comes later."""
        if since > self.version:
            return []
        found = [line(kind, node(name, at)) for at, kind, name in self.history if at > since]
        return [*found, bookmark(self.version)]


class Follower:
    """What somebody makes of the changes, checking that nothing goes back."""

    def __init__(self, reflector: Reflector):
        self.reflector = reflector
        self.objects: dict[str, int] = {}
        self.newest: dict[str, int] = {}

    def take(self, changes) -> None:
        for change in changes:
            match change:
                case Upsert(one):
                    self._newer(one.metadata.name, int(one.metadata.resource_version))
                    self.objects[one.metadata.name] = int(one.metadata.resource_version)
                case Delete(key, one):
                    self._newer(key, int(one.metadata.resource_version))
                    self.objects.pop(key, None)
                case Replace(keys, version):
                    for key in self.objects.keys() - keys:
                        self._newer(key, int(version))
                        del self.objects[key]
                case Restart(_, wait):
                    assert 0 <= wait <= 1000
                case Bookmark():
                    pass

    def _newer(self, name: str, version: int) -> None:
        assert version >= self.newest.get(name, 0)
        self.newest[name] = version


def serve(server: Server, follower: Follower, fault: str, now: int, meanwhile) -> None:
    """One request and its answer. `meanwhile` changes the server between request and answer."""
    reflector = follower.reflector
    request = reflector.request(now)
    meanwhile()
    query = dict(request.query)
    if fault in ("500", "429", "reset"):
        follower.take(reflector.on_error(0 if fault == "reset" else int(fault), now))
    elif isinstance(request, List):
        expired = "continue" in query and (fault == "410" or query["continue"] not in server.snapshots)
        future = int(query.get("resourceVersion", "0")) > server.version
        if future:
            follower.take(reflector.on_error(504, now, "Timeout: Too large resource version"))
        elif expired:
            follower.take(reflector.on_error(410, now))
        else:
            body = server.listed(query, fault == "stale")
            follower.take(reflector.on_page(body[:-5] if fault in ("cut", "garbled") else body, now))
    elif fault == "410" or int(query["resourceVersion"]) < server.oldest:
        follower.take(reflector.on_error(410, now))
    else:
        watch(server, follower, fault, int(query["resourceVersion"]), now)


def watch(server: Server, follower: Follower, fault: str, since: int, now: int) -> None:
    reflector, lines = follower.reflector, server.lines(since)
    half = len(lines) // 2
    if fault == "duplicate":
        lines = [one for each in lines for one in (each, each)] + lines[:half]
    elif fault == "garbled" and lines:
        lines = [*lines[:half], lines[half][:-3], *lines[half:]]
    elif fault == "410 line":
        lines = [*lines[:half], error(410), *lines[half:]]
    elif fault == "cut":
        lines = lines[:half]
    elif fault == "compact":
        server.oldest = server.version
    for one in lines:
        before = int(reflector.version)
        told = reflector.on_line(one, now)
        follower.take(told)
        # Every line that says anything is newer than all before it: no change is told twice, none out of order.
        assert int(reflector.version) >= before
        assert all(int(reflector.version) > before for change in told if not isinstance(change, Restart))
    follower.take(reflector.on_error(0, now) if fault == "cut" else reflector.on_end(now + 1_000))


changes = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=4)


@given(st.lists(st.tuples(st.sampled_from(FAULTS), changes, changes), max_size=25), st.booleans())
def test_what_is_handed_on_ends_equal_to_what_is_there(script, restart):
    server = Server()
    follower = Follower(Reflector(NODES, "", Config(page_size=2, min_backoff=10, max_backoff=1000)))
    now = 0

    def apply(some) -> None:
        for name, delete in some:
            server.change(name, delete)

    for i, (fault, before, between) in enumerate(script):
        apply(before)
        serve(server, follower, fault, now, lambda some=between: apply(some))
        now += 1_000
        if restart and i == len(script) // 2 and follower.reflector.synced:
            # Another process takes over and knows what the fold knows.
            follower.reflector = Reflector(NODES, follower.reflector.version, Config(page_size=2, max_backoff=1000))
    for _ in range(10):
        serve(server, follower, "fine", now, lambda: None)
        now += 1_000
    assert follower.reflector.synced
    assert follower.objects == server.objects
    assert int(follower.reflector.version) == server.version


@given(
    st.lists(st.tuples(st.sampled_from(FAULTS), changes, changes), max_size=12),
    st.sampled_from([(1, 10_000), (3, 10_000), (5_000, 0)]),
    st.lists(st.tuples(st.sampled_from(FAULTS), changes, changes), max_size=12),
)
def test_after_a_backup_was_restored_everything_there_is_handed_on(before, restored, after):
    """Either the API is away for a while, and may be past the version known when it can be reached again, or it is far behind."""
    server, now = Server(), 0
    server.version = 10_000
    follower = Follower(Reflector(NODES, "", Config(page_size=2, min_backoff=10, max_backoff=1000)))
    back, away = restored

    def play(script) -> None:
        nonlocal now
        for fault, some, others in script:
            for name, delete in some:
                server.change(name, delete)
            serve(server, follower, fault, now, lambda those=others: [server.change(*one) for one in those])
            now += 1_000

    play(before)
    serve(server, follower, "reset", now, lambda: None)
    server.restore(server.version - back)
    follower.newest.clear()
    now += away
    play([("fine", [], []), *after] if back > 100 else after)
    play([("fine", [], [])] * 10)
    assert follower.reflector.synced
    assert follower.objects == server.objects
