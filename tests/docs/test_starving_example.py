"""The walk of docs/examples/starving.md works as it stands, and its files are what it shows."""

import re
import shutil

import pytest
from docs.walks import ROOT, blocks, walk

PAGE = ROOT / "docs" / "examples" / "starving.md"


def test_the_configuration_that_it_shows_is_the_file():
    assert blocks(PAGE, "yaml")[0] == (PAGE.parent / "starving" / "scheduler.yaml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    printed, shown = walk(PAGE, tmp_path), blocks(PAGE, "")
    assert [pods(part) for part in printed] == [pods(part) for part in shown]
    for text in (printed[2], shown[2]):
        # On a busy machine others have ended by now.
        assert re.search(r"reserved on node node-1 \(its job starves\); waits there for cpu \(asks for 3, [0-2] free\)", text), text
        assert "node-1 is reserved for default/pod-4" in text
    assert "1 node(s) resource was(were) reserved" in printed[3]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[4]), printed[4]


def pods(printed: str) -> dict[str, str]:
    """Pod → status, as `kubectl get pods` prints them."""
    return dict(re.findall(r"^(pod-\d) +\d/1 +(\w+)", printed, re.M))
