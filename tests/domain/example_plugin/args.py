"""The plugin's arguments: what marks a node, and for whom it is."""

import msgspec

from restow.domain.session import args


class Args(args.Args, frozen=True):
    """Nodes with the label `spot.label` are for pods whose priority is below `spot.below`."""

    label: str = msgspec.field(name="spot.label", default="example.com/spot")
    below: int = msgspec.field(name="spot.below", default=1000)
    weight: int = msgspec.field(name="spot.weight", default=1)

    def check(self) -> str:
        return args.weights_wrong({"spot.weight": self.weight})
