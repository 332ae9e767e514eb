"""The API: what it says of an instant, who may ask, and that its description is true."""

import json
import re

import msgspec
import pytest
from console.logs import shown, unpacked
from replay.handmade import (
    LOG_ID,
    Handmade,
    migration,
    node,
    observed,
    placements,
    pod,
    proposed,
    shape,
    time_at,
)

from restow.console import guard
from restow.console.frames import Frame
from restow.console.view import view
from restow.replay.source import ListSource
from restow.replay.state_at import state_at
from restow.replay.why import why


def source_of(log):
    return ListSource(log.records, log_id=LOG_ID)


async def test_a_frame_over_http_is_the_state_at_that_instant(looking):
    source = source_of(migration())
    async with looking(source) as client:
        index = client.console.follower.index
        for at in (2, 6, 9, source.last):
            _, headers, body = await client.get("/api/v1/frame", at=str(at))
            assert headers["Content-Type"] == "application/octet-stream"
            about, arrays = unpacked(body)
            assert (about["at"], about["time"]) == (at, time_at(at))
            assert shown(index, Frame(about, arrays)) == view(state_at(source, seq=at))


async def test_an_instant_is_asked_for_by_time_too_and_without_one_it_is_the_end(looking):
    async with looking(source_of(placements())) as client:
        assert (await client.json("/api/v1/frame.json", time=str(time_at(3) + 500)))["at"] == 3
        assert (await client.json("/api/v1/frame.json"))["at"] == 7


async def test_what_a_client_has_is_not_sent_again(looking):
    async with looking(source_of(placements())) as client:
        for path, query in (("/api/v1/frame", {"at": "3"}), ("/api/v1/timeline", {}), ("/api/v1/plans", {}), ("/api/v1/why", {"what": "web-1"}), ("/", {}), ("/app.js", {})):
            status, headers, body = await client.get(path, **query)
            assert (status, bool(body)) == (200, True), path
            status, _, body = await client.get(path, {"If-None-Match": headers["ETag"]}, **query)
            assert (status, body) == (304, b""), path
        tags = {(await client.get("/api/v1/frame", at=str(at)))[1]["ETag"] for at in range(8)}
        assert len(tags) == 8


async def test_a_stream_tells_of_the_log_at_once(looking):
    async with looking(source_of(placements())) as client:
        async with client.session.get(client.url + "/api/v1/live") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert (await answer.content.readline()) == b"event: log\n"
            said = json.loads((await answer.content.readline()).removeprefix(b"data: "))
        assert (said["last"], said["live"], said["error"], said["log"]) == (7, False, "", LOG_ID)


async def test_why_says_what_the_command_says_and_of_an_earlier_instant_what_it_said_then(looking):
    source = source_of(migration())
    async with looking(source) as client:
        said = await client.json("/api/v1/why", what="migration/p1-1")
        assert said["verdict"] == why(source, "p1-1").verdict
        earlier = await client.json("/api/v1/why", what="migration/p1-1", at="5")
        assert earlier["seq"] == 5
        assert earlier["verdict"] != said["verdict"]
        assert max(entry["seq"] for entry in earlier["story"]) == 5


async def test_plans_are_listed_with_their_outcome_as_of_the_instant(looking):
    source = source_of(migration())
    async with looking(source) as client:
        assert await client.json("/api/v1/plans", at="2") == []
        (before,), (after,) = await client.json("/api/v1/plans", at="3"), await client.json("/api/v1/plans")
        assert (before["moves"], before["steps"], after["steps"]) == (1, {"planned": 1}, {"landed": 1})
        one = await client.json("/api/v1/plans/p1")
        assert [(move["migration"], move["pod"], move["source"], move["target"], move["step"]) for move in one["moves"]] == [("p1-1", "shop/web-old", "a", "b", "landed")]
        assert (await client.get("/api/v1/plans/p1", at="2"))[0] == 404
        assert (await client.json("/api/v1/report"))["plans"] == []


async def test_a_plan_that_was_only_observed_says_what_was_seen_of_it_as_of_the_instant(looking):
    async with looking(source_of(observed())) as client:
        made, first, last = [(await client.json("/api/v1/plans", at=str(at)))[0] for at in (3, 4, 6)]
        assert (made["mode"], made["looked"], made["steps"]) == ("observe", None, {})
        assert first["looked"] == {"slots": 1, "free": 0, "early": 0, "aged": 0, "ended": 0}
        assert last["looked"] == first["looked"] | {"aged": 1, "ended": 1}
        seen = [((await client.json("/api/v1/plans/p1", at=str(at)))["moves"][0]["step"], (await client.json("/api/v1/plans/p1", at=str(at)))["moves"][0]["seen"]) for at in (3, 4, 6)]
        assert seen == [("observed", ""), ("observed", "its slot is taken: Insufficient cpu"), ("observed", "its pod has ended")]


