"""Pictures of the console for docs/console.md: `make shots LOG=FILE` (needs Chromium). The log is one that `make demo` has left."""

import asyncio
import sys
from pathlib import Path

from console.browser import browser, chromium

from restow.console.service import Console
from restow.replay.source import open_path

FOLDER = Path(__file__).parents[2] / "docs" / "console"
WIDE, PHONE = {"width": 1280, "height": 760}, {"width": 390, "height": 760}


async def main(file: str) -> None:
    if chromium() is None:
        sys.exit("no Chromium here: apt-get install chromium, or name one with RESTOW_CHROMIUM")
    console = Console(open_path(file))
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
        await shot(console, "why", f"#show=pod/{index.labels[waits]}&color=idle", viewport=WIDE, color_scheme="dark")
        await shot(console, "plan", f"#view=plans&show=plan/{plan.planned.plan}", viewport=WIDE, color_scheme="light")
        await shot(console, "phone", f"#show=pod/{index.labels[waits]}", viewport=PHONE, color_scheme="light")
    finally:
        await console.stop()


async def shot(console: Console, name: str, fragment: str, **options) -> None:
    async with browser(reduced_motion="reduce", **options) as page:
        await page.goto(f"{console.address}/{fragment}")
        await page.wait_for_selector(".now b:not(:text('–'))")
        while await page.evaluate("document.querySelector('[aria-busy=true], .note.busy') !== null"):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        await page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
