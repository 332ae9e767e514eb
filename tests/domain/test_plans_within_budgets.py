"""No plan has moves that an eviction budget would refuse: every planner, on its own and as part of a policy."""

from collections import Counter

import pytest
from domain.build import NOW, configured, run, then
from domain.planning import CAPACITY, carry_out
from domain.planning import cluster as random_cluster
from domain.saga import advance, decider, failed, move, plan
from domain.test_defragmentation_demand import pieces
from domain.test_defragmentation_policy import GREEDY, OPTIMIZING, PLANNERS, alone, cluster, config
from domain.test_deschedule import cluster as drained
from domain.test_deschedule import config as with_policy
from domain.test_deschedule import moves, old, plans, taints, web
from domain.test_eviction_budgets import DAY
from domain.test_plans_of_gangs import drained as with_gang
from domain.test_plans_of_gangs import drains
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts.times import rfc3339
from restow.domain.config import DefragmentationArgs, EvictionBudget, MigrationConfig
from restow.domain.migration.deschedule import explain, explain_alone

THIN = ("a", "b", "c")


def thin(args, *budgets, spent=0, **more):
    """Three pods that are to leave a node."""
    state = cluster(conf=replace(config(args), budgets=budgets), thin=THIN, **more)
    if spent:
        state.budget_spent[budgets[0].name] = {f"old-{i}": NOW - 1 for i in range(spent)}
    return state


def carried_out(state, planned):
    """As part of the policy it is the same plan; and nothing of it is refused."""
    (turn,) = decider.decide(state, c.Deschedule(NOW, "api", "now"))
    assert [m.pod for m in turn.moves] == [m.pod for m in planned.moves]
    assert turn.kept == planned.kept
    assert failed(advance(then(state, planned))) == {}


