"""What eviction budgets have left, at an instant."""

import pytest
from console.browser import needs_chromium
from replay.handmade import budgeted


async def test_they_are_told_as_of_the_instant(looking):
    async with looking((log := budgeted()).source()) as client:
        (said,) = (await client.json("/api/v1/report"))["budgets"]
        assert (said["budget"], said["of"], said["within"], said["evictions"], said["spent"], said["planned"], said["left"]) == ("few", "shop", "day", 1, 0, 1, 0)
        assert (await client.json("/api/v1/report", at=log.seq - 1))["budgets"] == [], "nothing is planned or spent of it yet"
        assert (await client.json("/api/v1/report", at=1))["budgets"] == []


@needs_chromium
@pytest.mark.parametrize("width", [390, 1200])
async def test_the_page_shows_them_beside_the_plans(opened, width):
    async with opened(budgeted(), viewport={"width": width, "height": 800}) as it:
        await it.go("#view=plans")
        await it.page.wait_for_selector(".budgets")
        await it.settled()
        cells = await it.page.evaluate("[...document.querySelectorAll('.budgets td')].map((cell) => cell.innerText)")
        narrow = ["few", "shop", "0 left", "0 spent", "1 planned", "of 1 a day", "more from –"]
        assert cells == (narrow if width == 390 else ["few", "shop", "0", "0", "1", "1 a day", "–"])
        assert await it.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
