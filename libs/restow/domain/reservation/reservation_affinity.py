"""Which Reservation a pod wants, and which Reservation wants no pod: Koordinator's annotations and labels.

What a pod says is read once a text; a pod that says nothing costs a look into its annotations. Behaviour is matched of
Koordinator's scheduler plugin `reservation` (checkReservationMatchedOrIgnored) and of its apis/extension.
"""

import re
from collections import ChainMap
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from restow.contracts.events import NodeObserved, PodObserved, ReservationObserved
from restow.contracts.ids import ShapeId
from restow.contracts.values import Expression, NodeTerm, PodShape, Toleration
from restow.domain.predicates import UNSCHEDULABLE, term_holds, tolerates
from restow.domain.records import Reservation
from restow.domain.resources import GPU_MILLI, canonical_resource
from restow.domain.state import ClusterState

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
"""On a pod, JSON: it uses a Reservation that matches this, or waits."""
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
"""On a pod, JSON: the hold must be of exactly what it requests of the named resources."""
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
"""Label of a pod: `true` lets it use capacity that is held for others."""
ORDER = "scheduling.koordinator.sh/reservation-order"
"""Label of a Reservation: of several, one with a number is used before those without, the lowest first."""
KEEPS_OFF = ("NoSchedule", "NoExecute")
"""Effects of a Reservation's taints that keep pods off. PreferNoSchedule does not; nobody is evicted from a hold."""

_ORDER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = 1 << 63
_VALUES = {"In": "one or more", "NotIn": "one or more", "Exists": "no", "DoesNotExist": "no", "Gt": "one", "Lt": "one"}
"""How many values each operator takes."""
_SHOWN = 80


class Wish(msgspec.Struct, frozen=True):
    """What a pod says about Reservations. `affinity`: the annotation is there, and the pod uses a Reservation or waits. With
    a `name` nothing else is asked but `exact`; without, the Reservation must match `selector` and one of the `terms` (None
    for any, none where empty), and `tolerations` must cover its taints. `wrong`: an annotation that cannot be read, with path,
    value and what is allowed; such a pod waits."""

    name: str = ""
    terms: tuple[NodeTerm, ...] | None = None
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    exact: tuple[str, ...] = ()
    affinity: bool = False
    wrong: str = ""


class _Form(msgspec.Struct, rename="camel"):
    pass


class _Term(_Form):
    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class _Required(_Form):
    reservation_selector_terms: tuple[_Term, ...] | None = None


class _Affinity(_Form):
    name: str | None = None
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class _Exact(_Form):
    resource_names: tuple[str, ...] | None = None


_affinity = msgspec.json.Decoder(_Affinity | None)
_exact = msgspec.json.Decoder(_Exact | None)


def wish_of(pod: PodObserved) -> Wish | None:
    """None where it says nothing about Reservations."""
    said = pod.annotations
    if not said:
        return None
    affinity, exact = said.get(AFFINITY), said.get(EXACT)
    return None if affinity is None and not exact else _read(affinity, exact or "")


def ignores(pod: PodObserved) -> bool:
    """Whether it may use capacity that is held, whoever for."""
    return bool(pod.labels) and pod.labels.get(IGNORED) == "true"


def order_of(fact: ReservationObserved) -> int:
    """Its number among several, 0 where it has none or none that can be read."""
    said = fact.labels.get(ORDER, "") if fact.labels else ""
    if not _ORDER.fullmatch(said):
        return 0
    order = int(said)
    return order if -_INT64 <= order < _INT64 else 0


def closed(
    state: ClusterState,
    wish: Wish | None,
    pod: PodObserved,
    record: Reservation,
    node: NodeObserved | None,
    shape: ShapeId | None = None,
) -> str:
    """Why this pod may not use this Reservation, held on this node, although it owns it: what follows after the Reservation's
    name in a sentence; empty where it may. `shape` is that of the slot, where a Reservation has slots of several."""
    spec = record.spec
    if spec is None:
        return "is not accepted"
    if wish is None:
        if spec.unschedulable:
            return "is unschedulable"
        return _tainted(record, ()) if spec.taints else ""
    if wish.wrong:
        return f"cannot be asked for: {wish.wrong}"
    if wish.name:
        # A name is the whole answer: neither unschedulable nor taints nor selectors count beside it.
        if wish.name != record.fact.name:
            return f"has another name than {wish.name!r}, which the pod's reservation affinity asks for"
        return _inexact(state, wish, pod, record, shape)
    if spec.unschedulable and not tolerates(wish.tolerations, UNSCHEDULABLE):
        return "is unschedulable"
    if reason := _tainted(record, wish.tolerations):
        return reason
    if not _selected(wish, record.fact, node):
        return "does not match the pod's reservation affinity"
    return _inexact(state, wish, pod, record, shape)


