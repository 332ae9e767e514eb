"""RemovePodsHavingTooManyRestarts: pods whose containers fail again and again may fare better elsewhere. On
each node those with the most restarts go first."""

from collections.abc import Iterator

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, Subjects, evict_until_full
from restow.domain.descheduling.troubles import containers, restarts

NAME = "RemovePodsHavingTooManyRestarts"
POINTS = ("deschedule",)

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


def run(handle: Handle, args: Args) -> None:
    about = Subjects.from_args(handle, args)
    for node in handle.nodes:
        found = sorted(_restless(handle, args, about, node), key=lambda one: -one[1])
        evict_until_full(handle, node, ((uid, _reason(args, restarts)) for uid, restarts in found))
    about.warn()


def _restless(handle: Handle, args: Args, about: Subjects, node: NodeName) -> Iterator[tuple[PodUid, int]]:
    """With how many restarts each has."""
    state, least = handle.state, args.pod_restart_threshold
    for uid in about.pods_on(node, finished=True):
        if not restarts(state, uid):
            continue
        seen = tuple(containers(state, uid, init=args.including_init_containers))
        count = sum(one.restarts for one in seen)
        if count < least:
            if count:
                handle.keep(uid, f"Restarts: {count}; {least} are too many")
        elif args.states and state.pods[uid].live.phase not in args.states and not any(c.waiting in args.states for c in seen):
            handle.keep(uid, f"State: none of {', '.join(args.states)}")
        else:
            yield uid, count


def _reason(args: Args, restarts: int) -> str:
    return f"{restarts} restarts; {args.pod_restart_threshold} are too many"
