"""Plans are answered in the page, in a real browser: with the real descheduler, and what a page of somebody else cannot do."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from cli.test_report import worth
from console.browser import WIDE, needs_chromium, opened_browser
from console.conftest import Client, Opened
from console.test_access import TOKENS, access_file, descheduling
from integration.runtime.test_descheduler_api import PROPOSE, world
from replay.handmade import migration, proposed

from restow.console.access import Access
from restow.console.follow import Follower
from restow.console.service import Console, Orders
from restow.eventlog.testing import running_server, unique_cluster
from restow.replay.restore import restore
from restow.replay.source import open_broker

pytestmark = needs_chromium
ANSWERS = "token-for-answers-alone"


@pytest.fixture(scope="module")
def broker():
    with running_server(sync=False) as server:
        yield server


class People:
    """A console with an access file, and a browser in which each person has a context of their own."""

    def __init__(self, console, chromium, client):
        self.console, self.chromium, self.client, self.url = console, chromium, client, console.address

    async def comes(self, **options):
        context = await self.chromium.new_context(**{"viewport": WIDE, **options})
        return Opened(await context.new_page(), self.client)

    async def logs_in(self, role, fragment="#view=plans", **options):
        it = await self.comes(**options)
        await it.page.goto(f"{self.url}/{fragment}")
        await it.page.get_by_label("Token").fill(TOKENS[role])
        await it.page.get_by_role("button", name="Log in", exact=True).click()
        await it.page.wait_for_selector(".now b:not(:text('–'))")
        return it


@asynccontextmanager
async def people(stack, broker, cluster, folder, orders, *roles, more=""):
    opened = await asyncio.to_thread(open_broker, [broker.url], cluster)
    console = Console(opened, access=Access(access_file(folder, *roles, more=more)), orders=orders)
    await console.start()
    try:
        chromium = await stack.enter_async_context(opened_browser())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield People(console, chromium, Client(console, session))
    finally:
        await console.stop()
        await asyncio.to_thread(opened.close)


@pytest.fixture
def real(broker, tmp_path):
    """`async with real(*roles) as (people, made, plan)`: the services on kubesim, and a plan that waits: of one move, or of two."""

    @asynccontextmanager
    async def serve(*roles, moves=1):
        (tmp_path / "answers").write_text(ANSWERS)
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(world(broker, tmp_path, said=PROPOSE, answers_token_file=str(tmp_path / "answers")))
            if moves == 2:
                await made.node("thinner")
                await made.replicas("other", 1)
            plan = (await made.ask("POST", "/defragment"))[1]["plan"]
            assert len(made.state.plans[plan].planned.moves) == moves
            orders = Orders(lambda: (made.server.process.server.address, ANSWERS))
            yield await stack.enter_async_context(people(stack, broker, made.cluster, tmp_path, orders, *roles)), made, plan

    return serve


@pytest.fixture
def pretended(broker, tmp_path):
    """`async with pretended(*roles) as (people, descheduler)`: plan p1 waits, and the descheduler only says yes."""

    @asynccontextmanager
    async def serve(*roles, more=""):
        async with AsyncExitStack() as stack:
            fake, cluster = await stack.enter_async_context(descheduling()), unique_cluster()
            await asyncio.to_thread(restore, proposed().source(), [broker.url], cluster)
            yield await stack.enter_async_context(people(stack, broker, cluster, tmp_path, Orders(lambda: (fake.url, ANSWERS)), *roles, more=more)), fake

    return serve


async def chooses(it, plan):
    await it.page.get_by_role("button", name=plan, exact=True).click()
    await it.page.wait_for_selector(".answer")


async def test_a_plan_is_approved_and_carried_out_with_the_persons_name_in_the_log(real):
    async with real("approver") as (people, made, plan):
        ada = await people.logs_in("approver")
        await ada.page.wait_for_selector(".list:has-text('waits for a person since')")
        await chooses(ada, plan)
        assert "Waits for a person until" in await ada.text(".answer")
        await ada.page.get_by_label("Reason").fill("go on")
        await ada.page.get_by_role("button", name="Approve", exact=True).click()
        await ada.page.wait_for_selector("text=All approved.")
        known = made.state.plans[plan]
        assert (known.answer, known.by, known.why) == ("approved", "ada", "go on")
        await ada.page.wait_for_selector(".moves .step.landed", timeout=60_000)
        assert "all approved by ada" in await ada.text(".facts")
        ada.is_quiet(besides="401")


async def test_whoever_is_to_answer_a_plan_is_told_that_moves_are_paused(real):
    async with real("approver") as (people, made, plan):
        ada = await people.logs_in("approver")
        await chooses(ada, plan)
        assert "paused" not in await ada.text(".answer")
        assert (await made.ask("POST", "/pause", {"by": "bob", "reason": "<b>4711</b>"}))[0] == 200
        await ada.page.wait_for_selector(".answer:has-text('Moves are paused since'):has-text('by bob: <b>4711</b>. Nobody can approve a plan until that ends.')")
        await ada.page.get_by_role("button", name="Approve", exact=True).click()
        await ada.page.wait_for_selector(".answer [role=status].bad:not(:empty)")
        assert (await made.ask("POST", "/resume", {"by": "bob"}))[0] == 200
        await ada.page.wait_for_selector(".answer .note", state="detached")
        await ada.page.get_by_role("button", name="Approve", exact=True).click()
        await ada.page.wait_for_selector("text=All approved.")
        assert made.state.plans[plan].by == "ada"


async def test_a_plan_is_approved_in_part_and_the_second_of_two_people_is_told_who_was_first(real):
    async with real("approver", "operator", moves=2) as (people, made, plan):
        ada, bob = [await people.logs_in(role) for role in ("approver", "operator")]
        for it in (ada, bob):
            await chooses(it, plan)
        await ada.page.locator(".moves input[type=checkbox]").nth(1).uncheck()
        await bob.page.get_by_label("Reason").last.fill("too risky")
        # Nobody's page gets to know of the other one's answer in between.
        with people.console.follower.lock:
            await ada.page.get_by_role("button", name="Approve 1 of 2 moves").click()
            await ada.page.wait_for_selector("text=1 move approved.")
            await bob.page.get_by_role("button", name="Reject", exact=True).click()
            await bob.page.wait_for_selector(".answer .bad:not(:empty)")
        assert "it was approved by ada" in await bob.text(".answer")
        known = made.state.plans[plan]
        assert (known.answer, known.by, known.chosen) == ("approved", "ada", (f"{plan}-1",))
        await bob.page.wait_for_selector(".moves .step.landed", timeout=60_000)
        assert "declined" in await bob.text(".moves")
        assert "1 move approved by ada" in await bob.text(".facts")


async def test_a_plan_is_rejected_with_a_reason_and_nobody_moves(real):
    async with real("approver") as (people, made, plan):
        before = await made.running()
        ada = await people.logs_in("approver")
        await chooses(ada, plan)
        no = ada.page.get_by_role("button", name="Reject", exact=True)
        assert await no.is_disabled()
        await ada.page.get_by_label("Reason").fill("<img src=x onerror=window.owned=1>")
        await no.click()
        await ada.page.wait_for_selector("text=Rejected.")
        known = made.state.plans[plan]
        assert (known.answer, known.by, known.why) == ("rejected", "ada", "<img src=x onerror=window.owned=1>")
        await ada.page.wait_for_selector("text=rejected by ada")
        assert "<img" in await ada.text(".list")
        assert await ada.page.evaluate("window.owned") is None
        assert await made.running() == before


async def test_a_viewer_is_refused_by_the_server_and_not_only_by_the_page(pretended):
    async with pretended("viewer", "approver") as (people, descheduler):
        eve = await people.logs_in("viewer")
        await chooses(eve, "p1")
        assert "Your role is viewer" in await eve.text(".answer")
        assert await eve.page.locator(".answer button").count() == 0
        sent = "async path => (await fetch(path, { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } })).status"
        assert [await eve.page.evaluate(sent, f"/api/v1/plans/p1/{what}") for what in ("approve", "reject")] == [403, 403]
        assert await eve.page.evaluate(sent, "/api/v1/pause") == 403
        assert descheduler.asked == []
        await eve.page.get_by_role("button", name="Log out").click()
        await eve.page.get_by_label("Token").wait_for()
        assert await eve.page.evaluate("fetch('/api/v1/log').then(answer => answer.status)") == 401


async def test_a_link_with_a_token_in_it_does_nothing(pretended):
    async with pretended("approver") as (people, descheduler):
        for said in (f"?token={TOKENS['approver']}", f"#token={TOKENS['approver']}", f"?restow_console={TOKENS['approver']}#view=plans&show=plan/p1"):
            it = await people.comes()
            await it.page.goto(f"{people.url}/{said}")
            await it.page.get_by_label("Token").wait_for()
            assert await it.page.context.cookies() == []
            assert "p1" not in await it.text("#app")
        assert descheduler.asked == []


ATTACK = """<!doctype html><form id="f" method="post" enctype="text/plain" action="URL/api/v1/plans/p1/approve" target="frame"><input name='{"moves":[],"reason":"' value='"}'></form>
<iframe name="frame"></iframe><script>
const send = (more) => fetch('URL/api/v1/plans/p1/approve', { method: 'POST', credentials: 'include', body: '{}', ...more }).then(a => a.type + a.status, e => 'refused');
window.tried = (async () => { document.getElementById('f').submit();
  return [await send({ mode: 'no-cors' }), await send({ headers: { 'Content-Type': 'application/json' } }), await fetch('URL/api/v1/plans', { credentials: 'include' }).then(a => a.text(), () => 'refused')]; })();
