"""The arguments."""

from restow.domain.descheduling.subjects import PodArgs


class Args(PodArgs, frozen=True):
    """Only pods that these are about are held against each other."""
