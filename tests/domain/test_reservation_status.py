"""The status of a Reservation, as its users read it: given what has happened, then what `status` says (RULES 000-1, 000-3, 003-1,
004-1, G-1, G-9)."""

import pytest
from domain.build import GIB, NOW, given, node, pod, reservation, shape, then
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.times import seconds
from restow.contracts.values import DeviceShare
from restow.domain.cores import cpuset
from restow.domain.snapshot import dump, load
from restow.domain.statuses.reservation_status import MAX_OWNERS, MAX_SLOTS, status

MINE = {"app": "owner"}
LATER, LATEST = NOW + 60_000, NOW + 120_000


def koordinator(uid="r", generation=1, once=True, shape="s", **more):
    fact = reservation(
        uid, ("reservation", 1, shape), namespace="", generation=generation, allocate_once=once, match_policy="Owner", **more
    )
    return replace(fact, api="koordinator")


def template_form(uid="r", **more):
    return reservation(uid, ("reservation", 1, "s"), allocate_once=False, allocate_policy="Covering", match_policy="Owner", **more)


def accepted(fact, least=1):
    return e.ReservationAccepted(fact.reservation, fact.generation, least)


def world(*facts, cpu=8_000):
    """Nodes, shapes of 2 and 1 CPUs, and what is asked for, accepted."""
    state = given(node("a", cpu=cpu), node("b"), shape("s", cpu=2_000, memory=2 * GIB), shape("small"), time=NOW)
    for fact in facts:
        then(state, fact, accepted(fact, sum(t.replicas for t in fact.spec.tasks)), time=NOW)
    return state


def owner(name, shape="small"):
    return pod(name, shape, labels=MINE)


def held(*facts, **more):
    """Held on node a, a minute later."""
    state = world(*facts, **more)
    for place in list(state.slot_queue):
        then(state, e.HoldPlaced(*place, "a"), time=LATER)
    return state


def conditions(body):
    return {c["type"]: (c["status"], c.get("reason"), c.get("lastTransitionTime")) for c in body["conditions"]}


# -- Koordinator's ---------------------------------------------------------------------------------------------------------


def test_a_pending_one_says_why_nothing_fits():
    state = then(world(koordinator()), e.HoldUnfit("r", "reservation-0", 2, {"Insufficient cpu": 2}), time=LATER)
    assert status(state, "r") == {
        "phase": "Pending",
        "currentOwners": [],
        "conditions": [
            {
                "type": "Scheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient cpu.",
                "lastProbeTime": seconds(LATER), "lastTransitionTime": seconds(NOW),
            }
        ],
    }  # fmt: skip


def test_one_that_nobody_has_looked_at_yet_has_no_conditions():
    assert status(world(koordinator()), "r") == {"phase": "Pending", "currentOwners": [], "conditions": []}


def test_an_available_one_has_koordinators_words():
    body = status(held(koordinator()), "r")
    assert (body["phase"], body["nodeName"], body["allocatable"]) == ("Available", "a", {"cpu": "2", "memory": "2Gi"})
    assert conditions(body) == {
        "Scheduled": ("True", "Scheduled", seconds(LATER)),
        "Ready": ("True", "Available", seconds(LATER)),
    }
    assert "allocated" not in body


def test_one_that_is_allocated_once_succeeds_and_keeps_its_owner_when_the_pod_is_gone():
    state = then(held(koordinator()), owner("p"), e.HandedOver("r", "reservation-0", "p", "a"), time=LATEST)
    body = status(state, "r")
    assert body["currentOwners"] == [{"namespace": "default", "name": "p", "uid": "p"}]
    assert (body["allocatable"], body["allocated"]) == ({"cpu": "2", "memory": "2Gi"}, {"cpu": "1", "memory": "1Gi"})
    assert conditions(body) == {
        "Scheduled": ("True", "Scheduled", seconds(LATER)),
        "Ready": ("False", "Succeeded", seconds(LATEST)),
    }
    then(state, e.PodChanged("p", "a", "Running"), e.PodGone("p"))
    gone = status(state, "r")
    assert (gone["phase"], gone["currentOwners"]) == ("Succeeded", body["currentOwners"])
    assert (gone["allocatable"], gone["allocated"]) == (body["allocatable"], body["allocated"]), "what it took stays said"
    assert status(load(dump(state)), "r") == gone


