"""Seed → plan. Everything that is chosen about a run is chosen here, from one generator, before it begins."""

import random
from typing import Any

from msgspec.structs import replace

from simulation.manifests import OWNERS, POLICIES, SCHEDULERS
from simulation.plan import Act, NodeSpec, Plan, Workload
from simulation.processes import SERVICES

SHAPES = (
    (549, 96_000, 393_216, 8, "G2"),
    (387, 104_000, 524_288, 2, "T4"),
    (107, 16_000, 122_880, 2, "P100"),
    (39, 128_000, 786_432, 8, "G3"),
    (28, 32_000, 131_072, 4, "V100M16"),
    (22, 64_000, 262_144, 2, "P100"),
    (21, 96_000, 786_432, 8, "V100M32"),
    (19, 8_000, 32_768, 1, "V100M16"),
    (17, 96_000, 393_216, 4, "T4"),
)
"""The commonest of the trace openb (cluster-trace-gpu-v2023): nodes, millicores, MiB, GPUs, model."""

USERS = ("scale", "rollout", "delete", "pod", "cordon", "drain", "reserve", "koordinator", "queue", "budget", "config", "node", "ask")
FAULTS = (
    "kill", "pause", "skew", "broker", "crash", "appends", "sync", "status", "drop", "delay", "lag", "watch", "history", "net",
    "latency", "kubelet", "dies", "refuses", "grace",
)  # fmt: skip


STOCK = "default-scheduler"


def draw(seed: int, *, nodes: int = 0, minutes: float = 0.0, beside: bool = False) -> Plan:
    """The plan of a seed; `nodes` and `minutes` of users and faults where they are not to be drawn. `beside`: some workloads belong to the stock
    scheduler and are moved, where otherwise one run of twenty has such."""
    return _Draw(seed, nodes, minutes, beside).plan()


