"""Plugin `spot`: pods of low priority prefer nodes that may vanish, and leave the others to those that must stay."""

import msgspec
import numpy as np
from domain.example_plugin.args import Args

from restow.domain.session.scoring import SCALE


class Spot(msgspec.Struct, frozen=True):
    args: Args

    def reads(self, shape):
        return shape.priority < self.args.below

    def static(self, state, shape, rows):
        if not self.reads(state.shapes[shape]):
            return None
        nodes = [state.nodes.get(state.table.names[row]) for row in rows.tolist()]
        marked = [node is not None and self.args.label in node.labels for node in nodes]
        return np.array(marked, np.int64) * SCALE * self.args.weight


def open(session, args):
    session.extensions.add_scorer(static=Spot(args))
    session.extensions.add("jobOrder", lambda job: job.priority < args.below)
