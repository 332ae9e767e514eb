"""Plugin `binpack`: the fuller node is the better one, so that others stay free for what is large."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec
import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.resources import canonical_resource
from restow.domain.session.args import (
    ArgsError,
    Arguments,
    listed,
    weights_wrong,
    with_prefix,
    without_prefix,
)
from restow.domain.session.scoring import SCALE, Many, One, share, shares
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

RESOURCES = "binpack.resources"


class Args(Arguments, frozen=True):
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
        own, weights = without_prefix(said, prefix), with_prefix(said, prefix)
        if not isinstance(own.get(RESOURCES), dict):
            own[RESOURCES] = {name: weights.pop(name, 1) for name in listed(RESOURCES, own.get(RESOURCES, ""))}
        for name in weights:
            raise ArgsError(f"{prefix}{name}: {weights[name]}; allowed: for resources that {RESOURCES} names")
        return super().read(own)

    def check(self) -> str:
        for name in ("cpu", "memory"):
            if name in self.resources:
                return f"{RESOURCES}: {name}; allowed: resources other than cpu and memory, which have binpack.{name}"
        ours = {"binpack.weight": self.weight, "binpack.cpu": self.cpu, "binpack.memory": self.memory}
        return weights_wrong(ours | {f"{RESOURCES}.{name}": weight for name, weight in self.resources.items()})


def open(session: Session, args: Args) -> None:
    if not args.weight:
        return
    weights: dict[str, int] = {}
    for resource, weight in args.weights.items():
        name = canonical_resource(resource)
        weights[name] = max(weight, weights.get(name, 0))
    session.extensions.score("nodeOrder", Binpack(args.weight, tuple(sorted(weights.items()))))


class Binpack(msgspec.Struct, frozen=True):
    """Per resource that the pod asks for, what would be used of what the node has, then the weighted mean. `weights` by resource (in the node table's names). Resources that the pod does not ask for do not count."""

    weight: int
    weights: tuple[tuple[str, int], ...]

    def _asked(self, state: ClusterState, shape: ShapeId) -> list[tuple[int, int, int]]:
        """(column, amount, weight)."""
        amounts = dict(state.vectors[shape].items)
        columns = state.table.columns
        asked = [(columns[r], amounts.get(columns[r], 0), w) for r, w in self.weights if r in columns and w]
        return [(column, amount, weight) for column, amount, weight in asked if amount]

    def one(self, state: ClusterState, shape: ShapeId) -> One:
        asked, times = self._asked(state, shape), self.weight
        weights = sum(weight for _, _, weight in asked) or 1

        def score(free: list[int], allocatable: list[int], devices: list[int]) -> int:
            total = 0
            for column, amount, weight in asked:
                whole = allocatable[column]
                if whole > 0:
                    total += (SCALE - share(max(free[column] - amount, 0), whole)) * weight
            return total // weights * times

        return score

    def many(self, state: ClusterState, shape: ShapeId) -> Many:
        asked, times, table = self._asked(state, shape), self.weight, state.table
        weights = sum(weight for _, _, weight in asked) or 1

        def score(at: np.ndarray | slice) -> np.ndarray:
            total = np.zeros(len(table.free[at]), np.int64)
            for column, amount, weight in asked:
                whole = table.allocatable[at, column]
                left = np.maximum(table.free[at, column] - amount, 0)
                total += np.where(whole > 0, (SCALE - shares(left, whole)) * weight, 0)
            return total // weights * times

        return score
