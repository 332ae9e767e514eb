"""What people want to know of a Reservation, from the state: who may use it, what is held and drawn, when it ends and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from restow.contracts.ids import NodeName, PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceShare, LabelSelector, ObjectRef, OwnerRule, ReservationSpec
from restow.domain.duration import format_milliseconds
from restow.domain.records import ON_NODE, Draw, Items, Reservation, Slot, SlotPhase
from restow.domain.resources import PODS

if TYPE_CHECKING:
    from restow.domain.state import ClusterState

Amounts = dict[str, int]
"""By resource, in canonical units; pod slots are not counted."""

USERS = 5
"""Users of missing room that are named."""


class User(msgspec.Struct, frozen=True):
    """Who has room on a node that a place waits for."""

    who: str
    amounts: Amounts


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place. `total` is what it is for, `held` what is held for owners now, `drawn` what they use, or used it up, `missing` what it waits
    for on its node and `users` the largest of those who have that. `asked` is the size that a later
    generation wants, where it cannot have that yet. `pod` (`namespace/name`) used it up; `gone`: and is not there any more."""

    name: str
    phase: str
    node: str = ""
    total: Amounts = {}
    held: Amounts = {}
    drawn: Amounts = {}
    missing: Amounts = {}
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()
    pod: str = ""
    asked: Amounts = {}
    reason: str = ""
    message: str = ""
    users: tuple[User, ...] = ()
    gone: bool = False


class Drawn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that uses a place, and what it has taken of it. `bound`: it was seen on the place's node."""

    pod: str
    uid: PodUid
    place: str
    node: str
    amounts: Amounts = {}
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()
    bound: bool = False


# -- amounts ---------------------------------------------------------------------------------------------------------


