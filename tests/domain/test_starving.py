"""Seed 002: the action `reserve` after `allocate`. A pod that asks for much does not starve because many ask for little."""

import numpy as np
import pytest
import yaml
from domain.build import (
    GIB,
    GPU,
    NOW,
    configured,
    given,
    in_queue,
    node,
    pod,
    queue,
    reservation,
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
from restow.contracts.codec import encode_event
from restow.contracts.values import Container, NumaZone
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.memo import kept
from restow.domain.node_table import MOST
from restow.domain.session.decider import Pace
from restow.domain.session.plugins.nodeorder.reserve_score import resource_scores
from restow.domain.session.registry import due_times
from restow.domain.session.starving import RESERVED, sentence
from restow.domain.session.starving.readiness import Ahead
from restow.domain.session.starving.reserved_nodes import Reserved
from restow.domain.session_config import read_conf
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState

decider = session.decider
HOUR = 3_600_000

CONF = """
actions:
- name: enqueue
- name: allocate
- name: backfill
- name: reserve
  arguments:
    starvingJobTimeThreshold: {threshold}
    reservedNodePercent: {percent}
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: nodeorder
"""


def starves_next(state: ClusterState):
    """When the action wants a session although nothing happens."""
    return min((when for when in due_times(state, kept(state, Pace).last(state)) if when is not None), default=None)


def conf(threshold: int = 3600, percent: int = 100, **more) -> e.Event:
    """Seed 002's YAML; `threshold` in seconds."""
    return configured("session", read_conf(yaml.safe_load(CONF.format(threshold=threshold, percent=percent)) | more))


def session_at(state: ClusterState, after: int = HOUR + 1, limit: int = 1_000) -> list[e.Event]:
    """One session, `after` milliseconds from NOW."""
    return run(state, decider, c.Schedule(NOW + after, limit))


def until_quiet(state: ClusterState, after: int = HOUR + 1, limit: int = 1_000) -> list[e.Event]:
    """Sessions until one decides nothing."""
    said: list[e.Event] = []
    while events := session_at(state, after, limit):
        said += events
        assert len(said) < 10_000, "sessions never end"
    return said


def bind(state: ClusterState) -> None:
    """What was placed runs."""
    then(state, *[e.PodChanged(uid, p.node, "Running", True) for uid, p in list(state.placed.items()) if state.pods[uid].live.node is None])


def done(state: ClusterState, *pods: str) -> None:
    then(state, *[e.PodChanged(uid, state.pods[uid].live.node, "Succeeded") for uid in pods])


def on(state: ClusterState, name: str) -> set[str]:
    return set(state.on_node.get(name, ()))


def of(kind: type[e.Event], events: list[e.Event]) -> list[e.Event]:
    return [event for event in events if isinstance(event, kind)]


def group(name: str, need: int, **more) -> e.PodGroupObserved:
    more.setdefault("created", NOW)
    return e.PodGroupObserved("default", name, f"uid-{name}", min_member=need, phase="Running", **more)


def member(name: str, group: str, shape: str = "s", **more) -> e.PodObserved:
    return pod(name, shape, annotations={"scheduling.k8s.io/group-name": group}, **more)


def full(*names: str, cpu: int = 4_000, part: int = 1_000) -> list:
    """Nodes of so many cpus on which something runs, and the shapes `part` (that runs) and `big` (a whole node)."""
    shapes = [shape("part", cpu=part, memory=GIB), shape("big", cpu=cpu, memory=GIB)]
    return [*shapes, *[node(n, cpu=cpu) for n in names], *[pod(f"{n}-runs", "part", node=n) for n in names]]


# -- the seed's scenario ---------------------------------------------------------------------------------------------


class Scenario:
    """One node of 3C3G; pods 1 to 7 in the order of the queue, 1C1G each, pod 4 the whole node. It starves by Time4."""

    def __init__(self, *actions: str) -> None:
        said = yaml.safe_load(CONF.format(threshold=3600, percent=100))
        said["actions"] = [action for action in said["actions"] if action["name"] in actions]
        self.state = given(
            configured("session", read_conf(said)),
            node("n", cpu=3_000, memory=3 * GIB),
            shape("small"),
            shape("whole", cpu=3_000, memory=3 * GIB),
            *[pod(f"pod-{i}", "whole" if i == 4 else "small", created=NOW + i) for i in range(1, 8)],
        )
        self.time = 10

    def goes_on(self, *completed: str) -> None:
        """These complete; then whatever the scheduler does, as long as it is due."""
        done(self.state, *completed)
        self.time += 10
        while decider.due(self.state, NOW + self.time) is not None:
            session_at(self.state, self.time)
            bind(self.state)

    def until(self, after: int) -> None:
        """Nothing happens for a while."""
        self.time = after
        self.goes_on()

    @property
    def running(self) -> set[str]:
        return on(self.state, "n")

    @property
    def pending(self) -> list[str]:
        return [uid for uid in self.state.pods if self.state.pods[uid].live.phase == "Pending"]


def test_without_the_action_pod_4_runs_only_when_all_others_have_completed():
    world = Scenario("enqueue", "allocate", "backfill")
    assert world.pending == [f"pod-{i}" for i in range(1, 8)], "Time0"
    world.goes_on()
    assert world.running == {"pod-1", "pod-2", "pod-3"}, "Time1"
    world.goes_on("pod-1")
    assert world.running == {"pod-2", "pod-3", "pod-5"}, "Time2 and Time3: pod 4 is skipped, pod 5 takes the room"
    world.until(HOUR + 1_000)
    world.goes_on("pod-2", "pod-3")
    assert world.running == {"pod-5", "pod-6", "pod-7"}, "Time4: pod 4 is skipped again"
    world.goes_on("pod-5")
    assert world.running == {"pod-6", "pod-7"}, "Time5"
    world.goes_on("pod-6", "pod-7")
    assert world.running == {"pod-4"}, "Time6: all others have completed"


def test_with_the_action_the_node_is_reserved_for_pod_4_as_soon_as_it_starves():
    world = Scenario("enqueue", "allocate", "backfill", "reserve")
    state = world.state
    assert world.pending == [f"pod-{i}" for i in range(1, 8)], "Time0"
    world.goes_on()
    assert world.running == {"pod-1", "pod-2", "pod-3"}, "Time1"
    world.goes_on("pod-1")
    assert world.running == {"pod-2", "pod-3", "pod-5"}, "Time2 and Time3: it does not starve yet"
    assert state.reserved_tasks == {}
    starves = starves_next(state)
    assert starves == NOW + 4 + HOUR + 1, "a session is due at that moment although nothing happens"
    world.until(HOUR + 1_000)
    assert state.reserved_tasks == {"pod-4": "n"}, "by Time4 it starves"
    world.goes_on("pod-2", "pod-3")
    assert world.running == {"pod-5"}, "Time4: 2C2G are idle, and nobody comes to the node"
    assert [state.waiting[state.parked[name][0]].reasons for name in ("pod-6", "pod-7")] == [{RESERVED: 1}] * 2, "both are told"
    world.until(world.time + 1_000)
    assert set(world.pending) == {"pod-4", "pod-6", "pod-7"}, "Time5: pods 6 and 7 remain pending"
    world.goes_on("pod-5")
    assert world.running == {"pod-4"}, "Time6: all room of the node is released, and pod 4 has it"
    assert "pod-4" not in state.reserved_tasks, "the job is ready: its reservation has ended"
    world.goes_on("pod-4")
    assert world.running == {"pod-6", "pod-7"}


def test_reserve_before_allocate_alone_serves_nobody_who_starves():
    said = {"actions": ["enqueue", "reserve", "allocate", "backfill"]}
    state = given(conf(**said), *full("a"), pod("w", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {}
    both = {"actions": ["enqueue", "reserve", "allocate", "backfill", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 3600}}]}
    then(state, conf(**both))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "a"}


