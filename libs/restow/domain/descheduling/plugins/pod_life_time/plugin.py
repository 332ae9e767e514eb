"""PodLifeTime: pods that have lived long enough, or have been in a state for long enough; the oldest first."""

from restow.contracts.ids import PodUid
from restow.contracts.values import PodCondition
from restow.domain.descheduling.evictor.filter import owners_of
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.pod_life_time.args import Args, Condition
from restow.domain.descheduling.subjects import Subjects, evict_unless_full
from restow.domain.descheduling.troubles import conditions, containers, reasons


def run(handle: Handle, args: Args) -> None:
    state = handle.state
    about = Subjects.of(handle, args)
    due: list[tuple[PodUid, str]] = []
    for node in handle.nodes:
        for uid in about.on(node, finished=True):
            why = _stays(handle, args, uid)
            if why:
                handle.keep(uid, why)
            else:
                due.append((uid, _reason(handle, args, uid)))
    # Of equal age: by node, then as the pods of a node are listed.
    due.sort(key=lambda one: state.pods[one[0]].created)
    for uid, reason in due:
        evict_unless_full(handle, uid, reason)
    about.tell()


def _stays(handle: Handle, args: Args, uid: PodUid) -> str:
    """Which criterion it does not meet, the cheapest first; empty where it meets all."""
    state = handle.state
    pod = state.pods[uid]
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
    live = state.live[uid]
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
    age = (handle.now - handle.state.pods[uid].created) // 1000
    if args.max_pod_life_time_seconds is not None:
        return f"is {age} s old, older than {args.max_pod_life_time_seconds} s"
    return f"is in a state that the policy names, {age} s after its creation"
