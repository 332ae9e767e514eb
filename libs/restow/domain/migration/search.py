"""Plans that may take long: on record before they are made, and with fewer steps after one that came to no end.

What is decided on a copy of the process may run over its time, or be killed for its memory, and with it the process itself, if the kernel
takes all of a container. Then nobody is left to say so. So `BeginSearch` is in the log first; a leader who finds it without an end ends it.
"""

from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.evolve import searches
from restow.domain.state import ClusterState

Heavy = c.Defragment | c.Deschedule
MANY = 1_000
"""Pods from which on a plan without a search takes long, too."""
QUARTER = 2
"""Binary digits of the steps that each failure takes."""


def takes_long(state: ClusterState, command: c.Command) -> bool:
    """Whether it may take longer than a loop may stall. A search takes its steps whatever the cluster's size: seconds for fifty pods."""
    if not isinstance(command, c.Defragment | c.Deschedule):
        return False
    args = state.migration_config.defragmentation
    searched = args is not None and (args.planner == "optimizing" or (isinstance(command, c.Defragment) and bool(command.demand)))
    return searched or len(state.pods) >= MANY


def bounded(state: ClusterState, command: Heavy) -> Heavy:
    """The command with a quarter of the configured steps for each failure in a row; as it is where nothing failed, or nothing is searched."""
    args, failed = state.migration_config.defragmentation, searches.failures(state, command.time)
    if args is None or not failed:
        return command
    return replace(command, steps=max(args.searchSteps >> QUARTER * failed, 1))


def within(config: MigrationConfig, steps: int) -> DefragmentationArgs | None:
    """The arguments with at most so many steps of search (0 for no other bound)."""
    args = config.defragmentation
    return replace(args, searchSteps=steps) if args is not None and 0 < steps < args.searchSteps else args


def begin(state: ClusterState, command: Heavy) -> c.BeginSearch:
    return c.BeginSearch(command.time, command.plan, command.trigger, command.steps)


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


def note(state: ClusterState, now: Millis) -> str:
    """What people must see; empty while nothing failed."""
    search = state.search
    if not searches.failures(state, now):
        return ""
    why = f"{search.reason}: {search.message}".removesuffix(": ")
    said = f"plan {search.failed} came to no end ({why})"
    args = state.migration_config.defragmentation
    fewer = ""
    if args is not None:
        steps = max(args.searchSteps >> QUARTER * search.failures, 1)
        fewer = f", with at most {steps} of {args.searchSteps} searchSteps until {searches.FORGOTTEN // 3_600_000} h have passed or another configuration is used"
    if search.again > now:
        return f"{said}; none is made by itself for {-(-(search.again - now) // 1000)} s more{fewer}"
    return f"{said}; plans are made{fewer}" if fewer else ""
