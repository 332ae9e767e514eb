"""One picture of a state for a terminal: a line of each number that matters, a map of the nodes, who waits and why, what moves. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

from restow.cli.amounts import span
from restow.cli.output import number, plain
from restow.contracts.events import PodObserved
from restow.contracts.ids import MigrationId, Millis, NodeName
from restow.domain import eviction_budgets
from restow.domain.migration import open_hours
from restow.domain.node_table import NO_DEVICE, WHOLE
from restow.domain.state import OVER, ClusterState
from restow.domain.too_old import too_old
from restow.replay import breaks
from restow.replay.pod_status import running, why_waits

SHADES = "·▁▂▃▄▅▆▇█"
"""Nothing used … all used."""
LISTED = 3
"""Lines that waiting pods and moves each get at least, where there are so many."""
MOST = 500
"""Waiting pods that are looked at: more lines no terminal has."""


def picture(state: ClusterState, cluster: str, width: int, height: int, now: Millis, error: str = "") -> list[Text]:
    """At most `height` lines of at most `width` columns. `now` in ms. `error`: why it is not read on."""
    head = _head(state, cluster, now, error)
    waiting, moving = _waiting(state, now), _moving(state, now)
    # The map takes what it needs, but leaves place for the lists; they share the rest.
    least = sum(min(len(rows), LISTED) + 2 for rows in (waiting, moving) if rows)
    nodes = _map(state, width, max(2, height - len(head) - least - 2))
    left = height - len(head) - len(nodes) - 1
    lines = [*head, Text(""), *nodes]
    share = left // 2 if waiting and moving else left
    shown = min(len(moving) + 2, share) if moving else 0
    if waiting:
        lines += _list("WAITING", waiting, left - shown, width)
    if moving:
        lines += _list("MOVES UNDER WAY", moving, shown, width)
    for line in lines[:height]:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _head(state: ClusterState, cluster: str, now: Millis, error: str) -> list[Text]:
    table = state.table
    rows = [table.rows[name] for name in state.nodes]
    free = table.device_free[rows]
    known = free != NO_DEVICE
    text = Text.assemble((f"{plain(cluster)}", "bold"), f"  sequence {number(state.seq)}, {span(now - state.time)} ago" if state.seq else "  nothing has been read yet")
    parts = [f"{number(len(state.nodes))} node{'s' * (len(state.nodes) != 1)}", *(f"{name} {_percent(state, rows, name)}" for name in ("cpu", "memory"))]
    if known.any():
        whole, total = int((free == WHOLE).sum()), int(known.sum())
        parts.append(f"gpus {number(whole)} of {number(total)} wholly free")
    runs = running(state)
    parts.append(f"{number(runs)} pod{'s' * (runs != 1)} running")
    lines = [text, Text("   ".join(parts))]
    closed = [(sum(not node.ready for node in state.nodes.values()), "not ready"), (sum(node.unschedulable for node in state.nodes.values()), "cordoned")]
    if said := ", ".join(f"{count} {word}" for count, word in closed if count):
        lines.append(Text(f"nodes: {said}", "yellow"))
    if shut := open_hours.said(state.migration_config, state.time):
        lines.append(Text(f"no pod is moved: {plain(shut)}", "yellow"))
    if used_up := eviction_budgets.nothing_left(state, state.time):
        lines.append(Text(plain(used_up), "yellow"))
    if state.pause.since:
        lines.append(Text(plain(f"moves are paused by {state.pause.by or 'Restow itself'}: {state.pause.reason}"), "yellow"))
    lines += [Text(plain(trouble), "red") for trouble in (breaks.said(state), too_old(state), error) if trouble]
    return lines


def _percent(state: ClusterState, rows: Sequence[int], name: str) -> str:
    column = state.table.columns.get(name)
    if column is None or not rows:
        return "-"
    total = int(state.table.allocatable[rows, column].sum())
    return f"{100 * int((state.table.used[rows, column] + state.table.reserved[rows, column]).sum()) // total} %" if total else "-"


def _map(state: ClusterState, width: int, height: int) -> list[Text]:
    """A line of devices a node where that has place, else one sign a node."""
    names = sorted(state.nodes)
    if not names:
        return [Text("no nodes yet", "dim")]
    shares = {name: _shares(state, name) for name in names}
    longest = max(len(name) for name in names)
    most = max(len(share) for share in shares.values())
    cell = longest + 1 + most + 3
    across = max(1, (width + 2) // cell)
    if cell <= width + 2 and math.ceil(len(names) / across) <= height:
        return [_row(state, names[at::math.ceil(len(names) / across)], shares, longest, cell) for at in range(math.ceil(len(names) / across))]
    lines, places = [], max(1, width)
    fits = places * max(1, height - 1)
    # The emptiest first: there is what one looks for.
    order = sorted(names, key=lambda name: (float(np.mean(shares[name])), name))
    for at in range(0, min(len(order), fits), places):
        line = Text()
        for name in order[at : at + places]:
            line.append(_shade(float(np.mean(shares[name]))), _style(state, name))
        lines.append(line)
    rest = f"{number(len(order) - fits)} fuller ones are not shown; " if len(order) > fits else ""
    return [*lines, Text(f"{rest}each sign is a node, the emptiest first", "dim")]


def _row(state: ClusterState, names: Sequence[NodeName], shares: dict[NodeName, list[float]], longest: int, cell: int) -> Text:
    line = Text()
    for name in names:
        style = _style(state, name)
        line.append(f"{plain(name):<{longest}} ", style or "dim")
        line.append("".join(map(_shade, shares[name])), style)
        line.append(" " * max(0, cell - longest - 1 - len(shares[name])))
    line.rstrip()
    return line


def _shares(state: ClusterState, name: NodeName) -> list[float]:
    """Of each of its devices how much is used, 0 to 1; of a node without any, of its cores."""
    table, row = state.table, state.table.rows[name]
    free = table.device_free[row]
    free = free[free != NO_DEVICE]
    if len(free):
        return [1 - max(0, int(one)) / WHOLE for one in free]
    column = table.columns.get("cpu")
    total = int(table.allocatable[row, column]) if column is not None else 0
    return [min(1.0, int(table.used[row, column] + table.reserved[row, column]) / total)] if total else [1.0]


def _shade(share: float) -> str:
    # Only what is wholly free, and wholly used, looks so.
    steps = len(SHADES) - 1
    return SHADES[0] if share <= 0 else SHADES[-1] if share >= 1 else SHADES[min(steps - 1, max(1, round(share * steps)))]


def _style(state: ClusterState, name: NodeName) -> str:
    node = state.nodes[name]
    if not node.ready or node.unreadable:
        return "red"
    if node.unschedulable:
        return "yellow"
    return "cyan" if name in state.held_on else ""


def _waiting(state: ClusterState, now: Millis) -> Sequence[tuple[str, ...]]:
    """Who has waited longest comes first. Of those who cannot be shown anyway only the number counts."""
    there = [pod for uid, pod in state.pods.items() if state.node_of(uid) is None and pod.live.phase not in OVER and not pod.live.deleting]
    there.sort(key=lambda pod: (pod.fact.created, pod.fact.namespace, pod.fact.name))
    facts = [pod.fact for pod in there]
    said = [(plain(f"{one.namespace}/{one.name}"), span(now - one.created), plain(_why(state, one))) for one in facts[:MOST]]
    return said + [("", "", "")] * (len(facts) - len(said))


def _why(state: ClusterState, fact: PodObserved) -> str:
    return why_waits(state, fact.pod) if state.ours(fact) else f"{state.shapes[fact.shape].scheduler} has not placed it"


def _moving(state: ClusterState, now: Millis) -> Sequence[tuple[str, ...]]:
    active: list[MigrationId] = list(state.active)
    found: list[tuple[str, ...]] = []
    for id in active:
        record = state.migrations[id]
        move = record.move
        found.append((plain(f"{move.namespace}/{move.name}"), str(record.step), span(now - record.since), plain(f"{move.source} → {move.target or '-'}")))
    if state.backlog:
        found.append((f"{number(len(state.backlog))} more", "planned", "", ""))
    return found


def _short(name: str, width: int) -> str:
    """Both ends of it: the beginning says whose it is, the end tells it from its siblings."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _list(title: str, rows: Sequence[tuple[str, ...]], height: int, width: int) -> list[Text]:
    """A blank line, a heading, and as many rows as there is place for."""
    if height < 3:
        return []
    # One long name must not push out of the screen why everybody waits.
    shown = [(_short(name, max(width // 2, 1)), *rest) for name, *rest in (rows if len(rows) <= height - 2 else rows[: height - 3])]
    widths = [max(len(row[at]) for row in shown) for at in range(len(rows[0]))] if shown else []
    lines = [Text(""), Text(f"{title}  {number(len(rows))}" if len(rows) > 1 else title, "bold")]
    for row in shown:
        lines.append(Text("  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip()))
    if len(shown) < len(rows):
        lines.append(Text(f"and {number(len(rows) - len(shown))} more", "dim"))
    return lines
