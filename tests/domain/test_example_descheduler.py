"""The descheduler's plugin that docs/writing-a-plugin.md shows is one module and one line of the registry, and does what the page says."""

from pathlib import Path

import pytest
from domain import example_descheduler as example
from domain.build import NOW, configured, given, node, pod, shape
from domain.descheduling_words import HOUR, WEB, evaluate, policy, profile
from domain.saga import decider

from restow.contracts import commands as c
from restow.domain.config import MigrationConfig
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import PolicyError, written

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-plugin.md").read_text()
MARKED = {"example.com/leave": ""}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(PLUGINS, example.NAME, example)


def cluster(*facts):
    return given(node("n1", labels=MARKED), node("n2", labels=MARKED), node("n3"), shape("s"), pod("a", node="n1", owner=WEB), *facts)


def test_pods_leave_marked_nodes():
    outcome = evaluate(cluster(pod("b", node="n3", owner=WEB)), policy(profile(example.NAME)), NOW + HOUR)
    assert [(one.pod, one.reason) for one in outcome.evictions] == [("a", "its node is marked")]


def test_hold_first_for_nodes_that_are_not_marked():
    config = MigrationConfig(policy=written(policy(profile(example.NAME))))
    (planned,) = decider.decide(cluster(configured("migration", config)), c.Deschedule(NOW, "api", "now"))
    assert [(move.pod, move.source, move.target) for move in planned.moves] == [("a", "n1", "n3")]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(PolicyError, match="nodeLabel: nothing; allowed: the key of a label"):
        policy(profile(example.NAME, {"nodeLabel": ""}))


def test_the_page_shows_it_as_it_is():
    assert f"```python\n{Path(example.__file__).read_text()}```" in PAGE
