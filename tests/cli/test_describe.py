"""`restow describe reservation/x` and `restow get reservations` on exported logs."""

import json
from types import SimpleNamespace

import pytest
from cli.conftest import export
from msgspec.structs import replace
from replay.handmade import SHAPE, START, Handmade, migration, node, pod, shape, time_at

from restow.cli.plan_worth import dearest, each
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import (
    Dear,
    DeviceRequest,
    DeviceShare,
    Expression,
    LabelSelector,
    ObjectRef,
    OwnerRule,
    PodShape,
    ReservationSpec,
    ReservationTask,
    Taint,
    Worth,
)
from restow.domain.resources import GPU_MILLI

WEB = OwnerRule(controller=ObjectRef("Deployment", name="web"))
HOUR = 3_600_000


def asked(name="r", replicas=3, namespace="shop", api="volcano", owners=(WEB,), shape=SHAPE, **spec):
    spec = {"allocate_once": True, "match_policy": "Owner", "ttl": HOUR} | spec
    what = ReservationSpec((ReservationTask("t", replicas, shape, namespace=namespace),), owners, **spec)
    return e.ReservationObserved(f"uid-{name}", api, namespace, name, START, spec=what)


def accepted(name="r", need=3, expires=START + HOUR):
    return e.ReservationAccepted(f"uid-{name}", 1, need, expires)


def log(*facts, cpu=1000, **more):
    """Two nodes of four cores, and a Reservation that is accepted."""
    found = Handmade()
    found.facts(node("a"), node("b"), shape(cpu), *facts, kind="nodes")
    found.facts(asked(**more), kind="reservations.batch.volcano.sh")
    found.decide("reservation", c.Review(time_at(3)), accepted(need=more.get("replicas", 3)), cause="2/0")
    return found


def held(*more, **asked):
    found = log(**asked)
    places = [e.HoldPlaced("uid-r", f"t-{i}", "ab"[i % 2]) for i in range(asked.get("replicas", 3))]
    found.decide("session", c.Schedule(time_at(4)), *places, *more, cause="3/0")
    return found


@pytest.fixture
def describe(restow, tmp_path):
    def call(made, what="reservation/shop/r"):
        result = restow("describe", what, "--log", export(tmp_path / "d.jsonl", made))
        assert result.exit_code == 0, result.output
        assert max(map(len, result.output.splitlines())) <= 100
        return result

    return call


def test_where_it_is_held_for_whom_until_when_and_what_is_left(describe):
    text = describe(held()).output
    assert text.startswith("reservation shop/r  uid-r\n  Available since 2026-01-01T00:00:04Z (0s ago): 3 of 3 slots are held")
    for line in (
        "  API        batch.volcano.sh, created 2026-01-01T00:00:00Z (4s ago), generation 1",
        "  end        ends 2026-01-01T01:00:00Z (in 59m), 1h after its creation, as spec.ttl says",
        "  for        pods of Deployment web",
        "  allocated  cpu 0/3, memory 0/3Gi",
        "  left       cpu 3, memory 3Gi",
        "SLOTS, 3: 3 Available",
        "t-1   Available  b     cpu 0/1, memory 0/1Gi",
        "LATEST, as of sequence 4; all of it: restow why reservation/shop/r",
        "  4  00:00:04  slot t-0 is placed on a, and 2 more alike         schedule ← 3/0",
    ):
        assert line in text, text
    assert "USED BY" not in text
    assert "WAITS" not in text


def test_who_uses_it_and_what_they_have_taken(describe):
    made = held()
    made.facts(pod("web-1"))
    made.decide("session", c.Schedule(time_at(6)), e.HandedOver("uid-r", "t-0", "uid-web-1", "a"), cause="5/0")
    text = describe(made).output
    assert "1 Succeeded, 2 Available" in text
    assert "t-0   Succeeded  a     cpu 1/1, memory 1Gi/1Gi  used by shop/web-1" in text
    assert "POD         SLOT  NODE  TAKEN OF IT        STATE" in text
    assert "shop/web-1  t-0   a     cpu 1, memory 1Gi  not bound yet" in text
    made.facts(e.PodChanged("uid-web-1", "a", "Running", True))
    assert "not bound yet" not in describe(made).output


