"""Plugin RemovePodsViolatingInterPodAntiAffinity."""

from restow.domain.descheduling.plugins.remove_pods_violating_inter_pod_anti_affinity.args import Args as Args
from restow.domain.descheduling.plugins.remove_pods_violating_inter_pod_anti_affinity.plugin import run as run

NAME = "RemovePodsViolatingInterPodAntiAffinity"
POINTS = ("deschedule",)
