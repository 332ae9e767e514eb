"""The walk of docs/examples/defragmentation.md works as it stands, and prints what it shows."""

import re
import shutil

import pytest
import yaml
from docs.walks import ROOT, blocks, walk

from restow.runtime.policy_file import read

PAGE = ROOT / "docs" / "examples" / "defragmentation.md"


def test_the_policy_is_taken_and_plans_on_demand():
    assert read(yaml.safe_load((PAGE.parent / "defragmentation" / "policy.yaml").read_text())).defragmentation.demand


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    _, *printed = walk(PAGE, tmp_path)  # the first block only makes what is looked at
    shown = blocks(PAGE, "")
    assert len(printed) == len(shown)
    for part, said in zip(printed[:-1], shown[:-1], strict=True):
        assert plain(part) == plain(said)
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[-1]), printed[-1]


def plain(text: str) -> list[str]:
    """Without what is another one each time: names that are made up, times, sequences; and without widths, which follow from them."""
    for pattern, word in (
        (r"web-[0-9a-z]+-[0-9a-z]+", "WEB"),
        (r"127\.0\.0\.1:\d+", "HERE"),
        (r"sequence \d+", "sequence N"),
        (r"\b(p[0-9a-f]{10}|m[0-9a-z]{7})\b", "PLAN"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"in \d+\.\d s", "in N s"),
        (r"in \d+ steps", "in N steps"),
        (r" deleted from \S+ namespace", " deleted"),  # kubectl 1.34 and newer
        (r" +", " "),
    ):
        text = re.sub(pattern, word, text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return list(dict.fromkeys(line for line in lines if not line.startswith("No resources")))
