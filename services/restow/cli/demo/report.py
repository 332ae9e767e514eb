"""The report at the end, and whether every promise was kept."""

import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from restow.cli import plan_worth
from restow.cli.demo.beside import Beside
from restow.contracts.values import Packing
from restow.domain.node_table import WHOLE


@dataclass(slots=True)
class Outcome:
    """`seconds` per phase; `broken` are promises that were not kept, in words. `whole_before` and
    `whole_after` are GPUs of free nodes; `started`: by GPUs, who waited and has got a node, which everything after the moves counts as free still; worth and `cost` are in thousandths of `unit`, for `hours`; `greedy` is what that planner would have reached."""

    scenario: str
    nodes: int
    planner: str = "greedy"
    objective: str = ""
    arrived: int = 0
    finished: int = 0
    running: int = 0
    waited: int = 0
    waiting: int = 0
    started: dict[int, int] = field(default_factory=dict)
    before: Packing | None = None
    after: Packing | None = None
    greedy: Packing | None = None
    worth_before: int = 0
    worth_after: int = 0
    whole_before: int = 0
    whole_after: int = 0
    unit: str = ""
    hours: int = 0
    cost: int = 0
    bound: dict[str, Any] | None = None
    rounds: int = 0
    planned: int = 0
    landed: int = 0
    rolled_back: int = 0
    moved: int = 0
    lost: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    decisions: int = 0
    identical: int = 0
    skipped: int = 0
    events: int = 0
    void: int = 0
    log: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    chaos: dict[str, Any] | None = None
    beside: Beside | None = None
    broken: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Fill `broken`."""
        if self.lost:
            self.broken.append(f"{len(self.lost)} pods lost: {', '.join(self.lost[:5])}")
        if self.leaked:
            self.broken.append(f"{len(self.leaked)} holds leaked: {', '.join(self.leaked[:5])}")
        if self.rejected:
            self.broken.append(f"{len(self.rejected)} pods refused by a kubelet (over-commitment): {', '.join(self.rejected[:5])}")
        if self.identical != self.decisions:
            self.broken.append(f"only {self.identical} of {self.decisions} decisions re-decided identically")
        if not self.landed:
            self.broken.append("no migration landed: the cluster was not fragmented, or nothing could move")
        if self.beside is not None and self.beside.left:
            self.broken.append(f"{len(self.beside.left)} things left behind: {', '.join(self.beside.left[:5])}")
        if self.before and self.after and self.planner == "greedy" and self.after.free_nodes < self.before.free_nodes:
            self.broken.append("fewer free nodes after defragmentation than before")
        if self.planner == "optimizing":
            self._judge_objective()

    def _judge_objective(self) -> None:
        """What a plan is to gain must not have become less; free nodes and devices may have cost what is worth more by value."""
        if self.objective == "value" and self.worth_after < self.worth_before:
            self.broken.append("what is free is worth less after defragmentation than before")
        if self.before is None or self.after is None:
            return
        if self.objective == "devices" and self.after.free_devices < self.before.free_devices:
            self.broken.append("fewer whole free GPUs after defragmentation than before")
        if self.objective == "nodes" and self.after.free_nodes < self.before.free_nodes:
            self.broken.append("fewer free nodes after defragmentation than before")

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        for key in ("before", "after", "greedy"):
            packing = getattr(self, key)
            values[key] = None if packing is None else msgspec.to_builtins(packing)
        if self.beside is None:
            del values["beside"]
        else:
            values["beside"] = self.beside.as_json()
        return values


def _percent(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.1f} %" if whole else "-"


SIZES = 3
"""Sizes of pods that are told, the largest ones."""


def _rows(outcome: Outcome, before: Packing, after: Packing) -> list[tuple[str, str, str, str, str]]:
    """Of each line its name, before, after, the change, and what the greedy planner would have reached; first what people defragment for."""
    other = outcome.greedy
    rows: list[tuple[str, str, str, str, str]] = []

    def count(name: str, was: int, will: int, by_greedy: int | None = None) -> None:
        rows.append((name, str(was), str(will), f"{will - was:+d}", "" if by_greedy is None else str(by_greedy)))

    count("pods waiting for capacity", outcome.waited, outcome.waiting)
    found = {(one.devices, one.milli): one.pods for one in after.fits}
    by_greedy = {(one.devices, one.milli): one.pods for one in other.fits} if other is not None else {}
    for one in [one for one in before.fits if one.milli == WHOLE][:SIZES]:
        size = one.devices, one.milli
        count(f"{one.devices}-GPU pods that fit beside what runs", one.pods, found.get(size, 0), by_greedy.get(size))
    if before.total:
        count("whole free GPUs", before.free_devices, after.free_devices, other.free_devices if other is not None else None)
        count("GPUs in free nodes", outcome.whole_before, outcome.whole_after)
    count("free nodes", before.free_nodes, after.free_nodes, other.free_nodes if other is not None else None)
    count(f"worth of what is free, {outcome.unit} in {outcome.hours} h", outcome.worth_before // 1000, outcome.worth_after // 1000)
    if before.total:
        name, change = "fragmentation: idle GPU share of no use to typical pods", (after.fragmented - before.fragmented) * 100 / before.total
        greedy = _percent(other.fragmented, other.total) if other is not None else ""
        rows.append((name, _percent(before.fragmented, before.total), _percent(after.fragmented, after.total), f"{change:+z.1f} pp", greedy))
        rows.append(("idle GPU share", _percent(before.idle, before.total), _percent(after.idle, after.total), "", ""))
    return rows


def _started(started: dict[int, int]) -> str:
    """`3 of those who waited have started (3 with 8 GPUs); what they took is counted as free above`"""
    sizes = ", ".join(f"{count} with {gpus} GPU{'s' * (gpus != 1)}" if gpus else f"{count} without GPUs" for gpus, count in started.items())
    total = sum(started.values())
    return f"{total} of those who waited ha{'s' if total == 1 else 've'} started since: {sizes}. What they took is counted as free above."


def bounded_in_words(bound: dict[str, Any] | None) -> str:
    return click.unstyle(plan_worth.bounded(bound)) if bound is not None else ""


BY_VALUE = "By value: capacity for what pods ask for, those who wait above all. Single GPUs: --objective devices."


def show(console: Console, outcome: Outcome) -> None:
    before, after = outcome.before, outcome.after
    console.print()
    if before is not None and after is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        titles = ("", "before", "after", "change", "greedy")[: 5 if outcome.greedy is not None else 4]
        for name in titles:
            table.add_column(name, justify="left" if not name else "right")
        for row in _rows(outcome, before, after):
            table.add_row(*row[: len(titles)])
        console.print(table)
        console.print()
        if outcome.started:
            console.print(_started(outcome.started), highlight=False)
        if outcome.bound is not None:
            console.print(bounded_in_words(outcome.bound), highlight=False)
        if by_value := outcome.objective == "value" and before.total > 0:
            console.print(BY_VALUE, highlight=False)
        if outcome.started or outcome.bound is not None or by_value:
            console.print()
    good, bad = "[green]ok[/]", "[bold red]BROKEN[/]"
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(justify="left")
    facts.add_column(justify="right")
    facts.add_column()
    pods = outcome.running + outcome.waiting
    share = f"{outcome.landed * 100 / pods:.1f} % of the pods, " if pods else ""
    facts.add_row("migrations landed", f"{outcome.landed} of {outcome.planned}", f"{share}{outcome.rolled_back} rolled back, {outcome.rounds} round{'s' * (outcome.rounds != 1)}")
    facts.add_row(f"cost of the moves, {outcome.unit}", str(outcome.cost // 1000), f"won {(outcome.worth_after - outcome.worth_before) / outcome.cost:.1f} times as much" if outcome.cost else "")
    if (beside := outcome.beside) is not None:
        facts.add_row("held by a placeholder", f"{beside.held} of {outcome.planned}", f"{beside.stolen} stolen, {beside.guards} old nodes guarded")
        facts.add_row("landed elsewhere", str(beside.elsewhere))
        facts.add_row("evicted → bound", f"{beside.p50} ms", f"p50; the longest {max(beside.bound, default=0)} ms")
    facts.add_row("pods running", str(outcome.running), f"on {outcome.nodes} nodes")
    facts.add_row("pods lost", str(len(outcome.lost)), bad if outcome.lost else good)
    facts.add_row("holds leaked", str(len(outcome.leaked)), bad if outcome.leaked else good)
    if beside is not None:
        facts.add_row("placeholders, gates, entries left", str(len(beside.left)), bad if beside.left else good)
        facts.add_row("priority classes kept for later", str(len(beside.classes)), ", ".join(beside.classes))
    facts.add_row("pods refused by a kubelet", str(len(outcome.rejected)), bad if outcome.rejected else good)
    facts.add_row(
        "decisions re-decided identically",
        f"{outcome.identical} of {outcome.decisions}",
        bad if outcome.identical != outcome.decisions else good,
    )
    console.print(facts)
    console.print()
    if outcome.chaos is not None:
        kills = ", ".join(f"{key} {count}" for key, count in outcome.chaos["kills"].items())
        console.print(f"SIGKILLs with seed {outcome.chaos['seed']}: {sum(outcome.chaos['kills'].values())} ({kills})", highlight=False, soft_wrap=True)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in outcome.seconds.items())
    console.print(f"times:   {times}", style="dim", highlight=False)
    console.print(f"         {outcome.events} events in the log", style="dim", highlight=False)
    if outcome.log:
        # `make demo` runs it where nobody has put it on the PATH.
        restow = "restow" if shutil.which("restow") else sys.argv[0]
        console.print(f"see it:  {restow} replay {outcome.log}", highlight=False, soft_wrap=True)
        console.print(f"the log: {restow} verify {outcome.log}", style="dim", highlight=False, soft_wrap=True)
        console.print(f"         {restow} why --log {outcome.log} POD", style="dim", highlight=False, soft_wrap=True)
        console.print(f"         {restow} report {outcome.log}", style="dim", highlight=False, soft_wrap=True)
    for promise in outcome.broken:
        console.print(f"[bold red]broken promise:[/] {promise}", highlight=False)
