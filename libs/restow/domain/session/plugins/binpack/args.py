"""The plugin's arguments: the weight of the score, and of each resource in it."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.session import args

RESOURCES = "binpack.resources"


class Args(args.Args, frozen=True):
    """`binpack.weight` is the score's, `binpack.cpu` and `binpack.memory` those of the two resources that always count, and
    `binpack.resources` (names, separated by commas) adds others, with `binpack.resources.<resource>` for their weights.
    Each is 1 where nothing is said."""

    weight: int = msgspec.field(name="binpack.weight", default=1)
    cpu: int = msgspec.field(name="binpack.cpu", default=1)
    memory: int = msgspec.field(name="binpack.memory", default=1)
    resources: dict[str, int] = msgspec.field(name=RESOURCES, default_factory=dict)

    @property
    def weights(self) -> dict[str, int]:
        """Per resource, as users name them."""
        return {"cpu": self.cpu, "memory": self.memory, **self.resources}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        prefix = RESOURCES + "."
        own, weights = args.without(said, prefix), args.below(said, prefix)
        if not isinstance(own.get(RESOURCES), dict):
            own[RESOURCES] = {name: weights.pop(name, 1) for name in args.listed(RESOURCES, own.get(RESOURCES, ""))}
        for name in weights:
            raise args.ArgsError(f"{prefix}{name}: {weights[name]}; allowed: for resources that {RESOURCES} names")
        return super().read(own)

    def check(self) -> str:
        for name in ("cpu", "memory"):
            if name in self.resources:
                return f"{RESOURCES}: {name}; allowed: resources other than cpu and memory, which have binpack.{name}"
        ours = {"binpack.weight": self.weight, "binpack.cpu": self.cpu, "binpack.memory": self.memory}
        return args.weights_wrong(ours | {f"{RESOURCES}.{name}": weight for name, weight in self.resources.items()})
