"""What each move is worth to its plan is what the cluster would really have less of, had it stayed out."""

import pytest
from msgspec.structs import replace
from replay.handmade import Handmade, fragmented, migration, node, pod, shape, time_at

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain.config import digest_of, text_of
from restow.domain.decider import decide
from restow.domain.deciders import DECIDERS
from restow.domain.defragmentation.appraisal import appraisal_of
from restow.replay.plan_values import plan_values
from restow.replay.state_at import ReplayError, state_at
from restow.runtime.config_source import parse
from restow.runtime.policy_file import read

WHERE = {"lone": "a", "duo-1": "b", "duo-2": "b", "c-1": "c", "c-2": "c", "c-3": "d"}
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: restow
  pluginConfig:
  - {name: Defragmentation, args: {planner: optimizing, objective: nodes, resourceType: cpu, minimumGain: 0}}
  plugins: {balance: {enabled: [Defragmentation]}}
restow: {maxUnavailable: 0, interval: 0}
"""


def world(where=WHERE):
    """Nodes of eight cores; pods of one core, all of one ReplicaSet; who waits wants a whole node."""
    log, text = Handmade(), text_of(read(parse(POLICY)))
    log.facts(*(node(name, 8000) for name in "abcd"), kind="nodes")
    owner = OwnerRef("ReplicaSet", "web", "uid-rs")
    log.facts(shape(), shape(8000, "b16"), *(replace(pod(name), node=on, phase="Running", ready=True, owner=owner) for name, on in where.items()), pod("whole", shape="b16"))
    log.decide("migration", c.Configure(text), e.MigrationConfigured(text, digest_of(text)))
    return log


def planned(log):
    """The decider's own plan, as the next commit."""
    command = c.Defragment(time_at(log.seq + 1), "api", "p1")
    events = decide(state_at(log.source()), DECIDERS["migration"], command)
    log.decide("migration", command, *events)
    return next(event for event in events if isinstance(event, e.Planned))


def test_each_move_is_valued_by_a_cluster_in_which_it_was_not_made():
    log = world()
    plan = planned(log)
    assert len(plan.moves) >= 3
    values = plan_values(log.source(), log.seq, "p1").moves
    assert [one.migration for one in values] == [move.migration for move in plan.moves]
    for value in values:
        assert value.along == ()
        # The same cluster, made anew with everybody where the other moves have brought them.
        where = WHERE | {move.name: move.target for move in plan.moves if move.migration != value.migration}
        assert plan.worth.after - value.loses == appraisal_of(state_at(world(where).source())).total(), value
    assert max(value.loses for value in values) > 0


def test_what_needs_a_move_is_left_out_with_it():
    log = world()
    plan = planned(log)
    first, second, *rest = plan.moves
    log.tamper(log.seq, b'"migration":"%s"' % second.migration.encode(), b'"after":["%s"],"migration":"%s"' % (first.migration.encode(), second.migration.encode()))
    by_id = {one.migration: one for one in plan_values(log.source(), log.seq, "p1").moves}
    assert by_id[first.migration].along == (second.migration,)
    assert by_id[second.migration].along == ()
    where = WHERE | {move.name: move.target for move in rest}
    assert plan.worth.after - by_id[first.migration].loses == appraisal_of(state_at(world(where).source())).total()


def test_where_the_appraisal_does_not_say_what_the_plan_says_nothing_is_made_up():
    log = world()
    plan = planned(log)
    log.tamper(log.seq, b'"after":%d' % plan.worth.after, b'"after":%d' % (plan.worth.after + 1))
    wrong, unsaid = plan_values(log.source(), log.seq, "p1"), plan_values(migration().source(), 3, "p1")
    assert (wrong.moves, unsaid.moves) == ((), ())
    assert "is not known" in wrong.unknown
    assert "does not say what it is worth" in unsaid.unknown
    with pytest.raises(ReplayError, match="is not in commit"):
        plan_values(fragmented().source(), 3, "p1")