class _Draw:
    def __init__(self, seed: int, nodes: int, minutes: float, beside: bool) -> None:
        self.seed, self.always = seed, beside
        self.moves_beside = beside or random.Random(f"moves beside {seed}").random() < 0.25
        self.chance = chance = random.Random(f"plan {seed}")
        drawn = chance.choice((3, 5, 8, 8, 12, 20, 50))
        self.count = nodes or drawn
        self.seconds = (minutes or chance.choice((1.0, 1.5, 2.0, 3.0))) * 60
        self.users = tuple(kind for kind in USERS if chance.random() < 0.6)
        self.faults = tuple(kind for kind in FAULTS if chance.random() < 0.3)
        self.replicas = chance.choice((1, 1, 2))

    def plan(self) -> Plan:
        chance = self.chance
        nodes = self.nodes()
        workloads, made = self.workloads(nodes)
        beside = self.moves_beside and any(one.scheduler == STOCK for one in workloads)
        skews = {}
        if "skew" in self.faults:
            for name in SERVICES:
                for number in range(self.replicas):
                    if chance.random() < 0.5:
                        skews[f"{name}-{number}"] = round(chance.uniform(-3.0, 3.0), 3)
        return Plan(
            seed=self.seed, seconds=self.seconds, replicas=self.replicas, nodes=nodes, workloads=workloads,
            users=tuple(sorted([*made, *self.done_by_users(nodes, workloads), *self.done_by_who_approves()], key=lambda act: act.at)),
            faults=tuple(sorted([*self.gone_wrong(nodes, workloads), *self.gone_wrong_beside(beside)], key=lambda act: act.at)),
            scheduler=chance.randrange(len(SCHEDULERS)), policy=chance.randrange(len(POLICIES)), skews=skews, beside=beside,
            budgets=random.Random(f"eviction budgets {self.seed}").random() < 0.2,
            kinds=(*self.users, *self.faults), lease="on" if self.replicas > 1 else chance.choice(("on", "off")),
        )  # fmt: skip

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeSpec, ...]:
        chance = self.chance
        real = chance.random() < 0.4
        shapes = chance.choices(SHAPES, [shape[0] for shape in SHAPES], k=3)
        made = []
        for number in range(self.count):
            zone = f"z{number % 3}" if chance.random() < 0.5 else ""
            if real:
                _, cpu, memory, gpus, model = chance.choice(shapes)
                made.append(NodeSpec(f"n{number:02}", cpu, memory, gpus, model, zone))
            else:
                made.append(NodeSpec(f"n{number:02}", 8_000, 32_768, 4, "T4", zone))
        return tuple(made)

    def workloads(self, nodes: tuple[NodeSpec, ...]) -> tuple[tuple[Workload, ...], list[Act]]:
        """Enough to nearly fill the cluster's GPUs and a good part of its cores, made bit by bit."""
        chance = self.chance
        capacity = [sum(node.cpu for node in nodes), sum(node.gpus for node in nodes) * 1000]
        most = chance.uniform(0.5, 1.1)
        capacity = [int(each * most) for each in capacity]
        workloads: list[Workload] = []
        acts: list[Act] = []
        unit = max(1, sum(node.cpu for node in nodes) // len(nodes) // 32)
        while len(workloads) < 6 * self.count + 4 and min(capacity) > 0:
            one = self.workload(f"w{len(workloads):02}", unit)
            workloads.append(one)
            capacity[0] -= one.cpu * one.replicas
            capacity[1] -= (one.gpus * 1000 or one.milli) * one.replicas
            late = chance.random() < 0.3
            acts.append(Act(self.moment() if late else round(chance.uniform(0.0, 10.0), 3), "create", {"workload": one.name}))
        workloads = self.asked(self.beside(workloads))
        if (last := self.last(nodes)) is not None:
            workloads.append(last)
            acts.append(Act(round(self.seconds - 2.0, 3), "create", {"workload": last.name}))
        return tuple(workloads), acts

    def beside(self, workloads: list[Workload]) -> list[Workload]:
        """In one run of five, some belong to the stock scheduler, on the same nodes, with the GPUs that they ask for."""
        chance = random.Random(f"stock {self.seed}")
        if chance.random() < 0.8 and not self.always:
            return workloads
        share = chance.choice((0.2, 0.5))
        ours = [one.kind == "Gang" or chance.random() >= share for one in workloads]
        return [one if mine else replace(one, scheduler=STOCK) for one, mine in zip(workloads, ours, strict=True)]

    def asked(self, workloads: list[Workload]) -> list[Workload]:
        """In one run of four, some are to be asked before a pod of theirs is moved."""
        chance = random.Random(f"hooks {self.seed}")
        if chance.random() < 0.75:
            return workloads
        answers = ("", "agrees", "agrees", "refuses", "silent", "assents")
        return [replace(one, hook=chance.choice(answers)) for one in workloads]

    def last(self, nodes: tuple[NodeSpec, ...]) -> Workload | None:
        """Now and then somebody comes at the end who needs all that is left, in small pieces: capacity that leaked is missed then."""
        piece, gpus = max(node.cpu for node in nodes) // 8, int(self.chance.random() < 0.5)
        count = sum(node.gpus if gpus else node.cpu // piece for node in nodes)
        if self.chance.random() < 0.6 or count > 100:
            return None
        return Workload(name="last", kind="ReplicaSet", replicas=count, cpu=100 if gpus else piece, memory=16, gpus=gpus, grace=1)

    def workload(self, name: str, unit: int) -> Workload:
        chance = self.chance
        kind = chance.choices(("Deployment", "ReplicaSet", "StatefulSet", "Job", "Gang", "Pod"), (6, 4, 2, 2, 2, 1))[0]
        gpus, milli = chance.choice(((1, 0), (1, 0), (2, 0), (0, 500), (0, 300), (0, 0)))
        replicas = 1 if kind == "Pod" else chance.choice((1, 1, 2, 2, 3, 4))
        long = "grace" in self.faults and chance.random() < 0.3
        grace = chance.choice((30, 120, 600)) if long else chance.choice((0, 1, 5, 30))
        return Workload(
            name=name, kind=kind, replicas=replicas, cpu=unit * chance.choice((1, 2, 4, 4, 8)), memory=chance.choice((128, 256, 1024)),
            gpus=gpus, milli=milli, priority=chance.choice(("", "", "", "low", "high", "urgent")),
            queue=chance.choice(("", "", "a", "b")) if kind == "Gang" and "queue" in self.users else "",
            grace=grace, stops=chance.choice((0, min(grace, 3), grace if long else 0)),
            runs=chance.choice((5, 20, 60)) if kind in ("Job", "Gang") else 0,
            budget=chance.choice(("1", "1", "50%", "0")) if chance.random() < 0.25 else "",
            minimum=chance.randint(1, replicas) if kind == "Gang" else 0,
        )  # fmt: skip

    # -- users ---------------------------------------------------------------------------------------------------------

    def done_by_users(self, nodes: tuple[NodeSpec, ...], workloads: tuple[Workload, ...]) -> list[Act]:
        chance = self.chance
        acts = []
        for number in range(int(self.seconds / chance.choice((1.0, 2.0, 4.0))) if self.users else 0):
            what = chance.choice(self.users)
            acts.append(Act(self.moment(), what, self.by_user(what, number, nodes, workloads)))
        if "queue" in self.users:
            acts += [Act(0.0, "queue", {"name": name, "weight": chance.choice((1, 3)), "cpu": 0, "gpus": 0}) for name in ("a", "b")]
        return acts

    def done_by_who_approves(self) -> list[Act]:
        """In one run of six, somebody sets the mode now and then, and answers plans that wait."""
        chance = random.Random(f"approves {self.seed}")
        if chance.random() >= 1 / 6:
            return []
        moments = (round(chance.uniform(0.0, self.seconds), 3) for _ in range(int(self.seconds)))
        modes = [Act(next(moments), "mode", {"mode": chance.choice(("observe", "propose", "propose", "automatic"))}) for _ in range(int(self.seconds / 15))]
        said = ("approve", "approve", "some", "reject")
        answers = [Act(next(moments), "answer", {"what": chance.choice(said), "which": chance.randrange(50)}) for _ in range(int(self.seconds / 3))]
        return [*modes, *answers]

    def by_user(self, what: str, number: int, nodes: tuple[NodeSpec, ...], workloads: tuple[Workload, ...]) -> dict[str, Any]:
        chance = self.chance
        some = {"workload": chance.choice(workloads).name}
        match what:
            case "scale":
                return some | {"replicas": chance.choice((0, 1, 2, 3, 4))}
            case "pod":
                return some | {"which": chance.randrange(8), "force": chance.random() < 0.2}
            case "cordon" | "drain" | "node":
                return {"node": chance.choice(nodes).name, "seconds": self.span()}
            case "reserve":
                return some | self.reservation(f"r{number}") | {"replicas": chance.choice((1, 2))}
            case "koordinator":
                return some | self.reservation(f"k{number}") | {"once": chance.random() < 0.7, "waits": chance.random() < 0.2}
            case "queue":
                cpu = sum(node.cpu for node in nodes)
                bound = chance.random() < 0.5
                return {"name": chance.choice("ab"), "weight": chance.randint(1, 4), "cpu": cpu // chance.randint(2, 6) if bound else 0, "gpus": 0}
            case "budget":
                return some | {"most": chance.choice(("0", "1", "50%"))}
            case "config":
                return {"scheduler": chance.randrange(len(SCHEDULERS)), "policy": chance.randrange(len(POLICIES))}
            case "ask":
                return {"what": chance.choice(("defragmentation", "move", "cancel")), "which": chance.randrange(50)}
        return some

    def reservation(self, name: str) -> dict[str, Any]:
        """What both kinds have. One that is kept for an hour is still there when all is judged."""
        chance = self.chance
        return {"name": name, "ttl": chance.choice((10, 30, 60, 3600)), "seconds": chance.choice((0, 0, 15)), "owners": chance.choice(OWNERS)}

    # -- faults --------------------------------------------------------------------------------------------------------

    def gone_wrong(self, nodes: tuple[NodeSpec, ...], workloads: tuple[Workload, ...]) -> list[Act]:
        chance = self.chance
        kinds = [kind for kind in self.faults if kind != "grace"]
        acts = []
        for _ in range(int(self.seconds / chance.choice((1.5, 3.0, 6.0))) if kinds else 0):
            kind = chance.choice(kinds)
            acts.append(Act(self.moment(), kind, self.fault(kind, nodes, workloads)))
        backup = random.Random(f"backup {self.seed}")
        if backup.random() < 0.1:
            acts.append(Act(round(backup.uniform(0.0, self.seconds), 3), "restored"))
        return acts

    def gone_wrong_beside(self, beside: bool) -> list[Act]:
        """Now and then the gate's policy is taken away for a while, the stock scheduler begins again, or hears nothing for a while."""
        chance = random.Random(f"faults beside {self.seed}")
        if not beside or chance.random() < 0.4:
            return []
        kinds = [chance.choice(("gate", "stock")) for _ in range(int(self.seconds / 20.0))]
        acts = [Act(round(chance.uniform(0.0, self.seconds), 3), kind, {"seconds": round(chance.uniform(0.5, 25.0), 3)} if kind == "gate" else {}) for kind in kinds]
        deaf = random.Random(f"deaf beside {self.seed}")
        if deaf.random() < 0.5:
            acts.append(Act(round(deaf.uniform(0.0, self.seconds), 3), "stock", {"seconds": round(deaf.uniform(0.5, 25.0), 3)}))
        return acts

    def fault(self, kind: str, nodes: tuple[NodeSpec, ...], workloads: tuple[Workload, ...]) -> dict[str, Any]:
        chance = self.chance
        unit = {"service": chance.choice(tuple(SERVICES)), "number": chance.randrange(self.replicas)}
        match kind:
            case "kill":
                return unit | {"after": chance.choice((1, chance.randint(1, 50), chance.randint(1, 2000)))}
            case "pause":
                return unit | {"seconds": round(chance.choice((chance.uniform(0.1, 2), chance.uniform(2, 30))), 3)}
            case "skew":
                return unit | {"by": round(chance.choice((chance.uniform(-1, 1), chance.uniform(-60, 60))), 3)}
            case "broker" | "crash":
                return {"seconds": round(chance.uniform(0.2, 15), 3)}
            case "appends":
                shares = {"unacked": (0, 0.05, 0.3), "lost": (0, 0.05, 0.2), "late": (0, 0.05, 0.3), "repeat": (0, 0.1), "slow": (0, 0.05)}
                return {name: share for name, some in shares.items() if (share := chance.choice(some))} | {"seconds": self.span()}
            case "sync":
                return {"each": chance.choice((0.005, 0.05, 0.5)), "seconds": self.span()}
            case "status":
                verb = chance.choice(("", "get", "list", "watch", "create", "update,patch", "delete"))
                return {"code": chance.choice((403, 409, 410, 429, 500, 503, 504)), "retry_after": chance.choice((0, 0, 1, 3)), "verb": verb, "count": chance.randint(1, 12)}
            case "drop":
                return {"verb": chance.choice(("", "create", "update,patch", "delete")), "count": chance.randint(1, 12)}
            case "delay":
                return {"verb": chance.choice(("", "get", "list", "create")), "count": chance.randint(1, 12), "by": chance.choice((0.2, 3.0, 15.0))}
            case "lag":
                return {"versions": chance.choice((1, 10, 200)), "count": chance.randint(1, 6)}
            case "watch":
                action = chance.choice(("cut", "duplicate", "gone", "stall"))
                return {"action": action, "resource": chance.choice(("", "pods", "nodes", "reservations")), "last": chance.randint(1, 5), "seconds": self.span()}
            case "net":
                return {"share": chance.choice((0.01, 0.1)), "seconds": self.span()}
            case "latency":
                low, high = chance.choice(((0.0002, 0.05), (0.001, 0.5)))
                return {"low": low, "high": high, "seconds": self.span()}
            case "kubelet":
                return {"slower": chance.choice((20, 200)), "seconds": self.span()}
            case "dies":
                return {"node": chance.choice(nodes).name, "how": chance.choice(("unknown", "false", "gone")), "seconds": self.span()}
            case "refuses":
                return {"workload": chance.choice(workloads).name, "seconds": 3600}
        return {}

    # -- times ---------------------------------------------------------------------------------------------------------

    def moment(self) -> float:
        return round(self.chance.uniform(0.0, self.seconds), 3)

    def span(self) -> float:
        """Seconds that something lasts; faults end with calm at the latest."""
        return round(self.chance.uniform(0.5, 25.0), 3)
