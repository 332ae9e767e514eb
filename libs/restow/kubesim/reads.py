"""get, list and watch."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from restow.kubesim import negotiate, table, watch
from restow.kubesim.errors import ApiError, bad_request, gone
from restow.kubesim.negotiate import Form, encode
from restow.kubesim.objects import Obj
from restow.kubesim.resources import EVENTS, EVENTS_V1
from restow.kubesim.responses import TRANSFORMS, as_yaml, partial, reply
from restow.kubesim.routes import RequestInfo, integer
from restow.kubesim.selectors import predicate
from restow.kubesim.shelf import Stored

if TYPE_CHECKING:
    from restow.kubesim.cluster import Cluster

_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


def render(cluster: Cluster, info: RequestInfo, form: Form, stored: Stored) -> bytes:
    """One object in the agreed form, without a trailing newline."""
    if not form.kind:
        return stored.raw if info.verbatim else encode(info.show(stored.obj))
    if form.kind == "Table":
        include = info.query.get("includeObject", "Metadata") or "Metadata"
        return encode(table.render(info, [stored.obj], cluster.store.clock(), include, form.version))
    return encode(partial(stored.obj, form.version))


def answer(cluster: Cluster, info: RequestInfo, form: Form, obj: Obj, status: int = 200) -> web.Response:
    """The response that shows an object."""
    stored = cluster.store.stored(
        info.resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    )
    if stored is None or stored.obj is not obj:
        stored = Stored("", obj, 0)
    raw = render(cluster, info, form, stored)
    if form.yaml:
        return as_yaml(raw, status)
    return reply(raw, status)


def get(cluster: Cluster, info: RequestInfo, accept: str | None) -> web.Response:
    form = negotiate.accepted(accept, TRANSFORMS)
    asked = info.query.get("resourceVersion", "")
    if asked not in ("", "0"):
        check_not_too_large(cluster, version_number(asked))
    obj = cluster.store.get(info.resource, info.namespace, info.name)
    return answer(cluster, info, form, obj)


# -- list -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Page:
    items: list[Stored]
    rv: int
    token: str = ""
    remaining: int | None = None


def version_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise bad_request(
            f'invalid resource version "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def check_not_too_large(cluster: Cluster, rv: int) -> None:
    current = cluster.store.resource_version
    if rv <= current:
        return
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    text = f"Timeout: Too large resource version: {rv}, current: {current}"
    raise ApiError(504, "Timeout", text, details, {"Retry-After": "1"})


def _invalid_options(field: str, reason: str, why: str) -> ApiError:
    cause = {"reason": reason, "message": why, "field": field}
    text = f'ListOptions.meta.k8s.io "" is invalid: {field}: {why}'
    return ApiError(422, "Invalid", text, {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]})


def _check_options(info: RequestInfo, watching: bool) -> None:
    query = info.query
    match, rv = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    initial = query.get("sendInitialEvents", "")
    field = "resourceVersionMatch"
    forbidden = "FieldValueForbidden"
    if initial and not watching:
        raise _invalid_options(
            "sendInitialEvents", forbidden, "Forbidden: sendInitialEvents is forbidden for list"
        )
    if initial:
        if match != "NotOlderThan":
            why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise _invalid_options(field, forbidden, why)
        return
    if not match:
        return
    if watching:
        raise _invalid_options(
            field,
            forbidden,
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    if not rv:
        raise _invalid_options(
            field,
            forbidden,
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        )
    if query.get("continue"):
        raise _invalid_options(
            field, forbidden, "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        )
    if match not in ("Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise _invalid_options(field, "FieldValueNotSupported", why)
    if match == "Exact" and rv == "0":
        why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise _invalid_options(field, forbidden, why)


def _token(rv: int, last: str) -> str:
    raw = encode({"v": "meta.k8s.io/v1", "rv": rv, "start": last + "\0"})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parse_token(token: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        parsed = msgspec.json.decode(raw)
        return int(parsed["rv"]), str(parsed["start"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None


def _snapshot(cluster: Cluster, info: RequestInfo) -> tuple[list[Stored], int, str]:
    """The objects to list from, their version, and the key to start after."""
    shelf = cluster.store.shelf(info.resource)
    token, asked = info.query.get("continue", ""), info.query.get("resourceVersion", "")
    current = cluster.store.resource_version
    if token:
        rv, start = _parse_token(token)
        if asked not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        if rv == -1:
            return shelf.ordered(info.namespace), current, start
        items = shelf.at(rv, info.namespace)
        if items is None:
            error = gone(_CONTINUE_TOO_OLD)
            error.continue_token = _token(-1, start.rstrip("\0"))
            raise error
        return items, rv, start
    rv = version_number(asked) if asked else 0
    check_not_too_large(cluster, rv)
    exact = info.query.get("resourceVersionMatch") == "Exact"
    if rv and (exact or (info.query.get("limit") and "resourceVersionMatch" not in info.query)):
        items = shelf.at(rv, info.namespace)
        if items is None:
            raise gone("The resourceVersion for the provided list is too old.")
        return items, rv, ""
    if cluster.faults.lag and asked and not exact:
        behind = cluster.faults.lagged(info, current)
        items = shelf.at(behind, info.namespace)
        if items is not None:
            return items, behind, ""
    return shelf.ordered(info.namespace), current, ""


def select_page(cluster: Cluster, info: RequestInfo) -> Page:
    """The page of a list that the query asks for."""
    _check_options(info, watching=False)
    view = "events.k8s.io" if info.resource == EVENTS and not info.verbatim else ""
    select = predicate(
        info.resource, info.query.get("labelSelector", ""), info.query.get("fieldSelector", ""), view=view
    )
    limit = integer(info.query, "limit") or 0
    if limit < 0:
        raise _invalid_options(
            "limit", "FieldValueInvalid", f"Invalid value: {limit}: must be greater than or equal to 0"
        )
    items, rv, start = _snapshot(cluster, info)
    begin = _first_after(items, start) if start else 0
    if not limit:
        rest = items[begin:] if begin else items
        return Page(rest if select is None else [item for item in rest if select(item.obj)], rv)
    page: list[Stored] = []
    position = begin
    while position < len(items) and len(page) < limit:
        item = items[position]
        if select is None or select(item.obj):
            page.append(item)
        position += 1
    if position >= len(items):
        return Page(page, rv)
    cluster.store.shelf(info.resource).keep(rv, info.namespace, items)
    remaining = len(items) - position if select is None else None
    return Page(page, rv, _token(rv, items[position - 1].key), remaining)


def _first_after(items: list[Stored], start: str) -> int:
    """The first position whose key is at or after `start`, by bisection."""
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle].key < start:
            low = middle + 1
        else:
            high = middle
    return low


def list_(cluster: Cluster, info: RequestInfo, accept: str | None) -> web.Response:
    form = negotiate.accepted(accept, TRANSFORMS)
    page = select_page(cluster, info)
    meta: dict[str, Any] = {"resourceVersion": str(page.rv)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining:
            meta["remainingItemCount"] = page.remaining
    if form.kind == "Table":
        include = info.query.get("includeObject", "Metadata") or "Metadata"
        objs = [item.obj for item in page.items]
        shown = table.render(info, objs, cluster.store.clock(), include, form.version)
        shown["metadata"] = meta
        raw = encode(shown)
    elif form.kind:
        rows = [partial(item.obj, form.version) for item in page.items]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{form.version}"}
        raw = encode({**head, "metadata": meta, "items": rows})
    else:
        raws = [item.raw if info.verbatim else encode(info.show(item.obj)) for item in page.items]
        kind = f"{info.resource.kind}List"
        head_raw = encode({"kind": kind, "apiVersion": info.api_version, "metadata": meta})[:-1]
        raw = b'%b,"items":[%b]}\n' % (head_raw, b",".join(raws))
    return as_yaml(raw) if form.yaml else reply(raw)


# -- watch ------------------------------------------------------------------------------------------


async def watch_(cluster: Cluster, info: RequestInfo, request: web.BaseRequest) -> web.StreamResponse:
    """Stream changes until the timeout, the client's end, or a cut."""
    form = negotiate.accepted(_without_stream(request.headers.get("Accept")), TRANSFORMS)
    _check_options(info, watching=True)
    query = info.query
    watcher = _open(cluster, info, form)
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
    )
    response.enable_chunked_encoding()
    seconds = integer(query, "timeoutSeconds") or cluster.options.watch_timeout
    bookmarks = query.get("allowWatchBookmarks", "").lower() in ("1", "true")
    try:
        await response.prepare(request)
        await _stream(cluster, info, watcher, response, seconds, bookmarks)
        if watcher.dropped:
            # No final chunk: the client sees a broken stream, as with a real server that went away.
            if request.transport is not None:
                request.transport.abort()
        else:
            await response.write_eof()
    except ConnectionError:
        # The client is gone in the middle of a write: it has nobody to tell.
        return response
    except asyncio.CancelledError:
        if cluster.stopping:
            return response
        raise
    finally:
        cluster.hub.forget(watcher)
    return response


