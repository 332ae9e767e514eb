"""The arguments: which pods have lived long enough."""

from restow.domain.descheduling.args import Args as Base
from restow.domain.descheduling.args import Uint
from restow.domain.descheduling.subjects import PodArgs

PHASES = ("Running", "Pending", "Succeeded", "Failed", "Unknown")
POD_REASONS = ("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
WAITING = (
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
)
TERMINATED = ("OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError")
STATES = frozenset((*PHASES, *POD_REASONS, *WAITING, *TERMINATED))


class OwnerKinds(Base, frozen=True):
    """Either `include` or `exclude`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class Condition(Base, frozen=True):
    """What one condition of a pod must be: everything that is said, and so for at least that many seconds."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: Uint | None = None

    @property
    def empty(self) -> bool:
        return not (self.type or self.status or self.reason) and self.min_time_since_last_transition_seconds is None


class Args(PodArgs, frozen=True):
    """Of each list one entry must match; what is not said matches always. `states` are phases, reasons of the pod, and reasons
    for which its containers wait or have ended."""

    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: Uint | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def check(self) -> str:
        if self.owner_kinds and self.owner_kinds.include and self.owner_kinds.exclude:
            return "ownerKinds: has include and exclude; allowed: one of them"
        for i, state in enumerate(self.states):
            if state not in STATES:
                return f"states[{i}]: {state!r}; allowed: {', '.join(sorted(STATES))}"
        for i, condition in enumerate(self.conditions):
            if condition.empty:
                return f"conditions[{i}]: empty; allowed: type, status, reason, minTimeSinceLastTransitionSeconds, at least one"
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            return "no criterion; allowed: maxPodLifeTimeSeconds, states, conditions, exitCodes, at least one"
        return super().check()
