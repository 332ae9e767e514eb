"""Pictures of the console for docs/console.md: `make shots LOG=FILE` (needs Chromium). The log is one that `make demo` has left."""

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from console.browser import browser, chromium
from console.test_access import TOKENS, access_file
from replay.handmade import proposed

from restow.console.access import Access
from restow.console.service import Console, Orders
from restow.replay.source import open_path

FOLDER = Path(__file__).parents[2] / "docs" / "console"
WIDE, PHONE = {"width": 1280, "height": 760}, {"width": 390, "height": 760}


async def main(file: str) -> None:
    if chromium() is None:
        sys.exit("no Chromium here: apt-get install chromium, or name one with RESTOW_CHROMIUM")
    console = Console(open_path(file), verify=["--log", file])
    await console.start()
    try:
        index = console.follower.index
        while not console.follower.done and not console.follower.error:
            await asyncio.sleep(0.05)
        plan = next(note for note in reversed(index.plans.values()) if note.planned.moves)
        under_way = min(index.last, plan.seq + len(plan.planned.moves))
        waits = max(index.tracks["pods"].present(), key=lambda uid: (index.tracks["pods"].row(uid).status == "Waiting", index.tracks["pods"].row(uid).asked))
        FOLDER.mkdir(exist_ok=True)
        await shot(console, "moves", f"#at={under_way}", viewport=WIDE, color_scheme="light")
        await shot(console, "beside", f"#at={index.last}&beside={plan.seq}", viewport=WIDE, color_scheme="light")
        await shot(console, "tour", "#tour=4", viewport=WIDE, color_scheme="light")
        await shot(console, "why", f"#show=pod/{index.labels[waits]}&color=idle", viewport=WIDE, color_scheme="dark")
        await shot(console, "plan", f"#view=plans&show=plan/{plan.planned.plan}", viewport=WIDE, color_scheme="light")
        await shot(console, "moved", "#view=moves", viewport=WIDE, color_scheme="light")
        await shot(console, "queues", "#view=queues", viewport=WIDE, color_scheme="light")
        await shot(console, "health", "#view=health", viewport=WIDE, color_scheme="dark")
        await shot(console, "replan", f"#view=plans&at={plan.seq}", trying, viewport=WIDE, color_scheme="light")
        await shot(console, "phone", f"#show=pod/{index.labels[waits]}", viewport=PHONE, color_scheme="light")
        await waiting()
    finally:
        await console.stop()


async def waiting() -> None:
    """A plan that waits for a person, with what an operator can do. The log is one made by hand."""
    with TemporaryDirectory() as folder:
        access = Access(access_file(Path(folder), "operator"))
        console = Console(proposed().source(), access=access, orders=Orders(lambda: ("http://127.0.0.1:1", "")))
        console.follower.live = True
        await console.start()
        try:
            async with browser(reduced_motion="reduce", viewport=WIDE, color_scheme="light") as page:
                await page.goto(f"{console.address}/#view=plans&show=plan/p1")
                await page.get_by_label("Token").fill(TOKENS["operator"])
                await page.get_by_role("button", name="Log in", exact=True).click()
                await page.wait_for_selector(".answer .go")
                await asyncio.sleep(1.0)
                await page.screenshot(path=FOLDER / "approve.png")
        finally:
            await console.stop()


async def trying(page) -> None:
    """Another policy: as many moves as are worth it."""
    await page.get_by_role("button", name="Try another policy at this instant").click()
    while not (text := await page.input_value("textarea")):
        await asyncio.sleep(0.05)
    await page.fill("textarea", re.sub(r"(maxNoOfPodsToEvictTotal|maxMoves): \d+", r"\1: 30", text))
    await page.evaluate("document.querySelector('textarea').rows = 6")
    await page.get_by_role("button", name="Plan with it").click()
    await page.wait_for_selector(".twomaps")


async def shot(console: Console, name: str, fragment: str, act=None, **options) -> None:
    async with browser(reduced_motion="reduce", **options) as page:
        await page.goto(f"{console.address}/{fragment}")
        await page.wait_for_selector(".now b:not(:text('–'))")
        while await page.evaluate("document.querySelector('[aria-busy=true], .note.busy') !== null"):
            await asyncio.sleep(0.05)
        if act is not None:
            await act(page)
        await asyncio.sleep(1.0)
        await page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