def _without_stream(header: str | None) -> str | None:
    return header.replace(";stream=watch", "") if header else header


def _open(cluster: Cluster, info: RequestInfo, form: Form) -> watch.Watcher:
    query = info.query
    view = "events.k8s.io" if info.resource == EVENTS and not info.verbatim else ""
    select = predicate(
        info.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""), view=view
    )
    asked = query.get("resourceVersion", "")
    rv = version_number(asked) if asked else 0
    include = query.get("includeObject", "Metadata") or "Metadata"
    if not form.kind and info.verbatim:
        wire = watch.WireForm(None, lambda stored: stored.raw)
    else:
        key = (info.api_version, form, include if form.kind == "Table" else "")
        wire = watch.WireForm(key, lambda stored: render(cluster, info, form, stored))
    initial = query.get("sendInitialEvents", "").lower()
    from_now = initial == "false" and not rv
    after: int | None = rv or None
    if initial in ("1", "true"):
        check_not_too_large(cluster, rv)
        after = None
    elif from_now:
        after = cluster.store.resource_version
    watcher = cluster.hub.open(info.resource, info.namespace, select, wire, after=after)
    if initial in ("1", "true") and query.get("allowWatchBookmarks", "").lower() in ("1", "true"):
        rv_now = cluster.store.resource_version
        shown = EVENTS_V1 if view else info.resource
        watcher.push(watch.bookmark(shown, info.api_version, rv_now, initial_end=True))
    return watcher


