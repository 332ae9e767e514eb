"""Sending a log's spans to a collector."""

from __future__ import annotations

from importlib.metadata import version

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure
from restow.tracing import collector, otlp
from restow.tracing.spans import Span


def endpoint(named: str | None) -> str | None:
    """Where traces go (`collector.endpoint`). Raises Failure."""
    try:
        return collector.endpoint(named)
    except collector.NoCollector as error:
        raise Failure(str(error), UNUSABLE) from error


class NotTaken(Failure):
    """A collector will never take a request, whoever sends it again."""


class Collector:
    """Takes spans, in order; `sent` counts those that it has taken, `refused` those that it has not although it took the rest of their request, and `why` is what it said."""

    def __init__(self, url: str, cluster: str, log_id: str) -> None:
        try:
            self._collector = collector.Collector(url)
        except collector.NoCollector as error:
            raise Failure(str(error), UNUSABLE) from error
        self._cluster, self._log_id = cluster, log_id
        self.sent, self.refused, self.why = 0, 0, ""
        self.most = collector.BATCH
        """Spans of the next request at most."""

    def send(self, spans: list[Span]) -> None:
        """All of them, and takes out of the list what is sent. Raises Failure where the collector refuses them, or is not there after some tries."""
        while part := spans[: self.most]:
            body = otlp.request(part, self._cluster, self._log_id, version("restow"))
            try:
                refused, why = self._collector.take(body, len(part), collector.AGAIN)
            except collector.Away as error:
                if isinstance(error, collector.TooLarge) and len(part) > 1:
                    self.most = len(part) // 2
                    continue
                raise (NotTaken if isinstance(error, collector.NotTaken) else Failure)(str(error), UNREACHABLE) from None
            self.sent, self.refused, self.why = self.sent + len(part) - refused, self.refused + refused, why or self.why
            del spans[: len(part)]
            # A single one that was too large said nothing of the others.
            self.most = min(collector.BATCH, 2 * self.most)
