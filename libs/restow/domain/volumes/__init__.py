"""Volumes as kube-scheduler decides them: `Volumes` says which nodes will do and what claims get there, `owed` and
`rejected` what becomes of a placement until its claims are bound."""

from restow.domain.volumes.index import DISK, LIMIT, NO_VOLUME, NODE_AFFINITY, ONCE_POD, ZONE, Volumes
from restow.domain.volumes.owed import asks, owed, rejected

__all__ = ["DISK", "LIMIT", "NODE_AFFINITY", "NO_VOLUME", "ONCE_POD", "ZONE", "Volumes", "asks", "owed", "rejected"]
