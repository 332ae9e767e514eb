"""For which moves the API gates what a controller makes: from when their slot is chosen on, until a kubelet has taken the successor that a slot was handed over to, or the move has ended.
(A kubelet may reject it, and the next one is made at once.)

Only for pods of other schedulers (`restow.domain.beside`). Each entry is a lease (`landing_gate.LEASE`): the session renews those that are needed (`listed`), so that
nothing new is gated for long where Restow is away. That is no fact: whether the API gates a successor now is asked of it before every eviction, and one that comes without
the gate all the same is nominated for its slot like any other.
"""

from collections.abc import Iterator

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis
from restow.contracts.times import bounded
from restow.domain.beside import is_beside
from restow.domain.effects import CloseLanding, Effect, OpenLanding
from restow.domain.hooks import LONGEST
from restow.domain.migration import consents, holds
from restow.domain.migration.deadlines import deadline, pauses_for
from restow.domain.migration.plan_order import STUCK
from restow.domain.migration.whole_nodes import Whole
from restow.domain.pod_controllers import FAMILY
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState

LAST_WORD = 5_000
"""Milliseconds before the time to be evicted is up (at most a quarter of it), when it is said that it was the gate that was waited for."""


def is_wanted(state: ClusterState, migration: Migration) -> bool:
    """Whether its successor is to be gated."""
    if migration.step in FINAL or migration.step is Step.PLANNED or not migration.move.target or not is_beside(state, migration.shape):
        return False
    return not migration.successor or (migration.id in state.landings and not _is_taken(state, migration))


def _is_taken(state: ClusterState, migration: Migration) -> bool:
    """Whether a kubelet has begun with its successor, so that it rejects it no more; or there is none any more."""
    live = state.live_of(migration.successor)
    return live is None or live.phase != "Pending" or live.deleting > 0


def needed_at_longest(state: ClusterState, migration: Migration) -> Millis:
    """Until when its successor may come whatever is waited for before its pod may go: its workload's word; where its node is emptied wholly, or its gang
    moved as one, the others' words and turns; and while its pod ends."""
    until = deadline(state, migration)
    if migration.step is Step.EVICTED:
        return until
    config, is_asked = state.migration_config, consents.is_waited_for(state, migration)
    until = state.time if is_asked else max(state.time, Millis(until + config.evicts_for + config.land_deadline + pauses_for(migration)))
    until = Millis(until + _goes_for(state, migration))
    if migration.step not in (Step.HOLDING, Step.HELD):
        return bounded(until)
    hook = consents.hook_of(state, migration)
    waits = LONGEST if Whole(state).binds(migration) else hook.deadline if hook is not None else 0
    return bounded(until + waits)


def _goes_for(state: ClusterState, migration: Migration) -> int:
    """Milliseconds that its pod is waited for at most once it is told to go: its grace period, and what may keep it beyond that."""
    pod, asked = state.fact_of(migration.move.pod), state.migration_config.grace
    own = pod.grace if pod is not None else 0
    return (own if asked is None else asked) * 1000 + STUCK


def is_gated(state: ClusterState, migration: Migration) -> bool:
    """Whether the API was asked to gate what its controller makes; of a pod of ours nothing has to be."""
    return migration.id in state.landings or not is_beside(state, migration.shape)


def waits_until(migration: Migration) -> Millis:
    """Until when an eviction that was decided waits for the API to gate the successor: as long as for a budget. An API server that has just started counts the
    policy once it has found the kind of its parameters, for which it looks every 30 s (kubernetes, discoveryRESTMapper), and that may be at any time."""
    return Millis(migration.deadline - min(LAST_WORD, (migration.deadline - migration.evicting) // 4))


def listed(state: ClusterState) -> Iterator[tuple[Migration, str]]:
    """Moves whose entries are made and still needed, with the controller's uid: all moves of its pods have one entry together."""
    for id, known in state.landings.items():
        migration = state.migrations.get(id)
        if migration is not None and is_wanted(state, migration):
            yield migration, known.controller


def is_needed(state: ClusterState, controller: str) -> bool:
    """Whether a move needs the entry of this controller, or will in a moment."""
    return any(is_wanted(state, migration) and controller_of(state, migration) == controller for migration in map(state.migrations.__getitem__, state.active))


def controller_of(state: ClusterState, migration: Migration) -> str:
    """Of its pod; also after the pod has gone, where it was listed before."""
    pod, known = state.fact_of(migration.move.pod), state.landings.get(migration.id)
    return pod.owner.uid if pod is not None and pod.owner is not None else "" if known is None else known.controller


def name_of(migration: Migration) -> str:
    """The name that its successor will have although its controller is another one, of which nobody knows yet: a LeaderWorkerSet that makes a group anew
    makes its StatefulSet anew, and that its pods under their names. Empty where the controller stays."""
    return migration.move.name if migration.lineage.startswith(FAMILY) else ""


def is_named(state: ClusterState, id: str) -> bool:
    """Whether an entry by name, under this migration's id, is needed."""
    migration = state.migrations.get(MigrationId(id))
    return migration is not None and bool(name_of(migration)) and (is_wanted(state, migration) or migration.id in state.landings)


def pending(state: ClusterState, migration: Migration) -> Iterator[Effect]:
    if not is_wanted(state, migration):
        if migration.id in state.landings:
            yield CloseLanding(migration.id)
    elif not is_gated(state, migration) and holds.placed(state, migration) and (controller := controller_of(state, migration)):
        # A slot that is chosen says that there is a session, which lets go what is gated.
        yield OpenLanding(migration.id, controller)


def reported(state: ClusterState, said: c.ReportLanding) -> tuple[e.Event, ...]:
    known = state.landings.get(said.migration)
    if not said.until:
        return (e.LandingClosed(said.migration),) if known is not None else ()
    if said.migration not in state.migrations or known is not None:
        return ()
    return (e.LandingOpened(said.migration, said.controller, said.until),)
