"""Pauses of all moves, and what leads to one: evicted pods that missed their slots."""

from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain.evolve.rules import Rules, void
from restow.domain.movable import busy
from restow.domain.pod_controllers import is_beyond
from restow.domain.records import Migration, Pause, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import JOB_ENDED, NOT_NEEDED, OWNER_GONE, POD_DONE

KEEP = 1_000
"""Misses that are remembered, the newest: no policy counts more."""


def paused(state: ClusterState, event: e.MovesPaused) -> None:
    if state.pause.since:
        void(state, event)
        return
    state.pause = Pause(Millis(state.time), event.by, event.reason)


def resumed(state: ClusterState, event: e.MovesResumed) -> None:
    """What was missed before counts no more, and a time that has passed meanwhile is not made up for: nobody expects the nightly plan at noon."""
    if not state.pause.since:
        void(state, event)
        return
    state.pause = Pause()
    for id in list(state.missed):
        state.drop(state.missed, id)
    state.timed_from = state.time


def ended(state: ClusterState, record: Migration) -> None:
    """A part of the fold: a migration has come to its end. Its evicted pod has missed its slot where it did not land there; where its controller is at work on its
    pods (a rollout, fewer replicas), or has no more to make, that is nobody's failure."""
    lost = record.step in (Step.FAILED, Step.NOT_RECREATED) and record.evicted and record.reason not in (POD_DONE, JOB_ENDED, OWNER_GONE) and not _wants_fewer(state, record)
    returned = record.step is Step.LANDED and record.back
    if (lost or returned) and busy(state, record.lineage.partition("/")[0]) is None:
        state.put(state.missed, record.id, Millis(state.time))
        if len(state.missed) > KEEP:
            state.drop(state.missed, next(iter(state.missed)))


def _wants_fewer(state: ClusterState, record: Migration) -> bool:
    """Whether its controller has all the pods that it wants. Of a StatefulSet that reason may be somebody's admission, too, which is a miss."""
    top, _, name = record.lineage.partition("/")
    return record.reason == NOT_NEEDED and (not name or is_beyond(state.workloads.get(top), name))


RULES: Rules = {e.MovesPaused: paused, e.MovesResumed: resumed}
