"""What `restow defrag` says of gangs that fit in one block."""

import click
from click.testing import CliRunner

from restow.cli import plan_tables
from restow.contracts.events import Planned
from restow.contracts.values import Fitting, GangFitting, Packing


def packed(*gangs: int) -> Packing:
    tiers = ((1, "rack"), (2, "topology.kubernetes.io/zone"))
    fits = (Fitting(8, 1000, {}, 3, 20),)
    return Packing(8, 2, 64_000, 32_000, 0, 32, fits, tuple(GangFitting(*tier, 4, 8, 1000, many) for tier, many in zip(tiers, gangs, strict=True)))


def test_gangs_are_told_tier_by_tier_before_and_after():
    planned = Planned("p", "Defragmentation", (), packed(1, 4), packed(3, 4))
    shown = CliRunner().invoke(click.command()(lambda: plan_tables.gangs(planned)))
    assert shown.exception is None
    assert [line.split() for line in shown.output.splitlines()] == [
        ["GANGS", "of", "4", "pods", "of", "8", "GPUs", "each", "that", "fit", "in", "one", "block"],
        ["TIER", "BLOCKS", "MORE", "FIT"],
        ["1", "rack", "1", "→", "3"],
        ["2", "topology.kubernetes.io/zone", "4"],
    ]
