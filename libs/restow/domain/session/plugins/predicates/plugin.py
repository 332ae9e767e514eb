"""Plugin `predicates`: which nodes a pod may run on, as kube-scheduler decides it. Rules about the node itself (readiness,
taints, selectors) are in `restow.domain.predicates`, because other services ask them, too, and follow the switches here; here
are those that depend on what runs."""


from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain.held_by_claim import is_moves
from restow.domain.session.other_pods import OtherPods
from restow.domain.session.plugins.predicates import kubelets
from restow.domain.session.plugins.predicates.args import Args
from restow.domain.session.plugins.predicates.claimed_devices import ClaimedDevices
from restow.domain.session.plugins.predicates.cores import OwnCores, asked_for
from restow.domain.session.plugins.predicates.filters import (
    InterPodAffinity,
    NumaZones,
    Occupants,
    Ports,
    TopologySpread,
    VolumeRules,
)
from restow.domain.session.plugins.predicates.kept_for_successors import KeptForSuccessors
from restow.domain.session.plugins.predicates.nominees import Nominees
from restow.domain.session.plugins.predicates.proportional import Proportional
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


def deadline(state: ClusterState, args: Args, after: Millis) -> Millis | None:
    """When the next node may be asked for a volume again that it could not have, or for a pod like one that it has rejected."""
    times = [until for nodes in state.unserved.values() for until in nodes.values() if until > after]
    if (when := kubelets.deadline(state, after)) is not None:
        times.append(when)
    return min(times, default=None)


CLAIMS = "resource claims (dynamic resource allocation) are not decided by this scheduler"


def open(session: Session, args: Args) -> None:
    state, extensions = session.state, session.extensions
    others = session.other_pods = session.other_pods or OtherPods(state)
    for on, rule in (
        (args.node_ports, Ports),
        (args.pod_topology_spread, TopologySpread),
        (args.pod_affinity, InterPodAffinity),
        (True, Occupants),
    ):
        if on:
            extensions.filter(rule(others))
    extensions.filter(KeptForSuccessors(session, others, args.pod_topology_spread, args.pod_affinity))
    if args.proportional and args.resources:
        extensions.filter(Proportional(state, args))
    if asked_for(state):
        cores = extensions.cores = OwnCores(session)
        extensions.filter(cores)
    extensions.filter(ClaimedDevices(state))
    extensions.filter(NumaZones(state))
    extensions.filter(Nominees(state))
    extensions.filter(kubelets.SharesOfUnsaid(state))
    extensions.filter(kubelets.Rejected(state, session.now))
    volumes = VolumeRules(state, session.now, args.node_volume_limits, args.volume_zone, args.volume_binding)
    extensions.filter(volumes)
    extensions.volumes = volumes

    def waits(pod: PodObserved) -> str:
        reason = volumes.waits(pod) if pod.claims else ""
        if state.shapes[pod.shape].resource_claims and not is_moves(state, pod):
            reason = CLAIMS
        return f"0/{len(state.nodes)} nodes are available: {reason}." if reason else ""

    extensions.veto("podWaits", waits)
