"""Why a pod is where it is, or why it waits and what would let it fit: decided again from the state, never stored."""

import msgspec
import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.domain.predicates import NOT_READY, reasons, room_reasons, static_mask, static_reasons
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
    open_rows = static_mask(state, observed.shape) & state.table.fits(state.vectors[observed.shape])
    return Verdict(pod, "waiting", nodes=total, reasons=counts, fits=int(open_rows.sum()), reliefs=_reliefs(state, observed.shape))


def _reliefs(state: ClusterState, shape) -> tuple[Relief, ...]:
    """Rules that, lifted alone, would let it fit; the greatest request that would fit, per resource that is short."""
    room = state.table.fits(state.vectors[shape])
    why = static_reasons(state, shape)
    found: dict[str, int] = {}
    for row in np.flatnonzero(room & state.table.alive):
        if why[row]:
            found[why[row]] = found.get(why[row], 0) + 1
    reliefs = [Relief(_lifted(rule), count) for rule, count in sorted(found.items())]
    v = state.vectors[shape]
    open_rows = static_mask(state, shape) & state.table.alive
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
            best = int(state.table.device_free[rows].max())
            reliefs.append(Relief(f"a GPU share of at most {max(best, 0)} thousandths of one device", len(rows)))
        else:
            resource = "pods" if reason == "Too many pods" else reason.removeprefix("Insufficient ")
            best = int(state.table.free[rows, state.table.columns[resource]].max())
            reliefs.append(Relief(f"a {resource} request of at most {max(best, 0)}", len(rows)))
    return tuple(reliefs)


def _lifted(rule: str) -> str:
    return "a node that becomes ready" if rule == NOT_READY else f"without the rule: {rule}"
