"""`restow trace`."""

from __future__ import annotations

import signal
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import click

from restow.cli.failures import BROKEN, UNREACHABLE, UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, number, output_option, plain

if TYPE_CHECKING:
    from restow.cli.trace.export import Collector
    from restow.domain.record_trust import Examined
    from restow.domain.state import ClusterState
    from restow.eventlog.port import Record
    from restow.tracing.spans import Span

BEAT = 1.0
"""Seconds for which spans are collected before they are sent."""
PATIENCE = 120.0
"""Seconds for which a log is waited for that cannot be read on."""
MOST_WAITING = 5_120
"""Spans of a whole log that are collected before they are sent."""
MOST_KEPT = 500_000
"""Spans that wait for a collector that is away; later ones are not kept. `restow trace --to` sends them afterwards."""


@click.command()
@click.argument("what", required=False, metavar="[NAME]")
@click.option("--to", metavar="URL", help="Send them to a collector, by OTLP over HTTP.  [default: OTEL_EXPORTER_OTLP_ENDPOINT]")
@click.option("-f", "--follow", is_flag=True, help="Send what ends from now on, until Ctrl-C.")
@click.option("--share", default=1.0, show_default=True, type=click.FloatRange(0.0, 1.0), help="Of all traces this part, whole ones only.")
@log_options
@output_option
def trace(what: str | None, to: str | None, follow: bool, share: float, where: Where, output: str) -> None:
    """Traces of pods and plans, from the log: in this terminal, or to a collector of OpenTelemetry.

    Each pod has a trace, from when it was seen until it was bound, and each plan one with its moves: hold, eviction, landing. They follow from the log alone:
    the same log gives the same traces with the same ids, no service measures anything for them, and what a collector has missed can be sent again. A span
    of a decision links to the commit's own span, which services export that have OTEL_EXPORTER_OTLP_ENDPOINT set.

    NAME is a pod (NAMESPACE/NAME), a plan, a migration, or the beginning of a trace's id. Without it and without a collector the longest traces are listed.

    \b
    Examples:
      restow trace                                    what took longest
      restow trace shop/web-1                         where its time went
      restow trace --to http://collector:4318         the whole log, once
      restow trace --to http://collector:4318 -f      from now on; --share 0.1 for a tenth
    """
    from restow.cli.trace.export import endpoint

    # What the environment names is for `-f` and `--to`: whoever asks for a name, or for the list, wants to see it here.
    url = endpoint(to) if to or follow else None
    if follow:
        if url is None:
            raise Failure("-f sends traces, and nobody says where to; name a collector with --to http://HOST:4318", UNUSABLE)
        return _follow(where, url, share)
    with where.source() as source, Progress("folding the log") as progress:
        from restow.replay.state_at import state_at
        from restow.replay.traces import Traces

        traces, cluster, log_id = Traces(source.log_id, share), source.cluster, source.log_id
        sending = _Sending(url, cluster, log_id) if url is not None else None
        spans: list[Span] = []

        def hear(state: ClusterState, record: Record, found: Examined) -> None:
            spans.extend(traces.hear(state, record, found))
            if sending is not None and what is None and len(spans) >= MOST_WAITING:
                sending.send(spans)

        state_at(source, progress=progress, watch=hear)
        spans += traces.rest()
    chosen = spans if what is None else _of(spans, what)
    if sending is None:
        return _show(chosen, what, cluster, log_id, output)
    sending.send(chosen)
    return sending.end()


def _of(spans: list[Span], what: str) -> list[Span]:
    """The traces that it names. Raises Failure."""
    name = what.removeprefix("pod/").removeprefix("plan/").removeprefix("migration/")
    found = {span.trace for span in spans if name in _names(span)}
    if not found and len(name) >= 4:
        found = {span.trace for span in spans if span.trace.startswith(name)}
    if not found:
        raise Failure(f"no trace of {what}: its pod never waited in this log, or is not known; `restow trace` lists some", UNUSABLE)
    return [span for span in spans if span.trace in found]


def _names(span: Span) -> tuple[object, ...]:
    values = span.values
    if span.parent:
        return (values.get("restow.migration"),)
    pod = values.get("k8s.pod.name")
    return values.get("restow.plan"), pod, f"{values.get('k8s.namespace.name')}/{pod}", values.get("k8s.pod.uid")


