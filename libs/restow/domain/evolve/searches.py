"""Decisions that may take long: that one has begun, and what became of it.

The log says that it begins before it does. So what a process died of is known to the next one, which puts it off, and then searches less.
"""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId
from restow.domain.evolve.rules import void
from restow.domain.records import Search
from restow.domain.state import ClusterState

DIED = "Died"
PAUSES = (60_000, 300_000, 1_800_000, 3_600_000)
"""Milliseconds after so many failures in a row; the last one repeats."""
FORGOTTEN = 86_400_000
"""Milliseconds after a failure from which on it counts no more."""


def begun(state: ClusterState, event: e.SearchBegun) -> None:
    if state.search.plan:
        # Somebody else led meanwhile, or its end could not be logged: it came to none.
        _failed(state, DIED, "")
    state.search = replace(state.search, plan=event.plan)


def ended(state: ClusterState, event: e.SearchEnded) -> None:
    if not state.search.plan or event.plan != state.search.plan:
        void(state, event)
    elif event.failed:
        _failed(state, event.reason, event.message)
    else:
        state.search = replace(state.search, plan=PlanId(""))


def planned(state: ClusterState, event: e.Planned) -> None:
    """It came to a plan, or to the first of several (`<plan>-p<n>`). What failed before is not forgotten by that: with more steps it may fail again."""
    open = state.search.plan
    if open and (event.plan == open or event.plan.startswith(f"{open}-p")):
        state.search = replace(state.search, plan=PlanId(""), again=Millis(0))


def configured(state: ClusterState) -> None:
    """Somebody may have bounded what failed."""
    state.search = Search(plan=state.search.plan)


def failures(state: ClusterState, now: Millis) -> int:
    """How many in a row count at `now`."""
    return state.search.failures if now - state.search.at < FORGOTTEN else 0


def _failed(state: ClusterState, reason: str, message: str) -> None:
    before = failures(state, state.time)
    again = Millis(state.time + PAUSES[min(before, len(PAUSES) - 1)])
    state.search = Search(PlanId(""), before + 1, state.search.plan, state.time, again, reason, message)
