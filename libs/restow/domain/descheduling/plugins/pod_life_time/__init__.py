"""Plugin PodLifeTime."""

from restow.domain.descheduling.plugins.pod_life_time.args import Args as Args
from restow.domain.descheduling.plugins.pod_life_time.plugin import run as run

NAME = "PodLifeTime"
POINTS = ("deschedule",)