def test_one_whose_owner_was_never_bound_there_is_available_again():
    state = then(held(koordinator()), owner("p"), e.HandedOver("r", "reservation-0", "p", "a"), e.PodGone("p"))
    body = status(state, "r")
    assert (body["phase"], body["currentOwners"], conditions(body)["Ready"][1]) == ("Waiting", [], "GivenBack")
    then(state, e.HoldReady("r", "reservation-0"))
    assert status(state, "r")["phase"] == "Available"


def test_a_reusable_one_says_how_much_is_used_and_forgets_owners_when_they_end():
    state = held(koordinator(once=False))
    then(state, owner("p2"), owner("p1"), e.HandedOver("r", "reservation-0", "p2", "a"), time=LATEST)
    body = status(state, "r")
    assert (body["phase"], body["allocated"]) == ("Available", {"cpu": "1", "memory": "1Gi"})
    assert (state.phases["r"].reason, state.phases["r"].message) == ("PartlyAllocated", "1 pod uses some of it")
    then(state, e.HandedOver("r", "reservation-0", "p1", "a"))
    body = status(state, "r")
    assert [o["name"] for o in body["currentOwners"]] == ["p1", "p2"]
    assert body["allocated"] == body["allocatable"]
    assert state.phases["r"].reason == "FullyAllocated"
    assert conditions(body)["Ready"] == ("True", "Available", seconds(LATER))
    then(state, e.PodChanged("p2", "a", "Succeeded"))
    body = status(state, "r")
    assert ([o["name"] for o in body["currentOwners"]], body["allocated"]["cpu"]) == (["p1"], "1")
    assert state.phases["r"].reason == "PartlyAllocated"


def test_one_that_expires_while_it_is_used_is_over_when_its_rest_is_released_and_its_pods_stay_its_owners():
    state = then(held(koordinator(once=False)), owner("p"), e.HandedOver("r", "reservation-0", "p", "a"), e.Expired("r"))
    assert (state.phases["r"].phase, state.phases["r"].reason) == ("Available", "Ending")
    then(state, e.HoldReleased("r", "reservation-0", "Expired"), time=LATEST)
    body = status(state, "r")
    assert (body["phase"], body["nodeName"]) == ("Failed", "a")
    assert conditions(body)["Ready"] == ("False", "Expired", seconds(LATEST))
    assert [o["name"] for o in body["currentOwners"]] == ["p"]
    assert (body["allocatable"]["cpu"], body["allocated"]["cpu"]) == ("2", "1")
    assert state.phases["r"].message == "Reservation expired and was cleaned up by the scheduler: its time ended while 1 pod used it; it goes on running"
    then(state, e.PodChanged("p", "a", "Succeeded"))
    after = status(state, "r")
    assert (after["phase"], after["currentOwners"]) == ("Failed", [])
    assert not {"allocatable", "allocated"} & set(after)


def test_a_shared_one_that_is_deleted_says_how_many_use_it_and_go_on():
    fact = koordinator(once=False)
    state = then(held(fact), owner("p"), owner("q"))
    then(state, e.HandedOver("r", "reservation-0", "p", "a"), e.HandedOver("r", "reservation-0", "q", "a"))
    then(state, replace(fact, deleting=LATEST), e.HoldReleased("r", "reservation-0", "Deleted"))
    assert state.phases["r"].message == "it was deleted while 2 pods used it; they go on running"


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        (koordinator(), "Reservation expired and was cleaned up by the scheduler: its time ended before a pod took it"),
        (koordinator(once=False), "Reservation expired and was cleaned up by the scheduler: its time ended; no pod used it"),
        (reservation("r", ("t", 2, "s"), match_policy="Owner"), "Reservation expired and was cleaned up by the scheduler: its time ended with 0 of 2 slots handed over"),
    ],
)
def test_one_that_ends_unused_says_so(fact, message):
    state = then(held(fact), e.Expired("r"))
    for place in list(state.to_release):
        then(state, e.HoldReleased(*place, "Expired"))
    assert (state.phases["r"].phase, state.phases["r"].message) == ("Failed", message)


