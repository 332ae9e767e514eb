"""Clusters with many Reservations, and pods that own them: what the benchmark of holds works on."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid
from restow.contracts.values import (
    LabelSelector,
    ObjectRef,
    OwnerRef,
    OwnerRule,
    PodShape,
    ReservationSpec,
    ReservationTask,
)
from restow.domain import reservation
from restow.domain.session import decider
from restow.domain.state import ClusterState

from .session_worlds import SHAPES
from .world import MIB, START, Scribe, app_pod, plain_nodes, plain_shape, shape_id

EVERYBODY = "everybody"
"""The one owner of all holds: an app, or a controller."""
SPACIOUS = {"cpu": 32_000, "memory": 256 * 1024 * MIB, "pods": 250}
"""A node of the small cluster: 250 pods and 64 holds of about 100m and 500Mi have capacity on it."""


class Case(NamedTuple):
    """`once`: each hold is a pod's; otherwise each serves as many as there are for it. Holds are owned by `label` or by
    `controller`, one Reservation (or three places of one) for each app, or all of them by the same pods (`shared`)."""

    nodes: int
    holds: int
    pods: int
    once: bool
    label: bool = True
    shared: bool = False

    @property
    def slots(self) -> int:
        """Of one Reservation: Volcano's form has many, and each is used once."""
        return 3 if self.once and not self.shared else 1

    @property
    def apps(self) -> int:
        return self.holds // self.slots

    @property
    def share(self) -> int:
        """How many pods one hold is made for."""
        return 1 if self.once else -(-self.pods // self.holds)

    @property
    def possible(self) -> bool:
        """At most one reusable Reservation of a kind is held on a node (RULES 004-3); kinds are as many as shapes where all have
        the same owners."""
        return self.once or not self.shared or self.holds <= self.nodes * SHAPES


def cases(nodes: tuple[int, ...], holds: tuple[int, ...], pods: tuple[int, ...]) -> list[list[Case]]:
    """The product of sizes, once-only and reusable; in each the four kinds of owners, as far as they can be."""
    sizes = product(nodes, holds, pods, (True, False))
    return [[case for owners in product((True, False), (False, True)) if (case := Case(*size, *owners)).possible] for size in sizes]


def build(case: Case, waiting: bool = True) -> Scribe:
    """The holds are held; with `waiting`, the pods wait that own them."""
    scribe = asked(case)
    hold_all(scribe)
    if waiting:
        scribe.facts(list(owners_of(case)))
    return scribe


def asked(case: Case) -> Scribe:
    """All of them are requested and accepted, none is held."""
    scribe = Scribe()
    scribe.facts([*nodes_of(case), *[plain_shape(i) for i in range(SHAPES)], *[_hold_shape(i, case.share) for i in range(SHAPES)]])
    scribe.facts(list(reservations(case)))
    review(scribe)
    return scribe


def review(scribe: Scribe) -> None:
    while (command := reservation.decider.due(scribe.state, START)) is not None and scribe.decide(reservation.decider, command):
        pass


def hold_all(scribe: Scribe) -> None:
    while (command := decider.due(scribe.state, START)) is not None and scribe.decide(decider, command):
        pass
    waiting = len(scribe.state.slot_queue)
    if waiting:
        raise AssertionError(f"{waiting} holds have no room: a case that cannot be")


def nodes_of(case: Case) -> list[e.NodeObserved]:
    facts = plain_nodes(case.nodes)
    return facts if case.nodes >= 1_000 else [replace(fact, allocatable=SPACIOUS) for fact in facts]


def _hold_shape(i: int, share: int) -> e.ShapeDeclared:
    """What a hold is of that `share` pods of shape `i` fit into; it counts as one pod."""
    pod = plain_shape(i).spec
    requests = {resource: amount if resource == "pods" else amount * share for resource, amount in pod.requests.items()}
    id = shape_id(SHAPES + i)
    return e.ShapeDeclared(id, PodShape(requests, scheduler="restow", spec_digest=id))  # type: ignore[arg-type]


def reservations(case: Case, prefix: str = "hold", apps: str = "app") -> Iterator[e.ReservationObserved]:
    api = "volcano" if case.once else "koordinator"
    for i in range(case.apps):
        task = ReservationTask("task", case.slots, shape_id(SHAPES + i % SHAPES), {"hold": "yes"}, namespace="default")  # type: ignore[arg-type]
        spec = ReservationSpec((task,), (_owner(case, f"{apps}-{i}"),), allocate_once=case.once, match_policy="Owner")
        uid = ReservationUid(f"{prefix}-{i:05d}")
        yield e.ReservationObserved(uid, api, "default" if case.once else "", uid, START, spec=spec)


def _owner(case: Case, app: str) -> OwnerRule:
    name = EVERYBODY if case.shared else app
    if case.label:
        return OwnerRule(selector=LabelSelector({"set": name}))
    return OwnerRule(controller=ObjectRef("ReplicaSet", "default", name))


def owners_of(case: Case, first: int = 0, count: int | None = None) -> Iterator[e.PodObserved]:
    """Pods number `first` and up, the apps in turn."""
    for i in range(first, first + (case.pods if count is None else count)):
        app = i % case.apps
        name = EVERYBODY if case.shared else f"app-{app}"
        pod = app_pod(i, app % SHAPES, f"app-{app}")
        yield replace(pod, labels={**pod.labels, "set": name}, owner=OwnerRef("ReplicaSet", name, f"uid-{name}"))  # type: ignore[arg-type]


def strangers(first: int, count: int) -> Iterator[e.PodObserved]:
    """Pods that own nothing."""
    for i in range(first, first + count):
        yield app_pod(i, i % SHAPES, f"other-{i // 10}")


def handed(state: ClusterState) -> dict[str, tuple[str, str]]:
    """Node and Reservation of each pod that was placed; no Reservation where it took none."""
    return {uid: (placed.node, placed.hold[0] if placed.hold else "") for uid, placed in state.placed.items()}
