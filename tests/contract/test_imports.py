"""Who may import whom (DESIGN 8). `lint-imports` holds the deny-lists; the allow-lists and clock calls are checked here."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PORTIONS = (ROOT / "libs", ROOT / "services")
LINT = Path(sys.executable).with_name("lint-imports")
RULES = configparser.ConfigParser()
RULES.read(ROOT / ".importlinter")
ROOTS = RULES["importlinter"]["root_packages"].split()
NO_CLOCK = set(RULES["importlinter:contract:core"]["forbidden_modules"].split())
ALLOWED = {"restow.contracts": {"msgspec"}, "restow.domain": {"msgspec", "numpy"}}
"""All that these may import beside the standard library and Restow."""
OPTIONAL = {"restow.domain.defragmentation.bound.program": {"highspy"}}
"""What an extra of the package installs, and one module uses where it is there: no decision depends on it."""


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the repository's contracts on the packages below `folder`."""
    paths = os.pathsep.join(str(folder / p.name) for p in PORTIONS)
    return subprocess.run(
        [LINT, "--no-cache", "--config", str(ROOT / ".importlinter")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_are_kept():
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_package_is_forgotten():
    present = {f"restow.{p.parent.name}" for portion in PORTIONS for p in portion.glob("restow/*/__init__.py")}
    assert present == set(ROOTS), "name every package below restow in .importlinter"


def test_the_namespace_has_no_init_and_every_folder_below_has_one():
    for portion in PORTIONS:
        assert not (portion / "restow" / "__init__.py").exists(), "restow is a namespace package in two portions"
        for source in portion.glob("restow/*/**/*.py"):
            assert (source.parent / "__init__.py").exists(), f"{source.parent} needs an __init__.py to be checked"


VIOLATIONS = {
    "a service imports another": ("descheduler", "import restow.garbage_collector", "Services never import"),
    "the CLI imports a service": ("cli", "import restow.descheduler", "Services never import"),
    "a library imports a service": ("runtime", "import restow.descheduler", "Services over shells"),
    "the core imports a shell": ("domain", "import restow.eventlog", "Services over shells"),
    "the contracts import the core": ("contracts", "import restow.domain", "Services over shells"),
    "the core asks the machine": ("domain", "import restow.machine", "The core knows no clock"),
    "the core reads the clock": ("domain", "from time import monotonic", "The core knows no clock"),
    "the core awaits": ("domain", "import asyncio", "The core knows no clock"),
    "the log knows the domain": ("eventlog", "import restow.domain", "The log moves bytes"),
    "a service speaks NATS": ("descheduler", "import nats", "Only the JetStream adapter"),
    "another adapter speaks NATS": ("eventlog", "from nats.aio.client import Client", "Only the JetStream adapter"),
    "the runtime uses the Kubernetes client": ("runtime", "import kubernetes_asyncio", "Only kube imports"),
    "kubesim imports the contracts": ("kubesim", "import restow.contracts", "kubesim imports nothing"),
    "a service branches on kubesim": ("cluster_watcher", "import restow.kubesim", "only the CLI"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The sources, to be spoilt."""
    folder = tmp_path_factory.mktemp("spoilt")
    for portion in PORTIONS:
        shutil.copytree(portion, folder / portion.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("what", VIOLATIONS)
def test_a_violation_is_found(copy, what):
    package, line, contract = VIOLATIONS[what]
    spoilt = next(copy.glob(f"*/restow/{package}")) / "spoilt_by_a_test.py"
    spoilt.write_text(line + "\n")
    try:
        run = lint(copy)
    finally:
        spoilt.unlink()
    broken = [row for row in run.stdout.splitlines() if re.search(r" BROKEN( \(\d+ ignored imports?\))?\s*$", row)]
    assert run.returncode != 0, run.stdout
    assert any(contract in row for row in broken), run.stdout


@pytest.mark.parametrize("package", ALLOWED)
def test_the_core_imports_nothing_but_what_is_allowed(package):
    graph = grimp.build_graph(*ROOTS, include_external_packages=True, cache_dir=None)
    allowed = ALLOWED[package] | (set(sys.stdlib_module_names) - NO_CLOCK)
    for module in {package} | graph.find_descendants(package):
        for imported in graph.find_modules_directly_imported_by(module):
            assert imported.startswith("restow.") or imported in allowed | OPTIONAL.get(module, set()), f"{module} imports {imported}"


def test_the_core_asks_nobody_for_the_time():
    for source in (ROOT / "libs" / "restow" / "domain").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}:
                owner = ast.unparse(node.value)
                assert owner not in {"datetime", "date", "datetime.datetime", "datetime.date"}, f"{source}:{node.lineno}"