@pytest.mark.parametrize(("spent", "most"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_a_plan_takes_no_more_than_is_left(spent, most):
    state = thin(GREEDY, EvictionBudget("few", 2), spent=spent)
    planned = alone(state)
    assert (len(planned.moves), planned.kept) == (most, {"EvictionBudget": 3 - most})
    carried_out(state, planned)


@pytest.mark.parametrize(("evictions", "moved"), [(2, 0), (3, 3)])
def test_a_node_that_is_worth_it_only_when_all_have_left_is_emptied_or_not_begun(evictions, moved):
    state = thin(OPTIMIZING, EvictionBudget("few", evictions))
    planned = alone(state)
    assert (len(planned.moves), planned.kept.get("EvictionBudget", 0)) == (moved, 3 - moved)
    carried_out(state, planned)


@PLANNERS
def test_why_a_pod_stays_names_the_budget_and_when_there_is_enough_again(args):
    state = thin(args, EvictionBudget("few", 3), spent=3)
    said = next(one for one in explain_alone(state, NOW) if one.pod == "a")
    assert (said.verdict, said.message) == ("EvictionBudget", f"the eviction budget few allows 3 within 24h0m0s: 3 spent; there is enough from {rfc3339(NOW - 1 + DAY)} on")
    (thought,) = explain(state, c.Deschedule(NOW, "api", "now"), "a")
    assert (thought.verdict, thought.text) == ("EvictionBudget", said.message)


def test_what_another_plan_has_reserved_is_not_planned_again():
    state = thin(GREEDY, EvictionBudget("few", 2))
    then(state, plan("x", move("x-1", "a", "thin", "full")))
    assert [m.pod for m in alone(state).moves] == ["b"]
    said = next(one for one in explain_alone(state, NOW) if one.pod == "c")
    assert said.message == "the eviction budget few allows 2 within 24h0m0s: 0 spent, 1 planned; this plan may take 1"


def test_each_plugin_of_a_policy_takes_of_what_the_earlier_ones_have_left():
    """And the plans of one command are no reservation against themselves."""
    conf = with_policy(taints(), old(), budgets=(EvictionBudget("few", 3), EvictionBudget("each", 2, per_node_label="kubernetes.io/hostname")))
    state = drained(*(web(name) for name in "abc"), conf=conf)
    first, then_ = plans(state)
    assert (len(first.moves), first.kept) == (2, {"EvictionBudget": 1})
    assert (len(then_.moves), then_.plugin) == (0, "PodLifeTime")
    assert set(moves(first)) == {"a", "b"}


@pytest.mark.parametrize(("evictions", "moved"), [(2, 0), (3, 3)])
def test_a_gang_that_is_drained_goes_with_all_or_stays(evictions, moved):
    planned = drains(with_gang(budgets=(EvictionBudget("few", evictions),)))
    assert (len(planned.moves), planned.kept) == (moved, {} if moved else {"EvictionBudget": 1})


def test_capacity_for_a_job_that_waits_is_not_freed_beyond_it():
    state = pieces()
    budgets = (EvictionBudget("few", 0, per="namespace"),)
    then(state, configured("migration", MigrationConfig(defragmentation=DefragmentationArgs(planner="optimizing", protectionThresholds={}, demand=True), budgets=budgets)))
    (planned,) = run(state, decider, c.Defragment(NOW, "demand", "x", "big"))
    assert (planned.moves, planned.slots, planned.kept) == ((), (), {"EvictionBudget": 3})
    then(state, configured("migration", replace(state.migration_config, budgets=(EvictionBudget("few", 1),))))
    (planned,) = run(state, decider, c.Defragment(NOW, "demand", "y", "big"))
    assert len(planned.moves) == 1


@settings(max_examples=examples(30), deadline=None)
@any_of(
    st.integers(0, 10_000), st.sampled_from(["devices", "nodes", "capacity", "value", "greedy"]), st.booleans(), st.integers(0, 5), st.integers(0, 2),
    st.sampled_from(["", "node", "namespace"]),
)  # fmt: skip
def test_counted_by_hand_no_plan_is_beyond_a_budget_and_the_saga_refuses_none_of_it(seed, objective, whole, evictions, spent, per):
    said = {"protectionThresholds": {}, "searchSteps": 600, "wholeNodes": whole, "minimumGain": 1}
    if objective == "greedy":
        args = DefragmentationArgs(resourceType="cpu", lowThresholds={"cpu": 45}, defragmentThresholds={"cpu": 50}, protectionThresholds={"cpu": 100})
    else:
        args = DefragmentationArgs(planner="optimizing", objective=objective, capacity=CAPACITY if objective == "capacity" else {}, **said)
    state = random_cluster(seed, "nodes" if objective == "greedy" else objective)
    nodes = list(state.nodes)
    for name in nodes:
        then(state, replace(state.nodes[name], labels={"name": name}))
    budget = EvictionBudget("few", evictions, per="namespace" if per == "namespace" else "", per_node_label="name" if per == "node" else "")
    then(state, configured("migration", MigrationConfig(defragmentation=args, budgets=(budget,), evictions_per_minute=0, max_unavailable=0)))
    keys = {"": ["few"], "namespace": ["few/default"], "node": [f"few/{name}" for name in nodes[:2]]}[per]
    for key in keys:
        state.budget_spent[key] = {f"old-{i}": NOW - 1 for i in range(spent)}
    (planned,) = decider.decide(state, c.Defragment(NOW, "api", "p"))
    leaves = Counter(f"few/{m.source}" if per == "node" else "few/default" if per else "few" for m in planned.moves)
    for key, many in leaves.items():
        assert many <= evictions - (spent if key in keys else 0), planned.moves
    if objective != "greedy":
        carry_out(state, planned, seed)
    if objective != "greedy" and whole:
        leaving = {m.pod for m in planned.moves}
        assert all(state.on_node[source].keys() <= leaving for source in {m.source for m in planned.moves if m.pod}), "all of a node, or none"
    assert "EvictionBudget" not in failed(advance(then(state, planned))).values()
