"""A real Chromium, where there is one: Debian's package, or what RESTOW_CHROMIUM names."""

import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium():
    """The path of an executable, or None."""
    named = os.environ.get("RESTOW_CHROMIUM")
    if named:
        return named if Path(named).exists() else None
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_chromium = pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium, or name one with RESTOW_CHROMIUM")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--hide-scrollbars"]
"""In a container Chromium's own sandbox has no rights; pages here are our own, from this machine."""
WIDE = {"width": 1360, "height": 820}


@asynccontextmanager
async def opened_browser():
    from playwright.async_api import async_playwright

    async with async_playwright() as play:
        started = await play.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def browser(**options):
    """A page of a browser of its own, with options of its context."""
    async with opened_browser() as started:
        context = await started.new_context(**{"viewport": WIDE, **options})
        yield await context.new_page()
