"""A cluster whose pods are never alike twice: what is remembered of shapes is bounded (issue 10, log 14)."""

import pytest
from domain.build import NOW, node, pod, reservation, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.decider import decide
from restow.domain.evolve import shapes
from restow.domain.fold import fold
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(shapes, "LEAST", 10)


class Log:
    """Commits, and the state that they are folded into."""

    def __init__(self):
        self.state, self.commits = ClusterState(), []

    def add(self, family, *events):
        self.commits.append((family, (Decision(c.Observe("pods", "watch"), tuple(events)),)))
        fold(self.state, len(self.commits), family, NOW, self.commits[-1][1])

    def decide(self, decider, command):
        events = decide(self.state, decider, command)
        self.add(decider.family, *events)
        return events

    def folded(self, first=0, state=None):
        state = state or ClusterState()
        for seq, (family, decisions) in enumerate(self.commits[first:], first + 1):
            fold(state, seq, family, NOW, decisions)
        return state


def days(log, count, first=0):
    """Each day a pod of another image comes, runs, and goes."""
    for day in range(first, first + count):
        log.add("cluster", shape(f"s{day}"), pod(f"p{day}", f"s{day}"))
        log.decide(session.decider, c.Schedule(NOW))
        log.add("cluster", e.PodGone(f"p{day}"))


def test_shapes_that_nobody_names_any_more_are_forgotten():
    log = Log()
    log.add("cluster", node("n"), shape("kept"), pod("stays", "kept"))
    days(log, 100)
    assert len(log.state.shapes) == len(log.state.vectors) <= 14
    assert "kept" in log.state.shapes


def test_who_comes_back_is_declared_again_and_placed():
    log = Log()
    log.add("cluster", node("n"), shape("old"), pod("a", "old"))
    log.add("cluster", e.PodGone("a"))
    days(log, 20)
    assert "old" not in log.state.shapes
    log.add("cluster", shape("old"), pod("b", "old"))
    assert [event.pod for event in log.decide(session.decider, c.Schedule(NOW))] == ["b"]


def test_what_a_reservation_asks_for_and_holds_is_kept():
    log = Log()
    log.add("cluster", node("n"), shape("held"), reservation("r", ("t", 1, "held")))
    days(log, 40, first=-40)
    assert "held" in log.state.shapes, "it was not looked at yet"
    log.decide(reservations.decider, c.Review(NOW))
    log.decide(session.decider, c.Schedule(NOW))
    days(log, 40)
    assert "held" in log.state.shapes
    log.add("cluster", e.ReservationGone("r"))
    log.decide(session.decider, c.Schedule(NOW))
    days(log, 40, first=40)
    assert "held" not in log.state.shapes


def test_a_state_folded_again_or_from_a_snapshot_remembers_the_same():
    log = Log()
    log.add("cluster", node("n"), shape("kept"), pod("stays", "kept"))
    days(log, 37)
    image = dump(log.state)
    assert dump(log.folded()) == image
    for at in (20, 50, 90):
        half = ClusterState()
        for seq, (family, decisions) in enumerate(log.commits[:at], 1):
            fold(half, seq, family, NOW, decisions)
        assert dump(log.folded(at, load(dump(half)))) == image, at
