"""What a policy says that matches nothing in this cluster: allowed, for it may match tomorrow, and told, for it may be a slip."""

from collections.abc import Iterable

from restow.domain import eviction_budgets
from restow.domain.config import DefragmentationArgs, PriceArgs
from restow.domain.defragmentation.args import ArgsError, capacity_of, selector
from restow.domain.defragmentation.prices import MOST as MOST_PRICE
from restow.domain.defragmentation.prices import OWN_PRICE, micros, priced
from restow.domain.descheduling.interpreter import Run
from restow.domain.descheduling.model import EVICTOR
from restow.domain.hooks import CHECKPOINTED, checkpointed
from restow.domain.hooks import said as shown
from restow.domain.migration import modes, open_hours, pause
from restow.domain.migration.deschedule import policy_of
from restow.domain.resources import canonical_resource
from restow.domain.selectors import selects
from restow.domain.state import ClusterState

MANY = 3
"""Names that are told."""


def warnings(state: ClusterState) -> list[str]:
    """That moves are paused, or closed by the clock, the mode where it is not automatic, and eviction budgets that are used up. Of the arguments of Defragmentation, of what its policy says of nodes and pods, and of what pods say of their checkpoints; none before anything is known of the cluster."""
    return [*filter(None, (pause.said_with_its_end(state), open_hours.said(state.migration_config, state.time), modes.said(state), eviction_budgets.nothing_left(state, state.time))), *_of_policy(state)]


def _of_policy(state: ClusterState) -> list[str]:
    args = state.migration_config.defragmentation
    if not state.nodes or not state.pods:
        return []
    of_claims = _missing(state, "claimNamespaces", state.migration_config.claim_namespaces)
    if args is None:
        return [*of_claims, *_checkpoints(state)]
    return [*_resource(state, args), *_selector(state, args), *_namespaces(state, args), *_capacity(state, args), *_prices(state, args.prices), *_profile(state), *of_claims, *_checkpoints(state)]


def _profile(state: ClusterState) -> list[str]:
    policy = policy_of(state)
    if policy is None:
        return []
    run = Run(state, policy, state.time)
    told = [] if run.nodes else [f"nodeSelector: {policy.node_selector_text!r} selects no ready node, so nothing moves"]
    home = (one for one in run.filters if one.profile == state.migration_config.profile)
    return [*told, *(f"{EVICTOR}: {text}" for one in home for text in one.evictor.warnings())]


def _checkpoints(state: ClusterState) -> list[str]:
    said = [pod.fact for pod in state.pods.values() if CHECKPOINTED in pod.fact.annotations and not checkpointed(pod.fact, state.time)]
    if not said:
        return []
    one = said[0]
    what = f"such as {shown(one.annotations[CHECKPOINTED])!r} of {one.namespace}/{one.name}"
    return [f"{CHECKPOINTED}: of {len(said)} pods it does not count, {what}; allowed: a time in RFC 3339 with its zone, not in the future"]


def _resource(state: ClusterState, args: DefragmentationArgs) -> list[str]:
    if args.planner == "claims":
        return _claims(state)
    wanted = canonical_resource(args.resourceType)
    if any(node.allocatable.get(wanted) for node in state.nodes.values()):
        return []
    return [f"resourceType: no node has {args.resourceType}"]


def _claims(state: ClusterState) -> list[str]:
    named = state.migration_config.claim_namespaces
    told = [] if named else ["claimNamespaces: names no namespace, so planner claims moves nothing"]
    return [*told, *([] if state.resource_slices else ["planner: claims: no node has devices by claim"])]


def _selector(state: ClusterState, args: DefragmentationArgs) -> list[str]:
    asked = selector(args)
    if asked is None:
        return []
    selected = asked.selects
    if any(selects(selected, pod.fact.labels) for pod in state.pods.values()):
        return []
    return [f"labelSelector: it selects none of {len(state.pods)} pods, so none may move"]


def _namespaces(state: ClusterState, args: DefragmentationArgs) -> list[str]:
    names = args.evictableNamespaces
    if names is None:
        return []
    return _missing(state, "evictableNamespaces", (*names.include, *names.exclude))


def _missing(state: ClusterState, what: str, names: Iterable[str]) -> list[str]:
    known = {pod.fact.namespace for pod in state.pods.values()} | set(state.namespaces)
    missing = [name for name in names if name not in known]
    return [f"{what}: there is no namespace {', '.join(missing)}"] if missing else []


def _capacity(state: ClusterState, args: DefragmentationArgs) -> list[str]:
    if args.objective != "capacity":
        return []
    try:
        wanted, _ = capacity_of(args.capacity)
    except ArgsError:
        return []
    if any(all(node.allocatable.get(name, 0) >= amount for name, amount in wanted.items()) for node in state.nodes.values()):
        return []
    return [f"capacity: no node is large enough for {', '.join(f'{amount} {name}' for name, amount in args.capacity.items())}"]


def _prices(state: ClusterState, args: PriceArgs) -> list[str]:
    """A node without a price beside others that have one is worth something in another unit."""
    told = []
    unread = [node for node in state.nodes.values() if OWN_PRICE in node.labels and micros(node.labels[OWN_PRICE]) is None]
    if unread:
        one = unread[0]
        told.append(f"{OWN_PRICE}: of {_nodes(len(unread))} it does not count, such as {shown(one.labels[OWN_PRICE])!r} of {one.name}; allowed: a number of units per hour, 0 to {MOST_PRICE}")
    missing = sorted(args.perHour.keys() - {node.labels.get(args.label) for node in state.nodes.values()})
    if missing:
        told.append(f"prices.perHour: no node has label {args.label} with {', '.join(map(shown, missing[:MANY]))}" + (f" and {len(missing) - MANY} more" if len(missing) > MANY else ""))
    classes = {name: micros(str(price)) for name, price in args.perHour.items()}
    without = [name for name, node in state.nodes.items() if priced(node, args.label, classes) is None]
    if without and len(without) < len(state.nodes):
        told.append(f"prices: {_nodes(len(without))} of {len(state.nodes)} {'has' if len(without) == 1 else 'have'} none, such as {without[0]}, and {'counts' if len(without) == 1 else 'count'} by GPUs, cores and memory, which is no money")
    return told


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"
