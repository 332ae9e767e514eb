"""PodLifeTime: pods that have lived long enough, or have been in a state for long enough; the oldest first."""

from restow.contracts.ids import PodUid
from restow.contracts.values import PodCondition
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, Subjects, evict_unless_full, owners_of
from restow.domain.descheduling.troubles import conditions, containers, reasons
from restow.domain.policy_args import Args as Base
from restow.domain.policy_args import Uint

NAME = "PodLifeTime"
POINTS = ("deschedule",)

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


def run(handle: Handle, args: Args) -> None:
    state = handle.state
    about = Subjects.from_args(handle, args)
    due: list[tuple[PodUid, str]] = []
    for node in handle.nodes:
        for uid in about.pods_on(node, finished=True):
            why = _stays(handle, args, uid)
            if why:
                handle.keep(uid, why)
            else:
                due.append((uid, _reason(handle, args, uid)))
    # Of equal age: by node, then as the pods of a node are listed.
    due.sort(key=lambda one: state.pods[one[0]].fact.created)
    for uid, reason in due:
        evict_unless_full(handle, uid, reason)
    about.warn()


def _stays(handle: Handle, args: Args, uid: PodUid) -> str:
    """Which criterion it does not meet, the cheapest first; empty where it meets all."""
    state = handle.state
    pod = state.pods[uid].fact
    age, most = (handle.now - pod.created) // 1000, args.max_pod_life_time_seconds
    if most is not None and age <= most:
        return f"Age: {age} s; only older than {most} s"
    if args.owner_kinds is not None:
        kinds = {owner.kind for owner in owners_of(pod)}
        if args.owner_kinds.include and kinds.isdisjoint(args.owner_kinds.include):
            return f"Owner: none of {', '.join(args.owner_kinds.include)}"
        if not kinds.isdisjoint(args.owner_kinds.exclude):
            return f"Owner: {', '.join(sorted(kinds.intersection(args.owner_kinds.exclude)))} is excluded"
    if args.states and not _in_state(handle, args, uid):
        return f"State: none of {', '.join(args.states)}"
    if args.conditions and not any(_meets(handle, c, wanted) for wanted in args.conditions for c in conditions(state, uid)):
        return "Condition: none is as it must be"
    if args.exit_codes:
        ended = containers(state, uid, init=args.including_init_containers)
        if all(one.exit_code not in args.exit_codes for one in ended):
            return f"Exit code: none of {', '.join(map(str, args.exit_codes))}"
    return ""


def _in_state(handle: Handle, args: Args, uid: PodUid) -> bool:
    state, wanted = handle.state, args.states
    live = state.pods[uid].live
    if live.phase in wanted or (live.reason and live.reason in wanted):
        return True
    seen = containers(state, uid, args.including_init_containers, args.including_ephemeral_containers)
    return any(reason in wanted for one in seen for reason in reasons(one))


def _meets(handle: Handle, condition: PodCondition, wanted: Condition) -> bool:
    if wanted.type and condition.type != wanted.type:
        return False
    if wanted.status and condition.status != wanted.status:
        return False
    if wanted.reason and condition.reason != wanted.reason:
        return False
    least = wanted.min_time_since_last_transition_seconds
    return least is None or (condition.since > 0 and 0 <= least <= (handle.now - condition.since) // 1000)


def _reason(handle: Handle, args: Args, uid: PodUid) -> str:
    age = (handle.now - handle.state.pods[uid].fact.created) // 1000
    if args.max_pod_life_time_seconds is not None:
        return f"is {age} s old, older than {args.max_pod_life_time_seconds} s"
    return f"is in a state that the policy names, {age} s after its creation"
