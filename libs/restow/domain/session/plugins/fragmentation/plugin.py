"""Plugin `fragmentation`: a pod goes where the least GPU share becomes useless for typical pods (FGD, USENIX ATC 2023)."""

from restow.contracts.ids import ShapeId
from restow.contracts.values import DeviceShare
from restow.domain.session.plugins.fragmentation.args import Args
from restow.domain.session.plugins.fragmentation.score import Gradient, packed
from restow.domain.session.plugins.fragmentation.typical import typical
from restow.domain.session.run import Session


def open(session: Session, args: Args) -> None:
    if not args.weight:
        return
    state = session.state
    scorer = Gradient(args.weight, typical(state), packed(state))
    session.extensions.add_scorer(content=scorer)

    def choose(shape: ShapeId, row: int) -> tuple[DeviceShare, ...]:
        return scorer.devices(state, shape, row)

    session.extensions.devices = choose