async def test_a_plan_that_was_proposed_says_who_has_answered_as_of_the_instant(looking):
    async with looking(source_of(proposed("rejected"))) as client:
        waits, answered = [(await client.json("/api/v1/plans", at=str(at)))[0] for at in (4, 5)]
        assert (waits["mode"], waits["answer"]) == ("propose", None)
        assert answered["answer"] == {"said": "rejected", "by": "ada", "time": time_at(5), "reason": "not today", "moves": 0}
        steps = [(await client.json("/api/v1/plans/p1", at=str(at)))["moves"][0]["step"] for at in (4, 5)]
        assert steps == ["proposed", "declined"]


async def test_marks_and_density_cover_the_whole_log(looking):
    source = source_of(migration())
    async with looking(source) as client:
        said = await client.json("/api/v1/timeline", buckets="10")
        assert (said["from"], said["to"]) == (time_at(1), time_at(source.last))
        log = await client.json("/api/v1/log")
        assert sum(sum(counts) for counts in said["events"].values()) == log["events"] > 0
        assert [(mark["seq"], mark["what"]) for mark in said["marks"]] == [(3, "plan")]
        assert (await client.json("/api/v1/moment", at="2"))["later"]["seq"] == 3
        assert (await client.json("/api/v1/moment", at="9"))["earlier"]["seq"] == 3


async def test_search_finds_what_is_there_at_the_instant(looking):
    async with looking(source_of(migration())) as client:
        def paths(found):
            return [one["path"] for one in found]

        assert paths(await client.json("/api/v1/search", q="WEB-OLD", at="5")) == ["pod/shop/web-old"]
        assert paths(await client.json("/api/v1/search", q="web-old")) == []
        assert "node/a" in paths(await client.json("/api/v1/search", q="a"))
        assert paths(await client.json("/api/v1/search", q="p1-1")) == ["migration/p1-1"]
        found = await client.json("/api/v1/find", what="pod/shop/web-old", at="5")
        assert (await client.json("/api/v1/names/pods"))["names"][found["slot"]][1] == "shop/web-old"
        assert (await client.json("/api/v1/find", what="pod/shop/nobody"))["slot"] == -1


async def test_the_latest_commits_are_told_in_sentences(looking):
    async with looking(source_of(placements())) as client:
        said = await client.json("/api/v1/happened", at="4", limit="1")
        assert [(one["seq"], one["family"], one["events"]) for one in said] == [
            (4, "session", ["shop/web-1 is placed on a", "shop/web-2 is placed on a", "shop/web-3 is placed on b"])
        ]


# -- what is not allowed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/api/v1/frame", {"at": "-1"}, 400), ("/api/v1/frame", {"at": "1e3"}, 400), ("/api/v1/frame", {"at": "٣"}, 400), ("/api/v1/frame", {"at": "9" * 400}, 400),
        ("/api/v1/frame", {"at": "99"}, 404), ("/api/v1/frame", {"since": "99"}, 404), ("/api/v1/timeline", {"buckets": "1000000"}, 400), ("/api/v1/names/secrets", {}, 404),
        ("/api/v1/search", {"q": ""}, 400), ("/api/v1/search", {"q": "x" * 301}, 400), ("/api/v1/why", {"what": "pod/none/such"}, 404),
        ("/api/v1/why", {"what": "web-\ud800"}, 404), ("/api/v1/why", {"what": "a/b/c/d/e"}, 404), ("/api/v1/plans/%22%0d%0aX-Evil:%201", {}, 404), ("/../../etc/passwd", {}, 404),
        ("/vendor/..%2fapp.js", {}, 404), ("/api/v1/nothing", {}, 404),
    ],
)  # fmt: skip
async def test_a_bad_question_is_refused_with_a_reason(looking, path, query, status):
    async with looking(source_of(placements())) as client:
        query = {name: value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for name, value in query.items()}
        found, headers, body = await client.get(path, **query)
        assert found == status, body
        assert json.loads(body)["error"]
        assert "X-Evil" not in headers
        assert "script-src 'self'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(looking, method):
    async with looking(source_of(placements())) as client:
        status, _, body = await client.get("/api/v1/log", method=method)
        assert status == 405
        assert b"changes nothing" in body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "console.example.com"}, 421), ({"Host": "127.0.0.1"}, 200), ({"Host": "127.0.0.1:9"}, 200), ({"Host": "example.com:{port}"}, 421), ({"Host": ""}, 421), ({"Origin": "http://127.0.0.1:9"}, 403), ({"Host": "127.0.0.1.example.com:{port}"}, 421), ({"Host": "LOCALHOST:{port}"}, 200),
        ({"Host": "[::1]:{port}"}, 200), ({"Origin": "http://example.com"}, 403), ({"Origin": "null"}, 403), ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 200), ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403), ({"Sec-Fetch-Site": "none"}, 200),
    ],
)  # fmt: skip
async def test_only_pages_of_the_console_itself_may_ask(looking, headers, status):
    async with looking(source_of(placements())) as client:
        port = client.url.rpartition(":")[2]
        found, _, body = await client.get("/api/v1/log", {name: value.format(port=port) for name, value in headers.items()})
        assert found == status, body


