"""What plans promised beside what was won and lost, from the log."""

import json

import pytest
from cli.conftest import export
from replay.handmade import migration, node

from restow.contracts.values import Worth
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal
from restow.replay.settled import settle
from restow.replay.state_at import state_at


def worth(promised: int, waits: bool = False) -> Worth:
    """Of the handmade plan, whose nodes are equal: really nothing is won by it."""
    state = state_at(migration(waits=waits).source(), seq=2)
    before = Appraisal(state, DefragmentationArgs(), state.time).total()
    assert before > 0
    return Worth("GPU-hours", 24, before, before + promised, 1_000)


def test_what_was_won_is_measured_when_the_last_move_has_ended_and_not_what_was_promised():
    (found,) = settle(migration(worth=worth(500)).source())
    assert (found.moves, found.landed, found.evicted, found.failed, found.under_way) == (1, 1, 1, 0, 0)
    assert (found.promised, found.won) == (500, 0)
    assert (found.cost, found.lost) == (1_000, 1_000)


def test_what_those_take_who_waited_for_it_is_won_and_not_lost():
    (found,) = settle(migration(worth=worth(500, waits=True), waits=True).source())
    assert (found.started, found.won) == (1, 0)
    (found,) = settle(migration(worth=worth(500)).source())
    assert (found.started, found.won) == (0, 0)


def test_of_a_move_that_has_not_ended_only_the_loss_is_known():
    (found,) = settle(migration(lands=False, worth=worth(500)).source())
    assert (found.landed, found.under_way, found.won, found.lost) == (0, 1, None, 1_000)


def test_where_nodes_have_come_meanwhile_nobody_can_say_what_the_plan_won():
    log = migration(worth=worth(500))
    last = log.records.pop()
    log.facts(node("c"), kind="nodes")
    log.records.append(last.__class__(log.seq + 1, last.family, last.envelope, last.body, last.time))
    (found,) = settle(log.source())
    assert (found.landed, found.won) == (1, None)


def test_plans_of_older_logs_say_no_worth_and_are_left_out():
    assert settle(migration().source()) == []


@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_the_report_is_a_table_or_json(restow, tmp_path, form):
    file = export(tmp_path / "log.jsonl", migration(worth=worth(2_500)))
    output = restow("report", file, *form).output
    if form:
        (plan,) = json.loads(output)["plans"]
        assert (plan["plan"], plan["promised"], plan["won"], plan["lost"], plan["underWay"]) == ("p1", 2_500, 0, 1_000, 0)
    else:
        assert "p1    2026-01-01T00:00:02      1       1       0      +2.5  +0.0        0   1.0   1.0" in output
        assert "promised and won in GPU-hours in 24 h" in output


def test_a_log_without_such_plans_says_so(restow, tmp_path):
    assert "no plan in this log" in restow("report", export(tmp_path / "log.jsonl", migration())).output