def by_name(state: ClusterState, items: Items) -> Amounts:
    """Amounts by column as amounts by resource."""
    names = state.table.resources
    return {names[column]: amount for column, amount in items if amount and names[column] != PODS}


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum of several."""
    found: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def places(state: ClusterState, uid: ReservationUid) -> list[Place]:
    """In the order of their names, with numbers as numbers."""
    from restow.domain.session.hold_offers import slot_order

    slots = state.slots.get(uid, {})
    return [_place(state, uid, name, slots[name]) for name in sorted(slots, key=slot_order)]


def _place(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> Place:
    draws = [state.draws[pod] for pod in state.drawers.get((uid, name), ())]
    asked = by_name(state, state.vectors[slot.shape].items)
    if slot.phase is SlotPhase.USED:
        # Also when its pod is gone: once handed over it stays so (RULES 004-1).
        drawn = by_name(state, slot.room.wanted)
    else:
        drawn = total(by_name(state, draw.items) for draw in draws)
    on_node = slot.phase in ON_NODE
    held = by_name(state, slot.room.held) if on_node else {}
    wanted = by_name(state, slot.room.wanted) if on_node else {}
    missing = {r: amount - held.get(r, 0) for r, amount in wanted.items() if amount > held.get(r, 0)}
    return Place(
        name,
        str(slot.phase),
        slot.node,
        asked,
        held,
        drawn,
        missing,
        slot.devices,
        slot.cores,
        (pod_name(state, slot.pod) if slot.pod in state.pods else slot.owner or slot.pod) if slot.pod else "",
        by_name(state, state.vectors[slot.asked].items) if slot.asked else {},
        slot.reason,
        slot.message,
        tuple(_users(state, slot.node, missing, (uid, name))) if missing else (),
        bool(slot.pod) and slot.pod not in state.pods,
    )


def amounts(found: Iterable[Place]) -> tuple[Amounts, Amounts]:
    """What is held or used (`allocatable`), and what owners use of it (`allocated`)."""
    there = [place for place in found if place.phase in (*ON_NODE, SlotPhase.USED) or place.drawn]
    return total(place.total for place in there), total(place.drawn for place in there)


def _users(state: ClusterState, node: NodeName, missing: Amounts, own: tuple[ReservationUid, SlotName]) -> list[User]:
    """The largest first, by what is missing first."""
    found: list[User] = []

    def add(who: str, items: Items) -> None:
        amounts = {r: amount for r, amount in by_name(state, items).items() if r in missing}
        if amounts:
            found.append(User(who, amounts))

    for pod in state.on_node.get(node, ()):
        charge = state.charges[pod]
        add(f"pod {pod_name(state, pod)}" + (", terminating" if charge.releasing else ""), state.vectors[charge.shape].items)
    for uid, name in state.held_on.get(node, ()):
        if (uid, name) != own:
            add(f"place {name} of reservation {reservation_name(state, uid)}", state.slots[uid][name].room.held)
    for pod in state.nominated_on.get(node, ()):
        add(f"held for pod {pod_name(state, pod)}, which preempts there", state.nominations[pod].room.held)
    first = next(iter(missing))
    return sorted(found, key=lambda u: (-u.amounts.get(first, 0), u.who))[:USERS]


def drawn_of(state: ClusterState, uid: ReservationUid) -> list[Drawn]:
    """The pods that use it now, place by place, in the order in which they came."""
    from restow.domain.session.hold_offers import slot_order

    found = []
    for name in sorted(state.slots.get(uid, {}), key=slot_order):
        for pod in state.drawers.get((uid, name), ()):
            draw: Draw = state.draws[pod]
            found.append(
                Drawn(pod_name(state, pod), pod, name, draw.node, by_name(state, draw.items), draw.devices, draw.cores, draw.bound)
            )
    return found


def pod_name(state: ClusterState, uid: Any) -> str:
    """`namespace/name`; the uid of a pod that the state does not know any more."""
    pod = state.pods.get(uid)
    return f"{pod.namespace}/{pod.name}" if pod else uid


def reservation_name(state: ClusterState, uid: ReservationUid) -> str:
    fact = state.reservations[uid].fact
    return f"{fact.namespace}/{fact.name}" if fact.namespace else fact.name


# -- who may use it --------------------------------------------------------------------------------------------------


def owners(spec: ReservationSpec | None) -> list[str]:
    """Each rule in words; one of them must hold."""
    return [_owner(rule) for rule in spec.owners] if spec is not None else []


def _owner(rule: OwnerRule) -> str:
    parts = []
    if rule.controller is not None:
        parts.append(_of(rule.controller))
    if rule.object is not None:
        parts.append(_object(rule.object))
    who = ", ".join(parts) or "pods"
    if rule.selector is not None:
        labels = _selector(rule.selector)
        who += f" with {labels}" if labels else "" if parts else " of any kind"
    return who


def _of(ref: ObjectRef) -> str:
    who = f"{ref.kind or 'controller'} {ref.name}".strip() if ref.name else f"the {ref.kind or 'controller'} with uid {ref.uid}"
    return f"pods of {who}{_inside(ref)}"


def _object(ref: ObjectRef) -> str:
    if ref.kind not in ("", "Pod"):
        return _of(ref)
    if not ref.name and not ref.uid:
        return f"pods{_inside(ref)}"
    return f"pod {ref.name or 'with uid ' + ref.uid}{_inside(ref)}"


def _inside(ref: ObjectRef) -> str:
    return f" in namespace {ref.namespace}" if ref.namespace else ""


def _selector(selector: LabelSelector) -> str:
    """As kubectl writes selectors."""
    parts = [f"{key}={value}" for key, value in sorted(selector.labels.items())]
    for e in selector.expressions:
        match e.operator:
            case "Exists":
                parts.append(e.key)
            case "DoesNotExist":
                parts.append(f"!{e.key}")
            case _:
                parts.append(f"{e.key} {e.operator.lower()} ({', '.join(e.values)})")
    return ", ".join(parts)


# -- when it ends ----------------------------------------------------------------------------------------------------


def ends_because(state: ClusterState, record: Reservation) -> str:
    """Why it ends then, or never (RULES G-2)."""
    spec = record.spec or record.fact.spec
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and record.fact.reservation in (migration.reservation, migration.spent):
        return f"it ends with migration {record.fact.migration}"
    if spec is None:
        return ""
    if spec.expires:
        return "spec.expires says so" + (", and wins over spec.ttl" if spec.ttl else "")
    if spec.ttl == 0:
        return "spec.ttl is 0"
    if spec.ttl is not None:
        return f"{brief(spec.ttl)} after its creation, as spec.ttl says"
    return f"{brief(state.reservation_config.default_ttl)} after its creation, the default"


def brief(milliseconds: int) -> str:
    """A duration without the zeros of Go: `1h`, `1h30m`, `90s`."""
    text = format_milliseconds(milliseconds)
    if text.endswith("m0s"):
        text = text[:-2]
    return text[:-2] if text.endswith("h0m") else text


def policy(spec: ReservationSpec | None) -> list[str]:
    """How it is used, in sentences with the fields' names."""
    if spec is None:
        return []
    said = ["one pod takes a place, and ends it (allocateOnce)" if spec.allocate_once else "pods share it until it is empty, and what they leave comes back (allocateOnce: false)"]
    match spec.allocate_policy:
        case "Aligned":
            said.append("what a pod needs beyond it comes from the node (Aligned)")
        case "Restricted":
            what = ", ".join(spec.restricted) or "what it holds"
            said.append(f"of {what} a pod gets nothing from the node besides (Restricted)")
        case "Covering":
            said.append("a pod must fit into what is left of it")
    said.append("pods must have the spec of its template (matchPolicy PodSpec)" if spec.match_policy == "PodSpec" else "whatever the pods' specs (matchPolicy Owner)")
    if spec.unschedulable:
        said.append("closed: only pods that name it, or tolerate that, may take it (unschedulable)")
    for taint in spec.taints:
        said.append(f"pods must tolerate its taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}")
    if spec.pre_allocation:
        said.append("it may be put where room is still in use, and waits for that (preAllocation)")
    return said
