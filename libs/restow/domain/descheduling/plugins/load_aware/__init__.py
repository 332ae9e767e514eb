"""The plugin LoadAware (Volcano descheduler's)."""

from restow.domain.descheduling.plugins.load_aware.args import Args
from restow.domain.descheduling.plugins.load_aware.plugin import run

NAME, POINTS = "LoadAware", ("balance",)

__all__ = ["NAME", "POINTS", "Args", "run"]
