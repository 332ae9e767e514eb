"""Plans and the saga of each migration: planned → holding → held → evicting → evicted → landed, or rolled back."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, NodeName
from restow.domain.evolve.reservations import cancel
from restow.domain.records import FINAL, Migration, Plan, Step
from restow.domain.state import ClusterState


def planned(state: ClusterState, event: e.Planned) -> None:
    state.put(state.plans, event.plan, Plan(event, state.time, event.plugin))
    for move in event.moves:
        pod = state.pods.get(move.pod)
        if pod is None or move.pod in state.victims:
            state.void["migration.planned"] += 1
            continue
        id = MigrationId(move.migration)
        record = Migration(id, event.plan, move, pod.shape, state.lineage(pod), since=state.time)
        state.put(state.migrations, id, record)
        state.put(state.backlog, id, None)
        state.put(state.victims, move.pod, id)
        state.touched.migrations[id] = None
        for node in (move.source, move.target):
            state.put(state.cooling, NodeName(node), state.time)


def _step(to: Step, after: frozenset[Step]):
    name = f"migration.{to}"

    def rule(state: ClusterState, event) -> None:
        record = state.migrations.get(event.migration)
        if record is None or record.step not in after:
            state.void[name] += 1
            return
        record = replace(
            record,
            step=to,
            since=state.time,
            deadline=getattr(event, "deadline", record.deadline),
            reason=getattr(event, "reason", record.reason),
            message=getattr(event, "message", record.message),
        )
        state.put(state.migrations, record.id, record)
        state.drop(state.backlog, record.id)
        state.touched.migrations[record.id] = None
        if to not in FINAL:
            state.put(state.active, record.id, None)
            return
        state.drop(state.active, record.id)
        state.drop(state.victims, record.move.pod)
        state.drop(state.successors, record.successor)
        state.drop_in(state.armed, record.lineage, record.id)
        if to is not Step.LANDED and record.reservation in state.reservations:
            cancel(state, record.reservation, "MigrationOver")

    return rule


_ACTIVE = frozenset(Step) - FINAL

RULES = {
    e.Planned: planned,
    e.Holding: _step(Step.HOLDING, frozenset({Step.PLANNED})),
    e.Held: _step(Step.HELD, frozenset({Step.HOLDING})),
    e.Evicting: _step(Step.EVICTING, frozenset({Step.HELD})),
    e.Evicted: _step(Step.EVICTED, frozenset({Step.EVICTING, Step.ABORTING})),
    e.Aborting: _step(Step.ABORTING, frozenset({Step.EVICTING})),
    e.Landed: _step(Step.LANDED, frozenset({Step.EVICTED})),
    e.MigrationFailed: _step(Step.FAILED, _ACTIVE),
    e.NotRecreated: _step(Step.NOT_RECREATED, frozenset({Step.EVICTED})),
}
