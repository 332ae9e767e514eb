"""Words for tests of the saga: plans, what the world answers, and how far a migration is."""

import msgspec
from domain.build import NOW, changed, configured, given, node, pod, replica_of, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move, Packing
from restow.domain import config, migration, session
from restow.domain import reservation as reservations
from restow.domain.records import Step
from restow.domain.state import ClusterState
from restow.kube import wire
from restow.kube.reservation_manifest import hold_manifest
from restow.kube.reservations import reservation_fact

decider = migration.decider
BOLD = {"max_unavailable": 0, "evictions_per_minute": 0}
"""No bounds but those that a test is about."""
NONE = Packing(0, 0, 0, 0, 0, 0)
OWNER = replica_of("rs")


def move(id: str, pod: str = "p", source: str = "a", target: str = "b", **more) -> Move:
    return Move(id, pod, "default", pod, source, target, **more)


def plan(id: str, *moves: Move, **more) -> e.Planned:
    return e.Planned(id, "Defragmentation", moves, NONE, NONE, **more)


def world(*more: e.Event, **conf) -> ClusterState:
    """Nodes a to d, and pods p1 to p4 of one controller on a. As bold as can be, where nothing else is said."""
    conf = BOLD | conf
    nodes = [node(name, cpu=8_000) for name in "abcd"]
    pods = [pod(f"p{i}", node="a", owner=OWNER) for i in range(1, 5)]
    return given(configured("migration", config.MigrationConfig(**conf)), *nodes, shape("s"), *pods, *more)


def advance(state: ClusterState, after: int = 0) -> list[e.Event]:
    """Until nothing more is due."""
    events: list[e.Event] = []
    for _ in range(100):
        found = run(state, decider, c.Advance(NOW + after))
        events += found
        if decider.due(state, NOW + after) is None:
            return events
        assert found, "what is due leads to something"
    raise AssertionError("it never comes to rest")


def begun(events: list[e.Event]) -> list[str]:
    return [event.migration for event in events if isinstance(event, e.Holding)]


def evicts(events: list[e.Event]) -> list[str]:
    return [event.migration for event in events if isinstance(event, e.Evicting)]


def failed(events: list[e.Event]) -> dict[str, str]:
    return {event.migration: event.reason for event in events if isinstance(event, e.MigrationFailed)}


def step(state: ClusterState, id: str) -> Step:
    return state.migrations[id].step


def owed(state: ClusterState) -> list:
    return list(decider.pending(state, None))


def create(state: ClusterState, *ids: str) -> None:
    """The effect makes the hold's object, and the watcher sees it: what the manifest says, read back."""
    for id in ids:
        record = state.migrations[id]
        manifest = hold_manifest(state, record)
        observe(state, manifest, f"hold-{id}-back" if record.back else f"hold-{id}")


def observe(state: ClusterState, manifest, uid: str) -> None:
    body = msgspec.to_builtins(manifest)
    body["metadata"] |= {"uid": uid, "generation": 1}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=wire.Reservation)
    shapes, fact = reservation_fact(decoded, "volcano")
    then(state, *(e.ShapeDeclared(id, spec) for id, spec in shapes.items() if id not in state.shapes), fact)


def session_answers(state: ClusterState, after: int = 0) -> None:
    """And the cache."""
    run(state, reservations.decider, c.Review(NOW + after))
    for _ in range(3):
        run(state, session.decider, c.Schedule(NOW + after))


def hold(state: ClusterState, *ids: str, after: int = 0) -> list[e.Event]:
    """They are held, and the saga goes on."""
    create(state, *ids)
    session_answers(state, after)
    return advance(state, after)


def terminate(state: ClusterState, *pods: str) -> None:
    for uid in pods:
        live = state.pods[uid].live
        then(state, changed(uid, node=live.node, phase="Running", deleting=NOW))


def land(state: ClusterState, id: str, successor: str, after: int = 0, gone: bool = True, **more) -> list[e.Event]:
    """The victim terminates (and is gone), its successor comes, takes the hold and is ready."""
    victim, target = state.migrations[id].move.pod, state.migrations[id].move.target
    terminate(state, victim)
    advance(state, after)
    of = state.pods[victim].fact
    then(state, pod(successor, of.shape, owner=of.owner, **({"labels": of.labels, "annotations": of.annotations} | more)))
    session_answers(state, after)
    assert state.placed[successor].node == target
    if gone:
        then(state, e.PodGone(victim))
    then(state, changed(successor, node=target, phase="Running", ready=True))
    return advance(state, after)


def through(state: ClusterState, id: str, successor: str, after: int = 0, **more) -> list[e.Event]:
    """From `holding` to `landed`."""
    assert evicts(hold(state, id, after=after)) == [id]
    return land(state, id, successor, after, **more)


__all__ = [
    "BOLD", "NONE", "OWNER", "advance", "begun", "create", "decider", "evicts", "failed", "hold", "land", "move", "observe", "owed", "plan",
    "reservation", "session_answers", "step", "terminate", "through", "world",
]  # fmt: skip
