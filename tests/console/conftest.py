"""A console on a log, in this process, and its page in a real browser."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from console.browser import browser
from replay.handmade import LOG_ID

from restow.console.service import Console
from restow.replay.source import ListSource


class Client:
    """Asks the API as the page does."""

    def __init__(self, console, session):
        self.console, self.session, self.url = console, session, console.address

    async def get(self, path, headers=None, method="GET", **query):
        async with self.session.request(method, self.url + path, params=query, headers=headers or {}) as answer:
            body = await answer.read()
            return answer.status, answer.headers, body

    async def json(self, path, **query):
        async with self.session.get(self.url + path, params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def until(self, seq):
        """The log is folded up to there."""
        async with asyncio.timeout(30):
            while (said := await self.json("/api/v1/log"))["last"] < seq:
                assert not said["error"], said["error"]
                await asyncio.sleep(0.02)


@pytest.fixture
def looking():
    """`async with looking(source) as client`."""

    @asynccontextmanager
    async def look(source):
        console = Console(source)
        await console.start()
        try:
            async with aiohttp.ClientSession() as session:
                client = Client(console, session)
                if not console.follower.live:
                    await client.until(source.last)
                yield client
        finally:
            await console.stop()

    return look


OURS = "willReadFrequently"
"""A word of a warning about what these tests do: they read the map's pixels."""


class Opened:
    """A page, what it complained of, and where it went."""

    def __init__(self, page, client):
        self.page, self.client, self.url = page, client, client.url
        self.complaints, self.asked = [], []
        page.on("console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") and OURS not in said.text else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))

    async def go(self, fragment="#"):
        await self.page.goto(f"{self.url}/{fragment}")
        await self.page.wait_for_selector(".now b:not(:text('–'))")

    async def until(self, truth, seconds=30):
        """An expression of the page's is true. (Playwright's own way needs `eval`, which the page's policy forbids.)"""
        async with asyncio.timeout(seconds):
            while not await self._is(truth):
                await asyncio.sleep(0.03)

    async def _is(self, truth):
        from playwright.async_api import Error

        try:
            return await self.page.evaluate(truth)
        except Error as error:
            if "context was destroyed" in str(error):
                # The page goes somewhere in this moment.
                return False
            raise

    async def at(self, seq):
        await self.until(f"document.querySelector('.now .seq').textContent === 'sequence {seq}'")

    async def settled(self):
        await self.until("document.querySelector('[aria-busy=true], .note.busy') === null")

    async def text(self, selector):
        return " ".join((await self.page.inner_text(selector)).split())

    async def pixels(self):
        """How many different colours the map shows, and a sum that tells two maps apart."""
        return await self.page.evaluate(
            """async () => { for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);  // what is to be drawn is drawn
            const c = document.querySelector('canvas.boxes'); const p = new Uint32Array(c.getContext('2d', {willReadFrequently: true}).getImageData(0, 0, c.width, c.height).data.buffer);
            let sum = 0; const seen = new Set(); for (let i = 0; i < p.length; i++) { seen.add(p[i]); sum = (sum * 31 + p[i]) | 0; } return [seen.size, sum]; }"""
        )

    async def drawn(self):
        """The same, of a map that is drawn: before that it is of one colour, through which one sees."""
        await self.looks([1, 0], different=True)
        return await self.pixels()

    async def looks(self, like, different=False):
        """The map is drawn as it was when `pixels` said that, or otherwise. (What follows from a new state is drawn some frames later.)"""
        async with asyncio.timeout(30):
            while (await self.pixels() == like) == different:
                await asyncio.sleep(0.03)

    def is_quiet(self, besides="\n"):
        assert [said for said in self.complaints if besides not in said] == []
        assert all(one.startswith((self.url + "/", "data:")) for one in self.asked), self.asked


@pytest.fixture
def opened(looking):
    """`async with opened(log) as it`, with options of the browser's context."""

    @asynccontextmanager
    async def open_page(log, **options):
        async with looking(ListSource(log.records, log_id=LOG_ID)) as client, browser(**options) as page:
            it = Opened(page, client)
            yield it
            it.is_quiet()

    return open_page


@pytest.fixture
def restow():
    """Call a command in this process, as the tests of the command line do."""
    from click.testing import CliRunner

    from restow.cli.main import cli

    def call(*arguments):
        result = CliRunner().invoke(cli, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        result.said = " ".join(result.output.split())
        return result

    return call
