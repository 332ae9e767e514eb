"""Holds and windows of time (RULES G-8): no new hold on a node that a window has closed, hand-overs as if there was none."""

from datetime import datetime

from domain.build import configured, given, node, owner, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.session_config import read_conf

EBOOK = {"business_type": "ebook"}


def at(clock: str) -> int:
    return round(datetime.fromisoformat(f"2025-06-10T{clock}:00+00:00").timestamp()) * 1000


def window(cpu: int = 8) -> e.Event:
    """Open from one to four o'clock over the nodes with the label."""
    label = {"nodeSelector": EBOOK, "resources": {"cpu": cpu}, "startReserveAgo": "2h", "cron": "0 3-4 * * *"}
    plugins = [{"name": "predicates"}, {"name": "nodeorder"}, {"name": "reservation"}]
    plugins.append({"name": "reserve", "arguments": {"reservelabels": [label]}})
    return configured("session", read_conf({"actions": "enqueue, reserve, allocate", "tiers": [{"plugins": plugins}]}))


def held(*facts, clock: str):
    state = given(window(), *facts, shape("s"), time=at("00:00"))
    ask(state, "r", clock)
    return state


def ask(state, name: str, clock: str) -> None:
    then(state, reservation(name, ("t", 1, "s"), owners=(owner(app="owner"),), created=at(clock), ttl=0), time=at(clock))
    run(state, reservations.decider, c.Review(at(clock)))
    run(state, session.decider, c.Schedule(at(clock)))


def where(state, name: str = "r") -> str:
    return state.slots[name]["t-0"].node


def test_no_new_hold_comes_to_a_closed_node():
    facts = node("a", labels=EBOOK), node("b", cpu=1_000)
    assert where(held(*facts, clock="00:30")) == "a"
    assert where(held(*facts, clock="01:30")) == "b"


def test_a_hold_that_fits_on_closed_nodes_only_waits_and_says_so_until_the_window_is_over():
    state = held(node("a", labels=EBOOK), clock="01:30")
    phase = state.phases["r"]
    assert (phase.phase, phase.reason) == ("Pending", "Unschedulable")
    assert phase.message == "0/1 nodes are available: 1 node(s) were kept free for a reservation window."
    due = session.decider.deadline(state)
    assert due is not None
    while where(state) == "" and due <= at("05:00"):
        run(state, session.decider, c.Schedule(due))
        then(state, e.Synced("nodes", "1"), time=due)
        due = session.decider.deadline(state) or at("06:00")
    assert where(state) == "a"


def test_an_owner_takes_a_hold_on_a_node_that_was_closed_since():
    for policy in ("PodSpec", "Owner"):
        state = given(window(), node("a", labels=EBOOK), shape("s"), time=at("00:00"))
        fact = reservation("r", ("t", 1, "s"), owners=(owner(app="owner"),), created=at("00:30"), ttl=0, match_policy=policy)
        then(state, fact, time=at("00:30"))
        run(state, reservations.decider, c.Review(at("00:30")))
        run(state, session.decider, c.Schedule(at("00:30")))
        then(state, pod("mine", labels={"app": "owner"}), pod("other"), time=at("02:00"))
        run(state, session.decider, c.Schedule(at("02:00")))
        assert state.placed["mine"].hold == ("r", "t-0")
        assert "other" not in state.placed
