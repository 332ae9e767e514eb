"""All deciders by family. `cluster` has none: its events are facts."""

from restow.domain import gc, migration, reservation, session
from restow.domain.decider import Decider

DECIDERS: dict[str, Decider] = {
    d.family: d for d in (session.decider, reservation.decider, migration.decider, gc.decider)
}
