"""An archiver that stands still in the middle of a segment, as one does that has lost its lease and has not ended yet."""

import asyncio

from restow.eventlog import archive


class SlowArchiver:
    """Whoever archives from now on: `writing` is set once he stands still, `may` lets him go on. `others` are as fast as ever."""

    def __init__(self, monkeypatch):
        self.writing, self.may = asyncio.Event(), asyncio.Event()
        self._monkeypatch, self._whole = monkeypatch, archive._whole
        monkeypatch.setattr(archive, "_whole", self._slow)

    async def _slow(self, work, *arguments):
        self.writing.set()
        await self.may.wait()
        return await self._whole(work, *arguments)

    def others(self):
        self._monkeypatch.setattr(archive, "_whole", self._whole)
