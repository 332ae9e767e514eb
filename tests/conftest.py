"""For all tests."""

import os

from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing. CI draws the same examples every time, so that it
# fails for a change and not by chance; elsewhere every run draws new ones.
settings.register_profile(
    "restow", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("restow")