</script>"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_cookie_from_a_page_of_another_origin_does_nothing(pretended, name):
    """On another port the browser takes it for the same site, and sends the cookie."""
    async with pretended("approver") as (people, descheduler):
        ada = await people.logs_in("approver")

        async def attack(_):
            return web.Response(text=ATTACK.replace("URL", people.url), content_type="text/html")

        app = web.Application()
        app.router.add_get("/", attack)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            other = await ada.page.context.new_page()
            await other.goto(f"http://{name}:{runner.addresses[0][1]}/")
            seen = await other.evaluate("window.tried")
            await asyncio.sleep(0.5)
        finally:
            await runner.cleanup()
        assert seen == ["refused", "refused", "refused"] or seen == ["opaque0", "refused", "refused"]
        assert descheduler.asked == []
        await chooses(ada, "p1")
        await ada.page.get_by_role("button", name="Approve", exact=True).click()
        await ada.page.wait_for_selector("text=All approved.")
        assert descheduler.asked == [("/plans/p1/approve", {"by": "ada", "moves": [], "reason": ""})]


async def test_an_operator_sets_the_mode_and_pauses(pretended):
    async with pretended("operator", "approver") as (people, descheduler):
        bob = await people.logs_in("operator")
        await bob.page.wait_for_selector(".mode select")
        assert "Mode propose" in await bob.text(".mode")
        await bob.page.get_by_label("Reason").fill("incident 4711")
        await bob.page.locator(".mode select").select_option("observe")
        assert descheduler.asked == [], "choosing is not setting"
        await bob.page.get_by_role("button", name="Set", exact=True).click()
        await bob.page.wait_for_selector("text=The mode is observe.")
        await bob.page.get_by_role("button", name="Pause", exact=True).click()
        await bob.page.wait_for_selector("text=Paused.")
        assert descheduler.asked == [("/mode", {"by": "bob", "mode": "observe", "reason": "incident 4711"}), ("/pause", {"by": "bob", "reason": ""})]
        ada = await people.logs_in("approver")
        await ada.page.wait_for_selector(".mode")
        assert await ada.page.locator(".mode button, .mode select").count() == 0


