"""Worlds that are about one thing, varied by seed: what planted faults are looked for in. Small, crowded, and quickly over."""

import random

from msgspec.structs import replace

from simulation.draw import STOCK
from simulation.manifests import OWNERS
from simulation.plan import Act, NodeSpec, Plan, Workload

DEFAULT, PACKING, PREEMPTION = range(3)
"""Of `manifests.SCHEDULERS`."""
CPU, GPU, OFTEN, BOLD, WHOLE = 1, 2, 3, 4, 5
"""Of `manifests.POLICIES`: what is packed together."""


class _World:
    def __init__(self, kind: str, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(f"focus {kind} {seed}")
        self.nodes = [NodeSpec(f"n{number:02}", 8_000, 32_768, 4, "T4") for number in range(5)]
        self.workloads: list[Workload] = []
        self.users: list[Act] = []
        self.faults: list[Act] = []
        self.scheduler, self.policy, self.seconds, self.lag = DEFAULT, CPU, 40.0, 60.0
        self.beside = self.budgets = False

    def make(self, name: str, replicas: int, at: float = 0.0, kind: str = "ReplicaSet", **more: object) -> str:
        said = {"cpu": 1000, "memory": 256, "grace": 1} | more
        self.workloads.append(Workload(name=name, kind=kind, replicas=replicas, **said))  # type: ignore[arg-type]
        self.act(at, "create", workload=name)
        return name

    def act(self, at: float, what: str, **args: object) -> None:
        self.users.append(Act(round(at, 3), what, args))

    def fill(self, at: float, cpu: int = 100, gpus: int = 0) -> None:
        """Somebody who needs all that is left, in small pieces: capacity that leaked is missed."""
        count = sum(node.gpus // gpus if gpus else node.cpu // cpu for node in self.nodes)
        self.make("fill", count, at, cpu=cpu, memory=16, gpus=gpus)

    def plan(self) -> Plan:
        return Plan(
            seed=self.seed, seconds=self.seconds, nodes=tuple(self.nodes), workloads=tuple(self.workloads),
            users=tuple(sorted(self.users, key=lambda act: act.at)), faults=tuple(sorted(self.faults, key=lambda act: act.at)),
            scheduler=self.scheduler, policy=self.policy, beside=self.beside, budgets=self.budgets, lag=self.lag,
        )  # fmt: skip


def moves(w: _World) -> None:
    """Devices come free in pieces and are packed together again and again, while workloads shrink, grow and are deleted, nodes are closed, budgets
    refuse, and nobody collects anything for a while. At the end everything that was left is needed."""
    w.policy, w.seconds, w.lag = OFTEN, 60.0, 20.0
    names = []
    for n in range(6):
        kind = w.chance.choice(("ReplicaSet", "ReplicaSet", "StatefulSet"))
        grace = w.chance.choice((1, 6))
        names.append(w.make(f"w{n:02}", 3, w.chance.uniform(0, 3), kind, gpus=1, grace=grace, stops=grace, budget=w.chance.choice(("", "", "1"))))
    for at in range(6, 50, 2):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((0, 1, 1, 2, 3)))
    for at in range(8, 50, 2):
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(0.5, 3))
    for at in range(10, 50, 5):
        one = w.chance.choice(names)
        w.act(at, "budget", workload=one, most="0")
        w.act(at + w.chance.uniform(1, 5), "budget", workload=one, most="1")
    for at in (30, 42):
        w.act(at + w.chance.uniform(0, 5), "delete", workload=w.chance.choice(names))
    for at in range(9, 50, 3):
        w.faults.append(Act(at, "status", {"code": 403, "retry_after": 0, "verb": "create", "count": 3}))
    for at in (12, 32):
        w.faults.append(Act(at, "pause", {"service": "garbage_collector", "number": 0, "seconds": 15.0}))
    w.faults.append(Act(8.0, "latency", {"low": 0.05, "high": 0.5, "seconds": 45.0}))
    w.fill(56.0, gpus=1)


