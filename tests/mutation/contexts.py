"""A pytest plugin: which test runs which lines of `restow.domain`, and how long each takes. `RESTOW_CONTEXTS` names the folder for it.

Not pytest-cov: with xdist each worker writes for itself, and nothing is combined before it is asked for."""

import json
import os
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["RESTOW_CONTEXTS"])


class Contexts:
    def __init__(self, source: str) -> None:
        self.cover = coverage.Coverage(data_file=None, include=[source if source.endswith(".py") else f"{source}/*"], messages=False)
        self.seconds: dict[str, float] = {}
        self.cover.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.cover.switch_context(item.nodeid)
        yield
        self.cover.switch_context("")

    def pytest_runtest_logreport(self, report):
        if report.passed:
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self):
        self.cover.stop()
        data = self.cover.get_data()
        found = {}
        for file in data.measured_files():
            lines = {line: [name for name in names if name] for line, names in data.contexts_by_lineno(file).items()}
            found[file] = {line: names for line, names in lines.items() if names}
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{os.getpid()}.json").write_text(json.dumps({"seconds": self.seconds, "lines": found}))


def pytest_configure(config):
    # With xdist the controller runs no test.
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(Contexts(os.environ["RESTOW_SOURCE"]), "restow-contexts")