# -- who starves -----------------------------------------------------------------------------------------------------


def test_a_job_starves_strictly_after_the_threshold_since_its_creation():
    state = given(conf(), *full("a"), pod("w", "big", created=NOW + 500))
    assert of(e.TaskReserved, until_quiet(state, HOUR + 500)) == []
    assert starves_next(state) == NOW + HOUR + 501
    assert of(e.TaskReserved, until_quiet(state, HOUR + 501)) == [e.TaskReserved("w", "a")]
    assert starves_next(state) is None, "nothing else waits"


def test_the_deadline_is_that_of_whoever_starves_next():
    state = given(conf(), *full("a"), *[pod(f"w{i}", "big", created=NOW + 10_000 * i) for i in (3, 1, 2)])
    until_quiet(state, 0)
    assert starves_next(state) == NOW + 10_000 + HOUR + 1
    session_at(state, 10_000 + HOUR + 1)
    then(state, e.Synced("v1/nodes", "7"), time=NOW + 10_000 + HOUR + 1)
    assert starves_next(state) == NOW + 20_000 + HOUR + 1
    then(state, e.PodGone("w2"), time=NOW + 10_000 + HOUR + 1)
    assert starves_next(state) == NOW + 30_000 + HOUR + 1


def test_a_request_that_is_larger_than_every_node_is_not_served():
    state = given(conf(), *full("a"), shape("huge", cpu=5_000), pod("w", "huge"))
    until_quiet(state)
    assert state.reserved_tasks == {}


def test_a_rule_about_nodes_is_not_solved_by_waiting():
    state = given(conf(), *full("a"), shape("picky", cpu=4_000, node_selector={"disk": "ssd"}), pod("w", "picky"))
    until_quiet(state)
    assert state.reserved_tasks == {}


def test_a_gang_starves_since_its_pod_group_was_created():
    state = given(conf(), *full("a", "b"), group("g", 2, created=NOW - HOUR), *[member(f"m{i}", "g", "big") for i in range(2)])
    until_quiet(state, 1)
    assert state.reserved_tasks == {"m0": "a", "m1": "b"}


def test_pods_beyond_what_makes_a_gang_ready_do_not_starve():
    state = given(conf(), *full("a"), group("g", 1), member("m0", "g", "part"), member("m1", "g", "big"))
    until_quiet(state)
    assert on(state, "a") == {"a-runs", "m0"}
    assert state.reserved_tasks == {}


