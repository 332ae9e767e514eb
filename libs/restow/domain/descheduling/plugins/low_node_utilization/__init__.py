"""Plugin LowNodeUtilization."""

from restow.domain.descheduling.plugins.low_node_utilization.args import Args as Args
from restow.domain.descheduling.plugins.low_node_utilization.plugin import run as run

NAME = "LowNodeUtilization"
POINTS = ("balance",)
