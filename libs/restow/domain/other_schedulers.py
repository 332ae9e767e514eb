"""Reservations for other schedulers: they are never touched (DESIGN 6).

The schedulers that a Reservation is for are those of its templates. One that names none that is among the session's
`scheduler_names` is somebody else's: it is not reviewed, gets no status and no Event, nothing is held for it, and its object is never
deleted. Where the descheduler's policy names that scheduler (`beside`), the capacity is held all the same, with placeholders for that scheduler to see
(`restow.domain.beside`). One that names none at all is ours: its pods' scheduler is then `default-scheduler`, which serves no Reservations (in
Koordinator's scheduler an empty name means its profile of that name). What Restow makes for a migration is ours.

Of two installations on one API server each leaves alone what the other makes: every object that Restow makes names the log that it was
decided in (`LOG`). Objects of older releases do not; they are ours where this log knows them.
"""

from restow.contracts.events import ReservationObserved
from restow.contracts.ids import ShapeId
from restow.domain.records import OBSERVE, Reservation
from restow.domain.state_maps import Maps

LOG = "restow.dev/log"
"""Label of a Reservation that Restow has made: the id of the log that says why."""
UNNAMED = "default-scheduler"
"""What a template is for that names no scheduler."""
OTHER_SCHEDULER = "OtherScheduler"
"""Why nothing is held any more for a Reservation that was ours."""


def is_beside(state: Maps, shape: ShapeId) -> bool:
    """Whether its pods are another scheduler's, and may be moved all the same. Where nothing is moved but observed, those of any scheduler may."""
    scheduler = state.shapes[shape].scheduler
    return (state.mode.name == OBSERVE or scheduler in state.migration_config.beside) and scheduler not in state.session_config.scheduler_names


def other_log(state: Maps, fact: ReservationObserved) -> str:
    """The log that says why it was made, where that is not this one; empty where it is, or where none is named."""
    log = fact.labels.get(LOG, "") if fact.labels else ""
    return log if log != state.log else ""


def schedulers(state: Maps, record: Reservation) -> tuple[str, ...]:
    """The schedulers that its templates name, each once, in their order; also where the rest of it cannot be read."""
    fact = record.fact
    if fact.spec is None:
        said = fact.schedulers
    else:
        said = tuple(state.shapes[task.shape].scheduler for task in fact.spec.tasks)
    return tuple(dict.fromkeys(name for name in said if name != UNNAMED))


def held_for(state: Maps, record: Reservation) -> str:
    """The other scheduler for whose pods it is held with placeholders: all of its templates are for that one, which `beside` names. `default-scheduler` counts
    where `spec.schedulerName` says so: a template that says nothing is for that one, too. Empty where it is not so."""
    spec, beside = record.spec or record.fact.spec, state.migration_config.beside
    if not beside or spec is None or not spec.tasks or other_log(state, record.fact):
        return ""
    named = {state.shapes[task.shape].scheduler for task in spec.tasks}
    one = min(named)
    if len(named) > 1 or one not in beside or one in state.session_config.scheduler_names or (one == UNNAMED and spec.scheduler != UNNAMED):
        return ""
    return "" if _is_moves(state, record) else one


def other_scheduler(state: Maps, record: Reservation) -> str:
    """The scheduler that it is for; empty where it is ours. What another Restow has made is for that one's session."""
    if log := other_log(state, record.fact):
        return f"restow, of log {log}"
    named = schedulers(state, record)
    if not named or held_for(state, record) or any(name in state.session_config.scheduler_names for name in named):
        return ""
    return "" if _is_moves(state, record) else named[0]


def _is_moves(state: Maps, record: Reservation) -> bool:
    """Whether it is the hold of a migration, or the one on its target that this has given up when it turned back."""
    migration = state.migrations.get(record.fact.migration)
    return migration is not None and record.fact.reservation in (migration.reservation, migration.spent)
