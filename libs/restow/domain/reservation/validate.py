"""What a Reservation must be to be held. The API server may have checked nothing (no CRD schema, no CEL)."""

from restow.contracts.ids import Millis
from restow.contracts.values import ReservationSpec
from restow.domain.state import ClusterState

MAX_PLACES = 10_000
"""Places of one Reservation: what one commit can still carry."""


def problem(state: ClusterState, spec: ReservationSpec) -> tuple[str, str] | None:
    """Reason (one CamelCase word) and message (path, value, what is allowed), or None where it is valid."""
    if not spec.tasks:
        return "InvalidSpec", "spec.tasks: is empty; allowed: at least one task (or spec.template)"
    if not spec.allocate_once:
        # Better said than served wrongly: a place would go to its first owner and not come back.
        return "Unsupported", "spec.allocateOnce: False; allowed in this version: True (each place is handed over once)"
    places = 0
    names = set()
    for i, task in enumerate(spec.tasks):
        path = f"spec.tasks[{i}]"
        if not task.name or task.name in names:
            return "InvalidSpec", f"{path}.name: {task.name!r}; allowed: a name that no other task has"
        names.add(task.name)
        if task.replicas < 1:
            return "InvalidSpec", f"{path}.replicas: {task.replicas}; allowed: 1 or more"
        places += task.replicas
    if places > MAX_PLACES:
        return "InvalidSpec", f"spec.tasks: {places} replicas in all; allowed: at most {MAX_PLACES}"
    if not 0 <= spec.min_available <= places:
        return "InvalidSpec", f"spec.minAvailable: {spec.min_available}; allowed: 1 to {places}, the sum of replicas"
    if not spec.owners:
        return "InvalidSpec", "spec.owners: is empty; allowed: at least one owner, else nobody could use it"
    for i, owner in enumerate(spec.owners):
        if owner.object is None and owner.controller is None and owner.selector is None:
            return "InvalidSpec", f"spec.owners[{i}]: is empty; allowed: object, controller or labelSelector"
        if owner.object is not None and not (owner.object.name or owner.object.uid or owner.object.namespace):
            return "InvalidSpec", f"spec.owners[{i}].object: refers to nothing; allowed: a name, uid or namespace"
        if owner.controller is not None and not (owner.controller.name or owner.controller.uid):
            return "InvalidSpec", f"spec.owners[{i}].controller: refers to nothing; allowed: a name or uid"
    if spec.ttl is not None and spec.ttl < 0:
        return "InvalidSpec", f"spec.ttl: {spec.ttl} ms; allowed: 0 (no ttl) or more"
    return None


def expiry(state: ClusterState, spec: ReservationSpec, created: Millis, migration: bool) -> Millis:
    """When it expires, 0 for never (RULES G-2): `expires` wins, `ttl` counts from creation, `ttl: 0` disables the ttl and
    nothing else, the default applies only where neither is set; a migration's hold has none (DESIGN 5)."""
    if migration:
        return Millis(0)
    if spec.expires:
        return spec.expires
    if spec.ttl is not None:
        return Millis(created + spec.ttl) if spec.ttl else Millis(0)
    return Millis(created + state.reservation_config.default_ttl)
