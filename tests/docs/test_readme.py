"""What the README shows works: its tour is run as it stands, its make targets and links exist."""

import ast
import re
import shutil
import tokenize
from pathlib import Path

import pytest
from docs.pages import FOR_USERS, ROOT, anchor, headings, outside_fences
from docs.walks import walk

README = (ROOT / "README.md").read_text()
LONGEST = 200
"""Characters of a table's cell: what is longer is a paragraph, and belongs under the table."""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the tour needs kubectl")
def test_the_tour_runs_as_it_stands(tmp_path):
    printed = "".join(walk(ROOT / "README.md", tmp_path, installed=False))
    assert printed.count("worker-") >= 2, printed
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed), printed
    assert "left of its capability" in printed
    assert re.search(r"^default +train +Running +3 +3 +0 +research", printed, re.M), printed
    assert "nothing is left running" in printed
    (log,) = (tmp_path / ".restow").iterdir()
    assert f"the log is kept: restow log stats --log .restow/{log.name}" in printed


def test_every_make_target_of_the_readme_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"(?:`|\$ )make ([a-z]+)", README))
    assert named <= targets, named - targets


PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    return {anchor(title) for _, title in headings(page.read_text())}


CONTENTS = [*FOR_USERS, "runbooks", "slo", "architecture", "sessions", "migrations", "writing-a-plugin"]


@pytest.mark.parametrize("name", CONTENTS)
def test_a_page_begins_with_its_contents(name):
    text = (ROOT / "docs" / f"{name}.md").read_text()
    wanted = [f"{'  ' * (level - 2)}* [{title}](#{anchor(title)})" for level, title in headings(text) if level in (2, 3)]
    shown = [line for line in text.partition("\n## ")[0].splitlines() if re.match(r" *\* \[.*\]\(#", line)]
    assert shown == wanted


def test_nothing_that_is_published_refers_to_what_readers_do_not_have():
    files = [ROOT / page for page in PAGES] + [path for folder in ("deploy", "docs", "proto") for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".png"]
    ours = re.compile(r"\b(RULES|DESIGN|STYLE)( |\.md)[\dG-]|\b[Ss]eeds? 00\d|\bthe seeds'")
    assert {(path.name, found[0]) for path in files if (found := ours.search(path.read_text()))} == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_cell_holds_a_phrase(page):
    lines = outside_fences((ROOT / page).read_text()).splitlines()
    cells = [cell.strip() for line in lines if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
    assert [cell for cell in cells if len(cell) > LONGEST] == []


def test_every_example_is_in_the_index():
    index = (ROOT / "docs" / "examples" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs" / "examples").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_the_readme_counts_plugins_and_examples_as_they_are():
    """Of the descheduler our own and Volcano's are not upstream's, and DefaultEvictor belongs to the framework."""
    from restow.domain.descheduling.plugins import PLUGINS as DESCHEDULING
    from restow.domain.session.plugins import PLUGINS

    words = {6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen"}
    examples = {path.stem for path in (ROOT / "docs" / "examples").glob("*.md")} - {"README"}
    upstreams = len(DESCHEDULING.keys() - {"DefaultEvictor", "Defragmentation", "LoadAware"})
    assert f", {words[len(PLUGINS)]} plugins." in README
    assert f"framework with {words[upstreams]} of its plugins" in README
    assert f"| {words[len(examples)]} walkthroughs" in README


def test_the_glossary_is_short_and_in_order():
    terms = re.findall(r"^\| (\w[\w -]*) \| ", (ROOT / "docs" / "glossary.md").read_text(), re.M)[1:]
    assert 30 < len(terms) <= 45
    assert terms == sorted(terms, key=str.lower)


RETIRED = re.compile(
    r"\b(?:front doors?|boards?|desks?|rooms?|lent|came backs|tells of no)\b|\b(?:draws?|drew|drawn) (?:from|of) (?:it|them|a hold|a slot|the hold)\b"
    r"|\b(?<!in )places? of\b|\bplaces? (?:that|held)\b|\b(?:landing|no|all|each|takes a|\d+) places?\b(?! gained)",
    re.I,
)
"""API, node snapshot, client, capacity, borrowed, bounced, not found, allocated, slot: the glossary's terms, and the field's."""
OF_OLD_TEXTS = {"contracts/upcasters.py", "domain/config.py"}
"""They read what earlier releases wrote."""


NAMES = re.compile(r"(?:^|_)(?:room|rooms|roomy|lent|came_back|drawn|drawers)(?:_|$)|Room|Lent(?![a-z])|CameBack|Drawn", re.M)
"""capacity, slot, borrowed, bounced, allocated: what identifiers must not be called again."""
OF_CLASSES = re.compile(r"^(?:_?[Kk]inds|_kind|_?Kind|\\w*OfAKind|_?[Pp]laces|Place)$")
"""Equivalence classes, label classes, classes of Reservations and nodes; `kind` is Kubernetes'."""
SILENT = {"e", "c", "some", "left", "told", "without", "_many"}
"""Names that explain nothing, of functions and parameters that others call."""
OF_OLD_LOGS = {"contracts/upcasters.py": {"rooms"}}
"""Names of what earlier releases wrote."""


def test_no_name_in_the_code_is_a_retired_word():
    found = {}
    for portion in ("libs", "services"):
        for path in (ROOT / portion / "restow").rglob("*.py"):
            with path.open("rb") as file:
                names = {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}
            where = path.relative_to(ROOT / portion / "restow").as_posix()
            if wrong := {name for name in names if NAMES.search(name)} - OF_OLD_LOGS.get(where, set()):
                found[where] = wrong
    assert found == {}


def test_no_sentence_of_the_output_has_a_retired_word():
    found = {}
    for portion in ("libs", "services"):
        for path in (ROOT / portion / "restow").rglob("*.py"):
            where = path.relative_to(ROOT / portion / "restow").as_posix()
            wrong = {text for text in sentences(path) if RETIRED.search(text)}
            if wrong and where not in OF_OLD_TEXTS:
                found[where] = wrong
    assert found == {}


def sentences(path):
    """Strings that are no docstrings; an f-string with 0 for what it names."""
    tree = ast.parse(path.read_bytes())
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            apart.update(map(id, node.values))
            yield "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


@pytest.mark.parametrize("folder", ["session", "topology", "reservation", "fragmentation", "volumes", "migration"])
def test_what_is_alike_is_called_a_class(folder):
    found = {}
    for path in (ROOT / "libs" / "restow" / "domain" / folder).rglob("*.py"):
        with path.open("rb") as file:
            names = {token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME}
        if wrong := {name for name in names if OF_CLASSES.match(name)}:
            found[path.name] = wrong
    assert found == {}


def test_names_of_the_core_explain_something():
    found = set()
    for path in (ROOT / "libs" / "restow" / "domain").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
                found |= {(path.name, node.name, name) for name in SILENT & {node.name, *arguments}}
    assert found == set()


@pytest.mark.parametrize("page", PAGES)
def test_one_term_a_thing(page):
    """Also in what it shows of the output; names that were are called by their names."""
    assert RETIRED.findall(re.sub(r"`[^`\n]*`", "", (ROOT / page).read_text())) == []
