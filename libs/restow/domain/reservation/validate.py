"""What a Reservation must be to be held. The API server may have checked nothing (no CRD schema, no CEL)."""

import re

from restow.contracts.ids import Millis
from restow.contracts.times import bounded
from restow.contracts.values import Expression, ObjectRef, OwnerRule, ReservationSpec
from restow.domain.other_schedulers import UNNAMED
from restow.domain.resources import title
from restow.domain.state import ClusterState

MAX_SLOTS = 10_000
"""Slots of one Reservation: what one commit can still carry."""
MAX_OWNERS = 64
MAX_TAINTS = 32
"""As many as the CRDs allow."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def problem(state: ClusterState, spec: ReservationSpec, before: ReservationSpec | None = None) -> tuple[str, str] | None:
    """Reason (one CamelCase word) and message (path, value, what is allowed), or None where it is valid. `before` is what was
    accepted of it last, None for nothing."""
    wrong = (
        _slots(spec)
        or _owners(spec)
        or _use(spec, before)
        or _scheduler(state, spec)
        or _restricted(state, spec)
        or _taints(spec)
        or (f"spec.ttl: {spec.ttl} ms; allowed: 0 (no ttl) or more" if spec.ttl is not None and spec.ttl < 0 else "")
    )
    return ("InvalidSpec", wrong) if wrong else None


def _shown(text: str) -> str:
    said = repr(text)
    return said if len(said) <= 80 else said[:77] + "..."


def _slots(spec: ReservationSpec) -> str:
    if not spec.tasks:
        return "spec.tasks: is empty; allowed: at least one task (or spec.template)"
    slots = 0
    names = set()
    for i, task in enumerate(spec.tasks):
        path = f"spec.tasks[{i}]"
        if not task.name or task.name in names:
            return f"{path}.name: {_shown(task.name)}; allowed: a name that no other task has"
        if not _NAME.fullmatch(task.name):
            return f"{path}.name: {_shown(task.name)}; allowed: at most 63 of a-z, 0-9 and, inside, '-'"
        names.add(task.name)
        if task.replicas < 1:
            return f"{path}.replicas: {task.replicas}; allowed: 1 or more"
        slots += task.replicas
    if slots > MAX_SLOTS:
        return f"spec.tasks: {slots} replicas in all; allowed: at most {MAX_SLOTS}"
    if not 0 <= spec.min_available <= slots:
        return f"spec.minAvailable: {spec.min_available}; allowed: 0 (all of them) to {slots}, the sum of replicas"
    return ""


def _owners(spec: ReservationSpec) -> str:
    if not spec.owners:
        return "spec.owners: is empty; allowed: at least one owner, else nobody could use it"
    if len(spec.owners) > MAX_OWNERS:
        return f"spec.owners: {len(spec.owners)} of them; allowed: at most {MAX_OWNERS}"
    return next((wrong for i, one in enumerate(spec.owners) if (wrong := _owner(one, f"spec.owners[{i}]"))), "")


def _owner(owner: OwnerRule, path: str) -> str:
    if owner.object is None and owner.controller is None and owner.selector is None:
        return f"{path}: is empty; allowed: object, controller or labelSelector"
    if owner.object is not None and not (_named(owner.object) or owner.object.namespace):
        return f"{path}.object: refers to nothing; allowed: a kind, name, uid or namespace"
    if owner.controller is not None and not _named(owner.controller):
        return f"{path}.controller: refers to nothing; allowed: a kind, name or uid"
    for e in owner.selector.expressions if owner.selector is not None else ():
        if wrong := _expression(e):
            return f"{path}.labelSelector.matchExpressions, key {_shown(e.key)}: {wrong}"
    return ""


def _named(reference: ObjectRef) -> bool:
    return bool(reference.kind or reference.name or reference.uid)


def _expression(e: Expression) -> str:
    if not e.key:
        return "has no key; allowed: a label's name"
    if e.operator not in _OPERATORS:
        return f"operator {_shown(e.operator)}; allowed: {', '.join(_OPERATORS)}"
    some = e.operator in ("In", "NotIn")
    if some != bool(e.values):
        return f"{len(e.values)} values; allowed with {e.operator}: {'one or more' if some else 'none'}"
    return ""


def _use(spec: ReservationSpec, before: ReservationSpec | None) -> str:
    if not spec.allocate_once and (len(spec.tasks) > 1 or spec.tasks[0].replicas > 1):
        # One slot that many share is one hold; of several, nobody could say which one a pod takes from.
        return "spec.allocateOnce: false; allowed with several slots: true (each slot is handed over once)"
    if before is not None and before.allocate_once is not spec.allocate_once:
        was, now = (str(once).lower() for once in (before.allocate_once, spec.allocate_once))
        return f"spec.allocateOnce: {now}; allowed: {was}, as it was accepted (make another Reservation)"
    return ""


def _scheduler(state: ClusterState, spec: ReservationSpec) -> str:
    """All of it is held, or none: its templates must be for us, or for nobody else."""
    served = (UNNAMED, *state.session_config.scheduler_names)
    named = {task.name: state.shapes[task.shape].scheduler for task in spec.tasks}
    ours = any(said in served for said in named.values())
    for name, said in named.items():
        if ours and said not in served:
            return f"template of task {name}: schedulerName {_shown(said)}; allowed beside those of other tasks: {', '.join(served[1:])}"
    return ""


def _restricted(state: ClusterState, spec: ReservationSpec) -> str:
    for name in spec.restricted:
        if not any(state.shapes[task.shape].requests.get(name) for task in spec.tasks):
            held = {one for task in spec.tasks for one in state.shapes[task.shape].requests if one != "pods"}
            return (
                f"metadata.annotations[scheduling.koordinator.sh/reservation-restricted-options]: {title(name)}; "
                f"allowed: what the template requests: {', '.join(sorted(map(title, held))) or 'nothing'}"
            )
    return ""


def _taints(spec: ReservationSpec) -> str:
    if len(spec.taints) > MAX_TAINTS:
        return f"spec.taints: {len(spec.taints)} of them; allowed: at most {MAX_TAINTS}"
    for i, taint in enumerate(spec.taints):
        if not taint.key:
            return f"spec.taints[{i}].key: is empty; allowed: a key"
        if taint.effect not in EFFECTS:
            return f"spec.taints[{i}].effect: {_shown(taint.effect)}; allowed: {', '.join(EFFECTS)}"
    return ""


def expiry(state: ClusterState, spec: ReservationSpec, created: Millis, migration: bool) -> Millis:
    """When it expires, 0 for never (RULES G-2): `expires` wins, `ttl` counts from creation, `ttl: 0` disables the ttl and
    nothing else, the default applies only where neither is set; a migration's hold has none (DESIGN 5)."""
    if migration:
        return Millis(0)
    if spec.expires:
        return spec.expires
    if spec.ttl is not None:
        return bounded(created + spec.ttl) if spec.ttl else Millis(0)
    return bounded(created + state.reservation_config.default_ttl)
