"""The waves of a plan: a move is in the first one in which everything has landed that it waits for."""

from collections.abc import Sequence

from restow.contracts.ids import MigrationId
from restow.contracts.values import Move
from restow.domain.migration.plan_order import before


def numbers(moves: Sequence[Move]) -> dict[MigrationId, int]:
    """Migration → its wave, from 1 on. What a plan does not have is not waited for."""
    known = {move.migration: move for move in moves}
    found: dict[MigrationId, int] = {}
    for move in moves:
        _number(move, known, found)
    return found


def _number(move: Move, known: dict[MigrationId, Move], found: dict[MigrationId, int]) -> None:
    """Without recursion, as chains may be long. In a circle, which no planner makes, the first that is seen again counts as
    done."""
    path, open_ = [move], {move.migration}
    while path:
        at = path[-1]
        wait = [id for id in before(at) if id in known and id not in found and id not in open_]
        if wait:
            path.append(known[wait[0]])
            open_.add(wait[0])
            continue
        path.pop()
        found.setdefault(at.migration, 1 + max((found.get(id, 0) for id in before(at)), default=0))


def waves(moves: Sequence[Move]) -> list[list[Move]]:
    """In order; within a wave as planned."""
    number = numbers(moves)
    found: list[list[Move]] = [[] for _ in range(max(number.values(), default=0))]
    for move in moves:
        found[number[move.migration] - 1].append(move)
    return found
