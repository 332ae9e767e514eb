"""Bad input: what is wrong is told so with a reason, and whoever stands beside it is placed in the same session."""

import pytest
from domain.build import (
    GIB,
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
    reservation,
    run,
    shape,
    then,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain import session_config as conf
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig

decider = session.decider
SYNCED = e.Synced("podgroups.scheduling.volcano.sh", "1")
HIERARCHY = ("priority", "gang"), ("predicates", "capacity", "nodeorder")
PROPORTION = ("priority", "gang"), ("overcommit", "drf", "predicates", "proportion", "nodeorder")
NO_QUEUES = ("priority", "gang"), ("predicates", "nodeorder")
DAY = 24 * 3600 * 1000
YEAR = 365 * DAY
MOST = (1 << 63) - 1


def conf_of(tiers, actions=("enqueue", "reserve", "allocate", "backfill", "preempt", "reclaim")):
    plugins = tuple(tuple(PluginConfig(name) for name in tier) for tier in tiers)
    return configured("session", SessionConfig(actions=tuple(ActionConfig(a) for a in actions), tiers=plugins))


def schedule(state, after=0):
    return run(state, decider, c.Schedule(NOW + after, 1_000))


def placed(events):
    return sorted(event.pod for event in events if isinstance(event, e.PodPlaced))


def beside(*wrong, tiers=PROPORTION, **conf):
    """The state after one session with what is wrong and an ordinary pod, which came last and is placed nevertheless."""
    state = given(conf_of(tiers, **conf), SYNCED, node("n"), shape("s"), *wrong, pod("ordinary"))
    assert "ordinary" in placed(schedule(state))
    return state


def why(state, uid):
    """The reason and the message that a pod waits with; that of an unfit one are its counts."""
    said = state.waiting[state.parked[uid][0]]
    return (said.reason, said.message) if said.reason else ("Unfit", dict(said.reasons))


# -- queues ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION, NO_QUEUES], ids=["capacity", "proportion", "no plugin of queues"])
@pytest.mark.parametrize(
    ("queues", "reason", "message"),
    [
        ([queue("q", guarantee={"cpu": 9_000})], "InvalidQueue", "guarantee of cpu 9 is above what the cluster has, 8"),
        ([queue("q", guarantee={"cpu": MOST}, deserved={"memory": MOST})], "InvalidQueue", "is above what the cluster has"),
        ([queue("q", parent="p"), queue("p", parent="q")], "InvalidQueue", "its parents go round in a circle: p → q → p"),
        ([queue("q", parent="q")], "InvalidQueue", "its parents go round in a circle: q → q"),
        ([queue("q", parent="none")], "InvalidQueue", "its parent none does not exist"),
    ],
)
def test_a_queue_that_makes_no_sense_in_the_cluster_stops_nobody_else(queues, reason, message, tiers):
    state = beside(*queues, in_queue("p", "q"), tiers=tiers)
    if tiers is HIERARCHY or (tiers is PROPORTION and queues[0].guarantee):
        assert why(state, "p")[0] == reason
        assert message in why(state, "p")[1]
    else:
        assert "p" in state.placed, "who knows no hierarchy and no guarantees has no objection"


@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION, NO_QUEUES], ids=["capacity", "proportion", "no plugin of queues"])
@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ([], "QueueNotFound"),
        ([queue("q", state="Closed")], "QueueClosed"),
        ([queue("q", state="Closing")], "QueueClosed"),
        ([queue("q", invalid="spec.capability.cpu: -1; allowed: 0 or more")], "InvalidQueue"),
        ([queue("q", guarantee={"cpu": 2}, capability={"cpu": 1})], "InvalidQueue"),
    ],
)
def test_a_queue_that_takes_no_jobs_is_told_so_and_stops_nobody_else(queues, reason, tiers):
    state = beside(*queues, in_queue("p", "q"), pod_group("g", "q", phase="Pending"), member("m", "g"), tiers=tiers)
    assert why(state, "p")[0] == why(state, "m")[0] == reason