def test_a_shared_one_tells_what_each_pod_drew(describe):
    made = held(replicas=1, allocate_once=False, allocate_policy="Restricted", restricted=("cpu",))
    made.facts(e.ShapeDeclared("half", PodShape({"cpu": 250, "pods": 1}, "restow")), pod("web-1", shape="half"), pod("web-2", shape="half"))
    over = [e.HandedOver("uid-r", "t-0", f"uid-web-{i}", "a") for i in (1, 2)]
    made.decide("session", c.Schedule(time_at(6)), *over)
    said = describe(made)
    assert "allocated  cpu 0.5/1, memory 0/1Gi" in said.output
    assert "left       cpu 0.5, memory 1Gi" in said.output
    assert "of cpu a pod gets nothing from the node besides (Restricted)" in said.said
    assert "shop/web-2  t-0   a     cpu 0.25" in said.output


def test_why_it_is_pending_per_rule_and_what_alone_would_be_enough(describe):
    text = describe(log(cpu=3000)).output
    assert "WAITS, decided again at sequence 3\n" in text
    for line in (
        "  2 of 3 slots would fit; t-2 does not beside them: 0/2 nodes are available: 2 Insufficient cpu.",
        "  nothing is held with fewer than 3 (minAvailable)",
        "  would be held with 1 more empty node like a",
        "  would be held with a minAvailable of at most 2",
        "  would be held with a cpu request of at most 2 each",
    ):
        assert line in text, text


def test_what_capacity_a_waiting_one_misses_and_who_has_it(describe):
    made = Handmade()
    three = e.ShapeDeclared("three", PodShape({"cpu": 3000, "pods": 1}, "restow"))
    made.facts(node("a"), shape(2000), three, replace(pod("big", shape="three"), node="a", phase="Running", ready=True), kind="nodes")
    made.facts(asked(replicas=1, pre_allocation=True), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), accepted(need=1))
    made.decide("session", c.Schedule(time_at(4)), e.HoldPlaced("uid-r", "t-0", "a", waiting=True))
    text = describe(made).output
    assert "t-0   Waiting  a     cpu 0/2, memory 0/1Gi  has cpu 1, memory 1Gi, waits for cpu 1" in text
    assert "  left       nothing yet: cpu 1, memory 1Gi is there, cpu 1 is waited for" in text
    assert "CAPACITY that t-0 waits for on a: cpu 1\nIN USE BY     AMOUNTS\npod shop/big  cpu 3\n" in text
    assert "waits for its capacity on a" in text


def test_one_that_is_used_up_says_the_same_before_and_after_its_pod_is_gone(describe, restow, tmp_path):
    made = held(replicas=1)
    made.facts(e.ShapeDeclared("half", PodShape({"cpu": 500, "pods": 1}, "restow")), pod("web-1", shape="half"))
    made.decide("session", c.Schedule(time_at(6)), e.HandedOver("uid-r", "t-0", "uid-web-1", "a"))
    made.facts(e.PodChanged("uid-web-1", "a", "Running", True))
    listed = restow("get", "reservations", "--log", export(tmp_path / "e.jsonl", made)).output
    assert "a      0.5/1   0/1Gi" in listed
    made.facts(e.PodGone("uid-web-1"))
    after = restow("get", "reservations", "--log", export(tmp_path / "f.jsonl", made)).output
    assert after.replace("8s", "7s") == listed
    assert "t-0   Succeeded  a     cpu 0.5/1, memory 0/1Gi  used by shop/web-1" in describe(made).output


