"""Zones and regions that volumes are labelled with (kube-scheduler's VolumeZone)."""

from collections.abc import Sequence

import numpy as np

from restow.contracts.events import VolumeObserved
from restow.domain.volumes.nodes import Nodes

_BEFORE = {
    "topology.kubernetes.io/zone": "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region": "failure-domain.beta.kubernetes.io/region",
}
"""The label as it is now, which facts about volumes use, and its name before 1.17, which an old node may have."""
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
    for key in (*_BEFORE, *_BEFORE.values()):
        for rows in nodes.having(key).values():
            somewhere[list(rows)] = True
    for key, value in sorted(wanted):
        accepted = {zone.strip() for zone in value.split(_BETWEEN)}
        there = np.zeros(len(nodes), bool)
        for label in (_BEFORE.get(key), key):
            having = nodes.having(label) if label else {}
            for zone, rows in having.items():
                # The present name of the label wins where a node has both.
                there[list(rows)] = zone in accepted
        failing |= ~there
    return failing & somewhere
