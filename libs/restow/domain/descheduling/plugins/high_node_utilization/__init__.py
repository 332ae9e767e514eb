"""Plugin HighNodeUtilization."""

from restow.domain.descheduling.plugins.high_node_utilization.args import Args as Args
from restow.domain.descheduling.plugins.high_node_utilization.plugin import run as run

NAME = "HighNodeUtilization"
POINTS = ("balance",)
