"""Whoever has one service's password may write well-formed events that no decider would have made. Whatever they say, every reader goes on, a
snapshot is the state, and no decider stops."""

import random
import types
import typing

import msgspec
import pytest

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts import ids
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.ids import EARLIEST, LATEST, LEAST, MOST
from restow.domain.decider import Rejected
from restow.domain.deciders import DECIDERS
from restow.domain.fold import fold_record
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState

NOW = 1_767_225_600_000
USUAL = (0, 1, 1, 1, 2, 3, 1_000, 4_000)
ODD = (-1, -1_000, 2**31, 2**53, LATEST, EARLIEST, MOST, LEAST, MOST + 1, 10**400)
WORDS = ("a", "b", "s", "default", "x-1", "cpu", "memory", "", "\x00", "😀", "10%", "Running")
NAMES = {
    ids.PodUid: ("p", "q"), ids.NodeName: ("a", "b"), ids.ShapeId: ("s",), ids.ReservationUid: ("r", "r2"), ids.SlotName: ("t-0", "t-1"),
    ids.PlanId: ("x",), ids.MigrationId: ("x-1", "x-2"),
    "node": ("a", "b"), "source": ("a", "b"), "target": ("a", "b", ""), "pod": ("p", "q"), "name": ("a", "b", "t"), "namespace": ("default", "shop"),
}  # fmt: skip
"""Few, so that events are about each other."""
FAMILY = {cls: str(cls.__struct_config__.tag).partition(".")[0] for cls in e.EVENTS}
KINDS = [cls for cls in e.EVENTS if not issubclass(cls, e.Configured)]
OFTEN = [
    e.NodeObserved, e.PodObserved, e.ShapeDeclared, e.ReservationObserved, e.HoldPlaced, e.ReservationAccepted, e.PodChanged, e.Planned, e.Holding, e.Held,
    e.Evicting, e.Nominated, e.Preempted,
]  # fmt: skip


class Writer:
    """Makes a value of any type of the contract; of its whole numbers a share `odd` are extreme."""

    def __init__(self, seed: int, odd: float) -> None:
        self.chance, self.odd = random.Random(seed), odd

    def event(self) -> e.Event:
        return self.value(self.chance.choice(OFTEN if self.chance.random() < 0.4 else KINDS))

    def value(self, kind: typing.Any, name: str = "", depth: int = 0) -> typing.Any:
        chance, origin, inner = self.chance, typing.get_origin(kind), typing.get_args(kind)
        if kind in NAMES:
            return chance.choice(NAMES[kind])
        if isinstance(kind, typing.NewType):
            return self.value(kind.__supertype__, name, depth)
        if origin is typing.Annotated:
            return self.value(inner[0], name, depth)
        if origin is typing.Literal:
            return chance.choice(inner)
        if origin in (typing.Union, types.UnionType):
            some = [one for one in inner if one is not type(None)]
            return None if len(some) < len(inner) and chance.random() < 0.5 else self.value(chance.choice(some), name, depth)
        if origin is tuple and inner[-1] is Ellipsis:
            return tuple(self.value(inner[0], name, depth + 1) for _ in range(chance.choice((0, 0, 1, 1, 2))))
        if origin is dict:
            keys = chance.sample(("cpu", "memory", "nvidia.com/gpu", "pods", "x"), chance.choice((0, 1, 3)))
            return {key: self.value(inner[1], "", depth + 1) for key in keys}
        return self._plain(kind, name, depth)

    def _plain(self, kind: typing.Any, name: str, depth: int) -> typing.Any:
        chance = self.chance
        if kind is int:
            return chance.choice(ODD if chance.random() < self.odd else USUAL)
        if kind is bool:
            return chance.random() < 0.5
        if kind is str:
            return chance.choice(NAMES.get(name, WORDS))
        assert issubclass(kind, msgspec.Struct), f"the contract has a new type, {kind}: how is one made?"
        hints = typing.get_type_hints(kind, include_extras=True)
        said = [f.name for f in msgspec.structs.fields(kind) if f.required or chance.random() < (0.5 if depth < 3 else 0.1)]
        return kind(**{field: self.value(hints[field], field, depth + 1) for field in said})


def record(state: ClusterState, seq: int, event: e.Event) -> None:
    family = FAMILY[type(event)]
    envelope = Envelope(id=f"i{seq}", source="/somebody", time="2026-01-01T00:00:00.000Z", read=seq - 1, logic=f"{family}@1")
    fold_record(state, seq, family, envelope, encode([Decision(c.Lead("x"), (event,))]))


@pytest.mark.parametrize("odd", [0.0, 0.03])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_whatever_is_written_in_a_familys_name_no_reader_and_no_decider_stops_and_the_snapshot_is_the_state(odd):
    for seed in range(15):
        writer, state = Writer(seed, odd), ClusterState()
        for seq in range(1, 61):
            record(state, seq, writer.event())
        image = dump(state)
        assert dump(load(image)) == image, f"seed {seed}"
        for decider in DECIDERS.values():
            decider.pending(state, None)
            decider.deadline(state)
            due = decider.due(state, NOW)
            try:
                _ = due is None or decider.decide(state, due)
            except Rejected:
                pass
