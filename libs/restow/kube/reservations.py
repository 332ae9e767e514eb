"""Reservation objects of both APIs → one contract form (RULES G-2 to G-6, 000-3, 003-1, 004-1, 004-2).

Only the form is judged here: what cannot be expressed becomes `invalid` with path, value and what is allowed, and never an
error. Whether a readable Reservation makes sense is decided, and logged, by reservation_cache.

What the object's labels and annotations say of the hold is in the spec, too, so that spec may change without a new
generation.
"""

from typing import Literal

import msgspec

from restow.contracts import events as e
from restow.contracts import values as v
from restow.contracts.ids import MigrationId, NodeName, ReservationUid, ShapeId
from restow.domain import duration
from restow.domain.resources import ALIBABA_GPU_COUNT, ALIBABA_GPU_MILLI, GPU_NAMES
from restow.kube import selectors, wire
from restow.kube.annotations import MIGRATION, read_restricted
from restow.kube.decode import BAD_JSON
from restow.kube.describe import millis
from restow.kube.explain import explained
from restow.kube.requests import FactError
from restow.kube.shapes import Shaped, Shaper
from restow.kube.unknown import unknown_fields

ReservationApi = Literal["volcano", "koordinator"]
Shapes = dict[ShapeId, v.PodShape]

_DEFAULT_NAMESPACE = "default"
"""Of the pod that a Reservation without namespace stands for, where its template says none (Koordinator's reserve pod)."""
_INT32 = range(-(1 << 31), 1 << 31)
_POLICIES: dict[ReservationApi, tuple[str, ...]] = {
    "volcano": ("Aligned", "Restricted", "Covering"),
    "koordinator": ("Aligned", "Restricted"),
}

_spec = msgspec.json.Decoder(wire.ReservationSpec)
_shaper = Shaper(limit=5_000)


def reservation_fact(
    reservation: wire.Reservation, api: ReservationApi, shaper: Shaper = _shaper
) -> tuple[Shapes, e.ReservationObserved]:
    """The shapes that the fact names, and the fact. Never raises for what the object says."""
    meta = reservation.metadata
    labels = meta.labels or {}
    shapes: Shapes = {}
    spec, invalid = None, ""
    try:
        spec = _read(reservation, api, shapes, shaper)
    except FactError as error:
        shapes, invalid = {}, str(error)
    return shapes, e.ReservationObserved(
        reservation=ReservationUid(meta.uid),
        api=api,
        namespace=meta.namespace,
        name=meta.name,
        created=millis(meta.creation_timestamp),
        generation=meta.generation or 1,
        deleting=millis(meta.deletion_timestamp),
        migration=MigrationId(labels.get(MIGRATION, "")),
        spec=spec,
        invalid=invalid,
        labels=labels,
        unknown=unknown_fields(reservation.spec, api) if bytes(reservation.spec) else (),
        schedulers=_schedulers(reservation.spec, api) if spec is None else (),
    )


def _schedulers(raw: msgspec.Raw, api: ReservationApi) -> tuple[str, ...]:
    """What the templates of an object name that cannot be read as a whole, each once. Never raises."""
    try:
        body = msgspec.json.decode(raw)
    except BAD_JSON:
        return ()
    tasks = _at(body, "tasks")
    templates = [_at(body, "template"), *(_at(task, "template") for task in (tasks if isinstance(tasks, list) else ()))]
    usual = _at(body, "schedulerName") if api == "volcano" else None
    named = [_at(_at(template, "spec"), "schedulerName") or usual for template in templates if isinstance(template, dict)]
    return tuple(dict.fromkeys(name for name in named or [usual] if isinstance(name, str) and name))


