"""A place that is held is of use only where the scheduler would look at who comes for it: otherwise nobody is moved (RULES G-13)."""

import pytest
from domain.build import (
    NOW,
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
from domain.saga import (
    OWNER,
    advance,
    create,
    decider,
    evicts,
    failed,
    hold,
    move,
    owed,
    plan,
    session_answers,
    step,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Expression, LabelSelector, PodTerm
from restow.domain import config, defragmentation
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.decider import Rejected
from restow.domain.disruption import Spare
from restow.domain.effects import Evict
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

CAPACITY = (PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("capacity"))
PROPORTION = (PluginConfig("gang"), PluginConfig("predicates"), PluginConfig("proportion"))
SLA = (PluginConfig("sla"), PluginConfig("gang"), PluginConfig("predicates"))
NO_HAND_OVER = SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate"), ActionConfig("reserve")))
WORKER, SERVER = {"volcano.sh/task-spec": "worker"}, {"volcano.sh/task-spec": "ps"}


def of(*tiers) -> e.Event:
    return configured("session", SessionConfig(tiers=tiers))


def in_q(**more) -> e.Event:
    return in_queue("w", "q", node="a", owner=OWNER, **more)


def gang(group: e.Event) -> list[e.Event]:
    return [group, e.Synced("podgroups.scheduling.volcano.sh", "1"), member("w", "g", node="a", owner=OWNER),
            *[member(f"m{i}", "g", node="d", owner=replica_of("o")) for i in range(2)]]  # fmt: skip


LONE = [pod("w", node="a", owner=OWNER)]
FINE = pod_group("g", need=1)
TABLE = [
    # what there is, what happens to it, what the scheduler would say
    ([queue("q"), in_q()], queue("q", state="Closed"), "QueueClosed: queue q is Closed"),
    ([queue("q"), in_q()], e.QueueGone("q"), "QueueNotFound: queue q does not exist"),
    ([queue("q"), in_q()], queue("q", capability={"cpu": 1_000}, guarantee={"cpu": 5_000}), "InvalidQueue: queue q: guarantee"),
    ([of(PROPORTION), queue("q"), in_q()], queue("q", guarantee={"cpu": 900_000}), "InvalidQueue: queue q: guarantee of cpu"),
    ([of(CAPACITY), queue("q"), in_q()], queue("below", parent="q"), "QueueNotLeaf: queue q has queues below it"),
    ([of(CAPACITY), queue("top"), queue("q", parent="top"), in_q()], queue("top", state="Closing"), "QueueClosed: queue q is Closing"),
    ([of(SLA), *LONE], pod("w", node="a", owner=OWNER, annotations={"sla-waiting-time": "soon"}), "InvalidWaitingTime: annotation"),
    (gang(FINE), e.PodGroupGone("default", "g"), "PodGroupNotFound: PodGroup default/g does not exist"),
    (gang(FINE), pod_group("g", need=1, invalid="spec.minMember: -1"), "InvalidPodGroup: spec.minMember: -1"),
    (LONE, configured("session", NO_HAND_OVER), "no action reserve before allocate hands over what is held"),
    (LONE, e.QuotaObserved("default", "few", "u", ("requests.cpu",)), "ResourceQuota default/few has more of requests.cpu in use than it allows"),
    (LONE, configured("session", SessionConfig(("other",))), "scheduler restow is not among schedulerNames"),
]  # fmt: skip
ROWS = pytest.mark.parametrize(("facts", "change", "why"), TABLE, ids=[row[2][:30] for row in TABLE])


@ROWS
def test_who_would_not_be_looked_at_is_not_evicted(facts, change, why):
    state = world(*facts, plan("x", move("x-1", "w")))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    then(state, change)
    assert evicts(advance(state)) == []
    found = state.migrations["x-1"]
    assert (found.step, found.reason) == (Step.FAILED, "NotAdmitted")
    assert why in found.message


@ROWS
def test_nor_is_anything_held_for_it_when_that_was_so_before(facts, change, why):
    state = world(*facts, change, plan("x", move("x-1", "w")))
    assert failed(advance(state)) == {"x-1": "NotAdmitted"}


@ROWS
def test_an_eviction_that_is_still_to_be_tried_is_not_tried_any_more(facts, change, why):
    state = world(*facts, plan("x", move("x-1", "w")))
    advance(state)
    hold(state, "x-1")
    assert Evict("x-1") in owed(state)
    then(state, change)
    assert not decider.owed(state, Evict("x-1"))
    advance(state)
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.ABORTING, "NotAdmitted")


OPTIMIZING = config.DefragmentationArgs(resourceType="cpu", planner="optimizing", objective="nodes", protectionThresholds={})
GREEDY = config.DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 12}, {"cpu": 20})


@pytest.mark.parametrize("args", [OPTIMIZING, GREEDY], ids=["optimizing", "greedy"])
@ROWS
def test_nor_is_it_planned(facts, change, why, args):
    """Of Defragmentation, and by hand: whoever asks is told what stands in the way."""
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=args)), *[node(name) for name in "abd"], shape("s"), *facts,
        *[pod(f"q{i}", node="b", owner=replica_of(f"q{i}")) for i in range(2)], change,
    )  # fmt: skip
    said = {one.pod: one.verdict for one in defragmentation.explain(state, args, NOW)}
    assert said.get("w") in ("NotAdmitted", "Scheduler")
    assert "w" not in [one.pod for one in defragmentation.plan(state, args, NOW, "k").moves]
    with pytest.raises(Rejected, match=r"would not be looked at|would not be made|another scheduler"):
        when(state, decider, c.MovePod(NOW, "m", "w"))


