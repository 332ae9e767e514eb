"""The table of plugins. A plugin is a module with `Args` and `open` (`framework.Plugin`); one of several files is a package, whose
`plugin.py` that is."""

from types import ModuleType

from restow.domain.session.plugins import (
    binpack,
    conformance,
    drf,
    fragmentation,
    gang,
    overcommit,
    priority,
    reservation,
    sla,
)
from restow.domain.session.plugins.capacity import plugin as capacity
from restow.domain.session.plugins.network_topology_aware import plugin as network_topology_aware
from restow.domain.session.plugins.nodeorder import plugin as nodeorder
from restow.domain.session.plugins.predicates import plugin as predicates
from restow.domain.session.plugins.proportion import plugin as proportion
from restow.domain.session.plugins.reserve import plugin as reserve

PLUGINS: dict[str, ModuleType] = {
    "binpack": binpack,
    "capacity": capacity,
    "conformance": conformance,
    "drf": drf,
    "fragmentation": fragmentation,
    "gang": gang,
    "network-topology-aware": network_topology_aware,
    "nodeorder": nodeorder,
    "overcommit": overcommit,
    "predicates": predicates,
    "priority": priority,
    "proportion": proportion,
    "reservation": reservation,
    "reserve": reserve,
    "sla": sla,
}
