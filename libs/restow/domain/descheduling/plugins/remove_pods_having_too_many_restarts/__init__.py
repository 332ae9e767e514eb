"""Plugin RemovePodsHavingTooManyRestarts."""

from restow.domain.descheduling.plugins.remove_pods_having_too_many_restarts.args import Args as Args
from restow.domain.descheduling.plugins.remove_pods_having_too_many_restarts.plugin import run as run

NAME = "RemovePodsHavingTooManyRestarts"
POINTS = ("deschedule",)
