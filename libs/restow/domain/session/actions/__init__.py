"""The registry of actions: one line each. `reserve` is two, told apart by position alone (RULES 000-5)."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from restow.domain.config import SessionConfig
from restow.domain.session.actions import (
    allocate,
    backfill,
    enqueue,
    preempt,
    reclaim,
    reserve_handover,
    reserve_starving,
)
from restow.domain.session.actions.args import ARGS as ARGS

ACTIONS: dict[str, ModuleType] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
}
RESERVE = "reserve"


def of(config: SessionConfig) -> Iterator[tuple[ModuleType, Any]]:
    """(module, arguments) in the order of the configuration."""
    allocated = False
    for action in config.actions:
        args = ARGS[action.name].read(action.arguments)
        if action.name == RESERVE:
            yield (reserve_starving if allocated else reserve_handover), args
            continue
        allocated = allocated or action.name == "allocate"
        if action.name in ACTIONS:
            yield ACTIONS[action.name], args
