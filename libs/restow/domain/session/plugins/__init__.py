"""The registry of plugins: one line each."""

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

ARGS: dict[str, type[Args]] = {
    "binpack": binpack.Args,
    "capacity": capacity.Args,
    "conformance": conformance.Args,
    "drf": drf.Args,
    "fragmentation": fragmentation.Args,
    "gang": gang.Args,
    "nodeorder": nodeorder.Args,
    "overcommit": overcommit.Args,
    "predicates": predicates.Args,
    "priority": priority.Args,
    "proportion": proportion.Args,
    "reservation": reservation.Args,
    "reserve": reserve.Args,
    "sla": sla.Args,
}


def args_of(plugin: PluginConfig) -> Args:
    """The typed arguments of a plugin in a SessionConfig. Raises ArgsError where `conf.py` has not checked them."""
    return ARGS[plugin.name].read(plugin.arguments)