def test_an_eviction_of_a_cancelled_plan_is_not_tried_any_more_even_before_it_is_given_up():
    state = world(*LONE, plan("x", move("x-1", "w")))
    advance(state)
    hold(state, "x-1")
    run(state, decider, c.CancelPlan(NOW, "x"))
    assert step(state, "x-1") is Step.EVICTING
    assert not decider.owed(state, Evict("x-1"))


def test_nor_that_of_a_pod_that_asks_to_stay_by_then():
    state = world(*LONE, plan("x", move("x-1", "w")))
    advance(state)
    hold(state, "x-1")
    then(state, pod("w", node="a", owner=OWNER, annotations={"karpenter.sh/do-not-disrupt": "true"}))
    assert not decider.owed(state, Evict("x-1"))


def test_a_gang_keeps_its_minimum_of_each_task_too():
    """Three members are enough, and the only server of them is not to go (RULES G-11; preemption counts so, too)."""
    members = [member("w", "g", node="a", owner=OWNER, annotations=SERVER),
               *[member(f"m{i}", "g", node="d", owner=replica_of("o"), annotations=WORKER) for i in range(3)]]  # fmt: skip
    state = world(pod_group("g", need=1, min_task_member={"ps": 1, "worker": 1}), *members, plan("x", move("x-1", "w")))
    assert failed(advance(state)) == {"x-1": "GangMinimum"}
    assert "task ps" in state.migrations["x-1"].message
    then(state, plan("y", move("y-1", "m0", source="d", target="b")))
    assert not failed(advance(state))
    assert evicts(hold(state, "y-1")) == ["y-1"]


def test_a_pod_that_nobody_makes_again_needs_no_leave_for_another_one():
    state = world(pod("w", node="a"), e.QuotaObserved("default", "few", "u", ("pods",)))
    assert Spare.planning(state).why_not("w") == ""


GPU = {"gpu": (1, 1000)}
AFFINE = {"pod_affinity": (PodTerm("zone", LabelSelector({}), ("other",)),)}
QUOTAS = [
    # what is exceeded, which pods it is about, what the pod is, whether the quota keeps it
    (("pods",), (), {}, True),
    (("count/pods",), (), {}, True),
    (("cpu",), (), {}, True),
    (("requests.memory",), (), {"memory": 0}, False),
    (("limits.cpu",), (), {}, True),
    (("requests.nvidia.com/gpu",), (), {}, False),
    (("requests.nvidia.com/gpu",), (), GPU, True),
    (("requests.example.com/port",), (), {"requests": {"example.com/port": 1}}, True),
    ((), (), {}, False),
    (("pods",), (Expression("BestEffort", "Exists"),), {}, False),
    (("pods",), (Expression("BestEffort", "Exists"),), {"cpu": 0, "memory": 0}, True),
    (("pods",), (Expression("NotBestEffort", "Exists"),), {}, True),
    (("pods",), (Expression("NotTerminating", "Exists"),), {}, True),
    (("pods",), (Expression("PriorityClass", "In", ("high",)),), {}, False),
    (("pods",), (Expression("PriorityClass", "In", ("high",)),), {"priority_class": "high"}, True),
    (("pods",), (Expression("PriorityClass", "NotIn", ("high",)),), {}, True),
    (("pods",), (Expression("PriorityClass", "Exists"),), {}, False),
    (("pods",), (Expression("PriorityClass", "DoesNotExist"),), {}, True),
    (("pods",), (Expression("CrossNamespacePodAffinity", "Exists"),), {}, False),
    (("pods",), (Expression("CrossNamespacePodAffinity", "Exists"),), AFFINE, True),
    (("pods",), (Expression("NotBestEffort", "Exists"), Expression("PriorityClass", "Exists")), {}, False),
]  # fmt: skip


@pytest.mark.parametrize(("exceeded", "scopes", "asks", "keeps"), QUOTAS)
def test_a_quota_keeps_a_pod_whose_successor_it_would_refuse(exceeded, scopes, asks, keeps):
    state = world(shape("t", **asks), pod("w", "t", node="a", owner=OWNER), e.QuotaObserved("default", "few", "u", exceeded, scopes))
    assert bool(Spare.planning(state).why_not("w")) is keeps
    loaded = load(dump(state))
    assert (loaded.quotas, loaded.exceeded) == (state.quotas, state.exceeded)


@pytest.mark.parametrize("better", [e.QuotaGone("default", "few"), e.QuotaObserved("default", "few", "u")])
def test_a_quota_that_is_gone_or_has_capacity_again_keeps_nobody(better):
    state = world(*LONE, e.QuotaObserved("default", "few", "u", ("pods",)), e.QuotaObserved("other", "few", "v", ("pods",)), better)
    assert Spare.planning(state).why_not("w") == ""
