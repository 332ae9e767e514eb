"""Every move of an optimizing plan is one that the scheduler would make: after the moves before it, by all its rules."""

import msgspec
from domain.build import NOW
from domain.ruled import cluster, may
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs

ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={}, searchSteps=800)


@settings(max_examples=25, deadline=None)
@any_of(st.integers(0, 100_000))
def test_the_scheduler_would_make_each_move(seed):
    state = cluster(seed)
    plan = defragmentation.plan(state, ARGS, NOW, "p")
    pods = {uid: state.pods[uid].fact for uid in state.pods}
    rest = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
    of = {move.migration: move.pod for move in plan.moves}
    done: set[str] = set()
    for move in plan.moves:
        uid = move.pod or of[move.follows]
        assert set(move.after) <= done, "the order of the moves is one that their `after` permits"
        here = [fact for other, fact in pods.items() if other != uid]
        successor = msgspec.structs.replace(pods[uid], node=None, phase="Pending", ready=False)
        assert may([*rest, *here], successor, move.target), move
        pods[uid] = msgspec.structs.replace(pods[uid], node=move.target)
        done.add(move.migration)