def test_what_is_used_beyond_a_smaller_size(describe, restow, tmp_path):
    made = held(replicas=1, allocate_once=False)
    made.facts(pod("web-1"))
    made.decide("session", c.Schedule(time_at(6)), e.HandedOver("uid-r", "t-0", "uid-web-1", "a"))
    smaller = e.ShapeDeclared("half", PodShape({"cpu": 500, "memory": 1 << 30, "pods": 1}, "restow"))
    fact = replace(asked(replicas=1, allocate_once=False, shape="half"), generation=2)
    made.facts(smaller, fact, kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(8)), e.ReservationAccepted("uid-r", 2, 1, START + HOUR))
    made.decide("session", c.Schedule(time_at(9)), e.HoldResized("uid-r", "t-0", "half"))
    said = describe(made).said
    assert "allocated cpu 1/0.5, memory 1Gi/1Gi; cpu 0.5 of that is beyond its present size, and the node's once it is left" in said
    assert "left nothing" in said
    listed = restow("get", "reservations", "--log", export(tmp_path / "g.jsonl", made)).output
    assert "1/0.5  1Gi/1Gi" in listed
    assert "over by cpu 0.5\n" in listed


def test_one_for_another_scheduler_says_so_and_nothing_else(describe, restow, tmp_path):
    made = Handmade()
    theirs = e.ShapeDeclared("theirs", PodShape({"cpu": 1000, "pods": 1}, "koord-scheduler"))
    made.facts(node("a"), shape(), theirs, kind="nodes")
    made.facts(asked("theirs", shape="theirs"), asked("waits"), kind="reservations.batch.volcano.sh")
    said = describe(made, "reservation/shop/theirs").said
    assert "for scheduler koord-scheduler, which is not Restow's: it is never touched" in said
    assert "Pending" not in said
    file = export(tmp_path / "g.jsonl", made)
    listed = restow("get", "reservations", "--log", file).output
    assert "shop/theirs  -" in listed
    assert "for scheduler koord-scheduler" in listed
    assert "shop/theirs" not in restow("why", "reservations", "--log", file).output
    assert "for scheduler koord-scheduler: Restow (schedulerNames: restow) never touches it" in restow("why", "reservation/shop/theirs", "--log", file).said


def test_a_rule_that_keeps_it_away_is_not_said_with_with(describe):
    made = Handmade()
    taken = replace(node("a"), taints=(Taint("gpu", "NoSchedule"),))
    made.facts(taken, shape(), kind="nodes")
    made.facts(asked(replicas=1), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), accepted(need=1))
    assert "would be held without the rule: node(s) had untolerated taint {gpu: }" in describe(made).said


def test_what_has_no_namespace_is_named_without_one(restow, tmp_path):
    made = held(namespace="", api="koordinator")
    made.facts(replace(pod("r"), pod="uid-of-pod"))
    said = restow("why", "r", "--log", export(tmp_path / "w.jsonl", made))
    assert said.exit_code == 2
    assert "reservation/r   uid-r" in said.output
    assert "pod/shop/r   uid-of-pod" in said.output
    assert "//" not in said.output


def test_concrete_devices_and_cpus_are_named(describe):
    made = Handmade()
    gpu = e.ShapeDeclared("gpu", PodShape({"cpu": 1000, "restow.dev/gpu-milli": 1500, "pods": 1}, "restow", devices=DeviceRequest(1, 500)))
    there = e.NodeObserved("a", "uid-a", {"cpu": 8000, "memory": 1 << 33, "pods": 110, "restow.dev/gpu-milli": 2000}, devices=2)
    made.facts(there, gpu, kind="nodes")
    made.facts(asked(replicas=1, shape="gpu"), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), accepted(need=1))
    made.decide("session", c.Schedule(time_at(4)), e.HoldPlaced("uid-r", "t-0", "a", (DeviceShare(1, 500),), cores=(0, 1, 2, 6)))
    text = describe(made).output
    assert "gpu 1 (500/1000); CPUs 0-2,6" in text


