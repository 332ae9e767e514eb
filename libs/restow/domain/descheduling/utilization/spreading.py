"""From nodes that are overutilized to nodes that are underutilized: the common part of LowNodeUtilization and LoadAware."""

from collections.abc import Callable

import msgspec

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.args import Namespaces
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.utilization.args import shown
from restow.domain.descheduling.utilization.levels import SCALE, Amounts, Bounds, over, under
from restow.domain.descheduling.utilization.moving import Flow, move, rested
from restow.domain.descheduling.utilization.usage import Usage
from restow.domain.resources import title


class Spread(msgspec.Struct, frozen=True):
    """`percent`: of the nodes that are looked at, how much is used, in parts of a percent. `low` and `high`: what underutilized nodes
    are not above, and overutilized ones are. `most`: pods a node; `may`: which pods at all, None for all. `order`: of the pods of a node,
    given them, its overutilized resources and where they may go; None for the usual one. `unsettled`: nodes that are left out until
    what is measured shows what was moved there."""

    percent: dict[NodeName, Amounts]
    low: Bounds
    high: Bounds
    number_of_nodes: int = 0
    namespaces: Namespaces | None = None
    most: int | None = None
    may: Callable[[PodUid], bool] | None = None
    order: Callable[[list[PodUid], list[str], list[NodeName]], list[PodUid]] | None = None
    unsettled: frozenset[NodeName] = frozenset()


def spread(handle: Handle, usage: Usage, asked: Spread) -> None:
    percent, bounds = asked.percent, asked.high
    low: list[NodeName] = []
    high: list[NodeName] = []
    for node in percent:
        if not handle.state.nodes[node].unschedulable and under(percent[node], asked.low):
            low.append(node)
        elif over(percent[node], bounds):
            high.append(node)
    if why := _nothing(asked, low, high) or rested(handle, usage, high, low, asked.unsettled):
        handle.warn(why)
        return
    ceilings: dict[NodeName, Amounts] = {}

    def ceiling(node: NodeName) -> Amounts:
        found = ceilings.get(node)
        if found is None:
            found = ceilings[node] = _ceiling(usage, usage.capacity(handle, node), bounds)
        return found

    def enough(node: NodeName, used: Amounts) -> str:
        top = ceiling(node)
        if any(amount > top[name] for name, amount in used.items()):
            return ""
        return "Utilization: enough leaves its node, which is above no target any more"

    def reason(node: NodeName) -> str:
        name = over(percent[node], bounds)
        used = percent[node][name] // (SCALE // 10)
        return f"{title(name)} of its node is used to {used // 10}.{used % 10} %, more than {shown(bounds[name].percent)} %"

    order = asked.order

    def ordered(node: NodeName, pods: list[PodUid]) -> list[PodUid]:
        assert order is not None, "asked only where there is one"
        return order(pods, [name for name, bound in bounds.items() if bound.below(percent[node].get(name, 0))], low)

    high.sort(key=lambda node: (-sum(usage.nodes[node].values()), node))
    flow = Flow(high, low, ceiling, enough, reason, asked.most, None if order is None else ordered, tuple(bounds))
    move(handle, usage, flow, asked.namespaces, asked.may)


def _ceiling(usage: Usage, capacity: Amounts, bounds: Bounds) -> Amounts:
    """Up to its target for resources that have one, and all of the others."""
    return {
        name: bounds[name].share(capacity.get(name, 0)) if name in bounds else capacity.get(name, 0) for name in usage.names
    }


def _nothing(asked: Spread, low: list[NodeName], high: list[NodeName]) -> str:
    if not low:
        return "no node is underutilized"
    if len(low) <= asked.number_of_nodes:
        return f"{len(low)} nodes are underutilized; numberOfNodes asks for more than {asked.number_of_nodes}"
    if len(low) == len(asked.percent):
        return "all nodes are underutilized"
    return "" if high else "no node is overutilized"
