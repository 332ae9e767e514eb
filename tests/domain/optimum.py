"""The best that any planner could do, by an exact solver (HiGHS): which pod on which node, with which devices, so that what is gained
beyond the cost of the moves is as large as possible.

Written from the rules, not from the planner, and without its limits: any final state that fits counts, in whatever order it could be
reached, and devices are chosen freely, not as the scheduler would. So it is a bound from above.
"""

from collections.abc import Iterable

import highspy
from domain.build import GPU

from restow.contracts.values import PodShape
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.demand_mix import mix
from restow.domain.defragmentation.prices import Prices
from restow.domain.state import ClusterState


def optimum(state: ClusterState, args: DefragmentationArgs, moves: int) -> tuple[int, int]:
    """(gain, moves). Every pod may move; nodes differ only in what they have. By `value` in thousandths of a GPU-hour, before anything is rounded."""
    return _Model(state, args, moves).solved()


def demands(state: ClusterState, args: DefragmentationArgs) -> list[tuple[PodShape, float]]:
    """What is asked for, and what one of it that fits is worth in thousandths of a GPU-hour, where nodes cost what they have."""
    names = {column: name for name, column in state.table.columns.items()}
    sizes = Prices(state, args.prices).sizes
    return [
        (PodShape({names[column]: amount for column, amount in one.v.items}, devices=one.v.devices), one.part * one.size * args.horizonHours / 1024 / 1000)
        for one in mix(state, sizes)
    ]  # fmt: skip


class _Model:
    def __init__(self, state: ClusterState, args: DefragmentationArgs, moves: int) -> None:
        self.state, self.args = state, args
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("mip_rel_gap", 0.0)
        self.nodes, self.pods = sorted(state.nodes), sorted(state.pods)
        self.at = {(p, n): self._binary() for p in self.pods for n in self.nodes}
        self.on: dict[tuple[str, str, int], object] = {}
        for p in self.pods:
            self.solver.addConstr(self._sum(self.at[p, n] for n in self.nodes) == 1)
            self._devices(p)
        for n in self.nodes:
            self._capacity(n)
        leaving = [1 - self.at[p, state.charges[p].node] for p in self.pods]
        self.moved = self._sum(leaving)
        self.solver.addConstr(self.moved <= moves)
        self.worth = self._sum(self._worth(n) for n in self.nodes)

    def _binary(self):
        return self.solver.addVariable(0, 1, type=highspy.HighsVarType.kInteger)

    def _sum(self, terms: Iterable):
        total = highspy.highs.highs_linear_expression(0)
        for term in terms:
            total += term
        return total

    def _asks(self, pod: str):
        return self.state.shapes[self.state.pods[pod].fact.shape]

    def _devices(self, p: str) -> None:
        """As many of a node's devices as it asks for; at home those that it has."""
        request, charge = self._asks(p).devices, self.state.charges[p]
        if request is None:
            return
        for n in self.nodes:
            mine = [self.on.setdefault((p, n, d), self._binary()) for d in range(self.state.nodes[n].devices)]
            self.solver.addConstr(self._sum(mine) == request.count * self.at[p, n])
            if n == charge.node:
                for share in charge.devices:
                    self.solver.addConstr(self.on[p, n, share.index] >= self.at[p, n] * 1.0)

    def _capacity(self, n: str) -> None:
        fact = self.state.nodes[n]
        for resource, total in fact.allocatable.items():
            if resource != GPU:
                self.solver.addConstr(self._used(n, resource) <= total)
        for d in range(fact.devices):
            shares = self._sum(self._asks(p).devices.milli * self.on[p, n, d] for p in self.pods if (p, n, d) in self.on)
            self.solver.addConstr(shares <= 1000)

    def _used(self, n: str, resource: str):
        return self._sum(self._asks(p).requests.get(resource, 0) * self.at[p, n] for p in self.pods if self._asks(p).requests.get(resource))

    def _worth(self, n: str):
        fact, objective = self.state.nodes[n], self.args.objective
        if objective == "nodes":
            free = self._binary()
            for p in self.pods:
                self.solver.addConstr(free + self.at[p, n] <= 1)
            return 1 * free
        if objective == "value":
            return self._sum(weight * self._copies(n, one) for one, weight in demands(self.state, self.args))
        if objective == "devices":
            whole = [self._binary() for _ in range(fact.devices)]
            for d, free in enumerate(whole):
                for p in self.pods:
                    if (p, n, d) in self.on:
                        self.solver.addConstr(free + self.on[p, n, d] <= 1)
            return self._sum(whole)
        copies = self.solver.addVariable(0, 1000, type=highspy.HighsVarType.kInteger)
        for resource, amount in self.args.capacity.items():
            self.solver.addConstr(self._used(n, resource) + int(amount.removesuffix("m")) * copies <= fact.allocatable[resource])
        return 1 * copies

    def _copies(self, n: str, one: PodShape):
        """How often a request fits beside itself; its shares of devices on different ones each time."""
        fact = self.state.nodes[n]
        copies = self.solver.addVariable(0, 1000, type=highspy.HighsVarType.kInteger)
        for resource, amount in one.requests.items():
            if resource != GPU:
                self.solver.addConstr(self._used(n, resource) + amount * copies <= fact.allocatable.get(resource, 0))
        if one.devices is None:
            return 1 * copies
        slots = [self.solver.addVariable(0, 1000, type=highspy.HighsVarType.kInteger) for _ in range(fact.devices)]
        self.solver.addConstr(self._sum(slots) == one.devices.count * copies)
        for d, slot in enumerate(slots):
            used = self._sum(self._asks(p).devices.milli * self.on[p, n, d] for p in self.pods if (p, n, d) in self.on)
            self.solver.addConstr(used + one.devices.milli * slot <= 1000)
            self.solver.addConstr(1 * slot <= 1 * copies)
        return 1 * copies

    def solved(self) -> tuple[int, int]:
        if self.args.objective == "value":
            self.solver.maximize(self.worth - (1000 + self.args.minimumGain) * self.moved)
            return round(self.solver.val(self.worth)), round(self.solver.val(self.moved))
        least = max(self.args.minimumGain, 1) * 1000
        # In thousandths of a gain, so that the solver's tolerances do not matter.
        self.solver.maximize(1000 * self.worth - (least / 1000) * self.moved)
        moved = round(self.solver.val(self.moved))
        return round(self.solver.val(self.worth)), moved
