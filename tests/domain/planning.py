"""Small clusters for planners, and what becomes of one when a plan is carried out."""

import random
from collections.abc import Iterator

from domain.build import given, node, pod, replica_of, shape, then

from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Move
from restow.domain.state import ClusterState

CAPACITY = {"cpu": "4000m"}


def cluster(seed: int, objective: str, many: int = 0) -> ClusterState:
    """A few nodes, or so many, filled at random with pods of a few kinds; of `capacity` without devices."""
    chance = random.Random(seed)
    devices = objective == "devices"
    nodes = many or (chance.randint(3, 4) if devices else chance.randint(3, 6))
    gpus = chance.choice([2, 3]) if objective != "capacity" else 0
    state = given(*(node(f"n{i}", cpu=chance.choice([8_000, 12_000, 16_000]), gpus=gpus) for i in range(nodes)))
    kinds = [(1, 100), (1, 200), (1, 250), (1, 300), (1, 500), (1, 600), (1, 1000), (2, 1000), None]
    for i in range(6):
        gpu = chance.choice(kinds) if gpus else None
        cpu = chance.choice([250, 500, 1_000, 2_000] if gpus else [500, 1_000, 1_500, 2_000, 3_000, 4_000])
        then(state, shape(f"s{i}", cpu=cpu, memory=0, gpu=gpu))
    full, table, column = chance.choice([50, 65, 80]), state.table, state.table.columns["cpu"]
    made, missed = 0, 0
    while missed < 30 and made < (4 * many or (16 if devices else 24)):
        name, kind = f"n{chance.randrange(nodes)}", f"s{chance.randrange(6)}"
        row, v = table.rows[name], state.vectors[kind]
        if not table.fits_row(row, v) or int(table.used[row, column]) * 100 > full * int(table.allocatable[row, column]):
            missed += 1
            continue
        able = [i for i, share in enumerate(table.device_free[row]) if v.devices and share >= v.devices.milli]
        chance.shuffle(able)
        shares = tuple(DeviceShare(i, v.devices.milli) for i in sorted(able[: v.devices.count])) if v.devices else ()
        then(state, pod(f"p{made:02}", kind, name, owner=replica_of("rs"), devices=shares))
        made += 1
    return state


class Doing:
    """Carries a plan out move by move, as the saga may: a hold is charged at its target when a move begins, the source is free when it has
    landed. Written from the contract of `Move`, in plain dicts."""

    def __init__(self, state: ClusterState, plan: e.Planned) -> None:
        self.state = state
        self.free = {n: dict(f.allocatable) for n, f in state.nodes.items()}
        self.shares = {n: [1000] * f.devices for n, f in state.nodes.items()}
        self.at = {uid: (c.node, c.devices) for uid, c in state.charges.items()}
        for uid, (name, devices) in self.at.items():
            self._charge(uid, name, devices, 1)
        self.left = {move.migration: move for move in plan.moves}
        self.begun: dict[str, str] = {}
        self.landed: dict[str, str] = {}

    def _charge(self, uid: str, name: str, devices: tuple[DeviceShare, ...], sign: int) -> None:
        for resource, amount in self.state.shapes[self.state.pods[uid].fact.shape].requests.items():
            self.free[name][resource] -= amount * sign
        for share in devices:
            self.shares[name][share.index] -= share.milli * sign

    def can_begin(self) -> Iterator[Move]:
        for move in self.left.values():
            waits = [*move.after, *([move.follows] if move.follows else [])]
            if all(other in self.landed for other in waits):
                yield move

    def begin(self, move: Move) -> None:
        del self.left[move.migration]
        uid = move.pod or self.landed[move.follows]
        assert self.at[uid][0] == move.source
        self._charge(uid, move.target, move.devices, 1)
        self.begun[move.migration] = uid
        assert self.sound(), f"{move} has no room"

    def land(self, move: Move) -> None:
        uid = self.begun.pop(move.migration)
        self._charge(uid, *self.at[uid], -1)
        self.at[uid] = move.target, move.devices
        self.landed[move.migration] = uid

    def sound(self) -> bool:
        return all(a >= 0 for f in self.free.values() for a in f.values()) and all(s >= 0 for f in self.shares.values() for s in f)


def carry_out(state: ClusterState, plan: e.Planned, seed: int) -> Doing:
    """In some order that the plan permits."""
    doing, chance = Doing(state, plan), random.Random(seed)
    under_way: list[Move] = []
    while doing.left or under_way:
        begins = list(doing.can_begin())
        assert begins or under_way, f"nothing can begin: {list(doing.left)}"
        if begins and (not under_way or chance.random() < 0.6):
            move = chance.choice(begins)
            doing.begin(move)
            if move.migration in doing.begun:
                under_way.append(move)
        else:
            doing.land(under_way.pop(chance.randrange(len(under_way))))
    return doing


def afterwards(state: ClusterState, doing: Doing) -> ClusterState:
    """The cluster as new facts, with every pod where the plan has brought it."""
    facts: list[e.Event] = [*state.nodes.values(), *(e.ShapeDeclared(id, spec) for id, spec in state.shapes.items())]
    for uid, known in state.pods.items():
        name, devices = doing.at[uid]
        facts.append(e.PodObserved(
            uid, known.fact.namespace, known.fact.name, known.fact.shape, known.fact.created, known.fact.labels, known.fact.annotations, known.fact.owner,
            node=name, phase="Running", ready=True, devices=devices,
        ))  # fmt: skip
    return given(*facts)
