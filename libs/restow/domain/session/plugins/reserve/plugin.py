"""Plugin `reserve` (seed 001): in windows of time, and from a lead before them, pods that are no reserve tasks are kept off
nodes that reserve tasks will need. Nobody is preempted for it. Outside of windows a session only notes what has moved."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain import resources as r
from restow.domain.session.framework import Filter
from restow.domain.session.plugins.reserve import windows
from restow.domain.session.plugins.reserve.args import Args, ReserveLabel
from restow.domain.session.plugins.reserve.open_window import Kept, Selected
from restow.domain.session.plugins.reserve.reserve_tasks import Index, is_reserve_task
from restow.domain.session.plugins.reserve.windows import Window
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

KEPT_FREE = "node(s) were kept free for a reservation window"


def open(session: Session, args: Args) -> None:
    if args.reservelabels:
        # In windows or not, so that the first session of one does not look at every pod.
        Index.of(session.state)
    kept = [Kept(session, label, window) for label, window in active(args, session.now)]
    if kept:
        session.extensions.filter(WindowFilter(session.state, kept))


class _Deadline(NamedTuple):
    args: Args
    after: Millis
    when: Millis | None


def deadline(state: ClusterState, args: Args, after: Millis) -> Millis | None:
    """When a window opens, starts or ends next: pods may fit then although nothing has happened. Asked far more often than
    it changes."""
    known = state.memo.find(_Deadline)
    if known is not None and known.args is args and known.after <= after and (known.when is None or after < known.when):
        return known.when
    times = [windows.next_change(label.cron, label.timeZone, label.lead, after) for label in args.reservelabels]
    when = min((at for at in times if at is not None), default=None)
    return state.memo.keep(_Deadline(args, after, when)).when


class WindowFilter(Filter):
    """Each active window for itself; a node is counted for the first that keeps the pod off it."""

    stage, for_others = "window", True
    shrinks = False
    """A reserve task that is placed may be the last that a window waits for."""

    def __init__(self, state: ClusterState, kept: list[Kept]) -> None:
        self._state, self._kept = state, kept

    def concerns(self, pod: PodObserved) -> bool:
        return not is_reserve_task(self._state, pod) and any(kept.denies(pod) for kept in self._kept)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, np.ndarray]]:
        return [(KEPT_FREE, kept.forbidden) for kept in self._kept if kept.denies(pod)]

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if is_reserve_task(self._state, pod):
            for kept in self._kept:
                kept.placed(pod, row, 1)

    def removed(self, pod: PodObserved, row: int) -> None:
        if is_reserve_task(self._state, pod):
            for kept in self._kept:
                kept.placed(pod, row, -1)


def remarks(state: ClusterState, args: Args, now: Millis) -> Iterator[str]:
    """What the configuration asks for and the cluster cannot give, in sentences that name the argument."""
    for i, label in enumerate(args.reservelabels):
        path = f"reservelabels[{i}]"
        mask = Selected.of(state, label.nodeSelector)
        if not mask.any():
            shown = ", ".join(f"{key}={value}" for key, value in sorted(label.nodeSelector.items()))
            yield f"{path}.nodeSelector: no node that can take pods has {shown}: nothing is kept free"
            continue
        for name, amount in label.columns.items():
            column = state.table.columns.get(name)
            there = 0 if column is None else sum(state.table.allocatable[mask, column].tolist())
            if there < amount:
                less = "it is not kept free" if not there else "all of them are kept free"
                yield f"{path}.resources[{r.title(name)!r}]: {r.amount(name, amount)} is asked for, the selector's nodes have {r.amount(name, there)}: {less}"
        if next_window(label, now) is None:
            yield f"{path}.cron: {label.cron!r} never fires again"


def next_window(label: ReserveLabel, now: Millis) -> Window | None:
    """The window that is kept free now, or the next one."""
    return next(iter(windows.active(label.cron, label.timeZone, label.lead, now)), None) or windows.upcoming(
        label.cron, label.timeZone, label.lead, now
    )


def active(args: Args, now: Millis) -> Iterator[tuple[ReserveLabel, Window]]:
    """The windows that are open or in their lead."""
    for label in args.reservelabels:
        for window in windows.active(label.cron, label.timeZone, label.lead, now):
            yield label, window
