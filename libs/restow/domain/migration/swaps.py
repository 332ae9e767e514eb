"""Two pods that change places: who leaves first, and where that one goes if the other stays after all.

The first to leave has no place yet: its room is the other's. So the other must be able to follow, as far as is known before: its place
is chosen, no limit is in its way, and the disruption budgets allow both. First goes the one whose budgets allow less, for a refusal
costs nothing while both are still there; the other when the API has taken that eviction. If the other stays then, the migration of
the first turns back: room for it at its old node is held anew, in turn before anybody else, and the other's hold, which kept that
room, is given up only when this one waits for it. A successor that finds room elsewhere by then goes there. It makes no difference why
the other one stays (its plan is cancelled, a protection comes, a limit, the landing place of the first one is lost) and how far it is: as
long as it holds the room that the first one has left, it goes back by `aborting`, which waits for that.
"""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.migration import holds, limits, waves
from restow.domain.migration.holds import Reason
from restow.domain.migration.times import lands_until
from restow.domain.protection import Budgets
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState

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
    if other.step is Step.EVICTING:
        # Who was to leave first may be another one by now: the API was asked for this one, and has not answered.
        return BROKEN, f"migration {other.id} is on its way out, and was to leave first"
    if holds.held(state, other):
        return BROKEN, f"migration {other.id}, which has all of its room, was to leave first"
    if why := over_budget(state, migration, other) or counts.before_eviction(other, now, 1):
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
    exceeded = Budgets(state).exceeded(m.move.pod for m in (one, other) if m.move.pod in state.live)
    if exceeded is None:
        return None
    path, asked = exceeded
    return "Budget", f"disruption budget {path} allows {state.budgets[path].allowed} disruptions, the pods that change places need {asked}"


def _turn(state: ClusterState, migration: Migration) -> tuple[int, str]:
    paths = Budgets(state).bind(migration.move.pod) if migration.move.pod in state.live else ()
    return min((state.budgets[path].allowed for path in paths), default=limits.ANY), migration.id


# -- the way back --------------------------------------------------------------------------------------------------------


def broken(state: ClusterState, migration: Migration, now: Millis, why: Reason = (BROKEN, STAYS)) -> Events:
    """It has left, and the other stays: its successor gets the room at its old node again, if that is any use."""
    if holds.target_lost(state, migration.move.source, migration.shape) or now >= lands_until(state, migration):
        return (e.MigrationFailed(migration.id, *why),)
    if waiting_successor(state, migration) is None:
        # Nobody to hold it for yet. The other keeps the room as long (`keeps_room`).
        return ()
    return (e.TurningBack(migration.id, Millis(now + state.migration_config.land_deadline), *why),)


def other_stays(state: ClusterState, migration: Migration) -> bool:
    """Whether the room that it waits for will not be left, or is the other one's again. Who has left may fail for other reasons: then the
    room is free all the same."""
    other = _other(state, migration)
    if other is None or other.back or other.step is Step.ABORTING:
        return True
    return other.step in waves.BROKEN and not other.armed


def place_lost(state: ClusterState, migration: Migration, now: Millis, why: Reason) -> Events:
    """It has left, and cannot land any more: back to its old node, unless that is the other's already. Who has not left yet is stopped
    first (`in_vain`)."""
    other = _other(state, migration)
    if migration.successor or now >= lands_until(state, migration) or (other is not None and other.step in (Step.EVICTED, Step.LANDED)):
        return (e.MigrationFailed(migration.id, *why),)
    if other is not None and other.step in (Step.HOLDING, Step.HELD, Step.EVICTING):
        return ()
    return broken(state, migration, now, why)


def in_vain(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether the other one has left, and cannot land where this one is: it needs its old room again, which this one was to have."""
    other = _other(state, migration)
    if other is None or other.step is not Step.EVICTED or other.successor or other.back:
        return None
    if (why := holds.lost(state, other)) is None and holds.is_open(state, other):
        return None
    return BROKEN, f"the pod that it was to change places with cannot land: {why[1] if why else 'its hold was lost'}"


def patience(state: ClusterState, migration: Migration) -> Millis:
    """Until when the room is waited for: as long as the other keeps it, and as its own pod, which uses it, terminates (RULES G-14); and a
    little more."""
    other, most = _other(state, migration), lands_until(state, migration)
    if holds.held(state, migration) or (other is not None and other.step is Step.ABORTING):
        return most
    ended = other.since if other is not None else Millis(0)
    left = max(waves.going_until(state, migration.move.pod), migration.vacated)
    return min(most, Millis(max(ended, migration.back, left) + state.migration_config.hold_deadline))


def keeps_room(state: ClusterState, migration: Migration) -> bool:
    """Whether it must not give up its hold yet, although its own pod stays: the pod that it was to change places with has left, and
    does not have that room yet."""
    other = _other(state, migration)
    if other is not None and other.step in (Step.EVICTING, Step.ABORTING) and not migration.evicting:
        # It may have left by now: nobody has said yet that it did, or that it will not.
        return not holds.held(state, other)
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
    alive = state.alive_under(migration.lineage.partition("/")[0])
    return (uid for uid in alive if state.may_follow(state.pods[uid], migration))
