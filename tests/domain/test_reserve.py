"""The reserve plugin (seed 001, RULES 001-1 to 001-5): given a window, who may run where."""

from datetime import datetime

import numpy as np
import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    run,
    shape,
    then,
    when,
)
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain import changes, session
from restow.domain.session.plugins.reserve import plugin
from restow.domain.session.plugins.reserve.args import Args
from restow.domain.session.plugins.reserve.forbidden import enough, forbidden, worth
from restow.domain.session.plugins.reserve.reserve_tasks import Index, Released
from restow.domain.session_config import read_conf

HOUR = 3_600_000
RESERVE = {"volcano.sh/reserveable": "true"}
EBOOK = {"business_type": "ebook"}


def at(clock: str) -> int:
    return round(datetime.fromisoformat(f"2025-06-10T{clock}:00+00:00").timestamp()) * 1000


def conf(*labels: dict, binpack: bool = False, on: bool = True, actions: str = "allocate, backfill") -> e.Event:
    reserve = {"name": "reserve", "arguments": {"reservelabels": list(labels)}}
    score = {"name": "binpack"} if binpack else {"name": "nodeorder"}
    tiers = [{"plugins": [{"name": "priority"}, {"name": "gang"}, *([reserve] if on else []), {"name": "predicates"}, score]}]
    return configured("session", read_conf({"actions": actions, "tiers": tiers}))


def label(**change) -> dict:
    said = {
        "nodeSelector": EBOOK,
        "resources": {"cpu": "4"},
        "startReserveAgo": "2h",
        "cron": "0 3 - 4 * * *",
    }
    return said | change


def placed(state, clock: str) -> dict[str, str]:
    """Sessions until nothing is placed any more; pods and their nodes."""
    found = {}
    while got := {x.pod: x.node for x in run(state, session.decider, c.Schedule(at(clock))) if isinstance(x, e.PodPlaced)}:
        found |= got
    return found


def unfit(state, clock: str) -> list[dict[str, int]]:
    return [x.reasons for x in when(state, session.decider, c.Schedule(at(clock))) if isinstance(x, e.Unfit)]


# -- RULES 001-1 -----------------------------------------------------------------------------------------------------


def a_day(on: bool) -> tuple[dict[str, str], dict[str, str]]:
    """500 low-priority pods come between one and two, which fill 99 %, and go on past four; ten come between two and three
    that are reserve tasks. Who of them starts at once."""
    window = label(resources={"cpu": "20"}, cron="0 2-3 * * *", startReserveAgo="1h", podNumToReserve=10)
    nodes = [node(f"n{i:02}", cpu=10_100, labels=EBOOK if i < 2 else {}) for i in range(50)]
    state = given(conf(window, on=on), nodes, shape("low", cpu=1_000), shape("big", cpu=2_000), time=at("00:30"))
    low: dict[str, str] = {}
    for batch in range(10):
        clock = f"01:{batch * 6:02}"
        then(state, [pod(f"low-{batch}-{i}", "low") for i in range(50)], time=at(clock))
        low |= placed(state, clock)
    then(state, [pod(f"big-{i}", "big", annotations=RESERVE) for i in range(10)], time=at("02:15"))
    late = placed(state, "02:15")
    assert not any(isinstance(x, e.Preempted) for x in when(state, session.decider, c.Schedule(at("02:20"))))
    return low, late


def test_without_the_plugin_low_priority_pods_take_everything_and_the_ten_wait():
    low, late = a_day(on=False)
    assert len(low) == 500
    assert late == {}


def test_with_the_plugin_some_of_the_500_wait_and_the_ten_start_at_once():
    low, late = a_day(on=True)
    assert 470 <= len(low) < 500
    ten = {name: where for name, where in late.items() if name.startswith("big")}
    assert len(ten) == 10
    assert set(ten.values()) == {"n00", "n01"}


def test_after_the_ten_are_scheduled_the_rest_is_free_for_all():
    """podNumToReserve: RULES 001-3, third rule."""
    window = label(resources={"cpu": "8"}, podNumToReserve=2)
    state = given(conf(window), node("a", labels=EBOOK), shape("s"), pod("low", "s"), time=at("03:00"))
    assert placed(state, "03:00") == {}
    then(state, pod("r0", "s", annotations=RESERVE), time=at("03:10"))
    assert placed(state, "03:10") == {"r0": "a"}, "one is still to come"
    then(state, pod("r1", "s", annotations=RESERVE), time=at("03:20"))
    assert placed(state, "03:20") == {"r1": "a", "low": "a"}


