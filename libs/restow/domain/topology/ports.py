"""Host ports over all nodes at once, by counts that follow every change."""

from collections.abc import Iterable, Mapping

import numpy as np

from restow.contracts.values import HostPort
from restow.domain.host_ports import met_by
from restow.domain.topology.domains import Count, Domains

TAKEN = "node(s) didn't have free ports for the requested pod ports"
PortKey = tuple[str, int, str]
"""Protocol, port and address; address "" counts all of them together."""


def keys(port: HostPort) -> tuple[PortKey, PortKey]:
    """Where an occupant's port is counted."""
    return (port.protocol, port.port, port.ip), (port.protocol, port.port, "")


def failing(wanted: Iterable[HostPort], used: Mapping[PortKey, Count], rows: Domains) -> list[tuple[str, np.ndarray]]:
    """(reason, `(nodes,) bool`): rows where one of the ports is taken."""
    taken = None
    for port in wanted:
        for address in met_by(port):
            count = used.get((port.protocol, port.port, address))
            if count is not None:
                here = (count.per_domain(rows) > 0).take(rows.array)
                taken = here if taken is None else taken | here
    return [] if taken is None else [(TAKEN, taken)]
