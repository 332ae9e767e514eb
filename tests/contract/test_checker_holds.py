"""The judge of logs (`tests/checker_holds.py`) sees every broken promise about Reservations, and takes none for broken that is kept."""

import pytest
from checker import Judge
from checker_holds import IGNORED

NODE = {"type": "cluster.node_observed", "name": "a", "uid": "a", "allocatable": {"cpu": 8, "pods": 20}, "devices": 1,
        "cpus": [[i, i, 0, 0] for i in range(8)]}  # fmt: skip
SHAPES = [
    {"type": "cluster.shape_declared", "shape": name, "spec": {"requests": {"cpu": cpu, "pods": 1}, "scheduler": "restow", "spec_digest": name, **more}}
    for name, cpu, more in [
        ("two", 2, {}), ("four", 4, {}), ("six", 6, {}), ("port", 1, {"host_ports": [{"port": 80}]}),
        ("cores", 2, {"cores": {"count": 2}}), ("gpu", 1, {"devices": {"count": 1, "milli": 600}}),
    ]
]  # fmt: skip
OWNER = {"selector": {"labels": {"app": "a"}}}


def asks(shape="four", **spec):
    said = {"tasks": [{"name": "t", "replicas": 1, "shape": shape}], "owners": [OWNER], "match_policy": "Owner", **spec}
    return {"type": "cluster.reservation_observed", "reservation": "r", "name": "r", "namespace": "d", "generation": 1, "spec": said}


def session(kind, **more):
    return {"type": f"session.{kind}", **more}


def of(kind, **more):
    return session(kind, reservation="r", slot="t-0", **more)


ACCEPTED = {"type": "reservation.accepted", "reservation": "r", "generation": 1}
ONCE, MANY = {"allocate_once": True}, {"allocate_once": False}
HOLD = of("hold_placed", node="a")
WAITS = of("hold_placed", node="a", waiting=True)
READY, RELEASED = of("hold_ready"), of("hold_released", reason="Deleted")
EXPIRED = {"type": "gc.expired", "reservation": "r"}
GONE = {"type": "cluster.reservation_gone", "reservation": "r"}
NODE_GONE = {"type": "cluster.node_gone", "name": "a"}


def pod(uid, shape="two", app="a", **more):
    labels = {"app": app} | more.pop("labels", {})
    return {"type": "cluster.pod_observed", "pod": uid, "namespace": "d", "name": uid, "shape": shape, "labels": labels, "phase": "Pending", **more}


def on(uid, **more):
    return session("pod_placed", pod=uid, node="a", **more)


def over(uid, **more):
    return of("handed_over", pod=uid, node="a", **more)


def runs(uid, **more):
    return {"type": "cluster.pod_changed", "pod": uid, "node": "a", "phase": "Running", **more}


def ends(uid):
    return {"type": "cluster.pod_gone", "pod": uid}


def refused(uid):
    return session("pod_released", pod=uid, reason="refused")


def held(shape="four", hold=HOLD, **spec):
    return [NODE, *SHAPES, asks(shape, **spec), ACCEPTED, hold]


def judged(events):
    """Each event is a commit of its own; several in a list share one. Users end pods, too."""
    judge = Judge(strict=False)
    for seq, several in enumerate(events, 1):
        several = several if isinstance(several, list) else [several]
        judge.commit(seq, several[0]["type"].partition(".")[0], seq - 1, several)
    judge.end()
    return judge.report


MOVE = {"type": "migration.planned", "moves": [{"migration": "m", "pod": "v", "source": "b", "target": "a"}]}
STEPS = [{"type": f"migration.{step}", "migration": "m"} for step in ("holding", "held", "evicting", "evicted")]


def moved(*then):
    """Pod v leaves b, and the place on a that was held for it is handed over to its successor x."""
    planned = [NODE, *SHAPES, pod("v", node="b", phase="Running"), MOVE, STEPS[0], asks("two", **ONCE) | {"migration": "m"}, ACCEPTED, HOLD]
    return [*planned, *STEPS[1:], ends("v"), pod("x"), over("x"), *then]


LANDED = [pod("y"), over("y"), runs("y", ready=True), {"type": "migration.landed", "migration": "m", "pod": "y", "node": "a"}]


def fails(uid, **more):
    return {"type": "cluster.pod_changed", "pod": uid, "node": "a", "phase": "Failed", **more}


