"""What moves are charged to the eviction budgets of the policy (`domain.eviction_budgets`)."""

from restow.contracts.ids import Millis
from restow.domain import eviction_budgets
from restow.domain.config import EvictionBudget
from restow.domain.eviction_budgets import BEFORE_EVICTION
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState


def begins(state: ClusterState, record: Migration) -> None:
    """It is planned: part of the budgets is reserved for it."""
    if keys := eviction_budgets.keys_of(state, record.move):
        state.put(state.budgeted, record.id, keys)


def moved_on(state: ClusterState, record: Migration) -> None:
    """A migration has made a step."""
    keys = state.budgeted.get(record.id)
    if keys is None:
        return
    if record.step is Step.EVICTING:
        for key in keys:
            _spend(state, key, record)
    elif record.step is Step.EVICTED and not record.evicting:
        # The pod had left by itself.
        state.drop(state.budgeted, record.id)
    elif record.step in FINAL:
        state.drop(state.budgeted, record.id)
        if record.step is Step.FAILED and not record.armed:
            for key in keys:
                _give_back(state, key, record)


def _spend(state: ClusterState, key: str, record: Migration) -> None:
    times = state.budget_spent.get(key)
    if times is None:
        times = {}
        state.put(state.budget_spent, key, times)
    state.put(times, record.id, record.evicting)


def _give_back(state: ClusterState, key: str, record: Migration) -> None:
    """Its pod stays."""
    state.drop_in(state.budget_spent, key, record.id)


def configured(state: ClusterState, before: tuple[EvictionBudget, ...]) -> None:
    """What is planned is charged to the budgets that there are now. What is spent of one stays so, as long as its name does."""
    if state.migration_config.budgets == before:
        return
    for id in (*state.backlog, *state.active):
        record = state.migrations[id]
        if record.step in BEFORE_EVICTION:
            state.drop(state.budgeted, id)
            begins(state, record)
    forget(state)


def forget(state: ClusterState) -> None:
    """What counts no more. Looked for whenever a plan is made: it costs as much as there is."""
    now, config = Millis(state.time), state.migration_config
    for key, times in list(state.budget_spent.items()):
        for id in [id for id, at in times.items() if eviction_budgets.is_stale(config, key, at, now)]:
            state.drop_in(state.budget_spent, key, id)