def leavers(w: _World) -> None:
    """Pods that take long to stop, made again only when they have: their workloads shrink while they go, so that nobody makes them again."""
    w.policy, w.seconds, w.lag = OFTEN, 50.0, 20.0
    names = [w.make(f"w{n}", 3, w.chance.uniform(0, 3), "StatefulSet", gpus=1, grace=8, stops=8) for n in range(6)]
    for at in range(6, 46, 2):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((0, 1, 2, 3)))
    w.fill(46.0, gpus=1)


def finishers(w: _World) -> None:
    """Pods of Jobs, which end by themselves whenever they like: also while they are about to be moved."""
    w.policy, w.seconds, w.lag = OFTEN, 50.0, 20.0
    for n in range(30):
        w.make(f"j{n:02}", w.chance.choice((1, 2)), w.chance.uniform(0, 40), "Job", gpus=1, runs=w.chance.choice((7, 11, 16)), grace=1)
    for n in range(3):
        w.make(f"w{n}", 2, w.chance.uniform(0, 3), gpus=1)
    for at in range(8, 48, 4):
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(0.5, 3))
    w.faults.append(Act(4.0, "latency", {"low": 0.05, "high": 0.5, "seconds": 45.0}))
    for at in range(9, 48, 4):
        w.faults.append(Act(at, "status", {"code": 429, "retry_after": 1, "verb": "create", "count": 3}))
    w.fill(48.0, gpus=1)


def spreads(w: _World) -> None:
    """Large workloads that lie about on all nodes, a pod here and a pod there."""
    w.policy, w.lag = OFTEN, 20.0
    for n in range(2):
        w.make(f"w{n}", 5, w.chance.uniform(0, 2), gpus=1)
    for n in range(5):
        w.make(f"x{n}", 2, w.chance.uniform(0, 2), gpus=1)
        w.act(w.chance.uniform(8, 12), "scale", workload=f"x{n}", replicas=0)
    for at in (20, 28):
        w.act(at + w.chance.random(), "scale", workload=f"x{w.chance.randrange(5)}", replicas=2)
        w.act(at + 4 + w.chance.random(), "scale", workload=f"w{w.chance.randrange(2)}", replicas=w.chance.choice((3, 4, 6)))


def asks(w: _World) -> None:
    """Workloads that are asked before their pods are packed together: some agree, at once or late, some refuse, some say nothing."""
    spreads(w)
    w.seconds = 60.0
    w.workloads = [replace(one, hook=w.chance.choice(("agrees", "agrees", "refuses", "silent", "assents"))) for one in w.workloads]
    for at in range(12, 50, 6):
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(1, 4))


def budgeted(w: _World) -> None:
    """As `moves`, while the policy allows few evictions."""
    moves(w)
    w.budgets = True


def whole(w: _World) -> None:
    """Nodes that are emptied wholly or not at all: places are held for long, while nodes are closed and budgets refuse."""
    w.policy, w.seconds, w.lag = WHOLE, 60.0, 20.0
    names = [w.make(f"w{n:02}", 2, w.chance.uniform(0, 3), cpu=1000 * w.chance.choice((1, 2))) for n in range(9)]
    for at in range(6, 54, 3):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((0, 1, 2, 3)))
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(1, 4))
    for at in range(8, 50, 4):
        one = w.chance.choice(names)
        w.act(at, "budget", workload=one, most="0")
        w.act(at + w.chance.uniform(2, 8), "budget", workload=one, most="1")
    w.faults.append(Act(8.0, "latency", {"low": 0.05, "high": 0.5, "seconds": 45.0}))
    w.fill(56.0, cpu=1000)


def gangs(w: _World) -> None:
    """Gangs for which there is capacity for all but one, while others move about and leave."""
    w.policy = GPU
    for n in range(3):
        w.make(f"g{n}", 4, w.chance.uniform(0, 3), "Gang", gpus=2, minimum=3, runs=200)
    for n in range(4):
        w.make(f"w{n}", w.chance.choice((1, 2)), w.chance.uniform(6, 10), gpus=1)
        w.act(w.chance.uniform(12, 20), "scale", workload=f"w{n}", replicas=w.chance.choice((0, 1)))


