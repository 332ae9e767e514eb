"""What waits: nobody who fits waits for others that do not, however many they are (RULES G-17), and keeping it up with the log
gives what is made anew from the state."""

import random

import pytest
from domain.build import (
    NOW,
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
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, PodTerm, Toleration
from restow.domain import session
from restow.domain.session import fit_counts, opening
from restow.domain.session.actions.enqueue import _Lines
from restow.domain.session.backlog import Backlog
from restow.domain.session.gates import Gates
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.session.standing_jobs import Standing
from restow.domain.session.verdict.explain import opened
from restow.domain.snapshot import dump, load

decider = session.decider
LIMIT = 20
"""Far less than wait."""
HOST = "kubernetes.io/hostname"


def rest(state, at: int = NOW) -> list[str]:
    """Sessions as long as they lead to anything; who was placed."""
    placed = []
    for _ in range(100):
        events = run(state, decider, c.Schedule(at, LIMIT))
        if not events:
            return placed
        placed += [event.pod for event in events if isinstance(event, e.PodPlaced)]
    raise AssertionError("no rest")


# -- whoever fits runs -------------------------------------------------------------------------------------------------


def test_pods_that_wait_for_their_quota_do_not_keep_a_younger_pod_of_another_queue_from_free_cores():
    state = given(node("n", cpu=4_000, pods=1_000), shape("s", memory=1), shape("big", cpu=4_000, memory=1))
    then(state, queue("a", capability={"cpu": 1_000}), queue("b"), in_queue("run-a", "a", node="n"), in_queue("run-b", "b", node="n"))
    then(state, [in_queue(f"a{i:03}", "a") for i in range(5 * LIMIT)])
    rest(state)
    then(state, in_queue("younger", "b", "big"))
    assert rest(state) == []
    then(state, node("n2", cpu=64_000))
    assert rest(state) == ["younger"]


@pytest.mark.parametrize("rule", ["pod_anti_affinity", "pod_affinity"])
def test_pods_that_wait_for_a_rule_of_affinity_do_not_keep_a_younger_pod_from_free_cores(rule):
    """A Deployment with more replicas than hosts, or one that wants to be beside somebody who is not there."""
    app = "web" if rule == "pod_anti_affinity" else "nobody"
    term = {rule: (PodTerm(HOST, LabelSelector({"app": app})),)}
    state = given(node("n0", cpu=4_000, pods=1_000, labels={HOST: "n0"}), shape("web", cpu=10, memory=1, **term), shape("big", cpu=8_000, memory=1))
    then(state, [pod(f"w{i:03}", "web", labels={"app": "web"}) for i in range(5 * LIMIT)])
    rest(state)
    then(state, pod("younger", "big"))
    rest(state)
    then(state, node("n1", cpu=64_000, labels={HOST: "n0"}))
    assert rest(state) == ["younger"]


def test_pods_of_many_kinds_that_wait_for_a_rule_do_not_keep_a_younger_pod_waiting_either():
    """As a StatefulSet's: each has labels of its own."""
    anti = (PodTerm(HOST, LabelSelector({"app": "web"})),)
    state = given(node("n0", cpu=4_000, pods=1_000, labels={HOST: "n0"}), shape("web", cpu=10, memory=1, pod_anti_affinity=anti), shape("big", cpu=8_000, memory=1))
    then(state, [pod(f"w{i:03}", "web", labels={"app": "web", "index": str(i)}) for i in range(5 * LIMIT)])
    rest(state)
    then(state, pod("younger", "big"))
    rest(state)
    then(state, node("n1", cpu=64_000, labels={HOST: "n0"}))
    assert rest(state) == ["younger"]


def test_gangs_that_cannot_be_complete_do_not_keep_a_younger_pod_waiting():
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=1_500), shape("s"), shape("two", cpu=2_000), pod("busy", node="n"))
    for i in range(3 * LIMIT):
        then(state, pod_group(f"g{i:02}", need=3), [member(f"g{i:02}-{j}", f"g{i:02}") for j in range(3)])
    then(state, pod("younger", "two"))
    rest(state)
    then(state, node("m", cpu=2_000))
    assert rest(state) == ["younger"]


def test_all_of_a_class_that_fit_are_placed_in_their_order_although_they_are_more_than_the_limit():
    state = given(node("n", cpu=100), shape("s", memory=1), *[pod(f"p{i:03}", owner=replica_of("web")) for i in range(3 * LIMIT)])
    rest(state)
    then(state, node("m", cpu=2 * LIMIT * 1_000))
    assert rest(state) == [f"p{i:03}" for i in range(2 * LIMIT)]