def test_everything_that_says_who_may_use_it_and_how(describe):
    owners = (
        OwnerRule(object=ObjectRef("Pod", name="one")),
        OwnerRule(object=ObjectRef("Pod", "team"), selector=LabelSelector({"app": "x"}, (Expression("tier", "In", ("a", "b")), Expression("old", "DoesNotExist")))),
        OwnerRule(controller=ObjectRef(uid="u-1")),
        OwnerRule(selector=LabelSelector()),
    )
    made = held(owners=owners, unschedulable=True, taints=(Taint("dedicated", "NoSchedule", "a"),), match_policy="PodSpec", queue="q")
    said = describe(made).said
    for words in (
        "for pod one or pods in namespace team with app=x, tier in (a, b), !old",
        "or pods of the controller with uid u-1 or pods of any kind",
        "closed: only pods that name it, or tolerate that, may take it (unschedulable)",
        "pods must tolerate its taint dedicated=a:NoSchedule",
        "(matchPolicy PodSpec)",
        "queue q",
    ):
        assert words in said, said


@pytest.mark.parametrize(
    ("spec", "expires", "words"),
    [
        ({"ttl": 0}, 0, "end never, spec.ttl is 0"),
        ({"ttl": None}, START + 24 * HOUR, "24h after its creation, the default"),
        ({"ttl": HOUR, "expires": START + 2 * HOUR}, START + 2 * HOUR, "spec.expires says so, and wins over spec.ttl"),
    ],
)
def test_why_it_ends_then(describe, spec, expires, words):
    made = Handmade()
    made.facts(node("a"), shape(), kind="nodes")
    made.facts(asked(**spec), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), accepted(expires=expires))
    assert words in describe(made).said


def test_one_that_has_expired(describe, restow, tmp_path):
    made = held()
    made.decide("gc", c.Lead("gc-0"), e.Expired("uid-r"))
    made.decide("session", c.Schedule(time_at(6)), *(e.HoldReleased("uid-r", f"t-{i}", "Expired") for i in range(3)))
    said = describe(made).said
    assert "Failed (Expired) since" in said
    assert "end ended 2026-01-01T01:00:00Z" in said
    assert "expired 0s ago" in restow("get", "reservations", "--log", export(tmp_path / "e.jsonl", made)).output


def test_a_refused_one_says_why(describe):
    made = Handmade()
    made.facts(node("a"), shape(), kind="nodes")
    made.facts(asked(owners=()), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), e.ReservationRefused("uid-r", 1, "InvalidSpec", "spec.owners: is empty"))
    said = describe(made).said
    assert "Failed (InvalidSpec) since" in said
    assert "spec.owners: is empty" in said
    assert "for nobody" in said


def test_one_that_is_gone_still_has_its_story(describe):
    made = held()
    made.facts(e.ReservationGone("uid-r"))
    made.decide("session", c.Schedule(time_at(6)), *(e.HoldReleased("uid-r", f"t-{i}", "Deleted") for i in range(3)))
    text = describe(made).output
    assert "\n  gone\n" in text
    assert "slot t-0 is released: Deleted, and 2 more alike" in text


def test_of_many_places_those_are_listed_that_say_more(describe):
    made = Handmade()
    made.facts(*(node(f"n{i}", cpu=100_000) for i in range(8)), shape(), kind="nodes")
    made.facts(asked(replicas=60), pod("web-1"), kind="reservations.batch.volcano.sh")
    made.decide("reservation", c.Review(time_at(3)), accepted(need=60))
    made.decide("session", c.Schedule(time_at(4)), *(e.HoldPlaced("uid-r", f"t-{i}", f"n{i % 8}") for i in range(60)))
    made.decide("session", c.Schedule(time_at(5)), e.HandedOver("uid-r", "t-7", "uid-web-1", "n7"))
    text = describe(made).output
    assert "SLOTS, 60: 59 Available, 1 Succeeded" in text
    assert "t-7   Succeeded" in text
    assert "t-8 " not in text
    assert "and 59 more; nodes: n0, n1, n2," in text


