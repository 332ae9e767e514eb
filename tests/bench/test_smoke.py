"""Every benchmark runs, at a size that measures nothing; the table holds what they give."""

import importlib

import pytest

from .__main__ import NAMES, parser
from .quality import TRACE
from .table import WIDTH, Machine, Result, Row, Size, machine, render


@pytest.mark.parametrize("name", NAMES)
async def test_runs(name):
    if name == "quality" and not TRACE.is_dir():
        pytest.skip(f"the openb trace is not at {TRACE}: it is not part of this repository")
    module = importlib.import_module(f"{__package__}.{name}")
    rows = await module.measure(Size.SMOKE)
    assert rows
    assert all(row.ours > 0 for row in rows)
    text = render([Result(name, module.TITLE, module.BASELINE, rows)], Machine("cpu", 2, "1 GiB", "os", "3", "2"), "x", "now")
    assert max(map(len, text.splitlines())) <= WIDTH


def test_ratio_and_goal():
    assert Row("", 10, "ms", baseline=40, goal=15).ratio == 4
    assert Row("", 10, "ms", baseline=40, goal=15).met
    assert Row("", 800, "pods/s", baseline=400, known=1).ratio == 2
    assert Row("", 300, "pods/s", goal=400).met is False
    assert Row("", 300, "pods/s").met is None


def test_known_elsewhere_is_marked():
    text = render([Result("x", "title", "", [Row("what", 10, "ms", known=3_000)])], machine(), "x", "now")
    assert "3,000 ms *" in text
    assert "not measured in this run" in text


def test_a_failed_benchmark_is_told():
    text = render([Result("x", "title", "", [], failed="no broker")], machine(), "x", "now")
    assert "FAILED: no broker" in text


def test_names():
    assert parser().parse_args(["burst", "--quick"]).names == ["burst"]
