"""Whom nobody evicts (RULES G-11): protections are vetoes, in every tier and every action; budgets are facts."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    in_queue,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.saga import BOLD, advance, create, evicts, failed, hold, move, plan, session_answers, step
from domain.saga import decider as sagas
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain import session
from restow.domain.config import ActionConfig, MigrationConfig, PluginConfig, SessionConfig
from restow.domain.effects import Evict, EvictVictim
from restow.domain.protection import Budgets
from restow.domain.records import Step
from restow.domain.session.registry import keeps

decider = session.decider
DEFAULT = SessionConfig().tiers
ONE = (tuple(PluginConfig(n) for n in ("priority", "gang", "conformance", "predicates", "proportion", "nodeorder")),)
LATE = (tuple(PluginConfig(n) for n in ("priority", "predicates", "proportion")), tuple(PluginConfig(n) for n in ("gang", "conformance")))
TIERS = pytest.mark.parametrize("tiers", [DEFAULT, ONE, LATE], ids=["default", "one tier", "in the last tier"])
ACTIONS = pytest.mark.parametrize("action", ["preempt", "reclaim"])
LOW, HIGH = shape("low", priority=1), shape("high", priority=10)
SYNCED = e.Synced("podgroups.scheduling.volcano.sh", "1")


def conf(action: str, tiers=DEFAULT) -> e.Event:
    names = ("enqueue", "reserve", "allocate", action, "backfill")
    return configured("session", SessionConfig(actions=tuple(ActionConfig(n) for n in names), tiers=tiers))


def full(action: str, *facts, tiers=DEFAULT, cpu: int = 4_000, **more):
    """A node that these pods of queue a fill; somebody who may take from them waits: of the same queue, or of queue b."""
    wanted = in_queue("claimer", "a" if action == "preempt" else "b", "high")
    return given(conf(action, tiers), SYNCED, queue("a"), queue("b"), node("n", cpu=cpu), LOW, HIGH, *facts, wanted)


def victims(state, at: int = NOW) -> list[str]:
    events = run(state, decider, c.Schedule(at, 1000))
    return sorted(event.pod for event in events if isinstance(event, e.Preempted))


def budget(allowed: int, name: str = "keep", **labels: str) -> e.BudgetObserved:
    return e.BudgetObserved("default", name, f"uid-{name}", LabelSelector(labels), allowed)


def four(shape: str = "low", **more) -> list[e.PodObserved]:
    return [in_queue(f"p{i}", "a", shape, node="n", owner=replica_of("w"), **more) for i in range(4)]


@TIERS
@ACTIONS
def test_pods_that_the_cluster_lives_on_are_no_victims(action, tiers):
    critical = shape("critical", priority=-5, priority_class="system-cluster-critical")
    assert victims(full(action, critical, four("critical"), tiers=tiers)) == []
    assert victims(full(action, four(namespace="kube-system"), tiers=tiers)) == []
    assert len(victims(full(action, four(), tiers=tiers))) == 1, "anybody else of them would have to go"


@TIERS
@ACTIONS
def test_a_gang_at_its_minimum_loses_nobody_and_a_larger_one_no_more_than_it_has_beyond(action, tiers):
    def gang(need: int):
        return [pod_group("g", "a", need=need), *[member(f"x{i}", "g", "low", node="n") for i in range(4)]]

    assert victims(full(action, gang(4), tiers=tiers)) == []
    assert len(victims(full(action, gang(3), tiers=tiers))) == 1
    wide = shape("high", cpu=2_000, priority=10)
    assert victims(full(action, gang(3), wide, tiers=tiers)) == [], "two of them are not to spare"
    assert len(victims(full(action, gang(2), wide, tiers=tiers))) == 2


def test_a_gang_keeps_so_many_of_each_task():
    group = pod_group("g", "a", need=1, min_task_member={"ps": 2, "worker": 1})
    tasks = ["ps", "ps", "worker", "worker"]
    pods = [member(f"x{i}", "g", "low", node="n") for i in range(4)]
    pods = [replace(p, annotations={**p.annotations, "volcano.sh/task-spec": t}) for p, t in zip(pods, tasks, strict=True)]
    assert victims(full("preempt", group, pods)) in (["x2"], ["x3"])


@ACTIONS
@pytest.mark.parametrize(
    "asks", [{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, {"karpenter.sh/do-not-disrupt": "true"}]
)
def test_whoever_asks_not_to_be_disrupted_stays(action, asks):
    state = full(action, four(annotations={**asks, "scheduling.volcano.sh/queue-name": "a"}))
    assert victims(state) == []
    then(state, in_queue("p0", "a", "low", node="n", owner=replica_of("w")))
    assert victims(state) == ["p0"], "it does not ask any more"


def test_an_annotation_that_allows_it_is_no_protection():
    allows = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
    assert len(victims(full("preempt", four(annotations={**allows, "scheduling.volcano.sh/queue-name": "a"})))) == 1


@TIERS
@ACTIONS
def test_a_budget_at_zero_is_a_veto(action, tiers):
    assert victims(full(action, four(labels={"app": "db"}), budget(0, app="db"), tiers=tiers)) == []
    others = in_queue("p0", "a", "low", node="n", labels={"app": "web"}, owner=replica_of("w"))
    assert victims(full(action, four(labels={"app": "db"}), others, budget(0, app="db"), tiers=tiers)) == ["p0"]


def test_of_one_budget_no_more_go_together_than_it_allows():
    wide = shape("high", cpu=2_000, priority=10)
    web = [in_queue(f"w{i}", "a", "mid", node="n", labels={"app": "web"}, owner=replica_of("v")) for i in range(2)]
    mid = shape("mid", priority=5)
    db = [in_queue(f"d{i}", "a", "low", node="n", labels={"app": "db"}, owner=replica_of("w")) for i in range(2)]
    assert victims(full("preempt", wide, mid, web, db, budget(2, app="db"))) == ["d0", "d1"]
    assert len(victims(full("preempt", wide, mid, web, db, budget(0, app="db")))) == 2
    found = victims(full("preempt", wide, mid, web, db, budget(1, app="db")))
    assert sorted(name[0] for name in found) == ["d", "w"], "one of the budget's, and one who is more important"


def test_whose_leaving_alone_frees_capacity_goes_although_a_less_important_one_has_the_same_budget():
    large, wide = shape("large", cpu=2_000, priority=2), shape("high", cpu=2_000, priority=10)
    db = {"labels": {"app": "db"}, "owner": replica_of("w"), "node": "n"}
    state = full("preempt", wide, large, in_queue("big", "a", "large", **db), in_queue("s0", "a", "low", **db), in_queue("s1", "a", "low", **db),
                 budget(1, app="db"))  # fmt: skip
    assert victims(state) == ["big"]


def test_a_gang_that_takes_from_several_nodes_keeps_within_the_budget_of_all_of_them():
    def state(allowed: int):
        nodes = [node("a", cpu=1_000), node("b", cpu=1_000)]
        low = [in_queue(f"p{n}", "q", "low", node=n, labels={"app": "db"}, owner=replica_of("w")) for n in "ab"]
        waits = [pod_group("g", "q", need=2), *[member(f"h{i}", "g", "high") for i in range(2)]]
        return given(conf("preempt"), SYNCED, queue("q"), nodes, LOW, HIGH, low, budget(allowed, app="db"), waits)

    assert victims(state(2)) == ["pa", "pb"]
    assert victims(state(1)) == []


def test_whose_eviction_is_under_way_already_counts_in_the_budget():
    state = full("preempt", four(labels={"app": "db"}), budget(1, app="db"))
    assert len(victims(state)) == 1
    then(state, in_queue("second", "a", "high"))
    assert victims(state) == [], "the budget is used up by the one that is to go"
    gone = next(iter(state.victims_of))
    then(state, changed(gone, node="n", phase="Running", deleting=NOW), budget(0, app="db"))
    assert victims(state) == []
    then(state, budget(1, app="db"))
    assert len(victims(state)) == 1, "its replacement is there, and the budget allows the next one"


def test_when_a_budget_lets_somebody_go_the_session_looks_again():
    state = full("preempt", four(labels={"app": "db"}), budget(0, app="db"))
    while (due := decider.due(state, NOW)) is not None:
        run(state, decider, due)
    then(state, budget(1, app="db"))
    assert len(victims_when_due(state)) == 1


def victims_when_due(state) -> list[str]:
    due = decider.due(state, NOW)
    assert due is not None, "nothing happens, and nobody looks"
    return sorted(event.pod for event in run(state, decider, due) if isinstance(event, e.Preempted))


def test_a_budget_that_goes_or_is_about_others_now_lets_them_go():
    for after in (e.BudgetGone("default", "keep"), budget(0, app="other")):
        state = full("preempt", four(labels={"app": "db"}), budget(0, app="db"))
        while (due := decider.due(state, NOW)) is not None:
            run(state, decider, due)
        then(state, after)
        assert len(victims_when_due(state)) == 1


def test_a_pod_of_two_budgets_can_never_be_evicted():
    state = full("preempt", four(labels={"app": "db"}), budget(2, app="db"), budget(2, "all"))
    assert victims(state) == []
    assert Budgets(state).refusal("p0").startswith("more than one disruption budget")


def test_a_pod_whose_containers_have_never_run_is_in_no_budget():
    starting = [in_queue(f"p{i}", "a", "low", node="n", phase="Pending", labels={"app": "db"}) for i in range(4)]
    assert len(victims(full("preempt", starting, budget(0, app="db")))) == 1


def unhealthy(allowed: int = 0, unready: bool = True, name: str = "keep") -> e.BudgetObserved:
    return replace(budget(allowed, name, app="db"), unready=unready)


def test_who_is_not_ready_goes_where_its_budget_lets_those_go_whatever_else_it_allows():
    db = [replace(p, ready=p.pod != "p2") for p in four(labels={"app": "db"})]
    assert victims(full("preempt", db, unhealthy())) == ["p2"]
    assert victims(full("preempt", db, unhealthy(unready=False))) == []
    assert Budgets(full("preempt", db, unhealthy())).refusal("p2") == ""
    assert Budgets(full("preempt", db, unhealthy())).refusal("p1")


def test_who_is_not_ready_and_of_two_budgets_goes_for_nobody():
    db = [replace(p, ready=False) for p in four(labels={"app": "db"})]
    assert victims(full("preempt", db, unhealthy(), unhealthy(name="other"))) == []


@pytest.mark.parametrize("after", ["the pod is not ready any more", "the budget lets those go"])
def test_a_session_is_due_when_one_may_go_that_its_budget_has_kept_because(after):
    db = [replace(p, ready=after[4:7] == "pod" or p.pod != "p2") for p in four(labels={"app": "db"})]
    state = full("preempt", db, unhealthy(unready=after[4:7] == "pod"))
    while (due := decider.due(state, NOW)) is not None:
        assert not [event for event in run(state, decider, due) if isinstance(event, e.Preempted)]
    then(state, unhealthy() if after[4:7] != "pod" else changed("p2", node="n", phase="Running"))
    assert victims_when_due(state) == ["p2"]


def test_however_many_nodes_budgets_keep_the_one_that_may_be_freed_is_found():
    nodes = [node(f"n{i:04}", cpu=1_000) for i in range(700)]
    kept = [in_queue(f"p{i}", "q", "low", node=f"n{i:04}", labels={"app": "db"}, created=NOW + i) for i in range(699)]
    state = given(conf("preempt"), queue("q"), nodes, LOW, HIGH, shape("mid", priority=5), kept, in_queue("free", "q", "mid", node="n0699"),
                  budget(0, app="db"), in_queue("h", "q", "high"))  # fmt: skip
    assert victims(state) == ["free"]


@pytest.mark.parametrize(("need", "lost"), [(3, 0), (2, 1)])
def test_a_gang_one_of_whose_pods_is_being_moved_has_one_less_to_spare(need, lost):
    gang = [pod_group("g", "a", need=need), *[member(f"x{i}", "g", "low", node="n", owner=replica_of("w")) for i in range(4)]]
    state = given(conf("preempt"), SYNCED, queue("a"), node("n", cpu=4_000), node("m"), LOW, HIGH, gang)
    then(state, plan("P", move("m", "x0", "n", "m")))
    advance(state)
    hold(state, "m")
    advance(state)
    assert step(state, "m") is Step.EVICTING
    then(state, e.NodeGone("m"), in_queue("claimer", "a", "high"))
    assert victims(state) == [], "what was held on the lost node is released first"
    assert len(victims(state)) == lost


def gang_of_three(*more):
    """On nodes a, b and c, and node t is full of nobody. x-1 moves g2 from b to t, and its slot there is held."""
    owner, nodes = replica_of("rs"), [node(name, cpu=1_000) for name in "abct"]
    members = [member(f"g{i}", "g", "low", node=on, owner=owner) for i, on in enumerate("abc", 1)]
    state = given(conf("preempt"), configured("migration", MigrationConfig(**BOLD)), SYNCED, *nodes, LOW, HIGH, pod_group("g", need=2), members)
    then(state, plan("x", move("x-1", "g2", "b", "t")))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    return then(state, *more)


def test_a_gang_one_of_whose_pods_is_to_go_for_another_one_has_one_less_to_move():
    state = gang_of_three(pod("claimer", "high"))
    assert victims(state) == ["g1"]
    assert evicts(advance(state)) == []
    assert failed(advance(state, 30_000)) == {"x-1": "GangMinimum"}
    assert not keeps(state, "g1")


def test_of_a_gang_that_can_spare_one_the_scheduler_takes_its_own_where_both_decide_at_once():
    state = gang_of_three(pod("claimer", "high"))
    chosen, moved = when(state, decider, c.Schedule(NOW, 1000)), when(state, sagas, c.Advance(NOW))
    then(state, moved, chosen)
    assert step(state, "x-1") is Step.EVICTING
    assert set(state.victims_of) == {"g1"}
    assert Evict("x-1") not in sagas.pending(state, None), "nothing is sent of either"
    assert keeps(state, "g1")
    advance(state)
    assert step(state, "x-1") is Step.ABORTING
    assert keeps(state, "g1"), "a late eviction may still succeed"
    run(state, sagas, c.ReportEviction(NOW, "x-1", "Aborted", ""))
    assert step(state, "x-1") is Step.FAILED
    assert state.migrations["x-1"].reason == "GangMinimum"
    assert not keeps(state, "g1")


def test_a_gang_that_loses_another_one_keeps_the_one_that_was_chosen():
    state = gang_of_three()
    then(state, e.PlanCancelled("x", "by hand"))
    advance(state)
    session_answers(state)
    then(state, [pod("x", "high", node="t"), pod("claimer", "high")])
    (chosen,) = victims(state)
    assert not keeps(state, chosen)
    then(state, e.PodGone(next(uid for uid in ("g1", "g2", "g3") if uid != chosen)))
    assert keeps(state, chosen)


def test_a_workload_one_of_whose_pods_is_to_go_for_another_one_misses_it():
    owner, nodes = replica_of("rs"), [node(name, cpu=1_000) for name in "abt"]
    members = [pod(f"p{i}", "low", node=on, owner=owner) for i, on in enumerate("ab", 1)]
    state = given(conf("preempt"), configured("migration", MigrationConfig(max_unavailable=1)), *nodes, LOW, HIGH, members, pod("claimer", "high", node="t"))
    then(state, pod("other", "high"))
    assert victims(state) == ["p1"]
    then(state, e.PodGone("claimer"), plan("x", move("x-1", "p2", "b", "t")))
    assert failed(advance(state)) == {"x-1": "MaxUnavailable"}


def test_who_asks_to_stay_after_having_been_chosen_is_not_evicted_any_more():
    state = full("preempt", four())
    (chosen,) = victims(state)
    assert decider.owed(state, EvictVictim(chosen))
    then(state, in_queue(chosen, "a", "low", node="n", annotations={"karpenter.sh/do-not-disrupt": "true"}))
    assert not decider.owed(state, EvictVictim(chosen))
    assert "claimer" in state.nominations, "it waits, and looks elsewhere at its deadline"
    late = state.nominations["claimer"].deadline
    assert victims(state, late) == [], "it ends"
    (other,) = victims(state, late)
    assert other != chosen


def test_nobody_preempts_from_below_also_where_only_shares_count():
    """Volcano's tiers fall through: where `priority` names nobody, `drf` of a later tier would choose by shares alone."""
    shares = (tuple(PluginConfig(n) for n in ("priority", "gang", "conformance")), tuple(PluginConfig(n) for n in ("drf", "predicates", "proportion", "nodeorder")))
    facts = (conf("preempt", shares), SYNCED, queue("a"), node("n", cpu=4_000), LOW, HIGH)
    assert victims(given(*facts, four("high"), in_queue("claimer", "a", "low"))) == []
    assert len(victims(given(*facts, four("low"), in_queue("claimer", "a", "low")))) == 1, "of equals whoever has more"
