"""Two pods that change places: who leaves first, and where that one goes if the other stays after all.

The first to leave has no place yet: its room is the other's. So the other must be able to follow, as far as is known before: its place
is chosen, no limit is in its way, and the disruption budgets allow both. First goes the one whose budgets allow less, for a refusal
costs nothing while both are still there; the other when the API has taken that eviction. If the other stays then, the migration of
the first turns back: room for it at its old node is held anew, in turn before anybody else, and the other's hold, which kept that
room, is given up only when this one waits for it. A successor that finds room elsewhere by then goes there.
"""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.migration import holds, limits, waves
from restow.domain.migration.holds import Reason
from restow.domain.records import Migration, Step
from restow.domain.selectors import covers
from restow.domain.state import OVER, ClusterState

Events = tuple[e.Event, ...]
BROKEN = "SwapBroken"
STAYS = "the pod that it was to change places with stays"


# -- who leaves first ----------------------------------------------------------------------------------------------------


def must_wait(state: ClusterState, migration: Migration, now: Millis, counts: limits.Limits) -> Reason | None:
    """Why it must not leave now, None where it may."""
    if not migration.move.swap or holds.held(state, migration):
        return None
    other = waves.partner(state, migration)
    if other is None or other.step in (Step.EVICTED, Step.LANDED):
        return None
    if holds.held(state, other):
        return BROKEN, f"migration {other.id}, which has all of its room, was to leave first"
    if why := over_budget(state, migration, other) or counts.before_eviction(other, now):
        return why
    if _turn(state, other) < _turn(state, migration):
        return BROKEN, f"migration {other.id}, whose pod may be disrupted less, was to leave first"
    return None


def until(state: ClusterState, migration: Migration) -> Millis:
    """How long it may wait to be evicted, once its place is chosen: while the other is on its way out, and as long as a budget is
    waited for."""
    at, config = migration.deadline, state.migration_config
    if not migration.move.swap or migration.step is not Step.HELD:
        return at
    at = max(at, Millis(migration.since + config.budget_patience))
    other = waves.partner(state, migration)
    if other is not None and other.step is Step.EVICTING:
        at = max(at, other.deadline)
    elif other is not None and other.step is Step.EVICTED:
        at = max(at, Millis(other.since + config.hold_deadline))
    return at


def over_budget(state: ClusterState, one: Migration, other: Migration) -> Reason | None:
    """Whether a disruption budget does not allow both to be evicted, as far as the log knows."""
    pods = [pod for m in (one, other) if (pod := state.pods.get(m.move.pod)) is not None]
    for budget in state.budgets.values():
        asked = sum(covers(budget, pod) for pod in pods)
        if asked > budget.allowed:
            text = f"{budget.namespace}/{budget.name} allows {budget.allowed} disruptions, the pods that change places need {asked}"
            return "Budget", f"disruption budget {text}"
    return None


def _turn(state: ClusterState, migration: Migration) -> tuple[int, str]:
    pod = state.pods.get(migration.move.pod)
    allowed = [budget.allowed for budget in state.budgets.values() if pod is not None and covers(budget, pod)]
    return min(allowed, default=limits.ANY), migration.id


# -- the way back --------------------------------------------------------------------------------------------------------


def broken(state: ClusterState, migration: Migration, now: Millis) -> Events:
    """It has left, and the other stays: its successor gets the room at its old node again, if that is any use."""
    source = migration.move.source
    if holds.target_lost(state, source) or now >= migration.deadline:
        return (e.MigrationFailed(migration.id, BROKEN, STAYS),)
    if waiting_successor(state, migration) is None:
        # Nobody to hold it for yet. The other keeps the room as long (`keeps_room`).
        return ()
    deadline = Millis(now + state.migration_config.land_deadline)
    return (e.TurningBack(migration.id, deadline, BROKEN, STAYS),)


def patience(state: ClusterState, migration: Migration) -> Millis:
    """Until when the room is waited for: as long as the other keeps it, and a little more."""
    other = _other(state, migration)
    if holds.held(state, migration):
        return migration.deadline
    if other is not None and other.step is Step.ABORTING:
        return migration.deadline
    ended = other.since if other is not None else Millis(0)
    return min(migration.deadline, Millis(max(ended, migration.back) + state.migration_config.hold_deadline))


def keeps_room(state: ClusterState, migration: Migration) -> bool:
    """Whether it must not give up its hold yet, although its own pod stays: the pod that it was to change places with has left, and
    does not have that room yet."""
    other = _other(state, migration)
    if other is None or other.step is not Step.EVICTED or other.successor:
        return False
    if not other.back:
        return not holds.held(state, other)
    slots = holds.places(state, other)
    return not slots or not (holds.placed(state, other) or any(slot.reasons for _, slot in slots))


def _other(state: ClusterState, migration: Migration) -> Migration | None:
    """The other one of the swap, whatever became of it."""
    return waves.counterpart(state, migration) if migration.move.swap else None


def waiting_successor(state: ClusterState, migration: Migration) -> PodUid | None:
    """A pod that may follow it and waits for a place: the first one."""
    waiting = [uid for uid in followers(state, migration) if state.node_of(uid) is None and uid not in state.successors]
    return min(waiting, key=state.order.__getitem__, default=None)


def followers(state: ClusterState, migration: Migration) -> Iterator[PodUid]:
    """Pods that may follow it, and have not ended."""
    top = migration.lineage.partition("/")[0]
    owners = [top, *(uid for uid, known in state.workloads.items() if known.owner is not None and known.owner.uid == top)]
    for uid in (uid for owner in owners for uid in state.owned.get(owner, ())):
        live = state.live[uid]
        if not live.deleting and live.phase not in OVER and state.may_follow(state.pods[uid], migration):
            yield uid