def gang_moves(w: _World) -> None:
    """Gangs that can spare one, on nodes that would be better packed; nothing else bounds how many of them go at once."""
    w.policy, w.lag = BOLD, 20.0
    for n in range(3):
        w.make(f"g{n}", 3, w.chance.uniform(0, 3), "Gang", gpus=1, minimum=2, runs=200)
        w.make(f"w{n}", 3, w.chance.uniform(0, 3), gpus=1)
    for n in range(3):
        w.act(w.chance.uniform(8, 12), "scale", workload=f"w{n}", replicas=0)
    for at in (18, 26, 34):
        w.act(at + w.chance.random(), "pod", workload=f"g{w.chance.randrange(3)}", which=w.chance.randrange(3), force=False)


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


def unequal(w: _World) -> None:
    """Full of large important workloads and small ones, and then come single pods of no importance: by their shares they might take from the large."""
    w.scheduler = PREEMPTION
    for n in range(3):
        w.make(f"h{n}", 2, w.chance.uniform(0, 2), "Gang", cpu=4000, minimum=1, runs=200, priority=w.chance.choice(("high", "urgent")))
    for n in range(4):
        w.make(f"l{n}", 1, w.chance.uniform(0, 2), "Pod", cpu=4000, priority="low")
    for n in range(4):
        w.make(f"u{n}", w.chance.choice((1, 2)), 8 + 4 * n, w.chance.choice(("Pod", "Gang", "ReplicaSet")), cpu=w.chance.choice((2000, 4000)), minimum=1, runs=200, priority="low")


def shares(w: _World) -> None:
    """Parts of devices, all in use; who is more important gets a part that is there in pieces, and has to wait until somebody has left."""
    w.scheduler, w.nodes = PREEMPTION, [NodeSpec(f"n{number:02}", 8_000, 32_768, 2, "T4") for number in range(3)]
    for n in range(3):
        w.make(f"l{n}", 2, w.chance.uniform(0, 2), cpu=500, milli=600, priority="low", grace=20, stops=w.chance.choice((8, 15)))
    for n in range(4):
        w.make(f"u{n}", 1, 8 + 5 * n, cpu=500, milli=w.chance.choice((500, 600, 800)), priority="high")
        w.act(w.chance.uniform(5, 30), "koordinator", name=f"k{n}", workload=f"u{n}", once=True, ttl=30, seconds=0, waits=True)


def strangers(w: _World) -> None:
    """The stock scheduler's pods have devices on the same nodes, and it preempts ours for its urgent ones. Ours want shares and whole devices."""
    stock = {"scheduler": "default-scheduler", "cpu": 500}
    w.scheduler, w.nodes = PREEMPTION, [NodeSpec(f"n{number:02}", 8_000, 32_768, 2, "T4") for number in range(3)]
    for n in range(2):
        w.make(f"s{n}", 1, w.chance.uniform(0, 2), gpus=1, **stock)
        w.make(f"m{n}", 1, w.chance.uniform(0, 4), milli=w.chance.choice((300, 500)), **stock)
    for n in range(3):
        w.make(f"o{n}", w.chance.choice((1, 2)), w.chance.uniform(0, 6), cpu=500, gpus=w.chance.choice((0, 1)), milli=400, priority="low")
    w.make("urgent", 2, 12.0, gpus=2, priority="urgent", **stock)
    w.make("after", 2, 20.0, cpu=500, gpus=1)


