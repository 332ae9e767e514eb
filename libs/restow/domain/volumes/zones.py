"""Zones and regions that volumes are labelled with (kube-scheduler's VolumeZone)."""

from collections.abc import Sequence

import numpy as np

from restow.contracts.events import VolumeObserved
from restow.domain.volumes.nodes import Nodes

_NOW = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The label's name before 1.17, which an old volume may have, and as nodes have it now: without the old one, a node is asked
for the present one. Never the other way round."""
_BETWEEN = "__"
"""Between the zones of a volume that is in several."""


def zone_conflicts(nodes: Nodes, volumes: Sequence[VolumeObserved]) -> np.ndarray:
    """`(nodes,) bool`: rows in another zone or region than one of these volumes. A node without any such label is in all
    of them: a cluster of one zone."""
    failing = np.zeros(len(nodes), bool)
    wanted = {(key, value) for volume in volumes for key, value in volume.zones.items()}
    if not wanted:
        return failing
    somewhere = np.zeros(len(nodes), bool)
    for key in (*_NOW, *_NOW.values()):
        for rows in nodes.having(key).values():
            somewhere[list(rows)] = True
    for key, value in sorted(wanted):
        accepted = {zone.strip() for zone in value.split(_BETWEEN)}
        there = np.zeros(len(nodes), bool)
        for label in (_NOW.get(key), key):
            having = nodes.having(label) if label else {}
            for zone, rows in having.items():
                # The volume's own label wins where a node has both.
                there[list(rows)] = zone in accepted
        failing |= ~there
    return failing & somewhere
