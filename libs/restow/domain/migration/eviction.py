"""Whether the pod of a migration may be evicted: asked in the decision, and again before each attempt, for the world goes on in between."""

from restow.contracts.ids import Millis
from restow.domain.beside import guards, is_beside
from restow.domain.migration import gating, holds, victim
from restow.domain.migration.holds import Reason
from restow.domain.migration.limits import Limits
from restow.domain.migration.whole_nodes import Source, Whole, is_of_gang
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import NOT_GATED, ended

CANCELLED = "Cancelled"


def cancelled(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether somebody has cancelled its plan."""
    said = state.cancelled.get(migration.plan)  # type: ignore[call-overload]
    return None if said is None else (CANCELLED, said)


def may_evict(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod has its slot, if it needs one, on a node that takes its successor. Asked in the decision, and before
    every attempt: a hold stays on a node that is cordoned or not ready, and is of no use there."""
    if victim.is_only_evicted(migration):
        return True
    return has_slot(state, migration) and gating.is_gated(state, migration)


def not_held(state: ClusterState, migration: Migration) -> Reason:
    """Of one whose time to get a slot is up: what was not there."""
    if has_slot(state, migration) and not gating.is_gated(state, migration):
        return ended(NOT_GATED)
    return "HoldTimeout", f"node {migration.move.target} was not held in time"


def has_slot(state: ClusterState, migration: Migration) -> bool:
    return holds.held(state, migration) and holds.lost(state, migration) is None


class _Ready:
    """At one place of the log: a gang may have hundreds of pods, and it is asked about each of them."""

    at: tuple[int, Millis] | None = None

    def __init__(self) -> None:
        self.known: dict[Source, bool] = {}


def may_be_tried(state: ClusterState, migration: Migration) -> bool:
    """Whether an eviction that was decided may be sent, now and each time anew: nothing has come in between for which it will be given
    up as soon as that is decided. Before anybody of a gang that is moved as one has left, that is so of all of it, or of nobody."""
    if not is_of_gang(state, migration):
        return not _is_given_up(Whole(state), migration) and _may_be_tried(state, migration)
    ready, at = state.memo.make(_Ready), (state.seq, state.time)
    if ready.at != at or state.drafting:
        ready.at, ready.known = at, {}
    whole = Whole(state)
    key = whole.key(migration)
    if key not in ready.known:
        is_ready = is_torn(state, migration) or all(_may_be_tried(state, one) for one in whole.members(migration) if one.step is Step.EVICTING)
        ready.known[key] = is_ready and not _is_given_up(whole, migration)
    return ready.known[key] and _may_be_tried(state, migration)


def _is_given_up(whole: Whole, migration: Migration) -> bool:
    """Whether the next decision takes it back: another pod of its node, or of its gang, has been given up (`ANOTHER_STAYS`)."""
    return not victim.is_only_evicted(migration) and whole.broken(migration) is not None


def has_left(state: ClusterState, migration: Migration) -> bool:
    """Whether its pod's end is certain: it terminates, is gone, or has failed."""
    return migration.armed > 0 or victim.has_ended(state, migration)


def is_torn(state: ClusterState, migration: Migration) -> bool:
    """Whether some of its gang, which is moved as one, have left: then the others are to follow."""
    return is_of_gang(state, migration) and any(has_left(state, one) for one in Whole(state).members(migration))


def waits_for_budget(state: ClusterState, migration: Migration, now: Millis) -> bool:
    """Whether an eviction that a disruption budget has refused is tried again: for `budgetPatience`, and, where others of its gang have left, or others of ours
    that the budget is about, as long as may be."""
    if now < migration.evicting + state.migration_config.budget_patience:
        return True
    return now < migration.deadline and (is_torn(state, migration) or Limits(state, now).may_be_late(migration.move.pod))


def _may_be_tried(state: ClusterState, migration: Migration) -> bool:
    if cancelled(state, migration) is not None or (not is_of_gang(state, migration) and Limits(state, state.time).breaks_gang(migration) is not None):
        return False
    if victim.is_only_evicted(migration):
        return victim.unfit_to_evict(state, migration) is None
    if is_beside(state, migration.shape) and not guards(state, migration):
        return False
    return may_evict(state, migration) and victim.unfit(state, migration) is None and holds.failure(state, migration) is None
