"""What a policy plans at an instant of a log is what the planner plans there."""

from pathlib import Path

import pytest
from domain.descheduling_words import policy, profile
from replay.handmade import fragmented, migration
from replay.test_plan_values import POLICY, planned, world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import defragmentation
from restow.domain.config import MigrationConfig, digest_of, text_of
from restow.domain.decider import decide
from restow.domain.deciders import DECIDERS
from restow.domain.descheduling import interpreter
from restow.domain.descheduling.policy import written
from restow.domain.fold import evolve_one
from restow.replay.plan_values import plan_values
from restow.replay.replanned import PLAN, replan
from restow.replay.state_at import ReplayError, state_at
from restow.runtime.config_source import parse
from restow.runtime.policy_file import read
from restow.runtime.policy_text import policy_text

ROOT = Path(__file__).parents[2]


def moves(plan):
    return [(move.pod, move.source, move.target, move.cost) for move in plan.moves]


def test_with_the_policy_in_force_it_is_the_plan_that_was_made_and_the_log_stays_as_it_was():
    log = world()
    made = planned(log)
    before = list(log.records)
    ((found, values),) = replan(log.source(), log.seq - 1).plans
    assert (moves(found), found.worth.after) == (moves(made), made.worth.after)
    assert [one.loses for one in values.moves] == [one.loses for one in plan_values(log.source(), log.seq, "p1").moves]
    assert log.records == before


def test_another_policy_makes_the_plan_that_its_decider_makes():
    log = world()
    one = text_of(read(parse(POLICY.replace("interval: 0", "maxMoves: 1"))))
    state = state_at(log.source())
    evolve_one(state, e.MigrationConfigured(one, digest_of(one)))
    events = decide(state, DECIDERS["migration"], c.Defragment(state.time, "api", PLAN))
    ((found, _),) = replan(log.source(), log.seq, one).plans
    assert moves(found) == moves(events[0])
    ((recorded, _),) = replan(log.source(), log.seq).plans
    assert len(found.moves) <= 1 < len(recorded.moves)


def test_a_plan_that_a_fault_of_our_own_ends_says_so_with_its_place_as_in_the_service(monkeypatch):
    def overflows(*_):
        raise OverflowError("too large")

    monkeypatch.setattr(defragmentation, "plan", overflows)
    log = world()
    ((found, _),) = replan(log.source(), log.seq).plans
    assert (found.fault, found.moves) == (True, ())
    assert found.reason.startswith("could not be made by a fault of Restow's own, which is worth a report: OverflowError: too large (test_replanned.py:")


def test_other_plugins_of_the_policy_plan_beside_it(monkeypatch):
    def overflows(*_):
        raise OverflowError("too large")

    log, conf = world(), MigrationConfig(policy=written(policy(profile("PodLifeTime", {"maxPodLifeTimeSeconds": 60}), profile("RemoveFailedPods", {}, name="b"))))
    monkeypatch.setattr(interpreter.PLUGINS["PodLifeTime"], "run", overflows)
    found = [planned for planned, _ in replan(log.source(), log.seq, text_of(conf)).plans]
    assert [(one.plugin, one.fault) for one in found] == [("PodLifeTime", True), ("RemoveFailedPods", False)]


def test_without_a_policy_that_plans_there_is_none():
    with pytest.raises(ReplayError, match="makes no plans"):
        replan(migration().source(), 9)
    with pytest.raises(ReplayError, match="is not one of them"):
        replan(fragmented().source(), 99)


def policies():
    found = {"what a test has": read(parse(POLICY))}
    for path in ("docs/examples/defragmentation/policy.yaml", "docs/examples/checkpoint/policy.yaml", "docs/beside/policy.yaml", "deploy/chart/files/config/descheduler-policy.yaml"):
        found[path] = read(parse((ROOT / path).read_text()))
    found["several plugins"] = read(parse("""
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
gracePeriodSeconds: 20
nodeSelector: pool=gpu
profiles:
- name: first
  pluginConfig:
  - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 7}}
  - {name: RemoveDuplicates, args: {}}
  - {name: Defragmentation, args: {objective: nodes}}
  plugins:
    deschedule: {enabled: [RemovePodsHavingTooManyRestarts]}
    balance: {enabled: [RemoveDuplicates, Defragmentation]}
restow: {windows: [{cron: "0 22 * * *", duration: 4h}], blackouts: [{start: 2026-12-20T00:00:00Z, end: 2027-01-02T00:00:00Z}], interval: 10m, hooks: [{name: one, before: annotation, deadline: 2m}]}
"""))
    return found


@pytest.mark.parametrize("name", policies())
def test_a_policy_is_written_as_somebody_would_write_it_and_is_the_same_when_it_is_read(name):
    config = policies()[name]
    text = policy_text(config)
    assert text
    assert read(parse(text)) == config
    assert text_of(read(parse(text))) == text_of(config)


def test_what_no_policy_can_say_is_not_written():
    assert policy_text(MigrationConfig(defragment_at=3, profile="of no policy")) == ""