@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION], ids=["capacity", "proportion"])
def test_limits_beyond_all_that_can_be_counted_limit_nobody(tiers):
    queues = [queue(name, 2**31 - 1, capability={"cpu": MOST, "memory": MOST}, deserved={"cpu": MOST}) for name in "abc"]
    state = beside(*queues, *(in_queue(f"p{name}", name) for name in "abc"), tiers=tiers)
    assert {"pa", "pb", "pc"} <= state.placed.keys()


# -- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("need", [3, 10_000, 2**31 - 1, 2**62])
def test_a_group_that_needs_more_pods_than_there_are_says_how_many(need):
    state = beside(pod_group("g", need=need), member("m1", "g"), member("m2", "g"))
    assert why(state, "m1") == ("NotEnoughPods", f"the gang needs {need} pods; 0 run and 2 wait")


@pytest.mark.parametrize("need", [0, -1, -(2**31)])
def test_a_group_that_needs_nobody_is_no_gang(need):
    state = beside(pod_group("g", need=need), shape("l", cpu=9_000), member("m", "g"), member("large", "g", "l"))
    assert "m" in state.placed
    assert why(state, "large") == ("Unfit", {"Insufficient cpu": 1})


def test_a_member_larger_than_any_node_keeps_its_gang_waiting_alone():
    state = beside(shape("l", cpu=9_000), pod_group("g", need=2), member("m", "g"), member("large", "g", "l"))
    reason, message = why(state, "m")
    assert (reason, message) == ("Unschedulable", "the gang needs 2 pods together; 0 run, 2 wait and do not fit as a whole")
    assert dict(state.waiting[state.parked["m"][0]].reasons) == {"Insufficient cpu": 1}


@pytest.mark.parametrize("amounts", [{"cpu": 100_000}, {"cpu": MOST, "memory": MOST}, {"example.com/none": 1}])
@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION, NO_QUEUES], ids=["capacity", "proportion", "no plugin of queues"])
def test_a_group_whose_minimum_the_cluster_does_not_have_is_not_admitted_and_says_so(amounts, tiers):
    state = beside(pod_group("g", min_resources=amounts, phase="Pending"), member("m", "g"), tiers=tiers)
    if tiers is PROPORTION:
        assert why(state, "m")[0] == "NotEnqueued"
        assert next(iter(amounts)) in why(state, "m")[1]
    else:
        assert "m" in state.placed or why(state, "m")[0] == "NotEnqueued"


def test_a_group_that_asks_for_a_task_nobody_has_names_the_task():
    state = beside(pod_group("g", need=1, min_task_member={"ghost": 1}), member("m", "g"))
    assert why(state, "m") == ("NotEnoughPodsOfTask", "the gang needs 1 pods of task ghost; 0 run and 0 wait")


def test_tasks_that_need_more_together_than_the_group_are_all_waited_for():
    facts = [pod_group("g", need=1, min_task_member={"a": 1, "b": 2})]
    facts += [member(name, "g", annotations={"volcano.sh/task-spec": name[0]}) for name in ("a1", "b1")]
    state = beside(*facts)
    assert why(state, "a1") == ("NotEnoughPodsOfTask", "the gang needs 2 pods of task b; 0 run and 1 wait")
    then(state, member("b2", "g", annotations={"volcano.sh/task-spec": "b"}))
    assert placed(schedule(state, after=1)) == ["a1", "b1", "b2"]


def test_a_group_that_cannot_be_read_says_what_is_wrong():
    state = beside(pod_group("g", invalid="spec.minMember: -1; allowed: 0 or more"), member("m", "g"))
    assert why(state, "m") == ("InvalidPodGroup", "spec.minMember: -1; allowed: 0 or more")


def test_pods_that_name_a_group_which_comes_later_start_when_it_comes():
    state = beside(member("m1", "g"), member("m2", "g"))
    assert why(state, "m1") == ("PodGroupNotFound", "PodGroup default/g does not exist")
    then(state, pod_group("g", need=2))
    assert placed(schedule(state, after=1)) == ["m1", "m2"]