def test_whoever_comes_to_rest_beside_somebody_is_looked_at_again_when_that_one_has_come():
    beside = (PodTerm(HOST, LabelSelector({"app": "lead"})),)
    state = given(node("n", cpu=100, labels={HOST: "n"}), shape("s", memory=1), shape("follow", memory=1, pod_affinity=beside))
    then(state, [pod(f"f{i:02}", "follow", labels={"app": "f"}) for i in range(2 * LIMIT)], pod("lead", labels={"app": "lead"}))
    rest(state)
    then(state, node("n", cpu=1_000_000, pods=1_000, labels={HOST: "n"}))
    assert rest(state) == ["lead", *[f"f{i:02}" for i in range(2 * LIMIT)]]


def test_what_was_said_first_is_said_anew_first_so_that_all_are_told_in_the_end():
    state = given(node("n", cpu=100), *[shape(f"s{i:02}") for i in range(20)], *[pod(f"p{i:02}", f"s{i:02}") for i in range(20)])
    rest(state)
    then(state, node("m", cpu=100))
    told = [event.shape for at in (10_000, 10_001, 10_002) for event in run(state, decider, c.Schedule(NOW + at, 1_000))]
    assert sorted(told) == [f"s{i:02}" for i in range(20)]


# -- kept up with the log ----------------------------------------------------------------------------------------------


def world(rng: random.Random):
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), [node(f"n{i}", cpu=rng.choice((500, 2_000, 4_000)), gpus=rng.choice((0, 2))) for i in range(6)])
    for i in range(12):
        gpu = rng.choice((None, None, (1, 500), (2, 1000)))
        tolerations = rng.choice(((), (Toleration("t", "Exists"),)))
        selector = rng.choice(({}, {}, {"z": "a"}))
        then(state, shape(f"s{i}", cpu=rng.choice((300, 900, 2_500)), gpu=gpu, tolerations=tolerations, node_selector=selector))
    return state


def something(rng: random.Random, state, at: int) -> None:
    what = rng.randrange(10)
    if what < 4:
        then(state, pod(f"p{at}", f"s{rng.randrange(12)}", labels=rng.choice(({}, {"x": str(rng.randrange(2))})), pinned_node=rng.choice(("", "", "n1"))))
    elif what == 4:
        then(state, pod_group(f"g{at}", need=rng.randrange(1, 4)), [member(f"g{at}-{j}", f"g{at}", f"s{rng.randrange(12)}") for j in range(3)])
    elif what == 5 and state.pods:
        then(state, e.PodGone(rng.choice(sorted(state.pods))))
    elif what == 6:
        name = f"n{rng.randrange(8)}"
        then(state, node(name, cpu=rng.choice((500, 2_000, 6_000)), gpus=rng.choice((0, 2)), ready=rng.random() < 0.8, labels={"z": rng.choice("ab")}))
    elif what == 7 and state.nodes:
        then(state, e.NodeGone(rng.choice(sorted(state.nodes))))
    elif what == 8 and state.pod_groups:
        group = rng.choice(sorted(state.pod_groups))
        then(state, pod_group(group[1], need=rng.randrange(1, 4)))
    else:
        then(state, shape(f"late{at}", requests={f"example.com/r{at}": 1}))


def asked(backlog: Backlog) -> dict:
    return {under: sorted(line for line in backlog.lines(under)) for under in backlog.classes}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_is_what_is_made_anew_and_sessions_decide_the_same(seed):
    rng = random.Random(seed)
    state = world(rng)
    for at in range(60):
        something(rng, state, at)
        if rng.random() < 0.5:
            fresh = load(dump(state))
            command = c.Schedule(NOW + at, rng.choice((3, LIMIT)))
            events = list(decider.decide(state, command))
            assert events == list(decider.decide(fresh, command))
            then(state, events, time=NOW + at)
        kept, fresh = Backlog.of(state, NodeSnapshot(state.table)), Backlog(state)
        fresh._refresh(None)
        assert asked(kept) == asked(fresh)
        assert kept.hopeful() == fresh.hopeful()
        for name in kept.fits._slots:
            assert kept.fits.of(name) == fit_counts.plain(state, name)


@pytest.mark.parametrize("seed", range(6))
def test_at_rest_nobody_waits_who_would_be_placed_alone(seed):
    """A lone pod that waits fits nowhere: asked each for itself, as if it were new."""
    rng = random.Random(100 + seed)
    state = world(rng)
    for at in range(50):
        something(rng, state, at)
    rest(state)
    for uid in list(state.parked):
        found = state.pods[uid].fact
        if not found.annotations:
            with opened(state) as seen:
                assert seen.find(found) is None, uid


# -- jobs are made when their turn comes --------------------------------------------------------------------------------


def busy_world(rng: random.Random):
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), [node(f"n{i}", cpu=rng.choice((2_000, 4_000))) for i in range(4)])
    then(state, queue("a", capability={"cpu": 5_000}), queue("b", weight=2), e.PriorityClassObserved("high", 5))
    then(state, *[shape(f"s{i}", cpu=rng.choice((300, 900, 1_700)), priority=rng.choice((0, 0, 5))) for i in range(8)])
    return state


