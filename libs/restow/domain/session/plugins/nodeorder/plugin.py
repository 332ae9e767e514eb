"""Plugin `nodeorder`: kube-scheduler's preferences among nodes that fit, each with its weight.

`imagelocality.weight` is read and has no effect: which images a node has is not among the facts.
"""

from restow.domain.session.plugins.nodeorder.args import Args
from restow.domain.session.plugins.nodeorder.company import Neighbours
from restow.domain.session.plugins.nodeorder.resource import resource_scores
from restow.domain.session.plugins.nodeorder.score import NodeAffinity, Resources, TaintToleration
from restow.domain.session.plugins.predicates.filters import Company
from restow.domain.session.run import Session


def open(session: Session, args: Args) -> None:
    add, state = session.extensions.add_scorer, session.state
    session.extensions.add("resourceNodeOrder", lambda pod: resource_scores(state.table, state.vectors[pod.shape]))
    if args.least_requested or args.most_requested or args.balanced_resource:
        add(content=Resources(args.least_requested, args.most_requested, args.balanced_resource))
    if args.node_affinity:
        add(static=NodeAffinity(args.node_affinity))
    if args.taint_toleration:
        add(static=TaintToleration(args.taint_toleration))
    if args.pod_affinity or args.pod_topology_spread:
        session.company = session.company or Company(session.state)
        add(dynamic=Neighbours(session.company, args.pod_affinity, args.pod_topology_spread))