@pytest.mark.parametrize("what", ["r", "shop/r", "reservation/r", "reservation/shop/r", "resv/r", "uid-r"])
def test_it_is_found_by_every_name_that_it_has(describe, what):
    assert describe(held(), what).output.startswith("reservation shop/r  uid-r")


def test_one_of_koordinators_has_no_namespace(describe):
    made = held(namespace="", api="koordinator")
    text = describe(made, "reservation/r").output
    assert text.startswith("reservation r  uid-r")
    assert "API        scheduling.koordinator.sh" in text
    assert "restow why reservation/r" in text


def test_a_name_that_two_have_must_be_told_apart(restow, tmp_path):
    made = held()
    other = replace(asked("r", namespace="other"), reservation="uid-other")
    made.facts(other)
    result = restow("describe", "r", "--log", export(tmp_path / "d.jsonl", made))
    assert (result.exit_code, "reservation/other/r" in result.said) == (2, True)


@pytest.mark.parametrize("other", ["pod/web-new", "migration/p1-1"])
def test_what_is_no_reservation_is_told_as_by_why(restow, as_json, moved, other):
    assert restow("describe", other, "--log", moved).output == restow("why", other, "--log", moved).output
    assert as_json("describe", other, "--log", moved) == as_json("why", other, "--log", moved)


def test_as_json_everything_has_a_key(as_json, tmp_path):
    answer = as_json("describe", "r", "--log", export(tmp_path / "d.jsonl", log(cpu=3000)))
    assert (answer["phase"], answer["api"], answer["owners"]) == ("Pending", "volcano", ["pods of Deployment web"])
    assert answer["fit"]["reasons"] == {"Insufficient cpu": 2}
    assert {"allocatable", "allocated", "left", "slots", "allocations", "ends", "because", "transitions"} <= set(answer)


# -- get -----------------------------------------------------------------------------------------------------------------


def test_the_list_fits_and_names_every_one_in_full(restow, tmp_path):
    made = held()
    made.facts(asked("waits", 1), asked("k", 1, "", "koordinator", ttl=0), pod("web-1"))
    made.decide("reservation", c.Review(time_at(6)), accepted("waits", 1), accepted("k", 1, 0))
    unfit = e.HoldUnfit("uid-waits", "t-0", 2, {"Insufficient cpu": 2})
    over = e.HandedOver("uid-r", "t-0", "uid-web-1", "a")
    made.decide("session", c.Schedule(time_at(7)), unfit, over, e.HoldPlaced("uid-k", "t-0", "b"))
    file = export(tmp_path / "g.jsonl", made)
    assert restow("get", "reservations", "--log", file).output == (
        "NAME        PHASE      HELD/USED/ALL  NODES  CPU   MEMORY  ENDS    AGE  REASON\n"
        "k           Available          1/0/1  b      0/1    0/1Gi  never   7s   -\n"
        "shop/r      Available          2/1/3  a +1   1/3  1Gi/3Gi  in 59m  7s   -\n"
        "shop/waits  Pending            0/0/1  -        -        -  in 59m  7s   Unschedulable\n"
    )
    wide = restow("get", "resv", "-o", "wide", "-A", "--log", file).output
    assert "pods of Deployment web" in wide
    assert "koordinator" in wide
    assert wide.split()[:2] == ["NAME", "API"]
    assert "0/2 nodes are available: 2 Insufficient cpu." in wide
    only = restow("get", "reservations", "-n", "shop", "--log", file).output
    assert len(only.splitlines()) == 3
    both = restow("get", "reservations", "-n", "shop", "-A", "--log", file)
    assert both.exit_code == 2