def _tainted(record: Reservation, tolerations: tuple[Toleration, ...]) -> str:
    for taint in record.spec.taints if record.spec is not None else ():
        if taint.effect in KEEPS_OFF and not tolerates(tolerations, taint):
            return f"has the taint {{{taint.key}: {taint.value}}}, which the pod does not tolerate"
    return ""


def _selected(wish: Wish, fact: ReservationObserved, node: NodeObserved | None) -> bool:
    """Over the labels of the Reservation, and below them its node's: `zone` need not be said again."""
    if not wish.selector and wish.terms is None:
        return True
    labels: Mapping[str, str] = fact.labels if node is None else ChainMap(fact.labels, node.labels)
    if any(labels.get(key) != value for key, value in wish.selector.items()):
        return False
    return wish.terms is None or any(term_holds(term, fact.name, labels) for term in wish.terms)


def _inexact(state: ClusterState, wish: Wish, pod: PodObserved, record: Reservation, shape: ShapeId | None) -> str:
    if not wish.exact:
        return ""
    asked = state.shapes[pod.shape]
    held = [shape] if shape else [task.shape for task in record.spec.tasks] if record.spec is not None else []
    first = ""
    for one in held:
        differing = next((name for name in wish.exact if not _equal(canonical_resource(name), asked, state.shapes[one])), "")
        if not differing:
            return ""
        first = first or differing
    return f"does not hold exactly what the pod requests of {first}"


def _equal(column: str, asked: PodShape, held: PodShape) -> bool:
    """Absent in both is equal. Two halves of a GPU are not one whole."""
    return asked.requests.get(column, 0) == held.requests.get(column, 0) and (
        column != GPU_MILLI or asked.devices == held.devices
    )


@lru_cache(maxsize=4096)
def _read(affinity: str | None, exact: str) -> Wish | None:
    said, names = None, None
    try:
        if affinity is not None:
            said = _decoded(_affinity, AFFINITY, affinity) or _Affinity()
        if exact:
            names = _decoded(_exact, EXACT, exact)
        if said is None:
            return Wish(exact=names.resource_names) if names is not None and names.resource_names else None
        return Wish(
            name=said.name or "",
            terms=None if said.required is None else _terms(said.required),
            selector=said.reservation_selector or {},
            tolerations=_tolerations(said.tolerations or ()),
            exact=(names.resource_names or ()) if names is not None else (),
            affinity=True,
        )
    except ValueError as error:
        return Wish(affinity=affinity is not None, wrong=str(error))


def _decoded(decoder: msgspec.json.Decoder[Any], name: str, text: str) -> Any:
    """Empty text says no more than that the annotation is there."""
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        raise ValueError(f"annotation {name}: {shown!r}: {error}; allowed: Koordinator's JSON of it") from error


def _terms(required: _Required) -> tuple[NodeTerm, ...]:
    terms = []
    for i, term in enumerate(required.reservation_selector_terms or ()):
        path = f"annotation {AFFINITY}: reservationSelectorTerms[{i}]"
        fields = term.match_fields or ()
        _check(term.match_expressions or (), f"{path}.matchExpressions")
        _check(fields, f"{path}.matchFields")
        for field in fields:
            if field.key != "metadata.name":
                raise ValueError(f"{path}.matchFields: key {field.key!r}; allowed: metadata.name")
        terms.append(NodeTerm(term.match_expressions or (), fields))
    return tuple(terms)


def _check(expressions: tuple[Expression, ...], path: str) -> None:
    for i, e in enumerate(expressions):
        need = _VALUES.get(e.operator)
        if need is None:
            raise ValueError(f"{path}[{i}].operator: {e.operator!r}; allowed: {', '.join(_VALUES)}")
        if len(e.values) != {"no": 0, "one": 1}.get(need, len(e.values) or 1):
            raise ValueError(f"{path}[{i}].values: {len(e.values)} of them; allowed with {e.operator}: {need}")


def _tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    for i, t in enumerate(tolerations):
        path = f"annotation {AFFINITY}: tolerations[{i}]"
        if t.operator not in ("", "Equal", "Exists"):
            raise ValueError(f"{path}.operator: {t.operator!r}; allowed: Equal, Exists")
        if not t.key and t.operator != "Exists":
            raise ValueError(f"{path}.key: empty; allowed: a taint's key (empty only with operator Exists)")
    return tolerations
