"""The plugin's arguments."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.session import args

FACTOR, FACTORS = "overcommit-factor", "overcommit-factors"
LEAST = 1000


class Args(args.Args, frozen=True):
    """`overcommit-factor` (1.2), and `overcommit-factor.<resource>` where a resource has its own. Not below 1, and kept as
    text: a factor is read with `milli`, in thousandths."""

    factor: str = msgspec.field(name=FACTOR, default="1.2")
    factors: dict[str, str] = msgspec.field(name=FACTORS, default_factory=dict)

    def milli(self, resource: str) -> int:
        """The factor of this resource, in thousandths."""
        return args.thousandths(FACTOR, self.factors.get(resource, self.factor))

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        prefix = FACTOR + "."
        own = dict(said)
        factors = {**args.mapped(FACTORS, own.pop(FACTORS, None)), **args.below(said, prefix)}
        own = args.without(own, prefix)
        if FACTOR in own:
            own[FACTOR] = args.decimal(args.thousandths(FACTOR, own[FACTOR], LEAST))
        own[FACTORS] = {
            name: args.decimal(args.thousandths(prefix + name, value, LEAST)) for name, value in factors.items()
        }
        return super().read(own)