async def test_of_an_earlier_instant_nobody_answers(pretended):
    async with pretended("approver") as (people, _):
        ada = await people.logs_in("approver", "#view=plans&at=4")
        await chooses(ada, "p1")
        assert "as of an earlier instant" in await ada.text(".answer")
        await ada.page.get_by_role("button", name="Go to the end").click()
        await ada.page.get_by_role("button", name="Approve", exact=True).wait_for()


async def test_without_an_access_file_the_page_says_how_it_is_turned_on(looking):
    async with looking(proposed().source()) as client, opened_browser() as chromium:
        client.console.follower.live = True
        it = Opened(await (await chromium.new_context(viewport=WIDE)).new_page(), client)
        await it.go("#view=plans")
        await chooses(it, "p1")
        assert "This console only shows; start it with --access FILE" in await it.text(".answer")
        assert await it.page.locator(".answer button, .who").count() == 0
        it.is_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_on_a_phone_nothing_is_wider_than_the_screen(pretended, scheme):
    phone = {"width": 360, "height": 780}
    async with pretended("operator") as (people, _):
        it = await people.comes(viewport=phone, color_scheme=scheme)
        await it.page.goto(people.url)
        await it.page.get_by_label("Token").wait_for()
        assert await it.page.evaluate("document.documentElement.scrollWidth") <= phone["width"]
        bob = await people.logs_in("operator", viewport=phone, color_scheme=scheme)
        for view in ("plans", "map"):
            await bob.page.evaluate(f"location.hash = '#view={view}&show=plan/p1'")
            await bob.page.wait_for_selector(".answer button")
            wide = await bob.page.evaluate("[...document.querySelectorAll('button, input, h2, li, td, p, label')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.legend, .hidden')).map(e => e.outerHTML.slice(0, 90))")
            assert wide == []
        unnamed = await bob.page.evaluate("[...document.querySelectorAll('button, input, select')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))).length")
        assert unnamed == 0