class _Sending:
    """A log's spans on their way, so that they need not all be kept."""

    def __init__(self, url: str, cluster: str, log_id: str) -> None:
        from restow.cli.trace.export import Collector

        self._url, self._collector, self._traces = url, Collector(url, cluster, log_id), 0

    def send(self, spans: list[Span]) -> None:
        """All of them, and takes them out of the list. Raises Failure."""
        self._traces += sum(not span.parent for span in spans)
        self._collector.send(spans)

    def end(self) -> None:
        """Says what was sent. Raises Failure where not all was taken."""
        from restow.contracts.redact import redacted

        one = self._collector
        click.echo(f"{number(one.sent)} spans of {number(self._traces)} traces are sent to {plain(redacted(self._url))}")
        if one.refused:
            raise Failure(f"{redacted(self._url)} has not taken {number(one.refused)} more: {one.why or 'it does not say why'}", BROKEN)


def _show(spans: list[Span], what: str | None, cluster: str, log_id: str, output: str) -> None:
    from importlib.metadata import version

    from restow.cli.trace import screen
    from restow.tracing import otlp

    if output == "json":
        return click.echo(otlp.request(spans, cluster, log_id, version("restow")).decode())
    if what is None:
        return screen.longest(spans)
    for at, own in enumerate(screen.by_trace(spans).values()):
        click.echo("", nl=bool(at))
        screen.waterfall(own)
    return None


def _follow(where: Where, url: str, share: float) -> None:
    """A collector that is away is waited for: what ends meanwhile is kept, and is in the log besides."""
    from restow.cli.folding import Folding
    from restow.cli.trace.export import Collector
    from restow.replay.traces import Traces

    if where.log:
        raise Failure(f"{where.log} is a file and will not grow; -f needs a running log", UNUSABLE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), closing(where.live()) as source:
        traces, collector, tail = Traces(source.log_id, share), Collector(url, source.cluster, source.log_id), source.last
        ended: list[Span] = []
        lost = 0

        def watch(state: ClusterState, record: Record, found: Examined) -> None:
            spans = traces.hear(state, record, found)
            if record.seq > tail:
                nonlocal lost
                lost += max(0, len(ended) + len(spans) - MOST_KEPT)
                ended.extend(spans[: MOST_KEPT - len(ended)])

        folding = Folding(source, traces.begin, watch)
        click.echo(f"following {plain(source.name)} from sequence {tail + 1}; Ctrl-C ends it")
        well = time.monotonic()
        while True:
            time.sleep(BEAT)
            with folding.lock:
                (now, gone), ended[:], lost = (list(ended), lost), [], 0
            if gone:
                click.echo(f"restow: {number(gone)} spans were not kept while the collector was waited for; `restow trace --to` sends them again", err=True)
            began = time.monotonic()
            _deliver(collector, now)
            # Nobody has looked at the log while the collector was waited for.
            well = _read_on(folding.error, well + time.monotonic() - began)


def _read_on(error: str, well: float) -> float:
    """When (monotonic seconds) the log was last read without trouble. Raises Failure where that is too long ago: what was truncated meanwhile does not come back, and who begins
    anew begins behind it."""
    if not error:
        return time.monotonic()
    if time.monotonic() - well > PATIENCE:
        raise Failure(f"the log cannot be read on: {error}", UNREACHABLE)
    return well


def _deliver(collector: Collector, spans: list[Span]) -> None:
    """What the collector will never take is left out, for later ones would wait for it for ever."""
    from restow.cli.trace.export import NotTaken
    from restow.tracing.collector import AGAIN

    while spans:
        before = collector.refused
        try:
            collector.send(spans)
        except NotTaken as error:
            left = min(len(spans), collector.most)
            del spans[:left]
            click.echo(f"restow: {plain(error.message)}; {number(left)} spans are left out", err=True)
        except Failure as error:
            click.echo(f"restow: {plain(error.message)}; it is tried again", err=True)
            # Some answers come at once, say that a token is not known.
            time.sleep(AGAIN[-1])
        if collector.refused > before:
            click.echo(f"restow: the collector has not taken {number(collector.refused - before)} spans: {plain(collector.why)}", err=True)
