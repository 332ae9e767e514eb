"""A plan, or all of one policy, while it is carried out: one line for each wave that begins, for each workload that is asked and for each move that ends,
and on a terminal a last line that counts. Ctrl-C ends the looking, not the plan."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import click

from restow.cli.descheduler_client import OVER_PHASES
from restow.cli.failures import BROKEN, Failure
from restow.cli.output import colored, cut, faint, number, width
from restow.cli.plan_tables import counted, said
from restow.domain.verdicts import NOBODY_FOLLOWED

OVER = ("landed", "removed", "failed", "not_recreated", "unknown", "declined", "observed")
_WORD = {"landed": "landed", "removed": "evicted", "failed": "rolled back", "not_recreated": "not recreated", "unknown": "void", "declined": "declined", "observed": "only observed"}
_COLOR = {"landed": "green", "removed": "green", "failed": "yellow", "not_recreated": "red", "unknown": "red", "declined": "yellow", "observed": "yellow"}


class Outcome:
    """What was seen of plans: the latest of each, and of each migration."""

    def __init__(self) -> None:
        self.plans: dict[str, dict[str, Any]] = {}
        self.migrations: dict[str, dict[str, Any]] = {}
        self.left = False
        """Ctrl-C: it goes on."""

    @property
    def plan(self) -> dict[str, Any]:
        """The one that was heard of last."""
        return next(reversed(self.plans.values()), {})

    @property
    def steps(self) -> Counter[str]:
        return Counter(m["step"] for m in self.migrations.values())


def follow(plan: str, lines: Iterable[dict[str, Any]], *, quiet: bool = False) -> Outcome:
    """Until the plan is over or the user has seen enough. `quiet`: show nothing."""
    again = f"the plan goes on. See it again with `restow defrag --follow {plan}`, stop it with `restow defrag --cancel {plan}`"
    return _follow(lines, _Shown(quiet, {}), again)


def follow_all(names: Mapping[str, str], lines: Iterable[dict[str, Any]], *, quiet: bool = False) -> Outcome:
    """The same of several plans at once; `names`: what made each of them."""
    again = "the plans go on. See one again with `restow defrag --follow PLAN` (`restow get plans`), stop all with `restow defrag --cancel`"
    return _follow(lines, _Shown(quiet, names), again)


def merged(plans: Sequence[str], read: Callable[[str], Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """What is read of each plan, as it comes. What one of them raises is raised."""
    queue: SimpleQueue[dict[str, Any] | BaseException | None] = SimpleQueue()

    def hear(plan: str) -> None:
        try:
            for line in read(plan):
                queue.put(line)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    for plan in plans:
        # Ctrl-C must not wait for a descheduler that says nothing.
        Thread(target=hear, args=(plan,), daemon=True).start()
    left = len(plans)
    while left:
        line = queue.get()
        if isinstance(line, BaseException):
            raise line
        if line is None:
            left -= 1
        else:
            yield line


def _follow(lines: Iterable[dict[str, Any]], shown: _Shown, again: str) -> Outcome:
    outcome = Outcome()
    try:
        for line in lines:
            plan = line["plan"]["plan"]
            outcome.plans.pop(plan, None)
            outcome.plans[plan] = line["plan"]
            changed = [m for m in line["migrations"] if _news(outcome.migrations.get(m["id"], {})) != _news(m)]
            outcome.migrations.update((m["id"], m) for m in line["migrations"])
            shown.line(outcome, changed)
    except KeyboardInterrupt:
        outcome.left = True
    shown.end()
    if outcome.left and not shown.quiet:
        click.echo()
        said(again)
    return outcome


def _news(one: Mapping[str, Any]) -> tuple[str, str]:
    """What is told when it changes. A descheduler of an earlier release does not say who is asked."""
    return one.get("step", ""), one.get("asked", "")


class _Shown:
    """`names`: what made each plan, where several are followed."""

    def __init__(self, quiet: bool, names: Mapping[str, str]) -> None:
        self.quiet, self._names, self._terminal = quiet, names, sys.stdout.isatty()
        self._waves: set[tuple[str, int]] = set()
        self._cancelled: set[str] = set()
        self._status = False

    def line(self, outcome: Outcome, changed: list[dict[str, Any]]) -> None:
        if self.quiet:
            return
        for one in sorted(changed, key=lambda m: (m["since"], m["wave"], m["id"])):
            if one["step"] not in ("planned", "proposed", "declined", "observed"):
                self._wave(outcome, one)
            if one["step"] in OVER:
                self._clear()
                _ended(one)
            elif one.get("asked"):
                self._clear()
                _asked(one)
        plan = outcome.plan
        if (cancelled := plan.get("cancelled")) and plan["plan"] not in self._cancelled:
            self._cancelled.add(plan["plan"])
            self._clear()
            said(f"  {_now()}  {self._of(plan)}cancelled: {cancelled}")
        self._counts(outcome)

    def _wave(self, outcome: Outcome, first: Mapping[str, Any]) -> None:
        """The first of a wave has begun: others of the one before may still be under way."""
        plan, wave = outcome.plan, first["wave"]
        if (plan["plan"], wave) in self._waves:
            return
        self._waves.add((plan["plan"], wave))
        self._clear()
        moves = sum(m["wave"] == wave and m.get("plan", plan["plan"]) == plan["plan"] for m in outcome.migrations.values())
        said(f"  {_at(first)}  {self._of(plan)}wave {wave} of {plan['waves']}: {counted(moves, 'move')}")

    def _of(self, plan: Mapping[str, Any]) -> str:
        name = self._names.get(plan["plan"])
        return f"{name}: " if name else ""

    def _counts(self, outcome: Outcome) -> None:
        if not self._terminal or all(plan["phase"] in (*OVER_PHASES, "proposed") for plan in outcome.plans.values()):
            return
        steps = outcome.steps
        under_way = sum(count for step, count in steps.items() if step not in OVER and step not in ("planned", "proposed"))
        parts = [f"{number(under_way)} under way", f"{number(steps['landed'])} landed"]
        parts += [f"{number(steps['failed'])} rolled back"] if steps["failed"] else []
        parts += [f"{number(steps['planned'])} to come"] if steps["planned"] else []
        text = f"  {', '.join(parts)}; Ctrl-C leaves it running"
        click.echo(f"\r{faint(cut(text, width() - 1))}\x1b[K", nl=False)
        self._status = True

    def _clear(self) -> None:
        if self._status:
            click.echo("\r\x1b[K", nl=False)
            self._status = False

    def end(self) -> None:
        self._clear()


def _asked(one: Mapping[str, Any]) -> None:
    _row(f"  {_at(one)}  ", f"{'asked':<13}", f"the workload of {one['namespace']}/{one['name']} ({one['way']}); it has until {one['asked'][:19]}Z")


def _ended(one: Mapping[str, Any]) -> None:
    pod, word = f"{one['namespace']}/{one['name']}", _WORD[one["step"]]
    word = colored(f"{word:<13}", _COLOR[one["step"]])
    when = _at(one)
    if one["step"] == "landed":
        successor = one.get("landedAs") or ""
        text = f"{pod} on {one['target']}" + (f" as {successor}" if successor and successor != one["name"] else "")
    elif one["step"] == "removed":
        text = f"{pod} from {one['source']}"
    elif one["step"] == "failed":
        text = f"{pod} stays on {one['source']}: {reason(one)}"
    elif one["step"] == "not_recreated":
        text = f"{pod}: {NOBODY_FOLLOWED}"
    elif one["step"] in ("declined", "observed"):
        text = f"{pod} stays on {one['source']}"
    else:
        text = f"{pod}: it was part of another migration, or gone"
    _row(f"  {when}  ", word, text)


def _row(prefix: str, word: str, text: str) -> None:
    """Colours count for nothing in the width of a line."""
    import textwrap

    indent = len(prefix) + 13
    first, *rest = textwrap.wrap(text, max(20, width() - indent), break_long_words=False, break_on_hyphens=False) or [""]
    click.echo(f"{prefix}{word}{first}")
    for line in rest:
        click.echo(" " * indent + line)


def reason(one: Mapping[str, Any]) -> str:
    return f"{one['reason']}: {one['message']}".strip(": ")


def _at(one: Mapping[str, Any]) -> str:
    """Since when it is where it is, as the log has it."""
    return one["since"][11:19] or _now()


def _now() -> str:
    return time.strftime("%H:%M:%S", time.gmtime())


def summary(outcome: Outcome) -> str:
    """`3 landed, 1 rolled back in 2.1 s`."""
    steps = outcome.steps
    parts = [f"{number(count)} {_WORD[step]}" for step in OVER if (count := steps[step])]
    ends = [plan.get("until", "") for plan in outcome.plans.values()]
    took = _seconds(min((plan.get("at", "") for plan in outcome.plans.values()), default=""), max(ends) if ends and all(ends) else "")
    return (", ".join(parts) or "nothing to move") + (f" in {took:.1f} s" if took is not None else "")


def check_recreated(outcome: Outcome) -> None:
    """Raises Failure where pods were evicted that nobody made again: that is not what was promised."""
    if lost := outcome.steps["not_recreated"]:
        raise Failure(f"{lost} evicted pods were not recreated by their controllers; `restow why migration/ID` tells the story", BROKEN)


def _seconds(start: str, end: str) -> float | None:
    from datetime import datetime

    if not start or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