@pytest.mark.parametrize(("reason", "says"), [("NodeLost", "Expired"), ("Expired", "Expired"), ("Deleted", "Deleted")])
def test_what_is_lost_fails_with_its_cause_and_with_its_node_it_expires(reason, says):
    body = status(then(held(koordinator()), e.HoldReleased("r", "reservation-0", reason)), "r")
    assert (body["phase"], conditions(body)["Ready"][:2]) == ("Failed", ("False", says))


def test_a_hold_that_its_node_cannot_have_any_more_is_looked_for_elsewhere():
    state = then(held(koordinator()), e.HoldReleased("r", "reservation-0", "Unavailable"), time=LATEST)
    body = status(state, "r")
    assert (body["phase"], "nodeName" in body) == ("Pending", False)
    assert conditions(body) == {"Ready": ("False", "Pending", seconds(LATEST))}


def test_pre_allocation_waits_until_the_capacity_is_free():
    state = world(koordinator(pre_allocation=True), cpu=2_000)
    then(state, pod("x", "s", "a"), e.HoldPlaced("r", "reservation-0", "a", waiting=True), time=LATER)
    body = status(state, "r")
    assert (body["phase"], body["nodeName"], conditions(body)["Ready"][:2]) == ("Waiting", "a", ("False", "PreAllocation"))
    then(state, e.PodGone("x"))
    assert status(state, "r")["phase"] == "Waiting"
    then(state, e.HoldReady("r", "reservation-0"), time=LATEST)
    assert conditions(status(state, "r"))["Ready"] == ("True", "Available", seconds(LATEST))


def test_a_smaller_node_or_somebody_elses_pod_makes_it_wait():
    state = then(held(koordinator(), cpu=2_000), pod("x", "small", "a"))
    body = status(state, "r")
    assert (body["phase"], conditions(body)["Ready"][:2]) == ("Waiting", ("False", "Overcommitted"))


def test_what_cannot_be_read_has_failed_and_says_what_is_allowed():
    fact = replace(koordinator(), spec=None, invalid="spec.ttl: 'x'; allowed: 10s")
    state = given(fact, e.ReservationRefused("r", 1, "InvalidSpec", fact.invalid))
    body = status(state, "r")
    assert body["phase"] == "Failed"
    assert {c["type"]: (c["status"], c["reason"], c["message"]) for c in body["conditions"]} == {
        "Scheduled": ("False", "InvalidSpec", fact.invalid),
        "Ready": ("False", "InvalidSpec", fact.invalid),
    }


def test_devices_and_cpus_are_the_very_ones():
    state = given(node("g", gpus=2), shape("s", gpu=(1, 500)), koordinator(), accepted(koordinator()))
    then(state, e.HoldPlaced("r", "reservation-0", "g", (DeviceShare(1, 500),), cores=(0, 1, 2, 5)))
    body = status(state, "r")
    amounts = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50", "alibabacloud.com/gpu-milli": "500"}
    assert body["devices"] == {"gpu": [{"minor": 1, "resources": amounts}]}
    assert body["cpuset"] == "0-2,5"
    assert body["allocatable"]["alibabacloud.com/gpu-milli"] == "500"


def test_a_cpuset_is_written_as_linux_does():
    assert [cpuset(c) for c in [(), (3,), (1, 0), (0, 2, 3, 4, 9)]] == ["", "3", "0-1", "0,2-4,9"]


def test_owners_are_bounded_and_counted():
    state = held(koordinator(once=False))
    for number in range(MAX_OWNERS + 2):
        then(state, owner(f"p{number:05}"), e.HandedOver("r", "reservation-0", f"p{number:05}", "a"))
    body = status(state, "r")
    assert len(body["currentOwners"]) == MAX_OWNERS
    ready = next(c for c in body["conditions"] if c["type"] == "Ready")
    assert ready["message"].endswith(f"currentOwners has the first {MAX_OWNERS} of {MAX_OWNERS + 2}")


def test_a_larger_size_that_has_no_capacity_yet_is_said_and_the_former_stays():
    state = held(koordinator())
    larger = koordinator(generation=2, shape="large")
    then(state, shape("large", cpu=100_000), larger, accepted(larger), e.HoldUnfit("r", "reservation-0", 2, {"Insufficient cpu": 2}))
    body = status(state, "r")
    assert (body["phase"], body["allocatable"]["cpu"]) == ("Available", "2")
    ready = next(c for c in body["conditions"] if c["type"] == "Ready")
    assert ready["message"].endswith("; it keeps its former size for now: 0/2 nodes are available: 2 Insufficient cpu.")