async def test_of_a_plan_that_was_approved_in_part_the_list_has_the_figures_of_the_report(looking):
    """What some of its moves promised and cost, beside what these won and lost. (It had those of all of them.)"""
    log = migration(worth=worth(500), approved=("p1-1",))
    async with looking(log.source()) as client, opened_browser() as chromium:
        (known,) = (await client.json("/api/v1/report"))["plans"]
        assert (known["moves"], known["promised"], known["won"], known["cost"], known["lost"]) == (1, 0, 0, 1_000, 1_000)
        it = Opened(await (await chromium.new_context(viewport=WIDE)).new_page(), client)
        await it.go("#view=plans")
        await it.until("!document.querySelector('.list table tbody').innerText.includes('…')")
        cells = await it.page.locator(".list table tbody td").all_inner_texts()
        assert [cells[3], *cells[5:9]] == ["1 of 2", "+0.0", "+0.0", "1.0", "1.0"]
        await it.go("#view=plans&plan=p1")
        await it.until("document.querySelectorAll('.twomaps figure').length === 2")
        assert "once the 1 move that was approved has landed" in await it.text(".twomaps")
        assert await it.page.locator("figure[data-side=after] .chips:not(.space) .chip").count() == 1, "who was left out stays"
        it.is_quiet()


@pytest.mark.parametrize("width", [1280, 1120])
async def test_what_is_wrong_with_the_log_leaves_whoever_has_logged_in_the_way_out(pretended, monkeypatch, width):
    monkeypatch.setattr(Follower, "away", property(lambda self: "the broker does not answer: this is as of the last event that was read; it is read on as soon as it is there again"))
    async with pretended("operator") as (people, _):
        it = await people.logs_in("operator", viewport={"width": width, "height": 800})
        await it.page.wait_for_selector(".health.bad:has-text('does not answer')")
        edge = await it.page.evaluate("document.querySelector('.who button').getBoundingClientRect().right")
        assert 0 < edge <= width
