"""Plans move a gang as one or not at all, where whoever made it starts it again: plugins of a policy that drain, and Defragmentation's greedy planner."""

import os
import random

import pytest
from domain.build import NOW, configured, given, node, pod, pod_group, replica_of, shape, when
from domain.descheduling_words import HOUR, policy, profile
from domain.saga import BOLD, advance, create, decider, evicts, failed, session_answers, step

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, NetworkTopology, OwnerRef, Taint
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.defragmentation.costs import Costs
from restow.domain.defragmentation.prices import Prices
from restow.domain.defragmentation.scope import EVERYTHING, Quota, Scope
from restow.domain.descheduling.policy import written
from restow.domain.fold import apply
from restow.domain.migration.deschedule import explain
from restow.domain.records import Step

SEEDS = range(int(os.environ.get("RESTOW_SEEDS", "150")))
AT = NOW + HOUR
DRAIN = (Taint("drain", "NoSchedule"),)
AGAIN = {"restow.dev/movable": "gang"}
OWNER = OwnerRef("Trainer", "t", "uid-t", "ml.example/v1")
"""Of whom nobody knows what it does when a pod of it is evicted."""
TAINTS, LOW = "RemovePodsViolatingNodeTaints", "LowNodeUtilization"


def of(group: str, name: str, on: str | None, said=AGAIN, owner=OWNER, **more) -> e.PodObserved:
    annotations = {"scheduling.k8s.io/group-name": group} | said | more.pop("annotations", {})
    return pod(name, node=on, owner=owner, labels={"app": "g"}, annotations=annotations, **more)


def drained(*more: e.Event, said=AGAIN, limits=None, evictor=None, **conf):
    """A gang that needs all three: g1 on n1, which is drained, g2 and g3 on n2. Free are n3 and n4."""
    what = policy(profile(TAINTS, None, evictor, name="taints"), **(limits or {}))
    return given(
        configured("migration", MigrationConfig(policy=written(what), **(BOLD | conf))), e.Synced("podgroups.scheduling.volcano.sh", "1"), shape("s"),
        node("n1", taints=DRAIN), *(node(n, cpu=2_000) for n in ("n2", "n3", "n4")), pod_group("g", need=3),
        of("g", "g1", "n1", said), of("g", "g2", "n2", said), of("g", "g3", "n2", said), *more,
    )  # fmt: skip


def drains(state) -> e.Planned:
    (planned,) = when(state, decider, c.Deschedule(AT, "api", "now"))
    return planned


def why(state, uid: str) -> str:
    (thought,) = explain(state, c.Deschedule(AT, "api", "now"), uid)
    return f"{thought.verdict}: {thought.text}"


def test_a_node_that_is_drained_takes_all_of_the_gang_with_it():
    planned = drains(drained())
    assert {(m.pod, m.source, m.gang) for m in planned.moves} == {("g1", "n1", "default/g"), ("g2", "n2", "default/g"), ("g3", "n2", "default/g")}
    assert {m.target for m in planned.moves} == {"n3", "n4"}
    assert [m.reason for m in planned.moves if m.pod == "g2"] == ["does not tolerate the node's taint drain:NoSchedule (g1, and its gang is moved as one)"]


def test_all_of_them_hold_before_one_is_evicted_and_then_all_are_in_one_decision():
    state = drained(pod("p", node="n1", owner=replica_of("rs")), node("n5"))
    planned = drains(state)
    apply(state, (planned,))
    ids = {m.pod: m.migration for m in planned.moves}
    assert set(ids) == {"g1", "g2", "g3", "p"}
    advance(state, HOUR)
    for uid in ("g1", "g2"):
        create(state, ids[uid])
    session_answers(state, HOUR)
    assert evicts(advance(state, HOUR)) == []
    create(state, ids["p"])
    session_answers(state, HOUR)
    assert evicts(advance(state, HOUR)) == [ids["p"]], "others go by their own rules"
    create(state, ids["g3"])
    session_answers(state, HOUR)
    assert evicts(advance(state, HOUR)) == [ids[uid] for uid in ("g1", "g2", "g3")]


def test_one_that_loses_its_slot_rolls_its_gang_back_and_nobody_else():
    state = drained(pod("p", node="n1", owner=replica_of("rs")), node("n5"))
    planned = drains(state)
    apply(state, (planned,))
    ids = {m.pod: m.migration for m in planned.moves}
    advance(state, HOUR)
    create(state, ids["g1"], ids["g2"], ids["p"])
    session_answers(state, HOUR)
    advance(state, HOUR)
    assert {ids[u] for u in ("g1", "g2", "g3")} <= set(failed(advance(state, HOUR + 600_000)))
    assert step(state, ids["p"]) is not Step.FAILED


