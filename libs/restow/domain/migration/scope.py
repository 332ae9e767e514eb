"""A policy as Defragmentation follows it: the filter plugins of its profile, nodeSelector, and the limits."""

from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.defragmentation.scope import EVERYTHING, Quota, Scope
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.run import Run
from restow.domain.descheduling.selection import selected_nodes
from restow.domain.state import ClusterState

EVICTED = "Evicted: by this run already"


def scope_of(state: ClusterState, policy: Policy | None, profile: str, now: Millis) -> Scope:
    """Of a plan of its own: what it takes counts alone."""
    if policy is None:
        return EVERYTHING
    return in_run(Run(state, policy, now, selected_nodes(state, policy.node_selector), None), profile)


def in_run(run: Run, profile: str) -> Scope:
    """Of a plan in a pass: what other plugins have taken counts, too. That a pod fits elsewhere (nodeFit) is what a plan promises; but
    where DefaultEvictor asks for it, its nodeSelector says where pods may go."""
    policy = run.policy
    home = next((one for one in run.profiles if one.name == profile), None)
    selected = None if policy.node_selector is None else frozenset(run.nodes)
    targets: frozenset[NodeName] | None = selected
    if home is not None and home.evictor_args.node_fit and home.evictor_args.node_selector:
        among = frozenset(home.evictor.nodes)
        targets = among if selected is None else selected & among

    def why_not(uid: PodUid) -> str:
        if uid in run.evictions:
            return EVICTED
        return home.filters.evictable(uid) or home.filters.fits(uid, elsewhere=False) if home is not None else ""

    quota = Quota(
        policy.max_no_of_pods_to_evict_per_node, policy.max_no_of_pods_to_evict_per_namespace, run.per_node, run.per_namespace
    )
    return Scope(why_not, selected, targets, quota)


def most(policy: Policy | None, bound: int, taken: int = 0) -> int:
    """Moves that a plan may have, after so many evictions of the same pass."""
    total = None if policy is None else policy.max_no_of_pods_to_evict_total
    return bound if total is None else min(bound, max(total - taken, 0))
