"""The pages' fenced blocks, and a run of their commands as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: Path, language: str) -> list[str]:
    """Those of one language; commands' output has none."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [text for said, text in fenced if said == language]


def walk(page: Path, folder: Path, seconds: float = 400, *, installed: bool = True) -> list[str]:
    """What each block of commands prints, all run by one shell in a folder where docs/, deploy/ and .venv/ are; what they started is
    stopped. `seconds` ends what hangs; a machine that is busy with six other things took over 120.
    `installed`: the PATH leads to `restow`; without, only to what a new machine has, and the page must say how."""
    for part in ("docs", "deploy"):
        (folder / part).symlink_to(ROOT / part)
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    parts = "".join(f"echo '@@'\n{block}" for block in blocks(page, "sh"))
    ours = str(Path(sys.executable).parent)
    others = [place for place in os.environ["PATH"].split(os.pathsep) if place and not (Path(place) / "restow").exists()]
    environment = os.environ | {"PATH": os.pathsep.join([ours, *others] if installed else others)}
    for name in ("KUBECONFIG", "COLUMNS", "VIRTUAL_ENV"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            ["bash", "-c", "set -euo pipefail\n" + parts], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
        )
    finally:
        subprocess.run([Path(sys.executable).with_name("restow"), "down"], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("@@\n")[1:]
