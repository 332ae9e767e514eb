"""The walk of docs/examples/starving.md works as it stands, and its files are what it shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "examples" / "starving.md"
TEXT = PAGE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)


def test_the_configuration_that_it_shows_is_the_file():
    assert blocks("yaml")[0] == (PAGE.parent / "starving" / "scheduler.yaml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_the_walk_prints_what_it_says(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    parts = "".join(f"echo '@@'\n{block}" for block in blocks("sh"))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("KUBECONFIG", "COLUMNS"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            ["bash", "-c", "set -euo pipefail\n" + parts], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
        )
    finally:
        subprocess.run([Path(sys.executable).with_name("restow"), "down"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split("@@\n")[1:]
    shown = re.findall(r"^```sh\n.*?^```\n\n```\n(.*?)^```$", TEXT, re.M | re.S)
    assert [pods(part) for part in printed] == [pods(part) for part in shown]
    for part in ("reserved on node node-1 (its job starves); waits there for cpu (asks for 3, 0 free)", "node-1 is reserved for default/pod-4"):
        assert part in printed[2]
        assert part in shown[2]
    assert "1 node(s) resource was(were) reserved" in printed[3]
    assert re.search(r"(\d+) of \1 decisions re-decided identically", printed[4]), printed[4]


def pods(printed: str) -> dict[str, str]:
    """Pod → status, as `kubectl get pods` prints them."""
    return dict(re.findall(r"^(pod-\d) +\d/1 +(\w+)", printed, re.M))