def test_a_group_that_comes_again_under_another_uid_is_admitted_anew_and_its_running_pods_count():
    state = given(conf_of(PROPORTION), SYNCED, node("n"), shape("s"), pod_group("g", need=2, phase="Pending"), member("m1", "g", node="n"))
    schedule(state)
    then(state, e.PodGroupGone("default", "g"), member("m2", "g"))
    assert placed(schedule(state, after=1)) == []
    assert why(state, "m2")[0] == "PodGroupNotFound"
    then(state, e.PodGroupObserved("default", "g", "another", NOW + 2, min_member=2, phase="Pending"), pod("ordinary"))
    events = schedule(state, after=2)
    assert e.Enqueued("default", "g") in events
    assert placed(events) == ["m2", "ordinary"]


def test_a_group_that_is_replaced_without_a_word_is_admitted_anew():
    state = beside(pod_group("g", need=3, phase="Pending"), member("m1", "g"), member("m2", "g"))
    then(state, e.PodGroupObserved("default", "g", "another", NOW, min_member=2, phase="Pending"), pod("too"))
    events = schedule(state, after=1)
    assert e.Enqueued("default", "g") in events
    assert placed(events) == ["m1", "m2", "too"]


def test_what_is_held_for_a_gang_ends_with_its_group():
    state = given(
        conf_of(PROPORTION), SYNCED, node("n", cpu=2_000), shape("s"), shape("vip", priority=9), pod("v1", node="n"), pod("v2", node="n"),
        pod_group("g", need=2), member("m1", "g", "vip"), member("m2", "g", "vip"),
    )  # fmt: skip
    schedule(state)
    assert state.nominations.keys() == {"m1", "m2"}
    then(state, e.PodGroupGone("default", "g"))
    schedule(state, after=1)
    assert not state.nominations
    assert not state.victims_of
    then(state, e.PodGone("v1"), e.PodGone("v2"), pod("ordinary"))
    assert placed(schedule(state, after=2)) == ["ordinary"]
    assert why(state, "m1")[0] == "PodGroupNotFound"


def test_a_hold_that_goes_to_a_pod_which_other_capacity_is_held_for_is_not_given_away_twice():
    state = given(
        node("n", cpu=4_000), node("m", cpu=2_000), shape("s", cpu=2_000), pod("v", node="n"), pod("w", node="m"), reservation("r", ("t", 1, "s")),
        e.ReservationAccepted("r", 1, 1, NOW + DAY), e.HoldPlaced("r", "t-0", "n"), pod("a"), pod("b"), pod("c"),
        e.Nominated("b", "n", NOW + DAY), e.Nominated("a", "m", NOW + DAY), e.Nominated("c", "m", NOW + DAY),
    )  # fmt: skip
    then(state, e.PodGone("w"))
    assert state.nominations["a"].complete
    then(state, e.HandedOver("r", "t-0", "a", "n"))
    assert int(state.table.free.min()) == 0, "what the hold leaves is the pod's"
    assert state.nominations["c"].complete, "what was held for the pod is the next one's"
    assert not state.nominations["b"].complete


def test_two_who_wait_for_one_node_share_nothing_when_one_is_handed_a_hold_there():
    state = given(
        node("n", cpu=4_000), shape("s", cpu=2_000), pod("v", node="n"), reservation("r", ("t", 1, "s")), e.ReservationAccepted("r", 1, 1, NOW + DAY),
        e.HoldPlaced("r", "t-0", "n"), pod("a"), pod("b"), e.Nominated("b", "n", NOW + DAY), e.Nominated("a", "n", NOW + DAY),
        e.HandedOver("r", "t-0", "a", "n"),
    )  # fmt: skip
    assert int(state.table.free.min()) == 0


def test_a_pod_that_changes_its_group_counts_for_the_new_one():
    state = beside(pod_group("g", need=2), pod_group("h", need=2), member("m1", "g"), member("m2", "h"))
    assert why(state, "m1")[0] == why(state, "m2")[0] == "NotEnoughPods"
    then(state, member("m2", "g"))
    assert placed(schedule(state, after=1)) == ["m1", "m2"]


