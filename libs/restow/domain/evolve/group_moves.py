"""What PodGroups say of the moves of their pods: seed 003's `migrationInfo` and `migrationState` (RULES 003-2)."""

from msgspec.structs import replace

from restow.contracts.ids import ReservationUid
from restow.domain.groups import is_upstream, named
from restow.domain.records import FINAL, GroupMove, GroupMoves, Migration, Step
from restow.domain.state import ClusterState

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
OVER = (SUCCEEDED, FAILED)


def moved_on(state: ClusterState, record: Migration) -> None:
    """A migration has made a step. It is told of from the step `held` on; the first after all others are over begins anew."""
    group = named(record.group)
    if not record.group or group not in state.pod_groups or is_upstream(group):
        return
    known = state.group_moves.get(group)
    if known is not None and any(move.migration == record.id for move in known.moves):
        moves = tuple(replace(m, step=record.step) if m.migration == record.id else m for m in known.moves)
    elif record.step is Step.HELD or (record.step is Step.EVICTED and record.reservation):
        before = known.moves if known is not None and known.phase not in OVER else ()
        moves = (*before, _entry(record))
    else:
        return
    phase = _phase(moves)
    ran = phase == RUNNING or (known is not None and known.ran and (phase in OVER or known.phase not in OVER))
    if known is None:
        now = GroupMoves(moves, phase, state.time, ran=ran)
    else:
        now = GroupMoves(moves, phase, known.since if known.phase == phase else state.time, known.version + 1, ran)
    state.put(state.group_moves, group, now)


def _entry(record: Migration) -> GroupMove:
    move = record.move
    return GroupMove(record.id, move.pod, move.name, move.source, move.target, ReservationUid(record.reservation), record.step)


def _phase(moves: tuple[GroupMove, ...]) -> str:
    steps = {move.step for move in moves}
    if steps <= FINAL:
        return SUCCEEDED if steps == {Step.LANDED} else FAILED
    return PENDING if steps == {Step.HELD} else RUNNING


def forget(state: ClusterState) -> None:
    """Groups that are gone need no word."""
    for group in [group for group in state.group_moves if group not in state.pod_groups]:
        state.drop(state.group_moves, group)
