"""Reservation objects of both front doors → one contract form (RULES G-2 to G-6, 000-3, 003-1, 004-1, 004-2).

Only the form is judged here: what cannot be expressed becomes `invalid` with path, value and what is allowed, and never an
error. Whether a readable Reservation makes sense is decided, and logged, by reservation_cache.
"""

from typing import Literal

import msgspec

from restow.contracts import events as e
from restow.contracts import values as v
from restow.contracts.ids import MigrationId, NodeName, ReservationUid, ShapeId
from restow.domain import duration
from restow.kube import selectors, wire
from restow.kube.annotations import MIGRATION
from restow.kube.decode import BAD_JSON
from restow.kube.describe import millis
from restow.kube.explain import explained
from restow.kube.requests import FactError
from restow.kube.shapes import Shaped, Shaper

Door = Literal["volcano", "koordinator"]
Shapes = dict[ShapeId, v.PodShape]

_spec = msgspec.json.Decoder(wire.ReservationSpec)
_shaper = Shaper(limit=5_000)


def reservation_fact(
    reservation: wire.Reservation, door: Door, shaper: Shaper = _shaper
) -> tuple[Shapes, e.ReservationObserved]:
    """The shapes that the fact names, and the fact. Never raises for what the object says."""
    meta = reservation.metadata
    shapes: Shapes = {}
    spec, invalid = None, ""
    try:
        spec = _read(reservation, door, shapes, shaper)
    except FactError as error:
        shapes, invalid = {}, str(error)
    return shapes, e.ReservationObserved(
        reservation=ReservationUid(meta.uid),
        door=door,
        namespace=meta.namespace,
        name=meta.name,
        created=millis(meta.creation_timestamp),
        generation=meta.generation or 1,
        deleting=millis(meta.deletion_timestamp),
        migration=MigrationId((meta.labels or {}).get(MIGRATION, "")),
        spec=spec,
        invalid=invalid,
    )


def _read(reservation: wire.Reservation, door: Door, shapes: Shapes, shaper: Shaper) -> v.ReservationSpec:
    if bytes(reservation.spec) in (b"", b"null"):
        raise FactError("spec: missing; allowed: a reservation's specification")
    try:
        spec = _spec.decode(reservation.spec)
    except BAD_JSON as error:
        raise FactError(explained(_spec, str(error), reservation.spec)) from error
    by_tasks = _form(spec, door)
    scheduler = spec.scheduler_name or ""
    if by_tasks:
        tasks = tuple(
            _task(task, f"spec.tasks[{i}]", task.name or f"default{i}", scheduler, shapes, shaper)
            for i, task in enumerate(spec.tasks or ())
        )
    else:
        only = wire.Task(replicas=1, template=spec.template)
        tasks = (_task(only, "spec", "reservation", scheduler, shapes, shaper),)
    once = by_tasks or door == "koordinator"
    migrates = MIGRATION in (reservation.metadata.labels or {})
    return v.ReservationSpec(
        tasks=tasks,
        owners=tuple(_owner(owner, f"spec.owners[{i}]") for i, owner in enumerate(spec.owners or ())),
        min_available=spec.min_available or 0,
        queue=spec.queue or "",
        ttl=None if spec.ttl is None else _ttl(spec.ttl),
        expires=millis(spec.expires),
        match_policy=_match_policy(spec.match_policy, "PodSpec" if by_tasks and not migrates else "Owner"),
        allocate_once=once if spec.allocate_once is None else spec.allocate_once,
        scheduler=scheduler,
    )


def _form(spec: wire.ReservationSpec, door: Door) -> bool:
    """True for the tasks form of seed 000, False for the template form of 003 and 004."""
    if door == "koordinator":
        if spec.tasks:
            raise FactError("spec.tasks: set; allowed: spec.template (tasks belong to batch.volcano.sh Reservations)")
        if spec.pre_allocation:
            raise FactError("spec.preAllocation: true; allowed: false (pre-allocation is not supported)")
    if spec.tasks and spec.template:
        raise FactError("spec: has tasks and template; allowed: one of them")
    if not spec.tasks and not spec.template:
        raise FactError(f"spec: empty; allowed: {'template' if door == 'koordinator' else 'tasks or template'}")
    return bool(spec.tasks)


def _task(
    task: wire.Task, path: str, name: str, scheduler: str, shapes: Shapes, shaper: Shaper
) -> v.ReservationTask:
    template = task.template
    if template is None or template.spec is None:
        raise FactError(f"{path}.template.spec: missing; allowed: a pod's specification")
    meta = template.metadata or wire.TemplateMeta()
    shaped = _shaped(shaper, template.spec, meta.annotations or {}, scheduler, path)
    shapes[shaped.id] = shaped.shape
    return v.ReservationTask(
        name=name,
        replicas=1 if task.replicas is None else task.replicas,
        shape=shaped.id,
        labels=meta.labels or {},
        preferred_nodes=tuple(map(NodeName, task.reservation_node_names or ())),
        node=NodeName(template.spec.node_name or shaped.pinned),
    )


def _shaped(
    shaper: Shaper, spec: wire.PodSpec, annotations: dict[str, str], scheduler: str, path: str
) -> Shaped:
    try:
        return shaper.shaped(spec, annotations, scheduler=scheduler)
    except FactError as error:
        raise FactError(f"{path}.template.{error}") from error


def _owner(owner: wire.OwnerRule, path: str) -> v.OwnerRule:
    if owner.object is None and owner.controller is None and owner.label_selector is None:
        raise FactError(f"{path}: empty; allowed: object, controller or labelSelector")
    return v.OwnerRule(
        object=_reference(owner.object),
        controller=_reference(owner.controller),
        selector=selectors.selector(owner.label_selector),
    )


def _reference(reference: wire.ObjectReference | None) -> v.ObjectRef | None:
    if reference is None:
        return None
    return v.ObjectRef(reference.kind, reference.namespace, reference.name, reference.uid, reference.api_version)


def _ttl(text: str) -> int:
    try:
        ttl = duration.milliseconds(text)
    except duration.DurationError as error:
        raise FactError(f"spec.ttl: {error}") from error
    if ttl < 0:
        raise FactError(f"spec.ttl: {text!r} is negative; allowed: 0 (for ever) or more")
    return ttl


def _match_policy(said: str | None, default: v.MatchPolicy) -> v.MatchPolicy:
    if not said:
        return default
    if said in ("PodSpec", "Owner"):
        return said  # type: ignore[return-value]
    raise FactError(f"spec.matchPolicy: {said!r}; allowed: PodSpec, Owner")
