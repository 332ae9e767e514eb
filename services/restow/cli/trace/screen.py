"""Traces in a terminal: one as a waterfall, or the longest of all in a table. Pure but for printing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import click

from restow.cli.output import faint, heading, number, plain, table
from restow.contracts.times import rfc3339
from restow.tracing.spans import Span

BAR = 40
"""Columns of the waterfall."""
LISTED = 20


def by_trace(spans: Sequence[Span]) -> dict[str, list[Span]]:
    """The spans of each trace, its root first, then as they begin."""
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        found[span.trace].append(span)
    for own in found.values():
        own.sort(key=lambda span: (bool(span.parent), span.begin, span.end))
    return found


def longest(spans: Sequence[Span]) -> None:
    """Of pods and of plans those that took longest."""
    traces = by_trace(spans)
    for title, begins in (("PLANS", "plan "), ("PODS", "pod ")):
        roots = [own[0] for own in traces.values() if own[0].name.startswith(begins)]
        roots.sort(key=lambda root: (root.begin - root.end, root.name))
        if not roots:
            continue
        click.echo(f"{heading(title)}  {number(len(roots))}, the longest first")
        rows = [(_what(root), root.name, took(root), number(len(traces[root.trace]) - 1), root.error or ("has not ended" if root.open else "")) for root in roots[:LISTED]]
        table(("TRACE", "NAME", "TOOK", "SPANS", "NOTE"), rows, right=("TOOK", "SPANS"), flexible=("NAME", "NOTE"))
        click.echo("")
    click.echo("restow trace NAME shows one; --to http://COLLECTOR:4318 sends them all")


def _what(root: Span) -> str:
    return str(root.values.get("restow.plan") or root.trace[:8])


def waterfall(spans: Sequence[Span]) -> None:
    """One trace."""
    root, children = spans[0], defaultdict(list)
    for span in spans[1:]:
        children[span.parent].append(span)
    begin, end = min(span.begin for span in spans), max(span.end for span in spans)
    click.echo(f"{heading(root.name)}  {rfc3339(root.begin)}, {took(root)}  {faint('trace ' + root.trace)}")
    for key, value in root.values.items():
        click.echo(faint(f"  {key} {plain(str(value))}"))
    names: list[tuple[Span, int]] = []

    def walk(span: Span, depth: int) -> None:
        names.append((span, depth))
        for child in children[span.id]:
            walk(child, depth + 1)

    walk(root, 0)
    width = min(48, max(len(span.name) + 2 * depth for span, depth in names))
    for span, depth in names:
        name = plain("  " * depth + span.name)
        note = plain("; ".join(filter(None, (_target(span), span.error, "has not ended" if span.open else ""))))
        click.echo(f"{name[:width]:<{width}}  {_bar(span, begin, end)}  {took(span):>9}  {note}".rstrip())


def _target(span: Span) -> str:
    source, target = span.values.get("restow.source"), span.values.get("restow.target")
    if source:
        return f"{source} → {target or 'evicted'}"
    return str(span.values.get("restow.node") or span.values.get("k8s.node.name") or "")


def _bar(span: Span, begin: int, end: int) -> str:
    whole = max(end - begin, 1)
    first = (span.begin - begin) * (BAR - 1) // whole
    last = max(first, -((begin - span.end) * (BAR - 1) // whole))
    return "·" * first + "█" * (last - first + 1) + "·" * (BAR - 1 - last)


def took(span: Span) -> str:
    ms = span.end - span.begin
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.1f} s" if ms < 600_000 else f"{ms // 60_000} min"