# -- amounts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amounts", [{"memory": 10**18}, {"cpu": MOST}, {"memory": MOST, "cpu": MOST, "pods": MOST}, {"example.com/x": MOST}])
@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION, NO_QUEUES], ids=["capacity", "proportion", "no plugin of queues"])
def test_a_pod_that_asks_for_more_than_there_can_be_waits_alone(amounts, tiers):
    state = beside(shape("absurd", requests=amounts), *(pod(f"p{i}", "absurd") for i in range(20)), tiers=tiers)
    assert why(state, "p0")[0] in ("Unfit", "QueueQuota")
    assert not any(f"p{i}" in state.placed for i in range(20))


@pytest.mark.parametrize("tiers", [HIERARCHY, PROPORTION, NO_QUEUES], ids=["capacity", "proportion", "no plugin of queues"])
def test_absurd_pods_that_others_have_bound_give_no_capacity_away(tiers):
    """Sums of what they ask for are beyond int64."""
    absurd = shape("absurd", requests={"memory": MOST, "cpu": MOST}, scheduler="other")
    state = given(
        conf_of(tiers), SYNCED, node("full"), node("free", cpu=1_000), shape("s"), absurd, [pod(f"x{i}", "absurd", "full") for i in range(100)],
        pod("p1"), pod("p2"),
    )  # fmt: skip
    schedule(state)
    assert {uid: placement.node for uid, placement in state.placed.items()} == {"p1": "free"}
    assert int(state.table.free[state.table.rows["full"]].min()) < 0
    then(state, *(e.PodGone(f"x{i}") for i in range(100)))
    assert placed(schedule(state, after=1)) == ["p2"]


def test_nodes_that_have_more_than_can_be_counted_are_as_large_as_can_be():
    vast = [node(f"v{i:02}", cpu=MOST, memory=MOST) for i in range(20)]
    state = beside(*vast, shape("large", cpu=10**15, memory=10**15), pod("large", "large"), queue("q", guarantee={"cpu": 10**6}), in_queue("p", "q"))
    assert {"large", "p"} <= state.placed.keys()


def test_a_node_with_less_than_nothing_takes_nobody():
    state = beside(node("a", allocatable={"cpu": -5, "memory": -GIB, "pods": -1}))
    assert state.placed["ordinary"].node == "n"


# -- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "reason", "message"),
    [
        (("enqueue", "backfill"), "NoAction", "the configuration has no action allocate"),
        (("enqueue", "allocate"), "NoAction", "it asks for nothing, and the configuration has no backfill after allocate"),
        (("backfill", "allocate"), "NoAction", "it asks for nothing, and the configuration has no backfill after allocate"),
    ],
)
def test_a_pod_that_no_action_looks_at_is_told_so(actions, reason, message):
    state = given(conf_of(NO_QUEUES, actions), node("n"), shape("none", cpu=0, memory=0), pod("p", "none"))
    schedule(state)
    assert why(state, "p") == (reason, message)
    assert decider.due(state, NOW + 1) is not None
    assert schedule(state, after=1) == []
    assert decider.due(state, NOW + 1) is None
    then(state, conf_of(NO_QUEUES))
    assert placed(schedule(state, after=2)) == ["p"]


def test_a_group_is_not_placed_before_the_action_that_lets_it_in():
    state = beside(pod_group("g", min_resources={"cpu": 100_000}, phase="Pending"), member("m", "g"), actions=("reserve", "allocate", "enqueue"))
    assert why(state, "m")[0] == "NotEnqueued"
    then(state, pod_group("h", phase="Pending"), member("m2", "h"))
    assert e.Enqueued("default", "h") in schedule(state, after=1)
    assert placed(schedule(state, after=2)) == ["m2"]


# -- the clock -------------------------------------------------------------------------------------------------------

WINDOWS = [{"nodeSelector": {"kubernetes.io/os": "linux"}, "resources": {"cpu": "64"}, "cron": "0 3-4 * * *", "startReserveAgo": "30m"}]