@pytest.mark.parametrize(("said", "more", "sentence"), [
    ({}, (), "nobody knows what"),
    (AGAIN, (of("g", "g3", "n2", annotations={"karpenter.sh/do-not-disrupt": "true"}),), "its gang cannot be moved as one: pod g3: its annotation karpenter.sh/do-not-disrupt"),
    (AGAIN, (of("g", "g4", None),), "its gang cannot be moved as one: 1 of its 4 pods do not run"),
    (AGAIN, (pod_group("g", need=4),), "its gang cannot be moved as one: 3 of its pods run, and its minMember is 4"),
    (AGAIN, (pod_group("g", min_task_member={"": 2, "ps": 1}),), "its gang cannot be moved as one: 0 of its pods of task ps run, and its minTaskMember is 1"),
    (AGAIN, (e.BudgetObserved("default", "w", "uid-w", LabelSelector({"app": "g"}), 2),), "the disruption budget default/w allows 2 evictions now, and 3 pods of the gang would need one"),
    (AGAIN, (node("n3", cpu=500), node("n4", cpu=1_000)), "NoTarget: its gang is moved as one or not at all, and pod g2: none of the"),
])  # fmt: skip
def test_one_of_them_that_stays_keeps_all_of_them_and_that_is_said(said, more, sentence):
    state = drained(*more, said=said)
    assert drains(state).moves == ()
    assert sentence in why(state, "g1")