def test_a_gang_with_too_few_pods_or_without_its_pod_group_gets_nothing():
    state = given(conf(), *full("a", "b"), group("h", 3), *[member(f"m{i}", "h", "big") for i in range(2)])
    until_quiet(state)
    assert state.reserved_tasks == {}
    state = given(conf(), e.Synced("podgroups.scheduling.volcano.sh", "1"), *full("a"), member("m", "absent", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {}


def test_who_is_not_let_in_yet_or_has_no_quota_waits_for_that_and_not_for_nodes():
    tiers = [{"plugins": [{"name": n} for n in ("gang", "overcommit", "proportion", "predicates", "nodeorder")]}]
    state = given(conf(tiers=tiers), *full("a"))
    waits = e.PodGroupObserved("default", "g", "u", NOW, min_member=1, phase="Pending", min_resources={"cpu": 64_000})
    then(state, waits, member("m", "g", "big"))
    until_quiet(state)
    assert [state.waiting[state.parked["m"][0]].reason, state.reserved_tasks] == ["NotEnqueued", {}]
    then(state, queue("small", capability={"cpu": 1_000}), in_queue("w", "small", "big"))
    until_quiet(state)
    assert "w" in state.parked
    assert state.reserved_tasks == {}
    then(state, queue("closed", state="Closed"), in_queue("x", "closed", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {}


def test_of_two_groups_that_wait_for_long_the_one_that_is_let_in_has_a_node_reserved_in_the_same_session():
    tiers = [{"plugins": [{"name": n} for n in ("gang", "overcommit", "predicates", "nodeorder")]}]
    groups = [
        e.PodGroupObserved("default", name, f"uid-{name}", NOW, min_member=1, phase="Pending", min_resources={"cpu": cpu})
        for name, cpu in (("let-in", 4_000), ("too-large", 64_000))
    ]
    state = given(conf(tiers=tiers), *full("a", "b"), *groups, member("m", "let-in", "big"), member("x", "too-large", "big"))
    said = session_at(state)
    assert [(x.group, *state.reserved_tasks) for x in of(e.Enqueued, said)] == [("let-in", "m")]


def test_where_no_action_lets_groups_in_one_that_is_pending_waits_for_nodes():
    actions = ["allocate", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 3600}}]
    waits = e.PodGroupObserved("default", "g", "u", NOW, min_member=1, phase="Pending", min_resources={"cpu": 64_000})
    state = given(conf(actions=actions), *full("a"), waits, member("m", "g", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"m": "a"}
    done(state, "a-runs")
    until_quiet(state)
    assert state.placed["m"].node == "a"


# -- which node ------------------------------------------------------------------------------------------------------


def test_the_score_of_a_resource_counts_how_well_what_is_idle_suits_what_is_asked_for():
    state = given(node("a", cpu=4_000, memory=8 * GIB), shape("s", cpu=1_000, memory=2 * GIB))
    # 100 - 100*1/4 = 75; 100 - 100*2/8 = 75; (75 + 75) / 2 / 3 = 25
    assert resource_scores(state.table, state.vectors["s"]).tolist() == [25]
    then(state, shape("more", cpu=8_000, memory=2 * GIB))
    # 100*4/8 - 100 = -50; (-50 + 75) // 2 = 12; 12 // 3 = 4
    assert resource_scores(state.table, state.vectors["more"]).tolist() == [4]
    then(state, shape("gpu", cpu=1_000, memory=2 * GIB, gpu=(1, 1000)))
    # The node has no GPU: 100*0/1000 - 100 = -100; (75 + 2*-100) // 3 = -42
    assert resource_scores(state.table, state.vectors["gpu"]).tolist() == [-42]


def test_of_several_scalar_resources_the_mean_counts_and_places_for_pods_do_not():
    more = {"example.com/a": 4, "example.com/b": 4}
    state = given(node("a", cpu=1_000, memory=GIB, allocatable=more), shape("s", 0, 0, requests={"example.com/a": 1, "example.com/b": 3}))
    # (75 + 25) // 2 = 50; (0 + 2*50) // 3 = 33
    assert resource_scores(state.table, state.vectors["s"]).tolist() == [33]
    then(state, shape("nothing", 0, 0))
    assert resource_scores(state.table, state.vectors["nothing"]).tolist() == [0]


amounts = st.integers(0, MOST)


@for_all(st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=4), st.tuples(amounts, amounts, amounts), amounts)
@settings(max_examples=examples(200), deadline=None)
def test_the_score_is_exact_for_amounts_of_any_size_and_over_committed_nodes(nodes, asked, used):
    names = ("cpu", "memory", "example.com/x")
    state = given(
        *[node(f"n{i}", *idle[:2], allocatable={names[2]: idle[2]}) for i, idle in enumerate(nodes)],
        shape("runs", used, 0), pod("r", "runs", node="n0"),
        shape("s", asked[0], asked[1], requests={names[2]: asked[2]}),
    )  # fmt: skip
    found = []
    for i, idle in enumerate(nodes):
        parts = []
        for at in range(3):
            free, req = max(idle[at] - (used if at == 0 and i == 0 else 0), 0), asked[at]
            parts.append(0 if not req else 100 - 100 * req // free if req <= free else 100 * free // req - 100)
        found.append(((parts[0] + parts[1]) // 2 + 2 * parts[2]) // 3)
    assert resource_scores(state.table, state.vectors["s"]).tolist() == found


def test_the_node_on_which_the_least_is_missing_is_reserved_and_ties_go_to_the_first_name():
    facts = [node(n, cpu=4_000) for n in "dcba"], shape("big", cpu=4_000), shape("s"), shape("two", cpu=2_000)
    state = given(conf(), *facts[0], *facts[1:], *[pod(f"r{n}", "two", node=n) for n in "ad"], *[pod(f"r{n}", "s", node=n) for n in "cb"])
    then(state, pod("w", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "b"}


@pytest.mark.parametrize(("percent", "reserved"), [(1, 1), (50, 3), (60, 3), (61, 4), (100, 5)])
def test_of_five_nodes_the_best_n_percent_take_part_rounded_up(percent, reserved):
    state = given(conf(percent=percent), *full("a", "b", "c", "d", "e"), *[pod(f"w{i}", "big") for i in range(9)])
    until_quiet(state)
    assert sorted(state.reserved_tasks.values()) == list("abcde"[:reserved])


def test_nodes_that_are_reserved_already_are_among_those_that_take_part():
    """Otherwise the share of nodes that is kept from other jobs would grow as their order changes."""
    state = given(conf(percent=50), *full("a", "b"), pod("w0", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w0": "a"}
    then(state, pod("more", "part", node="a"), pod("w1", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w0": "a"}, "b has more idle now, but one node of two takes part"


def test_a_plugin_can_be_switched_off_at_this_point_and_names_decide():
    tiers = [{"plugins": [{"name": "predicates"}, {"name": "nodeorder", "enableResourceNodeOrder": False}]}]
    state = given(conf(tiers=tiers), *full("a", "b"), pod("more", "part", node="a"), pod("w", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "a"}


def test_several_tasks_share_a_node_as_far_as_all_fit_on_it_together():
    state = given(conf(), *full("a", part=3_000), shape("half", cpu=2_000), *[pod(f"w{i}", "half") for i in range(3)])
    until_quiet(state)
    assert state.reserved_on == {"a": {"w0": None, "w1": None}}


def test_a_node_is_kept_from_others_until_the_last_task_has_given_it_back():
    state = given(conf(), *full("a", part=3_000), shape("half", cpu=2_000), *[pod(f"w{i}", "half") for i in range(2)])
    until_quiet(state)
    rule, row = Reserved(state), state.table.rows["a"]

    def beside(*shapes: str) -> list[bool]:
        return [bool(rule.leaves_capacity(state.vectors[one], np.array([row]))[0]) for one in shapes]

    assert beside("half", "part", "big") == [False] * 3
    rule.release("w0")
    assert (rule.on(row), bool(rule.mask[row])) == (["w1"], True)
    assert beside("half", "part", "big") == [True, False, False]
    rule.release("w1")
    assert (rule.on(row), bool(rule.mask[row])) == ([], False)
    assert beside("big") == [True]


def test_devices_must_suffice_together_not_just_their_sum():
    state = given(
        conf(), node("a", gpus=2), shape("runs", gpu=(2, 1000)), pod("r", "runs", node="a"),
        shape("s", gpu=(1, 600)), *[pod(f"w{i}") for i in range(3)],
    )  # fmt: skip
    until_quiet(state)
    assert sorted(state.reserved_tasks) == ["w0", "w1"], "three times 600 of 2000, but only one fits on each device"
    assert GPU in state.table.columns


def test_a_reserved_node_reserves_even_if_what_is_idle_suffices():
    """RULES 002-2. The later one would have capacity now, in which the earlier one could not wait any more."""
    state = given(conf(), *full("a", cpu=4_000, part=2_000), shape("three", cpu=3_000), shape("one", cpu=1_000), pod("w", "three"))
    until_quiet(state)
    then(state, pod("x", "one", created=NOW))
    until_quiet(state)
    assert state.reserved_on == {"a": {"w": None, "x": None}}
    assert "x" not in state.placed


# -- who is kept off -------------------------------------------------------------------------------------------------


def test_best_effort_pods_are_still_admitted():
    state = given(conf(), *full("a"), shape("nothing", 0, 0), pod("w", "big"))
    until_quiet(state)
    then(state, pod("be", "nothing"), pod("small", "part"))
    until_quiet(state)
    assert "be" in on(state, "a")
    assert "small" not in state.placed


def test_no_new_hold_comes_to_a_reserved_node_and_a_hand_over_is_exempt():
    both = ["reserve", "allocate", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 3600}}]
    state = given(conf(actions=both), *full("a"), reservation("r", ("t", 1, "part")))
    run(state, reservations.decider, c.Review(NOW))
    until_quiet(state, 0)
    assert state.slots["r"]["t-0"].node == "a"
    then(state, pod("w", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "a"}
    then(state, reservation("late", ("t", 1, "part")))
    run(state, reservations.decider, c.Review(NOW + HOUR + 1))
    until_quiet(state)
    assert not state.slots["late"]["t-0"].node
    assert state.slots["late"]["t-0"].reasons == {RESERVED: 1}
    then(state, pod("owner", "part", labels={"app": "owner"}))
    assert of(e.HandedOver, until_quiet(state)) == [e.HandedOver("r", "t-0", "owner", "a", ())]


def test_for_whom_a_node_is_reserved_is_not_told_again_why_it_waits():
    state = given(conf(threshold=5), *full("a"), pod("big1", "big"))
    assert of(e.Unfit, session_at(state, 0))
    events = until_quiet(state, 5_001)
    assert [event.pod for event in of(e.TaskReserved, events)] == ["big1"]
    assert of(e.Unfit, events) == []


def test_of_two_for_whom_nodes_are_reserved_each_is_told_once_in_a_session():
    state = given(conf(), *full("a", "b"), pod("big1", "big"), pod("big2", "big"), *(pod(f"x{i}", "part") for i in range(7)))
    session_at(state, 0)
    bind(state)
    while events := session_at(state):
        told = [uid for event in of(e.Unfit, events) for uid in event.pods]
        assert len(told) == len(set(told))


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_nobody_is_evicted_on_a_reserved_node_for_others(action):
    """RULES 002-2: the rule holds in preempt and reclaim."""
    actions = ["enqueue", "allocate", action, {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 3600}}]
    plugins = ["priority", "gang", "conformance"], ["predicates", "nodeorder", "proportion"]
    tiers = [{"plugins": [{"name": n} for n in tier]} for tier in plugins]
    pinned = shape("whole", cpu=4_000, node_selector={"kubernetes.io/hostname": "a"}, preemption="Never")
    nodes = [node(n, cpu=4_000, labels={"kubernetes.io/hostname": n}) for n in "ab"]
    runs = [in_queue(f"r{n}{i}", "lender", "low", node=n) for n in "ab" for i in range(4)]
    state = given(conf(actions=actions, tiers=tiers), queue("lender"), queue("claimer"), *nodes, shape("low"), pinned, *runs)
    then(state, in_queue("w", "claimer" if action == "reclaim" else "lender", "whole"), [e.TaskReserved("w", "a")])
    then(state, shape("high", priority=9), in_queue("x", "claimer" if action == "reclaim" else "lender", "high"))
    victims = [x.pod for x in of(e.Preempted, session_at(state, 0))]
    assert [victim[:2] for victim in victims] == ["rb"], "of two equal nodes the first would be chosen otherwise"


def test_a_pod_that_capacity_was_freed_for_before_still_gets_it():
    """Somebody was evicted for it: that was not in vain."""
    state = given(conf(), *full("a", part=2_000), pod("victim", "part", node="a"), shape("high", cpu=2_000, priority=9), pod("x", "high"))
    then(state, [e.Preempted("victim", "x", "preempt"), e.Nominated("x", "a", NOW + 9 * HOUR, victims=("victim",))])
    then(state, pod("w", "big"), [e.TaskReserved("w", "a")], pod("other", "part"), e.PodGone("victim"))
    assert [x.pod for x in of(e.PodPlaced, until_quiet(state))] == ["x"]


def test_no_node_is_reserved_that_a_window_is_kept_free_on():
    """Seed 001's rule is a rule like any other here: waiting for capacity would not help."""
    label = {"nodeSelector": {"night": "yes"}, "resources": {"cpu": 4}, "podNumToReserve": 1, "cron": "* 23 * * *"}
    plugins = [{"name": "predicates"}, {"name": "nodeorder"}, {"name": "reserve", "arguments": {"reservelabels": [label]}}]
    nodes = [node("a", cpu=4_000, labels={"night": "yes"}), node("b", cpu=4_000)]
    state = given(conf(tiers=[{"plugins": plugins}]), shape("part"), shape("big", cpu=4_000), *nodes)
    then(state, *[pod(f"r{n}{i}", "part", node=n) for n, times in (("a", 1), ("b", 2)) for i in range(times)], pod("w", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "b"}, "a has more idle, and is kept free"


def test_tasks_on_one_node_get_its_capacity_in_their_order():
    state = given(conf(), *full("a", part=3_000), shape("half", cpu=2_000, priority=0), shape("high", cpu=2_000, priority=5))
    then(state, pod("early", "half"), pod("urgent", "high"))
    until_quiet(state)
    then(state, pod("r2", "part", uid="r2"))
    done(state, "a-runs")
    then(state, pod("other", "half", node="a"))
    assert [x.pod for x in of(e.PodPlaced, until_quiet(state))] == ["urgent"]
    assert state.reserved_tasks == {"early": "a"}


def test_who_fits_on_the_node_that_is_reserved_for_it_beside_others_goes_there_at_once():
    state = given(conf(), node("a", cpu=8_000), shape("big", cpu=4_000), shape("most", cpu=7_000), shape("high", priority=7), pod("runs", "most", node="a"), pod("w", "big"))
    for pods, after in (((), HOUR + 1), ((pod("p", "high", created=NOW + HOUR),), 2 * HOUR + 1)):
        then(state, *pods)
        while decider.due(state, NOW + after) is not None and session_at(state, after):
            pass
    assert {uid: placement.node for uid, placement in state.placed.items()} == {"p": "a"}


def test_its_own_node_comes_first_where_it_fits_on_several():
    state = given(conf(), *full("b"), shape("s"), pod("w", "big"))
    until_quiet(state)
    done(state, "b-runs")
    then(state, node("a", cpu=8_000))
    assert of(e.PodPlaced, until_quiet(state)) == [e.PodPlaced("w", "b")]


def test_it_takes_another_node_that_has_capacity_before():
    state = given(conf(), *full("b"), pod("w", "big"))
    until_quiet(state)
    then(state, node("c", cpu=8_000))
    assert of(e.PodPlaced, until_quiet(state)) == [e.PodPlaced("w", "c")]
    assert state.reserved_tasks == {}


# -- all or nothing --------------------------------------------------------------------------------------------------


def test_a_gang_gets_all_its_nodes_or_none():
    gang = [group("g", 3), *[member(f"m{i}", "g", "big") for i in range(3)]]
    state = given(conf(), *full("a", "b"), *gang)
    until_quiet(state)
    assert state.reserved_tasks == {}, "two of three would be kept idle for nothing"
    then(state, node("c", cpu=4_000), pod("c-runs", "part", node="c"))
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "a", "m1": "b", "m2": "c"}
    done(state, "a-runs", "b-runs")
    until_quiet(state)
    assert not state.placed, "it starts as a whole"
    done(state, "c-runs")
    until_quiet(state)
    assert {uid: p.node for uid, p in state.placed.items()} == {"m0": "a", "m1": "b", "m2": "c"}
    assert state.reserved_tasks == {}


def test_a_gang_of_several_shapes_has_its_nodes_counted_together():
    facts = [*full("a", "b", "c"), shape("half", cpu=2_000), group("g", 4)]
    state = given(conf(), *facts, *[member(f"m{i}", "g", "big" if i < 2 else "half") for i in range(4)])
    until_quiet(state)
    assert sorted(state.reserved_tasks.items()) == [("m0", "a"), ("m1", "b"), ("m2", "c"), ("m3", "c")]


def test_of_a_gang_the_tasks_that_have_a_node_make_up_for_those_that_have_none():
    gang = [group("g", 2), member("m0", "g", "huge"), member("m1", "g", "big"), member("m2", "g", "big")]
    state = given(conf(), *full("a", "b"), shape("huge", cpu=64_000), *gang)
    until_quiet(state)
    assert state.reserved_tasks == {"m1": "a", "m2": "b"}, "tasks without a feasible node are skipped"


def test_what_of_a_gang_fits_now_is_kept_for_it_too():
    """Only the whole gang starts: the node that has capacity already must not fill up meanwhile."""
    state = given(conf(), *full("a"), node("b", cpu=4_000), group("g", 2), member("m0", "g", "big"), member("m1", "g", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "b", "m1": "a"}
    then(state, pod("small", "part"))
    until_quiet(state)
    assert "small" not in state.placed


def test_best_effort_members_of_a_gang_need_no_node():
    state = given(conf(), *full("a", "b"), shape("nothing", 0, 0), group("g", 2), member("m0", "g", "big"), member("m1", "g", "nothing"))
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "a"}
    done(state, "a-runs")
    until_quiet(state)
    assert set(state.placed) == {"m0", "m1"}


def test_members_that_are_ready_without_their_node_give_it_back():
    state = given(conf(), *full("a", "b"), group("g", 1), member("m0", "g", "big"), member("m1", "g", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "a"}
    then(state, e.PodGone("m0"), member("m2", "g", "part"))
    assert state.reserved_tasks == {}, "the fold ends what a deleted pod had"
    then(state, [e.TaskReserved("m1", "b")])
    said = until_quiet(state)
    assert "m2" in state.placed
    assert of(e.TaskUnreserved, said) == [e.TaskUnreserved("m1", "Ready")]


# -- how it ends -----------------------------------------------------------------------------------------------------


def test_a_deleted_pod_frees_its_node_for_others():
    state = given(conf(), *full("a"), pod("w", "big"))
    until_quiet(state)
    then(state, pod("small", "part"))
    until_quiet(state)
    assert "small" not in state.placed
    then(state, e.PodGone("w"))
    assert decider.due(state, NOW + HOUR + 1) is not None
    until_quiet(state)
    assert "small" in state.placed


def test_a_gang_of_which_too_few_are_left_ends_its_reservations():
    state = given(conf(), *full("a", "b"), group("g", 2), member("m0", "g", "big"), member("m1", "g", "big"))
    until_quiet(state)
    then(state, e.PodGone("m0"))
    assert of(e.TaskUnreserved, until_quiet(state)) == [e.TaskUnreserved("m1", "Deleted")]


def test_a_lost_node_is_replaced_by_another_one_and_without_one_the_gang_gives_up():
    state = given(conf(), *full("a", "b", "c"), group("g", 2), member("m0", "g", "big"), member("m1", "g", "big"))
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "a", "m1": "b"}
    then(state, e.NodeGone("a"))
    assert state.reserved_tasks == {"m1": "b"}
    until_quiet(state)
    assert state.reserved_tasks == {"m0": "c", "m1": "b"}
    then(state, e.NodeGone("c"))
    assert of(e.TaskUnreserved, until_quiet(state)) == [e.TaskUnreserved("m1", "Discarded")]


def test_a_node_that_is_cordoned_or_has_become_too_small_is_lost_too():
    for after in (node("a", cpu=4_000, unschedulable=True), node("a", cpu=3_000)):
        state = given(conf(), *full("a"), pod("w", "big"))
        until_quiet(state)
        then(state, after)
        assert of(e.TaskUnreserved, until_quiet(state)) == [e.TaskUnreserved("w", "NodeLost")]
        assert state.reserved_tasks == {}


def test_without_the_action_in_the_configuration_nothing_stays_reserved():
    state = given(conf(), *full("a"), pod("w", "big"))
    until_quiet(state)
    then(state, conf(actions="enqueue, allocate, backfill"))
    assert of(e.TaskUnreserved, until_quiet(state)) == [e.TaskUnreserved("w", "Discarded")]


# -- priorities ------------------------------------------------------------------------------------------------------


def test_of_two_starving_jobs_the_higher_priority_gets_the_node():
    state = given(conf(), *full("a"), shape("high", cpu=4_000, priority=7), pod("w0", "big"), pod("w1", "high"))
    until_quiet(state)
    assert state.reserved_tasks == {"w1": "a"}


def test_a_starving_job_of_higher_priority_takes_the_node_of_a_lower_one():
    state = given(conf(), *full("a"), shape("high", cpu=4_000, priority=7), pod("w0", "big"))
    until_quiet(state)
    then(state, pod("w1", "high", created=NOW))
    assert of(e.TaskUnreserved, until_quiet(state)) == [e.TaskUnreserved("w0", "Preempted")]
    assert state.reserved_tasks == {"w1": "a"}


def test_a_starving_gang_of_higher_priority_takes_the_nodes_of_lower_jobs():
    state = given(conf(), *full("a", "b"), shape("high", cpu=4_000, priority=7), pod("w0", "big"), pod("w1", "big"))
    until_quiet(state)
    assert set(state.reserved_tasks) == {"w0", "w1"}
    then(state, group("g", 2), member("m0", "g", "high"), member("m1", "g", "high"))
    until_quiet(state)
    assert sorted(state.reserved_tasks) == ["m0", "m1"]


def test_a_node_on_which_more_is_reserved_than_it_has_now_keeps_no_gang_from_another_one():
    state = given(conf(), *full("a"), shape("half", cpu=2_000), pod("full", "big", node="a"), pod("w0", "half"), pod("w1", "half"))
    until_quiet(state)
    assert state.reserved_tasks == {"w0": "a", "w1": "a"}
    then(state, node("a", cpu=3_000), node("b", cpu=4_000), pod("b-runs", "part", node="b"), group("g", 2), member("m0", "g", "half"), member("m1", "g", "half"))
    then(state, pod("b-fills", "part", node="b"), pod("b-fills-too", "half", node="b"))
    until_quiet(state)
    assert [state.reserved_tasks.get(name) for name in ("m0", "m1")] == ["b", "b"]


def test_equal_priorities_do_not_take_anything_from_each_other():
    state = given(conf(), *full("a"), pod("w0", "big"))
    until_quiet(state)
    then(state, pod("w1", "big", created=NOW - HOUR))
    assert of(e.TaskUnreserved, until_quiet(state)) == []
    assert state.reserved_tasks == {"w0": "a"}


def test_the_lower_job_is_served_elsewhere_in_its_own_turn():
    state = given(conf(), *full("a"), shape("high", cpu=4_000, priority=7), pod("w0", "big"))
    until_quiet(state)
    then(state, node("b", cpu=4_000), pod("b-runs", "part", node="b"), pod("b-runs2", "part", node="b"))
    then(state, shape("pinned", cpu=4_000, priority=7, node_selector={"kubernetes.io/hostname": "a"}))
    then(state, node("a", cpu=4_000, labels={"kubernetes.io/hostname": "a"}), pod("w1", "pinned"))
    until_quiet(state)
    assert state.reserved_tasks == {"w1": "a", "w0": "b"}


def test_a_gang_loses_all_that_it_has_when_it_loses_one_node_and_nothing_is_lost_for_a_failure():
    gang = [group("g", 2), member("m0", "g", "big"), member("m1", "g", "big")]
    state = given(conf(), *full("a", "b"), *gang, shape("high", cpu=4_000, priority=7))
    until_quiet(state)
    third = [group("h", 3, priority_class="vip"), *[member(f"h{i}", "h", "high") for i in range(3)]]
    then(state, *third)
    assert of(e.TaskUnreserved, until_quiet(state)) == [], "two nodes do not make three"
    assert state.reserved_tasks == {"m0": "a", "m1": "b"}
    then(state, pod("w", "high"))
    said = until_quiet(state)
    assert [x.pod for x in of(e.TaskUnreserved, said)] == ["m0", "m1"]
    assert state.reserved_tasks == {"w": "a"}


def test_a_job_ahead_that_can_be_scheduled_comes_first():
    """This session's limit has cut it off: the starving one waits for the next."""
    state = given(conf(), *full("a"), shape("first", cpu=1_000, priority=9), pod("w", "big"))
    until_quiet(state, 0)
    then(state, *[pod(f"p{i}", "first") for i in range(2)])
    said = session_at(state, limit=1)
    assert [type(x) for x in said] == [e.PodPlaced], "p1 could be scheduled now"
    said = session_at(state, limit=1)
    assert [type(x) for x in said] == [e.PodPlaced]
    assert of(e.TaskReserved, until_quiet(state, limit=1)) == [e.TaskReserved("w", "a")]


def test_a_gang_ahead_comes_first_where_as_many_as_it_needs_can_be_scheduled():
    """The limit has cut it off, and there is capacity for three."""
    for need, first in ((3, True), (4, False)):
        gang = [member(f"m{i}", "g", "first") for i in range(4)]
        shapes = shape("first", cpu=1_000, priority=9), shape("never", cpu=64_000, priority=9)
        state = given(conf(), *full("a"), *shapes, pod("w", "big"), group("g", need, created=NOW + HOUR))
        until_quiet(state, 0)
        then(state, *[pod(f"f{i}", "never") for i in range(2)], *gang)
        said = session_at(state, limit=2)
        assert [type(x) for x in said] == [e.TaskReserved] * (not first) + [e.Unfit]


def test_one_more_of_a_gang_that_runs_comes_first_where_it_can_be_scheduled():
    """The limit has cut it off, and there is capacity for one of cpu 1, and for none of cpu 4."""
    for cpu, first in ((1_000, True), (4_000, False)):
        shapes = shape("first", cpu=1_000, priority=9), shape("never", cpu=64_000, priority=9), shape("more", cpu=cpu, priority=9)
        state = given(conf(), *full("a"), *shapes, pod("w", "big"), group("g", 1, created=NOW + HOUR), member("m0", "g", "first", node="a"))
        until_quiet(state, 0)
        then(state, *[pod(f"f{i}", "never") for i in range(2)], member("m1", "g", "more"))
        assert [type(x) for x in session_at(state, limit=2)] == [e.TaskReserved] * (not first) + [e.Unfit]


def test_a_job_ahead_that_cannot_be_scheduled_does_not_keep_anybody_waiting():
    state = given(conf(), *full("a"), shape("never", cpu=64_000, priority=9), *[pod(f"p{i}", "never") for i in range(5)])
    then(state, pod("w", "big"))
    assert of(e.TaskReserved, until_quiet(state, limit=3)) == [e.TaskReserved("w", "a")]


def test_who_was_told_in_this_session_why_it_waits_is_not_tried_again(monkeypatch):
    """Those are thousands; the limit has cut the others off, and they are."""
    tried: list[str] = []
    monkeypatch.setattr(Ahead, "schedulable", lambda ahead, members: tried.append(members.job.key) or False)
    for limit, asked in ((1_000, []), (2, ["p2", "p3", "p4"])):
        state = given(conf(), *full("a"), *[shape(f"never{i}", cpu=64_000 + i, priority=9) for i in range(5)], pod("w", "big"))
        until_quiet(state, 0)
        then(state, *[pod(f"p{i}", f"never{i}") for i in range(5)])
        tried.clear()
        session_at(state, limit=limit)
        assert tried == asked


# -- beside other rules ----------------------------------------------------------------------------------------------


def test_numa_zones_count_as_they_are_without_what_runs_there():
    whole = {"cpu": 2_000, "memory": GIB}
    aligned = shape("aligned", cpu=2_000, qos="Guaranteed", containers=(Container("c", whole),))
    zones = tuple(NumaZone(f"node-{i}", {"cpu": 2_000, "memory": 16 * GIB}) for i in range(2))
    facts = [node("a", cpu=4_000), e.NumaObserved("a", "single-numa-node", "container", zones), aligned]
    state = given(conf(), *facts, *[pod(f"r{i}", "aligned", node="a") for i in range(2)], pod("w", "aligned"))
    until_quiet(state)
    assert state.reserved_tasks == {"w": "a"}
    small = tuple(NumaZone(f"node-{i}", {"cpu": 1_000, "memory": 16 * GIB}) for i in range(4))
    never = given(conf(), facts[0], e.NumaObserved("a", "single-numa-node", "container", small), aligned, pod("w", "aligned"))
    until_quiet(never)
    assert never.reserved_tasks == {}


# -- in words --------------------------------------------------------------------------------------------------------


def test_the_sentence_says_where_it_waits_and_for_what():
    state = given(conf(), *full("a", part=3_000), pod("w", "big"), pod("other", "part"))
    until_quiet(state)
    assert sentence(state, "w") == "reserved on node a (its job starves); waits there for cpu (asks for 4, 1 free)"
    assert sentence(state, "other") == ""
    gang = given(conf(), *full("a"), node("b", cpu=4_000), group("g", 2), member("m0", "g", "big"), member("m1", "g", "big"))
    until_quiet(gang)
    assert sentence(gang, "m0") == "reserved on node b (its job starves), where it fits now; waits for the rest of its job"


# -- durability ------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_what_is_reserved():
    state = given(conf(), *full("a", "b"), *[pod(f"w{i}", "big") for i in range(2)])
    until_quiet(state)
    again = load(dump(state))
    assert again.reserved_tasks == state.reserved_tasks == {"w0": "a", "w1": "b"}
    assert again.reserved_on == state.reserved_on
    for one in (state, again):
        done(one, "a-runs")
        assert of(e.PodPlaced, until_quiet(one)) == [e.PodPlaced("w0", "a")]


shapes_of = st.sampled_from(["one", "two", "four", "high", "nothing"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), shapes_of, st.integers(0, 2)),
        st.tuples(st.just("gang"), shapes_of, st.integers(1, 3)),
        st.tuples(st.just("done"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("node"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("gone"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("session"), st.integers(1, 5), st.just(0)),
    ),
    max_size=25,
)


@for_all(steps, st.sampled_from([34, 50, 100]))
@settings(max_examples=examples(150), deadline=None)
def test_nothing_is_over_allocated_others_keep_off_and_every_session_is_decided_alike_again(story, percent):
    state = given(
        conf(threshold=60, percent=percent), shape("one"), shape("two", cpu=2_000), shape("four", cpu=4_000),
        shape("high", cpu=3_000, priority=5), shape("nothing", 0, 0),
    )  # fmt: skip
    now = NOW
    for i, (what, which, more) in enumerate(story):
        now += 30_000
        match what:
            case "pod":
                then(state, pod(f"p{i}", which, created=now - more * 60_000), time=now)
            case "gang":
                then(state, group(f"g{i}", more, created=now), *[member(f"m{i}-{j}", f"g{i}", which) for j in range(more)], time=now)
            case "done":
                running = sorted(state.charges)
                if running:
                    done(state, running[which % len(running)])
            case "node":
                then(state, node(f"n{which}", cpu=1_000 * more, memory=64 * GIB), time=now)
            case "gone":
                then(state, e.NodeGone(f"n{which}"), time=now)
            case _:
                _one_session(state, now, limit=which)
    _one_session(state, now, limit=1_000)


def _one_session(state: ClusterState, now: int, limit: int) -> None:
    before, void = dict(state.reserved_tasks), state.void.copy()
    again = load(dump(state))
    events = when(state, decider, c.Schedule(now, limit))
    assert [encode_event(x) for x in when(again, decider, c.Schedule(now, limit))] == [encode_event(x) for x in events]
    over = {name: (state.table.free[row] < 0).tolist() for name, row in state.table.rows.items()}
    then(state, events, time=now)
    assert state.void == void
    for name, row in state.table.rows.items():
        worse = [n for n, was in zip((state.table.free[row] < 0).tolist(), over[name], strict=True) if n and not was]
        assert not worse, f"{name} is over-allocated"
    for event in of(e.PodPlaced, events):
        others = [uid for uid, at in before.items() if at == event.node]
        kind = state.pods[event.pod].fact.shape
        assert not others or kind == "nothing" or event.pod in others, f"{event.pod} came to {event.node}, reserved for {others}"
    for name, tasks in state.reserved_on.items():
        asked = sum(state.shapes[state.pods[uid].fact.shape].requests["cpu"] for uid in tasks)
        row = state.table.rows[name]
        if not any(before.get(uid) == name for uid in tasks):
            assert asked <= state.table.allocatable[row, state.table.columns["cpu"]], "reserved is more than the node has"
    bind(state)
