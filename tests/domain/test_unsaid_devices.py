"""Devices that somebody has on a node, and nobody says which: they count, and nothing more is known."""

import pytest
from domain.build import GPU, NOW, changed, given, node, pod, replica_of, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare
from restow.domain import snapshot
from restow.domain.binding import bind
from restow.domain.decider import decide
from restow.domain.node_table import NO_DEVICE
from restow.domain.session.decider import SessionDecider

STOCK = "default-scheduler"
SHAPES = (
    shape("whole", gpu=(1, 1000)), shape("two", gpu=(2, 1000)), shape("share", gpu=(1, 300)),
    shape("theirs", gpu=(1, 1000), scheduler=STOCK), shape("their-share", gpu=(1, 300), scheduler=STOCK),
)  # fmt: skip


def free(state, name: str = "n0") -> dict[int, int]:
    shares = state.table.device_free[state.table.rows[name]].tolist()
    return {i: share for i, share in enumerate(shares) if share > NO_DEVICE // 2}


def scheduled(state, now: int = NOW) -> list[e.Event]:
    """What a session decides, folded."""
    events = decide(state, SessionDecider(), c.Schedule(now, 100))
    then(state, events, time=now)
    return list(events)


def placed(events) -> dict[str, e.PodPlaced]:
    return {event.pod: event for event in events if isinstance(event, e.PodPlaced)}


def test_a_strangers_devices_are_charged_by_count_whoever_came_first():
    ours = pod("a", "whole", "n0", devices=(DeviceShare(1, 1000),))
    theirs = pod("b", "theirs", "n0")
    for facts in ((ours, theirs), (theirs, ours)):
        state = given(node("n0", gpus=3), *SHAPES, *facts)
        assert free(state) == {0: 0, 1: 0, 2: 1000}
        assert state.charges["b"].devices == ()
        assert state.table.unsaid.tolist()[0] == 1


def test_when_a_named_device_comes_the_strangers_are_elsewhere():
    """It is not fixed on one that was free when it was seen first."""
    state = given(node("n0", gpus=2), *SHAPES, pod("b", "theirs", "n0"))
    assert free(state) == {0: 0, 1: 1000}
    then(state, pod("a", "whole", "n0", devices=(DeviceShare(0, 1000),)))
    assert free(state) == {0: 0, 1: 0}
    then(state, e.PodGone("b"))
    assert free(state) == {0: 0, 1: 1000}
    assert not state.table.unsaid.any()


def test_what_a_stranger_does_say_is_charged_as_it_says():
    state = given(node("n0", gpus=2), *SHAPES, pod("b", "theirs", "n0", devices=(DeviceShare(1, 1000),)))
    assert free(state) == {0: 1000, 1: 0}
    assert not state.table.unsaid.any()


def test_beside_a_stranger_whole_devices_are_given_by_count():
    """The device plugin chooses, as it does for the stranger: which one is free only it knows."""
    state = given(node("n0", gpus=3), *SHAPES, pod("b", "theirs", "n0"), pod("w", "two"))
    assert placed(scheduled(state))["w"].devices == ()
    assert bind(state, "w").devices == ()
    assert free(state) == {0: 0, 1: 0, 2: 0}
    then(state, changed("w", node="n0", phase="Running", ready=True))
    assert state.table.unsaid.tolist()[0] == 3
    then(state, e.PodGone("b"))
    assert sorted(free(state).values()) == [0, 0, 1000]


def test_alone_ours_are_told_their_devices():
    state = given(node("n0", gpus=3), *SHAPES, pod("w", "two"))
    assert len(placed(scheduled(state))["w"].devices) == 2


def test_no_more_whole_devices_are_given_than_strangers_leave():
    state = given(node("n0", gpus=2), *SHAPES, pod("b", "theirs", "n0"), pod("w", "two"))
    assert placed(scheduled(state)) == {}
    then(state, pod("x", "whole"))
    assert placed(scheduled(state))["x"].node == "n0"


@pytest.mark.parametrize("theirs", ["theirs", "their-share"])
def test_a_share_goes_where_every_device_is_known(theirs):
    """Of the strangers' node all that is known is how many are left."""
    state = given(node("n0", gpus=4), node("n1", cpu=1_000, gpus=1), *SHAPES, pod("b", theirs, "n0"), pod("s", "share"))
    assert placed(scheduled(state))["s"].node == "n1"


def test_a_share_that_would_have_to_be_guessed_waits_and_it_is_said_why():
    state = given(node("n0", gpus=4), *SHAPES, pod("b", "theirs", "n0"), pod("s", "share"))
    [said] = scheduled(state)
    assert isinstance(said, e.Unfit)
    assert said.reasons == {"node(s) gave devices by count, so that no share of one was certain to be free": 1}
    then(state, e.PodGone("b"))
    assert placed(scheduled(state))["s"].node == "n0"


def test_a_strangers_share_counts_as_a_device_of_which_nothing_is_certain():
    state = given(node("n0", gpus=2), *SHAPES, pod("b", "their-share", "n0"), pod("w", "whole"), pod("x", "whole"))
    assert len(placed(scheduled(state))) == 1
    assert state.table.free[0, state.table.columns[GPU]] == 700


def test_a_node_with_fewer_devices_than_strangers_have_has_none_left():
    state = given(node("n0", gpus=3), *SHAPES, *(pod(f"b{i}", "theirs", "n0") for i in range(3)))
    then(state, node("n0", gpus=1))
    assert free(state) == {0: 0}
    then(state, node("n0", gpus=4))
    assert sorted(free(state).values()) == [0, 0, 0, 1000]


def test_what_is_promised_by_name_is_not_kept_from_it_by_strangers():
    """Which are theirs is a guess: while there are enough, whoever waits for device 0 has it, and nobody else comes in between."""
    their_two = shape("their-two", gpu=(2, 1000), scheduler=STOCK)
    state = given(node("n0", gpus=4), *SHAPES, their_two, pod("v", "two", "n0", devices=(DeviceShare(0, 1000), DeviceShare(1, 1000))), pod("b", "their-two", "n0"), pod("p", "two"))
    then(state, e.Preempted("v", "p", "preempt", ""), e.Nominated("p", "n0", NOW + 90_000, (DeviceShare(0, 1000), DeviceShare(1, 1000)), ("v",)))
    then(state, e.PodGone("v"))
    assert state.nominations["p"].complete
    then(state, pod("x", "whole"))
    assert placed(scheduled(state)).keys() == {"p"}


def test_those_that_go_leave_devices_of_their_own():
    """For plans, and for victims: of two that nobody names each frees another one."""
    state = given(node("n0", gpus=3), *SHAPES, pod("a", "theirs", "n0"), pod("b", "theirs", "n0"), pod("c", "whole", "n0", devices=(DeviceShare(0, 1000),)))
    taken = [state.devices_of(uid) for uid in ("a", "b", "c")]
    assert sorted(d.index for devices in taken for d in devices) == [0, 1, 2]


def test_a_snapshot_has_them():
    state = given(node("n0", gpus=3), *SHAPES, pod("b", "theirs", "n0"), pod("w", "whole"))
    scheduled(state)
    again = snapshot.load(snapshot.dump(state))
    assert free(again) == free(state)
    assert again.table.unsaid.tolist()[:1] == state.table.unsaid.tolist()[:1] == [2]


# -- what kubelets reject ----------------------------------------------------------------------------------------------------

OWNER = replica_of("web")
REASON = "UnexpectedAdmissionError"


def rejected(state, uid: str, now: int, node_name: str = "n0", reason: str = REASON) -> None:
    then(state, changed(uid, node=node_name, phase="Failed", reason=reason), time=now)


def storm(state, seconds: int, shape_id: str = "whole", reason: str = REASON, node_name: str = "n0") -> int:
    """A controller that makes another pod at once, and a kubelet that rejects each: how many it rejected."""
    count, now = 0, NOW
    then(state, pod("p0", shape_id, owner=OWNER), time=now)
    while now < NOW + seconds * 1000:
        for event in scheduled(state, now):
            if isinstance(event, e.PodPlaced):
                rejected(state, event.pod, now, event.node, reason)
                count += 1
                then(state, e.PodGone(event.pod), pod(f"p{count}", shape_id, owner=OWNER), time=now)
        command = SessionDecider().due(state, now)
        now = now if command is not None and now < NOW else now + 50
    return count


@pytest.mark.parametrize(("shape_id", "reason"), [("whole", REASON), ("s", "OutOfcpu"), ("s", "SomethingNew")])
def test_rejections_of_a_workload_are_bounded(shape_id, reason):
    state = given(node("n0", gpus=2), *SHAPES, shape("s"))
    assert 2 <= storm(state, 30, shape_id, reason) <= 6


def test_with_many_nodes_that_reject_it_a_workload_pauses_everywhere():
    nodes = [node(f"n{i}") for i in range(40)]
    state = given(*nodes, shape("s"))
    assert storm(state, 30, "s", "OutOfcpu") <= 12


def test_once_is_chance_and_tried_again_at_once():
    state = given(node("n0"), shape("s"), pod("a", owner=OWNER))
    scheduled(state)
    rejected(state, "a", NOW, reason="OutOfcpu")
    then(state, pod("b", owner=OWNER))
    assert placed(scheduled(state))["b"].node == "n0"


def test_who_waits_is_told_that_the_kubelet_rejected_its_like_and_is_tried_again_in_time():
    state = given(node("n0"), shape("s"))
    for uid in ("a", "b"):
        then(state, pod(uid, owner=OWNER))
        scheduled(state)
        rejected(state, uid, NOW, reason="OutOfcpu")
    then(state, pod("d", owner=OWNER))
    [said] = scheduled(state)
    assert said.reasons == {"node(s) rejected pods of this workload (OutOfcpu)": 1}
    assert scheduled(state) == []
    when = SessionDecider().deadline(state)
    assert when == NOW + 5_000
    command = SessionDecider().due(state, when)
    assert command is not None
    assert placed(scheduled(state, when))["d"].node == "n0"


def test_another_workload_is_not_kept_off_by_that():
    state = given(node("n0"), shape("s"))
    for uid in ("a", "b"):
        then(state, pod(uid, owner=OWNER))
        scheduled(state)
        rejected(state, uid, NOW, reason="OutOfcpu")
    then(state, pod("x", owner=replica_of("other")))
    assert placed(scheduled(state))["x"].node == "n0"


def test_where_a_device_was_not_given_nobody_is_given_one_until_something_changes_there():
    state = given(node("n0", gpus=2), *SHAPES, pod("a", "whole", owner=OWNER), pod("r", "share", "n0", devices=(DeviceShare(1, 300),)))
    scheduled(state)
    rejected(state, "a", NOW)
    then(state, pod("x", "whole", owner=replica_of("other")))
    [said] = scheduled(state)
    assert said.reasons == {f"node(s) did not give a device that was free ({REASON})": 1}
    then(state, e.PodGone("r"))
    assert placed(scheduled(state))["x"].node == "n0"


def test_or_until_a_while_is_over():
    state = given(node("n0", gpus=2), *SHAPES, pod("a", "whole", owner=OWNER))
    scheduled(state)
    rejected(state, "a", NOW)
    then(state, pod("x", "whole", owner=replica_of("other")))
    scheduled(state)
    assert placed(scheduled(state, NOW + 5_000))["x"].node == "n0"


def test_one_that_is_taken_ends_the_row():
    state = given(node("n0"), shape("s"))
    for uid in ("a", "b"):
        then(state, pod(uid, owner=OWNER))
        scheduled(state)
        rejected(state, uid, NOW, reason="OutOfcpu")
    then(state, pod("d", owner=OWNER))
    scheduled(state, NOW + 5_000)
    then(state, changed("d", node="n0", phase="Running", ready=True))
    assert state.rejections == {}


@pytest.mark.parametrize("reason", ["", "Evicted", "DeadlineExceeded"])
def test_who_fails_for_another_reason_was_not_rejected(reason):
    state = given(node("n0"), shape("s"), pod("a", owner=OWNER))
    scheduled(state)
    rejected(state, "a", NOW, reason=reason)
    assert state.rejections == {}


def test_rejections_are_kept_in_snapshots():
    state = given(node("n0", gpus=2), *SHAPES, pod("a", "whole", owner=OWNER))
    scheduled(state)
    rejected(state, "a", NOW)
    again = snapshot.load(snapshot.dump(state))
    assert (again.rejections, again.refusing) == (state.rejections, state.refusing)
    assert again.rejections["uid-web"].nodes["n0"].times == 1