async def _stream(
    cluster: Cluster,
    info: RequestInfo,
    watcher: watch.Watcher,
    response: web.StreamResponse,
    seconds: float,
    bookmarks: bool,
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    every = cluster.options.bookmark_interval
    # The last bookmark comes shortly before the end, so that the next watch starts from a fresh version.
    last_call = end - min(2.0, seconds / 10)
    next_mark = min(loop.time() + every, last_call)
    while True:
        until = min(next_mark, end) if bookmarks and not watcher.stalled else end
        await _wait(watcher, max(0.0, until - loop.time()))
        if not watcher.closed:
            watcher.wake.clear()
        if watcher.queue:
            await _flush(watcher, response)
        if watcher.closed and not watcher.queue:
            return
        now = loop.time()
        if bookmarks and now >= next_mark and not watcher.stalled:
            await response.write(
                watch.bookmark(info.resource, info.api_version, cluster.store.resource_version)
            )
            next_mark = last_call if now < last_call <= now + every else now + every
        if now >= end:
            return


async def _wait(watcher: watch.Watcher, seconds: float) -> None:
    if watcher.wake.is_set():
        return
    try:
        async with asyncio.timeout(seconds):
            await watcher.wake.wait()
    except TimeoutError:
        pass


async def _flush(watcher: watch.Watcher, response: web.StreamResponse) -> None:
    queue = watcher.queue
    while queue and not watcher.stalled:
        if len(queue) == 1:
            chunk = queue.popleft()
        else:
            count = min(len(queue), 500)
            chunk = b"".join([queue.popleft() for _ in range(count)])
        await response.write(chunk)
