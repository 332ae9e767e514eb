"""Rules about other pods: host ports, inter-pod (anti-)affinity, topology spread. `Topology.of(state)` answers for a
`Subject`."""

from restow.domain.topology.terms import Subject
from restow.domain.topology.topology import Failing, Topology

__all__ = ["Failing", "Subject", "Topology"]