def test_what_pods_use_beyond_a_smaller_size_is_said_and_stays_allocated():
    """As in Koordinator `allocated` is what owners use: they keep what they have."""
    state = then(held(koordinator(once=False)), owner("p", "s"), e.HandedOver("r", "reservation-0", "p", "a"))
    smaller = koordinator(once=False, generation=2, shape="small")
    then(state, smaller, accepted(smaller), e.HoldResized("r", "reservation-0", "small"))
    body = status(state, "r")
    assert (body["allocatable"], body["allocated"]) == ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"})
    ready = next(c for c in body["conditions"] if c["type"] == "Ready")
    assert ready["message"] == "1 pod uses all of it; of that, 1 cpu and 1Gi memory is beyond its present size"


def test_one_place_is_not_spoken_of_as_several():
    state = held(koordinator())
    assert state.phases["r"].message == "it is held, and no pod uses it"
    then(state, owner("p"), e.HandedOver("r", "reservation-0", "p", "a"))
    assert state.phases["r"].message == "it was handed over to its owner"
    state = held(reservation("r", ("t", 3, "s"), match_policy="Owner"))
    then(state, owner("p"), owner("q"), e.HandedOver("r", "t-0", "p", "a"), e.HandedOver("r", "t-1", "q", "a"))
    assert state.phases["r"].message == "1 of 3 slots is held, 2 handed over"


# -- Volcano's -------------------------------------------------------------------------------------------------------------


def test_the_tasks_form_counts_and_says_where_each_place_is():
    state = held(reservation("r", ("t", 3, "s"), match_policy="Owner"))
    then(state, owner("p"), e.HandedOver("r", "t-1", "p", "a"), e.HoldReleased("r", "t-2", "NodeLost"), time=LATEST)
    body = status(state, "r")
    assert (body["state"]["phase"], body["state"]["reason"], body["phase"]) == ("Waiting", "HoldLost", "Waiting")
    assert {name: body[name] for name in ("minAvailable", "pending", "available", "waiting", "succeeded", "failed")} == {
        "minAvailable": 3, "pending": 0, "available": 1, "waiting": 0, "succeeded": 1, "failed": 1,
    }  # fmt: skip
    assert body["taskStatusCount"] == {"t": {"phase": {"Available": 1, "Succeeded": 1, "Failed": 1}}}
    assert [(p["name"], p["phase"], p.get("owner"), p.get("reason")) for p in body["slots"]] == [
        ("t-0", "Available", None, None), ("t-1", "Succeeded", "default/p", None), ("t-2", "Failed", None, "NodeLost"),
    ]  # fmt: skip
    assert body["currentOwner"] == body["currentOwners"][0] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "p",
    }  # fmt: skip
    assert body["conditions"] == [
        {"status": "Pending", "lastTransitionTime": seconds(NOW)},
        {"status": "Available", "lastTransitionTime": seconds(LATER)},
        {"status": "Waiting", "lastTransitionTime": seconds(LATEST)},
    ]
    assert "nodeName" not in body


def test_the_template_form_has_phase_conditions_and_node_and_no_counts():
    body = status(held(template_form()), "r")
    assert (body["phase"], body["state"]["phase"], body["nodeName"]) == ("Available", "Available", "a")
    assert conditions(body)["Ready"][:2] == ("True", "Available")
    assert not {"available", "taskStatusCount", "minAvailable", "slots"} & set(body)


def test_a_tasks_form_whose_only_task_is_called_reservation_is_still_one():
    fact = reservation("r", ("reservation", 2, "s"), match_policy="Owner", form="tasks")
    assert status(held(fact), "r")["taskStatusCount"] == {"reservation": {"phase": {"Available": 2}}}
    assert "taskStatusCount" not in status(held(template_form(form="template")), "r")


def test_places_are_bounded_and_in_the_order_of_their_numbers():
    body = status(held(reservation("r", ("t", 120, "s"), match_policy="Owner"), cpu=1_000_000), "r")
    assert [p["name"] for p in body["slots"]] == [f"t-{i}" for i in range(MAX_SLOTS)]
    assert body["available"] + body["waiting"] == 120
