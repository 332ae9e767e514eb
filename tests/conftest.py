"""For all tests."""

import logging
import os
import signal

import pytest
from effort import ALL, examples
from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing. CI draws the same examples every time, so that it
# fails for a change and not by chance; elsewhere every run draws new ones.
settings.register_profile(
    "restow", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("restow")

# A run that a script puts into the background starts with SIGINT ignored, and would hand that on to the programs that it starts: the
# tests that press Ctrl-C there would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where it is set, each of the hundreds of services that tests start would compile all of our modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def loggers():
    """Commands quieten these for their own process, and some tests call a command in this one."""
    known = [logging.getLogger(name) for name in ("restow", "nats")]
    levels = [logger.level for logger in known]
    yield
    for logger, level in zip(known, levels, strict=True):
        logger.setLevel(level)


LONG = ("integration/test_demo.py", "integration/test_upgrade.py", "simulation/test_soak.py", "bench/test_smoke.py", "domain/test_defragmentation_bound.py")
"""Files of which a test takes up to a minute, and that share nothing with others: first, so that in the end nobody waits for one of them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ALL:
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
    ranks = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get("/".join(item.path.parts[-2:]), len(LONG)))
