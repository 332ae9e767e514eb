"""What one thing was over the log is what the state says at every instant."""

import pytest
from console.test_plan_maps import index_of
from msgspec.structs import replace
from replay.handmade import LOG_ID, Handmade, migration, node, placements, pod, shape

from restow.console import belts
from restow.console.belts import belt
from restow.console.view import view
from restow.contracts import events as e
from restow.replay.source import ListSource
from restow.replay.state_at import state_at


def at_each(log, path, at=None):
    """What the belt says after each sequence; None where there was none."""
    index = index_of(log)
    spans = belt(index, path, at or index.last)["spans"]
    assert [one["time"] for one in spans] == sorted(one["time"] for one in spans)
    assert all(one["time"] <= one["until"] for one in spans)
    found = {}
    for seq in range(1, index.last + 1):
        now = [one for one in spans if one["seq"] <= seq and one["until"] > index.commits["time"][seq - 1]]
        last = spans[-1]
        found[seq] = now[-1]["what"] if now else last["what"] if last["until"] == index.latest == index.commits["time"][seq - 1] and last["seq"] <= seq else None
    return found


def nodes_by_state(log, name):
    found = {}
    for seq in range(1, log.seq + 1):
        shown = view(state_at(log.source(), seq=seq))
        row = shown.nodes.get(name)
        held = any(hold.node == name for hold in shown.holds.values())
        busy = any(one.node == name for one in shown.pods.values())
        found[seq] = None if row is None else "not ready" if not row.ready else "cordoned" if row.closed else "held" if held else "in use" if busy else "empty"
    return found


def changing():
    """A node that comes, is used, is cordoned, is not ready, and goes; and comes again."""
    log = Handmade()
    log.facts(node("n"), kind="nodes")
    log.facts(shape(), replace(pod("p"), node="n", phase="Running", ready=True))
    log.facts(replace(node("n"), unschedulable=True), kind="nodes")
    log.facts(replace(node("n"), ready=False), kind="nodes")
    log.facts(node("n"), kind="nodes")
    log.facts(e.PodGone("uid-p"))
    log.facts(e.NodeGone("n"), kind="nodes")
    log.facts(node("m"), kind="nodes")
    log.facts(node("n"), kind="nodes")
    return log


@pytest.mark.parametrize(("log", "name"), [(changing(), "n"), (migration(), "a"), (migration(), "b"), (placements(), "a"), (placements(), "b")])
def test_a_node_is_what_the_state_says_at_every_instant(log, name):
    assert at_each(log, f"node/{name}") == nodes_by_state(log, name)


def test_a_node_that_was_gone_for_a_while_has_a_gap_there():
    assert list(at_each(changing(), "node/n").values()) == ["empty", "in use", "cordoned", "not ready", "in use", "empty", None, None, "empty"]


def test_a_pod_waits_is_bound_runs_is_moved_and_goes():
    assert list(at_each(placements(), "pod/shop/web-1").values()) == [None, None, "waiting", "bound", "bound", "running", "running"]
    moved = at_each(migration(), "pod/shop/web-old")
    assert [what for what in dict.fromkeys(moved.values()) if what] == ["running", "moving"]
    states = {seq: state_at(migration().source(), seq=seq) for seq in moved}
    for seq, what in moved.items():
        there = "uid-web-old" in states[seq].pods
        under_way = any(str(one.step) in ("holding", "held", "evicting", "evicted", "aborting") for one in states[seq].migrations.values())
        assert what == ("moving" if there and under_way else "running" if there else None), seq


def test_a_move_has_its_steps():
    log = migration()
    steps = {seq: next((str(one.step) for one in state_at(log.source(), seq=seq).migrations.values()), None) for seq in range(1, log.seq + 1)}
    assert at_each(log, "migration/p1-1") == steps


def test_only_the_latest_are_told_and_the_others_are_counted(monkeypatch):
    whole = belt(index_of(changing()), "node/n", 9)
    monkeypatch.setattr(belts, "MOST", 3)
    short = belt(index_of(changing()), "node/n", 9)
    assert short["spans"] == whole["spans"][-3:]
    assert (whole["earlier"], short["earlier"]) == (0, len(whole["spans"]) - 3)


async def test_what_has_none_is_not_found(looking):
    async with looking(ListSource(migration().records, log_id=LOG_ID)) as client:
        for what in ("node/none", "pod/shop/none", "queue/default", "plan/p1", "a"):
            assert (await client.get("/api/v1/belt", what=what))[0] == 404, what
        for what in ("", "x" * 601):
            assert (await client.get("/api/v1/belt", what=what))[0] == 400
