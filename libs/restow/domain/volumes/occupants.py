"""Who uses which claims and disks on which rows: pods that are charged, holds, and what a session places tentatively."""

import msgspec

from restow.contracts.events import ClaimObserved, PodObserved
from restow.contracts.values import ClaimChoice, Disk
from restow.domain.occupants import Who, held_as_pod
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState

AWS = "awsElasticBlockStore"
"""The one kind of disk that conflicts also where everybody only reads it."""


class Occupant(msgspec.Struct, frozen=True):
    """`claims` as `namespace/name`; `choices` only while they are not facts: until the pod is bound."""

    row: int
    claims: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()
    choices: tuple[ClaimChoice, ...] = ()


def claims_of(pod: PodObserved) -> tuple[str, ...]:
    """The paths of its claims, each once, in the order of its volumes."""
    return tuple(dict.fromkeys(f"{pod.namespace}/{name}" for name in pod.claims))


def is_bound(claim: ClaimObserved) -> bool:
    """As kube-scheduler sees it: the volume is named and the volume controller has completed the binding."""
    return bool(claim.volume) and claim.bound


def occupant(state: ClusterState, key: Who) -> Occupant | None:
    """What the state says of it; None where it holds no node, or uses neither claims nor disks."""
    if isinstance(key, tuple):
        return _of_hold(state, key)
    charge = state.charges.get(key)
    if charge is None:
        return None
    pod = state.pods[key].fact
    disks = state.shapes[pod.shape].disks
    if not pod.claims and not disks:
        return None
    placement, live = state.placed.get(key), state.pods[key].live
    choices = placement.volumes if placement is not None and live.node is None else ()
    return Occupant(state.table.rows[charge.node], claims_of(pod), disks, choices)


def _of_hold(state: ClusterState, key: SlotKey) -> Occupant | None:
    """The claims of its template count, too: for one pod alone, and towards what a node can attach (seed 004)."""
    pod = held_as_pod(state, key)
    if pod is None:
        return None
    disks = state.shapes[pod.shape].disks
    if not pod.claims and not disks:
        return None
    return Occupant(state.table.rows[state.slots[key[0]][key[1]].node], claims_of(pod), disks)


def clash(one: Disk, read_only: bool) -> bool:
    """Whether a disk that somebody uses already (`read_only`: only reads) is out of reach."""
    return one.kind == AWS or not (one.read_only and read_only)
