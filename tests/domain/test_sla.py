"""Plugin sla: who may wait only so long goes first, and is admitted when it has waited too long."""

import pytest
from domain.build import NOW, configured, given, member, node, pod, pod_group, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.session.registry import open_session

decider = session.decider
MINUTE = 60_000


def conf(*tiers, **arguments):
    first = PluginConfig("sla", {}, {name.replace("_", "-"): value for name, value in arguments.items()})
    return configured("session", SessionConfig(actions=(ActionConfig("enqueue"), ActionConfig("allocate")), tiers=((first,), *tiers)))


OTHERS = (PluginConfig("gang"), PluginConfig("overcommit"), PluginConfig("predicates"), PluginConfig("nodeorder"))


def cluster(*more, **arguments):
    return given(conf(OTHERS, **arguments), node("n", cpu=2_000), shape("s"), *more)


def schedule(state, at=NOW):
    return run(state, decider, c.Schedule(at, 1_000))


def placed(events):
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def waits(text):
    return {"annotations": {"sla-waiting-time": text}}


def test_the_nearest_deadline_comes_first_and_those_without_one_last():
    state = cluster(pod("never"), pod("late", **waits("1h")), pod("soon", **waits("5m")))
    assert placed(schedule(state)) == ["soon", "late"]


def test_the_default_is_for_all_that_say_nothing_themselves():
    state = cluster(pod("new", created=NOW + 1), pod("old", created=NOW - 1), pod("own", **waits("1s")), sla_waiting_time="1h")
    assert placed(schedule(state)) == ["own", "old"]


def test_the_newer_name_of_the_annotation_is_read_too_also_of_a_group():
    state = cluster(pod("a", **waits("2m")), pod_group("g", annotations={"volcano.sh/sla-waiting-time": "1m"}), member("m", "g"))
    assert placed(schedule(state))[0] == "m"


def test_a_group_that_has_waited_too_long_is_admitted_however_full_the_cluster_is():
    state = cluster(pod_group("g", phase="Pending", min_resources={"cpu": 9_000}, **waits("5m")), member("m", "g", "s"))
    while (command := decider.due(state, NOW)) is not None:
        assert e.Enqueued("default", "g") not in run(state, decider, command)
    assert decider.deadline(state) == NOW + 5 * MINUTE
    assert decider.due(state, NOW + 5 * MINUTE - 1) is None
    command = decider.due(state, NOW + 5 * MINUTE)
    assert command is not None
    assert e.Enqueued("default", "g") in run(state, decider, command)


def test_nobody_waits_for_a_time_that_has_passed():
    state = cluster(pod_group("g", phase="Pending", min_resources={"cpu": 9_000}))
    assert decider.deadline(state) is None
    state = cluster(pod_group("g", phase="Pending"), sla_waiting_time="5m")
    schedule(state)
    assert decider.deadline(state) is None


@pytest.mark.parametrize("text", ["soon", "-5m", "0", "", "5", "9" * 200 + "h"])
def test_a_wrong_waiting_time_is_said_and_stops_nobody_else(text):
    state = cluster(pod("wrong", **waits(text)), pod_group("g", **waits(text)), member("m", "g"), pod("p"))
    assert placed(schedule(state)) == ["p"]
    for uid in ("wrong", "m"):
        said = state.waiting[state.parked[uid][0]]
        assert said.reason == "InvalidWaitingTime"
        assert said.message.startswith("annotation sla-waiting-time: ")


def test_capacity_is_kept_for_a_gang_that_has_waited_too_long_if_the_plugin_is_asked_before_gang():
    state = cluster(pod_group("g", need=5, **waits("5m")), member("m", "g"))
    for after, kept in ((0, False), (5 * MINUTE, True)):
        opened = open_session(state, NOW + after, 10)
        opened.close()
        assert (not opened.extensions.refusal("jobPipelined", opened.job_for("m"))) is kept


def test_waiting_time_of_a_job_counts_from_its_creation():
    state = cluster(pod_group("g", created=NOW - 10 * MINUTE, phase="Pending", min_resources={"cpu": 9_000}, **waits("5m")))
    assert schedule(then(state)) == [e.Enqueued("default", "g")]