def test_a_gang_of_reserve_tasks_that_cannot_be_complete_does_not_count_as_scheduled():
    """Two of three fit, and two are all that are waited for."""
    window = label(resources={"cpu": "8"}, podNumToReserve=2)
    gang = [member(f"m{i}", "g", "big", annotations=RESERVE) for i in range(3)]
    facts = node("a", labels=EBOOK), shape("big", cpu=3_000), shape("s")
    state = given(conf(window), *facts, pod_group("g", need=3), gang, pod("low", "s"), time=at("03:00"))
    assert placed(state, "03:00") == {}


def test_in_the_next_window_it_counts_anew():
    window = label(resources={"cpu": "8"}, podNumToReserve=1)
    state = given(conf(window), node("a", labels=EBOOK), shape("s"), pod("r", "s", annotations=RESERVE), time=at("03:00"))
    assert placed(state, "03:00") == {"r": "a"}
    then(state, pod("low", "s"), time=at("03:30"))
    assert placed(state, "03:30") == {"low": "a"}
    tomorrow = at("03:30") + 24 * HOUR
    then(state, pod("late", "s"), time=tomorrow)
    assert [x.reasons for x in when(state, session.decider, c.Schedule(tomorrow)) if isinstance(x, e.Unfit)] == [{plugin.KEPT_FREE: 1}]


# -- RULES 001-3: the rules in order ---------------------------------------------------------------------------------


def test_a_reserve_task_is_permitted_everywhere():
    state = given(conf(label()), node("a", cpu=4_000, labels=EBOOK), shape("s"), pod("r", "s", annotations=RESERVE))
    assert placed(state, "03:00") == {"r": "a"}


@pytest.mark.parametrize(("clock", "kept"), [("00:59", False), ("01:00", True), ("03:00", True), ("03:59", True), ("04:00", False)])
def test_outside_the_window_and_its_lead_all_are_permitted(clock, kept):
    state = given(conf(label()), node("a", cpu=4_000, labels=EBOOK), shape("s"), pod("p", "s"))
    assert placed(state, clock) == ({} if kept else {"p": "a"})


def test_nodes_outside_the_selector_are_never_restricted():
    state = given(conf(label()), node("a", cpu=4_000, labels=EBOOK), node("b"), node("c"), shape("s"), *[pod(f"p{i}", "s") for i in range(18)])
    got = placed(state, "03:00")
    assert sorted(got.values()) == ["b"] * 8 + ["c"] * 8


def test_who_waits_is_told_so_and_nodes_are_counted_for_the_window_before_capacity():
    state = given(conf(label()), node("a", cpu=4_000, labels=EBOOK), node("b", cpu=500), shape("s"), pod("p", "s"))
    assert unfit(state, "03:00") == [{plugin.KEPT_FREE: 1, "Insufficient cpu": 1}]


def test_while_more_is_idle_than_is_reserved_the_forbidden_nodes_are_open():
    """Fifth rule: 8 cores, 4 reserved: four pods of one core each fit, the fifth waits."""
    state = given(conf(label()), node("a", labels=EBOOK), shape("s"), *[pod(f"p{i}", "s") for i in range(6)])
    assert len(placed(state, "03:00")) == 4


def test_what_reserve_tasks_have_and_wait_for_counts_where_it_is_more_than_is_configured():
    waiting = [pod(f"r{i}", "far", annotations=RESERVE) for i in range(3)]
    state = given(
        conf(label(resources={"cpu": "1"})),
        node("a", labels=EBOOK),
        shape("s"),
        shape("far", cpu=2_000, scheduler="restow", node_selector={"business_type": "ebook"}),
        pod("big", "s"),
        [pod(f"l{i}", "s") for i in range(9)],
        waiting,
    )
    got = placed(state, "03:00")
    # Six cores of eight are theirs: two of those who came before them are let in.
    assert sorted(got) == ["big", "l0", "r0", "r1", "r2"]