def test_the_list_as_json_has_exact_amounts(as_json, tmp_path):
    made = held()
    made.facts(pod("web-1"))
    made.decide("session", c.Schedule(time_at(6)), e.HandedOver("uid-r", "t-0", "uid-web-1", "a"))
    (item,) = as_json("get", "reservations", "--log", export(tmp_path / "g.jsonl", made))["items"]
    assert item["allocatable"] == {"cpu": 3000, "memory": 3 << 30}
    assert item["allocated"] == {"cpu": 1000, "memory": 1 << 30}
    assert item["expires"] == "2026-01-01T01:00:00.000Z"
    assert item["slots"][0]["pods"] == ["uid-web-1"]
    assert item["slots"][1]["held"] == {"cpu": 1000, "memory": 1 << 30}


def test_why_tells_the_same_of_places_that_wait(restow, as_json, tmp_path):
    file = export(tmp_path / "w.jsonl", log(cpu=3000))
    said = restow("why", "reservation/shop/r", "--log", file).said
    assert "3 slots of 3 have no node yet" in said
    assert "would be held with a minAvailable of at most 2" in said
    assert as_json("why", "reservation/shop/r", "--log", file)["slots"]["fit"] == 2


def test_why_a_pod_is_where_it_is_names_the_place_that_it_took(restow, tmp_path):
    made = held()
    made.facts(pod("web-1"))
    made.decide("session", c.Schedule(time_at(6)), e.HandedOver("uid-r", "t-0", "uid-web-1", "a"), cause="5/0")
    said = restow("why", "pod/web-1", "--log", export(tmp_path / "w.jsonl", made)).said
    assert "placed on a, not bound yet uses 1 cpu and 1Gi memory of slot t-0 of reservation shop/r" in said


# -- nodes -------------------------------------------------------------------------------------------------------------


