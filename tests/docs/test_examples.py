"""The walks of docs/examples/reservation.md and window.md work as they stand, and their files are what they show."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from restow.domain.session.conf import read_conf

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGES = ["reservation", "window"]


def blocks(page: str, language: str) -> list[str]:
    """Those of one language; commands' output has none."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (EXAMPLES / f"{page}.md").read_text(), re.M | re.S)
    return [text for said, text in fenced if said == language]


def walk(page: str, folder: Path) -> list[str]:
    """What each block of commands prints."""
    (folder / "docs").symlink_to(ROOT / "docs")
    parts = "".join(f"echo '@@'\n{block}" for block in blocks(page, "sh"))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("KUBECONFIG", "COLUMNS"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            ["bash", "-c", "set -euo pipefail\n" + parts], cwd=folder, env=environment, capture_output=True, text=True, timeout=180
        )
    finally:
        subprocess.run([Path(sys.executable).with_name("restow"), "down"], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("@@\n")[1:]


@pytest.mark.parametrize("page", PAGES)
def test_what_it_shows_is_what_its_files_say(page):
    shown = blocks(page, "yaml")
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
    printed, shown = walk("reservation", tmp_path), blocks("reservation", "")
    assert [where(part) for part in printed] == [where(part) for part in shown]
    for i, words in (
        (0, "complex-reservation   Available   3     0         3           0"),
        (1, "0/2 nodes are available: 2 Insufficient cpu."),
        (2, "has not as many pods of each spec as Reservation default/complex-reservation has places"),
        (3, '{"busybox":{"phase":{"Succeeded":1}},"nginx":{"phase":{"Succeeded":2}}}'),
        (4, "all 3 places were handed over to their owners"),
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
    printed, shown = walk("window", tmp_path), blocks("window", "")
    assert "2 node(s) were kept free for a reservation window." in printed[0]
    assert [ready(part) for part in printed] == [ready(part) for part in shown]
    assert [ready(part) for part in shown] == [{}, {"low": "28", "nightly": "10"}, {"low": "48", "nightly": "0"}]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[1]), printed[1]


def ready(printed: str) -> dict[str, str]:
    """ReplicaSet → pods that are ready."""
    return dict(re.findall(r"^(low|nightly) +\d+ +\d+ +(\d+)", printed, re.M))
