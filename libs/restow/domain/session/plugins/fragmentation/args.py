"""The plugin's arguments."""

import msgspec

from restow.domain.session import args


class Args(args.Args, frozen=True):
    """`fragmentation.weight`: how many times its score counts."""

    weight: int = msgspec.field(name="fragmentation.weight", default=1)

    def check(self) -> str:
        return args.weights_wrong({"fragmentation.weight": self.weight})