def beside(w: _World) -> None:
    """Pods of the stock scheduler that are packed together again and again, while their workloads change, urgent ones come, nodes are closed and lost, and
    budgets refuse."""
    w.policy, w.seconds, w.lag, w.beside = OFTEN, 60.0, 20.0, True
    names = []
    for n in range(7):
        kind = w.chance.choice(("ReplicaSet", "Deployment", "StatefulSet"))
        grace, gpus = w.chance.choice((1, 1, 6)), int(w.chance.random() < 0.3)
        more = {"grace": grace, "stops": grace, "gpus": gpus, "budget": w.chance.choice(("", "", "1"))}
        names.append(w.make(f"w{n:02}", 3, w.chance.uniform(0, 3), kind, scheduler=w.chance.choice((STOCK, STOCK, STOCK, "restow")), **more))
    for at in range(6, 54, 2):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((0, 1, 1, 2, 3)))
    for at in range(8, 50, 4):
        w.act(at + w.chance.random(), "cordon", node=w.chance.choice(w.nodes).name, seconds=w.chance.uniform(0.5, 3))
        w.act(at + w.chance.uniform(0, 4), "rollout", workload=w.chance.choice(names))
    for at in range(10, 50, 10):
        w.act(at, "budget", workload=(one := w.chance.choice(names)), most="0")
        w.act(at + w.chance.uniform(1, 5), "budget", workload=one, most="1")
        w.make(f"u{at}", 1, at + w.chance.uniform(0, 10), cpu=3000, priority="urgent", scheduler=STOCK)
        w.act(at + 12, "scale", workload=f"u{at}", replicas=0)
    w.act(w.chance.uniform(20, 40), "node", node=w.chance.choice(w.nodes).name, seconds=6.0)
    w.act(w.chance.uniform(30, 50), "delete", workload=w.chance.choice(names))


def away(w: _World) -> None:
    """Pods of the stock scheduler that take long to stop are packed together, and then all of Restow stands still for minutes. Everybody gets more pods meanwhile."""
    w.policy, w.lag, w.beside = OFTEN, 20.0, True
    names = [w.make(f"w{n}", 3, w.chance.uniform(0, 3), "StatefulSet", gpus=1, grace=8, stops=8, scheduler=STOCK) for n in range(6)]
    for at in range(6, 26, 2):
        w.act(at + w.chance.random(), "scale", workload=w.chance.choice(names), replicas=w.chance.choice((1, 1, 2, 3)))
    stops, lasts = w.chance.uniform(22, 30), w.chance.uniform(215, 260)
    w.faults.append(Act(round(stops, 3), "away", {"seconds": round(lasts, 3)}))
    for name in names:
        w.act(stops + w.chance.uniform(10, 170), "scale", workload=name, replicas=2)
        w.act(stops + w.chance.uniform(202, lasts), "scale", workload=name, replicas=4)
    w.seconds = stops + lasts + 20


def device_in_use(w: _World) -> None:
    """Somebody waits for a whole device that nobody leaves, by a Reservation or with a victim that takes long; of another one a part comes free, and
    small pods come that it would do for."""
    w.nodes = [NodeSpec(f"n{number:02}", 8_000, 32_768, 2, "T4") for number in range(w.chance.choice((1, 2)))]
    for n in range(len(w.nodes)):
        w.make(f"whole{n}", 1, n, cpu=500, gpus=1)
        w.make(f"most{n}", 1, n + 0.3, cpu=500, milli=600)
        w.make(f"rest{n}", 1, n + 0.6, cpu=500, milli=400)
    w.make("w", 1, 1000.0, cpu=500, gpus=1)
    for n in range(len(w.nodes)):
        w.act(w.chance.uniform(5, 8), "koordinator", name=f"k{n}", workload="w", once=True, ttl=3600, seconds=0, waits=True)
        w.act(w.chance.uniform(10, 14), "scale", workload=f"rest{n}", replicas=0)
    w.make("small", len(w.nodes), w.chance.uniform(16, 20), cpu=500, milli=w.chance.choice((300, 400)))