def test_only_enough_of_the_emptiest_nodes_are_forbidden():
    nodes = [node(f"n{i}", cpu=4_000, labels=EBOOK) for i in range(4)]
    window = label(resources={"cpu": "14"})
    state = given(conf(window), nodes, shape("s"), *[pod(f"p{i}", "s") for i in range(4)])
    # Two may go anywhere; then the four nodes (16 cores) are all needed for 14.
    assert len(placed(state, "03:00")) == 2
    window = label(resources={"cpu": "7"})
    state = given(conf(window, binpack=True), nodes, shape("s"), *[pod(f"p{i}", "s") for i in range(16)])
    got = placed(state, "03:00")
    # Nine may go anywhere, and binpack leaves two nodes nearly empty: they are forbidden, the other two fill up.
    assert len(got) == 9


def test_pods_that_end_before_the_window_starts_leave_their_capacity_to_it():
    """RULES 001-4: the pod's annotation beats the group's; without one, never."""
    short, long = {"volcano.sh/maximum-runtime": "1800s"}, {"volcano.sh/maximum-runtime": "3h"}

    def given_one(annotations: dict[str, str]):
        state = given(conf(label()), node("a", labels=EBOOK), shape("four", cpu=4_000), shape("s"), time=at("01:00"))
        then(state, pod("runs", "four", annotations=annotations), time=at("01:00"))
        assert placed(state, "01:00") == {"runs": "a"}
        return then(state, [pod(f"p{i}", "s") for i in range(6)], time=at("01:10"))

    assert len(placed(given_one(short), "01:10")) == 4
    assert len(placed(given_one(long), "01:10")) == 0
    assert len(placed(given_one({}), "01:10")) == 0
    assert len(placed(given_one({"volcano.sh/maximum-runtime": "soon"}), "01:10")) == 0


def group(name: str, **annotations: str) -> e.PodGroupObserved:
    return e.PodGroupObserved("default", name, f"uid-{name}", NOW, min_member=1, annotations={f"volcano.sh/{k}": v for k, v in annotations.items()}, phase="Inqueue")


def test_annotations_are_inherited_from_the_podgroup():
    member = {"scheduling.k8s.io/group-name": "g"}
    facts = (conf(label(), actions="enqueue, allocate, backfill"), node("a", cpu=4_000, labels=EBOOK), shape("s"))
    state = given(*facts, group("g", reserveable="true"), pod("r", "s", annotations=member))
    assert placed(state, "03:00") == {"r": "a"}
    state = given(*facts, group("g", reserveable="true"), pod("r", "s", annotations=member | {"volcano.sh/reserveable": "false"}))
    assert placed(state, "03:00") == {}
    state = given(*facts, group("g"), pod("r", "s", annotations=member))
    assert placed(state, "03:00") == {}
    then(state, group("g", reserveable="true"), time=at("03:10"))
    assert placed(state, "03:10") == {"r": "a"}


def test_several_windows_each_keep_their_own():
    night = {"shift": "night"}
    windows = label(), label(nodeSelector=night, cron="0 3-5 * * *")
    nodes = node("a", cpu=4_000, labels=EBOOK), node("b", cpu=4_000, labels=night)
    state = given(conf(*windows), nodes, shape("s"), pod("p", "s"))
    assert unfit(state, "03:30") == [{plugin.KEPT_FREE: 2}]
    assert placed(state, "04:30") == {"p": "a"}


def test_gpus_are_kept_free_by_any_of_their_names():
    window = label(resources={"nvidia.com/gpu": 2})
    state = given(conf(window), node("a", labels=EBOOK, gpus=2), shape("g", gpu=(1, 1000)), shape("s"), pod("p", "g"), pod("q", "s"))
    # Who wants no GPU takes nothing from it.
    assert placed(state, "03:00") == {"q": "a"}


def test_a_session_is_due_when_a_window_opens_starts_and_ends():
    state = given(conf(label()), node("a", cpu=4_000, labels=EBOOK), shape("s"), pod("p", "s"), time=at("02:00"))
    assert placed(state, "02:00") == {}
    assert session.decider.deadline(state) == at("03:00")
    args = Args.read({"reservelabels": [label()]})
    assert [plugin.deadline(state, args, at(clock)) for clock in ("00:00", "01:00", "03:00")] == [at("01:00"), at("03:00"), at("04:00")]