def _at(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _read(reservation: wire.Reservation, api: ReservationApi, shapes: Shapes, shaper: Shaper) -> v.ReservationSpec:
    if bytes(reservation.spec) in (b"", b"null"):
        raise FactError("spec: missing; allowed: a reservation's specification")
    try:
        spec = _spec.decode(reservation.spec)
    except BAD_JSON as error:
        raise FactError(explained(_spec, str(error), reservation.spec)) from error
    by_tasks = _form(spec, api)
    # In Koordinator's API the fields of a gang mean nothing: they are reported as unknown.
    gang = spec if api == "volcano" else wire.ReservationSpec()
    scheduler = gang.scheduler_name or ""
    read = _Reader(reservation.metadata, api, scheduler, shapes, shaper)
    if by_tasks:
        tasks = tuple(
            read.task(task, f"spec.tasks[{i}]", task.name or f"default{i}") for i, task in enumerate(spec.tasks or ())
        )
    else:
        tasks = (read.task(wire.Task(replicas=1, template=spec.template), "spec", "reservation"),)
    migrates = MIGRATION in (reservation.metadata.labels or {})
    policy = _allocate_policy(spec.allocate_policy, api, by_tasks)
    return v.ReservationSpec(
        tasks=tasks,
        owners=tuple(_owner(owner, f"spec.owners[{i}]") for i, owner in enumerate(spec.owners or ())),
        min_available=_whole(gang.min_available or 0, "spec.minAvailable"),
        queue=gang.queue or "",
        ttl=None if spec.ttl is None else _ttl(spec.ttl),
        expires=millis(spec.expires),
        match_policy=_match_policy(spec.match_policy, "PodSpec" if by_tasks and not migrates else "Owner"),
        allocate_once=_allocate_once(spec.allocate_once, api, by_tasks),
        scheduler=scheduler,
        allocate_policy=policy,
        restricted=_restricted(reservation.metadata) if policy == "Restricted" else (),
        pre_allocation=bool(spec.pre_allocation),
        unschedulable=bool(spec.unschedulable),
        taints=tuple(v.Taint(t.key, t.effect, t.value) for t in spec.taints or ()),
        form="tasks" if by_tasks else "template",
        gpu=next((name for one in (spec.template, *(t.template for t in spec.tasks or ())) if (name := _gpu_name(one))), ""),
    )


def _gpu_name(template: wire.Template | None) -> str:
    """As what a template asks for GPUs; empty where it does not, or says it by annotations."""
    for container in (template.spec.containers or ()) if template is not None and template.spec is not None else ():
        resources = container.resources or wire.Resources()
        for name in (*(resources.requests or {}), *(resources.limits or {})):
            if name in GPU_NAMES:
                return ALIBABA_GPU_MILLI if name == ALIBABA_GPU_COUNT else name
    return ""


def _form(spec: wire.ReservationSpec, api: ReservationApi) -> bool:
    """True for the tasks form of seed 000, False for the template form of 003 and 004."""
    if api == "koordinator" and spec.tasks:
        raise FactError("spec.tasks: set; allowed: spec.template (tasks belong to batch.volcano.sh Reservations)")
    if spec.tasks and spec.template:
        raise FactError("spec: has tasks and template; allowed: one of them")
    if not spec.tasks and not spec.template:
        raise FactError(f"spec: empty; allowed: {'template' if api == 'koordinator' else 'tasks or template'}")
    return bool(spec.tasks)


class _Reader:
    """Reads the tasks of one Reservation, and gathers their shapes."""

    def __init__(self, meta: wire.Meta, api: ReservationApi, scheduler: str, shapes: Shapes, shaper: Shaper) -> None:
        self._namespace = meta.namespace
        self._overlaid = (meta.labels or {}) if api == "koordinator" else {}
        self._scheduler, self._shapes, self._shaper = scheduler, shapes, shaper

    def task(self, task: wire.Task, path: str, name: str) -> v.ReservationTask:
        template = task.template
        if template is None or template.spec is None:
            raise FactError(f"{path}.template.spec: missing; allowed: a pod's specification")
        meta = template.metadata or wire.TemplateMeta()
        # The reserve pod of Koordinator has the template's labels and, over them, the Reservation's.
        labels = (meta.labels or {}) | self._overlaid
        shaped = _shaped(self._shaper, template.spec, meta.annotations or {}, labels, self._scheduler, path)
        self._shapes[shaped.id] = shaped.shape
        volumes = template.spec.volumes or ()
        return v.ReservationTask(
            name=name,
            replicas=1 if task.replicas is None else _whole(task.replicas, f"{path}.replicas"),
            shape=shaped.id,
            labels=labels,
            preferred_nodes=tuple(map(NodeName, task.reservation_node_names or ())),
            node=NodeName(template.spec.node_name or shaped.pinned),
            namespace=self._namespace_of(meta, path),
            # Claims that are made for a pod have its name: those of a pod that does not exist yet are nobody's.
            claims=tuple(one.persistent_volume_claim.claim_name for one in volumes if one.persistent_volume_claim is not None),
        )

    def _namespace_of(self, meta: wire.TemplateMeta, path: str) -> str:
        """Who may use a namespaced Reservation is in its namespace, and so is what its slots stand for."""
        if not self._namespace:
            return meta.namespace or _DEFAULT_NAMESPACE
        if meta.namespace and meta.namespace != self._namespace:
            raise FactError(
                f"{path}.template.metadata.namespace: {meta.namespace!r}; allowed: {self._namespace!r}, the Reservation's own, or none"
            )
        return self._namespace


def _shaped(
    shaper: Shaper, spec: wire.PodSpec, annotations: dict[str, str], labels: dict[str, str], scheduler: str, path: str
) -> Shaped:
    try:
        return shaper.shaped(spec, annotations, scheduler=scheduler, labels=labels)
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


def _reference(reference: wire.Reference | None) -> v.ObjectRef | None:
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


def _whole(value: int, path: str) -> int:
    if value not in _INT32:
        raise FactError(f"{path}: {value}; allowed: a whole number of 32 bits")
    return value


def _allocate_once(said: bool | None, api: ReservationApi, by_tasks: bool) -> bool:
    """RULES 000-3, 003-1, 004-1."""
    if by_tasks:
        if said is False:
            raise FactError("spec.allocateOnce: false; allowed with tasks: true (each slot is handed over once)")
        return True
    return api == "koordinator" if said is None else said


def _allocate_policy(said: str | None, api: ReservationApi, by_tasks: bool) -> v.AllocatePolicy:
    """Koordinator's deprecated default, said as "", is Aligned in effect. In Volcano's template form the hold must cover the
    request (RULES 003-1)."""
    if said is None or (said == "" and api == "koordinator"):
        return "Covering" if api == "volcano" and not by_tasks else "Aligned"
    if said not in _POLICIES[api]:
        raise FactError(f"spec.allocatePolicy: {said!r}; allowed: {', '.join(_POLICIES[api])}")
    return said  # type: ignore[return-value]


def _restricted(meta: wire.Meta) -> tuple[str, ...]:
    try:
        return read_restricted(meta.annotations)
    except ValueError as error:
        raise FactError(str(error)) from error


def _match_policy(said: str | None, default: v.MatchPolicy) -> v.MatchPolicy:
    if said is None:
        return default
    if said in ("PodSpec", "Owner"):
        return said  # type: ignore[return-value]
    raise FactError(f"spec.matchPolicy: {said!r}; allowed: PodSpec, Owner")
