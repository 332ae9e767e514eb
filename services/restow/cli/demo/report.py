"""The report at the end, and whether every promise was kept."""

import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from restow.cli.demo.beside import Beside
from restow.contracts.values import Packing
from restow.domain.node_table import WHOLE


@dataclass(slots=True)
class Outcome:
    """`seconds` per phase; `broken` are promises that were not kept, in words."""

    scenario: str
    nodes: int
    arrived: int = 0
    finished: int = 0
    running: int = 0
    waited: int = 0
    waiting: int = 0
    before: Packing | None = None
    after: Packing | None = None
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
        if self.before and self.after and self.after.free_nodes < self.before.free_nodes:
            self.broken.append("fewer free nodes after defragmentation than before")

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        for key in ("before", "after"):
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


def _size_rows(table: Table, before: Packing, after: Packing) -> None:
    """What can be run besides: what people defragment for."""
    found = {(one.devices, one.milli): one.pods for one in after.fits}
    for one in [one for one in before.fits if one.milli == WHOLE][:SIZES]:
        will = found.get((one.devices, one.milli), 0)
        table.add_row(f"{one.devices}-GPU pods that fit beside what runs", str(one.pods), str(will), f"{will - one.pods:+d}")


def _gpu_rows(table: Table, before: Packing, after: Packing) -> None:
    table.add_row(
        "whole free GPUs", str(before.free_devices), str(after.free_devices), f"{after.free_devices - before.free_devices:+d}"
    )
    table.add_row(
        "fragmentation: idle GPU share of no use to typical pods",
        _percent(before.fragmented, before.total),
        _percent(after.fragmented, after.total),
        f"{(after.fragmented - before.fragmented) * 100 / before.total:+.1f} pp",
    )
    table.add_row("idle GPU share", _percent(before.idle, before.total), _percent(after.idle, after.total), "")


def show(console: Console, outcome: Outcome) -> None:
    before, after = outcome.before, outcome.after
    console.print()
    if before is not None and after is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("", "before", "after", "change"):
            table.add_column(name, justify="left" if not name else "right")
        _size_rows(table, before, after)
        table.add_row("free nodes", str(before.free_nodes), str(after.free_nodes), f"{after.free_nodes - before.free_nodes:+d}")
        table.add_row(
            "pods waiting for capacity", str(outcome.waited), str(outcome.waiting), f"{outcome.waiting - outcome.waited:+d}"
        )
        if before.total:
            _gpu_rows(table, before, after)
        console.print(table)
        console.print()
    good, bad = "[green]ok[/]", "[bold red]BROKEN[/]"
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(justify="left")
    facts.add_column(justify="right")
    facts.add_column()
    facts.add_row("migrations landed", f"{outcome.landed} of {outcome.planned}", f"{outcome.rolled_back} rolled back, {outcome.rounds} round{'s' * (outcome.rounds != 1)}")
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
    console.print(f"{outcome.events} events in the log; {times}", style="dim", highlight=False)
    if outcome.log:
        # `make demo` runs it where nobody has put it on the PATH.
        restow = "restow" if shutil.which("restow") else sys.argv[0]
        console.print(f"the log: {restow} verify {outcome.log}", style="dim", highlight=False, soft_wrap=True)
        console.print(f"         {restow} why --log {outcome.log} POD", style="dim", highlight=False, soft_wrap=True)
    for promise in outcome.broken:
        console.print(f"[bold red]broken promise:[/] {promise}", highlight=False)
