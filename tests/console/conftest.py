"""A console on a log, in this process."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from restow.console.service import Console


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