def test_a_clock_that_is_put_back_leaves_nobody_waiting_for_the_end_of_a_window_that_it_was_in():
    day = 24 * HOUR
    state = given(conf(label(resources={"cpu": "8"})), node("a", labels=EBOOK), shape("s"), time=at("06:00"))
    then(state, pod("low", "s"), time=at("03:30") + day)
    while (due := session.decider.due(state, Millis(at("03:30") + day))) is not None:
        assert not [x for x in run(state, session.decider, due) if isinstance(x, e.PodPlaced)], "tomorrow's window is open by that clock"
    then(state, changed("low", phase="Pending"), time=at("06:01"))
    due = session.decider.due(state, Millis(at("06:01")))
    assert due is not None
    assert [x.pod for x in run(state, session.decider, due) if isinstance(x, e.PodPlaced)] == ["low"]
    assert session.decider.due(state, Millis(at("06:01"))) is None


def test_a_clock_that_is_put_right_by_a_moment_asks_for_no_session():
    state = given(conf(label()), node("a", cpu=100), shape("s"), pod("p", "s"), time=at("06:00"))
    while (due := session.decider.due(state, Millis(at("06:00") + 900))) is not None:
        run(state, session.decider, due)
    assert session.decider.due(state, Millis(at("06:00"))) is None


def test_a_selector_without_nodes_and_resources_that_no_node_has_keep_nobody_off():
    nowhere = label(nodeSelector={"no": "where"})
    state = given(conf(nowhere, label(resources={"example.com/x": 1})), node("a", cpu=4_000, labels=EBOOK), shape("s"), pod("p", "s"))
    assert placed(state, "03:00") == {"p": "a"}
    args = Args.read({"reservelabels": [nowhere, label(resources={"example.com/x": 1, "cpu": 9})]})
    assert list(plugin.remarks(state, args, at("03:00"))) == [
        "reservelabels[0].nodeSelector: no node that can take pods has no=where: nothing is kept free",
        "reservelabels[1].resources['example.com/x']: 1 is asked for, the selector's nodes have 0: it is not kept free",
        "reservelabels[1].resources['cpu']: 9 is asked for, the selector's nodes have 4: all of them are kept free",
    ]


def test_nodes_that_can_take_no_pods_are_not_counted_on():
    cordoned = node("a", cpu=16_000, labels=EBOOK, unschedulable=True)
    state = given(conf(label()), cordoned, node("b", cpu=4_000, labels=EBOOK), shape("s"), pod("p", "s"))
    assert placed(state, "03:00") == {}


# -- arithmetic ------------------------------------------------------------------------------------------------------

AMOUNTS = st.integers(0, 1 << 45)


