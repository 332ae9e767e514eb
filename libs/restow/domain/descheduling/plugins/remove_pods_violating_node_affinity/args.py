"""The arguments: which kinds of node affinity are to hold while a pod runs."""

from restow.domain.descheduling.subjects import PodArgs

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Args(PodArgs, frozen=True):
    """As upstream a kind that does not exist does nothing; ours says so in a warning."""

    node_affinity_type: tuple[str, ...] = ()

    def check(self) -> str:
        if not self.node_affinity_type:
            return f"nodeAffinityType: none; allowed: {REQUIRED}, {PREFERRED}"
        return super().check()
