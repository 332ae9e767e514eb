"""The registry of plugins: one line each."""

from types import ModuleType

from restow.domain.config import PluginConfig
from restow.domain.session.args import Args
from restow.domain.session.plugins import (
    binpack,
    capacity,
    conformance,
    drf,
    fragmentation,
    gang,
    nodeorder,
    overcommit,
    predicates,
    priority,
    proportion,
    reservation,
    reserve,
    sla,
)

_PLUGINS: dict[str, ModuleType] = {
    "binpack": binpack,
    "capacity": capacity,
    "conformance": conformance,
    "drf": drf,
    "fragmentation": fragmentation,
    "gang": gang,
    "nodeorder": nodeorder,
    "overcommit": overcommit,
    "predicates": predicates,
    "priority": priority,
    "proportion": proportion,
    "reservation": reservation,
    "reserve": reserve,
    "sla": sla,
}
ARGS: dict[str, type[Args]] = {name: package.Args for name, package in _PLUGINS.items()}
PLUGINS: dict[str, ModuleType] = {name: package.plugin for name, package in _PLUGINS.items()}
"""The module with `open`, and where a plugin has them `deadline` and `version` (`framework.Plugin`)."""


def args_of(plugin: PluginConfig) -> Args:
    """The typed arguments of a plugin in a SessionConfig. Raises ArgsError where `conf.py` has not checked them."""
    return ARGS[plugin.name].read(plugin.arguments)