def slow_forbidden(allocatable, idle, wanted, names) -> set[str]:
    """RULES 001-2, word by word, on plain integers."""

    def big(i: int) -> int:
        return sum(max(have, 0) * 10_000 // want for have, want in zip(idle[i], wanted, strict=True))

    chosen: set[str] = set()
    so_far = [0] * len(wanted)
    for i in sorted(range(len(names)), key=lambda i: (-big(i), names[i])):
        if any(have < want for have, want in zip(so_far, wanted, strict=True)):
            chosen.add(names[i])
        so_far = [have + more for have, more in zip(so_far, allocatable[i], strict=True)]
    return chosen


@settings(max_examples=examples(300))
@for_all(st.data(), st.integers(0, 8), st.integers(1, 3))
def test_forbidden_nodes_equal_the_rule_word_by_word(data, nodes, resources):
    rows = st.lists(st.lists(AMOUNTS, min_size=resources, max_size=resources), min_size=nodes, max_size=nodes)
    allocatable, idle = data.draw(rows), data.draw(rows)
    wanted = data.draw(st.lists(st.integers(1, 1 << 45), min_size=resources, max_size=resources))
    names = [f"n{i}" for i in range(nodes)]
    shaped = (np.array(x, np.int64).reshape(nodes, resources) for x in (allocatable, idle))
    got = forbidden(*shaped, wanted, np.arange(nodes))
    assert {names[i] for i in np.flatnonzero(got)} == slow_forbidden(allocatable, idle, wanted, names)


def test_the_node_that_crosses_the_total_is_in():
    four = np.full((3, 1), 4, np.int64)
    assert forbidden(four, four, [5], np.arange(3)).tolist() == [True, True, False]
    assert forbidden(four, four, [4], np.arange(3)).tolist() == [True, False, False]
    assert forbidden(four, np.array([[1], [3], [2]]), [4], np.arange(3)).tolist() == [False, True, False]
    assert forbidden(four, four, [99], np.arange(3)).all()


def test_amounts_of_any_size_do_not_overflow():
    idle = np.full((2, 2), 1 << 60, np.int64)
    assert all(0 < value < 1 << 66 for value in worth(idle, [1, 1 << 60]))
    assert worth(np.full((1, 3), 1 << 45), [1, 1, 1]) == [3 * 10_000 << 45]


def test_the_last_rule_is_about_what_is_left_without_the_request():
    assert enough([10], {0: 6}, {}, {0: 4})
    assert not enough([10], {0: 7}, {}, {0: 4})
    assert not enough([10], {0: 6}, {0: 5}, {0: 4})
    assert enough([10, 0], {0: 6}, {1: 0}, {0: 4})


# -- the index beside the state --------------------------------------------------------------------------------------

PODS = ["a", "b", "c", "d"]
STEPS = st.one_of(
    st.tuples(st.just("seen"), st.sampled_from(PODS), st.sampled_from(["", "n0", "n1"]), st.sampled_from(["", "500s", "3h", "x"]), st.booleans()),
    st.tuples(st.just("gone"), st.sampled_from(PODS)),
    st.tuples(st.just("ends"), st.sampled_from(PODS)),
    st.tuples(st.just("node"), st.sampled_from(["n0", "n1"])),
    st.tuples(st.just("group"), st.sampled_from(["", "600s"]), st.booleans()),
    st.tuples(st.just("look")),
)


@settings(max_examples=examples(150))
@for_all(st.lists(STEPS, max_size=25))
def test_the_index_follows_whatever_happens(steps):
    state = given(node("n0"), node("n1"), shape("s"))
    before = NOW + HOUR
    for kind, *rest in steps:
        if kind == "seen":
            name, where, most, task = rest
            notes = {"scheduling.k8s.io/group-name": "g"} | ({"volcano.sh/maximum-runtime": most} if most else {}) | (RESERVE if task else {})
            then(state, pod(name, "s", where or None, annotations=notes, started=NOW))
        elif kind == "gone":
            then(state, e.PodGone(rest[0]))
        elif kind == "ends":
            then(state, changed(rest[0], node="n0", phase="Succeeded"))
        elif kind == "node":
            then(state, e.NodeGone(rest[0]) if rest[0] in state.nodes else node(rest[0]))
        elif kind == "group":
            then(state, group("g", **{"maximum-runtime": rest[0]} if rest[0] else {}, **{"reserveable": "true"} if rest[1] else {}))
        else:
            Released.of(state, Index.of(state), before)
    kept = Index.of(state)
    amounts = Released.of(state, kept, before)
    state.memo.clear()
    fresh = Index.of(state)
    assert dict(sorted(kept.tasks.items())) == dict(sorted(fresh.tasks.items()))
    assert {u: (x.node, x.at) for u, x in kept.endings.items()} == {u: (x.node, x.at) for u, x in fresh.endings.items()}
    assert amounts.tolist() == Released.of(state, fresh, before).tolist()


def test_what_the_index_remembers_is_bounded_however_many_pods_come_and_go(monkeypatch):
    monkeypatch.setattr(changes, "KEPT", 4)
    state = given(node("n0"), shape("s"))
    for i in range(20):
        then(state, pod(f"p{i}", "s", "n0", annotations={"volcano.sh/maximum-runtime": "600s"}, started=NOW))
        Index.of(state)
        then(state, e.PodGone(f"p{i}"))
    assert Index.of(state).changed.since(0) is None, "the first of them are forgotten"


def test_who_has_gone_keeps_and_gives_back_nothing_however_much_has_happened_since(monkeypatch):
    monkeypatch.setattr(changes, "KEPT", 4)
    notes = RESERVE | {"volcano.sh/maximum-runtime": "600s"}
    state = given(node("n0"), shape("s"), pod("a", "s", "n0", annotations=notes, started=NOW))
    assert [*Index.of(state).tasks] == ["a"]
    assert Released.of(state, Index.of(state), NOW + HOUR).any()
    then(state, e.PodGone("a"), *[pod(f"p{i}", "s") for i in range(20)])
    assert [*Index.of(state).tasks] == []
    assert not Released.of(state, Index.of(state), NOW + HOUR).any()
