"""What people want to know of a Reservation, from the state: who may use it, what is held and allocated, when it ends and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from restow.contracts.ids import NodeName, PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceShare, LabelSelector, ObjectRef, OwnerRule, ReservationSpec
from restow.domain.beside import body_of, stands
from restow.domain.duration import format_milliseconds
from restow.domain.records import ON_NODE, Allocation, Items, Reservation, Slot, SlotPhase
from restow.domain.resources import PODS

if TYPE_CHECKING:
    from restow.domain.state import ClusterState

Amounts = dict[str, int]
"""By resource, in canonical units; pod slots are not counted."""

USERS = 5
"""Users of missing capacity that are named."""


class User(msgspec.Struct, frozen=True):
    """Who has capacity on a node that a slot waits for."""

    who: str
    amounts: Amounts


class SlotView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot. `total` is what it is for, `held` what is held for owners now, `allocated` what they use, or used it up, `missing` what it waits
    for on its node and `users` the largest of those who have that. `asked` is the size that a later
    generation wants, where it cannot have that yet. `pod` (`namespace/name`) used it up; `gone`: and is not there any more. `placeholder`: the pod that holds
    it for another scheduler to see, and whether it runs there."""

    name: str
    phase: str
    node: str = ""
    total: Amounts = {}
    held: Amounts = {}
    allocated: Amounts = {}
    missing: Amounts = {}
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[int, ...] = ()
    pod: str = ""
    asked: Amounts = {}
    reason: str = ""
    message: str = ""
    users: tuple[User, ...] = ()
    gone: bool = False
    placeholder: str = ""


class AllocatedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that uses a slot, and what it has taken of it. `bound`: it was seen on the slot's node."""

    pod: str
    uid: PodUid
    slot: str
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


def slot_views(state: ClusterState, uid: ReservationUid) -> list[SlotView]:
    """In the order of their names, with numbers as numbers."""
    from restow.domain.session.hold_offers import slot_order

    slots = state.slots.get(uid, {})
    return [_view(state, uid, name, slots[name]) for name in sorted(slots, key=slot_order)]


def _view(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> SlotView:
    allocations = [state.allocations[pod] for pod in state.slot_users.get((uid, name), ())]
    asked = by_name(state, state.vectors[slot.shape].items)
    if slot.phase is SlotPhase.USED:
        # Also when its pod is gone: once handed over it stays so (RULES 004-1).
        allocated = by_name(state, slot.capacity.wanted)
    else:
        allocated = total(by_name(state, allocation.items) for allocation in allocations)
    on_node = slot.phase in ON_NODE
    held = by_name(state, slot.capacity.held) if on_node else {}
    wanted = by_name(state, slot.capacity.wanted) if on_node else {}
    missing = {r: amount - held.get(r, 0) for r, amount in wanted.items() if amount > held.get(r, 0)}
    return SlotView(
        name,
        str(slot.phase),
        slot.node,
        asked,
        held,
        allocated,
        missing,
        slot.devices,
        slot.cores,
        (pod_name(state, slot.pod) if slot.pod in state.pods else slot.owner or slot.pod) if slot.pod else "",
        by_name(state, state.vectors[slot.asked].items) if slot.asked else {},
        slot.reason,
        slot.message,
        tuple(_users(state, slot.node, missing, (uid, name))) if missing else (),
        bool(slot.pod) and slot.pod not in state.pods,
        _placeholder(state, uid, name, slot) if on_node else "",
    )


def _placeholder(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> str:
    """`restow-holds/hold-1 runs`; empty where the slot needs none, or has none yet."""
    body = body_of(state, (uid, name))
    if body is None:
        return ""
    return f"{pod_name(state, body)} {'runs' if stands(state.live_of(body), slot) else 'does not run yet'}"


def amounts(found: Iterable[SlotView]) -> tuple[Amounts, Amounts]:
    """What is held or used (`allocatable`), and what owners use of it (`allocated`)."""
    there = [slot for slot in found if slot.phase in (*ON_NODE, SlotPhase.USED) or slot.allocated]
    return total(slot.total for slot in there), total(slot.allocated for slot in there)


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
            add(f"slot {name} of reservation {reservation_name(state, uid)}", state.slots[uid][name].capacity.held)
    for pod in state.nominated_on.get(node, ()):
        add(f"held for pod {pod_name(state, pod)}, which preempts there", state.nominations[pod].capacity.held)
    first = next(iter(missing))
    return sorted(found, key=lambda u: (-u.amounts.get(first, 0), u.who))[:USERS]


def allocated_pods(state: ClusterState, uid: ReservationUid) -> list[AllocatedPod]:
    """The pods that use it now, slot by slot, in the order in which they came."""
    from restow.domain.session.hold_offers import slot_order

    found = []
    for name in sorted(state.slots.get(uid, {}), key=slot_order):
        for pod in state.slot_users.get((uid, name), ()):
            allocation: Allocation = state.allocations[pod]
            found.append(
                AllocatedPod(pod_name(state, pod), pod, name, allocation.node, by_name(state, allocation.items), allocation.devices, allocation.cores, allocation.bound)
            )
    return found


def pod_name(state: ClusterState, uid: Any) -> str:
    """`namespace/name`; the uid of a pod that the state does not know any more."""
    pod = state.fact_of(uid)
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
    said = ["one pod takes a slot, and ends it (allocateOnce)" if spec.allocate_once else "pods share it until it is empty, and what they leave comes back (allocateOnce: false)"]
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
        said.append("it may be put where capacity is still in use, and waits for that (preAllocation)")
    return said
