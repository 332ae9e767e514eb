"""How plans are made: on a copy of the process, on record before, and with fewer steps after one that came to no end.

What is decided on a copy of the process may run over its time, or be killed for its memory, and with it the process itself, if the kernel
takes all of a container. Then nobody is left to say so. So `BeginSearch` is in the log first; a leader who finds it without an end ends it. What a fault of ours
ends is a plan without moves (`failed` of the command), and other plans of the same policy are made; a copy keeps whatever it has left half done to itself.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId
from restow.domain.decider import Faulty
from restow.domain.evolve import demands, searches
from restow.domain.migration.deschedule import turns_of
from restow.domain.records import Plan
from restow.domain.state import ClusterState

T = TypeVar("T")
Heavy = c.Defragment | c.Deschedule | c.MovePod | c.MoveGang
FAILED = "Failed"
"""Why a search ended that a fault of ours has ended as a whole: fewer steps would not help."""
QUARTER = 2
"""Binary digits of the steps that each failure takes."""


def is_heavy(command: c.Command) -> bool:
    """Whether it makes a plan: that may take longer than a loop may stall, and fail as nothing else that is decided here."""
    return isinstance(command, Heavy)


def bounded(state: ClusterState, command: Heavy) -> Heavy:
    """The command with a quarter of the configured steps for each failure in a row; as it is where nothing failed, or nothing is searched."""
    fewer = _fewer(state, command.time)
    return replace(command, steps=fewer) if fewer and isinstance(command, c.Defragment | c.Deschedule) else command


def _fewer(state: ClusterState, now: Millis) -> int:
    """Steps after what has failed; 0 for as configured."""
    args, failed = state.migration_config.defragmentation, _failures(state, now)
    return max(args.searchSteps >> QUARTER * failed, 1) if args is not None and failed and state.search.reason != FAILED else 0


def _failures(state: ClusterState, now: Millis) -> int:
    """Those in a row that say something of plans. Whoever died in one for the first time may have been killed by somebody, or with his node; whom a plan kills dies in the next one, too."""
    return max(searches.failures(state, now) - (state.search.reason == searches.DIED), 0)


def leave_out(command: c.Command, plan: str, why: str) -> c.Command:
    """The command with one more of its plans that cannot be made."""
    return replace(command, failed={**command.failed, PlanId(plan): why}) if isinstance(command, c.Defragment | c.Deschedule) else command


def without_faults(decide: Callable[[c.Command], T], command: c.Command) -> T:
    """What is decided of it without its plans that a fault of ours ends, where that needs no copy of the process: on a state that is nobody's."""
    while True:
        try:
            return decide(command)
        except Faulty as fault:
            command = leave_out(command, fault.part, fault.why)


def begin(state: ClusterState, command: Heavy) -> c.BeginSearch | None:
    """None of a move by hand: it searches nothing, and what is refused of it is no matter of the log."""
    return None if isinstance(command, c.MovePod | c.MoveGang) else c.BeginSearch(command.time, command.plan, command.trigger, command.steps)


def end(state: ClusterState, now: Millis, reason: str, message: str, failed: bool = True) -> c.EndSearch:
    """Of the one under way."""
    return c.EndSearch(now, state.search.plan, reason, message, failed)


def decide(state: ClusterState, command: c.BeginSearch | c.EndSearch) -> tuple[e.Event, ...]:
    if isinstance(command, c.BeginSearch):
        return (e.SearchBegun(command.plan, command.trigger, command.steps),)
    if command.plan != state.search.plan:
        return ()
    return (e.SearchEnded(command.plan, command.reason, command.message, command.failed),)


def due(state: ClusterState, now: Millis) -> c.EndSearch | None:
    """Whoever decides asks what is due when nothing is under way: what has no end yet came to none."""
    return end(state, now, searches.DIED, "the service ended before it did, or could not log its end") if state.search.plan else None


def not_before(state: ClusterState) -> Millis:
    """Until when no plan is made that nobody asks for."""
    return state.search.again


def faults(state: ClusterState, now: Millis) -> list[e.Planned]:
    """Of each plugin of each profile that the policy still has its last plan, where a fault of ours has ended it; not on demand for a job that waits no more. O(plans)."""
    last: dict[tuple[str, str], Plan] = {}
    for known in sorted(state.plans.values(), key=lambda known: (known.at, known.planned.plan)):
        last[known.planned.profile, known.planned.plugin] = known
    found = [known.planned for known in last.values() if known.planned.fault and now - known.at < searches.FORGOTTEN]
    if not found:
        return found
    run = {key for turn in turns_of(state) for key in ((turn.profile, turn.plugin), ("", turn.plugin))}
    return [one for one in found if (one.profile, one.plugin) in run and (not one.demand or demands.waits(state, one.demand))]


def failing(state: ClusterState, now: Millis) -> int:
    """How many of them, and 1 more where the last plan came to no end."""
    return len(faults(state, now)) + (_failures(state, now) > 0 and state.search.again > 0)


def note(state: ClusterState, now: Millis) -> str:
    """What people must see; empty while nothing failed."""
    return "; ".join(filter(None, (_no_end(state, now), *(f"plan {one.plan} of {one.plugin} {one.reason}" for one in faults(state, now)))))


def _no_end(state: ClusterState, now: Millis) -> str:
    search = state.search
    if not searches.failures(state, now):
        return ""
    why = f"{search.reason}: {search.message}".removesuffix(": ")
    said = f"plan {search.failed} came to no end ({why})"
    args, steps = state.migration_config.defragmentation, _fewer(state, now)
    fewer = ""
    if args is not None and steps:
        fewer = f", with at most {steps} of {args.searchSteps} searchSteps until {searches.FORGOTTEN // 3_600_000} h have passed or another configuration is used"
    if search.again > now:
        return f"{said}; none is made by itself for {-(-(search.again - now) // 1000)} s more{fewer}"
    return f"{said}; plans are made{fewer}" if fewer else ""