SECOND = {"reservation": "r2"}
TWO = {"type": "migration.planned", "moves": [{"migration": id, "pod": uid, "source": "b", "target": to} for id, uid, to in (("m", "v", "a"), ("m2", "w", "c"))]}


def two_moved(second="two"):
    """Pods v and w leave b: x is given the place of v on a, and y that of w on c."""
    both = [NODE | {"name": name, "uid": name} for name in "ac"]
    holds = [asks("two", **ONCE) | {"migration": "m"}, ACCEPTED, HOLD, asks("two", **ONCE) | SECOND | {"name": "r2", "migration": "m2"}, ACCEPTED | SECOND, HOLD | SECOND | {"node": "c"}]
    events = [*both, *SHAPES, pod("v", node="b", phase="Running"), pod("w", node="b", phase="Running"), TWO, STEPS[0], STEPS[0] | {"migration": "m2"}, *holds]
    for step in STEPS[1:]:
        events += [step, step | {"migration": "m2"}]
    return [*events, ends("v"), ends("w"), pod("x"), over("x"), pod("y", second), over("y") | SECOND | {"node": "c"}]


X_ON_C, Y_ON_A = runs("x", ready=True) | {"node": "c"}, runs("y", ready=True)
THE_OTHER_WAY_ROUND = [{"type": "migration.landed", "migration": "m", "pod": "y", "node": "a"}, {"type": "migration.landed", "migration": "m2", "pod": "x", "node": "c"}]
X_FAILS_ON_C = [runs("x", phase="Pending") | {"node": "c"}, fails("x") | {"node": "c"}]

