"""Successors that their scheduler has bound to each other's slots: all that was held is used, by the pods that it was held for, so each takes the other's move.

kube-scheduler places equal pods of a gang at once, and may bind each to any of the nodes that are held for them; so it may with equal pods of one controller whose moves land
in the same moment. Only where nobody could tell who was meant for which slot: of one lineage, asking for the same, each after both pods were told to go."""

from msgspec.structs import replace

from restow.contracts.ids import NodeName, PodUid
from restow.domain.beside import has_fallen, placeholder_of
from restow.domain.records import Migration, SlotPhase, Step
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState
from restow.domain.successors import may_follow


def bound(state: ClusterState, uid: PodUid, node: NodeName) -> None:
    """A pod has just got this node. Where that is another move's, whose successor has none yet, both change places."""
    mine = state.migrations.get(state.successors[uid]) if uid in state.successors else None
    if mine is None or mine.move.target == node or not _is_open(mine) or _slot(state, uid) is None:
        return
    for id in state.active:
        other = state.migrations[id]
        if other.move.target == node and other.lineage == mine.lineage and _is_open(other) and _may_trade(state, uid, mine, other):
            return _trade(state, uid, mine, other)


def _is_open(migration: Migration) -> bool:
    """Whether it is a successor that has not been ready yet which it waits for, on its target."""
    return migration.step is Step.EVICTED and not migration.back and not migration.arrived and bool(migration.successor)


def _may_trade(state: ClusterState, uid: PodUid, mine: Migration, other: Migration) -> bool:
    theirs = other.successor
    if theirs == uid or theirs not in state.to_land or _slot(state, theirs) is None:
        return False
    body = placeholder_of(state, theirs)
    if body is not None and not has_fallen(state.live_of(body)):
        # Its place is kept for it still, beside whoever has come.
        return False
    return may_follow(state, state.pods[uid].fact, other) and may_follow(state, state.pods[theirs].fact, mine)


def _slot(state: ClusterState, pod: PodUid) -> SlotKey | None:
    """That was handed over to it."""
    hold = state.placed[pod].hold if pod in state.placed else None
    slot = state.slots.get(hold[0], {}).get(hold[1]) if hold is not None else None
    return hold if slot is not None and slot.phase is SlotPhase.USED and slot.pod == pod and pod in state.allocations else None


def _trade(state: ClusterState, uid: PodUid, mine: Migration, other: Migration) -> None:
    theirs = other.successor
    state.recharge_together((uid, theirs), lambda: _exchange(state, uid, theirs))
    for migration, pod in ((mine, theirs), (other, uid)):
        state.put(state.migrations, migration.id, replace(migration, successor=pod))
        state.put(state.successors, pod, migration.id)
        state.touched.migrations[migration.id] = None
    state.settle(theirs)
    state.requeue(theirs)
    state.touched.pods[theirs] = None


def _exchange(state: ClusterState, one: PodUid, other: PodUid) -> None:
    """Slot, place and what is taken of it."""
    had = [(state.placed[pod], _slot(state, pod), state.drop(state.allocations, pod)) for pod in (one, other)]
    owners = {}
    for pod, (_, key, _) in zip((one, other), had, strict=True):
        assert key is not None, "both were handed over"
        state.drop_in(state.slot_users, key, pod)
        owners[pod] = state.slots[key[0]][key[1]].owner
    for pod, (place, key, taken) in zip((other, one), had, strict=True):
        assert key is not None, "both were handed over"
        state.put(state.placed, pod, place)
        state.allocate(pod, replace(taken, bound=False))
        state.put_slot(key, replace(state.slots[key[0]][key[1]], pod=pod, owner=owners[pod]))
        state.unsettled[key[0]] = None