def more_work(rng: random.Random, state, at: int) -> None:
    what, some = rng.randrange(9), rng.choice(("a", "b", "default"))
    if what < 3:
        owner = rng.choice((None, None, replica_of(f"o{rng.randrange(3)}")))
        then(state, [in_queue(f"p{at}-{i}", some, f"s{rng.randrange(8)}", owner=owner) for i in range(rng.randrange(1, 5))])
    elif what < 5:
        asks = rng.choice(({}, {"cpu": rng.choice((1_000, 3_000))}))
        group = pod_group(f"g{at}", some, need=rng.randrange(1, 4), phase="Pending", min_resources=asks, priority_class=rng.choice(("", "high")))
        then(state, group, [member(f"g{at}-{j}", f"g{at}", f"s{rng.randrange(8)}") for j in range(3)])
    elif what == 5 and state.pods:
        then(state, [e.PodGone(uid) for uid in rng.sample(sorted(state.pods), min(3, len(state.pods)))])
    elif what == 6 and state.placed:
        then(state, [e.PodGone(uid) for uid in rng.sample(sorted(state.placed), min(4, len(state.placed)))])
    elif what == 7:
        then(state, e.PriorityClassObserved("high", rng.choice((-1, 5, 9))))
    else:
        then(state, queue(rng.choice("ab"), weight=rng.randrange(1, 4), capability=rng.choice(({}, {"cpu": 4_000}))))


@pytest.mark.parametrize("seed", range(12))
def test_a_job_that_is_made_when_its_turn_comes_is_placed_as_if_all_had_been_made_at_once(seed, monkeypatch):
    rng = random.Random(seed)
    state = busy_world(rng)
    for at in range(60):
        more_work(rng, state, at)
        command = c.Schedule(NOW + at, LIMIT)
        with monkeypatch.context() as patched:
            patched.setattr(Standing, "_alone", lambda self, state, name: None)
            patched.setattr(_Lines, "_known_refused", lambda self, job, asks: False)
            at_once = [event for event in decider.decide(load(dump(state)), command) if not isinstance(event, e.Unfit | e.Withheld)]
        events = list(decider.decide(state, command))
        assert [event for event in events if not isinstance(event, e.Unfit | e.Withheld)] == at_once
        then(state, events, time=NOW + at)


@pytest.mark.parametrize("gangs", [False, True])
def test_a_pod_that_ends_costs_as_many_jobs_as_have_capacity_however_many_wait(gangs, monkeypatch):
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=2_000, pods=1_000), shape("two", cpu=2_000), pod("busy", "two", node="n"))
    for i in range(60):
        then(state, [shape(f"s{i}", cpu=800 + i), pod_group(f"g{i}"), member(f"p{i:02}", f"g{i}", f"s{i}") if gangs else pod(f"p{i:02}", f"s{i}")])
    rest(state)
    then(state, e.PodGone("busy"))
    made = []
    monkeypatch.setattr(opening, "whole", lambda session, group, was=opening.whole: made.append(group) or was(session, group))
    monkeypatch.setattr(opening, "single", lambda state, pod, was=opening.single: made.append(pod.pod) or was(state, pod))
    events = run(state, decider, c.Schedule(NOW, 1_000))
    assert [event.pod for event in events if isinstance(event, e.PodPlaced)] == ["p00", "p01"]
    assert len(made) <= 4


def test_ten_groups_that_are_refused_for_the_same_are_not_asked_about_again_when_a_pod_ends(monkeypatch):
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=4_000), queue("q", capability={"cpu": 2_000}), shape("s"))
    then(state, in_queue("busy", "q", node="n"), [pod_group(f"g{i}", "q", phase="Pending", min_resources={"cpu": 3_000 + i}) for i in range(10)])
    then(state, [member(f"p{i}", f"g{i}") for i in range(10)])
    rest(state)
    then(state, e.PodGone("busy"))
    asked_about = []
    monkeypatch.setattr(Gates, "admitted", lambda self, job, was=Gates.admitted: asked_about.append(job.key) or was(self, job))
    run(state, decider, c.Schedule(NOW, 1_000))
    assert asked_about == ["default/g0"]


def test_a_group_that_asks_for_less_than_one_that_was_refused_is_let_in():
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=8_000), queue("q", capability={"cpu": 2_000}), shape("s"))
    then(state, [pod_group(f"g{i}", "q", phase="Pending", min_resources={"cpu": 3_000 - 500 * i}) for i in range(4)])
    then(state, [member(f"p{i}", f"g{i}") for i in range(4)])
    events = run(state, decider, c.Schedule(NOW, 1_000))
    assert [event.group for event in events if isinstance(event, e.Enqueued)] == ["g2"]


