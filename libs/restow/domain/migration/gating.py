"""For which moves the API gates what a controller makes: from `holding` on, until a slot is handed over to the successor or the move has ended.

Only for pods of other schedulers (`restow.domain.beside`). Each entry ends by itself, so that nothing is gated for long where Restow is away.
"""

from collections.abc import Iterator

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis
from restow.contracts.times import bounded
from restow.domain.beside import is_beside
from restow.domain.effects import CloseLanding, Effect, OpenLanding
from restow.domain.hooks import LONGEST
from restow.domain.landing_gate import RENEWED, STRETCH
from restow.domain.migration import consents
from restow.domain.migration.deadlines import deadline, pauses_for
from restow.domain.migration.plan_order import STUCK
from restow.domain.migration.whole_nodes import Whole
from restow.domain.pod_controllers import FAMILY
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState

SPARE = 120_000
"""Milliseconds for which an entry is made beyond what is needed now, so that it is not renewed at each step."""
LAST_WORD = 5_000
"""Milliseconds before the time to be evicted is up (at most a quarter of it), when it is said that it was the gate that was waited for."""


def is_wanted(state: ClusterState, migration: Migration) -> bool:
    """Whether its successor is to be gated."""
    if migration.step in FINAL or migration.step is Step.PLANNED or migration.successor or not migration.move.target:
        return False
    return is_beside(state, migration.shape)


def needed_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when its successor may come, as far as is known now. Of one whose workload is asked that is known when the word has come: meanwhile its entry is renewed
    (`pending`)."""
    if consents.is_waited_for(state, migration):
        return Millis(0)
    config, until = state.migration_config, deadline(state, migration)
    return until if migration.step is Step.EVICTED else Millis(until + config.evicts_for + config.land_deadline + pauses_for(migration))


def needed_at_longest(state: ClusterState, migration: Migration) -> Millis:
    """Until when its successor may come whatever is waited for before its pod may go: its workload's word; where its node is emptied wholly, or its gang
    moved as one, the others' words and turns; and while its pod ends."""
    until = needed_until(state, migration)
    if migration.step is Step.EVICTED:
        return until
    until = Millis(max(until, state.time) + _goes_for(state, migration))
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
    """Whether what its controller makes is gated for as long as it may have to be; of a pod of ours nothing has to be."""
    if not is_beside(state, migration.shape):
        return True
    landing = state.landings.get(migration.id)
    return landing is not None and landing.until >= needed_until(state, migration)


def waits_until(migration: Migration) -> Millis:
    """Until when an eviction that was decided waits for the API to gate the successor: as long as for a budget. An API server that has just started counts the
    policy once it has found the kind of its parameters, for which it looks every 30 s (kubernetes, discoveryRESTMapper), and that may be at any time."""
    return Millis(migration.deadline - min(LAST_WORD, (migration.deadline - migration.evicting) // 4))


def open_until(state: ClusterState, controller: str) -> Millis:
    """Until when the entry of a controller counts, which all moves of its pods have together; 0 where there is none."""
    return max((known.until for known in state.landings.values() if known.controller == controller), default=Millis(0))


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
        return
    if (known := state.landings.get(migration.id)) is not None and consents.is_waited_for(state, migration):
        yield OpenLanding(migration.id, known.controller, bounded(known.until + STRETCH))
        return
    if is_gated(state, migration):
        return
    if controller := controller_of(state, migration):
        yield OpenLanding(migration.id, controller, Millis(needed_until(state, migration) + SPARE))


def renewed_at(state: ClusterState, migration: Migration) -> Millis:
    """From when on the entry of one whose workload is asked is to be renewed; 0 where that is not so. Nothing says that it is so late: it is owed before, and waits
    for the clock."""
    known = state.landings.get(migration.id)
    return Millis(known.until - RENEWED) if known is not None and consents.is_waited_for(state, migration) else Millis(0)


def reported(state: ClusterState, said: c.ReportLanding) -> tuple[e.Event, ...]:
    known = state.landings.get(said.migration)
    if not said.until:
        return (e.LandingClosed(said.migration),) if known is not None else ()
    if said.migration not in state.migrations or (known is not None and known.until >= said.until):
        return ()
    return (e.LandingOpened(said.migration, said.controller, said.until),)