BROKEN = [
    ("capacity", [*held(), pod("x", "six"), on("x")], "a has 8 of cpu, 10 are promised (last to x)"),
    ("a hold on what is used", [NODE, *SHAPES, pod("x", "six"), on("x"), asks(**ONCE), ACCEPTED, HOLD], "8 of cpu, 10 are promised"),
    ("once, twice", [*held(**ONCE), pod("x"), over("x"), runs("x"), pod("y"), over("y")], "is handed over to y, but it is used"),
    ("bound before", [*held(**ONCE), pod("x"), over("x"), runs("x"), ends("x"), pod("y"), over("y")], "is handed over to y, but it is used"),
    ("a waiting one", [*held(hold=WAITS, pre_allocation=True), pod("x"), over("x")], "is handed over to x, but it is waiting"),
    ("waiting without leave", held(hold=WAITS), "waits for room, which its Reservation does not allow"),
    ("ready too soon", [NODE, *SHAPES, pod("x", "six", node="a", phase="Running"), asks(pre_allocation=True), ACCEPTED, WAITS, READY], "is ready, but lacks {'cpu': 2}"),
    ("ready, but held", [*held(), READY], "is ready, but it is held"),
    ("squeezed, then given", [*held(**ONCE), pod("f", "six", node="a", phase="Running"), pod("x"), over("x")], "is handed over to x, but it is waiting"),
    ("no owner", [*held(**ONCE), pod("x", app="b"), over("x")], "to x, which does not own it"),
    ("another namespace", [*held(**ONCE), pod("x", namespace="e"), over("x")], "to x, which does not own it"),
    ("another spec", [*held(match_policy="PodSpec", **ONCE), pod("x"), over("x")], "whose pod spec is another one"),
    ("unschedulable", [*held(unschedulable=True, **ONCE), pod("x"), over("x")], "but it is unschedulable"),
    ("a taint", [*held(taints=[{"key": "k", "effect": "NoSchedule"}], **ONCE), pod("x"), over("x")], "but it has the taint k"),
    ("covering", [*held("two", allocate_policy="Covering"), pod("x", "four"), over("x")], "gets 4 of cpu, 2 of it from the hold, which is Covering"),
    ("restricted", [*held("two", allocate_policy="Restricted"), pod("x", "four"), over("x")], "which is Restricted"),
    ("restricted, drawn before", [*held(allocate_policy="Restricted", **MANY), pod("x"), over("x"), pod("y", "four"), over("y")], "gets 4 of cpu, 2 of it"),
    ("what was drawn is used", [*held(**MANY), pod("x"), over("x"), pod("y", "six"), on("y")], "8 of cpu, 10 are promised (last to y)"),
    ("what comes back is held", [*held(**MANY), pod("x"), over("x"), runs("x"), ends("x"), pod("y", "six"), on("y")], "10 are promised (last to y)"),
    ("given back, and given away", [*held(**ONCE), pod("x"), over("x"), refused("x"), pod("y", "six"), on("y")], "10 are promised (last to y)"),
    ("two Reservations", [*held(**MANY), pod("x"), over("x"), over("x")], "x is placed on a, and was placed on a already"),
    ("expired, given", [*held(**ONCE), pod("x"), EXPIRED, over("x")], "but its Reservation is expired"),
    ("expired, kept", [*held(**ONCE), pod("x"), EXPIRED, on("x")], "is not released; its Reservation is expired"),
    ("gone, kept to the end", [*held(**ONCE), GONE], "at the end ('r', 't-0') is still held; its Reservation is gone"),
    ("node gone, kept", [*held(**ONCE), NODE_GONE, session("unfit", shape="two", nodes=0, reasons={})], "is not released; its node is gone"),
    ("held for the dead", [NODE, *SHAPES, asks(), ACCEPTED, EXPIRED, HOLD], "is held, but its Reservation is expired"),
    ("refused, held", [NODE, *SHAPES, asks(), {"type": "reservation.refused", "reservation": "r", "generation": 1}, HOLD], "is held, but its Reservation is refused"),
    ("lent to anybody", [*held(**ONCE), pod("x"), [of("hold_borrowed", pod="x"), on("x")]], "which does not ignore Reservations"),
    ("lent to nobody", [*held(**ONCE), pod("x", labels={IGNORED: "true"}), of("hold_borrowed", pod="x")], "lent to pod x, which does not come"),
    ("lent, then given", [*held("six", **ONCE), pod("x", "four", labels={IGNORED: "true"}), [of("hold_borrowed", pod="x"), on("x")], pod("y"), over("y")], "handed over to y, but it is waiting"),
    ("resized beyond", [*held("two"), pod("x", "four"), on("x"), asks("six") | {"generation": 2}, ACCEPTED | {"generation": 2}, of("hold_resized", shape="six")], "is resized to more than is free on a"),
    ("resized to something else", [*held("two"), of("hold_resized", shape="six")], "resized to six, which is not asked for"),
    ("no more of it asked", [*held("two"), asks(tasks=[]) | {"generation": 2}, ACCEPTED | {"generation": 2}, pod("x"), on("x")], "is not released; it is not asked for any more"),
    ("a CPU twice", [*held("cores", of("hold_placed", node="a", cores=[0, 1])), pod("x", "cores"), on("x", cores=[1, 2])], "a has 1 of ('cpu', 1), 2 are promised"),
    ("a CPU that is not there", [NODE, *SHAPES, pod("x", "cores"), on("x", cores=[1, 9])], "a has 0 of ('cpu', 9), 1 are promised"),
    ("too few CPUs", [NODE, *SHAPES, pod("x", "cores"), on("x", cores=[1])], "x gets other CPUs than it asks for: [1]"),
    ("another share", [NODE, *SHAPES, pod("x", "gpu"), on("x", devices=[{"index": 0, "milli": 500}])], "gets other devices than it asks for"),
    ("a pod's port", [NODE, *SHAPES, pod("x", "port"), on("x"), pod("y", "port"), on("y")], "y comes to a, where pod x has its port"),
    ("given back after it was ready", moved(runs("x", ready=True), fails("x"), HOLD), "is held again, but it is used"),
    ("given back by one that was deleted", moved(fails("x", deleting=5), ends("x"), HOLD), "is held again, but it is used"),
    ("given back, not placed again", moved(fails("x"), pod("y"), over("y")), "is handed over to y, but it is given back"),
    ("given back after the landing", moved(runs("x", ready=True), {"type": "migration.landed", "migration": "m", "pod": "x", "node": "a"}, fails("x"), HOLD), "is held again, but it is used"),
    ("given back by one that is not its successor", [*two_moved("four"), *X_FAILS_ON_C, HOLD | SECOND | {"node": "c"}], "('r2', 't-0') is held again, but it is used"),
    ("a user's, once", [*held(**ONCE), pod("x"), over("x"), fails("x"), HOLD], "is held again, but it is used"),
    ("a hold's port", [*held("port"), pod("x", "port", app="b"), on("x")], "x comes to a, where ('r', 't-0') has its port"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "said"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_breaks_a_promise_about_holds_is_said(events, said):
    found = judged(events).broken
    assert any(said in sentence for sentence in found), found


KEPT = [
    ("an owner takes it, and the rest is anybody's", [*held(**ONCE), pod("x"), over("x"), pod("y", "six"), on("y")]),
    ("two owners share, and what ends comes back", [*held(**MANY), pod("x"), over("x"), runs("x"), pod("y"), over("y"), ends("x"), pod("z"), over("z")]),
    ("the rest comes from the node", [*held("two", **MANY), pod("x", "six"), over("x")]),
    ("an owner that was never bound is no owner", [*held(**ONCE), pod("x"), over("x"), refused("x"), READY, pod("y"), over("y")]),
    ("a hold gives way to facts, and comes back", [*held(**ONCE), pod("f", "six", node="a", phase="Running"), ends("f"), READY, pod("x"), over("x")]),
    ("preAllocation waits", [NODE, *SHAPES, pod("f", "six", node="a", phase="Running"), asks(pre_allocation=True), ACCEPTED, WAITS, ends("f"), READY]),
    ("lent and given back", [*held("six", **ONCE), pod("x", "four", labels={IGNORED: "true"}), [of("hold_borrowed", pod="x"), on("x")], runs("x"), ends("x"), READY]),
    ("expired while it is used", [*held(**MANY), pod("x"), over("x"), runs("x"), EXPIRED, RELEASED, pod("y", "six"), on("y")]),
    ("facts between a decision and its commit", [*held(**ONCE), NODE_GONE, of("hold_released", reason="NodeLost")]),
    ("a kubelet rejects the successor", moved(fails("x"), HOLD, *LANDED)),
    ("one that was rejected is gone at once", moved([fails("x"), fails("x", deleting=5), ends("x")], HOLD, *LANDED)),
    ("equal pods come to each other's places", [*two_moved(), X_ON_C, Y_ON_A, *THE_OTHER_WAY_ROUND]),
    ("where the next one is to come, nobody else is charged", [*two_moved(), X_ON_C, pod("z", "six"), session("pod_placed", pod="z", node="c"), Y_ON_A, *THE_OTHER_WAY_ROUND]),
    ("one that is rejected there gives that place back", [
        *two_moved(), *X_FAILS_ON_C, HOLD | SECOND | {"node": "c"}, pod("n"), over("n") | SECOND | {"node": "c"}, runs("n", ready=True) | {"node": "c"}, Y_ON_A,
        THE_OTHER_WAY_ROUND[0], THE_OTHER_WAY_ROUND[1] | {"pod": "n"},
    ]),
    ("the port of an owner's hold", [*held("port", **ONCE), pod("x", "port"), over("x")]),
    ("resized where it is", [*held("two"), asks("six") | {"generation": 2}, ACCEPTED | {"generation": 2}, of("hold_resized", shape="six"), pod("x"), on("x")]),
]  # fmt: skip


@pytest.mark.parametrize("events", [case[1] for case in KEPT], ids=[case[0] for case in KEPT])
def test_what_keeps_them_is_not(events):
    assert judged(events).broken == []


def test_a_reservation_that_ends_before_a_commit_that_holds_its_slot_again_and_hands_it_over_is_no_broken_promise():
    events = [*held(**ONCE), RELEASED, pod("x"), GONE, [HOLD, over("x")]]

    def broken(read, *last):
        judge = Judge(strict=False)
        for seq, event in enumerate([*events[:-1], list(last)], 1):
            several = event if isinstance(event, list) else [event]
            judge.commit(seq, several[0]["type"].partition(".")[0], read if event == list(last) else seq - 1, several)
        return judge.report.broken

    end = len(events) - 1
    assert broken(end - 1, HOLD, over("x")) == []
    assert broken(end, HOLD, over("x")) == [f"{end + 1}: ('r', 't-0') is held, but its Reservation is gone"]
    assert broken(end - 1, over("x")) == [f"{end + 1}: ('r', 't-0') is handed over to x, but it is released"]


def test_a_hold_that_facts_took_capacity_of_before_the_commit_is_no_broken_promise():
    judge = Judge()
    events = [*held(**ONCE), pod("x"), pod("f", "six", node="a", phase="Running"), over("x")]
    for seq, event in enumerate(events, 1):
        judge.commit(seq, event["type"].partition(".")[0], seq - (2 if event is events[-1] else 1), [event])
    assert judge.report.broken == []
    assert judge.holds["r", "t-0"].state == "waiting"