def test_a_node_that_comes_back_while_a_pod_with_other_rules_begins_to_wait_is_counted_for_those_that_wait_already():
    state = given(node("n", cpu=4_000, unschedulable=True), shape("s"), shape("elsewhere", node_selector={"zone": "z"}), pod("a"))
    assert rest(state) == []
    then(state, pod("b", "elsewhere"))
    run(state, decider, c.Schedule(NOW, LIMIT))
    then(state, node("n", cpu=4_000))
    assert rest(state) == ["a"]


def test_what_a_gang_lacks_is_known_anew_when_one_of_it_goes_that_ran_before_the_others_began_to_wait():
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=1_000), shape("s"), pod_group("g", need=2))
    then(state, member("a", "g", node="n"), member("b", "g"))
    assert rest(state) == []
    then(state, e.PodGone("a"))
    assert Backlog.of(state, NodeSnapshot(state.table)).hopeful() == Backlog.of(load(dump(state))).hopeful()
    assert list(decider.decide(state, c.Schedule(NOW, LIMIT))) == list(decider.decide(load(dump(state)), c.Schedule(NOW, LIMIT)))


def test_what_a_gang_lacks_is_known_anew_when_one_that_ran_joins_another_one():
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=1_000), shape("s"), pod_group("g", need=2), pod_group("h"))
    then(state, member("a", "g", node="n"), member("b", "g"))
    assert rest(state) == []
    then(state, member("a", "h", node="n"))
    kept, fresh = Backlog.of(state, NodeSnapshot(state.table)), Backlog.of(load(dump(state)))
    assert (kept._gangs.need[0], kept.hopeful()) == (fresh._gangs.need[0], fresh.hopeful())


def test_when_a_gang_no_longer_waits_nobody_counts_where_its_pods_would_fit():
    state = given(e.Synced("podgroups.scheduling.volcano.sh", "1"), node("n", cpu=1_000), shape("s"), shape("t"), pod_group("g", need=2))
    then(state, member("a", "g"), member("b", "g", "t"))
    assert rest(state) == []
    assert Backlog.of(state, NodeSnapshot(state.table)).fits._slots.keys() == {"s", "t"}
    then(state, member("b", "g", "s"))
    assert Backlog.of(state, NodeSnapshot(state.table)).fits._slots.keys() == {"s"}
    then(state, e.PodGone("a"), e.PodGone("b"))
    assert Backlog.of(state, NodeSnapshot(state.table)).fits._slots.keys() == set()


def test_pods_of_many_kinds_that_wait_for_their_quota_are_not_asked_about_again_one_by_one(monkeypatch):
    state = given(node("n", cpu=64_000), queue("q", capability={"cpu": 500}), [shape(f"s{i}", cpu=1_000 + i) for i in range(40)], shape("small", cpu=300))
    then(state, [in_queue(f"p{i:02}", "q", f"s{i}", labels={"i": str(i)}) for i in range(40)])
    assert rest(state) == []
    asked: list[str] = []
    plain = Gates.quota
    monkeypatch.setattr(Gates, "quota", lambda self, job, pod, more=None: asked.append(pod.pod) or plain(self, job, pod, more))
    then(state, in_queue("late", "q", "small", labels={"late": ""}))
    assert rest(state) == ["late"]
    assert len([uid for uid in asked if uid != "late"]) <= 3
    then(state, queue("q", capability={"cpu": 2_350}))
    assert rest(state) == ["p00", "p01"]


def due_and_placed(state) -> list[str]:
    """What the session that is due places; nobody where none is."""
    command = decider.due(state, NOW)
    return [] if command is None else [event.pod for event in run(state, decider, command) if isinstance(event, e.PodPlaced)]


def test_a_session_is_due_when_a_running_pod_has_the_label_that_somebody_waits_for():
    beside = (PodTerm("zone", LabelSelector({"app": "y"})),)
    state = given(node("n", labels={"zone": "z"}), shape("s"), shape("beside", pod_affinity=beside), pod("a", node="n"), pod("b", "beside"))
    while (command := decider.due(state, NOW)) is not None and run(state, decider, command):
        pass
    then(state, pod("a", node="n", labels={"app": "y"}))
    assert due_and_placed(state) == ["b"]


def test_a_session_is_due_when_a_running_pod_joins_the_gang_that_waits_for_one_more():
    groups = e.Synced("podgroups.scheduling.volcano.sh", "1")
    state = given(groups, node("n"), shape("s"), pod_group("g", need=2), pod("a", node="n"), member("b", "g"))
    while (command := decider.due(state, NOW)) is not None and run(state, decider, command):
        pass
    then(state, member("a", "g", node="n"))
    assert due_and_placed(state) == ["b"]
