"""What `restow whatif` found, over time, as one SVG that needs nothing from elsewhere."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from restow.cli.failures import UNUSABLE, Failure
from restow.cli.output import plain
from restow.contracts.times import day_and_time

if TYPE_CHECKING:
    from restow.replay.whatif.answer import Answer
    from restow.replay.whatif.meter import Measured, Sample

WIDTH, LEFT, RIGHT, TOP = 960, 70, 30, 104
PANEL, BETWEEN, BOTTOM = 170, 44, 40
"""Pixels: of a panel's height, and between two."""
LINES = (("recorded", "#767676", "6 4"), ("model", "#0072b2", "2 3"), ("what if", "#d55e00", ""))
"""Name, colour and dashes: they differ also for who sees no colours, and where they are printed in grey."""
SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000)
"""Seconds that may be between two marks of the time axis."""
UNITS = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))
STYLE = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}.panel{font-weight:600}.axis{stroke:#999}.grid{stroke:#e4e4e4}.line{fill:none;stroke-width:2}"

Values = Sequence[tuple[int, float | None]]
"""(time in ms, value); None where there is none."""


def write(found: Answer, file: str) -> None:
    """Raises Failure."""
    try:
        Path(file).write_text(svg(found), encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file}: cannot be written: {error.strerror}", UNUSABLE) from None


def svg(found: Answer) -> str:
    """Three panels, one under the other, with one time axis."""
    runs = [found.recorded, found.model, *([found.changed] if found.changed is not None else [])]
    unit, unit_name = _unit(runs)
    panels: list[tuple[str, Callable[[Sample], float | None]]] = [
        (f"mean wait of the pods that came, {unit_name}", lambda sample: None if sample.mean_wait is None else sample.mean_wait / unit),
        ("pods waiting", lambda sample: sample.waiting),
        ("wholly free devices", lambda sample: sample.free_devices),
    ]
    height = TOP + len(panels) * (PANEL + BETWEEN) - BETWEEN + BOTTOM
    title = f"{plain(found.name)}, {day_and_time(found.first)} to {day_and_time(found.last)}"
    said = found.error.told
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f'<title>{html.escape(title)}</title><style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="24">{html.escape(_short(title))}</text><text x="{LEFT}" y="44">{html.escape(said)}</text>',
        *_legend(len(runs)),
    ]
    for number, (name, of) in enumerate(panels):
        lines = [[(int(sample.time), of(sample)) for sample in one.samples] for one in runs]
        parts += _panel(TOP + number * (PANEL + BETWEEN), name, lines, found.first, found.last)
    return "\n".join((*parts, "</svg>", ""))


def _short(title: str) -> str:
    """So that it ends before the picture does; the end says when."""
    return title if len(title) <= 110 else "…" + title[-109:]


def _unit(runs: Sequence[Measured]) -> tuple[int, str]:
    longest = max((sample.mean_wait or 0 for one in runs for sample in one.samples), default=0)
    return next(((ms, name) for ms, name in UNITS if longest >= 2 * ms), UNITS[-1])


def _legend(count: int) -> Iterator[str]:
    for number, (name, color, dashes) in enumerate(LINES[:count]):
        x = LEFT + number * 120
        yield f'<path class="line" d="M{x} 61h30" stroke="{color}" stroke-dasharray="{dashes}"/><text x="{x + 38}" y="65">{name}</text>'


def _panel(top: int, name: str, lines: Sequence[Values], first: int, last: int) -> Iterator[str]:
    bottom, right = top + PANEL, WIDTH - RIGHT
    step, most = _scale(max((value for line in lines for _, value in line if value is not None), default=0.0))

    def x(time: int) -> float:
        return round(LEFT + (right - LEFT) * (time - first) / max(1, last - first), 1)

    def y(value: float) -> float:
        return round(bottom - PANEL * value / most, 1)

    yield f'<text class="panel" x="{LEFT}" y="{top - 8}">{name}</text>'
    for number in range(round(most / step) + 1):
        value = number * step
        yield f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/><text x="{LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>'
    for time, said in _times(first, last):
        yield f'<path class="axis" d="M{x(time)} {bottom}v5"/><text x="{x(time)}" y="{bottom + 18}" text-anchor="middle">{said}</text>'
    # The whole line first: where they are the same, the others are seen on it.
    for (_, color, dashes), line in reversed(list(zip(LINES, lines, strict=False))):
        yield f'<path class="line" d="{_path(line, x, y)}" stroke="{color}" stroke-dasharray="{dashes}"/>'


def _path(line: Values, x: Callable[[int], float], y: Callable[[float], float]) -> str:
    """Broken where there is no value; one alone is a dash of three pixels."""
    steps, before = [], False
    for at, (time, value) in enumerate(line):
        if value is not None:
            steps.append(f"{'L' if before else 'M'}{x(time)} {y(value)}")
            if not before and (at + 1 == len(line) or line[at + 1][1] is None):
                steps.append("m-1.5 0h3")
        before = value is not None
    return "".join(steps)


def _scale(most: float) -> tuple[float, float]:
    """The step between two marks, 1, 2 or 5 times a power of ten, and the end: at most six marks, and one at least."""
    if most <= 0:
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(most / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= most)
    return step, step * math.ceil(most / step)


def _times(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Marks of the time axis in UTC: eight at most."""
    step = 1_000 * next((span for span in SPANS if span * 8_000 >= last - first), SPANS[-1])
    text = "%b %d" if step >= 86_400_000 else "%H:%M" if step >= 60_000 else "%H:%M:%S"
    for time in range(-(-first // step) * step, last + 1, step):
        yield time, datetime.fromtimestamp(time / 1_000, UTC).strftime(text)
