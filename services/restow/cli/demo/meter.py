"""What the demo's cluster is worth before and after, by the demands that there were before."""

from typing import Any

from restow.contracts.ids import Millis, PlanId
from restow.contracts.values import Packing
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.usable_worth import loads_of
from restow.domain.records import Step
from restow.domain.state import ClusterState


class Meter:
    """Made before anything moves; reads the state as it is when it is asked. Worth and costs are in thousandths of `unit`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._args = state.migration_config.defragmentation or DefragmentationArgs()
        self._appraisal = Appraisal(state, self._args, Millis(state.time))
        self._appraisal.usable  # noqa: B018 - the demands are those of now
        self.unit, self.hours = self._appraisal.prices.unit, self._appraisal.hours

    def worth(self) -> int:
        return self._appraisal.total()

    def gpus_in_free_nodes(self) -> int:
        state, loads = self._state, loads_of(self._state)
        return sum(node.devices for name, node in state.nodes.items() if not loads[state.table.rows[name]])

    def cost(self) -> int:
        """Of all moves that have landed."""
        return sum(one.move.cost for one in self._state.migrations.values() if one.step == Step.LANDED)

    def greedy(self, options: dict[str, Any], most: int) -> Packing:
        """What the greedy planner would make of the cluster now, with so many moves (0: with any number)."""
        resource, state = self._args.resourceType, self._state
        low, defragment, protection = ({resource: options[key]} for key in ("low", "defragment", "protection"))
        args = DefragmentationArgs(resourceType=resource, lowThresholds=low, defragmentThresholds=defragment, protectionThresholds=protection)
        return defragmentation.plan(state, args, Millis(state.time), PlanId("compared"), most or defragmentation.MAX_MOVES).after
