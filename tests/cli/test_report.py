"""What plans promised beside what was won and lost, from the log."""

import json
import re

import pytest
from cli.conftest import export
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from replay.handmade import Handmade, migration, node, observed, pod, proposed, shape, time_at

from restow.cli.report import parts
from restow.cli.top_screen import picture
from restow.cli.views import summary
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import NetworkTopology, Worth
from restow.domain.config import DefragmentationArgs, MigrationConfig, digest_of, text_of
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.session_config import read_conf
from restow.replay.period import period, share
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


def test_an_old_pod_that_still_ends_when_its_successor_has_landed_takes_nothing_from_what_was_won():
    """Pods end by their own time, often later than their successors are ready: the plan looked as if it had taken their place twice."""
    log = migration(worth=worth(500), ends_late=True)
    (found,) = settle(log.source())
    assert "uid-web-old" in state_at(log.source()).charges
    assert (found.landed, found.won) == (1, 0)


@pytest.mark.parametrize("cost", [1_000, 1_200, 1_400])
def test_what_a_pod_prefers_and_has_no_more_is_lost_whether_or_not_the_pod_is_still_there(cost):
    """Where an eviction was told before its pod had gone, a fifth for each kind of preferences was left out: of equal moves some cost more than others."""
    for gone_first in (False, True):
        (found,) = settle(migration(worth=worth(500), cost=cost, gone_first=gone_first).source())
        assert (found.evicted, found.lost) == (1, cost), gone_first


@pytest.mark.parametrize(("plan", "won"), [("p1", 0), ("another", -2_160)])
def test_a_node_that_the_plan_has_emptied_and_cordoned_counts_as_what_was_won(plan, won):
    """`emptied: cordon` closes what the plan frees, for an autoscaler: it was promised, and then counted as lost."""
    (found,) = settle(migration(worth=worth(500), cordons=plan).source())
    assert (found.landed, found.won) == (1, won)


def test_what_those_take_who_waited_for_it_is_won_and_not_lost():
    (found,) = settle(migration(worth=worth(500, waits=True), waits=True).source())
    assert (found.started, found.won) == (1, 0)
    (found,) = settle(migration(worth=worth(500)).source())
    assert (found.started, found.won) == (0, 0)


def test_a_plan_that_a_person_has_approved_counts_from_then_on_and_only_its_moves():
    """Of all moves what the plan has promised; of some of them what these do, which is nothing between equal nodes."""
    (whole,) = settle(migration(worth=worth(500), approved=()).source())
    assert (whole.moves, whole.landed, whole.promised, whole.cost, whole.won) == (2, 1, 500, 1_700, 0)
    (part,) = settle(migration(worth=worth(500), approved=("p1-1",)).source())
    assert (part.moves, part.landed, part.promised, part.cost, part.won) == (1, 1, 0, 1_000, 0)


def test_a_plan_that_only_waits_or_was_only_observed_is_none():
    assert settle(proposed().source()) == settle(proposed("rejected").source()) == settle(observed().source()) == []


def test_of_a_move_that_has_not_ended_only_the_loss_is_known():
    (found,) = settle(migration(lands=False, worth=worth(500)).source())
    assert (found.landed, found.under_way, found.won, found.lost) == (0, 1, None, 1_000)


def before_the_last(log, *facts):
    """These come before its move has landed."""
    last = log.records.pop()
    log.facts(*facts, kind="nodes")
    log.records.append(last.__class__(log.seq + 1, last.family, last.envelope, last.body, last.time))
    return log.source()


@pytest.mark.parametrize("fact", [node("c"), replace(node("c"), allocatable={"cpu": 64_000, "memory": 1 << 36, "pods": 110, "nvidia.com/gpu": 8})])
def test_a_node_that_has_come_meanwhile_is_nothing_that_the_plan_has_won(fact):
    """Where autoscalers are at work, some node comes or goes in most plans, and of none of these was it known what it had won."""
    (found,) = settle(before_the_last(migration(worth=worth(500)), fact))
    assert (found.landed, found.won) == (1, 0)


def test_a_node_that_has_gone_meanwhile_is_nothing_that_the_plan_has_lost():
    log = Handmade()
    log.facts(node("gone"), kind="nodes")
    for record in migration(worth=worth(500)).records:
        log.records.append(record.__class__(log.seq + 1, record.family, record.envelope, record.body, record.time))
    (found,) = settle(before_the_last(log, e.NodeGone("gone")))
    assert (found.landed, found.won) == (1, 0)


