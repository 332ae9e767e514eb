"""What a service measures of itself, on its way to a collector: collected here, sent by a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from importlib.metadata import version

from restow.tracing import otlp
from restow.tracing.collector import BATCH, Away, Collector, NotTaken, TooLarge
from restow.tracing.spans import Measured, Values

BEAT = 1.0
"""Seconds for which spans are collected before they are sent."""
MOST_KEPT = 20_000
"""Spans that wait for a collector that is away; later ones are not kept, and counted."""
LAST = 2.0
"""Seconds that the last spans have when the service ends."""


class Exporter:
    """Never waits, and never fails, whatever becomes of the collector. `say` hears when the collector goes away and when it is back."""

    def __init__(self, collector: Collector, resource: Values, say: Callable[[str], None]) -> None:
        self._collector, self._say = collector, say
        self.resource = resource
        self.dropped = 0
        """Spans that nobody got."""
        self._waiting: deque[Measured] = deque()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._away = ""
        self._said_lost = 0
        """Of the dropped ones, those that somebody was told of."""

    def take(self, span: Measured) -> None:
        if len(self._waiting) >= MOST_KEPT:
            self.dropped += 1
            return
        self._waiting.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Sends what is left, for at most `LAST` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(LAST)

    def _run(self) -> None:
        while not self._stopping.wait(BEAT):
            self._send()
        self._send()

    def _send(self) -> None:
        most = BATCH
        while self._waiting:
            part = [self._waiting[at] for at in range(min(most, len(self._waiting)))]
            why = ""
            try:
                refused, why = self._collector.take(otlp.measured(part, self.resource, version("restow")), len(part), again=())
            except NotTaken as error:
                if isinstance(error, TooLarge) and len(part) > 1:
                    most = len(part) // 2
                    continue
                refused, why = len(part), str(error)
            except Away as error:
                return self._heard(f"{error}; spans wait for it", str(error).partition(": ")[0])
            except Exception as error:
                # Strangers' texts are in it: what cannot be written for one of them must not keep all others.
                refused, why = len(part), f"{type(error).__name__}: {error}"
            for _ in part:
                self._waiting.popleft()
            self.dropped += refused
            self._heard(*(f"the collector has not taken {refused} spans: {why}", "refused") if refused else ("", ""))
            if refused and most == 1:
                # A single one that is too large says nothing of the others: they go as many at once as ever, with the next beat, for a collector may take none at all.
                return

    def _heard(self, trouble: str, kind: str) -> None:
        """Once each time that its kind changes, so that a collector that is away for a day fills no log: what it says beside a code may be another thing each time."""
        if kind != self._away:
            lost = self.dropped
            self._say(trouble or f"spans are sent again; {lost - self._said_lost} were lost meanwhile")
            if not trouble:
                self._said_lost = lost
        self._away = kind
