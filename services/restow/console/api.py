"""The console's public API: the page uses nothing else. What is here only reads; what changes something is in `acts`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from aiohttp import web

from restow.console import answers
from restow.console.access import Access
from restow.console.acts import Acts, body
from restow.console.belts import belt
from restow.console.follow import Follower
from restow.console.frames import Frame, as_bytes, as_values, frame, seq_at
from restow.console.health import Verifier
from restow.console.index import KINDS, Index
from restow.console.moved import MOST, moved
from restow.console.orders import Orders
from restow.console.plan_maps import plan_maps, replanned
from restow.console.refused import Refused
from restow.console.shares import MOST_STEPS, shares
from restow.console.stories import Stories, reading
from restow.console.tour import tour
from restow.domain.config import text_of
from restow.eventlog.port import LogError
from restow.replay.find import Ambiguous, NotFound
from restow.replay.state_at import ReplayError
from restow.runtime.config_source import BadConfig, parse
from restow.runtime.http import Route, answer, describe
from restow.runtime.policy_file import read

NUMBER = {"type": "integer", "minimum": 0}
AT = {"at": NUMBER | {"description": "a sequence of the log; default: the last one that is folded"}, "time": NUMBER | {"description": "instead of `at`: the last commit by then, in ms"}}
BEAT = 0.25
"""Seconds between two looks at the log for those who follow it."""
STILL = 15.0
"""Seconds after which a stream says that it is there although nothing has changed."""
MOST_STREAMS = 32
MOST_READERS = 32
"""Questions that wait for their turn to read the log."""
MOST_PLANNED = 4
"""Of these such as ask for plans, which take longest: the others keep a place."""
MOST_POLICY = 32 * 1024
"""Characters of a policy that is tried."""
HOUR = 3_600_000
RUN = "Restow-Run"
"""Header: which run of the console has answered. Slots, and what a client keeps by them, are of one run."""


def number(request: web.Request, name: str, default: int, most: int = 1 << 60) -> int:
    """Raises Refused."""
    said = request.query.get(name)
    if said is None:
        return default
    if not (said.isascii() and said.isdigit() and len(said) < 20 and int(said) <= most):
        raise Refused(f"{name} is {said[:40]!r}; allowed: 0 to {most}")
    return int(said)


class _Replan(msgspec.Struct, forbid_unknown_fields=True):
    policy: Annotated[str, msgspec.Meta(max_length=MOST_POLICY)] = ""


class Api:
    """Handlers of one log."""

    def __init__(self, follower: Follower, stories: Stories, access: Access | None = None, orders: Orders | None = None, verify: Sequence[str] | None = None) -> None:
        self.verifier = Verifier(verify)
        self._follower, self._stories, self._access = follower, stories, access
        self._streams = 0
        # Stories take as long as the log, and wait where a broker is away: the map must not wait for them. Nor the latest commits, which are read quickly.
        # Plans, which anybody may ask for, keep no story waiting.
        self._tellers, self._readers, self._planners = (ThreadPoolExecutor(1, f"restow-console-{name}") for name in ("stories", "commits", "plans"))
        self._waiting = self._planning = 0
        self.closing = asyncio.Event()
        frames, get = "application/octet-stream", "GET"
        limits = {"limit": NUMBER}
        what = {"what": {"type": "string", "description": "`pod/NAMESPACE/NAME`, a uid, `node/NAME`, `migration/ID`, as for `restow why`"}}
        said = {200: "found", 304: "as your ETag has it", 400: "not understood", 404: "there is none"}
        self.routes = [
            Route(get, "/api/v1/log", "The log: where it is, how far it is folded, its health", self._log, {200: "the log"}),
            Route(get, "/api/v1/live", "Server-sent events `log`, each as /api/v1/log, whenever it has changed", self._live, {200: "a stream", 503: "too many streams"}, content="text/event-stream"),
            Route(get, "/api/v1/frame", "Everything on the map at an instant, as typed arrays (console/frames.py); with `since` what differs from that sequence", self._frame, said, AT | {"since": NUMBER}, content=frames),
            Route(get, "/api/v1/frame.json", "The same as JSON", self._frame_json, said, AT | {"since": NUMBER}),
            Route(get, "/api/v1/names/{kind}", f"Names of slots, of {', '.join(KINDS)} or words", self._names, said, {"from": NUMBER, "to": NUMBER}),
            Route(get, "/api/v1/timeline", "Events by family over the log's time, and what one may want to jump to", self._timeline, said, {"buckets": NUMBER}),
            Route(get, "/api/v1/moment", "The sequence of a time, and what there is to jump to before and after it", self._moment, said, AT),
            Route(get, "/api/v1/happened", "The latest commits up to an instant, in sentences", self._happened, said, AT | limits),
            Route(get, "/api/v1/plans", "The plans made by an instant, the latest first, and how far they were", self._plans, said, AT | {"empty": NUMBER | {"description": "0: without those that found nothing to do, but for the latest"}}),
            Route(get, "/api/v1/plans/{plan}", "One plan with its moves", self._plan, said, AT),
            Route(get, "/api/v1/plans/{plan}/maps", "The nodes that a plan touches, with who is on them before it and who is to be after it", self._plan_maps, said, AT),
            Route(get, "/api/v1/plans/{plan}/values", "By how much less a plan would win without each of its moves, in thousandths of its unit", self._plan_values, said, AT),
            Route(get, "/api/v1/moved", "What moved: the moves that ended within so long before an instant, and those under way then", self._moved, said, AT | limits | {"within": NUMBER | {"description": "ms; default: an hour"}}),
            Route(get, "/api/v1/queues", "Queues, who waits in them since when, for what, and which single change would help; and Reservations with their times", self._queues, said, AT),
            Route(get, "/api/v1/shares", "What each queue used, was guaranteed, deserved and might have, and how many of its pods waited, over the log's time until an instant", self._shares, said, AT | {"steps": NUMBER}),
            Route(get, "/api/v1/health", "Who leads each family, the log's size, what is archived; and the verdict of `restow verify`, which the first question begins", self._health, {200: "found"}),
            Route(get, "/api/v1/policy", "The descheduler's policy that was in force at an instant, as YAML", self._policy, said, AT),
            Route("POST", "/api/v1/replan", "The plans that a policy makes at an instant; nothing is written. Each as of /api/v1/plans/{plan}, with its `maps` and `values`", self._replan,
                  {200: "the plans", 400: "not understood, or no plan can be made", 404: "there is no such instant", 503: "too many ask"}, AT, body={"policy": {"type": "string", "maxLength": MOST_POLICY, "description": "a DeschedulerPolicy in YAML; without one, that which was in force"}}),
            Route(get, "/api/v1/report", "What plans promised and what was really won and lost by an instant, as `restow report`; and what eviction budgets have left then", self._report, said, AT),
            Route(get, "/api/v1/search", "Nodes, pods, moves, plans, Reservations that hold something, workloads, queues and PodGroups by a part of their name", self._search, said, AT | limits | {"q": {"type": "string"}}),
            Route(get, "/api/v1/find", "The slot of a thing, by its path", self._find, said, AT | what),
            Route(get, "/api/v1/belt", "What a node, a pod, a move, a Reservation, a PodGroup or a queue was over the whole log; `at` says which of several pods of one name", self._belt, said, AT | what),
            Route(get, "/api/v1/why", "The story of a thing and why it is as it is, as `restow why`, at an instant", self._why, said | {409: "several things have that name"}, AT | what),
            Route(get, "/api/v1/tour", "A few instants that show what happened: each a sequence, what to show there, and a sentence", self._tour, said),
            Route(get, "/openapi.json", "This description", self._openapi, {200: "OpenAPI 3.1"}),
            *Acts(follower, access, orders).routes,
        ]

    @property
    def _index(self) -> Index:
        return self._follower.index

    @property
    def run(self) -> str:
        return self._follower.run

    def add_to(self, app: web.Application) -> None:
        for route in self.routes:
            app.router.add_route(route.method, route.path, self._told(route.handler))

    def _told(self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handled(request: web.Request) -> web.StreamResponse:
            self._follower.start()
            try:
                response = await handler(request)
            except Refused as error:
                response = answer({"error": str(error)}, error.status)
            if not response.prepared:
                response.headers[RUN] = self.run
            return response

        return handled

    def close(self) -> None:
        """Ends streams; what waits for its turn is not answered any more."""
        self.closing.set()
        for one in (self._tellers, self._readers, self._planners):
            one.shutdown(wait=False, cancel_futures=True)

    # -- what all of them need -----------------------------------------------------------------------------------------

    async def _at(self, request: web.Request) -> int:
        """The sequence that is asked for. Raises Refused."""
        index = self._index
        if "time" in request.query:
            time = number(request, "time", 0)
            return await asyncio.to_thread(self._locked(lambda: seq_at(index, time)))
        at = number(request, "at", index.last)
        if at > index.last:
            raise Refused(f"sequence {at} is not folded yet; the last one is {index.last}", 404)
        # Before the first commit of all there was nothing. Before a snapshot there was something, and it is not known.
        if at < index.first and index.first > 1:
            raise Refused(f"sequence {at} is before what is known of this log, which begins at {index.first}", 404)
        return at

    async def _cached(self, request: web.Request, tag: str, make: Callable[[], Any], reader: Executor | None = None) -> web.Response:
        """What `make` says, unless the client has it. `tag` tells answers of this run apart; what follows from an instant alone never changes. (The next run may
        be of another version, or begin at another sequence.) With `reader` it takes its turn there."""
        etag = f'"{self.run}-{tag}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if etag in [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]:
            return web.Response(status=304, headers=headers)
        made = await (asyncio.to_thread(make) if reader is None else self._in_turn(request, make, reader))
        if made is None:
            raise Refused("there is none of that name at that instant", 404)
        if isinstance(made, bytes):
            return web.Response(body=made, content_type="application/octet-stream", headers=headers)
        return answer(made, headers=headers)

    async def _in_turn(self, request: web.Request, make: Callable[[], Any], reader: Executor) -> Any:
        """Raises Refused, and what `make` raises. Nothing is made for somebody who has gone before it was his turn."""
        if self._waiting >= MOST_READERS:
            raise Refused(f"{MOST_READERS} questions wait to be answered from the log already; ask again later", 503)

        def made() -> Any:
            if has_left(request):
                raise Refused("nobody waits for it any more", 503)
            return make()

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(reader, made)
        except (LogError, TimeoutError) as error:
            raise Refused(f"the log cannot be read: {error or 'it took too long'}", 503) from None
        finally:
            self._waiting -= 1

    def _locked(self, make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            with self._follower.lock:
                return make()

        return made

    # -- handlers ------------------------------------------------------------------------------------------------------

    def said(self) -> dict[str, Any]:
        """The log and its health. Times in ms."""
        follower, index = self._follower, self._index
        return {
            "source": follower.source.name,
            "cluster": follower.source.cluster,
            "log": follower.source.log_id,
            "live": follower.live,
            "first": index.first,
            "last": index.last,
            "tail": follower.tail,
            "run": self.run,
            "from": index.began,
            "to": index.latest,
            "now": int(time.time() * 1000),
            "events": index.events,
            "bytes": index.bytes,
            "void": follower.void,
            "unknown": follower.unknown,
            "broken": follower.broken,
            "error": follower.error or follower.away,
            "done": follower.done,
        }

    async def _log(self, _request: web.Request) -> web.Response:
        return answer(self.said())

    async def _live(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= MOST_STREAMS:
            raise Refused(f"{MOST_STREAMS} pages follow this console already", 503)
        from restow.console.guard import HEADERS

        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", RUN: self.run, **HEADERS})
        self._streams += 1
        try:
            await response.prepare(request)
            last, at = None, 0.0
            while not self.closing.is_set():
                said = self.said()
                told = {key: value for key, value in said.items() if key != "now"}
                if told != last or time.monotonic() - at > STILL:
                    # Who does not read for so long (a laptop that sleeps) asks again.
                    async with asyncio.timeout(STILL):
                        await response.write(b"event: log\ndata: " + msgspec.json.encode(said) + b"\n\n")
                    last, at = told, time.monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.closing.wait(), BEAT)
                if has_left(request) or not self._may_look(request):
                    break
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._streams -= 1
        return response

    def _may_look(self, request: web.Request) -> bool:
        """Whether who has begun a stream may still: sessions end, and tokens are taken back."""
        return self._access is None or self._access.who(request.headers, request.cookies, request.remote) is not None

    async def _frame(self, request: web.Request) -> web.Response:
        return await self._framed(request, "b", as_bytes)

    async def _frame_json(self, request: web.Request) -> web.Response:
        return await self._framed(request, "j", as_values)

    async def _framed(self, request: web.Request, form: str, write: Callable[[Frame], Any]) -> web.Response:
        at = await self._at(request)
        since = number(request, "since", 0) if "since" in request.query else None
        if since is not None and since > self._index.last:
            raise Refused(f"since: sequence {since} is not folded yet; the last one is {self._index.last}", 404)
        make = self._locked(lambda: frame(self._index, at, since))
        # `last` and the number of words grow while the rest stays.
        return await self._cached(request, f"{form}-{at}-{'' if since is None else since}-{self._index.last}", lambda: write(make()))

    async def _names(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        if kind not in (*KINDS, "words"):
            raise Refused(f"no names of {kind[:40]!r}; allowed: {', '.join(KINDS)}, words", 404)
        first = number(request, "from", 0)
        upto = min(number(request, "to", first + answers.MOST_NAMES), first + answers.MOST_NAMES)
        return answer(await asyncio.to_thread(self._locked(lambda: answers.names(self._index, kind, first, upto))))

    async def _timeline(self, request: web.Request) -> web.Response:
        buckets = max(1, number(request, "buckets", 200, answers.MOST_BUCKETS))
        return await self._cached(request, f"t-{buckets}-{self._index.last}", self._locked(lambda: answers.timeline(self._index, buckets)))

    async def _moment(self, request: web.Request) -> web.Response:
        at = await self._at(request)
        return answer(await asyncio.to_thread(self._locked(lambda: answers.moment(self._index, at))))

    async def _happened(self, request: web.Request) -> web.Response:
        at, count = await self._at(request), max(1, number(request, "limit", 30, 200))
        labels, source = self._index.labels, self._stories.source
        return await self._cached(request, f"h-{at}-{count}", lambda: reading(source, lambda: answers.happened(source, labels, at, count)), self._readers)

    async def _plans(self, request: web.Request) -> web.Response:
        at = await self._at(request)
        empty = bool(number(request, "empty", 1, 1))
        return await self._cached(request, f"p-{at}-{empty:d}", self._locked(lambda: answers.plans(self._index, at, empty)))

    async def _plan(self, request: web.Request) -> web.Response:
        at, id = await self._at(request), request.match_info["plan"]
        return await self._cached(request, f"p-{at}-{hash_of(id)}", self._locked(lambda: answers.plan(self._index, id, at)))

    async def _plan_maps(self, request: web.Request) -> web.Response:
        at, id = await self._at(request), request.match_info["plan"]
        made = self._made(id, at)
        # A plan is as it was made, whatever the instant, but for what somebody has approved of it.
        said = self._index.plans[id].answer(at)
        return await self._cached(request, f"m-{made}-{said[0] if said else 0}-{hash_of(id)}", self._locked(lambda: plan_maps(self._index, id, at)))

    async def _plan_values(self, request: web.Request) -> web.Response:
        at, id = await self._at(request), request.match_info["plan"]
        seq = self._made(id, at)
        return await self._asked(request, f"v-{seq}-{hash_of(id)}", lambda: self._stories.values(id, seq))

    async def _moved(self, request: web.Request) -> web.Response:
        at, within, limit = await self._at(request), number(request, "within", HOUR), number(request, "limit", MOST, MOST)
        return await self._cached(request, f"x-{at}-{within}-{limit}", self._locked(lambda: moved(self._index, at, within, limit)))

    def _made(self, plan: str, at: int) -> int:
        """The sequence of a plan. Raises Refused where there was none by then."""
        note = self._index.plans.get(plan)
        if note is None or note.seq > at:
            raise Refused("there is none of that name at that instant", 404)
        return note.seq

    async def _queues(self, request: web.Request) -> web.Response:
        at = await self._at(request)
        return await self._asked(request, f"q-{at}", lambda: self._stories.queues(at))

    async def _shares(self, request: web.Request) -> web.Response:
        at, steps = await self._at(request), max(1, number(request, "steps", 120, MOST_STEPS))
        return await self._cached(request, f"s-{at}-{steps}", lambda: shares(self._index, at, steps, self._follower.lock))

    async def _health(self, _request: web.Request) -> web.Response:
        found = await asyncio.to_thread(self._follower.health)
        # A log that is still being read here is verified when that has ended: both want the processor.
        read = self._index.last >= self._follower.tail > 0
        return answer({**found, "verify": self.verifier.said(self._index.last) if read else {"state": "waits"}}, headers={"Cache-Control": "no-store"})

    async def _policy(self, request: web.Request) -> web.Response:
        at = await self._at(request)
        return await self._asked(request, f"y-{at}", lambda: self._stories.policy(at))

    async def _replan(self, request: web.Request) -> web.Response:
        at, text = await self._at(request), (await body(request, _Replan)).policy
        if self._planning >= MOST_PLANNED:
            raise Refused(f"{MOST_PLANNED} plans are asked for already; ask again later", 503)
        self._planning += 1
        try:
            policy = await asyncio.to_thread(lambda: text_of(read(parse(text)))) if text.strip() else ""
            made = await self._in_turn(request, lambda: self._stories.replanned(at, policy), self._planners)
        except BadConfig as error:
            raise Refused(f"policy: {error}") from None
        except ReplayError as error:
            raise Refused(str(error)) from None
        finally:
            self._planning -= 1
        return answer(await asyncio.to_thread(self._locked(lambda: replanned(self._index, at, made))), headers={"Cache-Control": "no-store"})

    async def _report(self, request: web.Request) -> web.Response:
        at = await self._at(request)
        return await self._asked(request, f"r-{at}", lambda: self._stories.report(at))

    async def _search(self, request: web.Request) -> web.Response:
        at, text, limit = await self._at(request), request.query.get("q", "").strip(), max(1, number(request, "limit", 20, 200))
        if not 0 < len(text) <= 300:
            raise Refused("q: allowed: 1 to 300 characters")
        return answer(await asyncio.to_thread(self._locked(lambda: answers.search(self._index, text, at, limit))))

    async def _find(self, request: web.Request) -> web.Response:
        at, what = await self._at(request), request.query.get("what", "")
        return answer(await asyncio.to_thread(self._locked(lambda: answers.find(self._index, what, at))))

    async def _belt(self, request: web.Request) -> web.Response:
        at, what = await self._at(request), self._what(request)
        return await self._cached(request, f"b-{at}-{self._index.last}-{hash_of(what)}", self._locked(lambda: belt(self._index, what, at)))

    def _what(self, request: web.Request) -> str:
        """Raises Refused."""
        what = request.query.get("what", "").strip()
        if not 0 < len(what) <= 600:
            raise Refused("what: allowed: 1 to 600 characters")
        return what

    async def _why(self, request: web.Request) -> web.Response:
        at, what = await self._at(request), self._what(request)
        return await self._asked(request, f"w-{at}-{hash_of(what)}", lambda: self._stories.why(what, at))

    async def _asked(self, request: web.Request, tag: str, make: Callable[[], Any]) -> web.Response:
        try:
            return await self._cached(request, tag, make, self._tellers)
        except NotFound as error:
            raise Refused(str(error), 404) from None
        except Ambiguous as error:
            raise Refused(f"{error}: {', '.join(one.path for one in error.candidates[:20])}", 409) from None
        except ReplayError as error:
            raise Refused(str(error)) from None

    async def _tour(self, request: web.Request) -> web.Response:
        return await self._cached(request, f"o-{self._index.last}", self._locked(lambda: tour(self._index)))

    async def _openapi(self, _request: web.Request) -> web.Response:
        return answer(describe("console", self.routes))


def has_left(request: web.Request) -> bool:
    """Whether the connection of a request has ended."""
    return request.transport is None or request.transport.is_closing()


def hash_of(text: str) -> str:
    """A name as a part of an ETag, which takes no quotes."""
    from hashlib import sha256

    return sha256(text.encode(errors="replace")).hexdigest()[:16]
