"""The walk of docs/examples/checkpoint.md works as it stands, and prints what it shows."""

import ast
import re
import shutil

import pytest
import yaml
from docs.test_defragmentation_example import plain
from docs.walks import ROOT, blocks, walk

from restow.runtime.policy_file import read

PAGE = ROOT / "docs" / "examples" / "checkpoint.md"
FILES = PAGE.parent / "checkpoint"


def test_the_policy_is_taken_and_is_what_the_page_shows():
    text = (FILES / "policy.yaml").read_text()
    assert [hook.name for hook in read(yaml.safe_load(text)).hooks] == ["trainers"]
    (shown,) = blocks(PAGE, "yaml")
    assert shown in text


def test_a_workload_that_is_asked_over_http_is_twenty_lines():
    code = ast.unparse(ast.parse((FILES / "trainer.py").read_text()))
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    _, *printed = walk(PAGE, tmp_path)  # the first block only makes what is looked at
    shown = blocks(PAGE, "")
    assert len(printed) == len(shown)
    for part, said in zip(printed, shown, strict=True):
        assert of_these_pods(part) == of_these_pods(said)


def of_these_pods(text: str) -> list[str]:
    """Without what is another one each time."""
    text = re.sub(r"(trainer|cache)-[0-9a-z]+-[0-9a-z]+", r"\1", text)
    text = re.sub(r"\bp[0-9a-f]{10}(-1)?\b", "PLAN", text)
    text = re.sub(r"^ *\d+ +[\d:.]+ +migration", "migration", text, flags=re.M)
    text = re.sub(r"T[\d:.]+Z", "T", re.sub(r"\d{4}-\d\d-\d\dT", "T", text))
    text = re.sub(r"advance ← \S+", "advance", text)
    # Who answers at once may have done so before anybody hears that it was asked.
    text = re.sub(r"^.* asked +the workload of default/trainer .*\n", "", text, flags=re.M)
    return plain(text.replace("\nup;", " up;").replace("warming up;", "warming\nup;"))
