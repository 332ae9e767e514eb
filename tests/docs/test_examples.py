"""The walks of docs/examples/reservation.md and window.md work as they stand, and their files are what they show."""

import re
import shutil

import pytest
import yaml
from docs.walks import ROOT, blocks, walk

from restow.domain.session_config import read_conf

EXAMPLES = ROOT / "docs" / "examples"
PAGES = ["reservation", "window"]


@pytest.mark.parametrize("page", PAGES)
def test_what_it_shows_is_what_its_files_say(page):
    shown = blocks(EXAMPLES / f"{page}.md", "yaml")
    assert shown[0] == (EXAMPLES / page / "scheduler.yaml").read_text()
    assert read_conf(yaml.safe_load(shown[0])).actions
    files = "".join(path.read_text() for path in sorted((EXAMPLES / page).glob("*.yaml")))
    assert all(block in files for block in shown)


def test_its_reservation_is_the_seeds():
    seed = ROOT / "tests" / "e2e" / "data" / "complex-reservation.yaml"
    assert (EXAMPLES / "reservation" / "reservation.yaml").read_text() == seed.read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_of_the_reservation_prints_what_it_says(tmp_path):
    page = EXAMPLES / "reservation.md"
    printed, shown = walk(page, tmp_path), blocks(page, "")
    assert [where(part) for part in printed] == [where(part) for part in shown]
    for i, words in (
        (0, "complex-reservation   Available   3     0         0         3           0"),
        (1, "0/2 nodes are available: 2 Insufficient cpu."),
        (2, "has not as many pods of each spec as Reservation default/complex-reservation has slots"),
        (3, '{"busybox":{"phase":{"Succeeded":1}},"nginx":{"phase":{"Succeeded":2}}}'),
        (4, "all 3 slots were handed over to their owners"),
    ):
        assert words in printed[i]
        assert words in shown[i]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[4]), printed[4]


def where(printed: str) -> dict[str, tuple[str, str]]:
    """Pod → status and node, as `kubectl get pods -o wide` prints them."""
    rows = re.findall(r"^(\S+) +\d/1 +(\w+) +\d+ +\S+ +\S+ +(\S+)", printed, re.M)
    return {pod: (status, node) for pod, status, node in rows}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_of_the_window_prints_what_it_says(tmp_path):
    page = EXAMPLES / "window.md"
    printed, shown = walk(page, tmp_path), blocks(page, "")
    assert "2 node(s) were kept free for a reservation window." in printed[0]
    assert [ready(part) for part in printed] == [ready(part) for part in shown]
    assert [ready(part) for part in shown] == [{}, {"low": "28", "nightly": "10"}, {"low": "48", "nightly": "0"}]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[1]), printed[1]


def ready(printed: str) -> dict[str, str]:
    """ReplicaSet → pods that are ready."""
    return dict(re.findall(r"^(low|nightly) +\d+ +\d+ +(\d+)", printed, re.M))
