"""Why a pod is where it is, or why it waits and what would let it fit: decided again from the state, never stored."""

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import DeviceRequest
from restow.domain.predicates import NOT_READY, feasible, reasons, room_reasons, static_mask, static_reasons
from restow.domain.state import ClusterState


class Relief(msgspec.Struct, frozen=True):
    """One change that would let the pod fit, and on how many nodes."""

    change: str
    nodes: int


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """`status`: bound, placed, waiting, finished, terminating, gated or foreign (another scheduler's). `reasons` counts the
    nodes that each rule removes, of `nodes`."""

    pod: PodUid
    status: str
    node: NodeName | None = None
    hold: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}
    fits: int = 0
    reliefs: tuple[Relief, ...] = ()


def explain(state: ClusterState, pod: PodUid) -> Verdict:
    """The verdict on a pod now. Raises KeyError for a pod that the state does not know."""
    observed, live = state.pods[pod], state.live[pod]
    placement = state.placed.get(pod)
    hold = "/".join(placement.hold) if placement is not None and placement.hold else ""
    node = state.node_of(pod)
    status = ""
    if live.phase in ("Succeeded", "Failed"):
        status = "finished"
    elif live.deleting:
        status = "terminating"
    elif live.node is not None:
        status = "bound"
    elif placement is not None:
        status = "placed"
    elif not state.ours(observed):
        status = "foreign"
    elif observed.gated:
        status = "gated"
    if status:
        return Verdict(pod, status, node, hold)
    pinned = observed.pinned_node
    total, counts = reasons(state, observed.shape, pinned)
    fits = int(feasible(state, observed.shape, pinned).sum())
    return Verdict(pod, "waiting", nodes=total, reasons=counts, fits=fits, reliefs=_reliefs(state, observed.shape, pinned))


def _reliefs(state: ClusterState, shape: ShapeId, pinned: NodeName) -> tuple[Relief, ...]:
    """Rules that, lifted alone, would let it fit; the greatest request that would fit, per resource that is short. Of a
    pinned pod only its node counts."""
    looked_at = state.table.alive.copy()
    if pinned:
        looked_at[[row for row in range(len(looked_at)) if row != state.table.rows.get(pinned)]] = False
    room = state.table.fits(state.vectors[shape])
    why = static_reasons(state, shape)
    found: dict[str, int] = {}
    for row in np.flatnonzero(room & looked_at):
        if why[row]:
            found[why[row]] = found.get(why[row], 0) + 1
    reliefs = [Relief(_lifted(rule), count) for rule, count in sorted(found.items())]
    v = state.vectors[shape]
    open_rows = static_mask(state, shape) & looked_at
    short = room_reasons(state, v)
    for i, (reason, lacking) in enumerate(short):
        others = open_rows.copy()
        for j, (_, other) in enumerate(short):
            if i != j:
                others &= ~other
        rows = np.flatnonzero(others & lacking)
        if not len(rows):
            continue
        if reason == "Insufficient gpu":
            reliefs.append(Relief(_less_gpu(state.table.device_free[rows], v.devices), len(rows)))
        else:
            resource = "pods" if reason == "Too many pods" else reason.removeprefix("Insufficient ")
            best = int(state.table.free[rows, state.table.columns[resource]].max())
            reliefs.append(Relief(f"a {resource} request of at most {max(best, 0)}", len(rows)))
    return tuple(reliefs)


def _less_gpu(free: np.ndarray, asked: DeviceRequest | None) -> str:
    if asked is not None and asked.count > 1:
        return f"a request of at most {int((free >= asked.milli).sum(axis=1).max())} GPUs"
    return f"a GPU share of at most {max(int(free.max()), 0)} thousandths of one device"


def _lifted(rule: str) -> str:
    return "a node that becomes ready" if rule == NOT_READY else f"without the rule: {rule}"