def test_a_rack_that_was_whole_until_one_of_its_nodes_has_gone_is_nothing_that_the_plan_has_lost():
    """Half of what it was worth to the gang that waits was that of the node that is still there."""
    log = Handmade()
    conf = text_of(read_conf({"actions": "allocate", "tiers": [{"plugins": [{"name": "network-topology-aware", "arguments": {"levels": ["rack"]}}]}]}))
    log.decide("session", c.Configure(conf), e.SessionConfigured(conf, digest_of(conf)))
    log.facts(*(replace(node(name), labels={"rack": "r"}) for name in ("gone", "stays")), kind="nodes")
    members = [replace(pod(f"g-{i}", shape="whole"), annotations={"scheduling.k8s.io/group-name": "g"}) for i in range(2)]
    log.facts(e.PodGroupObserved("shop", "g", "uid-g", time_at(0), min_member=2, topology=NetworkTopology("hard", 1)), shape(4_000, "whole"), *members)
    assert Appraisal(state_at(log.source()), DefragmentationArgs(), time_at(log.seq)).whole().gangs(0, 0) == 1
    for record in migration(worth=worth(500)).records:
        log.records.append(record.__class__(log.seq + 1, record.family, record.envelope, record.body, record.time))
    (found,) = settle(before_the_last(log, e.NodeGone("gone")))
    assert (found.landed, found.won) == (1, 0)


@pytest.mark.parametrize(("emptied", "won"), [("none", -540), ("announce", 0)])
def test_a_node_that_the_plan_has_emptied_and_that_is_taken_away_was_given_back_at_its_price(emptied, won):
    """Both are alike: b was empty, and has the pod now; a is as empty as b was. Where nobody takes empty nodes away, it has gone by itself, and takes with it what it had."""
    log = Handmade()
    conf = text_of(MigrationConfig(emptied=emptied))
    log.decide("migration", c.Configure(conf), e.MigrationConfigured(conf, digest_of(conf)))
    for record in migration(worth=worth(500)).records:
        log.records.append(record.__class__(log.seq + 1, record.family, record.envelope, record.body, record.time))
    (found,) = settle(before_the_last(log, e.NodeGone("a")))
    assert (found.landed, found.won) == (1, won)


def test_plans_of_older_logs_say_no_worth_and_are_left_out():
    assert settle(migration().source()) == []


def nothing():
    return period(migration().source())


@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_the_report_is_a_table_or_json(restow, tmp_path, form):
    file = export(tmp_path / "log.jsonl", migration(worth=worth(2_500)))
    output = restow("report", file, *form).output
    if form:
        (plan,) = json.loads(output)["plans"]
        assert (plan["plan"], plan["promised"], plan["won"], plan["lost"], plan["underWay"]) == ("p1", 2_500, 0, 1_000, 0)
    else:
        assert "p1    2026-01-01 00:00:03      1       1       0      +2.5  +0.0        0   1.0   1.0" in output
        assert "promised and won in GPU-hours in 24 h" in output


def test_where_the_unit_has_changed_each_plan_says_its_own():
    """Two policies, one after the other: whoever read the table took dollars for GPU-hours."""
    (first,) = settle(migration(worth=worth(2_500)).source())
    alone = parts(replace(nothing(), plans=(first, first)))[-1]
    assert "UNIT" not in alone[1]
    assert alone[3] == "promised and won in GPU-hours in 24 h; cost and lost in the same unit"
    _, titles, rows, line = parts(replace(nothing(), plans=(first, replace(first, plan="p2", unit="USD", hours=168))))[-1]
    assert titles[-1] == "UNIT"
    assert [row[-1] for row in rows] == ["GPU-hours in 24 h", "USD in 168 h"]
    assert "do not add up" in line


def test_a_log_without_such_plans_says_so(restow, tmp_path):
    assert "no plan in this log" in restow("report", export(tmp_path / "log.jsonl", migration())).output


def waiting_pods():
    """Three pods are seen at 00:00:03; two get a node, 1 s and 5 s later, and one never does. A third one was bound before anybody saw it."""
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("quick"), pod("slow"), pod("never"), replace(pod("bound"), node="a"), e.Synced("nodes", "1"), e.Synced("pods", "1"))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-quick", "a"))
    for _ in range(3):
        log.facts(node("a"), kind="nodes")
    log.facts(e.PodChanged("uid-slow", node="a"))
    return log


def test_how_long_pods_waited_is_from_when_they_were_seen_until_they_had_a_node():
    found = period(waiting_pods().source())
    assert [(one.namespace, one.pods, one.p50, one.p95, one.longest) for one in found.waited] == [("shop", 2, 1_000, 5_000, 5_000)]
    assert (found.begin.waiting, found.end.waiting) == (3, 1)


def test_who_terminates_neither_runs_nor_waits_as_everywhere_else():
    """Here and in `restow top` those still ran, and on the map, in `get` and `state` they did not."""
    log = waiting_pods()
    for uid, where in (("uid-a", "a"), ("uid-z", "a"), ("uid-y", None)):
        log.facts(replace(pod("x", uid=uid), node=where, phase="Running" if where else "Pending", deleting=time_at(5)))
    log.facts(replace(pod("w", uid="uid-w"), node="a", phase="Running"))
    log.facts(e.Synced("nodes", "1"), e.Synced("pods", "1"))
    state = state_at(log.source())
    found = period(log.source()).end
    statuses = summary(state)["podsByStatus"]
    assert found.running == statuses["Running"]
    assert found.waiting == 1  # Who never got a node, and not who terminates without one.
    assert f"{found.running} pod running" in "\n".join(line.plain for line in picture(state, "prod", 100, 40, state.time))


