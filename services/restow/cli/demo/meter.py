"""What the demo's cluster has free and is worth before and after, by the demands that there were before. What those who waited have taken since counts as free:
it was won for them."""

from collections import Counter
from typing import Any

from restow.contracts.ids import Millis, NodeName, PlanId
from restow.contracts.values import Packing
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal, as_if_without, waiting
from restow.domain.defragmentation.usable_worth import loads_of
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.records import Step
from restow.domain.state import ClusterState


class Meter:
    """Made before anything moves; reads the state as it is when it is asked. Worth and costs are in thousandths of `unit`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._args = state.migration_config.defragmentation or DefragmentationArgs()
        self._appraisal = Appraisal(state, self._args, Millis(state.time))
        self._appraisal.usable, self._appraisal.blocks  # noqa: B018 - the demands are those of now
        self.unit, self.hours = self._appraisal.prices.unit, self._appraisal.hours
        self._asked, self._waited = asked_for(state), waiting(state)

    def started(self) -> dict[int, int]:
        """Of those who waited: how many have a node now, by how many GPUs they ask for."""
        state, found = self._state, Counter[int]()
        for uid in self._waited:
            if uid in state.charges:
                devices = state.vectors[state.pods[uid].fact.shape].devices
                found[devices.count if devices is not None else 0] += 1
        return dict(sorted(found.items(), reverse=True))

    def worth(self) -> int:
        return self._appraisal.total(*self._without())

    def packing(self) -> Packing:
        return packing(self._state, *self._without(), self._asked)

    def gpus_in_free_nodes(self) -> int:
        state, loads = self._state, loads_of(self._state)
        for name, count in self._without()[1].items():
            loads[state.table.rows[name]] += count
        return sum(node.devices for name, node in state.nodes.items() if not loads[state.table.rows[name]])

    def _without(self) -> tuple[FreeCapacity, dict[NodeName, int]]:
        return as_if_without(self._state, self._waited)

    def cost(self) -> int:
        """Of all moves that have landed."""
        return sum(one.move.cost for one in self._state.migrations.values() if one.step == Step.LANDED)

    def greedy(self, options: dict[str, Any], most: int) -> Packing:
        """What the greedy planner would make of the cluster now, with so many moves (0: with any number)."""
        resource, state = self._args.resourceType, self._state
        low, defragment, protection = ({resource: options[key]} for key in ("low", "defragment", "protection"))
        args = DefragmentationArgs(resourceType=resource, lowThresholds=low, defragmentThresholds=defragment, protectionThresholds=protection)
        return defragmentation.plan(state, args, Millis(state.time), PlanId("compared"), most or defragmentation.MAX_MOVES).after
