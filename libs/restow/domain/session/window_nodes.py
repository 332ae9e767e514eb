"""Which nodes windows keep for reserve tasks, for those who plan what a session is to do later."""

import numpy as np

from restow.contracts.ids import Millis
from restow.domain.session.plugins.reserve.open_window import Kept
from restow.domain.session.plugins.reserve.plugin import active
from restow.domain.session.registry import opened
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


def closed(state: ClusterState, now: Millis) -> np.ndarray:
    """`(nodes,) bool`: rows that some window forbids now. No hold should be planned there (RULES G-8), even while there is so
    much idle capacity that a session would still permit it: what is planned lands later."""
    mask = np.zeros(len(state.table.names), bool)
    for _, plugin, _, args in opened(state):
        if plugin.name != "reserve" or not plugin.on("enablePredicate"):
            continue
        session = Session(state, now, 0)
        for label, window in active(args, now):
            kept = Kept(session, label, window)
            if kept.waits:
                mask |= kept.forbidden
        session.close()
    return mask
