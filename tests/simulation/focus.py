"""Worlds that are about one thing, varied by seed: what planted faults are looked for in. Small, crowded, and quickly over."""

import random

from simulation.plan import Act, NodeSpec, Plan, Workload

DEFAULT, PACKING, PREEMPTION = range(3)
"""Of `manifests.SCHEDULERS`."""
CPU, GPU = 1, 2
"""Of `manifests.POLICIES`: what is packed together."""


class _World:
    def __init__(self, kind: str, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(f"focus {kind} {seed}")
        self.nodes = [NodeSpec(f"n{number:02}", 8_000, 32_768, 4, "T4") for number in range(5)]
        self.workloads: list[Workload] = []
        self.users: list[Act] = []
        self.faults: list[Act] = []
        self.scheduler, self.policy, self.seconds = DEFAULT, CPU, 40.0

    def make(self, name: str, replicas: int, at: float = 0.0, kind: str = "ReplicaSet", **more: object) -> str:
        said = {"cpu": 1000, "memory": 256, "grace": 1} | more
        self.workloads.append(Workload(name=name, kind=kind, replicas=replicas, **said))  # type: ignore[arg-type]
        self.act(at, "create", workload=name)
        return name

    def act(self, at: float, what: str, **args: object) -> None:
        self.users.append(Act(round(at, 3), what, args))

    def plan(self) -> Plan:
        return Plan(
            seed=self.seed, seconds=self.seconds, nodes=tuple(self.nodes), workloads=tuple(self.workloads),
            users=tuple(sorted(self.users, key=lambda act: act.at)), faults=tuple(sorted(self.faults, key=lambda act: act.at)),
            scheduler=self.scheduler, policy=self.policy,
        )  # fmt: skip


def moves(w: _World) -> None:
    """Devices come free in pieces and are packed together, while workloads shrink, nodes are closed, and budgets refuse."""
    w.policy, w.seconds = GPU, 50.0
    names = [w.make(f"w{n:02}", 2, w.chance.uniform(0, 4), gpus=1, budget=w.chance.choice(("", "", "0"))) for n in range(10)]
    for name in w.chance.sample(names, 6):
        w.act(w.chance.uniform(8, 14), "scale", workload=name, replicas=1)
    for at in range(16, 50, 2):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((0, 1, 1, 2)))
    for at in range(14, 46, 2):
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(1, 4))
    for at in (17, 25, 33, 41):
        w.faults.append(Act(at, "status", {"code": 403, "retry_after": 0, "verb": "create", "count": 4}))
    w.faults.append(Act(12.0, "latency", {"low": 0.05, "high": 0.5, "seconds": 35.0}))


def gangs(w: _World) -> None:
    """Gangs for which there is room for all but one, while others move about and leave."""
    w.policy = GPU
    for n in range(3):
        w.make(f"g{n}", 4, w.chance.uniform(0, 3), "Gang", gpus=2, minimum=3, runs=200)
    for n in range(4):
        w.make(f"w{n}", w.chance.choice((1, 2)), w.chance.uniform(6, 10), gpus=1)
        w.act(w.chance.uniform(12, 20), "scale", workload=f"w{n}", replicas=w.chance.choice((0, 1)))


def gang_moves(w: _World) -> None:
    """Whole gangs on nodes that would be better packed."""
    w.policy = GPU
    for n in range(4):
        w.make(f"g{n}", 2, 2.0 * n, "Gang", gpus=1, minimum=2, runs=200)
        w.make(f"w{n}", 2, 2.0 * n + 1, gpus=1)
    for n in range(4):
        w.act(w.chance.uniform(11, 14), "scale", workload=f"w{n}", replicas=0)


def queues(w: _World) -> None:
    """Two queues with capabilities, and gangs that ask for more."""
    for name in ("a", "b"):
        w.act(0.0, "queue", name=name, weight=w.chance.choice((1, 3)), cpu=w.chance.choice((5_000, 9_000)), gpus=0)
    for n in range(6):
        w.make(f"g{n}", 2, 1 + w.chance.uniform(0, 10), "Gang", cpu=2000, minimum=1, runs=200, queue=w.chance.choice("ab"))


def preempts(w: _World) -> None:
    """A full cluster of low and middle priorities, and then comes who is more important, or less. Gangs and budgets among them."""
    w.scheduler = PREEMPTION
    for n in range(3):
        w.make(f"g{n}", 2, 0.5 * n, "Gang", cpu=4000, gpus=2, minimum=2, runs=200, priority="low")
        w.make(f"b{n}", 1, 0.5 * n, cpu=4000, gpus=2, priority="low", budget="0")
        w.make(f"h{n}", 1, 0.5 * n, cpu=4000, gpus=2, priority=w.chance.choice(("high", "urgent")))
    for n in range(5):
        w.make(f"u{n}", 1, 10 + 3 * n, cpu=4000, gpus=2, priority=w.chance.choice(("high", "low", "urgent", "high")))


def reserves(w: _World) -> None:
    """Reservations of both kinds with short times, owners that come late, strangers, and nodes that go."""
    names = [w.make(f"w{n}", 1, w.chance.uniform(0, 30), cpu=1000 * w.chance.choice((1, 2))) for n in range(6)]
    for n in range(10):
        at, seconds = w.chance.uniform(0, 25), w.chance.choice((0, 0, 8))
        some = {"workload": w.chance.choice(names), "ttl": w.chance.choice((10, 20, 60)), "seconds": seconds}
        if n % 2:
            w.act(at, "reserve", name=f"r{n}", replicas=1, **some)
        else:
            w.act(at, "koordinator", name=f"k{n}", once=w.chance.random() < 0.7, **some)
    for name in w.chance.sample(names, 4):
        for at in (20, 26, 32):
            w.act(at + w.chance.random(), "pod", workload=name, which=0, force=False)
    for at in (12, 22, 30):
        w.act(at, "node", node=w.chance.choice(w.nodes).name, seconds=5.0)
    w.make("full", 12, 6.0, cpu=2500)
    for at in (15, 24, 33):
        w.act(at, "scale", workload="full", replicas=w.chance.choice((6, 8, 14)))


def ends(w: _World) -> None:
    """More Jobs than there is room for: each waits for others to end; nodes are closed, go and come back."""
    for n in range(14):
        w.make(f"j{n:02}", 2, w.chance.uniform(0, 5), "Job", cpu=3000, runs=w.chance.choice((5, 10)))
    w.make("shares", 8, 1.0, milli=600)
    for at in (6, 14, 22):
        w.act(at, "cordon", node=w.chance.choice(w.nodes).name, seconds=8.0)
    w.act(9.0, "node", node=w.chance.choice(w.nodes).name, seconds=6.0)
    w.make("last", 2, 36.0, cpu=3000)


def too_small(w: _World) -> None:
    """What waits asks for more than is left, and fits nowhere until a node comes back."""
    w.nodes = w.nodes[:2]
    w.act(0.5, "node", node="n01", seconds=30.0)
    w.make("first", 3, 2.0, cpu=2000)
    w.make("later", 2, 6.0, cpu=3000)


KINDS = {make.__name__: make for make in (moves, gangs, gang_moves, queues, preempts, reserves, ends, too_small)}


def focus(kind: str, seed: int) -> Plan:
    """The plan of a seed for one kind of world."""
    world = _World(kind, seed)
    KINDS[kind](world)
    return world.plan()
