"""Plugin `binpack`: the fuller node is the better one, so that others stay free for what is large."""

from restow.domain.resources import canonical_resource
from restow.domain.session.plugins.binpack.args import Args
from restow.domain.session.plugins.binpack.score import Binpack
from restow.domain.session.run import Session


def open(session: Session, args: Args) -> None:
    if not args.weight:
        return
    weights: dict[str, int] = {}
    for resource, weight in args.weights.items():
        name = canonical_resource(resource)
        weights[name] = max(weight, weights.get(name, 0))
    session.extensions.add_scorer(content=Binpack(args.weight, tuple(sorted(weights.items()))))
