"""Another policy at an instant, over the API: who may ask, what is refused, and that nothing is written."""

import asyncio
import json
import threading

import pytest
from console.browser import needs_chromium
from console.test_access import answering, bearer, post  # noqa: F401 (a fixture)
from replay.handmade import LOG_ID
from replay.test_plan_values import planned, world

from restow.console.api import MOST_PLANNED
from restow.console.stories import Stories
from restow.replay.replanned import Replanned
from restow.replay.source import ListSource
from restow.runtime.config_source import parse
from restow.runtime.policy_file import read

PATH = "/api/v1/replan"


def source():
    log = world()
    planned(log)
    return ListSource(log.records, log_id=LOG_ID)


async def test_the_policy_in_force_can_be_changed_and_tried_there(looking):
    async with looking(source()) as client:
        text = (await client.json("/api/v1/policy", at="3"))["policy"]
        assert read(parse(text)).defragmentation.objective == "nodes"
        status, as_it_was, headers = await post(client, PATH + "?at=3", {})
        assert (status, headers["Cache-Control"]) == (200, "no-store")
        recorded = await client.json("/api/v1/plans/p1")
        (plan,) = as_it_was["plans"]
        assert [(move["pod"], move["source"], move["target"], move["cost"]) for move in plan["moves"]] == [(move["pod"], move["source"], move["target"], move["cost"]) for move in recorded["moves"]]
        assert [one["loses"] for one in plan["values"]["moves"]] == [one["loses"] for one in (await client.json("/api/v1/plans/p1/values"))["moves"]]
        maps = await client.json("/api/v1/plans/p1/maps")
        assert [(node["name"], len(node["before"]), len(node["after"])) for node in plan["maps"]["nodes"]] == [(node["name"], len(node["before"]), len(node["after"])) for node in maps["nodes"]]
        status, less, _ = await post(client, PATH + "?at=3", {"policy": text.replace("restow:\n", "restow:\n  maxMoves: 1\n")})
        assert status == 200
        assert len(less["plans"][0]["moves"]) <= 1 < len(plan["moves"])
        # Nothing of it is in the log.
        assert [one["plan"] for one in await client.json("/api/v1/plans")] == ["p1"]
        assert client.console.follower.index.last == 4


@pytest.mark.parametrize(
    ("body", "query", "status", "said"),
    [
        ({"policy": "kind: x"}, "?at=3", 400, "$.apiVersion"), ({"policy": "a: [1"}, "?at=3", 400, "not YAML"), ({"policy": "&a [*a]"}, "?at=3", 400, "policy: "),
        ({"policy": "x" * 33_000}, "?at=3", 400, "32768"), ({"policy": 7}, "?at=3", 400, "str"), ({"other": ""}, "?at=3", 400, "other"), ({}, "?at=99", 404, "not folded"),
        ({}, "?at=1", 400, "makes no plans"), ({"policy": "x" * 70_000}, "?at=3", 413, ""),
    ],
)  # fmt: skip
async def test_what_cannot_be_planned_is_refused_with_a_reason(looking, body, query, status, said):
    async with looking(source()) as client:
        found, told, _ = await post(client, PATH + query, body)
        assert found == status, told
        assert said in told["error"]


async def test_only_a_page_of_the_console_may_ask_and_only_that(looking):
    async with looking(source()) as client:
        for headers in ({"Origin": "http://example.com"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://127.0.0.1:1"}):
            assert (await post(client, PATH, {}, headers))[0] == 403, headers
        assert (await post(client, PATH, {}, {"Origin": client.url}))[0] == 200
        for path in ("/api/v1/log", "/api/v1/policy", "/api/v1/plans/p1/approve", "/api/v1/replan/", "/api/v1/mode"):
            assert (await post(client, path, {}))[0] == 405, path
        for method in ("PUT", "DELETE", "PATCH"):
            assert (await client.get(PATH, method=method))[0] == 405


async def test_plans_keep_no_story_waiting_and_are_asked_for_by_few_at_once(looking, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(Stories, "replanned", lambda *_: (go.wait(20), Replanned(0, ()))[1])
    async with looking(source()) as client:
        asked = [asyncio.create_task(post(client, PATH + "?at=3", {})) for _ in range(MOST_PLANNED)]
        async with asyncio.timeout(10):
            while client.console.api._planning < MOST_PLANNED:
                await asyncio.sleep(0.01)
            assert (await client.get("/api/v1/queues"))[0] == 200
            status, said, _ = await post(client, PATH + "?at=3", {})
            assert status == 503, said
        go.set()
        assert {status for status, *_ in await asyncio.gather(*asked)} == {200}
        assert client.console.api._planning == 0


async def test_whoever_may_look_may_ask(answering):  # noqa: F811
    async with answering("viewer") as (client, fake):
        assert (await post(client, PATH, {}, bearer("viewer")))[0] == 400, "this policy makes no plans"
        assert (await post(client, PATH, {}, {"Origin": client.url}))[0] == 401
        assert (await post(client, PATH, {}))[0] == 403, "a page of somebody else may have sent it"
        assert fake.asked == []


@needs_chromium
async def test_a_policy_is_changed_on_the_page_and_its_plan_is_shown(opened):
    log = world()
    planned(log)
    async with opened(log) as it:
        await it.go("#view=plans&at=3")
        await it.page.get_by_role("button", name="Try another policy at this instant").click()
        await it.until("document.querySelector('textarea')?.value.includes('objective: nodes')")
        await it.page.get_by_role("button", name="Plan with it").click()
        await it.page.wait_for_selector(".replan .chip:visible")
        assert "moves; it promises" in await it.text(".replan section")
        (plan,) = json.loads((await client_post(it, {}))[1])["plans"]
        assert await it.page.locator(".each tbody tr").count() == len(plan["moves"]) > 1
        assert await it.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # Another instant: what is shown is of the one before, and says so.
        await it.page.get_by_label("One commit on").click()
        await it.page.wait_for_selector(".replan .stale")
        attack = "<img src=x onerror=window.owned=1>"
        await it.page.locator("textarea").fill(f"apiVersion: '{attack}'")
        await it.page.get_by_role("button", name="Plan with it").click()
        await it.page.wait_for_selector(".replan .bad")
        assert attack in await it.text(".replan .bad")
        assert await it.page.evaluate("window.owned") is None
        it.complaints = [said for said in it.complaints if "the server responded with a status of 400" not in said]


async def client_post(it, body):
    async with it.client.session.post(it.url + PATH + "?at=3", json=body) as answer:
        return answer.status, await answer.text()
