"""The release before this one, as its wheel, in an environment of its own: the packages that it needs are those of this one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _git(*args: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def last_release() -> tuple[str, str]:
    """Version and commit: the tag `v<version>` of the newest release in CHANGELOG.md, else the commit that says so. Skips the test where neither is there."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    version = next(line.removeprefix("## ") for line in lines if line.startswith("## ") and line != "## Unreleased")
    commit = _git("rev-parse", "--verify", "--quiet", f"v{version}^{{commit}}") or _git("log", "--format=%H", "-1", f"--grep=^Release {version}$")
    if not commit:
        pytest.skip(f"needs the last release: there is no tag v{version} in this checkout's history (git fetch --tags --unshallow)")
    return version, commit


def install(commit: str, folder: Path) -> str:
    """The Python that runs it."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    assert tomllib.loads((source / "pyproject.toml").read_text())["project"]["name"] == "restow"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(source)])
    (wheel,) = folder.glob("restow-*.whl")
    venv.create(folder / "venv", with_pip=False)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")}))
    _run([*pip, "install", "--no-deps", "--no-index", "--target", str(place), str(wheel)])
    # A path in a .pth is not searched for more of them: this checkout, which is installed so, is not found from there.
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "venv" / "bin" / "python")


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
