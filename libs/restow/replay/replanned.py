"""The plan that a policy makes at an instant of a log: the planner itself, on the state there. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId
from restow.domain.config import digest_of
from restow.domain.decider import Rejected, decide
from restow.domain.fold import evolve_one
from restow.domain.migration import of_dry_runs, search
from restow.domain.migration.deschedule import whole_policy
from restow.domain.migration.warnings import warnings
from restow.domain.state import ClusterState
from restow.replay.plan_values import PlanValues, values_of
from restow.replay.source import Source
from restow.replay.state_at import ReplayError, state_at

MOST_STEPS = 20_000
"""Steps of search, whatever the policy says: the default of `searchSteps`."""
PLAN = PlanId("what-if")


class Replanned(msgspec.Struct, frozen=True):
    """`plans` with what their moves are worth; several where the policy runs several plugins. `warnings`: what it says that matches nothing there."""

    time: Millis
    plans: tuple[tuple[e.Planned, PlanValues], ...]
    warnings: tuple[str, ...] = ()


def replan(source: Source, seq: int, policy: str = "") -> Replanned:
    """With this policy (canonical text of a MigrationConfig), or with the one that was in force. As a dry run, it heeds no pause, no window, and is of no mode. Raises ReplayError."""
    state = with_policy(state_at(source, seq=seq), policy)
    if state.migration_config.defragmentation is None and not whole_policy(state):
        raise ReplayError("the policy makes no plans: it enables neither Defragmentation nor another plugin; allowed: one that does")
    time = Millis(state.time)
    command: c.Command = c.Deschedule(time, "api", PLAN, steps=MOST_STEPS) if whole_policy(state) else c.Defragment(time, "api", PLAN, steps=MOST_STEPS)
    told = tuple(warnings(state))
    plans = [event for event in dry_run(state, command) if isinstance(event, e.Planned)]
    return Replanned(time, tuple((planned, values_of(state, planned)) for planned in plans), told)


def with_policy(state: ClusterState, policy: str) -> ClusterState:
    """The state, in which this policy is in force from now on; the one that was, for an empty text."""
    if policy:
        evolve_one(state, e.MigrationConfigured(policy, digest_of(policy)))
    return state


def dry_run(state: ClusterState, command: c.Command) -> Sequence[e.Event]:
    """What would be decided there, whatever pauses. Raises ReplayError."""
    try:
        return search.without_faults(partial(decide, state, of_dry_runs), command)
    except Rejected as error:
        raise ReplayError(str(error)) from None
