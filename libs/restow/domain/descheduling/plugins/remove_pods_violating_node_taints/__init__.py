"""Plugin RemovePodsViolatingNodeTaints."""

from restow.domain.descheduling.plugins.remove_pods_violating_node_taints.args import Args as Args
from restow.domain.descheduling.plugins.remove_pods_violating_node_taints.plugin import run as run

NAME = "RemovePodsViolatingNodeTaints"
POINTS = ("deschedule",)
