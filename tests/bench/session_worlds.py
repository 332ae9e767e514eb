"""What the session benchmark has to place: clusters of one node template, pods of about 100m and 500Mi."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from restow.contracts import events as e
from restow.contracts.values import (
    LabelSelector,
    OwnerRule,
    PodTerm,
    ReservationSpec,
    ReservationTask,
    Spread,
)
from restow.domain import reservation
from restow.domain.session import decider
from restow.domain.state import ClusterState

from .world import (
    START,
    Scribe,
    app_pod,
    node_facts,
    plain_nodes,
    plain_shape,
    pod_fact,
    shape_facts,
    shape_id,
)

SHAPES = 8
APPS = 10
GANGS = 3

Build = Callable[[int, int], ClusterState]
"""(nodes, pods) → a cluster in which those pods wait."""


class Workload(NamedTuple):
    """`what` is its line in the table, `goal` in pods per second (for the full size)."""

    what: str
    build: Build
    nodes: int
    pods: int
    goal: float | None = None


def few_shapes(nodes: int, pods: int) -> ClusterState:
    return _waiting(Scribe(), nodes, [plain_shape(i) for i in range(SHAPES)], few_shaped(pods)).state


def few_shaped(pods: int, first: int = 0) -> list[e.PodObserved]:
    """Pods number `first` and up; the shapes in turn, ten pods an app."""
    return [app_pod(i, i % SHAPES, f"job-{i // 10}") for i in range(first, first + pods)]


def trace_mix(nodes: int, pods: int) -> ClusterState:
    """Node and pod shapes of the openb trace, GPUs included."""
    scribe = Scribe()
    scribe.facts([*node_facts(nodes), *shape_facts(SHAPES)])
    scribe.facts([pod_fact(i, i % SHAPES) for i in range(pods)])
    return scribe.state


def all_distinct(nodes: int, pods: int) -> ClusterState:
    # Each pod right behind its shape: what no pod names is forgotten after a while.
    facts = [(plain_shape(i, kinds=pods), app_pod(i, i, f"job-{i // 10}")) for i in range(pods)]
    return _waiting(Scribe(), nodes, [], [fact for both in facts for fact in both]).state


def gangs(nodes: int, pods: int) -> ClusterState:
    """Three, that want all of their pods or none, and whose pods the log saw mixed."""
    scribe = Scribe()
    scribe.facts([e.PodGroupObserved("default", f"gang-{g}", f"uid-gang-{g}", START, min_member=pods // GANGS) for g in range(GANGS)])
    waiting = [app_pod(i, i % GANGS, f"gang-{i % GANGS}", f"gang-{i % GANGS}") for i in range(pods)]
    return _waiting(scribe, nodes, [plain_shape(i) for i in range(GANGS)], waiting).state


def apart(nodes: int, pods: int) -> ClusterState:
    """Ten apps; no two pods of one may share a node."""
    return _apps(nodes, pods, lambda app: {"pod_anti_affinity": (PodTerm("kubernetes.io/hostname", LabelSelector({"app": app})),)})


def spread(nodes: int, pods: int) -> ClusterState:
    """Ten apps; each must be spread evenly over three zones."""
    rule = "topology.kubernetes.io/zone", "DoNotSchedule"
    return _apps(nodes, pods, lambda app: {"spread": (Spread(1, *rule, LabelSelector({"app": app})),)})


def _apps(nodes: int, pods: int, rules: Callable[[str], dict[str, Any]]) -> ClusterState:
    shapes = [plain_shape(i, **rules(f"app-{i}")) for i in range(APPS)]
    return _waiting(Scribe(), nodes, shapes, [app_pod(i, i % APPS, f"app-{i % APPS}") for i in range(pods)]).state


def own_holds(nodes: int, pods: int) -> ClusterState:
    """A Reservation of three places for each ten pods: three of them take the places, the others go the normal way."""
    return _held(nodes, pods, pods // 10, 3, lambda app: {"app": app})


def shared_holds(nodes: int, pods: int) -> ClusterState:
    """As many places, each a Reservation of its own that every pod is an owner of."""
    return _held(nodes, pods, pods // 10 * 3, 1, lambda app: {"tier": "bench"})


def _held(nodes: int, pods: int, reservations: int, places: int, owner: Callable[[str], dict[str, str]]) -> ClusterState:
    scribe = Scribe()
    state = scribe.state
    scribe.facts([*plain_nodes(nodes), *[plain_shape(i) for i in range(SHAPES)]])
    for i in range(reservations):
        spec = ReservationSpec(
            (ReservationTask("task", places, shape_id(i % SHAPES)),), (OwnerRule(selector=LabelSelector(owner(f"app-{i}"))),),  # type: ignore[arg-type]
            allocate_once=True,
        )  # fmt: skip
        scribe.facts([e.ReservationObserved(f"r-{i:03d}", "volcano", "default", f"r-{i:03d}", START, spec=spec)])  # type: ignore[arg-type]
    while (review := reservation.decider.due(state, START)) is not None and scribe.decide(reservation.decider, review):
        pass
    while (command := decider.due(state, START)) is not None and scribe.decide(decider, command):
        pass
    apps = pods // 10
    scribe.facts([app_pod(i, i % apps % SHAPES, f"app-{i % apps}") for i in range(pods)])
    return state


def _waiting(scribe: Scribe, nodes: int, shapes: Sequence[e.Event], pods: Sequence[e.Event]) -> Scribe:
    scribe.facts([*plain_nodes(nodes), *shapes])
    scribe.facts(pods)
    return scribe


def busy(nodes: int, running: int) -> Scribe:
    """A cluster in which so many pods of few shapes run, as many on each node."""
    scribe = Scribe()
    names = [fact.name for fact in plain_nodes(nodes)]
    shapes = [plain_shape(i) for i in range(SHAPES)]
    return _waiting(scribe, nodes, shapes, [app_pod(i, i % SHAPES, f"job-{i // 10}", node=names[i * 7 % nodes]) for i in range(running)])