def test_who_does_not_pass_a_filter_keeps_all_of_them():
    state = drained(of("g", "g3", "n2", namespace="default", annotations={"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}), evictor={"noEvictionPolicy": "Mandatory"})
    assert drains(state).moves == ()
    assert "Together: its gang is moved as one or not at all, and pod g3 stays:" in why(state, "g1")


@pytest.mark.parametrize(("limits", "count"), [
    ({"maxNoOfPodsToEvictTotal": 2}, 0), ({"maxNoOfPodsToEvictTotal": 3}, 3), ({"maxNoOfPodsToEvictPerNode": 1}, 0), ({"maxNoOfPodsToEvictPerNode": 2}, 3),
    ({"maxNoOfPodsToEvictPerNamespace": 2}, 0), ({"maxNoOfPodsToEvictPerNamespace": 3}, 3),
])  # fmt: skip
def test_limits_count_every_pod_of_it(limits, count):
    assert len(drains(drained(limits=limits)).moves) == count
    if "maxNoOfPodsToEvictTotal" in limits:
        assert len(drains(drained(max_moves=limits["maxNoOfPodsToEvictTotal"])).moves) == count


def test_plugins_that_balance_leave_gangs_where_they_are():
    low = {"thresholds": {"cpu": 30, "pods": 30}, "targetThresholds": {"cpu": 60, "pods": 60}}
    facts = [node("a", cpu=3_000), node("b"), pod_group("g", need=3), *(of("g", f"g{i}", "a") for i in range(3))]
    state = given(configured("migration", MigrationConfig(policy=written(policy(profile(LOW, low, point="balance"))), **BOLD)), shape("s"), *facts)
    assert drains(state).moves == ()
    assert "plugins that balance move no gang as one" in why(state, "g0")


def test_of_a_gang_that_can_spare_a_pod_that_one_goes_alone():
    state = drained(pod_group("g", need=2), said=AGAIN | {}, movable_owners=("Trainer.ml.example",))
    assert [(m.pod, m.gang) for m in drains(state).moves] == [("g1", "")]


# -- Defragmentation, greedy ---------------------------------------------------------------------------------------------------

ARGS = DefragmentationArgs(resourceType="cpu", protectionThresholds={"cpu": 100}, defragmentThresholds={"cpu": 40}, lowThresholds={"cpu": 30})


def fragmented(*more: e.Event, **of_g2):
    """g1 on a and g2 on b, which are to be emptied; t has space for two, and u for one."""
    busy = [pod(f"t{i}", node="t", owner=replica_of("t")) for i in range(6)] + [pod(f"u{i}", node="u", owner=replica_of("u")) for i in range(7)]
    facts = [shape("s"), node("a"), node("b"), node("t", cpu=8_100), node("u", cpu=8_100), pod_group("g", need=2), *busy, of("g", "g1", "a"), of("g", "g2", "b", **of_g2), *more]
    return given(configured("migration", MigrationConfig(**BOLD)), *facts)


def packed(state, most: int = 100, scope: Scope = EVERYTHING):
    planned, thought = defragmentation.explained(state, ARGS, NOW, "p", most, scope)
    return [(m.pod, m.target, m.gang) for m in planned.moves], {one.pod: f"{one.verdict}: {one.message}" for one in thought}


def test_nodes_that_hold_a_gang_are_emptied_together():
    moves, _ = packed(fragmented())
    assert moves == [("g1", "u", "default/g"), ("g2", "t", "default/g")]


@pytest.mark.parametrize(("more", "of_g2", "sentence"), [
    ((), {"annotations": {"restow.dev/movable": "false"}}, "and its gang cannot be moved as one: pod g2 stays: restow.dev/movable: false"),
    ((pod("x", node="b", owner=replica_of("x")), pod("y", node="b", owner=replica_of("x"))), {}, "pod g2 is on no node that is to be emptied"),
    (tuple(pod(f"z{i}", node="t", owner=replica_of("t")) for i in range(2)), {}, "NoTarget: protectionThresholds: its gang is moved as one or not at all, and of pod g2: no target fits"),
    ((pod_group("g", need=2, topology=NetworkTopology("soft")),), {}, "its pods are to be near to each other"),
])  # fmt: skip
def test_a_gang_of_which_one_stays_is_left_alone_and_that_is_said(more, of_g2, sentence):
    moves, thought = packed(fragmented(*more, **of_g2))
    assert not {pod for pod, *_ in moves} & {"g1", "g2"}
    assert sentence in thought["g1"], thought


@pytest.mark.parametrize(("worker", "master"), [("a", "b"), ("b", "a"), ("a", "a")])
def test_no_pod_is_moved_alone_and_with_its_gang(worker, master):
    """The worker can be spared, the master cannot: whoever comes first decides."""
    task = "volcano.sh/task-spec"
    members = [of("g", uid, on, AGAIN | {task: uid}, replica_of("rs")) for uid, on in (("g1", worker), ("g2", master))]
    state = fragmented(*members, pod_group("g", need=1, min_task_member={"g2": 1}))
    moves, thought = packed(state)
    assert len({pod for pod, *_ in moves}) == len(moves)
    if worker == "a":
        assert [(pod, gang) for pod, _, gang in moves] == [("g1", "")]
        assert thought["g2"] == "Together: its gang is moved as one or not at all, and pod g1 moves alone"
    else:
        assert {(pod, gang) for pod, _, gang in moves} == {("g1", "default/g"), ("g2", "default/g")}


def test_what_a_gang_has_given_back_others_get():
    """The gang does not fit; a single pod that comes later does."""
    full = [pod(f"z{i}", node="t", owner=replica_of("t")) for i in range(2)]
    moves, _ = packed(fragmented(*full, pod("x", node="b", owner=replica_of("x"))))
    assert moves == [("x", "u", "")]


def test_every_pod_of_it_counts_for_limits():
    assert packed(fragmented(), most=1)[0] == []
    assert len(packed(fragmented(), most=2)[0]) == 2
    assert packed(fragmented(), scope=Scope(quota=Quota(None, 1)))[0] == []
    assert len(packed(fragmented(), scope=Scope(quota=Quota(1, 2)))[0]) == 2


def test_where_nobody_holds_their_places_gangs_stay():
    assert packed(fragmented(), scope=EVERYTHING.without_gangs())[0] == []


def test_the_cost_of_what_a_gang_loses_counts_once():
    """Each of its moves has its own part of it, and nobody waits for one that moves with him."""
    state = fragmented()
    costs = Costs(state, {"work": 1000, "gang": 50}, NOW + 10 * HOUR, Prices(state, ARGS.prices))
    alone, own = costs.parts("g1"), costs.parts("g1", as_one=True)
    assert alone["gang"] == 50
    assert "gang" not in own
    assert own["work"] > 0
    assert own["work"] + costs.parts("g2", as_one=True)["work"] == alone["work"]


def small(r: random.Random):
    """Nodes of which some are hardly used, pods of one to three cores, and gangs, mostly on these, of which two start again."""
    nodes = {f"n{i}": r.choice((8, 10, 14)) for i in range(r.randint(4, 7))}
    light = r.sample(list(nodes), r.randint(2, 4))
    left, pods = {n: (3 if n in light and r.random() < 0.9 else total - r.randint(1, 5)) for n, total in nodes.items()}, list[tuple[str, int, str, str]]()
    for i in range(r.randint(12, 40)):
        size, on = r.choice((1, 1, 2, 3)), r.choice(list(nodes))
        group = r.choice(("", "again", "again", "again2", "never")) if on in light or r.random() < 0.02 else ""
        if left[on] >= size:
            left[on] -= size
            pods.append((f"p{i:02}", size, on, group))
    return nodes, pods


def oracle(nodes, pods, limit: int):
    """(pod, target, gang) in order: seed 000's pseudo code, with a gang in the place of the first of its pods."""
    free = {n: total - sum(size for _, size, on, _ in pods if on == n) for n, total in nodes.items()}
    used = {n: total - free[n] for n, total in nodes.items()}
    sources = sorted((n for n in nodes if used[n] * 100 < 30 * nodes[n]), key=lambda n: (used[n] * 10_000 // nodes[n], n))
    targets = [n for n in nodes if 40 * nodes[n] < used[n] * 100 < 100 * nodes[n]]
    moves: list[tuple[str, str, str]] = []
    if not sources:
        return moves
    tried: set[str] = set()
    for source in sources:
        for name, _, _, group in sorted((p for p in pods if p[2] == source), key=lambda p: (-p[1], p[0])):
            if any(name == one for one, *_ in moves) or group == "never" or (group and group in tried):
                continue
            going = [p for p in pods if p[3] == group] if group else [p for p in pods if p[0] == name]
            if any(p[2] not in sources for p in going):
                continue
            tried.add(group)
            if len(moves) + len(going) > limit:
                tried.discard("")
                continue
            was, planned = dict(free), []
            for one, size, _, _ in sorted(going, key=lambda p: (-p[1], p[0])):
                at = [n for n in targets if free[n] >= size and nodes[n] - free[n] + size < nodes[n]]
                if not at:
                    break
                best = min(at, key=lambda n: (-((nodes[n] - free[n]) * 10_000 // nodes[n]), n))
                free[best] -= size
                planned.append((one, best, f"default/{group}" if group else ""))
            if len(planned) == len(going):
                moves += planned
            else:
                free = was
    return moves


@pytest.mark.parametrize("seed", SEEDS)
def test_the_greedy_plan_is_the_pseudo_codes_and_never_has_a_part_of_a_gang(seed):
    r = random.Random(seed)
    nodes, pods = small(r)
    sizes = {name: sum(group == name for *_, group in pods) for name in ("again", "again2", "never")}
    facts = [
        *(node(name, cpu=cores * 1_000) for name, cores in nodes.items()), *(shape(f"s{size}", cpu=size * 1_000) for size in (1, 2, 3)),
        *(pod_group(name, need=count) for name, count in sizes.items() if count),
        *(
            of(group, name, on, {} if group == "never" else AGAIN, replica_of("rs"), shape=f"s{size}") if group else pod(name, f"s{size}", on, owner=replica_of("rs"))
            for name, size, on, group in pods
        ),
    ]  # fmt: skip
    state = given(configured("migration", MigrationConfig(**BOLD)), *facts)
    limit = r.choice((2, 4, 100))
    moves, _ = packed(state, limit)
    assert len(moves) <= limit
    for name, count in sizes.items():
        assert sum(gang == f"default/{name}" for *_, gang in moves) in (0, count)
    assert moves == oracle(nodes, pods, limit)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drain_never_has_a_part_of_a_gang_and_whatever_it_promises_is_held_at_once(seed):
    r = random.Random(seed)
    nodes, pods = small(r)
    tainted = r.sample(list(nodes), r.randint(1, 2))
    limits = {"maxNoOfPodsToEvictTotal": r.randint(1, 8)} if r.random() < 0.4 else {}
    sizes = {name: sum(group == name for *_, group in pods) for name in ("again", "again2", "never")}
    conf = MigrationConfig(policy=written(policy(profile(TAINTS, name="taints"), **limits)), concurrent=1_000, per_node=1_000, **BOLD)
    facts = [
        configured("migration", conf), *(shape(f"s{size}", cpu=size * 1_000) for size in (1, 2, 3)),
        *(node(name, cpu=cores * 1_000, taints=DRAIN if name in tainted else ()) for name, cores in nodes.items()),
        *(pod_group(name, need=count) for name, count in sizes.items() if count),
        *(
            of(group, name, on, {} if group == "never" else AGAIN, replica_of("rs"), shape=f"s{size}") if group else pod(name, f"s{size}", on, owner=replica_of("rs"))
            for name, size, on, group in pods
        ),
    ]  # fmt: skip
    state = given(*facts)
    planned = drains(state)
    for name, count in sizes.items():
        assert sum(m.gang == f"default/{name}" for m in planned.moves) in (0, count)
        assert {m.pod for m in planned.moves if m.gang == f"default/{name}"} == {m.pod for m in planned.moves if m.pod in {p[0] for p in pods if p[3] == name}}
    # Beside all that runs: by force.
    free = {n: total - sum(size for _, size, on, _ in pods if on == n) for n, total in nodes.items()}
    size_of = {name: size for name, size, *_ in pods}
    for move in planned.moves:
        free[move.target] -= size_of[move.pod]
        assert move.target not in {move.source, *tainted}
    assert min(free.values()) >= 0
    apply(state, (planned,))
    advance(state, HOUR)
    create(state, *(m.migration for m in planned.moves))
    session_answers(state, HOUR)
    assert sorted(evicts(advance(state, HOUR))) == sorted(m.migration for m in planned.moves)
