"""A log of a cluster of any size, made of facts alone."""

import random

from replay.handmade import Handmade

from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, DeviceShare, OwnerRef, PodShape

GPU = "restow.dev/gpu-milli"
GIB = 1 << 30
ZONES, RACKS, OWNERS = 3, 40, 200


def large(nodes, seed=1, churn=60):
    """So many nodes of eight GPUs, five sixths of which run pods of one to eight; then in `churn` commits some pods end and others come."""
    log, dice = Handmade(), random.Random(seed)
    log.facts(
        *(
            e.NodeObserved(
                f"node-{i:05}", f"uid-n{i}", {"cpu": 96_000, "memory": 384 * GIB, "pods": 110, GPU: 8_000}, devices=8,
                labels={"topology.kubernetes.io/zone": f"zone-{i % ZONES}", "example.com/rack": f"rack-{i % RACKS:02}", "node.kubernetes.io/instance-type": f"g{i % 4 + 1}.8"},
            )
            for i in range(nodes)
        ),
        kind="nodes",
    )  # fmt: skip
    shapes = {count: PodShape({"cpu": 8_000 * count, "memory": 32 * GIB * count, "pods": 1, GPU: 1_000 * count}, scheduler="restow", devices=DeviceRequest(count, 1000), priority=count * 10) for count in (1, 2, 4, 8)}
    log.facts(*(e.ShapeDeclared(f"gpu-{count}", spec) for count, spec in shapes.items()))
    alive, number = {}, 0

    def fill(node, free):
        nonlocal number
        while free and dice.random() < 0.9:
            count = dice.choice([one for one in (1, 1, 2, 4, 8) if one <= len(free)])
            taken, free = free[:count], free[count:]
            number += 1
            uid, owner = f"uid-p{number}", f"job-{dice.randrange(OWNERS):03}"
            alive[uid] = node, taken
            yield e.PodObserved(
                uid, f"team-{number % 7}", f"{owner}-{number}", f"gpu-{count}", 0, owner=OwnerRef("Job", owner, f"uid-{owner}"), node=f"node-{node:05}", phase="Running",
                ready=True, devices=tuple(DeviceShare(index, 1000) for index in taken),
            )  # fmt: skip

    for first in range(0, nodes, 500):
        log.facts(*(pod for node in range(first, min(first + 500, nodes)) for pod in fill(node, list(range(8)))))
    for _ in range(churn):
        facts = []
        for uid in dice.sample(sorted(alive), min(40, len(alive))):
            node, taken = alive.pop(uid)
            facts += [e.PodGone(uid), *fill(node, taken)]
        log.facts(*facts)
    return log