def reclaims(w: _World) -> None:
    """One queue has all there is, and then others want what they deserve."""
    w.scheduler, w.seconds = PREEMPTION, 30.0
    for name in ("a", "b"):
        w.act(0.0, "queue", name=name, weight=w.chance.choice((1, 2)), cpu=0, gpus=0)
    for n in range(5):
        w.make(f"b{n}", 3, 1 + w.chance.uniform(0, 3), "Gang", cpu=w.chance.choice((2000, 4000)), minimum=1, runs=900, queue="b")
    for n in range(3):
        w.make(f"a{n}", 1, 10 + 4 * n + w.chance.random(), "Gang", cpu=w.chance.choice((2000, 4000)), minimum=1, runs=900, queue="a")


def waits(w: _World) -> None:
    """Reservations for which there is no capacity until somebody leaves."""
    w.make("full", 20, 0.0, cpu=2000)
    w.make("w", 1, 1000.0, cpu=3000)
    for n in range(4):
        what, more = w.chance.choice((("reserve", {"replicas": 2}), ("koordinator", {"once": True})))
        w.act(w.chance.uniform(4, 20), what, name=f"r{n}", workload="w", ttl=3600, seconds=0, **more)
    w.act(w.chance.uniform(24, 38), "scale", workload="full", replicas=w.chance.choice((0, 6, 12)))


def reserves(w: _World) -> None:
    """Reservations of both kinds with short times, owners that come late, strangers, and nodes that go."""
    names = [w.make(f"w{n}", 1, w.chance.uniform(0, 30), cpu=1000 * w.chance.choice((1, 2))) for n in range(6)]
    for n in range(10):
        at, seconds = w.chance.uniform(0, 25), w.chance.choice((0, 0, 8))
        some = {"workload": w.chance.choice(names), "ttl": w.chance.choice((10, 20, 60)), "seconds": seconds, "owners": w.chance.choice(OWNERS)}
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
    w.act(37.0, "delete", workload="full")
    w.fill(38.0, cpu=1000)


def ended(w: _World) -> None:
    """Reservations that expire as soon as they are made, with a slow broker: what is decided for them comes when they have ended."""
    w.scheduler, w.seconds = DEFAULT, 30.0
    w.make("w", 1, 1000.0, cpu=2000)
    for n in range(40):
        what, more = w.chance.choice((("reserve", {"replicas": 2}), ("koordinator", {"once": True})))
        w.act(w.chance.uniform(2, 26), what, name=f"r{n}", workload="w", ttl=w.chance.choice((1, 1, 2)), seconds=0, **more)
    w.faults.append(Act(1.0, "sync", {"each": 0.2, "seconds": 28.0}))
    w.fill(29.0, cpu=1000)


def ends(w: _World) -> None:
    """More Jobs than there is capacity for: each waits for others to end; nodes are closed, go and come back."""
    for n in range(14):
        w.make(f"j{n:02}", 2, w.chance.uniform(0, 5), "Job", cpu=3000, runs=w.chance.choice((5, 10)))
    w.make("shares", 8, 1.0, milli=600)
    for at in (6, 14, 22):
        w.act(at, "cordon", node=w.chance.choice(w.nodes).name, seconds=8.0)
    w.act(9.0, "node", node=w.chance.choice(w.nodes).name, seconds=6.0)
    w.make("last", 2, 36.0, cpu=3000)
    w.make("after", 16, 38.0, "Job", cpu=3000, runs=30)


def too_small(w: _World) -> None:
    """What waits asks for more than is left, and fits nowhere until a node comes back."""
    w.nodes = w.nodes[:2]
    w.act(0.5, "node", node="n01", seconds=30.0)
    w.make("first", 3, 2.0, cpu=2000)
    w.make("later", 2, 6.0, cpu=3000)


KINDS = {make.__name__: make for make in (moves, budgeted, leavers, finishers, spreads, asks, whole, gangs, gang_moves, queues, preempts, unequal, shares, strangers, beside, away, device_in_use, reclaims, waits, reserves, ended, ends, too_small)}


def focus(kind: str, seed: int) -> Plan:
    """The plan of a seed for one kind of world."""
    world = _World(kind, seed)
    KINDS[kind](world)
    return world.plan()
