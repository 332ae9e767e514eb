"""The plugin that docs/writing-a-plugin.md shows is one file and one line of the table, and does what the page says."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from domain.build import NOW, configured, given, node, pod, run, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain import session_config as conf
from restow.domain.session.plugins import PLUGINS

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-plugin.md"


def shown() -> list[str]:
    """The files that the page shows: the plugin, and its test."""
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """As it stands on the page."""
    text = shown()[0]
    module = ModuleType("spot")
    monkeypatch.setitem(sys.modules, "spot", module)
    exec(compile(text, f"{PAGE.name}: spot", "exec"), module.__dict__)
    monkeypatch.setitem(PLUGINS, "spot", module)


def placed(**arguments):
    """Pod → node, in the order of the log. `important` was seen last; `a` is the first node by name, `z` may vanish."""
    plugins = [{"name": "spot", "arguments": arguments}, {"name": "predicates"}]
    state = given(
        configured("session", conf.read_conf({"actions": "allocate", "tiers": [{"plugins": plugins}]})),
        node("a"), node("z", labels={"example.com/spot": ""}),
        shape("low"), shape("high", priority=1000),
        pod("meek", "low"), pod("important", "high"),
    )  # fmt: skip
    events = run(state, session.decider, c.Schedule(NOW, 1_000))
    return [(event.pod, event.node) for event in events if isinstance(event, e.PodPlaced)]


def test_pods_of_low_priority_come_last_and_prefer_nodes_that_may_vanish():
    assert placed() == [("important", "a"), ("meek", "z")]


def test_its_arguments_are_read_and_checked_as_those_of_every_plugin():
    assert placed(**{"spot.below": "2000"}) == [("meek", "z"), ("important", "z")]
    for arguments, why in (
        ({"spot.weight": -1}, r"\$\.tiers\[0\]\.plugins\[0\].*spot\.weight: -1; allowed: 0 to 1000000"),
        ({"spot.colour": "red"}, r"spot\.colour: unknown; allowed: spot\.below, spot\.label, spot\.weight"),
    ):
        with pytest.raises(conf.ConfError, match=why):
            placed(**arguments)


def test_the_test_that_the_page_shows_holds():
    names: dict = {}
    exec(compile(shown()[1], f"{PAGE.name}: test_spot", "exec"), names)
    names["test_pods_of_low_priority_come_last_and_prefer_nodes_that_may_vanish"]()
