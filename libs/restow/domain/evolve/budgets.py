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
    """What is planned is charged to the budgets that there are now. What is spent of one stays so, as long as its name does; of one that was for each of several it counts together where it is
    for all now. Where it is for each of some now, and was not, or of others, nobody knows whose it was."""
    if state.migration_config.budgets == before:
        return
    for id in (*state.backlog, *state.active):
        record = state.migrations[id]
        if record.step in BEFORE_EVICTION:
            state.drop(state.budgeted, id)
            begins(state, record)
    apart = {one.name: (one.per, one.per_node_label) for one in before}
    for one in state.migration_config.budgets:
        if apart.get(one.name, of := (one.per, one.per_node_label)) != of:
            _counts_otherwise(state, one)
    forget(state)


def _counts_otherwise(state: ClusterState, budget: EvictionBudget) -> None:
    """It is for each of something else. A key of before may be one of now, too: a queue may be called as a namespace is."""
    old = [key for key in (*state.budget_spent, *(key for keys in state.budgeted.values() for key in keys)) if key.partition("/")[0] == budget.name]
    together = {id: at for key in dict.fromkeys(old) for id, at in state.budget_spent.get(key, {}).items()}
    for key in [key for key in dict.fromkeys(old) if key in state.budget_spent]:
        state.drop(state.budget_spent, key)
    new = () if budget.per or budget.per_node_label else (budget.name,)
    if new and together:
        state.put(state.budget_spent, budget.name, together)
    for id, keys in list(state.budgeted.items()):
        if state.migrations[id].step not in BEFORE_EVICTION and not set(old).isdisjoint(keys):
            # Its eviction may be refused yet: it is given back then.
            kept = tuple(dict.fromkeys(one for key in keys for one in (new if key.partition("/")[0] == budget.name else (key,))))
            state.put(state.budgeted, id, kept)


def forget(state: ClusterState) -> None:
    """What counts no more. Looked for whenever a plan is made: it costs as much as there is."""
    now, config = Millis(state.time), state.migration_config
    for key, times in list(state.budget_spent.items()):
        for id in [id for id, at in times.items() if eviction_budgets.is_stale(config, key, at, now)]:
            state.drop_in(state.budget_spent, key, id)
