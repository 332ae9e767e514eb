"""Pods that ignore Reservations (Koordinator's label `reservation-ignored`): where nothing is free they get capacity that is held
for others. The holds that give it wait until they have it back, so that nothing is promised twice."""

from collections.abc import Iterable

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName
from restow.domain.beside import needs_placeholder
from restow.domain.predicates import static_mask
from restow.domain.records import ON_NODE
from restow.domain.reservation.owner_matching import is_migration_hold
from restow.domain.reservation.reservation_affinity import ignores
from restow.domain.session.fitting import Fit
from restow.domain.session.framework import Filter
from restow.domain.session.session import Session
from restow.domain.slots import SlotKey


def borrowed(session: Session, pod: PodObserved, concerned: list[Filter]) -> Fit | None:
    """Where the fewest holds suffice, the first name among equals; on a node the latest hold gives first. Migrations' holds give
    nothing: a pod that was moved has no other slot."""
    state = session.state
    if not ignores(pod) or not state.held_on:
        return None
    equivalence_class = session.equivalence_class(pod, concerned)
    if session.borrowed_nothing.get(equivalence_class) == session.moves:
        return None  # however many are alike, one of them is asked about
    nodes: Iterable[NodeName] = [pod.pinned_node] if pod.pinned_node else sorted(state.held_on)
    best: tuple[int, NodeName, Fit] | None = None
    for node in nodes:
        fit = _on(session, pod, node, concerned)
        if fit is not None and (best is None or (len(fit.borrows), node) < best[:2]):
            best = len(fit.borrows), node, fit
            if len(fit.borrows) == 1:
                break
    if best is None:
        session.borrowed_nothing[equivalence_class] = session.moves
        return None
    return best[2]


def _on(session: Session, pod: PodObserved, node: NodeName, concerned: list[Filter]) -> Fit | None:
    state = session.state
    row = state.table.rows.get(node)
    keys = [key for key in state.held_on.get(node, ()) if _gives(session, key, node)]
    if row is None or not keys or not static_mask(state, pod.shape)[row]:
        return None
    borrows: list[SlotKey] = []
    free, shares = ([*amounts] for amounts in session.nodes.row(row))
    v = state.vectors[pod.shape]
    for key in reversed(keys):
        capacity = session.offers.slot(key).capacity
        if not capacity.held and not capacity.held_devices:
            continue
        borrows.append(key)
        for column, amount in capacity.held:
            free[column] += amount
        for d in capacity.held_devices:
            if d.index < len(shares):
                shares[d.index] += d.milli
        if any(free[column] < amount for column, amount in v.items):
            continue
        restored = {i: share - was for i, (share, was) in enumerate(zip(shares, session.nodes.row(row)[1], strict=True))}
        devices = state.table.choose_devices(row, v.devices, restored)
        # CPUs are not borrowed: a hold keeps its own while it waits for the rest.
        cores = session.choose_cores(pod, row)
        if devices is not None and cores is not None:
            if _refused(session, pod, row, borrows, concerned):
                return None
            return Fit(row, devices, session.fit_at(pod, row).volumes, cores, tuple(borrows))
    return None


def _gives(session: Session, key: SlotKey, node: NodeName) -> bool:
    state = session.state
    slot = session.offers.slot(key)
    # This session may have moved it.
    if slot.node != node or needs_placeholder(state, key, slot):
        # A placeholder lends nothing.
        return False
    return slot.phase in ON_NODE and key not in state.to_release and not is_migration_hold(state, state.reservations[key[0]])


def _refused(session: Session, pod: PodObserved, row: int, borrows: list[SlotKey], concerned: list[Filter]) -> bool:
    """Whether a rule about what runs is against it even without these holds."""
    asked = [rule for rule in concerned if not rule.for_others and not rule.of_capacity]
    if not asked:
        return False
    session.look_as(pod)
    with session.attempt():
        for key in borrows:
            session.overlook(key, [rule for rule in session.extensions.filters if not rule.of_capacity])
        return any(bool(rows[row]) for rule in asked for _, rows in rule.failing(pod))