def test_another_machine_is_refused():
    assert guard.refusal("GET", "127.0.0.1:1", None, None, "192.0.2.7") == (403, "the console answers its own machine only")
    assert guard.refusal("GET", "127.0.0.1:1", None, None, None) is not None
    assert guard.refusal("GET", "127.0.0.1:1", None, None, "127.0.0.1") is None


def test_through_a_published_port_it_is_known_by_its_loopback_name_only():
    assert guard.refusal("GET", "localhost:8090", None, None, "172.18.0.1", published=True) is None
    assert guard.refusal("GET", "console:8090", None, None, "172.18.0.1", published=True)[0] == 421
    assert guard.refusal("GET", "localhost:8090", "http://localhost:3000", None, "172.18.0.1", published=True)[0] == 403


async def test_every_answer_has_the_headers_and_the_page_has_no_inline_script(looking):
    async with looking(source_of(placements())) as client:
        for path in ("/", "/app.js", "/api/v1/log", "/api/v1/frame", "/nowhere"):
            headers = (await client.get(path))[1]
            assert {name: headers[name] for name in guard.HEADERS} == guard.HEADERS, path
        page = (await client.get("/"))[2].decode()
        assert "unsafe" not in guard.POLICY
        assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=|https?://", page) == []


# -- the description --------------------------------------------------------------------------------------------------


async def test_the_description_is_of_exactly_the_routes_that_there_are(looking):
    async with looking(source_of(migration())) as client:
        said = await client.json("/openapi.json")
        served = {route.path for route in client.console.api.routes}
        assert set(said["paths"]) == served
        assert said["openapi"].startswith("3.1")
        for path, operations in said["paths"].items():
            posted = {"/api/v1/login", "/api/v1/logout", "/api/v1/mode", "/api/v1/pause", "/api/v1/resume", "/api/v1/plans/{plan}/approve", "/api/v1/plans/{plan}/reject", "/api/v1/replan"}
            assert ("post" in operations) == (path in posted), "all else only reads"
            if "get" not in operations:
                continue
            names = {one["name"] for one in operations["get"].get("parameters", ())}
            real = path.replace("{kind}", "nodes").replace("{plan}", "p1")
            if path == "/api/v1/live":
                continue
            query = {"q": "web", "what": "node/a", "at": "9", "since": "3", "buckets": "5", "limit": "3", "from": "0", "to": "5"}
            status, headers, _ = await client.get(real, **{name: query[name] for name in names & query.keys()})
            assert status == 200, path
            assert headers["Content-Type"].partition(";")[0] in operations["get"]["responses"]["200"]["content"], path


# -- names that are meant to hurt -------------------------------------------------------------------------------------

HOSTILE = ('<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "'; DROP TABLE pods; --", "\x00\x1b[31m\u202egnp.exe", "{{7*7}}", "a" * 5000)


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_data(looking, name):
    log = Handmade()
    bad = msgspec.structs.replace(node("n"), name=name, labels={"topology.kubernetes.io/zone": name, "node.kubernetes.io/instance-type": name, "x/rack": name})
    log.facts(bad, kind="nodes")
    log.facts(shape(), pod(name, namespace=name, uid="uid-1"))
    async with looking(source_of(log)) as client:
        for path, query in (("/api/v1/frame.json", {}), ("/api/v1/names/nodes", {}), ("/api/v1/names/pods", {}), ("/api/v1/search", {"q": name[:20]}), ("/api/v1/happened", {})):
            status, headers, body = await client.get(path, **query)
            assert status == 200, body
            assert headers["Content-Type"].startswith("application/json")
            json.loads(body)
        assert (await client.json("/api/v1/names/nodes"))["names"] == [name]
        assert (await client.json("/api/v1/names/pods"))["names"] == [["uid-1", f"{name}/{name}"]]


@pytest.mark.parametrize("index", [-1, 0, 255, 256, 1 << 40])
async def test_amounts_that_nobody_has_are_no_reason_to_fall_over(looking, index):
    from restow.contracts import events as e
    from restow.contracts.values import DeviceShare

    log, most = Handmade(), 2**63 - 1
    log.facts(msgspec.structs.replace(node("n"), allocatable={"cpu": most, "memory": most}, devices=most), kind="nodes")
    log.facts(shape(cpu=most), pod("p"), e.PodChanged("uid-p", "n", "Running", True, devices=(DeviceShare(index, most), DeviceShare(0, -most))))
    async with looking(source_of(log)) as client:
        said = await client.json("/api/v1/frame.json")
        assert said["pods"]["slot"] == [0]
        assert all(0 <= one < 256 for one in said["pods"]["shareIndex"])
