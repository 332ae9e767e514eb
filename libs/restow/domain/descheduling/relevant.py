"""Of what was measured, what can count: a command is logged, and most nodes are not too busy."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from msgspec.structs import replace

from restow.contracts.ids import NodeName
from restow.contracts.samples import BILLION, Samples
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.plugins import low_node_utilization
from restow.domain.state import ClusterState


def relevant(state: ClusterState, policy: Policy, samples: Samples) -> Samples:
    """The same with pods of those nodes alone that may be above a target: what the others use nobody asks."""
    hot = _above(state, _targets(policy, ""), {node: (used, None) for node, used in samples.nodes.items()})
    pods = samples.pods
    if any(args.source for _, args in policy.load_aware):
        loads = {}
        for source, load in samples.loads.items():
            shares = {node: (share, BILLION) for node, share in load.nodes.items()}
            here = _above(state, _targets(policy, source), shares)
            loads[source] = replace(load, pods={uid: used for uid, used in load.pods.items() if _is_on(state, uid, here)})
        samples = replace(samples, loads=loads)
    return replace(samples, pods={uid: used for uid, used in pods.items() if _is_on(state, uid, hot)})


def _targets(policy: Policy, source: str) -> list[dict[str, Fraction]] | None:
    """Target thresholds of the plugins that go by this source; None where they say nothing by themselves."""
    found: list[dict[str, Fraction]] = []
    measured = [args for _, args in policy.load_aware if args.source == source]
    for args in measured:
        if args.use_deviation_thresholds or not set(args.target_thresholds) <= {"cpu", "memory"}:
            return None
        found.append(dict(args.target_thresholds))
    for profile in policy.profiles if not source else ():
        if low_node_utilization.NAME in profile.plugins.balance.enabled:
            low = profile.args(low_node_utilization.NAME)
            if not isinstance(low, low_node_utilization.Args) or not low.measured:
                continue
            if low.use_deviation_thresholds or not set(low.target_thresholds) <= {"cpu", "memory"}:
                return None
            found.append(dict(low.target_thresholds))
    return found


def _above(
    state: ClusterState, targets: list[dict[str, Fraction]] | None, nodes: Mapping[NodeName, tuple[dict[str, int], int | None]]
) -> frozenset[NodeName] | None:
    """None for all nodes. What is measured comes with what it is of; None for what the node has."""
    if targets is None:
        return None
    hot: list[NodeName] = []
    for name, (used, of) in nodes.items():
        node = state.nodes.get(name)
        if node is not None and any(_over(target, used, of, node.allocatable) for target in targets):
            hot.append(name)
    return frozenset(hot)


def _over(target: dict[str, Fraction], used: dict[str, int], of: int | None, allocatable: dict[str, int]) -> bool:
    shares: Iterable[tuple[int, int, Fraction]] = (
        (used.get(name, 0), allocatable.get(name, 0) if of is None else of, percent) for name, percent in target.items()
    )
    # Shares of a node are rounded up when they become amounts: what is at the target already may be above it then.
    return any(amount * 100 >= percent * whole for amount, whole, percent in shares)


def _is_on(state: ClusterState, uid, nodes: frozenset[NodeName] | None) -> bool:
    live = state.live_of(uid)
    return live is not None and (nodes is None or live.node in nodes)
