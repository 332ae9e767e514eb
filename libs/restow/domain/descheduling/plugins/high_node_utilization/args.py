"""The arguments."""

from restow.domain.descheduling.utilization.args import UtilizationArgs


class Args(UtilizationArgs, frozen=True):
    """A node is underutilized where no resource is above its threshold, which is a percentage of what the node has for pods."""
