"""Plugin RemovePodsViolatingNodeAffinity."""

from restow.domain.descheduling.plugins.remove_pods_violating_node_affinity.args import Args as Args
from restow.domain.descheduling.plugins.remove_pods_violating_node_affinity.plugin import run as run

NAME = "RemovePodsViolatingNodeAffinity"
POINTS = ("deschedule",)
