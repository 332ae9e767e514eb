"""The pages say which plugin is heard where, which actions there are and in which order rules are asked."""

import re
from pathlib import Path

from restow.domain.session.actions import ACTIONS, RESERVE
from restow.domain.session.framework import POINTS, STAGES
from restow.domain.session.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sessions.md").read_text()
FOLDER = ROOT / "libs" / "restow" / "domain" / "session" / "plugins"


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's first table, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2]
    table = re.search(r"^\|.*?(?=\n\n)", section, re.M | re.S)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def heard(plugin: str) -> set[str]:
    """The points at which a plugin's folder registers anything."""
    plugin = plugin.replace("-", "_")
    text = "".join(path.read_text() for path in sorted([*FOLDER.glob(f"{plugin}.py"), *(FOLDER / plugin).glob("*.py")]))
    points = {point for point in re.findall(r'\b(?:order|veto|score|hear)\(\s*"(\w+)"', text) if point in POINTS}
    if "extensions.filter(" in text:
        points.add("predicate")
    return points


def test_every_extension_point_is_there_with_its_plugins():
    section = (ROOT / "docs" / "writing-a-plugin.md").read_text().partition("\n## Extension points\n")[2]
    lines = re.findall(r"^\| `(\w+)` \|.*\| ([\w, -]+) \|$", section, re.M)
    said = {point: set(plugins.split(", ")) for point, plugins in lines}
    assert said.keys() == POINTS.keys()
    found = {plugin: heard(plugin) for plugin in PLUGINS}
    for point, plugins in said.items():
        registered = {plugin for plugin, points in found.items() if point in points}
        assert registered == plugins, point


def test_every_action_is_there():
    named = [re.findall(r"`(\w+)`", row[0])[0] for row in rows("Actions")]
    assert sorted(named) == sorted([*ACTIONS, RESERVE, RESERVE])


def test_the_stages_of_rules_are_in_their_order():
    stages = [row[0].strip("`") for row in rows("Rules about nodes, and how reasons are counted")]
    assert stages == ["(first)", *STAGES]
