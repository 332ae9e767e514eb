"""All deciders by family. `cluster` has none: its events are facts."""

from restow.domain import gc, migration, reservation, session
from restow.domain.decider import Decider

_ALL: tuple[Decider, ...] = (session.decider, reservation.decider, migration.decider, gc.decider)

DECIDERS: dict[str, Decider] = {decider.family: decider for decider in _ALL}