def words(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_node_says_what_is_free_who_is_on_it_what_is_held_and_which_moves_come_and_go(describe):
    log = migration(lands=False)
    del log.records[9:]  # Up to the eviction.
    told = words(describe(log, "node/b").output)
    assert told[:2] == ["node b", "Ready"]
    for line in (
        "cpu 4 0 0 1 3", "memory 8Gi 0 0 1Gi 7Gi", "PODS, 0", "HOLDS, 1", "shop/restow-p1-1 task-0 Available cpu 1, memory 1Gi",
        "p1-1 to a shop/web-old evicting 1s ago",
    ):  # fmt: skip
        assert line in told, told
    told = words(describe(log, "no/a").output)
    for line in ("cpu 4 1 1 0 3", "PODS, 1", "shop/web-old Terminating cpu 1, memory 1Gi", "HOLDS, 0", "p1-1 from b shop/web-old evicting 1s ago"):
        assert line in told, told


def test_a_node_says_who_has_which_part_of_its_devices_and_what_keeps_pods_off(describe, restow, tmp_path):
    found = Handmade()
    there = replace(
        node("a"), devices=2, allocatable={"cpu": 4000, "memory": 1 << 33, "pods": 110, GPU_MILLI: 2000}, unschedulable=True,
        labels={"zone": "z1"}, taints=(Taint("team", "NoSchedule", "ml"),), marks={"restow.dev/cordoned": "l-1"},
    )  # fmt: skip
    half = e.ShapeDeclared("half", PodShape(requests={"cpu": 1000, GPU_MILLI: 500, "pods": 1}, devices=DeviceRequest(1, 500), scheduler="restow"))
    runs = replace(pod("p", shape="half"), node="a", phase="Running", devices=(DeviceShare(0, 500),))
    found.facts(there, half, runs, kind="nodes")
    told = words(describe(found, "node/a").output)
    for line in (
        "Ready; cordoned: no pod is placed here", "labels zone=z1", "taints team=ml:NoSchedule", "set by Restow restow.dev/cordoned=l-1",
        "DEVICES, 1 of 2 free", "0 0.5 shop/p 0.5", "1 1", "gpu 2 0.5 0 0 1.5", "shop/p Running cpu 1, gpu 0.5 gpu 0 (500/1000)",
    ):  # fmt: skip
        assert line in told, told
    said = restow("describe", "node/a", "-o", "json", "--log", str(tmp_path / "d.jsonl"))
    value = json.loads(said.output)
    assert value["devices"] == [{"index": 0, "free": 500, "used": {"shop/p": 500}, "held": {}}, {"index": 1, "free": 1000, "used": {}, "held": {}}]
    assert all(one["free"] == one["allocatable"] - one["used"] - one["reserved"] for one in value["resources"])


def test_a_node_that_is_gone_says_so_and_one_that_never_was_is_not_found(describe, restow, tmp_path):
    found = log()
    found.facts(e.NodeGone("a"), kind="nodes")
    assert words(describe(found, "node/a").output) == ["node a", "it is gone; its story: restow why node/a"]
    said = restow("describe", "node/c", "--log", str(tmp_path / "d.jsonl"))
    assert said.exit_code == 2
    assert "no node 'c'" in " ".join(said.output.split())


# -- plans -----------------------------------------------------------------------------------------------------------------


def test_a_plan_in_full_says_what_became_of_each_move(describe):
    text = describe(migration(), "plan/p1").output
    assert text.startswith("plan p1 (")
    assert "1 move, done" in text.splitlines()[0]
    (row,) = [line.split() for line in text.splitlines() if line.startswith("p1-1")]
    assert row == ["p1-1", "1", "landed", "shop/web-old", "a", "b"]


def test_a_move_that_did_not_land_says_why(describe):
    made = migration(lands=False)
    made.decide("migration", c.Advance(time_at(600)), e.MigrationFailed("p1-1", "HoldLost", "it was lost"))
    text = describe(made, "plans/p1").output
    (row,) = [line.split() for line in text.splitlines() if line.startswith("p1-1")]
    assert (row[2], row[-1]) == ("failed", "HoldLost")


def test_a_plan_says_what_it_is_worth_and_as_json_all_of_it(describe, restow, tmp_path):
    made = migration(worth=Worth("GPU-hours", 24, 1_000, 3_000, 1_000, (Dear("p1-1", 1_000, {"move": 1_000}),)))
    text = describe(made, "plan/p1").output
    assert "1.0 → 3.0 GPU-hours (+2.0); the moves cost 1.0" in text
    assert "DEAREST moves" in text
    told = json.loads(restow("describe", "plan/p1", "-o", "json", "--log", export(tmp_path / "j.jsonl", made)).output)
    assert (told["plan"]["plan"], told["planned"]["worth"]["cost"], told["migrations"][0]["step"]) == ("p1", 1_000, "landed")


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([("p1-1", 1_000, {"move": 1_000}), ("p1-2", 1_000, {"move": 1_000})], "EACH of the 2 moves costs 1.0 GPU-hours (move 1.0)"),
        ([("p1-1", 1_000, {"move": 1_000}), ("p1-2", 1_000, {"work": 1_000})], "DEAREST moves, in GPU-hours"),
        ([("p1-1", 2_000, {"move": 2_000}), ("p1-2", 1_000, {"move": 1_000})], "DEAREST moves, in GPU-hours"),
        # Ten are listed at most, and the others may be cheaper.
        ([("p1-1", 1_500, {"move": 1_500})], "DEAREST moves, in GPU-hours"),
    ],
)
def test_where_each_move_costs_the_same_no_dearest_are_listed(capsys, costs, said):
    moves = [SimpleNamespace(migration=f"p1-{i}", namespace="shop", name=f"web-{i}", source="a") for i in (1, 2)]
    worth = Worth("GPU-hours", 24, 1_000, 3_000, 2_000, tuple(Dear(*one) for one in costs))
    found = each(moves, worth)
    assert found == (said if said.startswith("EACH") else None)
    if found is None:
        dearest(moves, worth)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == said
        assert len(lines) == 2 + len(costs)


def test_of_a_plan_that_is_not_known_it_says_how_to_find_one(restow, tmp_path):
    result = restow("describe", "plan/none", "--log", export(tmp_path / "n.jsonl", migration()))
    assert result.exit_code == 2
    assert "`restow get plans`" in result.output
