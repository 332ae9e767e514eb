"""Every benchmark runs, at a size that measures nothing; the table holds what they give."""

import importlib
from collections import Counter

import pytest

from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.commands import Schedule

from . import session, session_worlds
from .__main__ import NAMES, ON_REQUEST, parser
from .kubernetes import assets
from .quality import TRACE
from .session_scan import Scan, in_turn
from .table import WIDTH, Machine, Result, Row, Size, machine, render
from .world import START

DEEP = ("cold_start", "plan", "plan_quality", "migrations")
"""These take longest, even so."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.deep] if name in DEEP else []) for name in (*NAMES, *ON_REQUEST)])
async def test_runs(name):
    if name in ("kubernetes", "first_list") and (why := assets()[1]):
        pytest.skip(why)
    if name in ("quality", "whatif") and not TRACE.is_dir():
        pytest.skip(f"the openb trace is not at {TRACE}: it is not part of this repository")
    module = importlib.import_module(f"{__package__}.{name}")
    rows = await module.measure(Size.SMOKE)
    assert rows
    assert all(row.ours > 0 or row.what.startswith("    of it") for row in rows), "of so few pods a process may take less than a tick"
    text = render([Result(name, module.TITLE, module.BASELINE, rows)], Machine("cpu", 2, "1 GiB", "os", "3", "2"), "x", "now")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert [row.what for row in rows if row.what not in text] == [], "cut"


def test_ratio_and_goal():
    assert Row("", 10, "ms", baseline=40, goal=15).ratio == 4
    assert Row("", 10, "ms", baseline=40, goal=15).met
    assert Row("", 800, "pods/s", baseline=400, known=1).ratio == 2
    assert Row("", 10, "ms", known=40).ratio is None, "no ratio beside what was not measured here"
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


def test_large_ratios_are_told_in_full():
    text = render([Result("x", "title", "", [Row("what", 30_000, "pods/s", baseline=7.5)])], machine(), "x", "now")
    assert "4,000x" in text


# -- the session's own checks ----------------------------------------------------------------------------------------


def test_another_node_than_the_scans_fails_the_benchmark():
    with pytest.raises(AssertionError, match=r"1 of 2 pods are elsewhere.*b: n2, by the scan n3"):
        session.check_same({"a": "n1", "b": "n2"}, {"a": "n1", "b": "n3"})


def test_half_a_gang_fails_the_benchmark():
    state = session_worlds.gangs(20, 60)
    events = tuple(e.PodPlaced(uid, "node-00000") for uid in list(state.pods)[:4])
    played = session.Played()
    played.decisions.append([Decision(Schedule(START), events)])
    with pytest.raises(AssertionError, match="gang-0: 2 of 20 pods"):
        session.check_gangs(state, played)


def test_the_scan_heeds_apps_zones_and_holds():
    for build, key in ((session_worlds.apart, "kubernetes.io/hostname"), (session_worlds.spread, "topology.kubernetes.io/zone")):
        state = build(30, 200)
        _, chosen = Scan(state).all(in_turn(state, state.pods))
        per_app = Counter((state.pods[uid].fact.labels["app"], state.nodes[name].labels[key]) for uid, name in chosen.items())
        assert len(chosen) == 200
        assert max(per_app.values()) == (1 if key == "kubernetes.io/hostname" else 7)
    state = session_worlds.own_holds(30, 50)
    held = Counter(slot.node for slots in state.slots.values() for slot in slots.values())
    _, chosen = Scan(state).all(in_turn(state, list(state.pods)[:15]))
    assert Counter(chosen.values()) == held
