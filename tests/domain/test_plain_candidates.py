"""Of plain pods the verdict of one holds for all of their kind: asked one by one, each gets the same."""

import random

import pytest
from domain.build import NOW, configured, given, node, pod, replica_of, shape

from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain import config
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.protection import COOLDOWN_TIME, PREEMPTABLE, SAFE_TO_EVICT
from restow.domain.records import LeftAlone, Refusal
from restow.domain.state import ClusterState

LABELS = ({}, {"app": "web"}, {"app": "other"}, {PREEMPTABLE: "false"}, {COOLDOWN_TIME: "1h"})
ANNOTATIONS = ({}, {}, {}, {SAFE_TO_EVICT: "false"}, {"restow.dev/movable": "false"})


def cluster(seed: int) -> ClusterState:
    """Pods of few controllers, of whom a rule keeps some, and of some controllers all."""
    chance = random.Random(seed)
    nodes = [node(f"n{i}", cpu=64_000, do_not_disrupt=chance.random() < 0.3) for i in range(4)]
    owners = [replica_of(f"rs{i}", chance.choice(("ReplicaSet", "ReplicaSet", "StatefulSet", "Job", "Mine"))) for i in range(6)]
    workloads = [
        e.WorkloadObserved(owner.uid, owner.kind, "default", owner.name, busy=chance.choice(("", "", "", "rollout")), movable=chance.choice(("", "", "", "false")), evicted="counted" if owner.kind == "Job" else "", retries=3)
        for owner in owners
    ]
    pods = [_pod(i, chance, owners) for i in range(120)]
    budgets = [e.BudgetObserved("default", "b", "u", LabelSelector({"app": "web"}), chance.choice((0, 2)))] if seed % 2 else []
    limits = configured("migration", config.MigrationConfig(max_unavailable=chance.choice((0, 1, 3)), budget_patience=0))
    state = given(limits, *nodes, shape("s"), shape("t", cpu=2_000, scheduler="another"), *workloads, *budgets, *pods)
    for uid in chance.sample(sorted(state.pods), 4):
        state.refused[uid] = Refusal(2, NOW + 1_000, "Budget")
    for uid in chance.sample(sorted(state.pods), 2):
        state.resized[uid] = "t"
    some = state.pods[chance.choice(sorted(state.pods))]
    if seed % 3 == 0:
        state.left_alone[state.lineage(some.fact), some.live.node] = LeftAlone(3, NOW)
    return state


def _pod(i: int, chance: random.Random, owners: list) -> e.PodObserved:
    live = {} if chance.random() < 0.9 else chance.choice(({"ready": False}, {"phase": "Succeeded"}, {"deleting": NOW}))
    return pod(
        f"p{i}", chance.choice("ssst"), f"n{chance.randrange(4)}", owner=chance.choice(owners), labels=chance.choice(LABELS), annotations=chance.choice(ANNOTATIONS),
        static=chance.random() < 0.03, started=NOW - chance.choice((0, 7_200_000)), **live,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_all_pods_asked_together_hear_what_each_hears_alone(seed):
    state, args = cluster(seed), DefragmentationArgs()
    together = Evictable(state, args, "cpu")
    for uid in sorted(state.pods):
        assert together.verdict(uid) == Evictable(state, args, "cpu").verdict(uid), uid


def test_some_of_these_pods_may_move_and_some_may_not_for_many_reasons():
    said = [Evictable(state, DefragmentationArgs(), "cpu").verdict(uid) for state in map(cluster, range(30)) for uid in state.pods]
    assert sum(not one for one in said) > 100
    assert len({one.partition(":")[0] for one in said}) > 8
