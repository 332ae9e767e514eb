"""Until when is waited at each step of a migration: a deadline starts when its wait can end (RULES G-14)."""

from restow.contracts.ids import Millis
from restow.domain import hooks
from restow.domain.migration import other_pods
from restow.domain.migration.plan_order import going_until
from restow.domain.records import Consent, Migration, Step
from restow.domain.state import ClusterState

LAST_WORD = 30_000
"""Milliseconds after the time for the mark is up, in which whoever tries it may still say why it was not taken."""

JOB_PAUSE = 600_000
"""Milliseconds that the Job controller waits at most before it makes another pod (kubernetes, MaxJobPodFailureBackOff): 10 s after the first failure in a row, twice as
long after each more. An evicted pod is one, also where the podFailurePolicy ignores it."""

LAST_ANSWER = 5_000
"""Milliseconds after a workload's deadline, in which whoever asks it by HTTP may still say what came of that."""


def deadline(state: ClusterState, migration: Migration) -> Millis:
    """When its step ends although nothing happens."""
    if migration.step is Step.ABORTING:
        return Millis(aborts_until(state, migration) + LAST_WORD)
    if migration.step is Step.EVICTED and migration.back and not migration.successor:
        return returns_until(state, migration)
    if migration.step is Step.EVICTED:
        return lands_until(state, migration)
    if migration.step is Step.HELD and (consent := state.consents.get(migration.id)) is not None:
        if not consent.given:
            return word_until(consent)
        # While it was asked, its time to be allowed to go stood still.
        return max(other_pods.until(state, migration), Millis(consent.given + state.migration_config.hold_deadline))
    return other_pods.until(state, migration)


def word_until(consent: Consent) -> Millis:
    """Until when the workload's word is waited for. Who asks by HTTP says at the deadline what was answered instead."""
    return consent.deadline if consent.way == hooks.ANNOTATION else Millis(consent.deadline + LAST_ANSWER)


def until(state: ClusterState, migration: Migration) -> Millis:
    """What people are told: `deadline` of one that is under way, 0 before it begins; of one that has ended, what it had last."""
    return deadline(state, migration) if migration.id in state.active else migration.deadline


def aborts_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when the mark is tried."""
    return Millis(migration.since + state.migration_config.abort_deadline)


def lands_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when a pod that was evicted may land. Most controllers make the next one when this one has gone, and it may need what this
    one uses: `landDeadline` counts from then. Who has taken the slot has as long to become ready."""
    patience, vacated, pause = state.migration_config.land_deadline, migration.vacated, pauses_for(migration)
    at = max(Millis(migration.deadline + pause), going_until(state, migration.move.pod), Millis(vacated + patience + pause if vacated else 0))
    placed = state.placed.get(migration.successor) if migration.successor else None
    return max(at, Millis(placed.at + patience)) if placed is not None else at


def pauses_for(migration: Migration) -> int:
    """Milliseconds for which its controller may wait before it makes the successor."""
    return JOB_PAUSE if migration.job else 0


def returns_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when capacity at the old node is waited for."""
    if not migration.reservation:
        return Millis(migration.back + state.migration_config.hold_deadline)
    return lands_until(state, migration)