FINAL = e.NominationEnded | e.Preempted | e.PreemptionEnded | e.TaskReserved | e.PodPlaced


def whole_configuration():
    """Everything that looks at the clock."""
    return configured("session", conf.read_conf({
        "actions": ["enqueue", "reserve", "allocate", "backfill", "preempt", "reclaim", {"name": "reserve", "arguments": {"starvingJobTimeThreshold": 3600}}],
        "tiers": [
            {"plugins": [{"name": n} for n in ("priority", "gang", "conformance")]},
            {"plugins": [{"name": n} for n in ("overcommit", "drf", "predicates", "proportion", "nodeorder", "reservation")]},
            {"plugins": [{"name": "sla", "arguments": {"sla-waiting-time": "10m"}}, {"name": "reserve", "arguments": {"reservelabels": WINDOWS}}]},
        ],
    }))  # fmt: skip


def waiting_for_time():
    """A nomination, a group that is not admitted, a pod that starves before long, a window that opens at night."""
    linux = {"kubernetes.io/os": "linux"}
    state = given(
        whole_configuration(), SYNCED, node("n", cpu=2_000, labels=linux), node("m", cpu=1_000, labels=linux), shape("s"), shape("vip", cpu=2_000, priority=9),
        shape("l", cpu=9_000), pod("victim", node="n"), pod("other", node="m"), pod("vip", "vip"), pod("large", "l"),
        pod_group("g", min_resources={"cpu": 100_000}, phase="Pending"), member("m1", "g"),
    )  # fmt: skip
    schedule(state)
    assert "vip" in state.nominations
    assert "victim" in state.victims_of
    return state


def busy(state, now, until):
    """How many sessions there are up to this time, each at the time that the decider asks for, as the service does it."""
    sessions = empty = 0
    while now < until and sessions + empty < 500:
        command = decider.due(state, now)
        events = run(state, decider, command) if command is not None else []
        sessions, empty = sessions + bool(events), empty + (command is not None and not events)
        if not events:
            when = decider.deadline(state)
            if when is None:
                break
            now = max(when, now + 1_000)
    return sessions, empty


def test_time_that_goes_back_ends_nothing_and_evicts_nobody():
    state = waiting_for_time()
    for back in (1, 1_000, DAY, YEAR, 50 * YEAR):
        assert not [event for event in schedule(state, after=-back) if isinstance(event, FINAL)]
        command = decider.due(state, NOW - back)
        assert command is None or not run(state, decider, command)
        assert decider.due(state, NOW - back) is None
    assert "vip" in state.nominations
    then(state, changed("victim", node="n", phase="Running", deleting=NOW), e.PodGone("victim"), time=NOW - YEAR)
    assert placed(schedule(state, after=-YEAR)) == ["vip"]


def test_time_that_leaps_ahead_ends_what_is_over_and_comes_to_rest():
    state = waiting_for_time()
    then(state, pod("ordinary"))
    sessions, empty = busy(state, NOW + 70 * YEAR, NOW + 70 * YEAR + 1_000)
    assert "vip" not in state.nominations or state.nominations["vip"].deadline > NOW + 70 * YEAR
    assert sessions < 10
    assert empty < 10


def test_time_that_leapt_ahead_and_comes_back_does_not_keep_windows_from_opening():
    state = waiting_for_time()
    schedule(state, after=10 * YEAR)
    at = decider.deadline(state)
    assert at is not None
    night = NOW - NOW % DAY + DAY + 2 * 3600 * 1000 + 30 * 60 * 1000
    busy(state, NOW + 60_000, night)
    assert decider.due(state, night + 1) is not None or decider.deadline(state) <= night + DAY


def test_whoever_asks_at_every_deadline_is_not_kept_busy():
    hours = 12
    sessions, empty = busy(waiting_for_time(), NOW, NOW + hours * 3_600_000)
    assert sessions <= 20 * hours, "the victim does not go: every eleven minutes it is asked again, given up, and that is said"
    assert empty <= 20 * hours
