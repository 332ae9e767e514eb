"""RemoveFailedPods: pods of phase Failed, so that their owners can replace them where they may work."""

from collections.abc import Iterator
from typing import Self

import msgspec

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, Subjects, evict_until_full, owners_of
from restow.domain.descheduling.troubles import containers, reasons
from restow.domain.policy_args import Uint

NAME = "RemoveFailedPods"
POINTS = ("deschedule",)

HOUR = 3600


class Args(PodArgs, frozen=True):
    """Every list that is not empty must match. `minPodLifetimeSeconds`: only pods that are older; an hour where nothing is
    said, and 0 asks for no age."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Uint | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False

    def defaulted(self) -> Self:
        return self if self.min_pod_lifetime_seconds is not None else msgspec.structs.replace(self, min_pod_lifetime_seconds=HOUR)


FAILED = "Failed"


def run(handle: Handle, args: Args) -> None:
    about = Subjects.from_args(handle, args)
    for node in handle.nodes:
        evict_until_full(handle, node, _failed(handle, args, about, node))
    about.warn()


def _failed(handle: Handle, args: Args, about: Subjects, node: NodeName) -> Iterator[tuple[PodUid, str]]:
    pods = handle.state.pods
    for uid in about.pods_on(node, finished=True):
        live = pods[uid].live
        if live.phase != FAILED:
            continue
        why = _stays(handle, args, uid)
        if why:
            handle.keep(uid, why)
        else:
            yield uid, "has failed" + (f": {live.reason}" if live.reason else "")


def _stays(handle: Handle, args: Args, uid: PodUid) -> str:
    state = handle.state
    pod = state.pods[uid].fact
    excluded = next((owner.kind for owner in owners_of(pod) if owner.kind in args.exclude_owner_kinds), "")
    if excluded:
        return f"Owner: {excluded} is excluded"
    age, least = (handle.now - pod.created) // 1000, args.min_pod_lifetime_seconds
    if least and age < least:
        return f"Age: {age} s; only {least} s and older"
    seen = tuple(containers(state, uid, init=args.including_init_containers))
    if args.reasons:
        said = {reason for one in seen for reason in reasons(one)} | {state.pods[uid].live.reason}
        if said.isdisjoint(args.reasons):
            return f"Reason: none of {', '.join(args.reasons)}"
    if args.exit_codes and all(one.exit_code not in args.exit_codes for one in seen):
        return f"Exit code: none of {', '.join(map(str, args.exit_codes))}"
    return ""
