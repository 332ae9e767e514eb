"""Plugin RemoveFailedPods."""

from restow.domain.descheduling.plugins.remove_failed_pods.args import Args as Args
from restow.domain.descheduling.plugins.remove_failed_pods.plugin import run as run

NAME = "RemoveFailedPods"
POINTS = ("deschedule",)