def test_a_plan_is_of_the_time_at_which_it_was_made_or_approved_and_not_of_the_record_before_it():
    """After a quiet hour it was told an hour early, and a period that began meanwhile left it out."""
    for log, at in ((migration(worth=worth(500)), 3), (migration(worth=worth(500), approved=()), 4)):
        (found,) = period(log.source(), since=time_at(at)).plans
        assert found.at == time_at(at)


def test_since_leaves_out_what_was_before_and_knows_who_waited_then():
    found = period(waiting_pods().source(), time_at(5))
    assert [(one.pods, one.longest) for one in found.waited] == [(1, 5_000)]
    assert (found.begin.seq, found.begin.waiting, found.end.seq) == (5, 2, 8)


def test_a_pod_whose_bind_was_refused_has_waited_until_it_got_its_node():
    log = Handmade()
    log.facts(shape(), kind="shapes")
    log.facts(node("a"), kind="nodes")
    log.facts(pod("x"))
    log.decide("session", c.Schedule(time_at(4)), e.PodPlaced("uid-x", "a"))
    log.decide("session", c.RefuseBind(time_at(5), "uid-x", "a", "Conflict"), e.PodReleased("uid-x", "Conflict"))
    assert period(log.source()).waited == []
    log.facts(pod("y"))
    log.decide("session", c.Schedule(time_at(7)), e.PodPlaced("uid-x", "a"))
    log.facts(e.PodChanged("uid-x", "a"))
    (waited,) = period(log.source()).waited
    assert (waited.pods, waited.longest) == (1, 4_000)


def test_after_the_end_of_the_log_there_is_nothing(restow, tmp_path):
    file = export(tmp_path / "log.jsonl", migration())
    output = restow("report", file, "--since", "2026-02-01T00:00:00Z").output
    assert "nothing was recorded of it in this time; `restow state` shows how it is" in output
    assert "0 pods evicted" in output


@given(st.lists(st.integers(0, 100), min_size=1), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_share_of_waits_is_one_of_them_that_so_many_do_not_exceed(times, part):
    found = share(sorted(times), part)
    assert found in times
    assert sum(time <= found for time in times) >= part * len(times)
    assert sum(time < found for time in times) < part * len(times)


def test_whose_pods_were_moved_and_how_it_ended():
    found = period(migration().source())
    assert (found.evicted, found.landed, found.failed) == (1, 1, {})
    assert [(one.namespace, one.workload, one.evicted) for one in found.disturbed] == [("shop", "ReplicaSet/web", 1)]


def test_pauses_are_told_with_who_and_until_when():
    log = migration()
    log.decide("migration", c.Pause(time_at(log.seq + 1), by="ann", reason="a | b"), e.MovesPaused("ann", "a | b"))
    (found,) = period(log.source()).paused
    assert (found.by, found.until) == ("ann", 0)
    log.decide("migration", c.Resume(time_at(log.seq + 1), by="bob"), e.MovesResumed("bob"))
    assert period(log.source()).paused[0].until == time_at(log.seq)
    assert period(log.source(), time_at(log.seq) + 1).paused == []


@pytest.mark.parametrize("since", ["24h", "-24h", "2025-12-31T00:00:00Z", "168h"])
def test_since_is_a_time_or_a_time_ago(as_json, tmp_path, since):
    file = export(tmp_path / "log.jsonl", migration(worth=worth(500)))
    assert len(as_json("report", file, "--since", since)["plans"]) == 1


@pytest.mark.parametrize("since", ["now", "12", "yesterday"])
def test_what_names_no_time_is_refused(restow, moved, since):
    result = restow("report", moved, "--since", since)
    assert result.exit_code == 2
    assert "allowed" in result.said


HOSTILE = "<img src=x onerror=alert(1)>|\n# [x](y)"


@pytest.mark.parametrize("form", ["markdown", "html", "table"])
def test_names_of_a_log_make_no_markup(restow, tmp_path, form):
    log = migration()
    log.decide("migration", c.Pause(time_at(log.seq + 1), by=HOSTILE, reason=HOSTILE), e.MovesPaused(HOSTILE, HOSTILE))
    output = restow("report", export(tmp_path / "log.jsonl", log), "-o", form).output
    assert form == "table" or "<img" not in output.replace("\\<img", "")
    assert "\n# [x]" not in output
    if form == "markdown":
        (row,) = [line for line in output.splitlines() if "onerror" in line]
        assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_html_is_one_page_that_asks_nobody_for_anything(restow, moved):
    output = restow("report", moved, "-o", "html").output
    assert output.startswith("<!doctype html>")
    assert output.count("<table>") == output.count("</table>")
    assert not re.search(r"src=|href=|url\(|@import|<script", output)
