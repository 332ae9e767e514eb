"""The descheduler: plans, and the saga that carries each move out, hold first."""

from restow.domain.migration.advance import overdue
from restow.domain.migration.deadlines import until
from restow.domain.migration.decider import (
    OWN_REASONS,
    TIMED,
    DryRunDecider,
    MigrationDecider,
    check,
    check_in,
    next_trigger,
    plan_id,
)
from restow.domain.migration.deschedule import plans_by_itself, policy_of, turns_of, wants_samples

decider = MigrationDecider()
of_dry_runs = DryRunDecider()

__all__ = [
    "OWN_REASONS",
    "TIMED",
    "MigrationDecider",
    "check",
    "check_in",
    "decider",
    "next_trigger",
    "of_dry_runs",
    "overdue",
    "plan_id",
    "plans_by_itself",
    "policy_of",
    "turns_of",
    "until",
    "wants_samples",
]
