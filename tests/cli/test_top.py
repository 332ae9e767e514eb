"""The cluster in a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from cli.conftest import RESTOW, export
from console.logs_large import large
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from replay.handmade import Handmade, budgeted, migration, node, pod, shape, time_at

from restow.cli.top_screen import SHADES, picture
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.replay.state_at import state_at


def said(log, width=100, height=40, now=None, error=""):
    state = state_at(log.source())
    return [line.plain for line in picture(state, "prod", width, height, state.time if now is None else now, error)]


def test_it_says_how_full_the_cluster_is():
    text = "\n".join(said(migration()))
    assert "prod  sequence" in text
    assert "2 nodes   cpu 12 %" in text
    assert "1 pod running" in text


def test_who_waits_is_told_with_the_reason_the_longest_first():
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("younger", created=time_at(2)), pod("older", created=time_at(1)))
    lines = said(log, now=time_at(3) + 60_000)
    at = lines.index("WAITING  2")
    assert lines[at + 1].startswith("shop/older    62s  no session has looked at it yet")
    assert lines[at + 2].startswith("shop/younger  61s")


def test_a_long_name_leaves_place_for_why_everybody_waits():
    """Names have up to 253 characters; one of them pushed all reasons out of the screen."""
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("a-" + "very-" * 48 + "long-name-x7k2p"), pod("short"))
    for width in (80, 120):
        lines = said(log, width=width)
        at = lines.index("WAITING  2")
        assert all("no session has looked at it" in line for line in lines[at + 1 : at + 3]), lines
        assert lines[at + 1].startswith("shop/a-very-")
        assert "long-name-x7k2p " in lines[at + 1]


def test_a_pod_of_another_scheduler_waits_for_that_one():
    log = Handmade()
    known = shape()
    log.facts(replace(known, spec=replace(known.spec, scheduler="default-scheduler")), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("web"))
    assert any("default-scheduler has not placed it" in line for line in said(log))


def test_moves_under_way_are_told_with_where_they_go():
    lines = said(migration(lands=False))
    at = lines.index("MOVES UNDER WAY")
    assert re.fullmatch(r"shop/web-old  \w+  \d+s  a → b", lines[at + 1])


def test_a_pause_and_nodes_that_take_nothing_are_told():
    log = migration()
    log.facts(replace(node("a"), ready=False), replace(node("b"), unschedulable=True), kind="nodes")
    log.decide("migration", c.Pause(time_at(log.seq + 1), "ann", "audit"), e.MovesPaused("ann", "audit"))
    text = "\n".join(said(log, error="the broker is away"))
    assert "moves are paused by ann: audit" in text
    assert "1 not ready, 1 cordoned" in text
    assert "the broker is away" in text


def test_eviction_budgets_that_are_used_up_are_told():
    assert "eviction budget" not in "\n".join(said(migration()))
    assert "eviction budgets are used up: few (shop)" in said(budgeted())


def test_a_device_looks_free_or_used_only_where_it_wholly_is():
    log = large(3, churn=0)
    state = state_at(log.source())
    drawn = [line for line in said(log) if line.startswith("node-")]
    for name, line in zip(sorted(state.nodes), drawn, strict=False):
        free = state.table.device_free[state.table.rows[name]].tolist()
        signs = line.split()[1]
        assert [sign == SHADES[0] for sign in signs] == [share == 1000 for share in free[: len(signs)]]
        assert [sign == SHADES[-1] for sign in signs] == [share == 0 for share in free[: len(signs)]]


def test_more_nodes_than_there_is_place_for_are_a_sign_each_and_the_fullest_are_counted():
    lines = said(large(400, churn=0), width=80, height=20)
    (note,) = [line for line in lines if "each sign" in line]
    signs = sum(len(line) for line in lines if set(line) <= set(SHADES) and line)
    assert signs == 400
    assert "not shown" not in note
    lines = said(large(400, churn=0), width=40, height=8)
    (note,) = [line for line in lines if "fuller ones" in line]
    signs = sum(len(line) for line in lines if set(line) <= set(SHADES) and line)
    assert f"{400 - signs} fuller ones" in note


@settings(max_examples=examples(60))
@given(st.integers(20, 220), st.integers(4, 80), st.integers(0, 60), st.integers(0, 40))
def test_it_never_is_larger_than_the_terminal(width, height, nodes, waiting):
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(*(node(f"node-{n}") for n in range(nodes)), kind="nodes")
    log.facts(*(pod(f"p-{n}") for n in range(waiting)))
    state = state_at(log.source())
    lines = picture(state, "prod", width, height, state.time)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


def test_everybody_who_waits_is_shown_or_counted():
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(*(pod(f"p-{n}") for n in range(30)))
    lines = said(log, height=16)
    shown = sum(line.startswith("shop/p-") for line in lines)
    assert f"and {30 - shown} more" in lines


@pytest.mark.parametrize("form", [(), ("--once",)])
def test_of_a_file_one_picture_is_printed(restow, moved, form):
    result = restow("top", moved, *form)
    assert result.exit_code == 0
    assert "2 nodes" in result.output


def test_names_steer_no_terminal(restow, tmp_path):
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("web\x1b[31m[bold]"))
    output = restow("top", export(tmp_path / "log.jsonl", log)).output
    assert "\x1b" not in output
    assert "[bold]" in output


def test_before_anything_is_read_it_says_so():
    assert said(Handmade(), now=time_at(1))[0] == "prod  nothing has been read yet"


@pytest.mark.parametrize("end", ["Ctrl-C", "q"])
def test_in_a_terminal_it_is_live_and_ends_quietly(tmp_path, end):
    """On a broker whose log grows while it is looked at."""
    import asyncio

    from restow.eventlog.jetstream import connect
    from restow.eventlog.server import NatsServer

    log, last = migration(), {}

    async def append(server, records):
        opened = await connect(server.url, "prod")
        try:
            for record in records:
                last[record.family] = await opened.append(record.family, record.body, record.envelope, expected_last=last.get(record.family, 0))
        finally:
            await opened.close()

    with NatsServer(tmp_path / "nats") as server:
        asyncio.run(append(server, log.records[:4]))
        ours, theirs = pty.openpty()
        command = [RESTOW, "top", "--server", server.url, "--cluster", "prod", "--every", "0.2"]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"})
        os.close(theirs)
        seen = ""

        def read(until):
            nonlocal seen
            deadline = time.monotonic() + 60
            while until not in seen and time.monotonic() < deadline:
                if select.select([ours], [], [], 0.2)[0]:
                    try:
                        seen += os.read(ours, 65536).decode(errors="replace")
                    except OSError:
                        # It has ended, and its terminal with it.
                        return

        try:
            read("2 nodes")
            assert "2 nodes" in seen
            asyncio.run(append(server, log.records[4:]))
            read("pod running")
            if end == "q":
                os.write(ours, b"xq")
            else:
                process.send_signal(signal.SIGINT)
            read("never said")
            assert process.wait(30) == 0
            assert "Traceback" not in seen
        finally:
            process.kill()
            process.wait(30)
            os.close(ours)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_where_the_terminal_is_not_utf_8_the_signs_are_question_marks(moved, encoding):
    done = subprocess.run([RESTOW, "top", moved], capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"2 nodes" in done.stdout
    assert b"?" in done.stdout
