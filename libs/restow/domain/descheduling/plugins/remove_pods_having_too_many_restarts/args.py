"""The arguments: how many restarts are too many, and in which states."""

from restow.domain.descheduling.subjects import PodArgs

STATES = ("Running", "CrashLoopBackOff")
"""A pod's phase, and a reason for which a container waits."""


class Args(PodArgs, frozen=True):
    """`podRestartThreshold` is the sum over containers at which a pod goes."""

    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()

    def check(self) -> str:
        if self.pod_restart_threshold < 1:
            return f"podRestartThreshold: {self.pod_restart_threshold}; allowed: 1 and more"
        for i, state in enumerate(self.states):
            if state not in STATES:
                return f"states[{i}]: {state!r}; allowed: {', '.join(STATES)}"
        return super().check()
